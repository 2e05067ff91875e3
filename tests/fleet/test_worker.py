"""Workers as processes, with the sandbox and a real Redis: what calls give, and how they end."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
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
from .workers import Running, asking, code_of, tools_folder, until, worker

TOOLS = '''
from toolkiln import Context, tool

@tool(read_only=True)
def echo(text: str, ctx: Context) -> str:
    """Give a text back."""
    return text

@tool(read_only=True)
def fail() -> str:
    """Fail."""
    raise ValueError("no")

@tool(read_only=True)
def give(ctx: Context) -> str:
    """Hand over all there is to hand over."""
    with open("out.bin", "wb") as file:
        file.write(bytes(range(256)))
    ctx.report_progress(1, 2, "half")
    ctx.log("working")
    ctx.send_file("out.bin")
    ctx.send_message({"rich": ["text", 1]})
    ctx.inject_tools("echo", "fail")
    return "given"

@tool(read_only=True)
def flood(ctx: Context) -> str:
    """Report far more often than anybody can read."""
    for number in range(500):
        ctx.report_progress(number, 500, "far")
    return "told"

@tool
def nap(seconds: float, ctx: Context) -> str:
    """Sleep once."""
    import time
    ctx.report_progress(0, None, "begun")
    time.sleep(seconds)
    return "slept"

@tool(idempotent=True)
def doze(seconds: float, ctx: Context) -> str:
    """Sleep, as often as it takes."""
    import time
    ctx.report_progress(0, None, "begun")
    time.sleep(seconds)
    return "slept"
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


# What calls give


async def test_a_call_gives_what_the_tool_returned(running: Running, shared_server: Server) -> None:
    async with asking(shared_server) as asker:
        result = await asker.call("echo", {"text": "häh"})

    assert (result.status, result.value) == (Status.OK, "häh")
    assert result.sandbox in ("A", "B", "C")


async def test_what_a_tool_hands_over_comes_back_with_its_result(
    running: Running, shared_server: Server
) -> None:
    async with asking(shared_server) as asker:
        envelope = await asker.start("give", events=True)
        result = await asker.end_of(envelope)
        told = asker.events[envelope.record]

    assert result.value == "given"
    assert [(file.name, file.data) for file in result.files] == [("out.bin", bytes(range(256)))]
    assert result.messages == ({"rich": ["text", 1]},)
    assert result.injected_tools == ("echo", "fail")
    assert [(event.kind, event.text) for event in told] == [
        ("progress", "half"),
        ("log", "working"),
    ]


async def test_of_much_progress_the_last_is_sent_before_the_end(
    running: Running, shared_server: Server
) -> None:
    async with asking(shared_server) as asker:
        envelope = await asker.start("flood", events=True)
        await asker.end_of(envelope)
        told = [event.done or 0 for event in asker.events[envelope.record]]

    assert told == sorted(told)
    assert told[-1] == 499
    assert len(told) < 250


async def test_a_failure_a_wrong_call_and_an_unknown_tool_are_answers(
    running: Running, shared_server: Server
) -> None:
    async with asking(shared_server) as asker:
        failed = await asker.call("fail")
        wrong = await asker.call("echo", {"texts": 1})
        unknown = await asker.call("ech")

    assert (failed.status, failed.error and failed.error.type) == (Status.FAILED, "ValueError")
    assert wrong.status is Status.INVALID
    assert (unknown.status, code_of(unknown)) == (Status.INVALID, "unknown_tool")


async def test_a_call_ends_when_its_time_is_up(running: Running, shared_server: Server) -> None:
    async with asking(shared_server) as asker:
        result = await asker.call("nap", {"seconds": 60}, timeout_ms=300)

    assert result.status is Status.TIMEOUT


async def test_more_calls_than_slots_all_end(running: Running, shared_server: Server) -> None:
    async with asking(shared_server) as asker:
        calls = [asker.call("echo", {"text": str(number)}) for number in range(50)]
        results = await asyncio.gather(*calls)

    assert [result.value for result in results] == [str(number) for number in range(50)]


async def test_arguments_that_cannot_be_read_are_an_end(
    running: Running, shared_server: Server
) -> None:
    async with asking(shared_server) as asker:
        result = await asker.call("echo", arguments=msgspec.Raw(b"\xc7\x01\x63\x00"))
        after = await asker.call("echo", {"text": "x"})

    assert code_of(result) == "poison"
    assert after.status is Status.OK


# Who may


async def test_a_call_that_is_not_sealed_is_forged(running: Running, shared_server: Server) -> None:
    async with asking(shared_server, fleet="another key") as asker:
        result = await asker.call("echo", {"text": "x"})

    assert (result.status, code_of(result)) == (Status.DENIED, "forged")


async def test_a_result_is_not_returned_to_another_caller_with_the_same_id(
    running: Running, shared_server: Server
) -> None:
    async with asking(shared_server) as asker:
        other = Caller(user_id="ben")
        result = await asker.call("echo", {"text": "x"}, caller=other)

    assert (result.status, code_of(result)) == (Status.DENIED, "forged")


async def test_without_a_session_nothing_runs(running: Running, shared_server: Server) -> None:
    async with asking(shared_server) as asker:
        result = await asker.call("echo", {"text": "x"}, session="f" * 64)

    assert (result.status, code_of(result)) == (Status.DENIED, "no_session")


# Versions


async def test_an_unknown_version_is_stale(running: Running, shared_server: Server) -> None:
    async with asking(shared_server) as asker:
        result = await asker.call("echo", {"text": "x"}, digest="0" * 64)

    assert code_of(result) == "stale"


async def test_tools_are_published_as_they_change_and_earlier_versions_still_run(
    running: Running, shared_server: Server, tools: Path
) -> None:
    async with asking(shared_server) as asker:
        published = CatalogReader(asker.pipe, asker.key)
        await published.refresh()
        before = published.snapshot.tools["greet"].digest
        greet = tools / "greet.py"
        greet.write_text(greet.read_text().replace("Hello", "Good day"))
        while published.snapshot.tools["greet"].digest == before:
            await published.refresh()
        after = published.snapshot.tools["greet"].digest

        old = await asker.call("greet", digest=before)
        new = await asker.call("greet", digest=after)

    assert (old.value, new.value) == ("Hello", "Good day")


async def test_rules_are_published_as_they_change(
    running: Running, shared_server: Server, tools: Path
) -> None:
    async with asking(shared_server) as asker:
        published = CatalogReader(asker.pipe, asker.key)
        settings = tools.parent / "toolkiln.toml"
        settings.write_text('[[rules]]\neffect = "deny"\ntools = ["fail"]\n')
        await announce(asker.pipe, "config")
        while not (published.snapshot.permissions or {}).get("rules"):
            await published.refresh()

        denied, allowed = await asker.call("fail"), await asker.call("echo", {"text": "x"})

        settings.write_text("# nothing\n")
    assert (denied.status, allowed.status) == (Status.DENIED, Status.OK)


# Cancelling


async def test_a_call_that_runs_is_cancelled(running: Running, shared_server: Server) -> None:
    async with asking(shared_server) as asker:
        envelope = await asker.start("nap", {"seconds": 60}, events=True)
        await asker.told_by(envelope)

        answer = await asker.queue.cancel(envelope.record)

        assert answer == "asked"
        assert (await asker.end_of(envelope)).status is Status.CANCELLED


# How the worker stands


def test_it_says_that_it_is_alive_and_takes_calls(running: Running) -> None:
    url = running.await_line("health ").split()[1]

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
