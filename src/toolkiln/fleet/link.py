"""A connection to Redis as it is made, used and lost, once. `resp` makes another after that."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any, cast

from toolkiln.fleet.address import Address
from toolkiln.store import StoreError

Part = bytes | str | int
"""A part of a command."""
Done = Callable[[Any], None]
"""Called once, with the answer, or with the exception that there is instead of one."""

_CONNECT_SECONDS = 2.0
# A server, or a network, that says nothing for so long while it owes an answer is gone.
_READ_SECONDS = 5.0
_MORE = object()


class Lost(ConnectionError):
    """The connection was lost before the answer came."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Link(asyncio.Protocol):
    """Sends commands and hands their answers out, in order."""

    def __init__(self) -> None:
        self.on_lost: Callable[[Link, Exception], None] | None = None
        """Called once, when it can be used no longer."""
        self._loop = asyncio.get_running_loop()
        self._hiredis = _hiredis()
        self._reader = self._hiredis.Reader(notEnoughData=_MORE)
        self._unsent: list[bytes] = []
        self._owed: deque[tuple[Done, float]] = deque()
        # Since when the first answer is owed.
        self._since = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._ended = self._loop.create_future()

    async def send(self, parts: Sequence[Part], wait: float = 0.0) -> Any:
        """The answer, or the exception that there is instead of one."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.submit(parts, partial(_settle, answer), wait)
        return await answer

    def submit(
        self, parts: Sequence[Part], done: Done, wait: float = 0.0, *, now: bool = False
    ) -> None:
        """Send a command with the others of this turn of the loop, or `now`."""
        if self._error:
            done(Lost(str(self._error), sent=False))
            return
        if not now and not self._unsent:
            # A read that blocks is in no hurry: what the last one brought goes first.
            self._loop.call_soon(self._flush_soon if wait else self._flush)
        self._unsent.append(self._hiredis.pack_command(parts))
        if not self._owed:
            self._since = self._loop.time()
            if not self._watch:
                self._watch = self._loop.call_later(_READ_SECONDS + wait, self._look)
        self._owed.append((done, wait))
        if now:
            self._flush()

    def abort(self, error: Exception) -> None:
        """Let go of the connection at once."""
        self._fail(error)

    async def close(self) -> None:
        """Let go of the connection, and wait until it is gone."""
        self._fail(ConnectionError("closed"))
        await self._ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._since = self._loop.time()
        reader, owed = self._reader, self._owed
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not _MORE:
                done, _ = owed.popleft()
                done(answer)
        # IndexError: an answer that nobody asked for.
        except (self._hiredis.HiredisError, IndexError) as error:
            self._fail(ConnectionError(f"it does not speak Redis's protocol ({error})"))

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

    def _look(self) -> None:
        """Whether the server owes an answer for too long, as it does after a network broke."""
        self._watch = None
        if self._error or not self._owed:
            return
        left = self._since + _READ_SECONDS + self._owed[0][1] - self._loop.time()
        if left <= 0:
            self._fail(TimeoutError("Timeout: no answer"))
        else:
            self._watch = self._loop.call_later(left, self._look)

    def _fail(self, error: Exception) -> None:
        if self._error:
            return
        self._error = error
        if self._watch:
            self._watch.cancel()
        self._transport.abort()
        unsent = len(self._unsent)
        if self.on_lost:
            self.on_lost(self, error)
        while self._owed:
            done, _ = self._owed.popleft()
            done(Lost(str(error), sent=len(self._owed) >= unsent))


def _settle(answer: asyncio.Future[Any], said: Any) -> None:
    # Whoever asked may have been cancelled; the answer comes all the same.
    if not answer.done():
        answer.set_result(said)


async def connect(address: Address) -> Link:
    """A connection to the server, or to the primary of the service, ready for use.

    Raises:
        OSError, ValueError: it cannot be reached.
        StoreError: it cannot be used.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            host, port = await _primary(address)
            link = await _open(address, host, port)
            try:
                await _greet(link, address)
            except BaseException:  # also a timeout: nobody else knows of this connection
                link.abort(ConnectionError("given up"))
                raise
            return link
    except TimeoutError:
        raise TimeoutError("Timeout: it could not be connected to") from None


async def _open(address: Address, host: str, port: int) -> Link:
    loop = asyncio.get_running_loop()
    if address.path:
        return (await loop.create_unix_connection(Link, address.path))[1]
    context = _tls(address) if address.tls else None
    return (await loop.create_connection(Link, host, port, ssl=context))[1]


async def _primary(address: Address) -> tuple[str, int]:
    """The server itself, or whom the first sentinel that knows takes for the primary."""
    if address.path:
        return "", 0
    if not address.service:
        return address.hosts[0]
    trouble: Exception = ConnectionError(f"no sentinel knows {address.service!r}")
    for host, port in address.hosts:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS / len(address.hosts)):
                sentinel = await _open(address, host, port)
                try:
                    asked = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
                    found = await sentinel.send(asked)
                finally:
                    await sentinel.close()
        except OSError as error:
            trouble = error
            continue
        if isinstance(found, list):
            return found[0].decode(), int(found[1])
    raise trouble


async def _greet(link: Link, address: Address) -> None:
    commands: list[tuple[Part, ...]] = []
    if address.password:
        user = (address.username,) if address.username else ()
        commands.append(("AUTH", *user, address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    # HELLO, as every user may ask that.
    commands.append(("HELLO",))
    answers = await asyncio.gather(*(link.send(command) for command in commands))
    for answer in answers:
        if isinstance(answer, Lost):
            raise answer
        if isinstance(answer, Exception):
            message, hint = address.failure(answer)
            raise StoreError(message, hint=hint)
    said = answers[-1]
    if not isinstance(said, list) or len(said) % 2:
        raise ConnectionError("it does not greet as Redis does")
    about = dict(zip(said[::2], said[1::2], strict=True))
    address.check(about.get(b"version", b"0").decode(), about.get(b"mode", b"").decode())
    if address.service and about.get(b"role") != b"master":
        raise ConnectionError("the sentinels name a server that is no primary")


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
