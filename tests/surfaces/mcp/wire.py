"""Clients of both eras that send bytes and read bytes, for what no real client would send."""

import json
from typing import Any

import httpx2 as httpx

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TASKS = "io.modelcontextprotocol/tasks"
VERSION = "2026-07-28"
HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
"""How a client of 2025-11-25 introduces itself."""


def request(method: str, number: object = 1, **params: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Legacy:
    """A client of 2025-11-25."""

    def __init__(self, client: httpx.AsyncClient, url: str, **headers: str) -> None:
        self._client, self._url, self.headers = client, url, {**ACCEPT, **headers}

    async def start(self, **capabilities: Any) -> dict[str, Any]:
        """Shake hands."""
        answer = await self.ask("initialize", **{**HELLO, "capabilities": capabilities})
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._client.post(self._url, json=done, headers=self.headers)
        return answer

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request."""
        return (await self.messages(method, **params))[-1]

    async def messages(self, method: str, **params: Any) -> list[dict[str, Any]]:
        """The messages on the stream of a request, its answer last."""
        return messages(await self.post(method, params))

    async def post(
        self, method: str, params: dict[str, Any] | None = None, **headers: str
    ) -> httpx.Response:
        """The response to a request, as it is."""
        body = request(method, **(params or {}))
        given = await self._client.post(self._url, json=body, headers={**self.headers, **headers})
        if "mcp-session-id" in given.headers:
            self.headers["mcp-session-id"] = given.headers["mcp-session-id"]
        return given

    async def end(self) -> httpx.Response:
        """End the session."""
        return await self._client.delete(self._url, headers=self.headers)


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
    shown = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": method}
    for name in ("name", "uri", "taskId"):
        if name in params:
            shown["mcp-name"] = params[name]
    return request(method, **{"_meta": meta(), **params}), {**shown, **(headers or {})}


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
    """The messages of a response, be it a stream or not."""
    if given.headers["content-type"].startswith("application/json"):
        return [given.json()]
    lines = given.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
