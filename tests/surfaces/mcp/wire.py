"""Clients of both eras that send bytes and read bytes, for what no real client would send."""

import json
from typing import Any

import httpx2 as httpx

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TASKS = "io.modelcontextprotocol/tasks"
VERSION = "2026-07-28"


class Legacy:
    """A client of 2025-11-25."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url, self.headers = client, url, dict(ACCEPT)

    async def start(self) -> dict[str, Any]:
        """Shake hands."""
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        answer = await self.ask("initialize", **hello)
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._client.post(self._url, json=done, headers=self.headers)
        return answer

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request."""
        return (await self.messages(method, **params))[-1]

    async def messages(self, method: str, **params: Any) -> list[dict[str, Any]]:
        """What comes on the stream of a request, its answer last."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        given = await self._client.post(self._url, json=body, headers=self.headers)
        if "mcp-session-id" in given.headers:
            self.headers["mcp-session-id"] = given.headers["mcp-session-id"]
        return messages(given)


def meta(extensions: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What every request of the modern era carries."""
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": extensions or {},
        },
        **more,
    }


def modern_request(
    method: str, params: dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of a request of the modern era."""
    shown = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": method, **(headers or {})}
    for name in ("name", "uri"):
        if name in params:
            shown["mcp-name"] = params[name]
    if "taskId" in params:
        shown["mcp-name"] = params["taskId"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta(), **params}}
    return body, shown


async def modern_reply(
    client: httpx.AsyncClient,
    url: str,
    method: str,
    *,
    headers: dict[str, str] | None = None,
    **params: Any,
) -> httpx.Response:
    """The response to a request of the modern era."""
    body, shown = modern_request(method, params, headers)
    return await client.post(url, json=body, headers=shown)


async def modern(
    client: httpx.AsyncClient,
    url: str,
    method: str,
    extensions: dict[str, Any] | None = None,
    **params: Any,
) -> dict[str, Any]:
    """The answer to a request of the modern era."""
    params = {"_meta": meta(extensions), **params}
    return messages(await modern_reply(client, url, method, **params))[-1]


def messages(given: httpx.Response) -> list[dict[str, Any]]:
    """What a response says, be it a stream or not."""
    if given.headers["content-type"].startswith("application/json"):
        return [given.json()]
    lines = given.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
