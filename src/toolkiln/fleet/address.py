"""Address of a Redis server, parsed from a URL, and the blocking client.

    redis://[user:password@]host[:port][/database]
    rediss://…[?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE]     TLS, always verified
    unix://[user:password@]/path/of/the/socket[?db=database]
    redis+sentinel://[user:password@]host[:port],host[:port]/service[/database]
    rediss+sentinel://…    TLS to the sentinels and to the server

With Sentinel, the primary is looked up at every connect. User and password are for the server;
the sentinels are used without.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet import keys

if TYPE_CHECKING:
    from redis import Redis

_OLDEST = (6, 2)
_PORT = 6379
_SENTINEL_PORT = 26379
_SCHEMES = {"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"}
TLS_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
"""Query parameters of a TLS URL."""
_URL_HINT = (
    "write redis://user:password@host:port/database, rediss://…, unix:///path or "
    "redis+sentinel://host:port,host:port/service, "
    "with special characters in the password percent-encoded (@ is %40)"
)
_UPGRADE_HINT = "use Redis 6.2 or later"
_HINTS = (
    ("WRONGPASS", "check user and password in the URL"),
    ("invalid username-password", "check user and password in the URL"),
    ("invalid password", "check user and password in the URL"),
    ("without any password configured", "leave the password out of the URL"),
    ("Authentication required", "put user and password into the URL"),
    ("already authenticated", "put user and password into the URL"),
    ("unknown command", _UPGRADE_HINT),
    ("permission", "allow the user to run scripts and to use the keys toolkiln:*"),
    ("certificate", "check the server's certificate, and ssl_ca_certs in the URL"),
    ("SSL", "check that the server uses TLS on this port"),
    ("DB index", "choose an existing database number"),
    ("read only replica", "use the primary server, not a replica"),
    ("maxmemory", "give the server more memory"),
    ("MISCONF", "the server cannot save to its disk; see its log"),
    ("loading the dataset", "the server is starting; try again"),
    ("No connection available", "make fewer calls at once"),
)
_CHECK_SERVER = "check that the server is running and the URL is correct"


@dataclass(frozen=True)
class Address:
    """One server, or one service behind sentinels."""

    name: str
    """The URL without user and password, for messages."""
    hosts: tuple[tuple[str, int], ...] = ()
    """The server or the sentinels; empty for a socket."""
    path: str = ""
    """The Unix socket, if any."""
    service: str = ""
    """The service name of Sentinel, if any."""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    namespace: str = ""
    """Key prefix of a restricted user; empty without restrictions."""

    @property
    def user(self) -> str:
        """The user name in a form safe for keys."""
        name = re.sub("[^0-9A-Za-z_.-]", "", self.username or "")
        return name[:100] or "client"

    def failure(self, error: Exception) -> tuple[str, str]:
        """Return an error message without the password, and a hint."""
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        if self.password:
            text = text.replace(self.password, "***")
        hint = next((hint for part, hint in _HINTS if part in text), _CHECK_SERVER)
        return f"{self.name} failed: {text}", hint

    def check(self, hello: Sequence[Any]) -> dict[bytes, Any]:
        """Check a server's version and mode, given its reply to HELLO; returns that by name."""
        info = dict(zip(hello[::2], hello[1::2], strict=True))
        version = info.get(b"version", b"0").decode()
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST:
            raise StoreError(
                f"{self.name} is Redis {version}, which is too old", hint=_UPGRADE_HINT
            )
        if info.get(b"mode") == b"cluster":
            hint = "use a single server or one with replicas"
            raise StoreError(f"{self.name} is a Redis Cluster, which is not supported", hint=hint)
        return info


def read_address(url: str) -> Address:
    """Parse a URL.

    Raises:
        StoreError: it is invalid. The message does not quote it, because a password with a special
            character could be any part.
    """
    invalid = StoreError("the Redis URL cannot be read", hint=_URL_HINT)
    if not url.isprintable() or url.count("@") > 1 or "#" in url:
        raise invalid
    # Not redis-py's parser, which reads an invalid path as database 0, and lets the query
    # disable timeouts and certificate checks.
    try:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise invalid
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        credentials, _, location = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        username, secret = unquote(user) or None, unquote(password) or None
        if parts.scheme == "unix":
            database = int(query.pop("db", "0"))
            if location or query or not parts.path:
                raise invalid
            name, path = f"unix://{parts.path}", unquote(parts.path)
            return Address(name, (), path, "", database, username, secret)
        tls = parts.scheme.startswith("rediss")
        if query.keys() - (TLS_OPTIONS if tls else set()):
            raise invalid
        service, database = _path(parts.path, with_service=parts.scheme.endswith("sentinel"))
        hosts = _hosts(location, _SENTINEL_PORT if service else _PORT, allow_several=bool(service))
    except ValueError:
        raise invalid from None
    locations = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts
    )
    path = f"{service}/{database}" if service else f"{database}"
    name = f"{parts.scheme}://{locations}/{path}"
    return Address(name, hosts, "", service, database, username, secret, tls, **query)


