"""Answers as they are sent: JSON, problems, and streams of events."""

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

from toolkiln.surfaces.http.operations import Answer
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.requests import until_gone

KEEP_ALIVE = 15.0
"""Seconds of silence after which a stream of events says that it is there."""
_EFFORT = 5
"""Of compressing: more takes twice as long for a hundredth less."""


class Reply:
    """The one answer to a request."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._has_body = scope["method"] != "HEAD"
        self._has_begun = False

    async def pass_on(self, message: Message) -> None:
        """Send what somebody else made."""
        self._has_begun = True
        await self._send(message)

    async def problem(self, refused: Refused) -> None:
        """Say what is wrong, unless an answer has begun: then it is cut."""
        if self._has_begun:
            raise refused
        content = as_json(refused.problem)
        await self.whole(
            refused.problem.status, b"application/problem+json", content, refused.headers
        )

    async def value(self, answer: Answer) -> None:
        """Answer with a value, or with nothing."""
        content = b"" if answer.value is None else as_json(answer.value)
        kind = b"application/json" if content else b""
        await self.whole(answer.status, kind, content, answer.headers)

    async def large_value(self, answer: Answer, gzipped: bool) -> None:
        """Answer with a value of many parts; others are served while it is put together."""
        assert answer.value is not None
        content = await asyncio.to_thread(as_json, answer.value)
        headers = {**answer.headers, "vary": "accept-encoding"}
        if gzipped:
            content = await asyncio.to_thread(gzip.compress, content, _EFFORT, mtime=0)
            headers["content-encoding"] = "gzip"
        await self.whole(answer.status, b"application/json", content, headers)

    async def whole(
        self, status: int, kind: bytes, content: bytes, headers: Mapping[str, str]
    ) -> None:
        """Answer with all of a content at once."""
        sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        if kind:
            sent.append((b"content-type", kind))
        if status != 204:
            sent.append((b"content-length", b"%d" % len(content)))
        await self.pass_on({"type": "http.response.start", "status": status, "headers": sent})
        shown = content if self._has_body else b""
        await self._send({"type": "http.response.body", "body": shown})

    async def events(self, answer: Answer, receive: Receive) -> None:
        """Answer with events as they come, until there are no more or the client goes."""
        assert answer.events is not None
        kind = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        own = [(n.lower().encode(), v.encode("latin-1")) for n, v in answer.headers.items()]
        await self.pass_on(
            {"type": "http.response.start", "status": answer.status, "headers": kind + own}
        )
        if self._has_body:
            telling = asyncio.create_task(self._tell(answer.events))
            leaving = asyncio.create_task(until_gone(receive))
            try:
                await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                is_over = telling.done()
                telling.cancel()
                # What is told ends here and now, with whatever it holds.
                await asyncio.wait((telling,))
            if is_over:
                telling.result()
        await _close(answer.events)
        await self._send({"type": "http.response.body", "body": b""})

    async def _tell(self, events: AsyncIterator[tuple[str, BaseModel]]) -> None:
        following: asyncio.Future[tuple[str, BaseModel]] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(events))
                await asyncio.wait((following,), timeout=KEEP_ALIVE)
                if not following.done():
                    await self._chunk(b": still here\n\n")
                    continue
                try:
                    name, value = following.result()
                except StopAsyncIteration:
                    return
                following = None
                await self._chunk(b"event: %s\ndata: %s\n\n" % (name.encode(), as_json(value)))
        finally:
            if following is not None and not following.done():
                following.cancel()
                await asyncio.wait((following,))

    async def _chunk(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


def as_json(value: BaseModel) -> bytes:
    """A value as JSON in UTF-8."""
    try:
        return value.__pydantic_serializer__.to_json(value)
    except PydanticSerializationError:  # half a surrogate pair, which only an escape can say
        return json.dumps(_plain(value.model_dump()), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    """What JSON can say of a value, as the serialiser would have said it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return None if isinstance(value, float) and not isfinite(value) else value


async def _close(events: AsyncIterator[Any]) -> None:
    if (close := getattr(events, "aclose", None)) is not None:
        await close()
