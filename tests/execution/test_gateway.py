"""The way of a call: resolve, check, allow, execute, classify; batches and cancellation."""

import asyncio
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.kiln import Kiln
from toolkiln.model.call import Call, Event, Result, Status
from toolkiln.operations.sources import SourceCall

from .observers import RecordingObserver, local_session, space, until, until_still

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOLS = {
    "numbers.py": """
        from toolkiln import tool

        @tool
        def add(left: int, right: int = 2) -> int:
            return left + right
    """,
    "calendar.py": """
        from toolkiln import tool
        from datetime import datetime

        @tool
        def weekday(day: str) -> str:
            return datetime.strptime(day, "%Y-%m-%d").strftime("%A")
    """,
    "meeting.py": """
        import os, time
        from pathlib import Path
        from toolkiln import tool

        SPACE = Path("/workspace")

        def _meet(own: str, other: str) -> str:
            (SPACE / own).write_text("here")
            for _ in range(1000):
                if (SPACE / other).exists():
                    return f"{own} met {other}"
                time.sleep(0.01)
            return f"{own} was alone"

        @tool(parallel=True, workspace="write")
        def meet(own: str, other: str) -> str:
            return _meet(own, other)

        @tool(workspace="write")
        def line_up(name: str) -> str:
            file = SPACE / "turn"
            os.close(os.open(file, os.O_CREAT | os.O_EXCL))
            time.sleep(0.05)
            file.unlink()
            with (SPACE / "order").open("a") as order:
                order.write(name)
            return name

        @tool(workspace="write", parallel=True)
        def beat() -> None:
            for number in range(100_000):
                (SPACE / "next").write_text(str(number))
                os.replace(SPACE / "next", SPACE / "heart")
                time.sleep(0.005)
    """,
    "talk.py": """
        import sys, time
        from pathlib import Path
        from toolkiln import Context, tool

        @tool(workspace="read")
        def wait_for_reader(ctx: Context) -> str:
            print("printed")
            print("complained", file=sys.stderr)
            ctx.report_progress(1, 4, "first")
            ctx.log("logged")
            for _ in range(2000):
                if Path("/workspace/read").exists():
                    print("end")
                    return "done"
                time.sleep(0.01)
            raise TimeoutError

        @tool
        def print_and_fail() -> None:
            print("before")
            print("trouble", file=sys.stderr)
            raise ValueError("no")

        @tool
        def tell_environment() -> dict:
            import os
            return dict(os.environ)

        @tool
        def be_quiet() -> None: ...
    """,
    "nested.py": """
        import time
        from toolkiln import Context, ToolError, tool

        @tool
        def sum_up(ctx: Context, numbers: list[int]) -> int:
            total = 0
            for number in numbers:
                total = ctx.call("add", left=total, right=number)
            return total

        @tool
        def try_call(ctx: Context, name: str, arguments: dict) -> dict:
            try:
                return {"value": ctx.call(name, **arguments)}
            except ToolError as error:
                return {"error": error.message, "retryable": error.retryable}

        @tool
        async def call_async(ctx: Context) -> int:
            ctx.report_progress(0.5)
            return ctx.call("add", left=40)

        @tool
        def refuse() -> None:
            raise ToolError("not today", retryable=True)

        @tool
        def pass_on(ctx: Context) -> None:
            ctx.call("refuse")

        @tool
        def dig(ctx: Context, depth: int = 0) -> int:
            try:
                return ctx.call("dig", depth=depth + 1)
            except ToolError as error:
                if "8 levels" not in error.message:
                    raise
                return depth

        @tool
        def fan_out(ctx: Context) -> dict:
            for number in range(1000):
                try:
                    ctx.call("nothing_of_this_name")
                except ToolError as error:
                    if "at most 200 nested" in error.message:
                        return {"made": number}

        @tool(timeout=1.0)
        def hurry(ctx: Context) -> None:
            ctx.call("sleep_long")

        @tool(timeout=300, workspace="write")
        def sleep_long() -> None:
            from pathlib import Path
            for number in range(100_000):
                Path("/workspace/awake").write_text(str(number))
                time.sleep(0.005)

        @tool(network=["api.test"])
        def reach_out() -> None: ...

        @tool
        def tell_caller(ctx: Context) -> dict:
            ctx.inject_tools("add", "sum_up")
            ctx.send_message({"kind": "card", "tags": {"a"}})
            (ctx.workdir / "report.txt").write_bytes(b"\\x00\\xff")
            ctx.send_file("report.txt")
            return {
                "user": ctx.user_id, "agent": ctx.agent_id, "state": ctx.agent_state,
                "secrets": dict(ctx.secrets), "settings": dict(ctx.settings),
            }
    """,
}
SETTINGS: dict[str, Any] = {
    "grants": {
        name: {"workspace": "write"}
        for name in ("meet", "line_up", "beat", "wait_for_reader", "sleep_long")
    }
}


