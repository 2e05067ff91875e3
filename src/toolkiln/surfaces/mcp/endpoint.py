"""MCP over streamable HTTP: an ASGI application for `/mcp`.

It authenticates the caller and passes the request to the SDK's session manager. Limits, hosts
and origins are checked by the HTTP middleware before.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Self
from uuid import uuid4

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.adapter import DisconnectGuard, session_of
from toolkiln.surfaces.mcp.requests import MCP_CALLER, SCOPE_KEY, McpCaller
from toolkiln.surfaces.mcp.server import McpServer

_STREAM_AFTER_SECONDS = 1.0
"""How long a call may run before its response becomes an event stream."""
KEEP_ALIVE_SECONDS = 15.0
"""Time between comments on an idle stream."""
_SESSION_ENDED = (anyio.EndOfStream, anyio.ClosedResourceError)
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b": still running\n\n"

_ReceiveEvent = Callable[[], Awaitable[EventMessage]]


class McpSessionManager(StreamableHTTPSessionManager):
    """The SDK's session manager with our transport and a fair limit on sessions."""

    def _admit_session(
        self, requestor: AuthorizationContext | None
    ) -> StreamableHTTPServerTransport | None:
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            if not self._make_room(requestor):
                return None
        session_id = uuid4().hex
        transport = _SessionTransport(
            mcp_session_id=session_id,
            security_settings=self.security_settings,
            idle_timeout=self.session_idle_timeout,
        )
        if requestor is not None:
            self._session_owners[session_id] = requestor
        self._server_instances[session_id] = transport
        return transport

    def _make_room(self, requestor: AuthorizationContext | None) -> bool:
        """End the oldest session of the caller with the most sessions.

        Returns False if the requestor itself has as many.
        """
        owners = {
            session_id: _owner(self._session_owners.get(session_id))
            for session_id in self._server_instances
        }
        counts = Counter(owners.values())
        largest_owner, count = counts.most_common(1)[0]
        if counts[_owner(requestor)] + 1 >= count or self._task_group is None:
            return False
        oldest = next(session_id for session_id, owner in owners.items() if owner == largest_owner)
        transport = self._server_instances.pop(oldest)
        self._task_group.start_soon(self._discard_session, oldest, transport)
        return True


