"""The ASGI application: routes of operations, and applications mounted beside them.

Starlette finds the route; `adapter` checks the request and runs the operation. Limits are in
`middleware`, sockets in `server`. Mounted applications get their requests unchanged, and
authenticate callers themselves.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote_to_bytes

from starlette import routing
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkiln.errors import ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.adapter import (
    DisconnectGuard,
    HandlerResponse,
    HttpRequest,
    Route,
    accepts_gzip,
    parse_body,
    parse_query,
    read_body,
    session_of,
)
from toolkiln.surfaces.http.idempotency import IdempotencyCache, validate_key
from toolkiln.surfaces.http.problems import HttpProblem, refusal
from toolkiln.surfaces.http.responses import ResponseWriter

_RESPONSE = "toolkiln.response"
"""Where the application puts the response into the scope of a request."""
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
        cache = IdempotencyCache()
        by_path: defaultdict[str, list[Route]] = defaultdict(list)
        for route in routes:
            by_path[route.path].append(route)
        self._router = routing.Router(
            [
                routing.Route(_pattern(path), _Endpoint(kiln, authenticator, found, cache))
                for path, found in sorted(by_path.items(), key=lambda item: "{" in item[0])
            ],
            redirect_slashes=False,
            default=_not_found,
        )
        self._mounts = {path.encode(): app for path, app in (mounts or {}).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; an error becomes a problem, unless the response has started."""
        response, path = ResponseWriter(scope, send), scope["raw_path"]
        try:
            for prefix, mounted in self._mounts.items():
                if path == prefix or path.startswith(prefix + b"/"):
                    await mounted(scope, receive, response.send)
                    return
            # A path is routed by its undecoded segments.
            await self._router(
                {**scope, "path": _normalised(path), "root_path": "", _RESPONSE: response},
                receive,
                send,
            )
        except ClientDisconnect:
            return
        except HttpProblem as problem:
            await response.problem(problem)
        except ToolkilnError as error:
            await response.problem(refusal(error))
        except Exception:  # noqa: BLE001 - the last boundary: details go to the log only
            _log.exception("%s %s failed", scope["method"], ascii(scope["path"]))
            await response.problem(HttpProblem("internal", "the server failed; its log says why"))


class _Endpoint:
    """The routes of one path, by method."""

    def __init__(
        self,
        kiln: Kiln,
        authenticator: Authenticator,
        routes: Iterable[Route],
        cache: IdempotencyCache,
    ) -> None:
        self._kiln = kiln
        self._authenticator = authenticator
        self._routes: dict[str, Route] = {}
        for route in routes:
            if route.method in self._routes:
                raise ValueError(f"{route.method} {route.path} is there twice")
            self._routes[route.method] = route
        self._cache = cache

    async def __call__(self, scope: Scope, receive: Receive, _: Send) -> None:
        method = scope["method"]
        route = self._routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = {*self._routes, *(("HEAD",) if "GET" in self._routes else ())}
            raise HttpProblem(
                "method_not_allowed",
                f"there is no {method[:20]} of this path",
                headers={"allow": ", ".join(sorted(allowed))},
            )
        await self._respond(route, scope, receive, scope[_RESPONSE])

    async def _respond(
        self, route: Route, scope: Scope, receive: Receive, response: ResponseWriter
    ) -> None:
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
            body = await read_body(receive)
            values.append(parse_body(route.body, body, headers.get("content-type", "")))

        async def handle() -> HandlerResponse:
            result = await route.handle(request, *values)
            if isinstance(result, HandlerResponse):
                return result
            return HandlerResponse(result, next(iter(route.responses)))

        async with DisconnectGuard(receive):
            if key is not None and route.idempotent_by_key is True:
                owner = caller.who, caller.session, scope["method"], scope["raw_path"]
                conditions = [headers.get(name.lower()) for name in route.preconditions]
                content = repr((scope["query_string"], conditions, body)).encode()
                result = await self._cache.once(key, owner, content, handle)
            else:
                result = await handle()
        if result.events is not None:
            await response.events(result, receive)
        elif route.is_large:
            compress = accepts_gzip(headers.get("accept-encoding", ""))
            await response.large_value(result, compress=compress)
        else:
            await response.value(result)


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