async def test_arguments_may_be_left_out(kiln: Kiln) -> None:
    assert (await kiln.call("be_quiet")).status is Status.OK
    assert (await kiln.call("be_quiet", {})).text == ""


async def test_pinned_version_runs_and_another_one_is_refused(kiln: Kiln) -> None:
    digest = kiln.tool("add").digest

    pinned = await kiln.call("add", {"left": 1}, digest=digest)
    other = await kiln.call("add", {"left": 1}, digest="0" * 64)

    assert pinned.value == 3
    assert (other.status, other.sandbox) == (Status.INVALID, "")
    assert other.error
    assert "000000000000" in other.error.message
    assert digest in (other.error.hint or "")


async def test_all_problems_of_arguments_are_listed_and_nothing_runs(kiln: Kiln) -> None:
    arguments = {"left": "many", "right": [1], "middle": 3}

    result = await kiln.call("add", arguments)

    assert (result.status, result.sandbox) == (Status.INVALID, "")
    assert result.error
    assert result.error.code == "invalid_arguments"
    for name in ("left", "right", "middle"):
        assert name in result.error.message


@each_row(
    "arguments",
    [
        "text",
        [1],
        {"left": float("nan")},
        {"left": 10**5000},
        {1: 2},
        {"left": object()},
        {"\ud800": 1},
    ],
)
async def test_arguments_that_are_no_json_are_invalid(kiln: Kiln, arguments: Any) -> None:
    result = await kiln.call("add", arguments)

    assert (result.status, result.sandbox) == (Status.INVALID, "")


async def test_coercions_are_noted(kiln: Kiln) -> None:
    result = await kiln.call("add", {"left": "40"})

    assert result.value == 42
    assert any("left" in note for note in result.notes)


async def test_half_a_character_in_an_argument_does_no_harm(kiln: Kiln) -> None:
    result = await kiln.call("try_call", {"name": "\ud800", "arguments": {"\udfff": "\ud800"}})

    assert result.status in (Status.OK, Status.INVALID)
    result.text.encode()


async def test_identity_that_is_no_json_is_refused_not_raised(kiln: Kiln) -> None:
    for state in ({"x": object()}, {"x": float("nan")}, {"x": "\ud800"}):
        result = await kiln.call("tell_caller", {}, session=local_session(kiln, agent_state=state))

        assert result.status is Status.INVALID
        assert result.error
        assert result.error.code == "invalid_caller"


async def test_file_named_like_a_standard_module_does_not_replace_it(kiln: Kiln) -> None:
    result = await kiln.call("weekday", {"day": "2024-02-29"})

    assert result.value == "Thursday"


TELL = 'def tell() -> str:\n    return "first"\n'


@pytest.mark.parametrize("is_called_before", [True, False])
async def test_version_that_was_read_goes_on_running_after_an_edit(
    make_kiln: Callable[..., Kiln], tmp_path: Path, is_called_before: bool
) -> None:
    file = tmp_path / "tools" / "tell.py"
    async with make_kiln({"tell.py": TELL}) as kiln:
        assert kiln.services.registry.specs
        if is_called_before:
            assert (await kiln.call("tell", {})).value == "first"
        file.write_text(TELL.replace("first", "second"))
        changed = await kiln.call("tell", {})
        file.unlink()
        gone = await kiln.call("tell", {})

    assert (changed.value, gone.value) == ("first", "first")
    file.write_text(TELL.replace("first", "second"))
    async with Kiln(file.parent, settings=kiln.settings, dev=True) as kiln:
        assert (await kiln.call("tell", {})).value == "second"


