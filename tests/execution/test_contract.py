"""One contract for all executors: inline, and the sandbox in its two full modes."""

import asyncio
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
from .observers import code

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = """
import asyncio, logging, sys, threading
from collections import deque
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

from toolkiln import Context, ToolError, ToolResult


class Colour(Enum):
    RED = "red"
    BLUE = "blue"

class Level(IntEnum):
    LOW = 1
    HIGH = 2

@dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)

@dataclass
class Line:
    start: Point
    end: Optional[Point] = None

class Options(TypedDict, total=False):
    when: date
    colour: Colour

class Pair(NamedTuple):
    left: int
    right: str = "r"


def scalars(
    day: date, moment: datetime, clock: time, span: timedelta, key: UUID, price: Decimal,
    file: Path, data: bytes, colour: Colour, level: Level,
) -> list[str]:
    given = [day, moment, clock, span, key, price, file, data, colour, level]
    assert day.year == 2024 and moment.tzinfo is not None and span == timedelta(hours=1)
    assert key.version == 4 and price + 1 == Decimal("2.10") and data == b"raw"
    assert colour is Colour.BLUE and level is Level.HIGH and isinstance(file, Path)
    return [type(value).__name__ for value in given]

def containers(
    numbers: set[int], names: frozenset[str], pair: tuple[int, str], many: tuple[float, ...],
    points: dict[str, Point], days: list[date], maybe: Optional[int], choice: Literal["a", 1],
) -> list[str]:
    assert numbers == {1, 2} and pair == (1, "x") and many == (1.0, 2.0)
    assert points["p"] == Point(1, 0.5, []) and days == [date(2024, 2, 29)] and maybe is None
    return [type(value).__name__ for value in (numbers, names, pair, many, points, days)]

def records(line: Line, options: Options, pair: Pair) -> dict:
    assert isinstance(line.start, Point) and isinstance(line.end, Point)
    assert isinstance(options["when"], date) and options["colour"] is Colour.RED
    assert isinstance(pair, tuple)
    return {"x": line.start.x, "year": options["when"].year, "pair": list(pair)}

def defaults(
    items: list[int] = [], point: Point = Point(1), names: dict[str, int] = {}, flag: bool = True,
    colour: Colour = Colour.RED, day: date = date(2020, 1, 1),
) -> list[Any]:
    items.append(1)
    point.x += 1
    names["a"] = len(names)
    return [items, point.x, names, flag, colour is Colour.RED, day.year]

def positional(left: int, /, right: date, *rest: date, last: bool = False, **more: date) -> list:
    assert all(isinstance(value, date) for value in (right, *rest, *more.values()))
    return [left, right.day, [value.day for value in rest], last, sorted(more)]

def modules() -> bool:
    return "pydantic" in sys.modules

def results(kind: str) -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    return {
        "dataclass": Line(Point(1, tags=["t"])),
        "enum": [Colour.RED, Level.HIGH],
        "dates": [date(2024, 2, 29), datetime(2024, 1, 1, tzinfo=timezone.utc), timedelta(1)],
        "sets": [{3}, frozenset({4}), (5, 6), deque([7])],
        "keys": {1: "a", Colour.RED: "b", (1, 2): "c"},
        "scalars": [Decimal("1.10"), UUID(int=1), Path("a/b"), b"raw"],
        "nan": [float("nan"), float("inf")],
        "surrogate": ["\\ud800", {"\\udfff": 1}],
        "object": [object()],
        "cycle": cycle,
        "generator": (number for number in range(3)),
        "none": None,
    }[kind]

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
    ctx.inject_tools("other")
    return [ctx.user_id, ctx.agent_id, ctx.agent_state, dict(ctx.secrets)]

async def speak_async(ctx: Context) -> None:
    ctx.report_progress(1, 2, "half")
    ctx.log("a line", logging.ERROR)
    ctx.send_message({"day": date(2024, 2, 29)})
    ctx.inject_tools("other")

def delegate(ctx: Context, name: str) -> Any:
    try:
        return ctx.call(name, number=1)
    except ToolError as error:
        return [error.message, error.retryable]

async def delegate_async(ctx: Context, name: str) -> Any:
    return await asyncio.to_thread(delegate, ctx, name)

def keep_context(agent_state: dict, agent_id: str) -> list[Any]:
    agent_state["changed"] = True
    return [agent_state, agent_id]
"""

