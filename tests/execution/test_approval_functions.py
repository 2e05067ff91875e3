"""Whether a person is asked, by the tool's own function of the arguments; any doubt means yes."""

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from textwrap import dedent
from typing import Any

import pytest
import pytest_asyncio

from tables import each_row
from toolkiln.errors import BackendError
from toolkiln.execution.executor import ExecutionOutcome, Executor, Invocation
from toolkiln.execution.inline import InlineExecutor
from toolkiln.execution.preflight import needs_approval
from toolkiln.model.call import Grant, Status
from toolkiln.model.spec import Permissions
from toolkiln.model.tool import ResolvedTool
from toolkiln.spec.reader import read

from .executors import imported, sandbox_executor

pytestmark = pytest.mark.asyncio(loop_scope="module")

DECORATED = """
import os, sys, time
from toolkiln import Context, tool

def decide(args):
    match args.get("how"):
        case "returns": return args["what"]
        case "raises": raise RuntimeError("no")
        case "exits": sys.exit(0)
        case "dies": os._exit(0)
        case "hangs": time.sleep(60)
        case "prints": print('{"op": "result", "value": false}')
        case "forges": os.write(1, b"False"); return "False"
        case "changes": args.clear(); return False
        case "network":
            import socket
            try:
                socket.create_connection(("127.0.0.1", 9), 1)
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            return True
        case "secrets": return any("KEY" in name for name in os.environ)
        case "workspace": return os.access("/workspace", os.W_OK)

@tool(needs_approval=decide, workspace="write", network=["127.0.0.1"], requires_secrets=["KEY"])
def act(how: str, ctx: Context, what: object = None): ...

async def later(given_by_any_name, /):
    return given_by_any_name["how"] != "calm"

@tool(needs_approval=later)
def act_later(how: str): ...

@tool
def both(args: dict):
    return sorted(args)

@tool(needs_approval=both, isolation="call")
def asks_both(args: dict): ...

def takes_two(args, more): return False

@tool(needs_approval=takes_two)
def act_twice(): ...
"""

CLASSES = """
from toolkiln import BaseTool, ToolResult, tool_metadata

made = []

class Shell(BaseTool):
    name = "shell"
    description = "Run a command."
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}}

    def __init__(self):
        self.risky = ("rm", "dd")

    def validate_args(self, args):
        raise RuntimeError("this is for the call alone")

    def needs_permission(self, args):
        return args["command"].split()[0] in self.risky

    def execute(self, args):
        return ToolResult(True)

@tool_metadata()
class Files:
    def remove(self, path: str): ...
    def needs_permission(self, args):
        return args["path"].startswith("/etc")
"""

CONSTANTS = """
TOOL_NAME = "constant"
TOOL_DESCRIPTION = "Do something."
def needs_permission(args):
    return args["n"] > 5
def run(n: int): ...
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Executor]:
    """The best sandbox of this machine."""
    async with sandbox_executor(tmp_path_factory.mktemp("state"), "A", "B") as executor:
        yield executor


def admitted(source: str, name: str) -> ResolvedTool:
    """A tool of a source, granted all that it could ask for."""
    spec = next(t for t in read(dedent(source), "given.py").tools if t.name == name)
    grant = Grant(network=("*",), workspace="write", sandbox=False, secrets=("KEY",))
    return ResolvedTool(spec, lambda: {"given.py": source.encode()}, grant)


async def asks(executor: Executor, name: str, arguments: dict[str, Any], source: str) -> bool:
    async with asyncio.timeout(30):
        return await needs_approval(executor, admitted(source, name), arguments)


@each_row("what", [False, True, None, 0, 0.0, "", "False", [], {}, {"success": True}])
async def test_only_a_plain_false_means_no(sandbox: Executor, what: Any) -> None:
    asked = await asks(sandbox, "act", {"how": "returns", "what": what}, DECORATED)

    assert asked is (what is not False)


@pytest.mark.parametrize("how", ["raises", "exits", "dies", "hangs", "prints", "forges", "unknown"])
async def test_an_answer_that_never_comes_means_yes(sandbox: Executor, how: str) -> None:
    assert await asks(sandbox, "act", {"how": how}, DECORATED)


@pytest.mark.parametrize("how", ["network", "secrets", "workspace"])
async def test_the_function_has_none_of_the_rights_of_its_tool(sandbox: Executor, how: str) -> None:
    assert not await asks(sandbox, "act", {"how": how}, DECORATED)


async def test_the_arguments_of_the_call_stay_as_they_are(sandbox: Executor) -> None:
    arguments = {"how": "changes"}

    assert not await asks(sandbox, "act", arguments, DECORATED)
    assert arguments == {"how": "changes"}


@each_row(
    "name, arguments, asked, source",
    [
        ("act_later", {"how": "calm"}, False, DECORATED),
        ("act_later", {"how": "wild"}, True, DECORATED),
        ("act_twice", {}, True, DECORATED),
        ("shell", {"command": "rm -r /"}, True, CLASSES),
        ("shell", {"command": "ls"}, False, CLASSES),
        ("shell", {}, True, CLASSES),
        ("remove", {"path": "/etc/passwd"}, True, CLASSES),
        ("remove", {"path": "notes.txt"}, False, CLASSES),
        ("constant", {"n": 5}, False, CONSTANTS),
        ("constant", {"n": 6}, True, CONSTANTS),
        ("broken", {}, True, "from toolkiln import tool\n1/0\ndef no(args): return False\n"
         "@tool(needs_approval=no)\ndef broken(): 'Do something.'\n"),
    ],
)  # fmt: skip
async def test_every_dialect_has_its_function(
    sandbox: Executor, name: str, arguments: dict[str, Any], asked: bool, source: str
) -> None:
    assert await asks(sandbox, name, arguments, source) is asked


async def test_a_function_that_is_a_tool_too_is_not_confused_with_it(sandbox: Executor) -> None:
    the_tool = admitted(DECORATED, "both")
    single = the_tool.spec.model_copy(update={"isolation": "call"})
    bounds = {"args": {"a": 1}}

    for _ in range(2):
        assert await asks(sandbox, "asks_both", {"args": {}}, DECORATED)
        outcome = await sandbox.run(Invocation(ResolvedTool(single, the_tool.sources), bounds))
        assert (outcome.status, outcome.value) == (Status.OK, ["a"])


async def test_without_a_function_the_flag_decides(sandbox: Executor) -> None:
    plain = admitted(DECORATED, "both")
    always = plain.spec.model_copy(update={"rights": Permissions(needs_approval=True)})

    assert not await needs_approval(sandbox, plain, {})
    assert await needs_approval(sandbox, ResolvedTool(always, plain.sources), {})


class Broken:
    """An executor whose machine has no room left."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        raise self._error

    async def close(self) -> None: ...