def _path(path: str, *, with_service: bool) -> tuple[str, int]:
    path = path.removeprefix("/")
    if not with_service:
        return "", int(path or "0")
    service, _, database = path.partition("/")
    if not service:
        raise ValueError(service)
    return unquote(service), int(database or "0")


def _hosts(location: str, default: int, *, allow_several: bool) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for item in location.split(","):
        parts = urlsplit(f"//{item}")
        if not parts.hostname or (hosts and not allow_several):
            raise ValueError(item)
        hosts.append((parts.hostname, parts.port or default))
    return tuple(hosts)


Script = Callable[[Sequence[str], Sequence[str | bytes | int | float]], Any]
"""Runs atomically on the server, with keys and arguments."""

# An unreachable server must not hang a call.
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_MAX_CONNECTIONS = 32


class RedisClient:
    """Blocking client of a Redis server."""

    def __init__(self, client: "Redis", address: Address) -> None:
        self._client = client
        self._address = address
        self._scripts: dict[str, Script] = {}
        self.name = address.name
        self.namespace = ""
        """Key prefix of a restricted user; empty without restrictions."""

    def __repr__(self) -> str:
        return f"<RedisClient {self.name}>"

    def script(self, name: str) -> Script:
        """Return a script of the folder `lua`."""
        if name in self._scripts:
            return self._scripts[name]
        source = files("toolkiln.fleet").joinpath("lua", f"{name}.lua").read_text("utf-8")
        registered = self._client.register_script(source)

        def run(keys: Sequence[str], arguments: Sequence[str | bytes | int | float]) -> Any:
            with self._as_store_error():
                return registered(keys, arguments)

        self._scripts[name] = run
        return run

    def check(self) -> None:
        """Check that the server responds, accepts the credentials and is supported."""
        with self._as_store_error():
            # HELLO is allowed for every user.
            hello = self._client.execute_command("HELLO")  # type: ignore[no-untyped-call]
        self._address.check(hello)
        self.namespace = self._find_namespace()

    def _find_namespace(self) -> str:
        """Return the key prefix of this user, if its ACL denies access to all sessions."""
        from redis.exceptions import NoPermissionError

        with self._as_store_error():
            try:
                self._client.zrange(keys.SESSIONS, -1, -1)
            except NoPermissionError:
                return self._address.user
        return ""

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        self._client.connection_pool.disconnect()

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        # OSError and ValueError: for example a missing certificate file or an invalid host name.
        except (RedisError, OSError, ValueError) as error:
            message, hint = self._address.failure(error)
            # Not chained: the traceback contains the password.
            if _is_unreachable(error):
                raise Unreachable(message, sent=True, hint=hint) from None
            raise StoreError(message, hint=hint) from None


def _is_unreachable(error: Exception) -> bool:
    """Return whether a retry may reach the server, or another primary."""
    from redis import exceptions

    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return False
    retryable = (
        exceptions.ConnectionError,
        exceptions.TimeoutError,
        exceptions.ReadOnlyError,
        exceptions.MasterDownError,
        OSError,
    )
    return isinstance(error, retryable)


def open_redis(url: str) -> RedisClient:
    """Connect to the server at a URL, and check it.

    Raises:
        StoreError: the URL is invalid, or the server cannot be reached or used.
    """
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        hint = "pip install 'toolkiln[redis]'"
        raise StoreError("Redis needs redis-py, which is not installed", hint=hint) from None
    address = read_address(url)
    options = {
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": _READ_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    connection = RedisClient(redis.Redis(connection_pool=_pool(address, options)), address)
    try:
        connection.check()
    except StoreError:
        connection.close()
        raise
    return connection


def _pool(address: Address, options: dict[str, Any]) -> Any:
    import redis
    from redis.sentinel import Sentinel, SentinelConnectionPool

    login = {"username": address.username, "password": address.password, "db": address.database}
    tls = {name: getattr(address, name) for name in TLS_OPTIONS if getattr(address, name)}
    if address.service:
        sentinel_options = {**options, **({"ssl": True, **tls} if address.tls else {})}
        sentinels = Sentinel(address.hosts, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.service, sentinels, ssl=address.tls, **tls, **login, **options
        )
    connection_class: type[Any] = redis.UnixDomainSocketConnection
    location: dict[str, Any] = {"path": address.path}
    if address.hosts:
        connection_class = redis.SSLConnection if address.tls else redis.Connection
        location = {"host": address.hosts[0][0], "port": address.hosts[0][1], **tls}
    return redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        connection_class=connection_class,
        max_connections=_MAX_CONNECTIONS,
        timeout=_READ_SECONDS,
        **login,
        **options,
        **location,
    )
