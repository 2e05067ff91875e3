"""Calls that go to the background: soft limit, progress, waiting, stopping, losing them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.execution.tasks import SOFT_LIMIT, TaskService
from toolkiln.kiln import Kiln
from toolkiln.model.call import Call, Event, Result, Status, Task

from .conftest import CallElsewhere
from .observers import SOON, change_calls, local_session, space, until, until_still

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOLS = {
    "slow.py": '''
        """A tool that takes its time."""
        import time
        from pathlib import Path
        from toolkiln import Context, tool

        @tool(workspace="write", timeout=120, parallel=True)
        def work(ctx: Context, gate: str, word: str = "") -> str:
            print("working")
            ctx.report_progress(1, 3, "waiting")
            number = 0
            while not Path("/workspace", gate).exists():
                Path("/workspace", f"{gate}.beat").write_text(str(number := number + 1))
                time.sleep(0.005)
            ctx.log("let through")
            return f"done {word}"

        @tool
        def say_much(lines: int) -> str:
            return "\\n".join(f"line {number}" for number in range(lines))
    ''',
}
SETTINGS: dict[str, Any] = {"grants": {"work": {"workspace": "write"}}}


async def test_call_that_ends_in_time_needs_no_store(kiln: Kiln) -> None:
    result = await kiln.call("say_much", {"lines": 1}, background="auto")

    assert isinstance(result, Result)
    with pytest.raises(InputError):
        await kiln.tasks.get(result.call_id)


async def test_observers_of_a_task_get_events_until_they_unsubscribe(kiln: Kiln) -> None:
    heard: list[Event] = []
    deaf: list[Event] = []
    tasks, caller = kiln.engine.tasks, kiln.security.caller(kiln.security.operator)
    await kiln.call("work", {"gate": "heard"}, call_id="heard", background=True)
    enough = tasks.subscribe(caller, "heard", deaf.append, None)
    forget = tasks.subscribe(caller, "heard", heard.append, None)
    assert enough
    assert forget

    enough()
    before = len(deaf)
    (space(kiln) / "heard").touch()
    await kiln.tasks.wait("heard", timeout=SOON)
    forget()

    assert [(e.text, e.level) for e in heard if e.kind == "log"] == [("let through", "info")]
    assert len(deaf) == before
    await until(lambda: tasks.subscribe(caller, "heard", heard.append, None) is None)
    other = caller.model_copy(update={"user_id": "eve"})
    assert tasks.subscribe(other, "x", heard.append, None) is None


async def test_call_that_outlasts_the_soft_limit_goes_on_as_a_task(kiln: Kiln) -> None:
    impatient = TaskService(kiln.engine.gateway, kiln.engine.results, soft_limit=0.2)
    arguments = {"gate": "soft", "word": "x"}
    call = Call(tool="work", arguments=arguments, session=kiln.security.operator)

    caller = kiln.security.caller(call.session)
    task = await impatient.call(call, caller, "auto")
    assert isinstance(task, Task)
    assert (task.id, task.tool, task.state) == (call.id, "work", "running")
    assert (await kiln.tasks.get(task.id)).state == "running"
    (space(kiln) / "soft").touch()
    ended = await kiln.tasks.wait(task.id, timeout=SOON)

    assert ended.state == "done"
    assert ended.result
    assert (ended.result.value, ended.result.stdout) == ("done x", "working\n")
    assert SOFT_LIMIT == 10


async def test_task_can_be_asked_for_as_soon_as_its_id_is_known(kiln: Kiln) -> None:
    tasks = [
        await kiln.call("work", {"gate": "never"}, call_id=f"soon{n}", background=True)
        for n in range(3)
    ]

    found = [await kiln.tasks.get(task.id) for task in tasks if isinstance(task, Task)]

    assert [task.state for task in found] == ["running"] * 3
    for task in found:
        assert (await kiln.tasks.cancel(task.id)).state == "done"


async def test_refused_call_in_the_background_is_refused_at_once(kiln: Kiln) -> None:
    for name, arguments in (("work", {"gate": 1, "x": 2}), ("unknown", {})):
        result = await kiln.call(name, arguments, background=True)

        assert isinstance(result, Result)
        assert result.status is Status.INVALID


async def test_waiting_ends_with_its_time_and_the_task_goes_on(kiln: Kiln) -> None:
    await kiln.call("work", {"gate": "late"}, call_id="late", background=True)

    async with asyncio.timeout(SOON):
        while not (task := await kiln.tasks.wait("late", timeout=0.05)).progress:
            pass
    (space(kiln) / "late").touch()
    ended = await kiln.tasks.wait("late", timeout=SOON)

    assert (task.state, task.progress) == ("running", "waiting (1 of 3)")
    assert ended.state == "done"


async def test_task_is_its_callers_own(kiln: Kiln) -> None:
    ann, bob = (local_session(kiln, user_id=name) for name in ("ann", "bob"))
    await kiln.call("work", {"gate": "own"}, call_id="own", session=ann, background=True)
    await kiln.call("say_much", {"lines": 1}, call_id="own", session=bob)

    with pytest.raises(InputError, match="there is no task"):
        await kiln.tasks.get("own")
    await kiln.tasks.cancel("own", bob)

    assert (await kiln.tasks.get("own", ann)).state == "running"
    assert (await kiln.tasks.cancel("own", ann)).state == "done"


async def test_same_id_twice_in_the_background_is_one_task_that_can_be_cancelled(
    kiln: Kiln,
) -> None:
    for _ in range(2):
        await kiln.call("work", {"gate": "twice"}, call_id="twice", background=True)
    beat = space(kiln) / "twice.beat"
    await until(beat.exists)

    stopped = await kiln.tasks.cancel("twice")

    assert (stopped.state, stopped.result and stopped.result.status) == ("done", Status.CANCELLED)
    await until_still(beat)


async def test_closing_stops_tasks(make_kiln: Callable[..., Kiln]) -> None:
    async with make_kiln(TOOLS, **SETTINGS) as kiln:
        await kiln.call("work", {"gate": "x"}, call_id="x", background=True)
        beat = space(kiln) / "x.beat"
        await until(beat.exists)

    await until_still(beat)
    async with make_kiln(TOOLS, **SETTINGS) as kiln:
        task = await kiln.tasks.get("x")
        assert task.state == "done"
        assert task.result
        assert task.result.status is Status.CANCELLED


async def test_task_of_a_killed_process_is_lost_and_its_tool_ends(
    kiln: Kiln, call_elsewhere: CallElsewhere
) -> None:
    child = call_elsewhere(kiln, "work", {"gate": "lost"}, "lost", background=True)
    beat = space(kiln) / "lost.beat"
    await until(beat.exists)
    assert (await kiln.tasks.get("lost")).state == "running"

    child.kill()
    child.wait()
    change_calls(kiln.settings.state, "UPDATE {} SET leased_until = 1 WHERE result IS NULL")

    assert (await kiln.tasks.get("lost")).state == "lost"
    assert (await kiln.tasks.wait("lost")).state == "lost"
    await until_still(beat)


async def test_task_of_another_process_can_be_stopped(
    kiln: Kiln, call_elsewhere: CallElsewhere
) -> None:
    call_elsewhere(kiln, "work", {"gate": "far"}, "far", background=True)
    beat = space(kiln) / "far.beat"
    await until(beat.exists)

    await kiln.tasks.cancel("far")
    ended = await kiln.tasks.wait("far", timeout=SOON)

    assert ended.result
    assert ended.result.status is Status.CANCELLED
    await until_still(beat)


async def test_agents_use_tasks_through_tools(kiln: Kiln) -> None:
    session = local_session(kiln, user_id="ann", workspace="default")

    async def agent(tool: str, **arguments: Any) -> Any:
        return (await kiln.call(tool, arguments, session=session)).value

    for gate in ("agent", "halt"):
        arguments = {"gate": gate, "word": "x"}
        await kiln.call("work", arguments, call_id=gate, session=session, background=True)
    checked = await agent("check_task", task_id="agent")
    waited = await agent("await_task", task_id="agent", seconds=0.01)
    (space(kiln) / "agent").touch()
    ended = await agent("await_task", task_id="agent")
    stopped = await agent("cancel_task", task_id="halt")

    assert (checked["state"], waited["state"]) == ("running", "running")
    assert (ended["state"], ended["status"], ended["result"]) == ("done", "ok", "done x")
    assert (stopped["state"], stopped["status"]) == ("done", "cancelled")


@each_row("name", ["check_task", "await_task", "cancel_task"])
async def test_unknown_task_is_reported_in_plain_words(kiln: Kiln, name: str) -> None:
    result = await kiln.call(name, {"task_id": "nowhere"})

    assert result.status is Status.FAILED
    assert result.error
    assert result.error.code == "tool_error"
    assert "there is no task 'nowhere'" in result.error.message


async def test_long_result_is_cut_and_paged_to_its_full_text(kiln: Kiln) -> None:
    result = await kiln.call("say_much", {"lines": 20_000})

    assert isinstance(result.value, str)
    assert result.truncation
    assert result.truncation.handle
    assert (result.truncation.total, len(result.text) <= 50_000) == (len(result.value), True)
    left_out = result.truncation.total - result.truncation.shown
    assert f"{left_out:,} characters left out" in result.text
    text, offset = "", 0
    while offset is not None:
        arguments = {"handle": result.truncation.handle, "offset": offset}
        page = (await kiln.call("read_output", arguments)).value
        text += page["text"]
        offset = page["next_offset"]
    assert text == result.value
