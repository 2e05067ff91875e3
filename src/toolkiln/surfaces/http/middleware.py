"""Middleware: limits, hosts, origins and cookies, checked before a request is routed.

It limits concurrent requests in total and per caller, the size of headers and bodies, and the
time for a body; it refuses requests while the server shuts down. Bodies are read completely
first: applications never wait for one. Limits on connections are in `connections`.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkiln.security.authentication import is_loopback
from toolkiln.surfaces.http.adapter import IS_LOCAL, address_key
from toolkiln.surfaces.http.responses import HttpProblem

PAGE_HEADER = "x-toolkiln-page"
"""The web UI sends it with every request; its value is `1`."""
CALLER: ContextVar[str] = ContextVar("CALLER", default="")
"""The caller of the current request; empty for work of the server itself."""
_COOKIE = "toolkiln"
_SECURE_PREFIX = "__Host-"
"""Browsers accept such cookies only over TLS and from the host itself."""
_PORT = re.compile(r":[0-9]+$")
_TOKEN = re.compile(r"ts_[A-Za-z0-9_-]{1,200}")

HeaderMap = Mapping[bytes, str]
"""Headers by lower-case name, one value each."""


def is_own_page(headers: HeaderMap) -> bool:
    """Return whether a request comes from the web UI, or from a program that claims so."""
    if headers.get(PAGE_HEADER.encode()) != "1":
        return False
    if (site := headers.get(b"sec-fetch-site")) is not None:
        return site == "same-origin"
    # Over plain HTTP, browsers send an Origin only with requests across origins.
    origin, host = headers.get(b"origin"), headers.get(b"host", "")
    return origin is None or origin.lower().partition("://")[2] == host.lower()


def page_token(headers: HeaderMap, *, is_local: bool) -> str | None:
    """Return the session token in the cookie of a request of the web UI."""
    if not is_own_page(headers):
        return None
    host, cookies = headers.get(b"host", ""), list(_parse_cookies(headers.get(b"cookie", "")))
    secure, plain = _cookie_name(host, is_secure=True), _cookie_name(host, is_secure=False)
    # Browsers send Sec-Fetch-Site over TLS and to this machine. Over TLS a plain cookie may have
    # been set by a site on the same domain.
    is_plain_trusted = is_local or b"sec-fetch-site" not in headers
    for name in (secure, plain) if is_plain_trusted else (secure,):
        values = [value for cookie, value in cookies if cookie == name]
        if values:
            is_valid = len(values) == 1 and _TOKEN.fullmatch(values[0])
            return values[0] if is_valid else None
    return None


def set_cookie(headers: HeaderMap, token: str, seconds: float) -> str:
    """Return the `Set-Cookie` value for a session."""
    # The Origin of a POST is what the browser sees, regardless of proxies.
    is_secure = headers.get(b"origin", "").lower().startswith("https://")
    return _set_cookie(headers.get(b"host", ""), token, int(seconds), is_secure=is_secure)


def clear_cookies(headers: HeaderMap) -> list[str]:
    """Return the `Set-Cookie` values that delete the session cookies."""
    host = headers.get(b"host", "")
    return [_set_cookie(host, "", 0, is_secure=is_secure) for is_secure in (True, False)]


def _set_cookie(host: str, value: str, seconds: int, *, is_secure: bool) -> str:
    name, age = _cookie_name(host, is_secure=is_secure), f"Path=/; Max-Age={seconds}"
    secure = "; Secure" if is_secure else ""
    return f"{name}={value}; {age}; HttpOnly; SameSite=Strict{secure}"


def _cookie_name(host: str, *, is_secure: bool) -> str:
    """Return the cookie's name with the port: servers on one host share their cookies."""
    port = _PORT.search(host)
    name = f"{_COOKIE}-{port[0][1:]}" if port else _COOKIE
    return f"{_SECURE_PREFIX}{name}" if is_secure else name


def _parse_cookies(header: str) -> Iterator[tuple[str, str]]:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        yield name, value


