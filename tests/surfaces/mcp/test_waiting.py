"""Calls that take long: how long clients wait, and what keeps their connections open.

The test with real clients takes as long as its tool: 11 s here, 45 s with `make conformance`.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastmcp
import httpx2 as httpx
import mcp
import pytest
import pytest_asyncio
from fastmcp.client.transports import StdioTransport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitResult, ErrorData

from toolkiln import Context, tool
from toolkiln.surfaces.mcp.endpoint import KeepAliveResponse

from ..conftest import ADMITTED, COMMAND, Shell
from .functions import ENDED, STARTED
from .functions import FUNCTIONS as COMMON
from .served import BOUND, Served, serving
from .wire import ACCEPT, TASKS, Legacy, meta, modern, modern_request

pytestmark = pytest.mark.asyncio(loop_scope="module")
VERSIONS = ["legacy", "2026-07-28"]
SLOW = '''import time

from toolkiln import Context, tool


@tool(timeout=120, parallel=True)
def dig(depth: int, ctx: Context) -> str:
    """Dig a hole, one meter a second."""
    for meter in range(depth):
        time.sleep(1)
        ctx.report_progress(meter + 1, depth)
    return f"{depth} meters"


@tool(timeout=120, parallel=True, needs_approval=True)
def dig_in_the_park(depth: int, ctx: Context) -> str:
    """Dig a hole where a person has to allow it."""
    return dig(depth, ctx)
'''
RELEASED = threading.Event()
"""Ends the calls of `hold`."""


@tool(parallel=True)
async def hold(ctx: Context) -> str:
    """Wait until a test sets the event."""
    STARTED.set()
    ctx.report_progress(1, 2, "holding")
    try:
        await asyncio.to_thread(RELEASED.wait, BOUND)
    finally:
        ENDED.set()
    return "released"


@tool(needs_approval=True)
async def guarded_hold() -> str:
    """Wait until a test sets the event, once a person has allowed it."""
    STARTED.set()
    await asyncio.to_thread(RELEASED.wait, BOUND)
    return "released"


FUNCTIONS = (*COMMON, hold, guarded_hold)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("waiting"), FUNCTIONS) as server:
        yield server


@pytest.fixture(autouse=True)
def events() -> None:
    for event in (STARTED, ENDED, RELEASED):
        event.clear()


async def allow(context: Any, params: Any) -> ElicitResult:
    """Answer a request for approval."""
    return ElicitResult(action="accept", content={})


async def dig(
    client: Any, depth: int, handler: str, name: str = "dig"
) -> tuple[Any, Any, list[float]]:
    """Call once with and once without a handler of progress, at the same time."""
    seen: list[float] = []

    async def observe(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with client:
        silent, observed = await asyncio.gather(
            client.call_tool(name, {"depth": depth}),
            client.call_tool(name, {"depth": depth}, **{handler: observe}),
        )
    return silent, observed, seen


def dig_with_sdk(server: Any, version: str, depth: int, name: str = "dig") -> Any:
    client = mcp.Client(server, mode=version, elicitation_callback=allow)
    return dig(client, depth, "progress_callback", name)


def dig_with_fastmcp(server: Any, version: str, depth: int) -> Any:
    """FastMCP's client raises an exception for a result with `isError`."""
    return dig(fastmcp.Client(server, mode=version), depth, "progress_handler")


@pytest.mark.parametrize("depth", [11, pytest.param(45, marks=pytest.mark.conformance)])
async def test_a_long_call_returns_its_result_to_clients_with_default_settings(
    depth: int, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "dig.py").write_text(SLOW)
    shell = Shell(tmp_path, {"TOOLKILN_DEV": "0"})
    assert shell.run(*ADMITTED).code == 0
    command: dict[str, Any] = {
        "command": str(COMMAND), "args": ["mcp"], "env": shell.environ(), "cwd": str(tmp_path)
    }  # fmt: skip

    async with serving(tmp_path / "http", tools=tmp_path / "tools") as server:
        calls = {}
        for version in VERSIONS:
            stdio = stdio_client(StdioServerParameters(**command))
            calls["SDK", "stdio", version] = dig_with_sdk(stdio, version, depth)
            calls["SDK", "HTTP", version] = dig_with_sdk(server.url, version, depth)
            asked = dig_with_sdk(server.url, version, depth, "dig_in_the_park")
            calls["SDK, approved", "HTTP", version] = asked
            started = StdioTransport(**command)
            calls["FastMCP", "stdio", version] = dig_with_fastmcp(started, version, depth)
            calls["FastMCP", "HTTP", version] = dig_with_fastmcp(server.url, version, depth)
        results = dict(zip(calls, await asyncio.gather(*calls.values()), strict=True))

    for way, (silent, observed, seen) in results.items():
        for given in (silent, observed):
            assert not given.is_error, way
            assert given.content[0].text == f"{depth} meters", way
            assert given.structured_content == {"result": f"{depth} meters"}, way
        assert seen == [float(meter + 1) for meter in range(depth)], way


