"""Kilns in front of a fleet: what they do by themselves, and what they do when things break."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import InputError, StoreError
from toolkiln.fleet import keys, wire
from toolkiln.fleet.delivery import Delivery, Ending
from toolkiln.fleet.message_auth import fleet_keys
from toolkiln.fleet.publisher import Publisher
from toolkiln.fleet.steps import leaves_open
from toolkiln.model.call import CallError, Event, Result, Status, Task
from toolkiln.operations.tools import specs_on_disk

from .queues import Desk, desk
from .servers import Server, running
from .workers import tools_folder, worker

SOON = 60.0
TOOLS = '''
import time
from toolkiln import tool


@tool(read_only=True)
def add(left: int, right: int = 2) -> int:
    """Add two whole numbers."""
    return left + right


@tool
def last(seconds: float) -> str:
    """Take some time."""
    time.sleep(seconds)
    return "lasted"


@tool(pinned=True)
def here(number: int) -> int:
    """Run where the caller is."""
    return -number


@tool(pinned=True, sandbox=False)
def bare() -> str:
    """Want to run where the caller is, without a sandbox."""
    return "outside"
'''
ANNOUNCE = '''
import time
from toolkiln import Context


def announce(ctx: Context) -> str:
    """Send many messages, slowly."""
    for number in range(150):
        ctx.send_message(number)
        time.sleep(0.01)
    return "announced"
'''
CALLER = """
import sys
seen = []
def hook(event, arguments):
    what = str(arguments[0]) if arguments else ""
    if event in ("open", "import", "exec") and "contract" in what:
        seen.append((event, what))
sys.addaudithook(hook)
from pathlib import Path
from toolkiln import Kiln
from toolkiln.config import Settings
with Kiln.connect("URL", settings=Settings(state=Path("STATE"))) as kiln:
    names = list(kiln.services.registry.specs)
    found = [hit.key for hit in kiln.search("sum", 3).hits]
    tools = kiln.tools("openai")
    value = kiln.call_sync("add", {"left": 40}).value
import json, threading
threads = [thread.name for thread in threading.enumerate()]
print(json.dumps([names, found, value, len(tools), seen, threads]))
"""


@pytest.fixture
def alone(folder: Path) -> Iterator[Server]:
    """A server that no worker knows of."""
    with running(folder) as server:
        yield server


def connected(url: str, folder: Path) -> Kiln:
    return Kiln.connect(url, settings=Settings(state=folder))


def test_a_program_without_a_loop_calls_tools_without_loading_them_and_leaves_nothing_running(
    contract_fleet: str, tmp_path: Path
) -> None:
    script = CALLER.replace("URL", contract_fleet).replace("STATE", str(tmp_path))

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=SOON
    )

    names, found, value, count, seen, threads = json.loads(done.stdout)
    assert {"add", "last"} <= set(names)
    assert "add" in found
    assert (value, seen) == (42, [])
    assert count >= 3
    assert "toolkiln-fleet" not in threads


async def test_a_call_in_the_background_continues_without_its_caller(
    contract_fleet: str, tmp_path: Path
) -> None:
    async with connected(contract_fleet, tmp_path / "a") as first:
        task = await first.call("last", {"seconds": 1}, background=True)
        assert isinstance(task, Task)

    async with connected(contract_fleet, tmp_path / "b") as second:
        ended = await second.tasks.wait(task.id, timeout=SOON)

    assert ended.result is not None
    assert ended.result.value == "lasted"


async def test_a_front_has_no_tool_files(contract_fleet: str, tmp_path: Path) -> None:
    async with connected(contract_fleet, tmp_path) as kiln:
        with pytest.raises(InputError, match="tool files are at the workers"):
            _ = kiln.services.admissions
        with pytest.raises(InputError, match="tool files are at the workers"):
            specs_on_disk(kiln.services)


async def test_a_fleet_without_redis_is_an_answer_to_calls(tmp_path: Path) -> None:
    kiln = Kiln.connect("redis://127.0.0.1:1", settings=Settings(state=tmp_path))
    try:
        with pytest.raises(StoreError):
            _ = kiln.services.registry.specs

        result = await kiln.call("add", {"left": 1})
    finally:
        await kiln.close()

    assert (result.status, result.error and result.error.code) == (
        Status.UNAVAILABLE,
        "store_failed",
    )


async def test_pinned_tools_run_here_with_what_is_granted_here(
    alone: Server, tmp_path: Path
) -> None:
    async with staged(alone, tmp_path) as (_, kiln):  # where no worker takes a call
        pinned = await kiln.call("here", {"number": 5})
        bare = await kiln.call("bare")

    assert (pinned.value, pinned.sandbox != "none") == (-5, True)
    assert (bare.status, bare.value) == (Status.DENIED, None)


class Stage:
    """A fleet of one folder whose worker is the test itself."""

    def __init__(self, own: Desk, kiln: Kiln, publisher: Publisher, tools: Path) -> None:
        self._own = own
        self._kiln = kiln
        self._publisher = publisher
        self._tools = tools

    async def publish(self, source: str) -> None:
        """Serve another version."""
        (self._tools / "arithmetic.py").write_text(source, "utf-8")
        self._kiln.catalog.refresh()
        await self._publisher.publish(*self._kiln.engine.published(), {})

    async def take(self) -> Delivery:
        """The next call."""
        [delivery] = await self._own.queue.read("stage", 1, 30_000)
        return delivery

    async def end(self, delivery: Delivery, code: str) -> None:
        """End a call without a result."""
        await self._own.queue.finish(Ending(delivery, "end", code.encode()))

    async def give(self, delivery: Delivery, **fields: object) -> None:
        """End a call with a result, as a worker does."""
        envelope = delivery.envelope
        known = {"call_id": envelope.id, "tool": envelope.tool, "status": Status.OK}
        result = Result.model_validate({**known, **fields})
        body, is_open = wire.result_to_wire(result), leaves_open(result)
        await self._own.queue.finish(Ending(delivery, "result", body, is_open))


@asynccontextmanager
async def staged(server: Server, folder: Path) -> AsyncIterator[tuple[Stage, Kiln]]:
    """A fleet that the test plays the worker of, and a Kiln in front of it."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "arithmetic.py").write_text(TOOLS, "utf-8")
    settings = Settings(state=folder / "worker")
    async with desk(server.url) as own, Kiln(tools, settings=settings, dev=True) as behind:
        publisher = Publisher(own.pipe, await fleet_keys(own.pipe, Settings()), "default", "stage")
        stage = Stage(own, behind, publisher, tools)
        await stage.publish(TOOLS)
        async with connected(server.url, folder / "caller") as kiln:
            yield stage, kiln


