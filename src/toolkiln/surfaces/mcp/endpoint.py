"""MCP over streamable HTTP, as an ASGI application for everything under `/mcp`.

It asks who comes and hands the request to the SDK's session manager. Limits, and which
hosts and origins may ask, are up to the gate in front.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, Self

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import check_accept_headers
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.surfaces.http.requests import Presence, read_body, session_of
from toolkiln.surfaces.mcp.service import Service
from toolkiln.surfaces.mcp.sessions import (
    COMMENT,
    KEEP_ALIVE_SECONDS,
    STREAM_HEADERS,
    Sessions,
    as_event,
)
from toolkiln.surfaces.mcp.visitors import SCOPE_KEY, VISITOR, Visitor

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PATHS = (b"/mcp", b"/mcp/")
_IDLE = 600.0
"""Seconds without a request or a stream after which a session of the handshake era ends."""
_MOST_SESSIONS = 2_000
"""Each holds some 40 kB, whether its client is still there or not."""
_STREAMED = (b"progressToken", b"logLevel", b"subscriptions/", b"await_task", b"\\u")
"""What a request may say that something is to be told before its answer, or that it takes long.
An escape may hide any of it."""


class Endpoint:
    """The clients of both eras over HTTP."""

    def __init__(self, kiln: Kiln, entrance: Entrance) -> None:
        self._kiln = kiln
        self._entrance = entrance
        self._service = Service(kiln, entrance)
        self._managers: tuple[Sessions, Sessions] | None = None
        """What answers with a stream if need be, and what never does; None: it does not run."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve as long as the block runs; what is open then is ended."""
        # Two ways to answer: with a stream if need be, or with JSON and no stream prepared.
        streaming, plain = self._manager_of(json_response=False), self._manager_of()
        is_ready, is_over = asyncio.Event(), asyncio.Event()

        async def manage() -> None:
            async with streaming.run(), plain.run():
                is_ready.set()
                await is_over.wait()

        async with self._service.running():
            # A task of its own: the SDK wants to be left by the one that entered it.
            managing = asyncio.create_task(manage())
            await is_ready.wait()
            self._managers = streaming, plain
            try:
                yield
            finally:
                self._managers = None
                is_over.set()
                await managing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope.get("raw_path", scope["path"].encode()) not in _PATHS:
            await _refuse(send, 404, "not_found", "MCP is at /mcp")
            return
        if self._managers is None:
            await _refuse(send, 503, "unavailable", "the server is starting or stopping")
            return
        # Blanks around a value are no part of it, and the parser leaves those at the end.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        try:
            visitor = await self._visitor(scope)
        except InputError as error:
            await _refuse(send, 401, "unauthorized", error.message, error.hint)
            return
        except ToolkilnError as error:
            await _refuse(send, 503, "unavailable", error.message, error.hint)
            return
        scope[SCOPE_KEY] = visitor
        VISITOR.set(visitor)
        # The SDK lets nobody use a session that somebody else opened, by this.
        scope["user"] = _user(visitor.principal)
        streaming, plain = self._managers
        if scope["method"] == "POST" and not _is_json(scope):
            await _refuse(send, 415, "unsupported_media_type", "the body is not declared as JSON")
            return
        if scope["method"] != "POST" or not _is_modern(scope):
            await streaming.handle_request(scope, receive, send)
            return
        body = await read_body(receive)
        again = _replayed(body, receive)
        if any(sign in body for sign in _STREAMED):
            await streaming.handle_request(scope, again, send)
            return
        async with Presence(receive), KeptAlive(scope, send) as response:
            await plain.handle_request(scope, again, response.send)

    def _manager_of(self, *, json_response: bool = True) -> Sessions:
        return Sessions(
            self._service.server,
            json_response=json_response,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=self._kiln.settings.body_bytes,
            session_idle_timeout=_IDLE,
            max_sessions=_MOST_SESSIONS,
        )

    async def _visitor(self, scope: Scope) -> Visitor:
        """Who asks.

        Raises:
            NoSession: the credential is missing or opens no session.
        """
        session = await session_of(self._entrance, scope)
        guard = self._kiln.guarding.guard
        caller = guard.known_caller(session) or await guard.caller(session)
        return Visitor(session, f"{caller.who}\n{caller.agent_id or ''}")


class KeptAlive:
    """Turns a JSON response that takes long into an event stream with comments.

    Proxies and clients close connections on which nothing arrives. A late error has status
    200, as on every stream.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._streaming: asyncio.Task[None] | None = None
        self._has_answer = asyncio.Event()
        self._body = b""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(KEEP_ALIVE_SECONDS, self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._streaming is not None:
            self._streaming.cancel()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send part of the response, or collect the one event that it becomes."""
        self._timer.cancel()
        if self._streaming is None:
            await self._send(message)
            return
        self._has_answer.set()
        await self._streaming  # not cancelled: it may not have sent the headers yet
        if message["type"] != "http.response.body":
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._send({"type": "http.response.body", "body": as_event(self._body)})

    def _start(self) -> None:
        if all(check_accept_headers(Request(self._scope))):
            self._streaming = asyncio.get_running_loop().create_task(self._stream())

    async def _stream(self) -> None:
        headers = list(STREAM_HEADERS)
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        while not self._has_answer.is_set():
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    await self._has_answer.wait()


@lru_cache
def _user(principal: str) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


def _is_json(scope: Scope) -> bool:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return len(kinds) == 1 and kinds[0].partition(b";")[0].strip().lower() == b"application/json"


def _is_modern(scope: Scope) -> bool:
    versions = [value for name, value in scope["headers"] if name == b"mcp-protocol-version"]
    return len(versions) == 1 and versions[0].decode("latin-1") in MODERN_PROTOCOL_VERSIONS


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What a request sends, its body first."""
    is_told = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(
    send: Send, status: int, code: str, message: str, hint: str | None = None
) -> None:
    error = {"code": -32600, "message": message, "data": {"code": code, "hint": hint or ""}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="toolkiln"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
