"""The probe of a file, in a real sandbox: what it finds, what it lets pass, what it survives."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import BackendError
from toolkiln.execution.executor import Bounds, ExecutionOutcome, Invocation
from toolkiln.execution.probe import run_examples, run_probe
from toolkiln.model.call import CallError, Grant, Status
from toolkiln.model.source import Finding, Severity
from toolkiln.model.spec import Dialect
from toolkiln.model.tool import ResolvedTool
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.sandbox import Sandbox
from toolkiln.spec.reader import read
from toolkiln.surfaces.cli.tools import tool_template as template

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[2] / "examples" / "tools"
SMALL = Bounds(timeout=30.0, memory=256 << 20, cpu=2.0, processes=16, disk=8 << 20)
LONGEST = 1000
"""Characters of a message that a model can be given."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(state: Path) -> AsyncIterator[Sandbox]:
    """The sandbox of this machine, as a Kiln would make it."""
    sandboxes = Sandbox(state, Networks(), mode="auto", allow_reduced=True)
    yield sandboxes
    await sandboxes.close()


def admitted(text: str, name: str = "some_tool.py", **helpers: str) -> list[ResolvedTool]:
    """The tools of a file that exists in memory only."""
    text = dedent(text)
    files = {name: text, **{f"{helper}.py": dedent(code) for helper, code in helpers.items()}}
    sources = {path: code.encode() for path, code in files.items()}
    return [ResolvedTool(spec, lambda: sources) for spec in read(text, name).tools]


async def found(sandbox: Sandbox, text: str, **helpers: str) -> list[Finding]:
    """What a probe of a file finds; bounded and printable, whatever it is."""
    tools = admitted(text, **helpers)
    assert tools
    findings = await run_probe(sandbox, tools, None, maxima=SMALL)
    for finding in findings:
        assert finding.severity is Severity.ERROR
        assert 0 < finding.line <= dedent(text).count("\n") + 1
        assert finding.fix
        assert len(finding.message) < LONGEST
        assert finding.message.isprintable()
    return findings


async def only(sandbox: Sandbox, text: str, **helpers: str) -> Finding:
    (finding,) = await found(sandbox, text, **helpers)
    return finding


# What passes


@pytest.mark.parametrize("dialect", Dialect)
async def test_templates_of_all_dialects_pass(sandbox: Sandbox, dialect: Dialect) -> None:
    assert await found(sandbox, template("split_words", dialect)) == []


@pytest.mark.parametrize(
    "file",
    [f for f in sorted(EXAMPLES.glob("[!_]*.py")) if "dependencies" not in f.read_text("utf-8")],
    ids=lambda file: file.stem,
)
async def test_the_example_tools_pass(sandbox: Sandbox, file: Path) -> None:
    reading = read(file.read_text("utf-8"), file)
    files = {file.name: file.read_bytes()}
    files |= {name: (file.parent / name).read_bytes() for name in reading.helpers}

    findings = await run_probe(
        sandbox, [ResolvedTool(spec, lambda: files) for spec in reading.tools], None
    )

    assert reading.tools
    assert findings == []


async def test_nothing_is_run_for_no_tools() -> None:
    assert await run_probe(_FakeProcess(), [], None) == []


