"""Workers as processes, with the sandbox and a real Redis: which calls run, and what they report.

What calls give is in `test_kiln_contract`.
"""

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from toolkiln.fleet import keys
from toolkiln.fleet.publisher import announce
from toolkiln.fleet.remote_catalog import CatalogReader
from toolkiln.model.call import Status
from toolkiln.model.identity import Caller

from .servers import Server
from .workers import Asker, Running, asking, code_of, tools_folder, until, worker

TOOLS = '''
from toolkiln import Context, tool

@tool(read_only=True)
def echo(text: str) -> str:
    """Give a text back."""
    return text

@tool(read_only=True)
def flood(ctx: Context) -> str:
    """Report far more often than anybody can read."""
    for number in range(500):
        ctx.report_progress(number, 500, "far")
    return "reported"
'''
GREET = '''
def greet() -> str:
    """Greet."""
    return "Hello"
'''


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools_folder(tmp_path_factory.mktemp("fleet"), "# nothing\n", some=TOOLS, greet=GREET)


@pytest.fixture(scope="module")
def running(module_server: Server, tools: Path) -> Iterator[Running]:
    """A worker for all tests that leave it as it is."""
    with worker(module_server.url, tools, "--health-port", "0") as running:
        yield running


@pytest.fixture
async def asker(running: Running, shared_server: Server) -> AsyncIterator[Asker]:
    async with asking(shared_server) as opened:
        yield opened


async def test_of_much_progress_the_last_is_sent_before_the_end(asker: Asker) -> None:
    envelope = await asker.start("flood", events=True)
    await asker.end_of(envelope)

    steps = [event.done or 0 for event in asker.events[envelope.record]]
    assert steps == sorted(steps)
    assert steps[-1] == 499


async def test_more_calls_than_slots_all_end(asker: Asker) -> None:
    results = await asyncio.gather(*(asker.call("echo", {"text": str(n)}) for n in range(50)))

    assert [result.value for result in results] == [str(number) for number in range(50)]


async def test_arguments_that_cannot_be_read_are_an_end(asker: Asker) -> None:
    result = await asker.call("echo", arguments=msgspec.Raw(b"\xc7\x01\x63\x00"))
    after = await asker.call("echo", {"text": "x"})

    assert code_of(result) == "poison"
    assert after.status is Status.OK


# Who may


async def test_a_call_that_is_not_sealed_is_forged(running: Running, shared_server: Server) -> None:
    async with asking(shared_server, fleet="another key") as asker:
        result = await asker.call("echo", {"text": "x"})

    assert (result.status, code_of(result)) == (Status.DENIED, "forged")


async def test_a_result_is_not_returned_to_another_caller_with_the_same_id(asker: Asker) -> None:
    result = await asker.call("echo", {"text": "x"}, caller=Caller(user_id="ben"))

    assert (result.status, code_of(result)) == (Status.DENIED, "forged")


async def test_without_a_session_nothing_runs(asker: Asker) -> None:
    result = await asker.call("echo", {"text": "x"}, session="f" * 64)

    assert (result.status, code_of(result)) == (Status.DENIED, "no_session")


# Versions


async def test_tools_are_published_as_they_change_and_earlier_versions_still_run(
    asker: Asker, tools: Path
) -> None:
    published = CatalogReader(asker.pipe, asker.key)
    await published.refresh()
    before = published.snapshot.tools["greet"].digest
    greet = tools / "greet.py"
    greet.write_text(greet.read_text().replace("Hello", "Good day"))
    while published.snapshot.tools["greet"].digest == before:
        await published.refresh()
    after = published.snapshot.tools["greet"].digest

    old, new, unknown = [
        await asker.call("greet", digest=digest) for digest in (before, after, "0" * 64)
    ]

    assert (old.value, new.value) == ("Hello", "Good day")
    assert code_of(unknown) == "stale"


async def test_rules_are_published_as_they_change(asker: Asker, tools: Path) -> None:
    published = CatalogReader(asker.pipe, asker.key)
    settings = tools.parent / "toolkiln.toml"
    settings.write_text('[[rules]]\neffect = "deny"\ntools = ["greet"]\n')
    await announce(asker.pipe, "config")
    while not (published.snapshot.permissions or {}).get("rules"):
        await published.refresh()

    denied, allowed = await asker.call("greet"), await asker.call("echo", {"text": "x"})

    settings.write_text("# nothing\n")
    assert (denied.status, allowed.status) == (Status.DENIED, Status.OK)


# What a worker says of itself


async def test_it_logs_each_call_with_its_end(running: Running, asker: Asker) -> None:
    await asker.call("echo", {"text": "x"})
    await asker.call("echo", {"text": 5})

    lines = [
        await asyncio.to_thread(
            running.await_line, f"{level}: call of echo by {asker.caller.who}: {end} in"
        )
        for level, end in (("info", "ok"), ("warning", "invalid"))
    ]
    assert all(re.search(r" in \d+ ms$", line) for line in lines)


async def test_it_says_that_it_is_alive_and_takes_calls(running: Running, asker: Asker) -> None:
    url = running.await_line("health ").split()[1]
    await asker.call("echo", {"text": "x"})

    with urllib.request.urlopen(url) as answer:
        ready = json.load(answer)
    with urllib.request.urlopen(url.replace("readyz", "healthz")) as answer:
        alive = json.load(answer)
    with urllib.request.urlopen(url.replace("readyz", "metrics")) as answer:
        metrics = answer.read().decode()

    assert ready["ready"]
    assert ready["checks"]["fleet"] == "ok"
    assert alive == {"status": "ok"}
    assert re.search(r"^toolkiln_tool_calls_total\{", metrics, re.M)


def test_it_describes_itself_in_redis(running: Running, shared_server: Server) -> None:
    with closing(shared_server.client()) as client:
        about = until(lambda: client.hgetall(keys.worker(running.name)))

    assert about[b"pool"] == b"default"
    assert about[b"slots"] == b"32"
    assert about[b"state"] == b"running"
    assert int(about[b"pid"]) == running.child()
