"""What is mounted at `/ui`: the shell for every address of the page, its files, and icons.

All of it is the same for all callers; `login` signs people in and out. Who is asking matters to
the HTTP API, which the shell's scripts use like any other client.
"""

from functools import lru_cache
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from toolkiln.app import svg
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.replies import Reply
from toolkiln.surfaces.web.assets import Asset, assets
from toolkiln.surfaces.web.login import Login

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
_ALWAYS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}
_FOR_EVER = "public, max-age=31536000, immutable"


class Page:
    """Answers browsers."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._posts = {f"{PATH}/login": login.log_in, f"{PATH}/logout": login.log_out}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Refused: there is nothing of that kind.
        """
        if scope["method"] == "POST" and (post := self._posts.get(scope["path"])):
            await post(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            allow = {"allow": "GET, HEAD"}
            raise Refused("method_not_allowed", "the page can only be read", headers=allow)
        reply, path = Reply(scope, send), scope["path"]
        if path == f"{PATH}/login" and scope["method"] == "GET":
            tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token")
            if tokens:
                await self._login.sign_in(tokens[0], scope, send)
                return
        if path in ("/", PATH):
            await reply.whole(307, b"", b"", {"location": f"{PATH}/"})
            return
        asset, kept = _asset(path.removeprefix(f"{PATH}/"))
        headers = {**_ALWAYS, "cache-control": kept}
        content, accepted = asset.content, dict(scope["headers"]).get(b"accept-encoding", b"")
        if b"gzip" in accepted and asset.compressed is not None:
            content, headers["content-encoding"] = asset.compressed, "gzip"
        await reply.whole(200, asset.kind.encode(), content, headers)


def _asset(path: str) -> tuple[Asset, str]:
    """What is at a path, and for how long a browser may keep it."""
    known = assets()
    first, _, rest = path.partition("/")
    if first == "static":
        version, _, name = rest.partition("/")
        if version == known.version and name in known.files:
            return known.files[name], _FOR_EVER
    elif first == "icons" and rest.endswith(".svg"):
        if (icon := _icon(rest.removesuffix(".svg"))) is not None:
            return icon, "public, max-age=86400"
    else:
        return known.shell, "no-cache"
    raise Refused("not_found", "the page has no such file")


@lru_cache(maxsize=500)
def _icon(name: str) -> Asset | None:
    drawing = svg(name)
    if drawing is None:
        return None
    # The name under which another document can use the drawing, in its own color.
    return Asset(drawing.replace("<svg", '<svg id="icon"', 1).encode(), "image/svg+xml")
