"""Sessions of the handshake era over HTTP, in which quick calls are answered without a stream.

The SDK prepares a stream of events for every request, which costs more than most calls. Here
`tools/call` is answered with JSON if its answer comes soon and nothing is to be told before,
and else with a stream. Everything else is as the SDK has it, by whose means the messages of a
session find their way. (anyio, which those means are made of, comes with it.)
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from uuid import uuid4

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from toolkiln.surfaces.http.requests import Presence

_SOON = 1.0
"""Seconds after which a client should hear that something is under way."""
KEEP_ALIVE_SECONDS = 15.0
"""Between two comments on a stream that has nothing else to send."""
_CALL = "tools/call"
_OVER = (anyio.EndOfStream, anyio.ClosedResourceError)
"""The session was ended."""
_TERMINATED = ("Session terminated before the request completed", HTTPStatus.NOT_FOUND)
_NO_MESSAGE = ("The body must be one JSON-RPC request or notification", HTTPStatus.BAD_REQUEST)
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
COMMENT = b": still running\n\n"

_Events = Callable[[], Awaitable[EventMessage]]


class Sessions(StreamableHTTPSessionManager):
    """The SDK's manager, with sessions as they are below."""

    def _admit_session(
        self, requestor: AuthorizationContext | None
    ) -> StreamableHTTPServerTransport | None:
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            if not self._end_one_of_many(requestor):
                return None
        name = uuid4().hex
        session = _Session(
            mcp_session_id=name,
            security_settings=self.security_settings,
            idle_timeout=self.session_idle_timeout,
        )
        if requestor is not None:
            self._session_owners[name] = requestor
        self._server_instances[name] = session
        return session

    def _end_one_of_many(self, requestor: AuthorizationContext | None) -> bool:
        """End the oldest session of the caller with the most, to make room for another caller.

        False if the one who asks has as many.
        """
        owners = {name: _owner(self._session_owners.get(name)) for name in self._server_instances}
        counts = Counter(owners.values())
        most, count = counts.most_common(1)[0]
        if counts[_owner(requestor)] + 1 >= count or self._task_group is None:
            return False
        oldest = next(name for name, owner in owners.items() if owner == most)
        ended = self._server_instances.pop(oldest)
        self._task_group.start_soon(self._discard_session, oldest, ended)
        return True


class _Session(StreamableHTTPServerTransport):
    async def _handle_post_request(
        self, scope: Scope, request: Request, receive: Receive, send: Send
    ) -> None:
        body = await request.body()
        if not (all(check_accept_headers(request)) and self._check_content_type(request)):
            await super()._handle_post_request(scope, request, receive, send)
            return
        asked = None
        try:
            asked = jsonrpc_message_adapter.validate_json(body, by_name=False)
        except ValidationError as error:
            if _is_json(error):  # a batch, or an object of another form
                response = self._create_error_response(*_NO_MESSAGE)
                await response(request.scope, request.receive, send)
                return
        if not isinstance(asked, JSONRPCRequest) or asked.method != _CALL:
            await super()._handle_post_request(scope, request, receive, send)
        elif await self._validate_request_headers(request, send):
            await self._answer(asked, request, send)

    async def _answer(self, asked: JSONRPCRequest, request: Request, send: Send) -> None:
        key, into = str(asked.id), self._read_stream_writer
        assert into is not None
        told = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[key] = told
        try:
            # Whoever goes does not end the call: in this era that takes a message.
            async with Presence(request.receive):
                await into.send(self._create_session_message(asked, request, key, ""))
                await self._tell(told[1].receive, request, send)
        finally:
            await self._clean_up_memory_streams(key)

    async def _tell(self, receive: _Events, request: Request, send: Send) -> None:
        """Send what is told of a request, to its answer."""
        first = None
        try:
            with anyio.move_on_after(_SOON):
                first = await receive()
        except _OVER:
            response = self._create_error_response(*_TERMINATED)
            await response(request.scope, request.receive, send)
            return
        # Not errors: a client that cancels and leaves trips over them, if they are no stream.
        if first is not None and isinstance(first.message, JSONRPCResponse):
            response = self._create_json_response(first.message)
            await response(request.scope, request.receive, send)
            return
        name = (self.mcp_session_id or "").encode()
        headers = [*STREAM_HEADERS, (MCP_SESSION_ID_HEADER.encode(), name)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with suppress(*_OVER):
            await _stream(first, receive, send)
        await send({"type": "http.response.body", "body": b""})


def _owner(context: AuthorizationContext | None) -> str:
    return "" if context is None else context["client_id"]


async def _stream(event: EventMessage | None, receive: _Events, send: Send) -> None:
    while True:
        data = COMMENT if event is None else _written(event)
        await send({"type": "http.response.body", "body": data, "more_body": True})
        if event is not None and _is_last(event):
            return
        event = None
        with anyio.move_on_after(KEEP_ALIVE_SECONDS):
            event = await receive()


def _is_json(error: ValidationError) -> bool:
    return error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid"


def _is_last(event: EventMessage) -> bool:
    return isinstance(event.message, JSONRPCResponse | JSONRPCError)


def _written(event: EventMessage) -> bytes:
    text = event.message.model_dump_json(by_alias=True, exclude_unset=True)
    return as_event(text.encode())


def as_event(message: bytes) -> bytes:
    """Return a message on one line as an event of a stream."""
    return b"event: message\ndata: %s\n\n" % message