async def test_renamed_file_runs_under_the_state_of_its_old_name(
    make_kiln: Callable[..., Kiln], tmp_path: Path
) -> None:
    async with make_kiln({"old.py": TELL}) as kiln:
        await kiln.call("tell", {})
    (tmp_path / "tools" / "old.py").rename(tmp_path / "tools" / "new.py")
    async with Kiln(tmp_path / "tools", settings=kiln.settings, dev=True) as kiln:
        result = await kiln.call("tell", {})

    assert (result.value, result.error) == ("first", None)


async def test_parallel_tools_of_a_batch_overlap(kiln: Kiln) -> None:
    session = local_session(kiln, workspace="rendezvous")
    pairs = [("a", "b"), ("b", "a")]
    calls = [
        Call(tool="meet", arguments={"own": own, "other": other}, session=session)
        for own, other in pairs
    ]

    results = await kiln.call_many(calls)

    assert [result.value for result in results] == ["a met b", "b met a"]
    assert [result.call_id for result in results] == [call.id for call in calls]


async def test_other_tools_of_a_batch_run_one_after_another_in_order(kiln: Kiln) -> None:
    session = local_session(kiln, workspace="turns")
    calls = [Call(tool="line_up", arguments={"name": name}, session=session) for name in "abcd"]

    results = await kiln.call_many(calls)

    assert [result.value for result in results] == list("abcd")
    assert (space(kiln, "turns") / "order").read_text() == "abcd"


async def test_a_tool_that_is_not_parallel_runs_beside_no_other_of_its_batch(kiln: Kiln) -> None:
    session = local_session(kiln, workspace="barrier")
    before, after = (
        Call(tool="meet", arguments={"own": name, "other": name}, session=session) for name in "ab"
    )
    alone = Call(tool="line_up", arguments={"name": "x"}, session=session)

    results = await kiln.call_many([before, alone, after])

    for earlier, later in pairwise(result.timing for result in results):
        assert later.started >= earlier.started + earlier.duration


async def test_batch_with_bad_calls_gives_every_result_in_its_place(kiln: Kiln) -> None:
    calls = [
        Call(tool="add", arguments={"left": 1}),
        Call(tool="unknown"),
        Call(tool="add", arguments={"left": None}),
        Call(tool="reach_out", arguments={}),
        Call(tool="refuse", arguments={}),
        Call(tool="add", arguments={"left": 2}),
    ]

    results = await kiln.call_many(calls)

    assert [result.status for result in results] == [
        Status.OK, Status.INVALID, Status.INVALID, Status.DENIED, Status.FAILED, Status.OK,
    ]  # fmt: skip
    assert (results[0].value, results[5].value) == (3, 4)
    assert await kiln.call_many([]) == []


async def test_cancelling_a_batch_ends_all_its_calls(kiln: Kiln) -> None:
    workspaces = ["batch1", "batch2"]
    sessions = [local_session(kiln, workspace=workspace) for workspace in workspaces]
    hearts = [space(kiln, workspace) / "heart" for workspace in workspaces]
    calls = [Call(tool="beat", arguments={}, session=session) for session in sessions]
    calling = asyncio.create_task(kiln.call_many(calls))
    await until(lambda: all(heart.exists() for heart in hearts))

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    for heart in hearts:
        await until_still(heart)


async def test_events_come_while_the_call_runs(kiln: Kiln) -> None:
    events: list[Event] = []
    folder = space(kiln, "live")
    expected = {
        ("stdout", "printed"),
        ("stderr", "complained"),
        ("progress", "first"),
        ("log", "logged"),
    }
    session = local_session(kiln, workspace="live")
    calling = asyncio.create_task(
        kiln.call("wait_for_reader", {}, session=session, observe=events.append)
    )

    await until(lambda: {(event.kind, event.text.strip()) for event in events} >= expected)
    assert not calling.done()
    (folder / "read").touch()
    result = await calling

    assert result.value == "done"
    assert (result.stdout, result.stderr) == ("printed\nend\n", "complained\n")
    progress = next(event for event in events if event.kind == "progress")
    assert (progress.done, progress.total, progress.described) == (1, 4, "first (1 of 4)")


async def test_output_is_kept_when_the_tool_fails(kiln: Kiln) -> None:
    result = await kiln.call("print_and_fail", {})

    assert result.status is Status.FAILED
    assert (result.stdout, result.stderr) == ("before\n", "trouble\n")


