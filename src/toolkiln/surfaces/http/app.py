"""The ASGI application: routes of operations, and applications mounted beside them.

Starlette finds the route; `adapter` checks the request and runs the operation. Limits are in
`middleware`, sockets in `server`. Mounted applications get their requests unchanged, and
authenticate callers themselves.
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from urllib.parse import quote, unquote_to_bytes

from starlette import routing
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolkiln.errors import ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.adapter import (
    DisconnectGuard,
    HttpRequest,
    Route,
    accepts_gzip,
    parse_body,
    parse_query,
    session_of,
)
from toolkiln.surfaces.http.responses import HttpProblem, JsonResponse, large_response, refusal

_MAX_KEY_LENGTH = 180
_MAX_ENTRIES = 1000
_TTL_SECONDS = 600.0

_Entry = tuple[float, bytes, "asyncio.Future[Response]"]
"""When the request came, the digest of its content, and its response."""


def validate_key(key: str | None) -> str | None:
    """Return the value of an `Idempotency-Key` header.

    Raises:
        HttpProblem: the key is empty, too long, or not printable ASCII.
    """
    if key is None or (0 < len(key) <= _MAX_KEY_LENGTH and all("!" <= char <= "~" for char in key)):
        return key
    raise HttpProblem(
        "bad_request",
        f"an Idempotency-Key has 1 to {_MAX_KEY_LENGTH} printable ASCII characters without spaces",
    )


class IdempotencyCache:
    """The latest responses, by idempotency key and caller."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Hashable, ...], _Entry] = OrderedDict()

    async def once(
        self,
        key: str,
        scope: tuple[Hashable, ...],
        content: bytes,
        handle: Callable[[], Awaitable[Response]],
    ) -> Response:
        """Handle the first request with a key; repeat its response for later ones.

        Keys are unique within a scope, which starts with the caller. A request that failed can
        be repeated.

        Raises:
            HttpProblem: the key was used for a request with other content.
        """
        now, digest, entry_key = time.monotonic(), hashlib.sha256(content).digest(), (key, *scope)
        while True:
            self._evict(now)
            if (entry := self._entries.get(entry_key)) is None:
                break
            if entry[1] != digest:
                raise HttpProblem(
                    "key_reused",
                    "this Idempotency-Key was used for another request",
                    hint="use a new key for each request",
                )
            await asyncio.wait((entry[2],))
            if not entry[2].cancelled():
                return entry[2].result()
        first: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._entries[entry_key] = now, digest, first
        try:
            response = await handle()
        except BaseException:  # also a cancellation: the next request with the key tries again
            del self._entries[entry_key]
            first.cancel()
            raise
        first.set_result(response)
        return response

    def _evict(self, now: float) -> None:
        """Remove expired entries; if the cache is full, the oldest of the caller with the most.

        Entries of running requests stay.
        """
        while self._entries:
            entry_key, (created, _, response) = next(iter(self._entries.items()))
            if now - created <= _TTL_SECONDS or not response.done():
                break
            del self._entries[entry_key]
        if len(self._entries) < _MAX_ENTRIES:
            return
        finished = [key for key, (_, _, response) in self._entries.items() if response.done()]
        if finished:
            [(caller, _)] = Counter(key[1] for key in finished).most_common(1)
            del self._entries[next(key for key in finished if key[1] == caller)]


_log = logging.getLogger(__name__)


