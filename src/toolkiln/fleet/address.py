"""Where a Redis server is, read from a URL; connecting is `connection`'s and `resp`'s business.

    redis://[user:password@]host[:port][/database]
    rediss://…[?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE]     TLS, always verified
    unix://[user:password@]/path/of/the/socket[?db=database]
    redis+sentinel://[user:password@]host[:port],host[:port]/service[/database]
    rediss+sentinel://…    TLS to the sentinels and to the server

Behind sentinels the address is a service, whose primary is asked for at every connect. User
and password are the server's; the sentinels are asked without.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from toolkiln.store import StoreError

_OLDEST = (6, 2)
_PORT = 6379
_SENTINEL_PORT = 26379
_SCHEMES = {"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"}
TLS_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
"""What the query of a URL with TLS may say."""
_UNUSABLE = (
    "write redis://user:password@host:port/database, rediss://…, unix:///path or "
    "redis+sentinel://host:port,host:port/service, "
    "with special characters in the password percent-encoded (@ is %40)"
)
_USE_LATER = "use Redis 6.2 or later"
_HINTS = (
    ("WRONGPASS", "check user and password in the URL"),
    ("invalid username-password", "check user and password in the URL"),
    ("invalid password", "check user and password in the URL"),
    ("without any password configured", "leave the password out of the URL"),
    ("Authentication required", "put user and password into the URL"),
    ("already authenticated", "put user and password into the URL"),
    ("unknown command", _USE_LATER),
    ("permission", "give the user the rights to run scripts and to use the keys toolkiln:*"),
    ("certificate", "check the server's certificate, and ssl_ca_certs in the URL"),
    ("SSL", "does the server speak TLS on this port?"),
    ("DB index", "choose a database that the server has"),
    ("read only replica", "use the primary server, not a replica"),
    ("maxmemory", "give the server more memory"),
    ("MISCONF", "the server cannot save to its disk; see its log"),
    ("loading the dataset", "the server is starting; try again"),
    ("No connection available", "make fewer calls at once"),
)
_CHECK_SERVER = "is the server running, and is the URL right?"


@dataclass(frozen=True)
class Address:
    """One server, or one service behind sentinels."""

    name: str
    """For people: the URL without user and password."""
    hosts: tuple[tuple[str, int], ...] = ()
    """The server, or the sentinels; none for a socket."""
    path: str = ""
    """The socket, if it is one."""
    service: str = ""
    """What the sentinels call it, if there are any."""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    namespace: str = ""
    """How keys of the user's own begin, where an ACL gives it no others (`connection`)."""

    @property
    def user(self) -> str:
        """The name of the user as it may be part of a key."""
        named = re.sub("[^0-9A-Za-z_.-]", "", self.username or "")
        return named[:100] or "client"

    def failure(self, error: Exception) -> tuple[str, str]:
        """What went wrong, without the password, and what to do about it."""
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        if self.password:
            text = text.replace(self.password, "***")
        hint = next((hint for part, hint in _HINTS if part in text), _CHECK_SERVER)
        return f"{self.name} failed: {text}", hint

    def check(self, version: str, mode: str) -> None:
        """Whether a server that says this of itself serves.

        Raises:
            StoreError: it does not.
        """
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            raise StoreError(f"{self.name} is Redis {version}, which is too old", hint=_USE_LATER)
        if mode == "cluster":
            hint = "use a single server or one with replicas"
            raise StoreError(f"{self.name} is a Redis Cluster, which cannot serve", hint=hint)


def read_address(url: str) -> Address:
    """The address that a URL stands for.

    Raises:
        StoreError: it cannot be read. Nothing of it is quoted, as a password with a special
            character could be any part.
    """
    unusable = StoreError("the Redis URL cannot be read", hint=_UNUSABLE)
    if not url.isprintable() or url.count("@") > 1 or "#" in url:
        raise unusable
    # Not redis-py's own reading, which takes a path that is no number for database 0, and
    # lets the query turn timeouts and certificate checks off.
    try:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise unusable
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        credentials, _, place = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        username, secret = unquote(user) or None, unquote(password) or None
        if parts.scheme == "unix":
            database = int(query.pop("db", "0"))
            if place or query or not parts.path:
                raise unusable
            name, path = f"unix://{parts.path}", unquote(parts.path)
            return Address(name, (), path, "", database, username, secret)
        tls = parts.scheme.startswith("rediss")
        if query.keys() - (TLS_OPTIONS if tls else set()):
            raise unusable
        service, database = _path(parts.path, with_service=parts.scheme.endswith("sentinel"))
        hosts = _hosts(place, _SENTINEL_PORT if service else _PORT, several=bool(service))
    except ValueError:
        raise unusable from None
    places = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts
    )
    below = f"{service}/{database}" if service else f"{database}"
    name = f"{parts.scheme}://{places}/{below}"
    return Address(name, hosts, "", service, database, username, secret, tls, **query)


def _path(path: str, *, with_service: bool) -> tuple[str, int]:
    below = path[1:]
    if not with_service:
        return "", int(below or "0")
    service, _, database = below.partition("/")
    if not service:
        raise ValueError(service)
    return unquote(service), int(database or "0")


def _hosts(place: str, default: int, *, several: bool) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for one in place.split(","):
        parts = urlsplit(f"//{one}")
        if not parts.hostname or (hosts and not several):
            raise ValueError(one)
        hosts.append((parts.hostname, parts.port or default))
    return tuple(hosts)