RIGHT_FUNCTIONS = """
import asyncio, os, time
from threading import Thread
from typing import TYPE_CHECKING, Any, Callable, List, TypedDict, Union, Unpack

from toolkiln import Context

if TYPE_CHECKING:
    from decimal import Decimal

CACHED = List[Union[str, int]]

class Odd: ...

class Options(TypedDict, total=False):
    size: int

def _plain(function):
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

@_plain
def hide_the_signature_and_pass_all_on(a: int, b: str = "x") -> str: ...

def name_types_for_the_type_checker_only(a: "Decimal", b: "list[Decimal]" = ()) -> str: ...

def have_defaults_of_this_run(at: float = time.time(), home: str = os.environ["HOME"]) -> str: ...

def have_orders_that_python_changes(
    a: List[Union[int, str]], b: set[str] = {"x", "y", "z", "w"}
) -> str: ...

def take_every_kind(first: int, /, *rest: str, ctx: Any = None, **options: Unpack[Options]): ...

def have_types_without_a_schema(
    ctx: Context, a: Any, b: Thread | None = None, c: Odd = Odd()
) -> str: ...

async def have_examples_that_are_right(a: int) -> int:
    '''Double.

    Examples:
        >>> asyncio.run(have_examples_that_are_right(2))
        4
        >>> tool(undefined)  # doctest: +SKIP
        5
        >>> client = Client("key")
        >>> client.status
        'ready'
        >>> result = sorted([have_examples_that_are_right, 1], key=str)
        >>> result
        [1, ...]
        >>> have_examples_that_are_right()
        Traceback (most recent call last):
        TypeError: ...
    '''
    return a * 2

def keep_hooks_from_models(a: int, hook: Callable[[int], int] = abs, lock: Odd = None) -> int: ...

def illustrates(a: int) -> int:
    '''Show a client in a console.

    Examples:
        >>>client.start(
        ready
    '''
    return a
"""
RIGHT_MARKED = """
from toolkiln import tool, tool_metadata

@tool(parameters={"type": "object", "properties": {"a": {"type": "number"}}})
def say_less_in_a_schema_by_hand(a: int = 3, b: bool = False) -> int: ...

@tool_metadata(instance="template")
class KitWhoseInstanceStays:
    def __init__(self) -> None:
        self.count = 0
    def more(self, by: int = 1) -> int:
        '''Count on.

        Examples:
            >>> KitWhoseInstanceStays().more(2)
            2
        '''
        self.count += by
        return self.count
"""


@each_row("text, tools", [(RIGHT_FUNCTIONS, 9), (RIGHT_MARKED, 2)])
async def test_what_is_right_is_not_reported(sandbox: Sandbox, text: str, tools: int) -> None:
    assert len(admitted(text)) == tools
    assert await found(sandbox, text) == []


async def test_helpers_are_found_by_both_ways_of_importing(sandbox: Sandbox) -> None:
    text = """
        from . import _one
        import _two

        def tool(a: _one.Size, b: _two.Size = _two.SMALL) -> int: ...
    """
    helper = "from typing import Literal\nSize = Literal[1, 2]\nSMALL: Size = 1\n"

    assert await found(sandbox, text, _one=helper, _two=helper) == []


async def test_the_same_text_can_be_probed_under_two_names(sandbox: Sandbox) -> None:
    text = "def tool(a: int) -> int: ..."

    for name in ("one_name.py", "other_name.py"):
        assert await run_probe(sandbox, admitted(text, name), None) == []


async def test_types_of_the_tools_own_packages_are_imported(sandbox: Sandbox, state: Path) -> None:
    site = state / "envs" / "own"
    site.mkdir(parents=True)
    (site / "measures.py").write_text("class Metre(float): ...\nLONG = 3\n")
    tools = admitted("""
        from measures import LONG, Metre

        def tool(a: Metre, b: int = LONG) -> int:
            '''Give b.

            Examples:
                >>> tool(1)
                3
            '''
            return b
    """)

    assert await run_probe(sandbox, tools, site) == []


# Importing


async def test_a_failing_import_is_reported_with_its_line_and_its_text(sandbox: Sandbox) -> None:
    finding = await only(
        sandbox,
        """
        def tool(a: int) -> int: ...

        RATES = {}["EUR"]
        """,
    )

    assert (finding.rule, finding.line, finding.tool) == ("import-fails", 4, None)
    assert "KeyError: 'EUR'" in finding.message


async def test_a_missing_package_is_named(sandbox: Sandbox) -> None:
    finding = await only(sandbox, "import no_such_package\ndef tool(a: int) -> int: ...")

    assert finding.rule == "import-fails"
    assert "no_such_package" in finding.message
    assert "requirements" in finding.fix


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the syntax is known there")
async def test_syntax_that_the_sandbox_does_not_know_has_its_line(sandbox: Sandbox) -> None:
    finding = await only(sandbox, "X = 1\ntype Pair = tuple[int, int]\ndef tool(a: Pair): ...")

    assert (finding.rule, finding.line) == ("import-fails", 2)
    assert "SyntaxError" in finding.message


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended"),
        ("while True: pass", "processor time"),
        ("x = bytearray(1 << 32)", "memory|MemoryError"),
        ("while True: print('x' * 1_000_000)", "printed more than"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("raise type('E', (BaseException,), {'__str__': lambda s: 1 / 0})", "E"),
    ],
)
async def test_an_import_that_ends_badly_is_a_finding(
    sandbox: Sandbox, statement: str, reported: str
) -> None:
    finding = await only(sandbox, f"def tool(a: int) -> int: ...\n{statement}\n")

    assert finding.rule == "import-fails"
    assert any(part in finding.message for part in reported.split("|"))