class _Segment(Convertor[str]):
    """One segment of an undecoded path: `%2F` is part of a name, not a separator."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote_to_bytes(value).decode()

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("segment", _Segment())


class App:
    """The routes of one Kiln, and what is mounted beside them."""

    def __init__(
        self,
        kiln: Kiln,
        authenticator: Authenticator,
        routes: Iterable[Route],
        mounts: Mapping[str, ASGIApp] | None = None,
    ) -> None:
        """`mounts`: by the beginning of their paths, such as `/mcp`."""
        self._kiln = kiln
        self._authenticator = authenticator
        self._cache = IdempotencyCache()
        by_path: defaultdict[str, list[Route]] = defaultdict(list)
        for route in routes:
            by_path[route.path].append(route)
        self._router = routing.Router(
            [
                routing.Route(_pattern(path), _Endpoint(self, found))
                for path, found in sorted(by_path.items(), key=lambda item: "{" in item[0])
            ],
            redirect_slashes=False,
            default=_not_found,
        )
        self._mounts = {path.encode(): app for path, app in (mounts or {}).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; an error becomes a problem, unless the response has started."""
        has_started = False

        async def send_message(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._dispatch(scope, receive, send_message)
            return
        except ClientDisconnect:
            return
        except HttpProblem as error:
            problem = error
        except ToolkilnError as error:
            problem = refusal(error)
        except Exception:  # noqa: BLE001 - the last boundary: details go to the log only
            _log.exception("%s %s failed", scope["method"], ascii(scope["path"]))
            problem = HttpProblem("internal", "the server failed; its log says why")
        if has_started:
            raise problem  # ends the connection
        await problem.response()(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"]
        for prefix, mounted in self._mounts.items():
            if path == prefix or path.startswith(prefix + b"/"):
                await mounted(scope, receive, send)
                return
        # A path is routed by its undecoded segments.
        await self._router({**scope, "path": _normalised(path), "root_path": ""}, receive, send)

    async def respond(self, route: Route, scope: Scope, receive: Receive) -> Response:
        """Return the response to a request for a route."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        session = await session_of(self._authenticator, scope)
        guard = self._kiln.security.guard
        caller = guard.known_caller(session) or await guard.caller(session)
        request = HttpRequest(self._kiln, session, caller, scope["path_params"], headers)
        key = validate_key(headers.get("idempotency-key"))
        if key is not None and caller.is_anonymous:
            raise HttpProblem(
                "not_allowed",
                "anonymous callers cannot use an Idempotency-Key: others may choose the same one",
                hint="sign in, send an API key, or leave the header out",
            )
        values, body = [], b""
        if route.query is not None:
            values.append(parse_query(route.query, scope["query_string"]))
        if route.body is not None:
            body = await Request(scope, receive).body()
            values.append(parse_body(route.body, body, headers.get("content-type", "")))

        async def handle() -> Response:
            result = await route.handle(request, *values)
            if isinstance(result, Response):
                return result
            status = next(iter(route.responses))
            if not route.is_large:
                return JsonResponse(result, status)
            compress = accepts_gzip(headers.get("accept-encoding", ""))
            return await asyncio.to_thread(large_response, result, status, compress=compress)

        async with DisconnectGuard(receive):
            if key is not None and route.idempotent_by_key is True:
                owner = caller.who, caller.session, scope["method"], scope["raw_path"]
                conditions = [headers.get(name.lower()) for name in route.preconditions]
                content = repr((scope["query_string"], conditions, body)).encode()
                return await self._cache.once(key, owner, content, handle)
            return await handle()


class _Endpoint:
    """The routes of one path, by method."""

    def __init__(self, app: App, routes: Iterable[Route]) -> None:
        self._app = app
        self._routes: dict[str, Route] = {}
        for route in routes:
            if route.method in self._routes:
                raise ValueError(f"{route.method} {route.path} is defined twice")
            self._routes[route.method] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        route = self._routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = {*self._routes, *(("HEAD",) if "GET" in self._routes else ())}
            raise HttpProblem(
                "method_not_allowed",
                f"there is no {method[:20]} of this path",
                headers={"allow": ", ".join(sorted(allowed))},
            )
        response = await self._app.respond(route, scope, receive)
        await response(scope, receive, send)


def _pattern(path: str) -> str:
    return path.replace("}", ":segment}")


def _normalised(raw_path: bytes) -> str:
    """Return a path with each segment quoted in the same way.

    Raises:
        HttpProblem: it is not UTF-8.
    """
    try:
        if b"%" not in raw_path:
            return quote(raw_path.decode())
        segments = (unquote_to_bytes(segment).decode() for segment in raw_path.split(b"/"))
        return "/".join(quote(segment, safe="") for segment in segments)
    except UnicodeDecodeError:
        raise HttpProblem("bad_request", "the path is not UTF-8") from None


async def _not_found(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise HttpProblem("not_found", "there is nothing at this path")
