"""From where requests may come: the Host that they name, the page that made them, a key shown.

A browser sends what any page tells it to, also to this machine, and a name of an attacker's
may lead here (DNS rebinding). So what is meant for this machine has to say so, pages of other
sites are turned away, and whatever did not come from this machine has to show a credential.
When the own page's cookie is one is said in `cookies`; who that makes the caller is `app`'s
business.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

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


@lru_cache
def is_loopback(name: str) -> bool:
    """Whether a name or address, as in a Host or a setting, is this machine's own."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


class Passed(NamedTuple):
    """What is known of a request that may come in."""

    origin: str | None = None
    """The configured web origin that it came from."""
    token: str | None = None
    """The session that the own page has in its cookie, where nothing else is shown."""


def _is_open(path: bytes) -> bool:
    return path in OPEN or path.startswith(_OPEN_BELOW)


@dataclass(frozen=True)
class Access:
    """What one server asks of requests."""

    needs_key: bool
    """Whether everybody has to show a credential: it can be reached from elsewhere."""
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
        # A browser that asks whether a page may send a credential does not send it yet.
        is_asking = method == "OPTIONS" and origin is not None
        is_known = shows or token is not None or _is_open(path) or is_asking
        if not is_known and (self.needs_key or not is_local or is_forwarded):
            raise Refused(
                "no_session",
                "this needs an API key",
                hint="send `Authorization: Bearer tk_…`; `toolkiln keys create` makes one",
                headers={"www-authenticate": "Bearer"},
            )
        return Passed(origin, token)

    def _check_host(self, host: str) -> bool:
        """Whether it is this machine's own name."""
        found = _HOST.fullmatch(host)
        if found is not None:
            if is_loopback(found[1]):
                return True
            if found[1] in self.hosts or host in self.hosts or (self.needs_key and not self.hosts):
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
