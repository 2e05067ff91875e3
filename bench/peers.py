"""What an inline call costs in other frameworks, against what it costs in Toolkiln.

Each cost is the processor time of one call beyond the bare function, validated by pydantic, as
in `bench.inline`, whose function and arguments these are. All are measured in one process,
taking turns, in an environment of its own. A call goes from name and arguments to a value:
what a framework makes anew for each call counts, what it prepares once does not. Models,
agents' loops and transports are no part of it.
"""

import asyncio
import importlib.metadata
import json
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import uv
from pydantic import validate_call

from bench.inline import ARGUMENTS, microseconds, price, scratch
from bench.timing import Figure

_ROOT = Path(__file__).parent.parent
_HOME = _ROOT / ".venv" / "peers"
PYTHON = _HOME / "bin" / "python"
"""Of the environment that has Toolkiln and the frameworks."""
_OURS = "Toolkiln, overhead of an inline call"
_RIGHT = {"total": 37.5, "currency": "EUR"}
_WRONG = {**ARGUMENTS, "amount": "much"}

Work = Callable[[], Awaitable[Any]]


async def _pydantic_ai(arguments: dict[str, Any]) -> Work:
    """`ToolManager.handle_call`, of a public module but meant for agents; without capabilities."""
    ai: Any = import_module("pydantic_ai")
    toolset = ai.FunctionToolset([price])
    model = import_module("pydantic_ai.models.test").TestModel()
    context = ai.RunContext(deps=None, model=model, usage=ai.RunUsage())
    manager = import_module("pydantic_ai.tool_manager").ToolManager(toolset)
    prepared = await manager.for_run_step(context)
    return lambda: prepared.handle_call(ai.ToolCallPart("price", arguments))


async def _openai_agents(arguments: dict[str, Any]) -> Work:
    """`FunctionTool.on_invoke_tool`, public, which takes the model's JSON text."""
    tool: Any = import_module("agents").function_tool(price)
    context: Any = import_module("agents.tool_context").ToolContext
    text = json.dumps(arguments)
    return lambda: tool.on_invoke_tool(
        context(None, tool_name="price", tool_call_id="1", tool_arguments=text), text
    )


async def _fastmcp(arguments: dict[str, Any]) -> Work:
    """`FastMCP.call_tool`, public: what the server does for a request, without a transport."""
    server: Any = import_module("fastmcp").FastMCP("bench")
    server.tool(price)
    return lambda: server.call_tool("price", arguments)


async def _langchain(arguments: dict[str, Any]) -> Work:
    """`StructuredTool.ainvoke`, public."""
    tool: Any = import_module("langchain_core.tools").StructuredTool.from_function(coroutine=price)
    return lambda: tool.ainvoke(arguments)


class _Peer(NamedTuple):
    name: str
    package: str
    prepare: Callable[[dict[str, Any]], Awaitable[Work]]
    takes_text: bool = False
    """Then Toolkiln is given JSON text, too."""


_PEERS = [
    _Peer("pydantic-ai", "pydantic-ai-slim", _pydantic_ai),
    _Peer("openai-agents", "openai-agents", _openai_agents, takes_text=True),
    _Peer("FastMCP", "fastmcp", _fastmcp),
    _Peer("LangChain", "langchain-core", _langchain),
]