_PUBLIC_PATHS = frozenset({b"/", b"/ui", b"/healthz", b"/readyz", b"/openapi.json", b"/docs"})
"""Paths whose responses do not depend on the caller."""
_PUBLIC_PREFIX = b"/ui/"
"""The files of the web UI, which contain no data, and its login page."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"https?://(.+)")
_PROXY_HEADERS = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}
)
_CHECKED_HEADERS = frozenset(
    {b"host", b"origin", b"authorization", b"cookie", b"sec-fetch-site", PAGE_HEADER.encode()}
)


class RequestOrigin(NamedTuple):
    """Where an accepted request comes from."""

    origin: str | None = None
    """The web origin, if it is one of the setting `origins`."""
    token: str | None = None
    """The session in the cookie of the web UI, if the request has no other credential."""
    is_local: bool = False
    """Whether the headers say that it came from this machine."""


def _is_public(path: bytes) -> bool:
    return path in _PUBLIC_PATHS or path.startswith(_PUBLIC_PREFIX)


@dataclass(frozen=True)
class AccessPolicy:
    """The hosts and origins from which a server accepts requests."""

    any_host: bool
    """Whether to accept any Host if `hosts` is empty, because every request needs a credential."""
    hosts: frozenset[str] = frozenset()
    """In lower case."""
    origins: frozenset[str] = frozenset()
    """In lower case."""

    def check(
        self, method: str, path: bytes, headers: Iterable[tuple[bytes, bytes]]
    ) -> RequestOrigin:
        """Return where a request comes from.

        Raises:
            HttpProblem: the server does not accept requests from there.
        """
        checked: dict[bytes, str] = {}
        is_forwarded = False
        for name, value in headers:
            if name in _CHECKED_HEADERS:
                if name in checked:
                    raise HttpProblem("bad_request", f"there are two {name.decode()} headers")
                checked[name] = value.decode("latin-1")
            elif name in _PROXY_HEADERS:
                is_forwarded = True
        host = checked.get(b"host", "").lower()
        is_local = self._check_host(host)
        origin = self._check_origin(checked.get(b"origin"), host, is_local=is_local)
        if origin is None and not (_is_public(path) and method in ("GET", "HEAD")):
            _check_site(checked.get(b"sec-fetch-site"))
        has_credential = b"authorization" in checked
        token = None if has_credential else page_token(checked, is_local=is_local)
        return RequestOrigin(origin, token, is_local and not is_forwarded)

    def _check_host(self, host: str) -> bool:
        """Return whether the Host header names this machine."""
        match = _HOST.fullmatch(host)
        if match is not None:
            if is_loopback(match[1]):
                return True
            if match[1] in self.hosts or host in self.hosts or (self.any_host and not self.hosts):
                return False
        raise HttpProblem(
            "host_refused",
            f"this server does not accept the host {host[:100]!r}",
            hint="use 127.0.0.1 or localhost, or add the host to the setting `hosts`",
        )

    def _check_origin(self, origin: str | None, host: str, *, is_local: bool) -> str | None:
        if origin is None:
            return None
        if origin.lower() in self.origins:
            return origin
        match = _ORIGIN.fullmatch(origin.lower())
        if match is not None:
            name = _HOST.fullmatch(match[1])
            if match[1] == host or (is_local and name is not None and is_loopback(name[1])):
                return None
        raise HttpProblem(
            "origin_refused",
            f"this server does not accept requests from the origin {origin[:100]!r}",
            hint="add the origin to the setting `origins`",
        )


def _check_site(site: str | None) -> None:
    """Refuse requests of other sites' pages, by the browser's Sec-Fetch-Site header."""
    if site in (None, "same-origin", "none"):
        return
    raise HttpProblem(
        "origin_refused",
        "this server does not accept requests from pages of other sites",
        hint="open the URL directly, or add the page's origin to the setting `origins`",
    )


_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 32 << 10
_CHUNK_BYTES = 64 << 10
"""The client must read each chunk of a response in time."""
_UNLIMITED_PATHS = frozenset({b"/healthz", b"/readyz", b"/metrics"})
_ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE"
_EXPOSED_HEADERS = "Mcp-Session-Id, Retry-After, WWW-Authenticate, ETag, Location"


@dataclass(frozen=True)
class RequestLimits:
    """The limits of one server."""

    body_bytes: int
    requests: int
    """Maximum number of concurrent requests, and of concurrent event streams."""
    seconds: float
    """Maximum time for a body."""


class FairSlots:
    """Slots shared by callers: a caller gets another one while more are free than it has.

    One caller gets at most half of the slots, the next one half of the rest, and so on.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken: Counter[str] = Counter()

    def acquire(self, caller: str) -> bool:
        """Take a slot; False if there is none for this caller."""
        if self._taken[caller] >= max(self._count - self._taken.total(), 0):
            return False
        self._taken[caller] += 1
        return True

    def release(self, caller: str) -> None:
        """Return a slot."""
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