async def test_a_version_that_no_worker_has_is_routed_again_until_nothing_changes(
    alone: Server, tmp_path: Path
) -> None:
    async with staged(alone, tmp_path) as (stage, kiln):
        made = asyncio.create_task(kiln.call("add", {"left": 1}))
        first = await stage.take()
        await stage.publish(TOOLS.replace("left + right", "right + left"))
        await stage.end(first, "stale")
        second = await stage.take()
        await stage.give(second, value=3)
        result = await made
        again = asyncio.create_task(kiln.call("add", {"left": 1}))
        await stage.end(await stage.take(), "stale")
        stale = await again

    assert result.value == 3
    assert first.envelope.digest != second.envelope.digest
    assert first.record == second.record
    assert stale.error is not None
    assert (stale.status, stale.error.code) == (Status.UNAVAILABLE, "stale")


async def test_events_are_requested_from_workers_for_active_observers_only(
    alone: Server, tmp_path: Path
) -> None:
    async with staged(alone, tmp_path) as (stage, kiln):
        kiln.services.runs.subscribe_to(kiln.engine.events)
        requested = []
        for work in (
            kiln.call("add", {"left": 1}),
            kiln.call("add", {"left": 1}, observe=lambda _: None),
        ):
            made = asyncio.create_task(work)
            delivery = await stage.take()
            requested.append(delivery.envelope.events)
            await stage.give(delivery, value=3)
            await made

        logged = [run.record.tool for run in kiln.services.runs.all]

    assert requested == [False, True]
    assert logged == ["add", "add"]


async def test_messages_come_once_and_in_order_while_all_connections_break(
    alone: Server, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def observe(event: Event) -> None:
        seen.append(event.value)
        if len(seen) in (10, 50, 90):
            with closing(alone.client()) as client:
                client.client_kill_filter(_type="normal", skipme=True)

    with worker(alone.url, tools_folder(tmp_path, announce=ANNOUNCE)):
        async with connected(alone.url, tmp_path / "front") as kiln:
            result = await kiln.call("announce", observe=observe)

    assert result.status is Status.OK, result.error
    assert seen == [*range(150)] == [*result.messages]


async def test_every_concurrent_call_is_retried_after_redis_lost_their_session(
    alone: Server, tmp_path: Path
) -> None:
    unknown = CallError(code="no_session", message="this session is unknown")
    async with staged(alone, tmp_path) as (stage, kiln):
        made = [asyncio.create_task(kiln.call("add", {"left": left})) for left in range(8)]
        refused = [await stage.take() for _ in made]
        with closing(alone.client()) as behind:
            assert refused[0].envelope.session is not None
            name = keys.session(refused[0].envelope.session)
            known = behind.delete(name)
            for delivery in refused:
                await stage.give(delivery, status="denied", error=unknown)
            again = [await stage.take() for _ in made]
            is_shared = behind.exists(name)
        for delivery in again:
            await stage.give(delivery, value=3)
        results = await asyncio.gather(*made)

    assert (known, is_shared) == (1, 1)
    assert [(result.status, result.value) for result in results] == [(Status.OK, 3)] * 8


async def test_what_was_published_stays_when_redis_is_gone(alone: Server, tmp_path: Path) -> None:
    async with staged(alone, tmp_path) as (_, kiln):
        before = set(kiln.services.registry.specs)
        alone.process.kill()
        alone.process.wait()

        after = set(kiln.services.registry.specs)

    assert "add" in before
    assert after == before
