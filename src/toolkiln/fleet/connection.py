"""Asyncio connection to Redis over hiredis, Lua scripts, and the server check.

Many tasks share one connection. Commands of one turn of the event loop leave in one write, and
replies arrive in order. It reconnects by itself but never repeats a command that the server may
have run: the caller gets `Unreachable` and decides. A blocking read delays all commands behind it,
so blocking reads have their own `RedisPipe`.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import sha1
from importlib.resources import files
from time import monotonic
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet.address import Address

Part = bytes | str | int
"""Argument of a command."""
Done = Callable[[Any], None]
"""Called once, with the reply or an exception."""

_CONNECT_SECONDS = 2.0
# A server that does not reply for so long is unreachable.
_READ_SECONDS = 5.0
_INCOMPLETE = object()


class ConnectionLost(ConnectionError):
    """The connection was lost before the reply arrived."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RedisTransport(asyncio.Protocol):
    """Protocol that sends commands and dispatches their replies in order."""

    def __init__(self) -> None:
        self.on_lost: Callable[[RedisTransport, Exception], None] | None = None
        """Called once, when the connection is lost."""
        self._loop = asyncio.get_running_loop()
        self._hiredis = _hiredis()
        self._reader = self._hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._unsent: list[bytes] = []
        self._outstanding: deque[tuple[Done, float]] = deque()
        # When the first outstanding reply became due.
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._ended = self._loop.create_future()

    async def send(self, parts: Sequence[Part], wait: float = 0.0) -> Any:
        """Send a command and return its reply, or the exception instead of one."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.submit(parts, partial(_resolve_future, future), wait)
        return await future

    def submit(
        self, parts: Sequence[Part], done: Done, wait: float = 0.0, *, now: bool = False
    ) -> None:
        """Send a command with the others of this turn of the loop, or `now`."""
        if self._error:
            done(ConnectionLost(str(self._error), sent=False))
            return
        if not now and not self._unsent:
            # A blocking read is not urgent: let replies to the last one leave first.
            self._loop.call_soon(self._flush_soon if wait else self._flush)
        self._unsent.append(self._hiredis.pack_command(parts))
        if not self._outstanding:
            self._since = self._loop.time()
            if not self._timer:
                self._timer = self._loop.call_later(_READ_SECONDS + wait, self._check_timeout)
        self._outstanding.append((done, wait))
        if now:
            self._flush()

    def abort(self, error: Exception) -> None:
        """Close the connection at once."""
        self._fail(error)

    async def close(self) -> None:
        """Close the connection and wait until it is closed."""
        self._fail(ConnectionError("closed"))
        await self._ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not subclass asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._since = self._loop.time()
        reader, outstanding = self._reader, self._outstanding
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not _INCOMPLETE:
                done, _ = outstanding.popleft()
                done(answer)
        # IndexError: a reply without a command.
        except (self._hiredis.HiredisError, IndexError) as error:
            self._fail(ConnectionError(f"it does not use the Redis protocol ({error})"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("Connection closed by server."))
        if not self._ended.done():
            self._ended.set_result(None)

    def _flush_soon(self) -> None:
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._unsent and not self._error:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _check_timeout(self) -> None:
        """Fail if the server has not replied for too long, as after a network failure."""
        self._timer = None
        if self._error or not self._outstanding:
            return
        remaining = self._since + _READ_SECONDS + self._outstanding[0][1] - self._loop.time()
        if remaining <= 0:
            self._fail(TimeoutError("Timeout: no reply"))
        else:
            self._timer = self._loop.call_later(remaining, self._check_timeout)

    def _fail(self, error: Exception) -> None:
        if self._error:
            return
        self._error = error
        if self._timer:
            self._timer.cancel()
        self._transport.abort()
        unsent = len(self._unsent)
        if self.on_lost:
            self.on_lost(self, error)
        while self._outstanding:
            done, _ = self._outstanding.popleft()
            done(ConnectionLost(str(error), sent=len(self._outstanding) >= unsent))


def _resolve_future(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():  # its task may have been cancelled
        future.set_result(answer)


async def connect(address: Address) -> RedisTransport:
    """Connect to the server, or to the primary of the service.

    Raises:
        OSError, ValueError: it cannot be reached.
        StoreError: it cannot be used.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            host, port = await _primary(address)
            transport = await _open(address, host, port)
            try:
                await _handshake(transport, address)
            except BaseException:  # including a timeout: no other code closes this connection
                transport.abort(ConnectionError("given up"))
                raise
            return transport
    except TimeoutError:
        raise TimeoutError("Timeout: cannot connect") from None