class _SessionTransport(StreamableHTTPServerTransport):
    async def _handle_post_request(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        body = await request.body()
        if not (all(check_accept_headers(request)) and self._check_content_type(request)):
            await super()._handle_post_request(scope, request, receive, send)
            return
        message = None
        try:
            message = jsonrpc_message_adapter.validate_json(body, by_name=False)
        except ValidationError as error:
            if not _is_syntax_error(error):  # a batch, or an object of another form
                response = self._create_error_response(
                    "The body must be one JSON-RPC request or notification",
                    HTTPStatus.BAD_REQUEST,
                )
                await response(request.scope, request.receive, send)
                return
        if not isinstance(message, JSONRPCRequest) or message.method != "tools/call":
            await super()._handle_post_request(scope, request, receive, send)
        elif await self._validate_request_headers(request, send):
            await self._call_tool(message, request, send)

    async def _call_tool(self, message: JSONRPCRequest, request: Request, send: Send) -> None:
        key, writer = str(message.id), self._read_stream_writer
        assert writer is not None
        events = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[key] = events
        try:
            # A disconnect does not end the call: in the handshake era that takes a message.
            async with DisconnectGuard(request.receive):
                await writer.send(self._create_session_message(message, request, key, ""))
                await self._respond(events[1].receive, request, send)
        finally:
            await self._clean_up_memory_streams(key)

    async def _respond(self, receive: _ReceiveEvent, request: Request, send: Send) -> None:
        """Send a quick result as JSON, anything else as an event stream."""
        first = None
        try:
            with anyio.move_on_after(_STREAM_AFTER_SECONDS):
                first = await receive()
        except _SESSION_ENDED:
            response = self._create_error_response(
                "Session terminated before the request completed", HTTPStatus.NOT_FOUND
            )
            await response(request.scope, request.receive, send)
            return
        # Errors are always streamed: a client that cancels and leaves fails on a JSON response.
        if first is not None and isinstance(first.message, JSONRPCResponse):
            response = self._create_json_response(first.message)
            await response(request.scope, request.receive, send)
            return
        session_id = (self.mcp_session_id or "").encode()
        headers = [*_STREAM_HEADERS, (MCP_SESSION_ID_HEADER.encode(), session_id)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with suppress(*_SESSION_ENDED):
            await _stream(first, receive, send)
        await send({"type": "http.response.body", "body": b""})


def _owner(context: AuthorizationContext | None) -> str:
    return "" if context is None else context["client_id"]


async def _stream(event: EventMessage | None, receive: _ReceiveEvent, send: Send) -> None:
    while True:
        data = _COMMENT if event is None else _encode(event)
        await send({"type": "http.response.body", "body": data, "more_body": True})
        if event is not None and _is_last(event):
            return
        event = None
        with anyio.move_on_after(KEEP_ALIVE_SECONDS):
            event = await receive()


def _is_syntax_error(error: ValidationError) -> bool:
    return error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid"


def _is_last(event: EventMessage) -> bool:
    return isinstance(event.message, JSONRPCResponse | JSONRPCError)


def _encode(event: EventMessage) -> bytes:
    text = event.message.model_dump_json(by_alias=True, exclude_unset=True)
    return _server_sent_event(text.encode())


def _server_sent_event(message: bytes) -> bytes:
    return b"event: message\ndata: %s\n\n" % message


_PATHS = (b"/mcp", b"/mcp/")
_SESSION_IDLE_SECONDS = 600.0
"""Idle time after which a session of the handshake era ends."""
_MAX_SESSIONS = 2_000
"""Each session takes about 40 kB, even if its client has gone."""
_STREAM_MARKERS = (b"progressToken", b"logLevel", b"subscriptions/", b"await_task", b"\\u")
"""Bytes in a request that may need notifications or take long; an escape may hide the others."""


class McpEndpoint:
    """The ASGI application for clients of both eras."""

    def __init__(self, kiln: Kiln, authenticator: Authenticator) -> None:
        self._kiln = kiln
        self._authenticator = authenticator
        self._server = McpServer(kiln, authenticator)
        self._managers: tuple[McpSessionManager, McpSessionManager] | None = None
        """For responses that may be streams, and for JSON only; None while not running."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block runs, then close open sessions and streams."""
        streaming, plain = self._session_manager(json_response=False), self._session_manager()
        is_ready, is_done = asyncio.Event(), asyncio.Event()

        async def run_managers() -> None:
            async with streaming.run(), plain.run():
                is_ready.set()
                await is_done.wait()

        async with self._server.running():
            # A separate task: the SDK's task groups must be exited by the task that entered them.
            managers = asyncio.create_task(run_managers())
            await is_ready.wait()
            self._managers = streaming, plain
            try:
                yield
            finally:
                self._managers = None
                is_done.set()
                await managers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope.get("raw_path", scope["path"].encode()) not in _PATHS:
            await _refuse(send, 404, "not_found", "MCP is at /mcp")
            return
        if self._managers is None:
            await _refuse(send, 503, "unavailable", "the server is starting or stopping")
            return
        # The HTTP parser keeps trailing whitespace, which is not part of a header's value.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        try:
            caller = await self._caller(scope)
        except InputError as error:
            await _refuse(send, 401, "unauthorized", error.message, error.hint)
            return
        except ToolkilnError as error:
            await _refuse(send, 503, "unavailable", error.message, error.hint)
            return
        scope[SCOPE_KEY] = caller
        MCP_CALLER.set(caller)
        # The SDK compares users: a caller cannot use another caller's session.
        scope["user"] = _user(caller.principal)
        streaming, plain = self._managers
        if scope["method"] == "POST" and not _is_json(scope):
            await _refuse(send, 415, "unsupported_media_type", "the body must be application/json")
            return
        if scope["method"] != "POST" or not _is_modern(scope):
            await streaming.handle_request(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        replay = _replay(body, receive)
        if any(marker in body for marker in _STREAM_MARKERS):
            await streaming.handle_request(scope, replay, send)
            return
        async with DisconnectGuard(receive), KeepAliveResponse(scope, send) as response:
            await plain.handle_request(scope, replay, response.send)

    def _session_manager(self, *, json_response: bool = True) -> McpSessionManager:
        return McpSessionManager(
            self._server.server,
            json_response=json_response,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=self._kiln.settings.body_bytes,
            session_idle_timeout=_SESSION_IDLE_SECONDS,
            max_sessions=_MAX_SESSIONS,
        )

    async def _caller(self, scope: Scope) -> McpCaller:
        session = await session_of(self._authenticator, scope)
        guard = self._kiln.security.guard
        caller = guard.known_caller(session) or await guard.caller(session)
        return McpCaller(session, f"{caller.who}\n{caller.agent_id or ''}")


class KeepAliveResponse:
    """A JSON response that becomes an event stream with comments if it takes long.

    Proxies and clients close idle connections. A late error has status 200, as on every
    stream.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._stream: asyncio.Task[None] | None = None
        self._has_response = asyncio.Event()
        self._body = b""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(KEEP_ALIVE_SECONDS, self._start_stream)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._stream is not None:
            self._stream.cancel()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send an ASGI message, or collect the body as one event of the stream."""
        self._timer.cancel()
        if self._stream is None:
            await self._send(message)
            return
        self._has_response.set()
        await self._stream  # not cancelled: it may not have sent the headers yet
        if message["type"] != "http.response.body":
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._send({"type": "http.response.body", "body": _server_sent_event(self._body)})

    def _start_stream(self) -> None:
        if all(check_accept_headers(Request(self._scope))):
            self._stream = asyncio.get_running_loop().create_task(self._send_comments())

    async def _send_comments(self) -> None:
        headers = list(_STREAM_HEADERS)
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        while not self._has_response.is_set():
            await self._send({"type": "http.response.body", "body": _COMMENT, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    await self._has_response.wait()


@lru_cache
def _user(principal: str) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


def _is_json(scope: Scope) -> bool:
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return len(types) == 1 and types[0].partition(b";")[0].strip().lower() == b"application/json"


def _is_modern(scope: Scope) -> bool:
    versions = [value for name, value in scope["headers"] if name == b"mcp-protocol-version"]
    return len(versions) == 1 and versions[0].decode("latin-1") in MODERN_PROTOCOL_VERSIONS


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body that was already read, then what follows."""
    is_sent = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


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