async def test_a_client_that_can_poll_tasks_gets_one_by_default(
    served: Served, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.kiln.engine.tasks, "soft_limit", 0)
    polling = await modern(client, served.url, "tools/call", {TASKS: {}}, name="hold")
    assert await asyncio.to_thread(STARTED.wait, BOUND)
    STARTED.clear()
    waiting = asyncio.create_task(modern(client, served.url, "tools/call", {}, name="hold"))
    assert await asyncio.to_thread(STARTED.wait, BOUND)
    answered, _ = await asyncio.wait([waiting], timeout=0.5)
    assert not answered

    RELEASED.set()
    waited = await waiting

    assert polling["result"]["resultType"] == "task"
    assert waited["result"]["structuredContent"] == {"result": "released"}


async def test_an_operator_bounds_how_long_clients_wait(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    async with serving(tmp_path, FUNCTIONS, mcp_wait_seconds=1) as server:
        for version in VERSIONS:
            RELEASED.clear()
            async with mcp.Client(server.url, mode=version) as waiting:
                left = await waiting.call_tool("hold", {})
                assert left.meta is not None
                RELEASED.set()
                task = {"task_id": left.meta["toolkiln/task"]}
                waited = await waiting.call_tool("await_task", task)

            assert left.is_error
            assert "continues in the background" in left.content[0].text  # type: ignore[union-attr]
            assert "await_task" in left.content[0].text  # type: ignore[union-attr]
            assert waited.structured_content["result"] == "released"
        RELEASED.clear()
        polling = await modern(client, server.url, "tools/call", {TASKS: {}}, name="hold")

    assert polling["result"]["resultType"] == "task"


async def test_a_client_that_fails_to_ask_its_person_learns_how_to_go_on(served: Served) -> None:
    async def fail(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=-32603, message="no window to show the form in")

    async with mcp.Client(served.url, mode="legacy", elicitation_callback=fail) as client:
        given = await client.call_tool("guarded_hold", {})

    assert given.is_error
    assert "waits for a person's approval" in given.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_call_whose_inner_call_waits_for_approval_says_so(
    served: Served, version: str
) -> None:
    async with mcp.Client(served.url, mode=version) as client:
        given = await client.call_tool("call_tool", {"name": "risky", "arguments": {"what": "it"}})

    assert given.meta is not None
    assert given.meta["toolkiln/task"] in given.content[0].text  # type: ignore[union-attr]
    assert "waits for a person's approval" in given.content[0].text  # type: ignore[union-attr]


async def held(client: httpx.AsyncClient, served: Served, version: str) -> AsyncIterator[str]:
    """The lines of the response to a call of `hold` that asks for no progress."""
    if version == "legacy":
        legacy = Legacy(client, served.url)
        await legacy.start()
        params = {"name": "hold", "arguments": {}}
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = legacy.headers
    else:
        body, headers = modern_request("tools/call", {"name": "hold", "_meta": meta()})
    async with client.stream("POST", served.url, json=body, headers=headers) as response:
        async for line in response.aiter_lines():
            yield line


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_response_that_takes_long_is_kept_alive_with_comments(
    served: Served, client: httpx.AsyncClient, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(monkeypatch)

    comments, data = 0, ""
    async for line in held(client, served, version):
        comments += line.startswith(":")
        if comments == 2:
            RELEASED.set()
        data = line.removeprefix("data: ") if line.startswith("data: ") else data

    assert comments >= 2
    assert json.loads(data)["result"]["structuredContent"] == {"result": "released"}


@pytest.mark.parametrize("turns", range(5))
async def test_a_response_has_its_headers_whenever_its_answer_comes(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint.KEEP_ALIVE_SECONDS", 0)
    accept = (b"accept", ACCEPT["accept"].encode())
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with KeepAliveResponse({"type": "http", "headers": [accept]}, send) as response:
        for _ in range(turns):  # of the event loop, in one of which it becomes a stream
            await asyncio.sleep(0)
        await response.send({"type": "http.response.start", "status": 200, "headers": []})
        await response.send({"type": "http.response.body", "body": b"{}"})

    assert [one["type"] for one in sent].index("http.response.start") == 0
    assert [one["type"] for one in sent].count("http.response.start") == 1
    assert b"{}" in sent[-1]["body"]
    assert not sent[-1].get("more_body", False)


async def test_closing_a_response_that_is_kept_alive_ends_the_call(
    served: Served, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(monkeypatch)

    lines = held(client, served, VERSIONS[1])
    async for line in lines:
        if line.startswith(":"):
            break
    assert await asyncio.to_thread(STARTED.wait, BOUND)  # a comment may come before the call
    await lines.aclose()  # type: ignore[attr-defined]
    ended = await asyncio.to_thread(ENDED.wait, BOUND)
    RELEASED.set()  # its thread

    assert ended


async def test_a_client_that_takes_no_streams_gets_json_however_long_it_takes(
    served: Served, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(monkeypatch)
    body, headers = modern_request("tools/call", {"name": "hold", "_meta": meta()})
    headers = {**headers, "accept": "application/json"}
    waiting = asyncio.create_task(client.post(served.url, json=body, headers=headers))
    assert await asyncio.to_thread(STARTED.wait, BOUND)

    RELEASED.set()
    response = await waiting

    assert response.headers["content-type"] == "application/json"
    assert response.json()["result"]["structuredContent"] == {"result": "released"}


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send comments often."""
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint.KEEP_ALIVE_SECONDS", 0.01)
