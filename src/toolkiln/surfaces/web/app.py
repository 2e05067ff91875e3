"""The web UI at `/ui`: its HTML shell, files and icons, and signing in and out.

The files are the same for all users. The scripts use the HTTP API like any other client.
"""

import asyncio
import gzip
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from toolkiln.appearance import svg
from toolkiln.model.base import Value
from toolkiln.model.identity import OpenSession
from toolkiln.security.authentication import Authenticator
from toolkiln.security.sessions import NoSession
from toolkiln.surfaces.http.adapter import IS_LOCAL, Body, parse_body
from toolkiln.surfaces.http.middleware import (
    HeaderMap,
    clear_cookies,
    is_own_page,
    page_token,
    set_cookie,
)
from toolkiln.surfaces.http.responses import HttpProblem, JsonResponse

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_MIN_GZIP_BYTES = 500
_BUNDLE = "vendor/preact.js"
"""Built by `make web`; the UI does not run without it."""


@dataclass(frozen=True)
class Asset:
    """A file of the web UI."""

    content: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes | None:
        """The content with gzip; None for small files."""
        if len(self.content) <= _MIN_GZIP_BYTES:
            return None
        return gzip.compress(self.content, 9, mtime=0)


@dataclass(frozen=True)
class Assets:
    """All files of the web UI."""

    version: str
    """A digest of all files, part of their URLs: browsers can cache them without expiry."""
    files: Mapping[str, Asset]
    """By path, such as `pages/catalog.js`."""
    shell: Asset
    """The HTML document of every page."""


@cache
def assets() -> Assets:
    """Return the installed files, read once."""
    return build_assets(dict(_read_files(files(__package__) / "static")))


def build_assets(files_by_path: Mapping[str, bytes]) -> Assets:
    """Return the assets of these files; the shell reports a missing bundle."""
    contents = dict(files_by_path)
    digest = sha256()
    for path, content in sorted(contents.items()):
        digest.update(b"%s %d\n" % (path.encode(), len(content)) + content)
    version = digest.hexdigest()[:12]
    shells = {path: contents.pop(path) for path in ("index.html", "incomplete.html")}
    shell = shells["index.html" if _BUNDLE in contents else "incomplete.html"]
    html = shell.decode().replace("{static}", f"static/{version}")
    assets = {path: Asset(content, _media_type(path)) for path, content in contents.items()}
    return Assets(version, assets, Asset(html.encode(), _MEDIA_TYPES[".html"]))


def _read_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read_files(entry, f"{prefix}{entry.name}/")
        elif _media_type(entry.name):
            yield prefix + entry.name, entry.read_bytes()


def _media_type(name: str) -> str:
    return _MEDIA_TYPES.get(name[name.rfind(".") :], "")


_log = logging.getLogger(__name__)
_FAILURE_DELAY_SECONDS = 1.0
"""Delay of the response to a wrong key."""
_MAX_DELAYED = 20
"""Concurrent responses to wrong keys; further ones are rejected at once."""
_MAX_RECORDED = 10
"""Wrong keys per address and minute that are recorded in the audit log."""
_MAX_ADDRESSES = 1_000
_MINUTE = 60.0
_REDIRECT_HEADERS = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


