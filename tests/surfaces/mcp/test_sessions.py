"""Calls within a session of the handshake era, as bytes over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from .functions import ENDED, STARTED
from .served import BOUND, serving

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Opened:
    """A session, and a client that uses it."""

    def __init__(self, client: httpx.AsyncClient, url: str, name: str) -> None:
        self._client = client
        self._url = url
        self._headers = {**ACCEPT, "mcp-session-id": name, "mcp-protocol-version": "2025-11-25"}

    async def call(self, tool: str, token: str | None = None, **headers: str) -> httpx.Response:
        params: dict[str, Any] = {"name": tool, "arguments": {"a": 2} if tool == "add" else {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return await self.send("tools/call", params, **headers)

    async def send(self, method: str, params: dict[str, Any], **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self._client.post(self._url, json=body, headers={**self._headers, **headers})

    async def end(self) -> httpx.Response:
        return await self._client.delete(self._url, headers=self._headers)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Opened]:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params = {**hello, "clientInfo": {"name": "t", "version": "1"}}
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with serving(tmp_path) as served, httpx.AsyncClient(timeout=BOUND) as client:
        answer = await client.post(served.url, json=start, headers=ACCEPT)
        yield Opened(client, served.url, answer.headers["mcp-session-id"])


def events(answer: httpx.Response) -> list[Any]:
    """What a stream told."""
    lines = answer.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def test_a_quick_call_is_answered_without_a_stream(session: Opened) -> None:
    answer = await session.call("add")

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["id"] == 7
    assert answer.json()["result"]["structuredContent"] == {"result": 3}


async def test_a_call_that_reports_something_first_gets_a_stream(session: Opened) -> None:
    answer = await session.call("work", token="here")

    told = events(answer)
    assert answer.headers["content-type"] == "text/event-stream"
    assert [one.get("method") for one in told[:3]] == ["notifications/progress"] * 3
    assert told[-1]["result"]["structuredContent"] == {"result": "worked"}


async def test_an_error_is_streamed(session: Opened) -> None:
    answer = await session.call("nothing")

    assert [one["error"]["code"] for one in events(answer)] == [-32602]


async def test_a_call_that_takes_long_is_heard_of_before_it_ends(
    session: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint._STREAM_AFTER_SECONDS", 0.0)

    answer = await session.call("add")

    assert answer.text.startswith(":")
    assert [one["result"]["structuredContent"] for one in events(answer)] == [{"result": 3}]


async def test_a_session_that_ends_ends_its_calls(session: Opened) -> None:
    STARTED.clear()
    ENDED.clear()
    calling = asyncio.create_task(session.call("wait"))
    assert await asyncio.to_thread(STARTED.wait, BOUND)

    ended = await session.end()
    answer = await calling
    later = await session.call("add")

    assert ended.status_code == 200
    assert "terminated" in answer.text or events(answer) == []
    assert later.status_code == 404
    assert await asyncio.to_thread(ENDED.wait, BOUND)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "application/json"}, 406),
        ({"content-type": "text/plain"}, 415),
        ({"mcp-session-id": "0" * 32}, 404),
    ],
)
async def test_a_call_in_the_wrong_form_is_refused(
    session: Opened, headers: dict[str, str], status: int
) -> None:
    answer = await session.call("add", **headers)

    assert answer.status_code == status
