"""From a URL to a Redis server: addresses, timeouts, errors. Knows nothing of sessions.

    redis://[user:password@]host[:port][/database]
    rediss://…[?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE]     TLS, always verified
    unix://[user:password@]/path/of/the/socket[?db=database]

Nothing is tried twice. After a timeout nobody knows whether the server ran a script, and
running it again could take tokens twice; so redis-py's own retries are off, and whoever
asked gets a StoreError and must take it for a no. A connection that the server closed while
it was idle is replaced before anything is sent on it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from toolkiln.store import StoreError

if TYPE_CHECKING:
    from redis import Redis

Script = Callable[[Sequence[str], Sequence[str | bytes | int | float]], Any]
"""Runs on the server, all of it or nothing, with keys and arguments."""

# A server that is gone must not hang a call.
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_MOST_CONNECTIONS = 32
_OLDEST = (6, 2)
_USE_LATER = "use Redis 6.2 or later"
_TLS_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
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


class Connection:
    """A Redis server, and how to speak of it without giving a password away."""

    def __init__(self, client: "Redis", name: str, password: str | None) -> None:
        self._client = client
        self._password = password
        self.name = name

    def __repr__(self) -> str:
        return f"<Connection {self.name}>"

    def script(self, name: str) -> Script:
        """A script of the folder `lua`; it raises StoreError when the server fails."""
        source = files("toolkiln.fleet").joinpath("lua", f"{name}.lua").read_text("utf-8")
        registered = self._client.register_script(source)

        def run(keys: Sequence[str], arguments: Sequence[str | bytes | int | float]) -> Any:
            with self._as_store_error():
                return registered(keys, arguments)

        return run

    def check(self) -> None:
        """Whether the server answers, lets us in and is of a kind that serves.

        Raises:
            StoreError: it does not.
        """
        with self._as_store_error():
            # HELLO, as every user may ask that.
            said = self._client.execute_command("HELLO")  # type: ignore[no-untyped-call]
            about = dict(zip(said[::2], said[1::2], strict=True))
            version = about[b"version"].decode()
            too_old = tuple(int(part) for part in version.split(".")[:2]) < _OLDEST
        if too_old:
            raise StoreError(f"{self.name} is Redis {version}, which is too old", hint=_USE_LATER)
        if about[b"mode"] == b"cluster":
            hint = "use a single server or one with replicas"
            raise StoreError(f"{self.name} is a Redis Cluster, which cannot serve", hint=hint)

    def close(self) -> None:
        """Lets go of the server."""
        self._client.close()
        self._client.connection_pool.disconnect()

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        # Not only Redis's own: a certificate that is no file, a host that is no name.
        except (RedisError, OSError, ValueError) as error:
            text = str(error).strip().partition("\n")[0] or type(error).__name__
            if self._password:
                text = text.replace(self._password, "***")
            hint = next((hint for part, hint in _HINTS if part in text), _CHECK_SERVER)
            # Not chained: the frames below hold the password.
            raise StoreError(f"{self.name} failed: {text}", hint=hint) from None


def open_redis(url: str) -> Connection:
    """The server at a URL, once it has answered.

    Raises:
        StoreError: the URL cannot be read, or the server cannot be reached or used.
    """
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        hint = "pip install 'toolkiln[redis]'"
        raise StoreError("Redis needs redis-py, which is not installed", hint=hint) from None
    scheme, name, options = _read(url)
    kinds = {
        "redis": redis.Connection,
        "rediss": redis.SSLConnection,
        "unix": redis.UnixDomainSocketConnection,
    }
    pool = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        connection_class=kinds[scheme],
        max_connections=_MOST_CONNECTIONS,
        timeout=_READ_SECONDS,
        socket_connect_timeout=_CONNECT_SECONDS,
        socket_timeout=_READ_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **options,
    )
    connection = Connection(redis.Redis(connection_pool=pool), name, options["password"])
    try:
        connection.check()
    except StoreError:
        connection.close()
        raise
    return connection


def _read(url: str) -> tuple[str, str, dict[str, Any]]:
    """The scheme, a name without password, and what redis-py calls the rest."""
    unusable = StoreError(
        "the Redis URL cannot be read",
        hint="write redis://user:password@host:port/database, rediss://… or unix:///path, "
        "with special characters in the password percent-encoded (@ is %40)",
    )
    # Nothing of it is quoted: a password with a special character could be any part.
    if not url.isprintable() or url.count("@") > 1 or "#" in url:
        raise unusable
    # Not redis-py's own reading, which takes a path that is no number for database 0, and
    # lets the query turn timeouts and certificate checks off.
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        database = query.pop("db", "0") if parts.scheme == "unix" else parts.path[1:] or "0"
        options: dict[str, Any] = {
            "username": unquote(parts.username or "") or None,
            "password": unquote(parts.password or "") or None,
            "db": int(database),
        }
        port = parts.port or 6379
    except ValueError:
        raise unusable from None
    known = _TLS_OPTIONS if parts.scheme == "rediss" else set()
    if parts.scheme not in {"redis", "rediss", "unix"} or query.keys() - known:
        raise unusable
    if bool(parts.hostname) == (parts.scheme == "unix"):
        raise unusable
    if parts.scheme == "unix":
        return "unix", f"unix://{parts.path}", {**options, "path": unquote(parts.path)}
    name = f"{parts.scheme}://{parts.hostname}:{port}/{database}"
    return parts.scheme, name, {**options, **query, "host": parts.hostname, "port": port}
