"""The gate: limits that hold before anybody looks at what a request wants.

How many there are at once, in all and of each caller, how large their headers and bodies
are, how long a body takes, where they come from (`access`), and whether the server is about
to stop. A body is taken
whole before anything else happens, so that whoever is behind the gate never waits for one.
What concerns connections rather than requests is in `connections`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkiln.surfaces.http.access import IS_LOCAL, Access
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.replies import Reply
from toolkiln.surfaces.http.requests import address_of
from toolkiln.surfaces.http.threads import CALLER

_MOST_HEADERS = 100
_MOST_HEADER_BYTES = 32 << 10
_PIECE = 64 << 10
"""Bytes of an answer that are sent at once: a client has to take them in time."""
_ALWAYS = frozenset({b"/healthz", b"/readyz", b"/metrics"})
"""What is answered however busy the server is."""
_ALLOWED = "GET, POST, PUT, PATCH, DELETE"
_EXPOSED = "Mcp-Session-Id, Retry-After, WWW-Authenticate, ETag, Location"


@dataclass(frozen=True)
class Limits:
    """What a request may cost."""

    body_bytes: int
    requests: int
    """Requests at once, and as many streams of events."""
    seconds: float


class Places:
    """Places that callers share: each caller gets one while more are free than the caller has.

    One caller gets at most half of them, the next one half of the rest, and so on.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    def take(self, who: str) -> bool:
        """Take a place; False if there is none for this caller."""
        if self._taken[who] >= max(self._most - self._taken.total(), 0):
            return False
        self._taken[who] += 1
        return True

    def leave(self, who: str) -> None:
        """Give a place back."""
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