async def _open(address: Address, host: str, port: int) -> RedisTransport:
    loop = asyncio.get_running_loop()
    if address.path:
        return (await loop.create_unix_connection(RedisTransport, address.path))[1]
    context = _tls(address) if address.tls else None
    return (await loop.create_connection(RedisTransport, host, port, ssl=context))[1]


async def _primary(address: Address) -> tuple[str, int]:
    """Return the server, or the primary according to the first sentinel that knows it."""
    if address.path:
        return "", 0
    if not address.service:
        return address.hosts[0]
    failure: Exception = ConnectionError(f"no sentinel knows {address.service!r}")
    for host, port in address.hosts:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS / len(address.hosts)):
                sentinel = await _open(address, host, port)
                try:
                    command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
                    found = await sentinel.send(command)
                finally:
                    await sentinel.close()
        except OSError as error:
            failure = error
            continue
        if isinstance(found, list):
            return found[0].decode(), int(found[1])
    raise failure


async def _handshake(transport: RedisTransport, address: Address) -> None:
    commands: list[tuple[Part, ...]] = []
    if address.password:
        user = (address.username,) if address.username else ()
        commands.append(("AUTH", *user, address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    # HELLO is allowed for every user.
    commands.append(("HELLO",))
    answers = await asyncio.gather(*(transport.send(command) for command in commands))
    for answer in answers:
        if isinstance(answer, ConnectionLost):
            raise answer
        if isinstance(answer, Exception):
            message, hint = address.failure(answer)
            raise StoreError(message, hint=hint)
    answer = answers[-1]
    if not isinstance(answer, list) or len(answer) % 2:
        raise ConnectionError("it does not reply to HELLO like Redis")
    info = address.check(answer)
    if address.service and info.get(b"role") != b"master":
        raise ConnectionError("the server that the sentinels name is not a primary")


@cache
def _hiredis() -> ModuleType:
    try:
        import hiredis
    except ImportError:
        hint = "pip install 'toolkiln[redis]'"
        raise StoreError("Redis needs hiredis, which is not installed", hint=hint) from None
    return hiredis


def _tls(address: Address) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=address.ssl_ca_certs)
    if address.ssl_certfile:
        context.load_cert_chain(address.ssl_certfile, address.ssl_keyfile)
    return context


def pairs(flat: Sequence[Any]) -> dict[bytes, Any]:
    """Return the fields of a reply that lists names and values in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


# How long a command waits for a reconnect.
_RECONNECT_WAIT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
# Errors of commands that did not run: the server is a replica, or still loading.
_NOT_RUN_CODES = ("READONLY", "LOADING", "MASTERDOWN")


class RedisPipe:
    """Reconnecting connection to a server, shared by many tasks."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connects = 0
        """Number of connects so far; an increase means a reconnect."""
        self._transport: RedisTransport | None = None
        self._last_error: Exception = ConnectionError("not connected")
        self._connecting: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._closed = False

    def __repr__(self) -> str:
        return f"<RedisPipe {self.address.name}>"

    async def open(self) -> None:
        """Connect."""
        try:
            self._adopt(await connect(self.address))
        # ValueError: for example an invalid host name.
        except (OSError, ValueError) as error:
            raise self._unreachable(error, sent=False) from None

    async def command(self, *parts: Part, wait: float = 0.0) -> Any:
        """Run a command and return bytes, an integer, None or a list.

        `wait` is how many seconds the command may block.

        Raises:
            Unreachable: there is no connection, or it was lost before the reply arrived.
            StoreError: the server rejected the command.
        """
        transport = self._transport or await self._wait_for_transport()
        answer = await transport.send(parts, wait)
        if isinstance(answer, Exception):
            raise self._failure(answer, transport)
        return answer

    def script(self, name: str) -> "Script":
        """Return a script of the folder `lua`."""
        return Script(self, name)

    def submit(self, parts: Sequence[Part], done: Done) -> bool:
        """Send a command at once, with a callback; False without a connection."""
        transport = self._transport
        if transport is None:
            return False

        def on_reply(answer: Any) -> None:
            done(self._failure(answer, transport) if isinstance(answer, Exception) else answer)

        transport.submit(parts, on_reply, now=True)
        return True

    async def close(self) -> None:
        """Disconnect; unanswered commands raise Unreachable."""
        self._closed = True
        self._last_error = ConnectionError("closed")
        if self._connecting:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        if self._transport:
            await self._transport.close()
        self._transport = None

    def _adopt(self, transport: RedisTransport) -> None:
        self._transport = transport
        self.connects += 1
        self._connected.set()
        transport.on_lost = self._on_lost

    def _on_lost(self, transport: RedisTransport, error: Exception) -> None:
        if self._transport is not transport or self._closed:
            return
        self._transport, self._last_error = None, error
        self._connected.clear()
        self._connecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        pause = 0.0
        while self._transport is None:
            await asyncio.sleep(pause)
            pause = min(max(_FIRST_PAUSE_SECONDS, 2 * pause), _LONGEST_PAUSE_SECONDS)
            try:
                self._adopt(await connect(self.address))
            except (OSError, ValueError, StoreError) as error:
                self._last_error = error

    async def _wait_for_transport(self) -> RedisTransport:
        if self._connecting and not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RECONNECT_WAIT_SECONDS):
                    await self._connected.wait()
        if self._transport is None:
            raise self._unreachable(self._last_error, sent=False)
        return self._transport

    def _unreachable(self, error: Exception, *, sent: bool) -> Unreachable:
        if isinstance(error, StoreError):
            return Unreachable(error.message, sent=sent, hint=error.hint)
        message, hint = self.address.failure(error)
        return Unreachable(message, sent=sent, hint=hint)

    def _failure(self, error: Exception, transport: RedisTransport) -> StoreError:
        if isinstance(error, ConnectionLost):
            return self._unreachable(error, sent=error.sent)
        if any(code in str(error) for code in _NOT_RUN_CODES):
            # The next connect looks up the new primary.
            transport.abort(error)
            return self._unreachable(error, sent=False)
        message, hint = self.address.failure(error)
        return StoreError(message, hint=hint)


