"""Where requests may come from: the Host header, the page that made them, the way they took.

A browser sends what any page asks it to, also to this machine, and an attacker's host name may
lead here (DNS rebinding). So a request for this machine has to name it, and pages of other sites
are refused. `cookies` says when the page's own cookie is a credential. Which session a credential
opens, and what a request without one may do, is decided in `app.entrance`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from toolkiln.app import is_loopback
from toolkiln.surfaces.http.cookies import PAGE_HEADER, page_token
from toolkiln.surfaces.http.problems import Refused

Headers = Iterable[tuple[bytes, bytes]]

OPEN = frozenset({b"/", b"/ui", b"/healthz", b"/readyz", b"/openapi.json", b"/docs"})
"""What anybody may see: nothing there depends on who asks."""
_OPEN_BELOW = b"/ui/"
"""The page's files, which hold no data, and where people log in."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"https?://(.+)")
_FORWARDED = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}
)
_LOOKED_AT = frozenset(
    {b"host", b"origin", b"authorization", b"cookie", b"sec-fetch-site", PAGE_HEADER.encode()}
)


IS_LOCAL = "toolkiln.is_local"
"""Where the gate notes in the scope of a request whether it came from this machine."""


class Passed(NamedTuple):
    """What is known of a request that may come in."""

    origin: str | None = None
    """The configured web origin that it came from."""
    token: str | None = None
    """The session in the page's own cookie, if the request has no other credential."""
    is_local: bool = False
    """Whether it came from this machine, as far as its headers say."""


def _is_open(path: bytes) -> bool:
    return path in OPEN or path.startswith(_OPEN_BELOW)


@dataclass(frozen=True)
class Access:
    """What one server asks of requests."""

    any_host: bool
    """Whether any Host will do if `hosts` is empty: every request needs a credential."""
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    """Both in lower case."""

    def check(self, method: str, path: bytes, headers: Headers) -> Passed:
        """Look at where a request came from.

        Raises:
            Refused: it may not come from where it did.
        """
        given: dict[bytes, str] = {}
        is_forwarded = False
        for name, value in headers:
            if name in _LOOKED_AT:
                if name in given:
                    raise Refused("bad_request", f"there are two {name.decode()} headers")
                given[name] = value.decode("latin-1")
            elif name in _FORWARDED:
                is_forwarded = True
        host = given.get(b"host", "").lower()
        is_local = self._check_host(host)
        origin = self._check_origin(given.get(b"origin"), host, is_local=is_local)
        if origin is None and not (_is_open(path) and method in ("GET", "HEAD")):
            _check_site(given.get(b"sec-fetch-site"))
        shows = b"authorization" in given
        token = None if shows else page_token(given, is_local=is_local)
        return Passed(origin, token, is_local and not is_forwarded)

    def _check_host(self, host: str) -> bool:
        """Whether it is this machine's own name."""
        found = _HOST.fullmatch(host)
        if found is not None:
            if is_loopback(found[1]):
                return True
            if found[1] in self.hosts or host in self.hosts or (self.any_host and not self.hosts):
                return False
        raise Refused(
            "host_refused",
            f"this server is not called {host[:100]!r}",
            hint="ask for 127.0.0.1 or localhost, or add the name to the setting `hosts`",
        )

    def _check_origin(self, origin: str | None, host: str, *, is_local: bool) -> str | None:
        if origin is None:
            return None
        if origin.lower() in self.origins:
            return origin
        found = _ORIGIN.fullmatch(origin.lower())
        if found is not None:
            name = _HOST.fullmatch(found[1])
            if found[1] == host or (is_local and name is not None and is_loopback(name[1])):
                return None
        raise Refused(
            "origin_refused",
            f"pages of {origin[:100]!r} may not make requests here",
            hint="add it to the setting `origins`",
        )


def _check_site(site: str | None) -> None:
    """See that no page of another site asks, as browsers tell, whatever their pages want."""
    if site in (None, "same-origin", "none"):
        return
    raise Refused(
        "origin_refused",
        "pages of other sites may not make requests here",
        hint="open the address itself, or add the page's origin to the setting `origins`",
    )