class RequestLimitsMiddleware:
    """Middleware that checks access and enforces the limits of a server."""

    def __init__(
        self,
        app: ASGIApp,
        access: AccessPolicy,
        limits: RequestLimits,
        count: Callable[[str, int], None],
        caller_key: Callable[[Scope], Awaitable[str]],
    ) -> None:
        """`count` gets the method and status of every response.

        `caller_key` returns the key that a request's limits are counted by.
        """
        self._app = app
        self._access = access
        self._limits = limits
        self._count = count
        self._caller_key = caller_key
        self._requests = FairSlots(limits.requests)
        self._streams = FairSlots(limits.requests)
        self.active = 0
        """Current requests."""
        self.streams = 0
        """Current requests with an event stream as response."""
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or refuse it."""
        response = _LimitedResponse(send)
        is_limited = scope["raw_path"] not in _UNLIMITED_PATHS
        try:
            if is_limited and self.is_draining:
                raise _draining("the server is shutting down")
            await self._handle(scope, receive, response, is_limited=is_limited)
        except HttpProblem as problem:
            if any(name == b"expect" for name, _ in scope["headers"]):
                # The client may send the body in spite of the refusal.
                problem.headers = {**problem.headers, "connection": "close"}
            await problem.response()(scope, receive, response.send)
        except asyncio.CancelledError:  # the shutdown timeout has passed
            if response.status is None:
                stopped = _draining("the server stopped")
                await stopped.response()(scope, receive, response.send)
        if response.status is not None:
            self._count(scope["method"], response.status)

    async def _handle(
        self, scope: Scope, receive: Receive, response: "_LimitedResponse", *, is_limited: bool
    ) -> None:
        headers = scope["headers"]
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in headers)
        if size > _MAX_HEADER_BYTES or len(headers) > _MAX_HEADERS:
            raise HttpProblem(
                "headers_too_large",
                f"a request may have at most {_MAX_HEADERS} headers and {_MAX_HEADER_BYTES:,} "
                "bytes of headers and path",
                headers={"connection": "close"},
            )
        origin, token, is_local = self._access.check(scope["method"], scope["raw_path"], headers)
        scope = {**scope, IS_LOCAL: is_local}
        if token is not None:  # applications see one kind of credential
            scope["headers"] = [*headers, (b"authorization", b"Bearer " + token.encode())]
        by_name = dict(headers)
        if by_name.get(b"upgrade", b"").lower() == b"websocket":
            raise HttpProblem(
                "bad_request", "WebSockets are not supported", headers={"connection": "close"}
            )
        if origin is not None:
            response.origin = origin.encode("latin-1")
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in by_name:
                await _preflight(response.send, by_name)
                return
        if not is_limited:
            await self._call_app(scope, receive, response, by_name)
            return
        CALLER.set(address_key(scope))  # until the caller is known
        caller = await self._caller_key(scope)
        CALLER.set(caller)
        is_stream = _is_stream(scope, by_name)
        slots = self._streams if is_stream else self._requests
        if not slots.acquire(caller):
            raise _busy("stream" if is_stream else "request")
        self.active += 1

        def on_stream() -> None:
            self.streams += 1

        response.on_stream = on_stream
        try:
            await self._call_app(scope, receive, response, by_name)
        finally:
            slots.release(caller)
            self.active -= 1
            self.streams -= response.is_stream

    async def _call_app(
        self,
        scope: Scope,
        receive: Receive,
        response: "_LimitedResponse",
        headers: dict[bytes, bytes],
    ) -> None:
        if b"content-length" in headers or b"transfer-encoding" in headers:
            body = await self._read_body(receive, headers.get(b"content-length"))
            if body is None:
                return
            receive = _replay(body, receive)
        await self._app(scope, receive, response.send)

    async def _read_body(self, receive: Receive, length: bytes | None) -> bytes | None:
        """Return the whole body; None if the client disconnected."""
        limit = self._limits.body_bytes
        if length is not None and int(length) > limit:
            raise _too_large(limit)
        chunks: list[bytes] = []
        remaining = limit
        try:
            async with asyncio.timeout(self._limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk = message.get("body", b"")
                    remaining -= len(chunk)
                    if remaining < 0:
                        raise _too_large(limit)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise HttpProblem(
                "too_slow",
                f"the body was not received within {self._limits.seconds:g} s",
                headers={"connection": "close"},
            ) from None


class _LimitedResponse:
    """One response: adds CORS headers and splits the body into chunks."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.is_stream = False
        self.origin: bytes | None = None
        self.on_stream: Callable[[], None] = lambda: None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._start(message)
        body = message.get("body", b"")
        if len(body) > _CHUNK_BYTES:
            # A client that does not read makes the server buffer one chunk, not the whole body.
            view, last = memoryview(body), len(body) - _CHUNK_BYTES
            start = 0
            while start < last:
                chunk = {"body": bytes(view[start : start + _CHUNK_BYTES]), "more_body": True}
                await self._send({"type": "http.response.body", **chunk})
                start += _CHUNK_BYTES
            message = {**message, "body": bytes(view[start:])}
        await self._send(message)

    def _start(self, message: Message) -> None:
        headers = message.setdefault("headers", [])
        for name, value in headers:
            if name.lower() == b"content-type" and value.startswith(b"text/event-stream"):
                self.is_stream = True
                self.on_stream()
        if self.origin is not None:
            message["headers"] = [
                *headers,
                (b"access-control-allow-origin", self.origin),
                (b"access-control-expose-headers", _EXPOSED_HEADERS.encode()),
                (b"vary", b"Origin"),
            ]