class Gate:
    """An application behind its limits."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: Limits,
        count: Callable[[str, int], None],
        caller_of: Callable[[Scope], Awaitable[str]],
    ) -> None:
        """`count` gets the method and status of every request that was answered.

        `caller_of` names the caller that a request counts for.
        """
        self._app = app
        self._access = access
        self._limits = limits
        self._count = count
        self._caller_of = caller_of
        self._requests = Places(limits.requests)
        self._streams = Places(limits.requests)
        self.active = 0
        """Requests that are being answered."""
        self.streams = 0
        """Those of them that are answered with events, for as long as that may be."""
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or say why not."""
        passage = _Passage(send)
        is_counted = scope["raw_path"] not in _ALWAYS
        try:
            if is_counted and self.is_draining:
                raise _draining("the server is about to stop")
            await self._pass(scope, receive, passage, is_counted=is_counted)
        except Refused as refused:
            if any(name == b"expect" for name, _ in scope["headers"]):
                # Whether the body follows all the same is the client's choice.
                refused.headers = {**refused.headers, "connection": "close"}
            await Reply(scope, passage.send).problem(refused)
        except asyncio.CancelledError:  # the server stops, and cannot wait any longer
            if passage.status is None:
                await Reply(scope, passage.send).problem(_draining("the server stopped"))
        if passage.status is not None:
            self._count(scope["method"], passage.status)

    async def _pass(
        self, scope: Scope, receive: Receive, passage: "_Passage", *, is_counted: bool
    ) -> None:
        headers = scope["headers"]
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in headers)
        if size > _MOST_HEADER_BYTES or len(headers) > _MOST_HEADERS:
            raise Refused(
                "headers_too_large",
                f"a request has at most {_MOST_HEADERS} headers of {_MOST_HEADER_BYTES:,} bytes "
                "in all, its path included",
                headers={"connection": "close"},
            )
        origin, token, is_local = self._access.check(scope["method"], scope["raw_path"], headers)
        scope = {**scope, IS_LOCAL: is_local}
        if token is not None:  # from here on there is one kind of credential
            scope["headers"] = [*headers, (b"authorization", b"Bearer " + token.encode())]
        known = dict(headers)
        if known.get(b"upgrade", b"").lower() == b"websocket":
            raise Refused(
                "bad_request", "there are no WebSockets here", headers={"connection": "close"}
            )
        if origin is not None:
            passage.origin = origin.encode("latin-1")
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in known:
                await _preflight(passage.send, known)
                return
        if not is_counted:
            await self._let_in(scope, receive, passage, known)
            return
        CALLER.set(address_of(scope))  # until the caller is known
        who = await self._caller_of(scope)
        CALLER.set(who)
        follows = _is_stream(scope, known)
        places = self._streams if follows else self._requests
        if not places.take(who):
            raise _busy("stream" if follows else "request")
        self.active += 1

        def on_stream() -> None:
            self.streams += 1

        passage.on_stream = on_stream
        try:
            await self._let_in(scope, receive, passage, known)
        finally:
            places.leave(who)
            self.active -= 1
            self.streams -= passage.is_stream

    async def _let_in(
        self, scope: Scope, receive: Receive, passage: "_Passage", known: dict[bytes, bytes]
    ) -> None:
        if b"content-length" in known or b"transfer-encoding" in known:
            body = await self._body(receive, known.get(b"content-length"))
            if body is None:
                return
            receive = _replaying(body, receive)
        await self._app(scope, receive, passage.send)

    async def _body(self, receive: Receive, length: bytes | None) -> bytes | None:
        """The whole body; None if the client went.

        Raises:
            Refused: it is too large, or takes too long.
        """
        most = self._limits.body_bytes
        if length is not None and int(length) > most:
            raise _too_large(most)
        chunks: list[bytes] = []
        left = most
        try:
            async with asyncio.timeout(self._limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk = message.get("body", b"")
                    left -= len(chunk)
                    if left < 0:
                        raise _too_large(most)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise Refused(
                "too_slow",
                f"the body did not come within {self._limits.seconds:g} s",
                headers={"connection": "close"},
            ) from None


class _Passage:
    """The way of one answer out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.is_stream = False
        self.origin: bytes | None = None
        self.on_stream: Callable[[], None] = lambda: None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begin(message)
        body = message.get("body", b"")
        if len(body) > _PIECE:
            # In pieces, so that no client makes us hold more than one that it does not take.
            view, last = memoryview(body), len(body) - _PIECE
            start = 0
            while start < last:
                part = {"body": bytes(view[start : start + _PIECE]), "more_body": True}
                await self._send({"type": "http.response.body", **part})
                start += _PIECE
            message = {**message, "body": bytes(view[start:])}
        await self._send(message)

    def _begin(self, message: Message) -> None:
        headers = message.setdefault("headers", [])
        for name, value in headers:
            if name.lower() == b"content-type" and value.startswith(b"text/event-stream"):
                self.is_stream = True
                self.on_stream()
        if self.origin is not None:
            message["headers"] = [
                *headers,
                (b"access-control-allow-origin", self.origin),
                (b"access-control-expose-headers", _EXPOSED.encode()),
                (b"vary", b"Origin"),
            ]


def _is_stream(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a request will be answered with events, for as long as its caller likes.

    Clients of MCP accept events with every POST; what only listens is named in a header that has
    to fit the body. Other streams of theirs end with a call, and count as requests.
    """
    path = scope["raw_path"]
    if path.startswith(b"/v1/") and path.endswith(b"/events"):
        return True
    if b"text/event-stream" not in headers.get(b"accept", b""):
        return False
    is_mcp = not path.startswith(b"/v1/")
    listens = headers.get(b"mcp-method", b"").strip() == b"subscriptions/listen"
    return scope["method"] == "GET" or not is_mcp or listens


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Hands over a body that was taken already, then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


async def _preflight(send: Send, headers: dict[bytes, bytes]) -> None:
    """Tell a browser what pages of a configured origin may send."""
    asked = headers.get(b"access-control-request-headers", b"")
    told = [
        (b"access-control-allow-methods", _ALLOWED.encode()),
        (b"access-control-allow-headers", asked),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": told})
    await send({"type": "http.response.body", "body": b""})


def _too_large(most: int) -> Refused:
    return Refused("too_large", f"the body has more than {most:,} bytes")


def _busy(kind: str) -> Refused:
    return Refused(
        "busy",
        f"there is no place for another {kind}: you have too many, or all callers together have",
        hint="close streams that you no longer need, or try again in a moment",
        headers={"retry-after": "1"},
    )


def _draining(detail: str) -> Refused:
    headers: dict[str, Any] = {"retry-after": "5", "connection": "close"}
    return Refused("draining", detail, hint="ask again later", headers=headers)