TYPED = """
import sys
from datetime import date
from typing import Annotated, Optional

from pydantic import BaseModel, Field, field_validator


class Address(BaseModel):
    city: str = Field(min_length=2)
    zip_code: str = Field(alias="zip")

class Person(BaseModel):
    name: str
    born: date
    address: Optional[Address] = None
    friends: list["Person"] = []

    @field_validator("name")
    @classmethod
    def no_digits(cls, name: str) -> str:
        if any(letter.isdigit() for letter in name):
            raise ValueError("names have no digits")
        return name.title()


def greet(person: Person, loud: bool = False) -> Person:
    assert isinstance(person, Person)
    assert all(isinstance(friend, Person) for friend in person.friends)
    return person

def fields(
    count: Annotated[int, Field(ge=1)] = Field(default=3),
    names: list[str] = Field(default_factory=list),
    kind: str = Field("plain", alias="type"),
    person: Person = Person(name="x", born=date(2000, 1, 1)),
) -> list:
    names.append(kind)
    person.friends.append(person.model_copy())
    return [count, names, kind, len(person.friends), "pydantic" in sys.modules]
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
    return [*reported, "s3cret" in repr(ctx), ctx.platform, ctx.guild_id, ctx.channel_id]
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


SCALARS = {
    "day": "2024-02-29", "moment": "2024-02-29T10:00:00+02:00", "clock": "10:30",
    "span": "PT1H", "key": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "price": "1.10",
    "file": "a/b.txt", "data": "raw", "colour": "blue", "level": 2,
}  # fmt: skip
PERSON = {
    "name": "ann", "born": "2000-02-29", "address": {"city": "Ulm", "zip": "89073"},
    "friends": [{"name": "bob", "born": "1999-01-01"}],
}  # fmt: skip


async def test_scalars_arrive_as_their_types(run: Run) -> None:
    outcome = await run("scalars", SCALARS)

    assert outcome.error is None
    assert outcome.value[:6] == ["date", "datetime", "time", "timedelta", "UUID", "Decimal"]
    assert outcome.value[7:] == ["bytes", "Colour", "Level"]


@each_row(
    "name, arguments, value",
    [
        (
            "containers",
            {
                "numbers": [1, 2, 2], "names": ["a"], "pair": [1, "x"], "many": [1, 2.0],
                "points": {"p": {"x": 1}}, "days": ["2024-02-29"], "maybe": None, "choice": "a",
            },
            ["set", "frozenset", "tuple", "tuple", "dict", "list"],
        ),
        (
            "records",
            {
                "line": {"start": {"x": 1}, "end": {"x": 2, "y": 1}},
                "options": {"when": "2024-02-29", "colour": "red"},
                "pair": [1],
            },
            {"x": 1, "year": 2024, "pair": [1, "r"]},
        ),
        (
            "positional",
            {
                "left": 1, "right": "2024-01-01", "rest": ["2024-01-01", "2024-01-02"],
                "last": True, "extra": "2024-01-02",
            },
            [1, 1, [1, 2], True, ["extra"]],
        ),
        ("wait_async", {"number": 1}, [2, None]),
    ],
)  # fmt: skip
async def test_arguments_of_every_kind_arrive_as_their_types(
    run: Run, name: str, arguments: dict[str, Any], value: Any
) -> None:
    outcome = await run(name, arguments)

    assert (outcome.error, outcome.value) == (None, value)


async def test_defaults_that_a_call_changes_are_fresh_for_the_next(run: Run) -> None:
    outcomes = [await run("defaults") for _ in range(3)]

    assert [outcome.value for outcome in outcomes] == [[[1], 2, {"a": 0}, True, True, 2020]] * 3


async def test_pydantic_models_are_validated_and_serialised(run: Run) -> None:
    outcome = await run("greet", {"person": PERSON})

    assert outcome.error is None
    assert outcome.value["name"] == "Ann"
    assert outcome.value["friends"][0]["born"] == "1999-01-01"
    assert outcome.value["address"]["city"] == "Ulm"


async def test_validator_that_refuses_is_invalid_arguments(run: Run) -> None:
    outcome = await run("greet", {"person": {**PERSON, "name": "R2D2"}})

    assert code(outcome) == (Status.INVALID, "invalid_arguments")
    assert "names have no digits" in outcome.error.message
    assert "person.name" in outcome.error.message


async def test_defaults_and_aliases_of_fields_are_used(run: Run) -> None:
    outcomes = [await run("fields", {}), await run("fields", {"type": "odd", "count": 1})]

    assert [outcome.value for outcome in outcomes] == [
        [3, ["plain"], "plain", 1, True],
        [1, ["odd"], "odd", 1, True],
    ]


@each_row(
    "kind, value, noted",
    [
        ("dataclass", {"start": {"x": 1, "y": 0.5, "tags": ["t"]}, "end": None}, False),
        ("enum", ["red", 2], False),
        ("dates", ["2024-02-29", "2024-01-01T00:00:00Z", "P1D"], False),
        ("sets", [[3], [4], [5, 6], [7]], False),
        ("scalars", ["1.10", "00000000-0000-0000-0000-000000000001", "a/b", "raw"], False),
        ("nan", [None, None], True),
        ("surrogate", ["\ufffd", {"\ufffd": 1}], True),
        ("keys", {"1": "a", "red": "b", "1,2": "c"}, False),
        ("none", None, False),
    ],
)
async def test_results_become_plain_json(run: Run, kind: str, value: Any, noted: bool) -> None:
    outcome = await run("results", {"kind": kind})

    assert outcome.status is Status.OK
    assert outcome.value == value
    assert bool(outcome.notes) is noted, outcome.notes


@each_row("kind", ["object", "cycle", "generator"])
async def test_what_cannot_be_json_is_reported_with_a_note(run: Run, kind: str) -> None:
    outcome = await run("results", {"kind": kind})

    assert outcome.status is Status.OK
    assert outcome.value is not None
    assert outcome.notes or kind == "generator"
    if kind == "object":
        assert "object" in outcome.value[0]


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
    assert outcome.messages == [{"day": "2024-02-29"}]
    assert outcome.injected_tools == ["other"]
    assert [(event.kind, event.text, event.level) for event in events] == [
        ("progress", "half", None),
        ("log", "a line", "error"),
    ]


async def test_context_holds_what_is_for_this_call(run: Run) -> None:
    caller = Caller(user_id="u", platform="p", guild_id="g", channel_id="c")
    secrets, settings = {"KEY": "s3cret"}, {"retries": 2, "since": "2024-02-29"}

    outcome = await run("look", caller=caller, secrets=secrets, settings=settings)

    reported = {"KEY": "s3cret", "mine": "changed"}
    assert outcome.value == [reported, 2, 2024, False, "p", "g", "c"]
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


async def test_state_of_the_agent_is_given_and_cannot_be_changed(run: Run) -> None:
    caller = Caller(agent_id="a", agent_state={"n": 1})

    outcome = await run("keep_context", caller=caller)

    assert outcome.value == [{"n": 1, "changed": True}, "a"]
    assert caller.agent_state == {"n": 1}


async def test_argument_that_does_not_fit_is_refused_before_the_tool_runs(run: Run) -> None:
    outcome = await run("scalars", {**SCALARS, "day": "2024-02-31"})

    assert outcome.status is Status.INVALID
    assert "day" in outcome.error.message


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
