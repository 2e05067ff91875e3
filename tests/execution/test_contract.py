"""One contract for all executors: inline, and the sandbox in its two full modes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tables import each_row
from toolkiln.execution.executor import Bounds, ExecutionOutcome, Executor, Invocation
from toolkiln.execution.inline import InlineExecutor
from toolkiln.model.call import CallError, Event, Result, Status
from toolkiln.model.identity import Caller
from toolkiln.model.tool import ResolvedTool
from toolkiln.spec.reader import read

from .executors import imported, sandbox_executor
from .observers import code, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = """
import asyncio, logging, sys, threading, time
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

from toolkiln import Context, ToolError, ToolResult


class Colour(Enum):
    RED = "red"

@dataclass
class Line:
    start: date
    colours: set[Colour]

def convert(line: Line, /, right: date, *rest: date, last: bool = False, **more: date) -> list:
    assert isinstance(line, Line) and line.colours == {Colour.RED}
    assert all(isinstance(value, date) for value in (line.start, right, *rest, *more.values()))
    return [line, [value.day for value in rest], last, sorted(more), float("nan")]

def append(items: list[int] = [], names: dict[str, int] = {}) -> list[Any]:
    items.append(1)
    names["a"] = len(names)
    return [items, names]

def modules() -> bool:
    return "pydantic" in sys.modules

def fail(kind: str) -> None:
    if kind == "tool_error":
        raise ToolError("Pick another day.\\n  Ünïcode stays", retryable=True)
    if kind == "long_tool_error":
        raise ToolError("long " * 1500)
    if kind == "odd_tool_error":
        class Odd(ToolError):
            def __init__(self) -> None:
                pass
        raise Odd()
    if kind == "timeout":
        raise TimeoutError("of its own")
    if kind == "stop":
        raise StopIteration
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "cancelled":
        raise asyncio.CancelledError
    if kind == "group":
        raise ExceptionGroup("both", [ValueError("a"), ToolError("b")])
    raise ValueError("secret text")  # THE LINE

async def fail_async(kind: str) -> None:
    await asyncio.sleep(0)
    fail(kind)

def spin(seconds: float) -> None:
    kept, until = b"x" * (100 << 20), time.thread_time() + seconds
    while time.thread_time() < until:
        pass

async def spin_async(seconds: float) -> None:
    for _ in range(2):
        spin(seconds / 2)
        await asyncio.sleep(0)

async def wait_async(number: int) -> int:
    await asyncio.sleep(0.001)
    return await asyncio.gather(asyncio.sleep(0, number + 1), asyncio.sleep(0))

def sleep() -> None:
    threading.Event().wait(4)

async def sleep_async() -> None:
    await asyncio.sleep(20)

def tool_result(ok: bool) -> ToolResult:
    return ToolResult(ok=ok, stdout="out", stderr="bad", meta={"n": 1})

def soft_failure() -> dict:
    return {"success": False, "error": "no such thing"}

def speak(ctx: Context) -> list[Any]:
    ctx.report_progress(1, 2, "half")
    ctx.log("a line", logging.ERROR)
    ctx.send_message({"day": date(2024, 2, 29)})
    ctx.send_message("x" * 70_000)
    (ctx.workdir / "page.html").write_bytes(b"<p>")
    ctx.send_file("page.html")
    ctx.inject_tools("other", "third")
    (ctx.workdir / "page.html").unlink()
    return [ctx.user_id, ctx.agent_id, ctx.agent_state, dict(ctx.secrets)]

def linger(ctx: Context) -> None:
    def send() -> None:
        time.sleep(0.2)
        ctx.send_message("late")

    ctx.send_message("in time")
    threading.Thread(target=send, name="late").start()

async def speak_async(ctx: Context) -> None:
    ctx.report_progress(1, 2, "half")
    ctx.log("a line", logging.ERROR)
    ctx.send_message({"day": date(2024, 2, 29)})
    ctx.send_message("x" * 70_000)
    (ctx.workdir / "page.html").write_bytes(b"<p>")
    ctx.send_file("page.html")
    ctx.inject_tools("other", "third")
    (ctx.workdir / "page.html").unlink()