async def test_an_import_that_waits_is_ended(sandbox: Sandbox) -> None:
    tools = admitted("def tool(a: int): ...\nimport threading\nthreading.Event().wait()\n")

    (finding,) = await run_probe(sandbox, tools, None, maxima=Bounds(timeout=1.0))

    assert finding.rule == "import-fails"
    assert "longer than 1 s" in finding.message


async def test_unseen_characters_are_spelled_out_and_long_texts_cut(sandbox: Sandbox) -> None:
    text = (
        "def tool(a: int): ...\nraise ValueError('a\\u202eb\\x1b[31m\\n\\U000e0041' + 'x' * 10**6)"
    )

    finding = await only(sandbox, text)

    assert r"a\u202eb\x1b[31m\n\U000e0041xxx" in finding.message
    assert len(finding.message) < 300


# Schemas


DIFFERENT = """
from typing import Annotated
from pydantic import Field

Number = str
globals()["Number"] = int
LEAST = 1
globals()["LEAST"] = 2

def changed_type(a: Number) -> int: ...
def changed_bound(a: list[Annotated[int, Field(ge=LEAST)]]) -> int: ...
def new_default(a: int) -> int: ...
new_default.__defaults__ = (1,)
def other_default(a: int = 1) -> int: ...
other_default.__defaults__ = (2,)
def _other(b: int) -> int: ...
def replaced(a: int) -> int: ...
globals()["replaced"] = _other
def emptied(a: int) -> int: ...
globals()["emptied"] = None
def deleted(a: int) -> int: ...
del globals()["deleted"]
"""


async def test_a_schema_that_differs_at_run_time_is_reported(sandbox: Sandbox) -> None:
    findings = await found(sandbox, DIFFERENT)

    first = {finding.tool: finding.message for finding in reversed(findings)}
    assert {finding.rule for finding in findings} == {"schema-differs"}
    reported = {
        "changed_type": "parameter 'a': string in the schema, integer when imported",
        "changed_bound": "parameter 'a' › items: minimum 1 in the schema, minimum 2 when imported",
        "new_default": "parameter 'a': required in the schema, optional when imported",
        "other_default": "parameter 'a': default 1 in the schema, default 2 when imported",
        "replaced": "parameter 'a': missing in the imported function",
        "emptied": "emptied is not a function: TypeError",
        "deleted": "deleted is not a function: Attribute",
    }
    assert first.keys() == reported.keys()
    for tool, message in reported.items():
        assert first[tool].startswith(message)


async def test_types_that_end_the_process_are_a_finding(sandbox: Sandbox) -> None:
    finding = await only(
        sandbox,
        """
        import os
        class Odd:
            @classmethod
            def __get_pydantic_core_schema__(cls, *_):
                os._exit(3)
        def tool(a: Odd) -> int: ...
        """,
    )

    assert finding.rule == "schema-differs"
    assert "status 3" in finding.message


async def test_an_older_pydantic_of_the_tools_own_is_not_asked_for_types(
    sandbox: Sandbox, state: Path
) -> None:
    site = state / "envs" / "old"
    site.mkdir(parents=True)
    (site / "pydantic.py").write_text("VERSION = '1.10.2'\n")
    tools = admitted("def tool(a: int, b: str = 'x') -> int: ...")

    assert await run_probe(sandbox, tools, site) == []


async def test_names_and_needs_are_compared_without_pydantic(sandbox: Sandbox, state: Path) -> None:
    site = state / "envs" / "none"
    site.mkdir(parents=True)
    (site / "pydantic.py").write_text("raise ImportError('there is none')\n")
    tools = admitted("def tool(a: int, b: str = 'x') -> int: ...\ntool.__defaults__ = (1, 'y')")

    reported = [finding.message for finding in await run_probe(sandbox, tools, site)]

    assert reported == [
        "parameter 'a': required in the schema, optional when imported",
        'parameter \'b\': default "x" in the schema, default "y" when imported',
    ]


# Examples


