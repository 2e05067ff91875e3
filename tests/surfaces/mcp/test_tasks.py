"""Long calls as tasks, in the form of each era, as bytes over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from .served import BOUND, Served, serving

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TASKS = "io.modelcontextprotocol/tasks"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as server:
        yield server


class Legacy:
    """A client of 2025-11-25."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url, self._headers = client, url, dict(ACCEPT)

    async def start(self) -> dict[str, Any]:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        return await self.ask("initialize", **hello)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        given = await self._client.post(self._url, json=body, headers=self._headers)
        if "mcp-session-id" in given.headers:
            self._headers["mcp-session-id"] = given.headers["mcp-session-id"]
        answer: dict[str, Any] = json.loads(given.text.split("data: ")[-1])
        return answer


async def modern(
    client: httpx.AsyncClient, url: str, method: str, extensions: dict[str, Any], **params: Any
) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": extensions,
        },
    }
    headers = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
    given: dict[str, Any] = (await client.post(url, json=body, headers=headers)).json()
    return given


async def test_a_legacy_client_makes_a_call_a_task_and_takes_its_result(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        legacy = Legacy(client, served.url)
        hello = await legacy.start()
        made = await legacy.ask("tools/call", name="add", arguments={"a": 1}, task={"ttl": 1000})
        task = made["result"]["task"]["taskId"]
        result = await legacy.ask("tasks/result", taskId=task)
        state = await legacy.ask("tasks/get", taskId=task)
        listed = await legacy.ask("tasks/list")
        unknown = await legacy.ask("tasks/get", taskId="none")
        late = await legacy.ask("tasks/cancel", taskId=task)

    assert hello["result"]["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
    assert result["result"]["structuredContent"] == {"result": 2}
    related = result["result"]["_meta"]["io.modelcontextprotocol/related-task"]
    assert related == {"taskId": task}
    assert state["result"]["status"] == "completed"
    assert task in {one["taskId"] for one in listed["result"]["tasks"]}
    assert unknown["error"]["code"] == late["error"]["code"] == -32602


async def test_a_legacy_client_stops_a_task(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        legacy = Legacy(client, served.url)
        await legacy.start()
        made = await legacy.ask("tools/call", name="wait", arguments={}, task={})
        task = made["result"]["task"]["taskId"]
        stopped = await legacy.ask("tasks/cancel", taskId=task)

    assert made["result"]["task"]["status"] == "working"
    assert stopped["result"]["status"] == "cancelled"


async def test_a_modern_client_polls_a_task_only_if_it_said_that_it_can(served: Served) -> None:
    kiln = served.kiln
    kiln.engine.tasks._soft_limit = 0.05
    async with httpx.AsyncClient(timeout=BOUND) as client:
        plain = await modern(client, served.url, "tools/call", {}, name="wait", arguments={})
        able = await modern(
            client, served.url, "tools/call", {TASKS: {}}, name="wait", arguments={}
        )
        task = able["result"]["taskId"]
        refused = await modern(client, served.url, "tasks/get", {}, taskId=task)
        state = await modern(client, served.url, "tasks/get", {TASKS: {}}, taskId=task)
        await modern(client, served.url, "tasks/cancel", {TASKS: {}}, taskId=task)
        ended = await modern(client, served.url, "tasks/get", {TASKS: {}}, taskId=task)

    assert "await_task" in plain["result"]["content"][0]["text"]
    assert able["result"]["resultType"] == "task"
    assert refused["error"]["code"] == -32601
    assert state["result"]["status"] == "working"
    assert ended["result"]["status"] == "cancelled"


async def test_waiting_for_a_task_becomes_no_task_itself(served: Served) -> None:
    served.kiln.engine.tasks._soft_limit = 0.05
    async with httpx.AsyncClient(timeout=BOUND) as client:
        first = await modern(client, served.url, "tools/call", {}, name="wait", arguments={})
        waiting = {"task_id": first["result"]["_meta"]["toolkiln/task"], "seconds": 0.3}
        waited = await modern(
            client, served.url, "tools/call", {}, name="await_task", arguments=waiting
        )

    assert waited["result"]["structuredContent"]["state"] == "running"