class Script:
    """Lua script, run atomically on the server."""

    def __init__(self, pipe: RedisPipe, name: str) -> None:
        self._pipe = pipe
        self._source, self._digest = _source(name)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, keys: Sequence[str], arguments: Sequence[Part]) -> Any:
        """Run the script; raises like `RedisPipe.command`."""
        command = ("EVALSHA", self._digest, len(keys), *keys, *arguments)
        try:
            return await self._pipe.command(*command)
        except StoreError as error:
            if not _is_missing_script(error):
                raise
        await self._pipe.command("SCRIPT", "LOAD", self._source)
        return await self._pipe.command(*command)

    def start(self, keys: Sequence[str], arguments: Sequence[Part], done: Done) -> None:
        """Run the script with a callback, which gets the reply or the StoreError."""

        def on_reply(answer: Any) -> None:
            if _is_missing_script(answer):
                self._start_task(keys, arguments, done)
            else:
                done(answer)

        command = ("EVALSHA", self._digest, len(keys), *keys, *arguments)
        if not self._pipe.submit(command, on_reply):
            self._start_task(keys, arguments, done)

    def _start_task(self, keys: Sequence[str], arguments: Sequence[Part], done: Done) -> None:
        async def run() -> None:
            try:
                answer = await self(keys, arguments)
            except StoreError as error:
                answer = error
            done(answer)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_missing_script(answer: Any) -> bool:
    return isinstance(answer, StoreError) and "NOSCRIPT" in answer.message


@cache
def _source(name: str) -> tuple[str, str]:
    source = files("toolkiln.fleet").joinpath("lua", f"{name}.lua").read_text("utf-8")
    # Redis identifies scripts by SHA-1.
    return source, sha1(source.encode(), usedforsecurity=False).hexdigest()


_NO_EVICTION = "noeviction"


async def check_server(pipe: RedisPipe) -> tuple[str, ...]:
    """Check that a server is fit for calls; returns warnings, one sentence each."""
    info, name = read_info(await pipe.command("INFO")), pipe.address.name
    check_fitness(info, name)
    return server_warnings(info, name)


def read_info(answer: bytes) -> dict[str, str]:
    """Parse the reply to INFO."""
    lines = answer.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and line[0] != "#")