@each_row(
    "name, arguments, excerpt, retryable",
    [
        ("refuse", {}, "refuse: not today", True),
        ("unknown", {}, "unknown: there is no tool named 'unknown'", False),
        ("add", {"left": "x"}, "add: ", False),
        ("reach_out", {}, "reach_out requests access to api.test", False),
        ("print_and_fail", {}, "print_and_fail: ValueError in line ", False),
    ],
)
async def test_nested_call_that_fails_is_a_tool_error(
    kiln: Kiln, name: str, arguments: dict[str, Any], excerpt: str, retryable: bool
) -> None:
    result = await kiln.call("try_call", {"name": name, "arguments": arguments})

    assert excerpt in result.value["error"]
    assert result.value["retryable"] is retryable


async def test_uncaught_tool_error_of_a_nested_call_is_the_answer(kiln: Kiln) -> None:
    result = await kiln.call("pass_on", {})

    assert result.status is Status.FAILED
    assert result.error
    assert (result.error.code, result.error.message) == ("tool_error", "refuse: not today")
    assert result.error.retryable


async def test_calls_within_calls_are_eight_deep_and_two_hundred_at_most(kiln: Kiln) -> None:
    assert (await kiln.call("dig", {})).value == 8
    assert (await kiln.call("fan_out", {})).value == {"made": 200}


async def test_nested_call_ends_with_the_time_of_its_parent(kiln: Kiln) -> None:
    session = local_session(kiln, workspace="inherit")
    awake = space(kiln, "inherit") / "awake"

    result = await kiln.call("hurry", {}, session=session)

    assert result.status in (Status.TIMEOUT, Status.FAILED)
    await until_still(awake)


async def test_many_calls_that_each_call_another_all_end(kiln: Kiln) -> None:
    calls = [kiln.call("sum_up", {"numbers": [1, 2]}) for _ in range(40)]

    results: list[Result] = await asyncio.gather(*calls)

    assert [result.value for result in results] == [3] * 40


async def test_the_context_has_the_caller_and_sends_files_and_messages(kiln: Kiln) -> None:
    session = local_session(
        kiln, user_id="ann", agent_id="bot", agent_state={"step": [1, {"a": None}]}
    )

    result = await kiln.call("tell_caller", {}, session=session)

    assert result.value == {
        "user": "ann", "agent": "bot", "state": {"step": [1, {"a": None}]},
        "secrets": {}, "settings": {},
    }  # fmt: skip
    assert result.injected_tools == ("add", "sum_up")
    assert result.messages == ({"kind": "card", "tags": ["a"]},)
    assert [(file.name, file.data) for file in result.files] == [("report.txt", b"\x00\xff")]


async def test_nothing_of_the_host_process_is_in_the_environment(kiln: Kiln) -> None:
    reported = (await kiln.call("tell_environment", {})).value

    shared = {name for name, value in reported.items() if os.environ.get(name) == value}
    assert shared <= {"LANG", "LC_CTYPE", "PYTHONDONTWRITEBYTECODE"}
    assert reported["HOME"] == "/tmp"


# Observers


async def test_observers_get_every_call_and_how_it_ended(kiln: Kiln) -> None:
    observer = RecordingObserver()

    unsubscribe = kiln.engine.events.subscribe(observer)
    await kiln.call("sum_up", {"numbers": [1]})
    await kiln.call("unknown")
    heart = space(kiln, "heard") / "heart"
    session = local_session(kiln, workspace="heard")
    calling = asyncio.create_task(kiln.call("beat", {}, session=session))
    await until(heart.exists)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until_still(heart)
    unsubscribe()
    await kiln.call("sum_up", {"numbers": [1]})

    ended = [(call, tool, result and result.status) for call, tool, result in observer.results]
    assert ended == [
        ("add", "add", Status.OK),
        ("sum_up", "sum_up", Status.OK),
        ("unknown", None, Status.INVALID),
        ("beat", "beat", None),
    ]


async def test_observers_of_a_source_run_do_not_get_its_spec(kiln: Kiln) -> None:
    observer = RecordingObserver()
    source = "def echo(word: str) -> str:\n    return word\n"

    unsubscribe = kiln.engine.events.subscribe(observer)
    run = await kiln.services.prepare_source(SourceCall(source, {"word": "x"}))
    result = await run(None)
    unsubscribe()

    assert (result.value, [tool for _, tool, _ in observer.results]) == ("x", [None])