def _is_stream(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether the response will be an event stream that the client keeps open.

    MCP clients accept events with every POST. A header, which must match the body, marks those
    that only listen; other MCP streams end with a call and count as requests.
    """
    path = scope["raw_path"]
    if path.startswith(b"/v1/") and path.endswith(b"/events"):
        return True
    if b"text/event-stream" not in headers.get(b"accept", b""):
        return False
    is_mcp = not path.startswith(b"/v1/")
    is_listener = headers.get(b"mcp-method", b"").strip() == b"subscriptions/listen"
    return scope["method"] == "GET" or not is_mcp or is_listener


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body that was already read, then what follows."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _preflight(send: Send, headers: dict[bytes, bytes]) -> None:
    """Answer a CORS preflight request from a configured origin."""
    allowed = [
        (b"access-control-allow-methods", _ALLOWED_METHODS.encode()),
        (
            b"access-control-allow-headers",
            headers.get(b"access-control-request-headers", b""),
        ),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": allowed})
    await send({"type": "http.response.body", "body": b""})


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem("too_large", f"the body has more than {limit:,} bytes")


def _busy(kind: str) -> HttpProblem:
    return HttpProblem(
        "busy",
        f"too many concurrent {kind}s, from you or from all callers together",
        hint="close streams that you no longer need, or try again later",
        headers={"retry-after": "1"},
    )


def _draining(detail: str) -> HttpProblem:
    headers: dict[str, Any] = {"retry-after": "5", "connection": "close"}
    return HttpProblem("draining", detail, hint="try again later", headers=headers)
