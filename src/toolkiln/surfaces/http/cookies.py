"""The cookie of the page that this server sends: its names, and when it counts.

A browser sends cookies along with whatever any page asks for. So this one is a credential only
in a request that proves to be the own page's: it has a header that pages of other origins
cannot set unless they are allowed to, and it came from this origin. A cookie in any other
request is nothing. Who logs in is `web.login`'s business.
"""

import re
from collections.abc import Iterator, Mapping

PAGE_HEADER = "x-toolkiln-page"
"""Sent with every request of the page; its value is `1`."""
_NAME = "toolkiln"
_SECURE = "__Host-"
"""Browsers let no other site, and no page without TLS, set a cookie whose name begins so."""
_PORT = re.compile(r":[0-9]+$")
_TOKEN = re.compile(r"ts_[A-Za-z0-9_-]{1,200}")

Given = Mapping[bytes, str]
"""Headers by their names in lower case, each of them there once."""


def is_own_page(given: Given) -> bool:
    """Whether a request was made by a page of this server, or by a program that says so."""
    if given.get(PAGE_HEADER.encode()) != "1":
        return False
    if (site := given.get(b"sec-fetch-site")) is not None:
        return site == "same-origin"
    # Plain HTTP to another machine: only what crosses origins has to name its own.
    origin, host = given.get(b"origin"), given.get(b"host", "")
    return origin is None or origin.lower().partition("://")[2] == host.lower()


def page_token(given: Given, *, is_local: bool) -> str | None:
    """The session that a request of the page has in its cookie."""
    if not is_own_page(given):
        return None
    host, found = given.get(b"host", ""), list(_parts(given.get(b"cookie", "")))
    secure, plain = _name(host, is_secure=True), _name(host, is_secure=False)
    # Browsers name the site to what they trust: TLS, or this machine. There a plain cookie may
    # be one that a neighbouring site put under the visitor.
    is_plain_trusted = is_local or b"sec-fetch-site" not in given
    for name in (secure, plain) if is_plain_trusted else (secure,):
        values = [value for known, value in found if known == name]
        if values:
            is_one = len(values) == 1 and _TOKEN.fullmatch(values[0])
            return values[0] if is_one else None
    return None


def set_cookie(given: Given, token: str, seconds: float) -> str:
    """The `Set-Cookie` by which a browser keeps a session for so long."""
    # No proxy has to be believed: what a page posts comes with the origin that the browser sees.
    is_secure = given.get(b"origin", "").lower().startswith("https://")
    return _set(given.get(b"host", ""), token, int(seconds), is_secure=is_secure)


def clear_cookies(given: Given) -> list[str]:
    """The `Set-Cookie`s by which a browser forgets its session."""
    host = given.get(b"host", "")
    return [_set(host, "", 0, is_secure=is_secure) for is_secure in (True, False)]


def _set(host: str, value: str, seconds: int, *, is_secure: bool) -> str:
    name, kept = _name(host, is_secure=is_secure), f"Path=/; Max-Age={seconds}"
    secure = "; Secure" if is_secure else ""
    return f"{name}={value}; {kept}; HttpOnly; SameSite=Strict{secure}"


def _name(host: str, *, is_secure: bool) -> str:
    """With the port: to browsers, all servers of one machine share their cookies."""
    port = _PORT.search(host)
    name = f"{_NAME}-{port[0][1:]}" if port else _NAME
    return f"{_SECURE}{name}" if is_secure else name


def _parts(cookie: str) -> Iterator[tuple[str, str]]:
    for part in cookie.split(";"):
        name, _, value = part.strip().partition("=")
        yield name, value