def delegate(ctx: Context, name: str) -> Any:
    try:
        return ctx.call(name, number=1)
    except ToolError as error:
        return [error.message, error.retryable]

async def delegate_async(ctx: Context, name: str) -> Any:
    return await asyncio.to_thread(delegate, ctx, name)

def keep_context(agent_state: dict, agent_id: str | None = None) -> list[Any]:
    agent_state["changed"] = True
    return [agent_state, agent_id]
"""

TYPED = """
from datetime import date

from pydantic import BaseModel, field_validator


class Person(BaseModel):
    name: str
    born: date

    @field_validator("name")
    @classmethod
    def no_digits(cls, name: str) -> str:
        if any(letter.isdigit() for letter in name):
            raise ValueError("names have no digits")
        return name.title()


def greet(person: Person) -> Person:
    assert isinstance(person, Person)
    return person
"""


MARKED = """
from dataclasses import dataclass
from datetime import date

from toolkiln import Context, tool


@dataclass
class Settings:
    retries: int
    since: date = date(2020, 1, 1)

@tool(settings=Settings)
def look(ctx: Context) -> list:
    ctx.secrets["mine"] = "changed"
    reported = [dict(ctx.secrets), ctx.settings["retries"], ctx.settings["since"].year]
    where = [ctx.platform, ctx.guild_id, ctx.channel_id]
    return [*reported, "s3cret" in repr(ctx), *where, ctx.request]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["inline", "A", "B"])
async def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Executor]:
    """Every executor in turn."""
    if request.param == "inline":
        yield InlineExecutor()
        return
    async with sandbox_executor(tmp_path_factory.mktemp("state"), request.param) as executor:
        yield executor


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ResolvedTool]]:
    """The tools by name, read from their files, and imported for those who run inline."""
    folder = tmp_path_factory.mktemp("tools")
    found = {}
    with ExitStack() as stack:
        for name, source in (("plain", PLAIN), ("typed", TYPED), ("marked", MARKED)):
            file = folder / f"contract_{name}.py"
            module = stack.enter_context(imported(file, source))
            sources = {file.name: source.encode()}
            for tool in read(source, file).tools:
                function = getattr(module, tool.entry)
                found[tool.name] = ResolvedTool(tool, partial(dict, sources), function=function)
        yield found


Run = Callable[..., Any]


@pytest.fixture
def run(executor: Executor, tools: dict[str, ResolvedTool]) -> Run:
    """Runs a tool by name."""

    async def running(
        name: str, arguments: dict[str, Any] | None = None, **how: Any
    ) -> ExecutionOutcome:
        async with asyncio.timeout(25):
            return await executor.run(Invocation(tools[name], arguments or {}, **how))

    return running


ARGUMENTS: dict[str, Any] = {
    "line": {"start": "2024-02-29", "colours": ["red"]},
    "right": "2024-01-01",
    "rest": ["2024-01-01", "2024-01-02"],
    "last": True,
    "extra": "2024-01-02",
}


async def test_arguments_arrive_as_their_types_and_results_become_plain_json(run: Run) -> None:
    outcome = await run("convert", ARGUMENTS)

    assert outcome.error is None
    assert outcome.value == [ARGUMENTS["line"], [1, 2], True, ["extra"], None]
    assert "nan is not JSON" in outcome.notes[0]


async def test_argument_that_does_not_fit_is_refused_before_the_tool_runs(run: Run) -> None:
    outcome = await run("convert", {**ARGUMENTS, "right": "2024-02-31"})

    assert outcome.status is Status.INVALID
    assert "right" in outcome.error.message


async def test_defaults_that_a_call_changes_are_fresh_for_the_next(run: Run) -> None:
    outcomes = [await run("append") for _ in range(3)]

    assert [outcome.value for outcome in outcomes] == [[[1], {"a": 0}]] * 3


async def test_pydantic_models_are_validated_and_serialised(run: Run) -> None:
    outcome = await run("greet", {"person": {"name": "ann", "born": "2000-02-29"}})
    refused = await run("greet", {"person": {"name": "R2D2", "born": "2000-02-29"}})

    assert outcome.value == {"name": "Ann", "born": "2000-02-29"}
    assert code(refused) == (Status.INVALID, "invalid_arguments")
    assert "person.name" in refused.error.message
    assert "names have no digits" in refused.error.message