def check_fitness(info: Mapping[str, str], name: str) -> None:
    """Check that a server, given its INFO, is writable and keeps calls."""
    if info.get("role") == "slave":
        hint = "use the primary server; redis+sentinel://…/SERVICE finds it behind Sentinel"
        raise StoreError(f"{name} is a read-only replica", hint=hint)
    if _may_evict(info) and info.get("maxmemory") != "0":
        policy = info["maxmemory_policy"]
        raise StoreError(
            f"{name} evicts calls when its memory is full: its maxmemory-policy is {policy}",
            hint="set `maxmemory-policy noeviction` in its redis.conf; a full server then "
            "rejects new calls, and accepted ones still end",
        )


def server_warnings(info: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return warnings about a server, given its INFO."""
    warnings = []
    if _may_evict(info):
        warnings.append(
            f"{name} will evict calls once it has a maxmemory: "
            "set `maxmemory-policy noeviction` in its redis.conf"
        )
    if info.get("aof_enabled") == "0":
        warnings.append(
            f"{name} has no append-only file: running calls are lost when it restarts; "
            "set `appendonly yes` in its redis.conf"
        )
    return tuple(warnings)


def _may_evict(info: Mapping[str, str]) -> bool:
    return info.get("maxmemory_policy", _NO_EVICTION) != _NO_EVICTION


Item = TypeVar("Item")
Output = TypeVar("Output")
BatchDone = Callable[[Sequence[Output] | Exception], None]
"""Called once, with an output for each item, or with an exception."""
ItemDone = Callable[[Output | Exception], None]
"""Called once, with an output or an exception. Must not raise."""


class Batch(Generic[Item, Output]):
    """Coalesces the items of one turn of the event loop into one request.

    Items that arrive while a request is in flight form the next batch, so batches grow with the
    load and a single item never waits. A full batch is sent at once.
    """

    def __init__(
        self, send: Callable[[Sequence[Item], BatchDone[Output]], None], size: int = 32
    ) -> None:
        """`send` gets up to `size` items and a callback, which saves a task per batch."""
        self._send = send
        self._size = size
        self._items: list[tuple[Item, ItemDone[Output]]] = []
        self._in_flight = 0

    async def add(self, item: Item) -> Output:
        """Add an item and wait for its output."""
        future: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self.put(item, partial(_resolve_item, future))
        return await future

    def put(self, item: Item, done: "ItemDone[Output]", *, last: bool = False) -> None:
        """Add an item; `done` gets its output or the exception.

        `last`: no other item is expected in this turn of the loop, so send at once.
        """
        self._items.append((item, done))
        if len(self._items) == self._size or (last and not self._in_flight):
            self._send_next()
        elif len(self._items) == 1 and not self._in_flight:
            asyncio.get_running_loop().call_soon(self._send_next)

    def _send_next(self) -> None:
        items, self._items = self._items[: self._size], self._items[self._size :]
        if not items:
            return
        self._in_flight += 1

        def on_reply(outputs: Sequence[Output] | Exception) -> None:
            self._in_flight -= 1
            if isinstance(outputs, Exception):
                for _, done in items:
                    done(outputs)
                # Each request may wait for an unreachable server: do not chain the waits.
                while self._items:
                    self._send_next()
                return
            for (_, done), output in zip(items, outputs, strict=True):
                done(output)
            if not self._in_flight:
                self._send_next()

        self._send([item for item, _ in items], on_reply)


def _resolve_item(future: "asyncio.Future[Output]", output: Output | Exception) -> None:
    if future.done():  # its task was cancelled
        return
    if isinstance(output, Exception):
        future.set_exception(output)
    else:
        future.set_result(output)


_CLOCK_SECONDS = 10.0


class RedisClock:
    """Clock of the Redis server."""

    def __init__(self, pipe: RedisPipe) -> None:
        self._pipe = pipe
        self._read_at = -_CLOCK_SECONDS
        self._value = 0

    async def now_ms(self) -> int:
        """Return milliseconds; read from the server every 10 seconds, else extrapolated."""
        passed = monotonic() - self._read_at
        if passed >= _CLOCK_SECONDS:
            seconds, microseconds = await self._pipe.command("TIME")
            self._value = int(seconds) * 1000 + int(microseconds) // 1000
            self._read_at, passed = monotonic(), 0.0
        return self._value + int(passed * 1000)
