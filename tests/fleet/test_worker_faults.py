"""What becomes of calls when their worker dies, stops, hangs or leaves."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import pytest

from toolkiln.fleet import keys
from toolkiln.fleet.delivery import ControlMessage
from toolkiln.fleet.remote_catalog import CatalogReader
from toolkiln.model.call import Status

from . import servers
from .faults.reckoning import begun, runs, settled
from .servers import Server
from .workers import (
    LEASE,
    Running,
    asking,
    await_state,
    code_of,
    performer,
    tools_folder,
    until,
    worker,
)

pytestmark = pytest.mark.faults

LONG = 600.0


@pytest.fixture
def first(server: Server, tmp_path: Path) -> Iterator[Running]:
    with performer(server.url, tmp_path) as running:
        yield running


# Death


async def test_what_a_dead_worker_had_begun_runs_again_if_it_may(
    server: Server, first: Running, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        twice = await asker.start("doze", {"seconds": LONG, "mark": "twice"}, repeatable=True)
        once = await asker.start("nap", {"seconds": LONG, "mark": "once"})
        await begun(tmp_path, "twice")
        await begun(tmp_path, "once")

        first.process.kill()
        with performer(server.url, tmp_path) as second:
            again, lost = await asker.end_of(twice), await asker.end_of(once)

    assert again.value == f"slept by {second.process.pid}"
    assert runs(tmp_path, "twice") == [first.process.pid, second.process.pid]
    assert code_of(lost) == "lost"
    assert runs(tmp_path, "once") == [first.process.pid]


async def test_a_call_that_kills_its_workers_is_given_up(server: Server, tmp_path: Path) -> None:
    async with asking(server) as asker:
        envelope = await asker.start("die", {"mark": "dead"}, repeatable=True)

        for _ in range(3):
            with performer(server.url, tmp_path) as running:
                running.process.wait(60)
        result = await asker.end_of(envelope)

    assert code_of(result) == "poison"
    assert len(runs(tmp_path, "dead")) == 3
    with closing(server.client()) as client:
        letters = cast(
            "list[tuple[bytes, dict[bytes, bytes]]]", client.xrange(keys.dead("default"))
        )
    assert [letter[b"record"].decode() for _, letter in letters] == [envelope.record]


async def test_a_call_that_shared_its_process_with_a_poison_call_is_tried_alone(
    server: Server, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        beside = {"seconds": 0.2, "mark": "beside"}
        innocent = await asker.start("linger", beside, repeatable=True)
        poison = await asker.start("die", {"mark": "dead"}, repeatable=True)

        for _ in range(3):
            with performer(server.url, tmp_path) as running:
                await asyncio.to_thread(running.process.wait, 60)
        with performer(server.url, tmp_path):  # the poison call may have been the first alone
            results = [await asker.end_of(call) for call in (innocent, poison)]

    assert results[0].value == "lingered"
    assert code_of(results[1]) == "poison"
    assert len(runs(tmp_path, "dead")) == 3


async def test_a_program_takes_no_calls_without_its_sidecar(
    server: Server, first: Running, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        call = await asker.start("doze", {"seconds": LONG, "mark": "kept"}, repeatable=True)
        await begun(tmp_path, "kept")

        os.kill(first.children()[0], signal.SIGKILL)

        assert await asyncio.to_thread(first.process.wait, 60) != 0
        with performer(server.url, tmp_path):
            result = await asker.end_of(call)

    assert result.status is Status.OK
    assert "the lease sidecar of this process has exited" in first.said[-1]


# Stopping, and going on


async def test_a_worker_that_was_stopped_loses_its_calls_and_gives_them_up_when_it_goes_on(
    server: Server, first: Running, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        twice = await asker.start("doze", {"seconds": LONG, "mark": "twice"}, repeatable=True)
        once = await asker.start("nap", {"seconds": LONG, "mark": "once"})
        await begun(tmp_path, "twice")
        await begun(tmp_path, "once")
        short = await asker.start("nap", {"seconds": 1, "mark": "short"})
        await begun(tmp_path, "short")

        first.process.send_signal(signal.SIGSTOP)
        with performer(server.url, tmp_path) as second:
            again, *lost = [await asker.end_of(call) for call in (twice, once, short)]
        first.process.send_signal(signal.SIGCONT)
        await asyncio.to_thread(first.await_line, "lost the lease of a call of doze")
        await asyncio.to_thread(first.await_line, "lost the lease of a call of nap")
        after = [await asker.call("double", {"number": n}, repeatable=True) for n in range(3)]

        assert again.value == f"slept by {second.process.pid}"
        assert [code_of(one) for one in lost] == ["lost", "lost"]
        assert [len(asker.replies[call.record]) for call in (twice, once, short)] == [1, 1, 1]
    assert [result.value for result in after] == [0, 2, 4]
    assert [len(runs(tmp_path, mark)) for mark in ("once", "short")] == [1, 1]
    await settled(server)


# Time


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("nap", {"seconds": 4 * LEASE}),
        ("block", {"seconds": 4 * LEASE}),
        ("hold", {"count": 30_000_000}),
    ],
)
async def test_a_call_that_is_longer_than_the_lease_keeps_it(
    server: Server, tmp_path: Path, tool: str, arguments: dict[str, float]
) -> None:
    lease = 0.2 if tool == "hold" else LEASE
    with performer(server.url, tmp_path, lease=lease), performer(server.url, tmp_path, lease=lease):
        async with asking(server) as asker:
            result = await asker.call(tool, {**arguments, "mark": "m"}, repeatable=tool != "nap")

    assert result.status is Status.OK
    assert len(runs(tmp_path, "m")) == 1
    await settled(server)


# Redis


async def test_a_worker_goes_on_with_a_redis_that_has_forgotten_everything(
    folder: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        with servers.running(folder) as first:
            port = first.port
            stack.enter_context(performer(first.url, tmp_path))
            async with asking(first) as asker:
                key = asker.key
                before = await asker.call("double", {"number": 1}, repeatable=True)
        with servers.running(folder, port=port) as second:
            with closing(second.client()) as client:
                await asyncio.to_thread(until, lambda: client.get(keys.FLEET_KEY))
            async with asking(second) as asker:
                published = CatalogReader(asker.pipe, key)
                while "double" not in published.snapshot.tools:
                    await published.refresh()
                after = await asker.call("double", {"number": 2}, repeatable=True)

    assert (before.value, after.value) == (2, 4)


@pytest.mark.parametrize("count", [1_000_000, 50_000_000])
async def test_a_large_result_is_an_answer_like_any_other(
    server: Server, tmp_path: Path, count: int
) -> None:
    with performer(server.url, tmp_path):
        async with asking(server) as asker:
            result = await asker.call("give", {"count": count})
            after = await asker.call("double", {"number": 4})

    assert result.status in (Status.OK, Status.FAILED)
    assert after.value == 8
    await settled(server)


# Leaving


async def test_a_worker_that_leaves_ends_what_it_can_and_hands_the_rest_on(
    server: Server, first: Running, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        quick = await asker.start("nap", {"seconds": 0.5, "mark": "quick"})
        slow = await asker.start("doze", {"seconds": LONG, "mark": "slow"}, repeatable=True)
        once = await asker.start("nap", {"seconds": LONG, "mark": "once"})
        for mark in ("quick", "slow", "once"):
            await begun(tmp_path, mark)

        status = await asyncio.to_thread(first.stop)
        with performer(server.url, tmp_path) as second:
            results = [await asker.end_of(call) for call in (quick, slow, once)]

    assert status == 0
    assert results[0].value == f"slept by {first.process.pid}"
    assert results[1].value == f"slept by {second.process.pid}"
    assert code_of(results[2]) == "lost"


async def test_a_worker_that_is_asked_to_leaves(
    server: Server, first: Running, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        await asker.queue.consumers.send_control(ControlMessage("drain", ""))

        assert await asyncio.to_thread(first.process.wait, 60) == 0


# Cancelling


async def test_of_a_cancellation_and_a_result_one_wins(
    server: Server, first: Running, tmp_path: Path
) -> None:
    async with asking(server) as asker:
        calls = [
            await asker.start("doze", {"seconds": 0.01 * n, "mark": f"m{n}"}, repeatable=True)
            for n in range(8)
        ]
        await asyncio.gather(*(asker.queue.cancel(call.record) for call in calls))
        results = [await asker.end_of(call) for call in calls]
        await asker.call("double", {"number": 1}, repeatable=True)

        assert {result.status for result in results} <= {Status.OK, Status.CANCELLED}
        assert all(len(asker.replies[call.record]) == 1 for call in calls)


# The process that runs tools, and the one beside it


TOOLS = '''
from toolkiln import Context, tool

@tool(idempotent=True)
def doze(seconds: float, ctx: Context) -> str:
    """Sleep, as often as it takes."""
    import time
    ctx.report_progress(0, None, "begun")
    time.sleep(seconds)
    return "slept"
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return tools_folder(tmp_path, some=TOOLS)


async def test_the_process_that_runs_tools_is_started_again_and_its_calls_go_on_at_once(
    server: Server, tools: Path
) -> None:
    with worker(server.url, tools, lease=60) as running:
        async with asking(server) as asker:
            call = await asker.start("doze", {"seconds": 1}, repeatable=True, events=True)
            await asker.events_of(call)
            child = running.child()
            started = asyncio.to_thread(running.await_line, "ready", 2)

            os.kill(child, signal.SIGKILL)

            await started
            result = await asker.end_of(call)
            starts = [event for event in asker.events[call.record] if event.text == "begun"]
            status = await asyncio.to_thread(running.stop)
            consumers = await asker.queue.consumers.members()

    assert result.value == "slept"
    assert consumers == []
    assert len(starts) == 2
    assert status == 0
    await settled(server)


async def test_a_frozen_idle_process_is_replaced_and_systemd_gets_signs_of_life(
    server: Server, tools: Path, folder: Path
) -> None:
    notify, said = folder / "notify", set[bytes]()
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.settimeout(60)
    systemd.bind(str(notify))

    def read() -> None:
        while word := systemd.recv(100):
            said.add(word)

    with (
        closing(systemd),
        worker(
            server.url, tools, "--frozen", "2", NOTIFY_SOCKET=str(notify), WATCHDOG_USEC="100000"
        ) as running,
    ):
        reading = asyncio.create_task(asyncio.to_thread(read))
        frozen = running.child()

        os.kill(frozen, signal.SIGSTOP)

        await asyncio.to_thread(running.await_line, "ready", 2)
        async with asking(server) as asker:
            result = await asker.call("doze", {"seconds": 0}, repeatable=True)
        await asyncio.to_thread(running.stop)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(notify))
        await reading

    assert result.value == "slept"
    assert said == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}


PROGRAM = '''
import asyncio
from pathlib import Path

async def convert(seconds: float) -> str:
    """Take some time."""
    Path("begun").touch()
    await asyncio.sleep(seconds)
    return "converted"

'''


async def test_a_program_as_the_documentation_shows_it_drains_on_sigterm(
    server: Server, tmp_path: Path
) -> None:
    shown = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text("utf-8")
    [example] = [block for block in shown.split("```") if "serve_fleet(" in block]
    code = example.removeprefix("python\n").replace("redis://127.0.0.1:6379", server.url)
    (tmp_path / "program.py").write_text(PROGRAM + code, "utf-8")
    with subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path) as program:
        async with asking(server, "conversions") as asker:
            call = await asker.start("convert", {"seconds": 1})
            await asyncio.to_thread(until, (tmp_path / "begun").exists)

            program.send_signal(signal.SIGTERM)

            result = await asker.end_of(call)
            status = await asyncio.to_thread(program.wait, 60)

    assert (result.value, status) == ("converted", 0)


async def test_with_the_process_beside_it_a_worker_dies_and_others_take_over(
    server: Server, tools: Path, tmp_path: Path
) -> None:
    with worker(server.url, tools) as running:
        async with asking(server) as asker:
            call = await asker.start("doze", {"seconds": LONG}, events=True)
            await asker.events_of(call)
            child = running.child()

            running.kill()
            await asyncio.to_thread(await_state, child, "", "Z")
            with performer(server.url, tmp_path):
                result = await asker.end_of(call)

    assert code_of(result) == "lost"
