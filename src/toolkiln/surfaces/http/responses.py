"""Responses: JSON, problems and event streams."""

import asyncio
import gzip
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from math import isfinite
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from starlette.types import Message, Receive, Scope, Send

from toolkiln.surfaces.http.adapter import HandlerResponse, wait_for_disconnect
from toolkiln.surfaces.http.problems import HttpProblem

_KEEP_ALIVE_SECONDS = 15.0
"""Idle time after which an event stream sends a comment."""
_GZIP_LEVEL = 5
"""Higher levels take twice as long and save one percent."""


class ResponseWriter:
    """Writes the response to one request."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._has_body = scope["method"] != "HEAD"
        self._has_started = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message."""
        self._has_started = True
        await self._send(message)

    async def problem(self, problem: HttpProblem) -> None:
        """Send a problem; raise it if a response has started, which ends the connection."""
        if self._has_started:
            raise problem
        content = to_json(problem.problem)
        await self.content(
            problem.problem.status, b"application/problem+json", content, problem.headers
        )

    async def value(self, response: HandlerResponse) -> None:
        """Send a value, or no content."""
        content = b"" if response.value is None else to_json(response.value)
        media_type = b"application/json" if content else b""
        await self.content(response.status, media_type, content, response.headers)

    async def large_value(self, response: HandlerResponse, *, compress: bool) -> None:
        """Send a value that is serialised in a thread."""
        assert response.value is not None
        content = await asyncio.to_thread(to_json, response.value)
        headers = {**response.headers, "vary": "accept-encoding"}
        if compress:
            content = await asyncio.to_thread(gzip.compress, content, _GZIP_LEVEL, mtime=0)
            headers["content-encoding"] = "gzip"
        await self.content(response.status, b"application/json", content, headers)

    async def content(
        self, status: int, media_type: bytes, content: bytes, headers: Mapping[str, str]
    ) -> None:
        """Send a complete body."""
        encoded = _encode_headers(headers)
        if media_type:
            encoded.append((b"content-type", media_type))
        if status != 204:
            encoded.append((b"content-length", b"%d" % len(content)))
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        body = content if self._has_body else b""
        await self._send({"type": "http.response.body", "body": body})

    async def events(self, response: HandlerResponse, receive: Receive) -> None:
        """Send events until there are no more or the client disconnects."""
        assert response.events is not None
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            *_encode_headers(response.headers),
        ]
        await self.send(
            {"type": "http.response.start", "status": response.status, "headers": headers}
        )
        if self._has_body:
            stream = asyncio.create_task(self._send_events(response.events))
            disconnect = asyncio.create_task(wait_for_disconnect(receive))
            try:
                await asyncio.wait((stream, disconnect), return_when=asyncio.FIRST_COMPLETED)
            finally:
                disconnect.cancel()
                is_complete = stream.done()
                stream.cancel()
                # Wait until the generator has released its resources.
                await asyncio.wait((stream,))
            if is_complete:
                stream.result()
        if (close := getattr(response.events, "aclose", None)) is not None:
            await close()
        await self._send({"type": "http.response.body", "body": b""})

    async def _send_events(self, events: AsyncIterator[tuple[str, BaseModel]]) -> None:
        event: asyncio.Future[tuple[str, BaseModel]] | None = None
        try:
            while True:
                event = event or asyncio.ensure_future(anext(events))
                await asyncio.wait((event,), timeout=_KEEP_ALIVE_SECONDS)
                if not event.done():
                    await self._send_chunk(b": still here\n\n")
                    continue
                try:
                    name, value = event.result()
                except StopAsyncIteration:
                    return
                event = None
                data = to_json(value)
                await self._send_chunk(b"event: %s\ndata: %s\n\n" % (name.encode(), data))
        finally:
            if event is not None and not event.done():
                event.cancel()
                await asyncio.wait((event,))

    async def _send_chunk(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


def to_json(value: BaseModel) -> bytes:
    """Return a value as JSON in UTF-8."""
    try:
        return value.__pydantic_serializer__.to_json(value)
    except PydanticSerializationError:  # a lone surrogate, which needs an escape
        return json.dumps(_to_plain(value.model_dump()), allow_nan=False).encode()


def _to_plain(value: Any) -> Any:
    """Convert a value as pydantic's serialiser would."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return None if isinstance(value, float) and not isfinite(value) else value