def with_examples(*lines: str, name: str = "tool") -> str:
    """A tool whose examples begin in line 8."""
    head = ["import os, sys", "LIMIT = 3", f"def {name}(a: int) -> int:", "    '''Double."]
    head += ["", "    Twice as much.", "    Examples:"]
    body = [f"        {line}" for line in lines]
    return "\n".join([*head, *body, "    '''", "    return a * 2"])


async def test_a_failing_example_is_reported_with_its_line(sandbox: Sandbox) -> None:
    finding = await only(
        sandbox, with_examples(">>> tool(1)", "2", ">>> tool(LIMIT)", "7", ">>> tool(1)", "2")
    )

    assert (finding.rule, finding.tool, finding.line) == ("example-fails", "tool", 10)
    assert finding.message == "an example fails: tool(LIMIT) gives 6, not 7"


async def test_of_many_failing_examples_the_first_are_reported(sandbox: Sandbox) -> None:
    lines = [line for n in range(400) for line in (f">>> tool({n})", "-1")]

    findings = await found(sandbox, with_examples(*lines))

    assert [finding.line for finding in findings] == [8, 10, 12]


async def test_examples_that_raise_are_findings(sandbox: Sandbox) -> None:
    reported = {
        "double('a', 'b')": "TypeError",
        "double(undefined)": "NameError: name 'undefined' is not defined",
        "double(sys.exit(0))": "SystemExit",
        "double(open('/workspace/x', 'w'))": "Error",
        "await double(1)": "SyntaxError",
        "def double(:": "SyntaxError",
    }
    tools = [
        with_examples(">>> 1", "2", f">>> {example}", "3", name=f"tool_{number}")
        for number, example in enumerate(reported)
    ]

    findings = await found(sandbox, "\n".join(["def double(a: int): ...", *tools]))

    assert [finding.tool for finding in findings] == [f"tool_{n}" for n in range(len(reported))]
    for finding, (example, message) in zip(findings, reported.items(), strict=True):
        assert finding.rule == "example-fails"
        assert message in finding.message
        assert ("asyncio.run" in finding.fix) == example.startswith("await")


@pytest.mark.parametrize(
    ("example", "reported"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("os._exit(0)", "ended without a result"),
        ("__import__('ctypes').string_at(0)", "SIGSEGV"),
        ("while True: print('x' * 1_000_000)", "memory|MemoryError"),
    ],
)
async def test_an_example_that_ends_the_process_is_a_finding(
    sandbox: Sandbox, example: str, reported: str
) -> None:
    examples = (">>> tool(1)", "2", f">>> {example}", ">>> tool(1)", "2")

    finding = await only(sandbox, with_examples(*examples))

    assert (finding.rule, finding.line) == ("example-fails", 10)
    assert any(part in finding.message for part in reported.split("|"))


async def test_examples_that_cannot_be_read_are_a_finding(sandbox: Sandbox) -> None:
    finding = await only(sandbox, with_examples(">>>tool(1)", "2"))

    assert finding.rule == "example-fails"
    assert "lacks blank" in finding.message


async def test_examples_of_one_tool_do_not_see_names_of_another(sandbox: Sandbox) -> None:
    text = (
        "def one(a: int) -> int:\n    '''One.\n\n    Examples:\n        >>> x = 1\n    '''\n"
        "def two(a: int) -> int:\n    '''Two.\n\n    Examples:\n"
        "        >>> two(x)\n        1\n    '''\n"
    )

    finding = await only(sandbox, text)

    assert (finding.tool, finding.line) == ("two", 11)


async def test_environments_are_judged_by_import_and_examples_alone(sandbox: Sandbox) -> None:
    (good,) = admitted("def tool(a: int = 1) -> int: ...\ntool.__defaults__ = (2,)")
    (bad,) = admitted(with_examples(">>> tool(1)", "3"))

    assert await run_examples(sandbox, good, None) is None
    assert await run_examples(sandbox, bad, None) == "an example fails: tool(1) gives 2, not 3"


# Hostile files and failing platforms