@each_row("error", [BackendError("no sandbox"), OSError(24, "too many files")])
async def test_a_platform_that_fails_means_yes(error: Exception) -> None:
    assert await asks(Broken(error), "act", {"how": "returns", "what": False}, DECORATED)


async def test_the_sandbox_is_asked_even_if_the_tool_may_do_without() -> None:
    asked: list[Invocation] = []

    class Watching(Broken):
        async def run(self, invocation: Invocation) -> ExecutionOutcome:
            asked.append(invocation)
            return ExecutionOutcome(value=False)

    source = DECORATED.replace('workspace="write"', "sandbox=False")

    assert not await asks(Watching(OSError()), "act", {"how": "x"}, source)
    (invocation,) = asked
    assert invocation.tool.spec.rights == Permissions()
    assert invocation.tool.grant == Grant()
    assert not invocation.secrets
    assert invocation.workspace is None
    assert not invocation.network.rules
    assert invocation.bounds.timeout == 2


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The decorated tools, imported into this process."""
    with imported(tmp_path_factory.mktemp("here") / "asked_here.py", DECORATED) as module:
        yield module


@pytest_asyncio.fixture(loop_scope="module")
async def inline() -> AsyncIterator[InlineExecutor]:
    """An executor of this process."""
    executor = InlineExecutor()
    yield executor
    await executor.close()


def here(module: Any, name: str) -> ResolvedTool:
    return ResolvedTool(admitted(DECORATED, name).spec, dict, function=getattr(module, name))


@each_row(
    "name, arguments, asked",
    [
        ("act", {"how": "returns", "what": False}, False),
        ("act", {"how": "returns", "what": True}, True),
        ("act", {"how": "returns", "what": None}, True),
        ("act", {"how": "raises"}, True),
        ("act", {"how": "exits"}, True),
        ("act_later", {"how": "calm"}, False),
        ("act_later", {"how": "wild"}, True),
        ("act_later", {}, True),
        ("act_twice", {}, True),
        ("act", {"how": "changes", "list": [1]}, False),
    ],
)
async def test_a_function_of_this_process_is_asked_here_and_leaves_nothing_changed(
    inline: InlineExecutor, module: Any, name: str, arguments: dict[str, Any], asked: bool
) -> None:
    shown = deepcopy(arguments)

    assert await needs_approval(inline, here(module, name), arguments) is asked
    assert arguments == shown
    assert not inline._bound


async def test_a_function_of_this_process_that_cannot_be_found_means_yes(
    inline: InlineExecutor, module: Any
) -> None:
    def undecorated() -> None: ...

    spec = admitted(DECORATED, "act").spec

    assert await needs_approval(inline, ResolvedTool(spec, dict, function=undecorated), {})