def figures() -> Iterator[Figure]:
    """How many times Toolkiln's cost each framework's is.

    A figure without a bound was not measured, and says why.
    """
    try:
        refused = install()
    except subprocess.CalledProcessError as error:
        yield Figure(f"frameworks / {_OURS} (not installed)", cell(error.stderr), "", None)
        return
    # With an empty environment nothing is traced and no one's settings change the figures.
    measuring = subprocess.run(
        [PYTHON, "-m", "bench.peers", "--measure"],
        cwd=_ROOT,
        env={},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    costs = json.loads(measuring.stdout.splitlines()[-1])
    for peer in _PEERS:
        cost = costs[peer.name]
        if peer.name in refused:
            reason = cell(refused[peer.name])
            yield Figure(f"{peer.name} / {_OURS} (not installed)", reason, "", None)
        elif "failed" in cost:
            reason = cell(cost["failed"])
            yield Figure(f"{peer.name} / {_OURS} (not measured)", reason, "", None)
        else:
            form = " with JSON text" if peer.takes_text else ""
            times = cost["theirs"] / cost["ours"]
            yield Figure(
                f"{peer.name} {cost['version']} / {_OURS}{form}",
                f"{times:.1f} × ({cost['theirs']:.0f} / {cost['ours']:.0f} µs)",
                "> 1 ×",
                times > 1,
            )


def cell(text: str) -> str:
    """Fit for a table."""
    return " ".join(text.replace("|", "/").split())[:300]


@cache
def install() -> dict[str, str]:
    """Make the environment, once; return what uv said of each framework that is not in it.

    Raises:
        CalledProcessError: Toolkiln itself cannot be installed.
    """
    # Made anew, from uv's cache, so that nothing of an interrupted run stays.
    _uv("venv", "--clear", "--python", sys.executable, str(_HOME))
    wanted = ["--editable", str(_ROOT)]
    _uv("pip", "install", "--python", str(PYTHON), *wanted)
    refused = {}
    for peer in _PEERS:
        try:
            # All that are wanted take part in each resolution: none breaks another.
            _uv("pip", "install", "--python", str(PYTHON), *wanted, peer.package)
            wanted.append(peer.package)
        except subprocess.CalledProcessError as error:
            refused[peer.name] = error.stderr
    return refused


def _uv(*arguments: str) -> None:
    subprocess.run(
        [uv.find_uv_bin(), "--quiet", "--color=never", *arguments],
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )


async def _measure() -> dict[str, Any]:
    """The costs of each framework that is here and of Toolkiln, or why there are none."""
    bare: Any = validate_call(price)
    text = json.dumps(ARGUMENTS)
    costs: dict[str, Any] = {}
    works: dict[str, Work] = {}
    for peer in _PEERS:
        try:
            await _check(peer)
            works[peer.name] = await peer.prepare(ARGUMENTS)
        except Exception as error:  # noqa: BLE001 - not here, or of a release that differs
            costs[peer.name] = {"failed": f"{type(error).__name__}: {error}"}
    async with scratch() as kiln:
        for arguments in (ARGUMENTS, text):
            assert (await kiln.call("price", arguments)).value == _RIGHT
        assert (await kiln.call("price", _WRONG)).status == "invalid"
        alone, through, through_text, *theirs = await microseconds(
            lambda: bare(**ARGUMENTS),
            lambda: kiln.call("price", ARGUMENTS),
            lambda: kiln.call("price", text),
            *works.values(),
        )
    measured = dict(zip(works, theirs, strict=True))
    for peer in _PEERS:
        if peer.name in measured:
            costs[peer.name] = {
                "version": importlib.metadata.version(peer.package),
                "theirs": measured[peer.name] - alone,
                "ours": (through_text if peer.takes_text else through) - alone,
            }
    return costs


async def _check(peer: _Peer) -> None:
    """A framework gives the right value, and does not call the function with a wrong argument."""
    right, wrong = await peer.prepare(ARGUMENTS), await peer.prepare(_WRONG)
    result = await right()
    assert getattr(result, "structured_content", result) == _RIGHT, result
    logging.disable()
    try:
        answer = repr(await wrong())
    except Exception as error:  # noqa: BLE001 - each has its own way of refusing
        answer = repr(error)
    finally:
        logging.disable(logging.NOTSET)
    assert "much" * 3 not in answer, answer


if __name__ == "__main__":
    if "--measure" in sys.argv:
        print(json.dumps(asyncio.run(_measure())))
    else:
        for figure in figures():
            verdict = ("holds" if figure.holds else "missed") if figure.bound else "not measured"
            print(*figure[:3], verdict, sep=" | ", flush=True)
