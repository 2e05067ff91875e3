"""A Redis server for threads: timeouts and errors. Knows nothing of sessions.

What URLs may say is in `address`; the connection for asyncio is `resp`.

Nothing is tried twice. After a timeout nobody knows whether the server ran a script, and
running it again could take tokens twice; so redis-py's own retries are off, and whoever
asked gets a StoreError and must take it for a no. A connection that the server closed while
it was idle is replaced before anything is sent on it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from toolkiln.fleet import keys
from toolkiln.fleet.address import TLS_OPTIONS, Address, read_address
from toolkiln.store import StoreError, Unreachable

if TYPE_CHECKING:
    from redis import Redis

Script = Callable[[Sequence[str], Sequence[str | bytes | int | float]], Any]
"""Runs on the server, all of it or nothing, with keys and arguments."""

# A server that is gone must not hang a call.
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_MOST_CONNECTIONS = 32


class Connection:
    """A Redis server, and how to speak of it without giving a password away."""

    def __init__(self, client: "Redis", address: Address) -> None:
        self._client = client
        self._address = address
        self._scripts: dict[str, Script] = {}
        self.name = address.name
        self.namespace = ""
        """How keys of the user's own begin; empty if it may use those of all users."""

    def __repr__(self) -> str:
        return f"<Connection {self.name}>"

    def script(self, name: str) -> Script:
        """A script of the folder `lua`; it raises StoreError when the server fails."""
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
        """Whether the server answers, lets us in and is of a kind that serves.

        Raises:
            StoreError: it does not.
        """
        with self._as_store_error():
            # HELLO, as every user may ask that.
            said = self._client.execute_command("HELLO")  # type: ignore[no-untyped-call]
            about = dict(zip(said[::2], said[1::2], strict=True))
            version, mode = about[b"version"].decode(), about[b"mode"].decode()
        self._address.check(version, mode)
        self.namespace = self._find_namespace()

    def _find_namespace(self) -> str:
        """Ask the server whether its ACL lets this user see who has a session."""
        from redis.exceptions import NoPermissionError

        with self._as_store_error():
            try:
                self._client.zrange(keys.SESSIONS, -1, -1)
            except NoPermissionError:
                return self._address.user
        return ""

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
            message, hint = self._address.failure(error)
            # Not chained: the frames below hold the password.
            if _is_away(error):
                raise Unreachable(message, sent=True, hint=hint) from None
            raise StoreError(message, hint=hint) from None


def _is_away(error: Exception) -> bool:
    """Whether a later attempt may find the server, or another primary, instead of a refusal."""
    from redis import exceptions

    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return False
    away = (
        exceptions.ConnectionError,
        exceptions.TimeoutError,
        exceptions.ReadOnlyError,
        exceptions.MasterDownError,
        OSError,
    )
    return isinstance(error, away)


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
    address = read_address(url)
    options = {
        "username": address.username,
        "password": address.password,
        "db": address.database,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": _READ_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    pool = _pool(address, options)
    connection = Connection(redis.Redis(connection_pool=pool), address)
    try:
        connection.check()
    except StoreError:
        connection.close()
        raise
    return connection


def _pool(address: Address, options: dict[str, Any]) -> Any:
    import redis
    from redis.sentinel import Sentinel, SentinelConnectionPool

    tls = {name: getattr(address, name) for name in TLS_OPTIONS if getattr(address, name)}
    if address.service:
        asking = {
            "socket_connect_timeout": _CONNECT_SECONDS,
            "socket_timeout": _READ_SECONDS,
            "retry": options["retry"],
            "protocol": 2,
            **({"ssl": True, **tls} if address.tls else {}),
        }
        sentinels = Sentinel(address.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.service, sentinels, ssl=address.tls, **tls, **options
        )
    kind: type[Any] = redis.UnixDomainSocketConnection
    place: dict[str, Any] = {"path": address.path}
    if address.hosts:
        kind = redis.SSLConnection if address.tls else redis.Connection
        place = {"host": address.hosts[0][0], "port": address.hosts[0][1], **tls}
    return redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        connection_class=kind,
        max_connections=_MOST_CONNECTIONS,
        timeout=_READ_SECONDS,
        **options,
        **place,
    )