@pytest.mark.parametrize(
    "frame",
    [
        {"op": "result", "value": None},
        {"op": "result", "value": "x" * 900_000},
        {"op": "error", "kind": "tool_error", "type": "\u202e", "message": "\u202e" * 90_000},
        {"op": "message", "value": {"trying": {"tool": 10**6, "line": 1}}},
        {"op": "message", "value": {"failed": {"tool": -1, "line": 1}}},
        {"op": "message", "value": {"signatures": [{"parameters": "all"}]}},
        {"op": "message", "value": {"signatures": []}},
        {"op": "message", "value": {"imported": True, "more": 1}},
        {"op": "nonsense"},
    ],
)
async def test_a_forged_report_ends_in_one_finding(sandbox: Sandbox, frame: dict[str, Any]) -> None:
    body = json.dumps(frame).encode()
    text = f"import os\nos.write(3, {len(body).to_bytes(4, 'big') + body!r})\ndef tool(a: int): ..."

    finding = await only(sandbox, text)

    assert finding.rule == "import-fails"


class _FakeProcess:
    """An executor whose process sent these messages."""

    def __init__(self, *messages: Any, outcome: ExecutionOutcome | None = None) -> None:
        self._outcome = outcome or ExecutionOutcome(value="done")
        self._outcome.messages += messages
        self.seen: list[Invocation] = []

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        self.seen.append(invocation)
        return self._outcome

    async def close(self) -> None: ...


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)
_PARAMETER = st.fixed_dictionaries(
    {"name": st.sampled_from("ab") | st.text(), "required": st.booleans()},
    optional={"described": st.dictionaries(st.sampled_from(["type", "anyOf", "$ref"]), _JSON)},
)
_SIGNATURE = st.fixed_dictionaries(
    {
        "parameters": st.lists(_PARAMETER, max_size=3),
        "takes_any": st.booleans(),
        "by_hand": st.booleans(),
    }
)
_MESSAGES = st.lists(
    st.one_of(
        _JSON,
        st.just({"imported": True}),
        st.builds(lambda s: {"signatures": [s]}, _SIGNATURE | _JSON),
        st.builds(lambda n: {"trying": {"tool": n, "line": n}}, st.integers()),
        st.builds(
            lambda n, t: {"failed": {"tool": 0, "line": n, "source": t, "want": t, "got": t}},
            st.integers(),
            st.text(),
        ),
    ),
    max_size=5,
)


@given(messages=st.just([{"imported": True}]) | _MESSAGES | _MESSAGES.map(lambda m: m * 9))
async def test_any_messages_of_a_process_become_findings(messages: list[Any]) -> None:
    tools = admitted("def tool(a: int, b: str = 'x') -> int: ...")

    findings = await run_probe(_FakeProcess(*messages), tools, None)

    assert len(findings) <= 20
    for finding in findings:
        assert finding.message.isprintable()
        assert len(finding.message) < LONGEST
        assert finding.line == 1


async def test_a_failing_platform_is_no_finding() -> None:
    class Broken(_FakeProcess):
        async def run(self, invocation: Invocation) -> ExecutionOutcome:
            raise BackendError("no sandbox")

    with pytest.raises(BackendError):
        await run_probe(Broken(), admitted("def tool(a: int) -> int: ..."), None)


async def test_a_probe_gets_no_rights_and_little_time() -> None:
    (tool,) = admitted("""
        from toolkiln import tool

        @tool(network=["example.com"], workspace="write", timeout=500, memory="1GB")
        def fetch(a: int) -> int: ...
    """)
    granted = ResolvedTool(
        tool.spec, tool.sources, Grant(network=("example.com",), workspace="write")
    )
    executor = _FakeProcess({"imported": True}, {"signatures": [None]})

    assert await run_probe(executor, [granted], None, maxima=Bounds(memory=600 << 20)) == []
    (invocation,) = executor.seen
    assert invocation.tool.grant == Grant()
    assert not invocation.network.rules
    assert invocation.workspace is None
    assert not invocation.settings
    assert invocation.bounds.timeout == 30
    assert invocation.bounds.memory == 600 << 20


async def test_a_flood_of_failures_is_bounded() -> None:
    tools = admitted("def tool(a: int) -> int: ...")
    failed = {"tool": 0, "line": 1, "source": "x" * 10**6, "want": "\u202e" * 10**6, "got": ""}
    ended = ExecutionOutcome(
        Status.KILLED, error=CallError(code="output_limit", message="y" * 10**6)
    )
    executor = _FakeProcess(*[{"failed": failed}] * 10_000, outcome=ended)

    findings = await run_probe(executor, tools, None)

    assert len(findings) == 20
    assert sum(len(finding.message) for finding in findings) < 20_000