class Credentials(Body):
    """The body of a login."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class LoggedIn(Value):
    """The response to a login; `/v1/sessions/own` has the identity."""

    seconds: float
    """How long the session is valid."""


class Login:
    """Signing in to and out of the web UI."""

    def __init__(
        self,
        authenticator: Authenticator,
        on_sign_in: Callable[[], None] = lambda: None,
        delay: float = _FAILURE_DELAY_SECONDS,
    ) -> None:
        """`on_sign_in` is called after a sign-in link was used."""
        self._authenticator = authenticator
        self._on_sign_in = on_sign_in
        self._delay = delay
        self.delayed = 0
        """Responses to wrong keys that are being delayed."""
        self._failures: dict[str, tuple[float, int]] = {}
        """By address: the start of the current minute and the wrong keys in it."""

    async def log_in(self, request: Request) -> Response:
        """Exchange an API key for a cookie.

        Raises:
            HttpProblem: the key is not valid, or the request is not from the web UI.
        """
        headers = _headers(request)
        _require_own_page(headers)
        content_type = headers.get(b"content-type", "")
        credentials = parse_body(Credentials, await request.body(), content_type)
        assert isinstance(credentials, Credentials)
        session = await self.open(credentials.key.strip(), _source(request))
        cookie = set_cookie(headers, session.token, session.seconds)
        sent = {"cache-control": "no-store", "set-cookie": cookie}
        return JsonResponse(LoggedIn(seconds=session.seconds), headers=sent)

    async def sign_in(self, token: str, request: Request) -> Response:
        """Exchange the token of a sign-in link for a cookie, and redirect to the UI.

        Raises:
            HttpProblem: the browser prefetches the link, or there are too many wrong tokens.
        """
        headers = _headers(request)
        if "prefetch" in headers.get(b"sec-purpose", "") + headers.get(b"purpose", ""):
            raise HttpProblem("not_allowed", "a sign-in link cannot be prefetched")
        source = _source(request)
        try:
            if not request.scope.get(IS_LOCAL):
                raise NoSession("a sign-in link works on the server's machine only")
            session = await asyncio.to_thread(self._authenticator.sign_in, token, source)
        except NoSession as error:
            await self._delay_failure(source)
            _log.info("sign-in link refused: %s", error.message)
            return RedirectResponse("/ui/login?link=refused", 303, _REDIRECT_HEADERS)
        self._on_sign_in()
        cookie = set_cookie(headers, session.token, session.seconds)
        return RedirectResponse("/ui/", 303, {**_REDIRECT_HEADERS, "set-cookie": cookie})

    async def log_out(self, request: Request) -> Response:
        """End the session of the cookie, and delete the cookie.

        Raises:
            HttpProblem: the request is not from the web UI.
        """
        headers = _headers(request)
        _require_own_page(headers)
        if token := page_token(headers, is_local=True):
            await asyncio.to_thread(self._authenticator.log_out, token)
        response = Response(status_code=204, headers={"cache-control": "no-store"})
        for cookie in clear_cookies(headers):
            response.headers.append("set-cookie", cookie)
        return response

    async def open(self, key: str, source: str) -> OpenSession:
        """Open a session with an API key.

        Raises:
            HttpProblem: the key is not valid, or there are too many wrong keys.
        """
        try:
            return await asyncio.to_thread(self._authenticator.log_in, key, source)
        except NoSession as error:
            await self._delay_failure(source)
            raise HttpProblem("no_session", error.message, hint=error.hint) from None

    async def _delay_failure(self, source: str) -> None:
        # Valid keys are never delayed, however many wrong ones there are.
        if self.delayed >= _MAX_DELAYED:
            retry = {"retry-after": str(math.ceil(self._delay))}
            raise HttpProblem("rate_limited", "too many wrong keys at once", headers=retry)
        self.delayed += 1
        try:
            if (count := self._count_failure(source)) <= _MAX_RECORDED:
                more = "; more within a minute are not recorded" if count == _MAX_RECORDED else ""
                await asyncio.to_thread(self._authenticator.record_refusal, source + more)
            await asyncio.sleep(self._delay)
        finally:
            self.delayed -= 1

    def _count_failure(self, source: str) -> int:
        """Count a wrong key, and return the number from this address in the current minute."""
        now = time.monotonic()
        start, count = self._failures.pop(source, (now, 0))
        if now - start >= _MINUTE:
            start, count = now, 0
        self._failures[source] = start, count + 1
        if len(self._failures) > _MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        return count + 1


def _headers(request: Request) -> HeaderMap:
    return {name: value.decode("latin-1") for name, value in request.headers.raw}


def _require_own_page(headers: HeaderMap) -> None:
    if not is_own_page(headers):
        raise HttpProblem(
            "origin_refused",
            "only the web UI can log users in and out",
            hint="open /ui/login in a browser; programs send `Authorization: Bearer tk_…`",
        )


def _source(request: Request) -> str:
    return f"from {request.client.host}" if request.client else ""


PATH = "/ui"
_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
_SECURITY_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}
_IMMUTABLE = "public, max-age=31536000, immutable"


class WebApp:
    """The ASGI application of the web UI."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._posts = {f"{PATH}/login": login.log_in, f"{PATH}/logout": login.log_out}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request.

        Raises:
            HttpProblem: the file does not exist, or the method is not allowed.
        """
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        method, path = request.method, request.scope["path"]
        if method == "POST" and (post := self._posts.get(path)):
            return await post(request)
        if method not in ("GET", "HEAD"):
            allow = {"allow": "GET, HEAD"}
            raise HttpProblem("method_not_allowed", "use GET for files of the UI", headers=allow)
        if path == f"{PATH}/login" and method == "GET":
            if token := request.query_params.get("token"):
                return await self._login.sign_in(token, request)
        if path in ("/", PATH):
            return RedirectResponse(f"{PATH}/")
        asset, cache_control = _asset(path.removeprefix(f"{PATH}/"))
        content, headers = asset.content, {**_SECURITY_HEADERS, "cache-control": cache_control}
        if "gzip" in request.headers.get("accept-encoding", "") and asset.compressed is not None:
            content, headers["content-encoding"] = asset.compressed, "gzip"
        return Response(content, headers=headers, media_type=asset.media_type)


def _asset(path: str) -> tuple[Asset, str]:
    """Return the asset at a path and its `Cache-Control`."""
    current = assets()
    first, _, rest = path.partition("/")
    if first == "static":
        version, _, name = rest.partition("/")
        if version == current.version and name in current.files:
            return current.files[name], _IMMUTABLE
    elif first == "icons" and rest.endswith(".svg"):
        if (icon := _icon(rest.removesuffix(".svg"))) is not None:
            return icon, "public, max-age=86400"
    else:
        return current.shell, "no-cache"
    raise HttpProblem("not_found", "the UI has no such file")


@lru_cache(maxsize=500)
def _icon(name: str) -> Asset | None:
    image = svg(name)
    if image is None:
        return None
    # Other documents refer to the id, and draw the icon in their text color.
    return Asset(image.replace("<svg", '<svg id="icon"', 1).encode(), "image/svg+xml")
