"""The run log: what it keeps, what it bounds, what it hides, and how calls are stopped."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from toolkiln.config import Settings
from toolkiln.define import Context, tool
from toolkiln.execution.call_events import CallEvents
from toolkiln.execution.run_log import MAX_ENDED, RunLog, RunRecord
from toolkiln.kiln import Kiln
from toolkiln.model.audit import AuditFilter
from toolkiln.model.call import Call, Event, Status
from toolkiln.security.masking import Mask

from .observers import SOON, until

SECRET = "correct horse battery staple"


@tool
async def add_one(number: int) -> int:
    """Add one.

    Args:
        number: To what.
    """
    return number + 1


@tool
async def wait_long(ctx: Context) -> str:
    """Wait longer than any test."""
    ctx.log("begun")
    await asyncio.sleep(600)
    return "waited"


@tool
async def hold_on(ctx: Context) -> str:
    """Do not heed the first cancellation."""
    ctx.log("begun")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        await asyncio.sleep(600)
    return "held"


@tool
async def shrug(ctx: Context) -> str:
    """Take a cancellation for the end of the work."""
    ctx.log("begun")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        return "so be it"
    return "waited"


@tool
def chatter(lines: int, ctx: Context) -> None:
    """Say much.

    Args:
        lines: How much.
    """
    for number in range(lines):
        ctx.log(f"line {number} " + "x" * 500)
        ctx.report_progress(number, lines)


@tool
def echo(text: str, ctx: Context) -> str:
    """Give a text back.

    Args:
        text: Which.
    """
    ctx.log(f"it is {text}")
    return text


@tool(requires_secrets=["KEY"])
def hand_on(ctx: Context) -> str:
    """Hand a secret to another tool as if it were none."""
    ctx.call("echo", text=ctx.secrets["KEY"])
    return "done"


@tool
def have_it_wait(ctx: Context) -> str:
    """Have another tool wait."""
    ctx.call("wait_long")
    return "done"


@pytest_asyncio.fixture
async def kiln(tmp_path: Path) -> AsyncIterator[Kiln]:
    """Functions of this process, with a run log."""
    settings = Settings(
        state=tmp_path / "state",
        environ={"TOOLKILN_SECRET_KEY": SECRET},
        grants={"hand_on": {"secrets": ["KEY"]}},
    )
    tools = (add_one, wait_long, hold_on, shrug, chatter, echo, hand_on, have_it_wait)
    async with Kiln(functions=tools, settings=settings) as kiln:
        unsubscribe = kiln.services.runs.subscribe_to(kiln.engine.events)
        yield kiln
        unsubscribe()


def only(kiln: Kiln, name: str) -> RunRecord:
    (found,) = [run for run in kiln.services.runs.all if run.record.tool == name]
    return found


async def begun(kiln: Kiln, name: str, **options: Any) -> tuple[asyncio.Task[Any], RunRecord]:
    """A call of a tool, and its run once it waits."""
    runs, calling = kiln.services.runs, asyncio.create_task(kiln.call(name, **options))
    await until(lambda: any(run.events for run in runs.all))
    return calling, only(kiln, name)


async def test_a_run_is_in_the_log_from_its_start(kiln: Kiln) -> None:
    running, run = await begun(kiln, "wait_long")
    before = run.status
    running.cancel()
    await asyncio.wait([running])

    assert (before, run.status) == ("running", "cancelled")
    assert run.record.user == kiln.security.caller(kiln.security.operator).who


async def test_the_log_keeps_the_last_runs_and_since_when_it_is_complete(kiln: Kiln) -> None:
    started = time.time()

    for number in range(MAX_ENDED + 5):
        await kiln.call("add_one", {"number": number})

    kept = kiln.services.runs.all
    assert len(kept) == MAX_ENDED
    assert kept[0].arguments == '{"number": 5}'
    assert started < kiln.services.runs.kept_since < kept[0].started


async def test_a_caller_with_many_runs_pushes_out_no_runs_of_others(kiln: Kiln) -> None:
    ann = kiln.security.create_session("ann")
    await kiln.call("add_one", {"number": -1}, session=ann.token)

    for number in range(MAX_ENDED):
        await kiln.call("add_one", {"number": number})

    kept = kiln.services.runs.all
    assert len(kept) == MAX_ENDED
    assert [run.arguments for run in kept if run.record.user == "ann"] == ['{"number": -1}']
    assert kept[1].arguments == '{"number": 1}'


async def test_of_many_events_of_a_run_the_last_are_kept(kiln: Kiln) -> None:
    await kiln.call("chatter", {"lines": 400})

    run = only(kiln, "chatter")
    assert sum(len(reported.text) for reported in run.events) <= 20_000
    assert len(run.events) <= 200
    assert run.dropped_events > 300
    assert run.events[-1].text == run.progress == "399 of 400"


async def test_arguments_are_kept_without_secrets_and_cut(kiln: Kiln) -> None:
    await kiln.call("echo", {"text": "y" * 5000, "password": "hunter2"})

    shown = only(kiln, "echo").arguments
    assert "hunter2" not in shown
    assert len(shown) == 2000


async def test_a_secret_that_a_tool_passes_on_is_not_in_the_log(kiln: Kiln) -> None:
    result = await kiln.call("hand_on")

    run = only(kiln, "echo")
    everything = repr((run.arguments, run.events, run.result, run.record))
    assert result.status is Status.OK, result
    assert SECRET not in everything
    assert everything.count("[secret:KEY]") == 3


async def test_a_secret_that_is_printed_in_pieces_is_not_in_the_log() -> None:
    events, log = CallEvents(), RunLog(lambda *_: None)
    log.subscribe_to(events)
    call = events.open(Call(tool="show"), mask=Mask({"KEY": SECRET}))
    call.start()

    for piece in ("it is ", SECRET[:9], SECRET[9:], ", or ", SECRET[:9]):
        call.emit(Event(kind="stdout", text=piece))
    call.finish(None)
    call.end(None)

    (run,) = log.all
    assert (
        "".join(reported.text for reported in run.events) == "it is [secret:KEY], or [secret:KEY]"
    )


async def test_a_stopped_call_ends_in_a_result_that_says_who_stopped_it(kiln: Kiln) -> None:
    running, run = await begun(kiln, "wait_long")

    await run.stop("ann", SOON)

    result = await running
    (entry,) = kiln.security.audit.export(AuditFilter(act="call"))
    assert (result.status, running.cancelling()) == (Status.CANCELLED, 0)
    assert result.text == "error: ann cancelled this call"
    assert entry.record.detail == "cancelled: ann cancelled this call"


async def test_a_call_that_does_not_heed_it_can_be_stopped_again(kiln: Kiln) -> None:
    running, run = await begun(kiln, "hold_on")

    await run.stop("ann", 0.05)
    still = run.is_running
    await run.stop("ann", SOON)

    assert still
    assert (await running).status is Status.CANCELLED
    assert running.cancelling() == 0


async def test_a_stop_that_a_tool_swallows_does_not_hit_what_follows(kiln: Kiln) -> None:
    async def both() -> list[Status]:
        first = await kiln.call("shrug")
        await asyncio.sleep(0)
        second = await kiln.call("add_one", {"number": 1})
        return [first.status, second.status]

    running = asyncio.create_task(both())
    await until(lambda: any(run.events for run in kiln.services.runs.all))
    run = only(kiln, "shrug")

    await run.stop("ann", SOON)

    assert await running == [Status.OK, Status.OK]
    assert running.cancelling() == 0


async def test_who_cancels_everything_around_a_stopped_call_is_heeded(kiln: Kiln) -> None:
    running, run = await begun(kiln, "wait_long")

    stopping = asyncio.create_task(run.stop("ann", SOON))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running, stopping])

    assert running.cancelled()
    assert run.status == "cancelled"


async def test_what_a_stopped_function_has_called_is_stopped_with_it(kiln: Kiln) -> None:
    running, _ = await begun(kiln, "have_it_wait", call_id="outer")
    inner = only(kiln, "wait_long")
    caller = kiln.security.caller(kiln.security.operator)

    found = kiln.services.history.running(caller, "outer")
    for run in found:
        await run.stop("ann", SOON)

    assert [run.record.tool for run in found] == ["have_it_wait", "wait_long"]
    assert (await running).status is Status.CANCELLED
    assert inner.status == "cancelled"