async def test_tool_error_is_reported_verbatim(run: Run) -> None:
    outcome = await run("fail", {"kind": "tool_error"})
    long = await run("fail", {"kind": "long_tool_error"})

    assert code(outcome) == (Status.FAILED, "tool_error")
    assert outcome.error.message == "Pick another day.\n  Ünïcode stays"
    assert outcome.error.retryable
    assert long.error.message == "long " * 1500


@pytest.mark.parametrize("name", ["fail", "fail_async"])
async def test_exception_tells_its_type_and_line_and_not_its_text(run: Run, name: str) -> None:
    outcome = await run(name, {"kind": ""})

    line = next(n for n, text in enumerate(PLAIN.splitlines(), 1) if "THE LINE" in text)
    assert outcome.status is Status.FAILED
    assert (outcome.error.code, outcome.error.type) == ("exception", "ValueError")
    assert outcome.error.line == line
    assert outcome.error.message == f"ValueError in line {line} of contract_plain.py"
    assert "show_exceptions" in outcome.error.hint


@each_row("name", ["fail", "fail_async"])
@each_row(
    "kind, code, type_",
    [
        ("timeout", "exception", "TimeoutError"),
        ("stop", "exception", None),
        ("exit", "exited", "SystemExit"),
        ("cancelled", "exception", "CancelledError"),
        ("group", "exception", "ExceptionGroup"),
        ("odd_tool_error", "tool_error", "Odd"),
    ],
)
async def test_whatever_a_tool_raises_is_an_answer(
    run: Run, name: str, kind: str, code: str, type_: str | None
) -> None:
    outcome = await run(name, {"kind": kind}, bounds=Bounds(timeout=10))

    assert outcome.status is Status.FAILED
    assert outcome.error.code == code
    assert type_ is None or outcome.error.type == type_


@pytest.mark.parametrize("name", ["sleep", "sleep_async"])
async def test_clock_ends_a_call(run: Run, name: str) -> None:
    outcome = await run(name, bounds=Bounds(timeout=0.3))

    assert code(outcome) == (Status.TIMEOUT, "timeout")
    assert "0.3 s" in outcome.error.message


@pytest.mark.parametrize("name", ["sleep", "sleep_async"])
async def test_cancelled_call_raises_and_leaves_the_executor_usable(run: Run, name: str) -> None:
    calling = asyncio.ensure_future(run(name))
    await asyncio.sleep(0.05)

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert (await run("modules")).status is Status.OK


async def test_tool_results_and_failures_in_words_say_whether_they_are_good(run: Run) -> None:
    good, bad = await run("tool_result", {"ok": True}), await run("tool_result", {"ok": False})
    worded = await run("soft_failure")

    assert (good.status, good.is_tool_result, good.value["meta"]) == (Status.OK, True, {"n": 1})
    assert (bad.status, bad.error.code, bad.error.message) == (Status.FAILED, "tool_error", "bad")
    assert (worded.status, worded.error.message) == (Status.FAILED, "no such thing")


@pytest.mark.parametrize("name", ["speak", "speak_async"])
async def test_context_reaches_the_caller(run: Run, name: str) -> None:
    events: list[Event] = []
    caller = Caller(user_id="u", agent_id="a", agent_state={"n": 1})

    outcome = await run(name, caller=caller, emit=events.append)

    if name == "speak":
        assert outcome.value == ["u", "a", {"n": 1}, {}]
    assert outcome.messages == [{"day": "2024-02-29"}, "x" * 70_000]
    assert [(file.name, file.data) for file in outcome.files] == [("page.html", b"<p>")]
    assert outcome.injected_tools == ["other", "third"]
    assert [(e.kind, e.text, e.level, e.value, e.index) for e in events] == [
        ("progress", "half", None, None, None),
        ("log", "a line", "error", None, None),
        ("message", "", None, {"day": "2024-02-29"}, 0),
        ("message", events[3].text, None, None, 1),  # large: the Result has it
        ("file", "page.html", None, {"type": "text/html", "size": 3}, 0),
        ("injected", "other", None, None, 0),
        ("injected", "third", None, None, 1),
    ]
    assert events[3].described.startswith("a message of 70,")


async def test_what_a_thread_of_the_tool_sends_after_the_result_is_dropped(run: Run) -> None:
    events: list[Event] = []

    outcome = await run("linger", emit=events.append)
    await until(lambda: all(thread.name != "late" for thread in threading.enumerate()))
    await asyncio.sleep(0)

    assert outcome.messages == ["in time"] == [event.value for event in events]


@pytest.mark.parametrize("name", ["spin", "spin_async"])
async def test_processor_time_and_memory_are_measured(run: Run, name: str) -> None:
    outcome = await run(name, {"seconds": 0.2})

    assert 0.2 <= outcome.cpu < 5
    if outcome.sandbox == "none":  # of this process as a whole
        assert outcome.memory is None
    else:
        assert 100 << 20 < outcome.memory < 400 << 20


async def test_context_holds_what_is_for_this_call(run: Run) -> None:
    caller = Caller(user_id="u", platform="p", guild_id="g", channel_id="c")
    secrets, settings = {"KEY": "s3cret"}, {"retries": 2, "since": "2024-02-29"}

    outcome = await run("look", caller=caller, secrets=secrets, settings=settings, request={"r": 1})

    reported = {"KEY": "s3cret", "mine": "changed"}
    assert outcome.agent_state is None
    assert outcome.value == [reported, 2, 2024, False, "p", "g", "c", {"r": 1}]
    assert secrets == {"KEY": "s3cret"}


async def test_settings_that_their_class_refuses_are_reported(run: Run) -> None:
    outcome = await run("look", settings={"retries": 2, "since": "s3cret"})

    assert code(outcome) == (Status.FAILED, "bad_settings")
    assert outcome.error.message == (
        "the settings of look cannot be used: Settings rejects the settings: since (BindingError)"
    )


@pytest.mark.parametrize("name", ["delegate", "delegate_async"])
async def test_nested_call_goes_through_the_door_that_was_given(run: Run, name: str) -> None:
    asked: list[tuple[str, Any]] = []

    async def nested(tool: str, arguments: Any) -> Result:
        asked.append((tool, arguments))
        error = CallError(code="x", message="no", retryable=True) if tool == "bad" else None
        status = Status.FAILED if error else Status.OK
        return Result(call_id="1", tool=tool, status=status, value=[1], error=error)

    good = await run(name, {"name": "good"}, nested=nested)
    bad = await run(name, {"name": "bad"}, nested=nested)
    none = await run(name, {"name": "good"})

    assert asked == [("good", {"number": 1}), ("bad", {"number": 1})]
    assert good.value == [1]
    assert bad.value == ["bad: no", True]
    assert none.value[0] == "tools cannot call other tools here"


async def test_state_of_the_agent_comes_back_changed_and_that_of_the_session_stays(
    run: Run,
) -> None:
    caller = Caller(agent_id="a", agent_state={"n": 1})

    outcome = await run("keep_context", caller=caller)

    assert outcome.value == [{"n": 1, "changed": True}, "a"]
    assert outcome.agent_state == {"n": 1, "changed": True}
    assert caller.agent_state == {"n": 1}


async def test_tool_without_pydantic_does_not_import_it(run: Run, executor: Executor) -> None:
    outcome = await run("modules")

    is_inline = isinstance(executor, InlineExecutor)
    assert outcome.value is is_inline
    assert outcome.sandbox in (("none",) if is_inline else ("A", "B"))


async def test_calls_at_once_do_not_mix(run: Run) -> None:
    outcomes = await asyncio.gather(*(run("wait_async", {"number": n}) for n in range(20)))

    assert [outcome.value[0] for outcome in outcomes] == list(range(1, 21))


async def test_interrupt_that_a_tool_raises_is_an_answer(run: Run) -> None:
    outcome = await run("fail", {"kind": "interrupt"})

    assert (outcome.status, outcome.error.type) == (Status.FAILED, "KeyboardInterrupt")
