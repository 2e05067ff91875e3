"""Proxy between a tool and its granted hosts.

It accepts on listeners from the sandbox's network namespace: one for HTTP proxy requests, and
one per endpoint, which determines the host and port. It checks the host and port against the
rules, resolves the host once, and connects to that address from the host's network. It does not
inspect traffic; TLS stays end to end. One connection carries one request or one tunnel.
Everything that the tool sends, and the listeners themselves, are hostile.
"""

import asyncio
import errno
import logging
import select
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, ip_address
from typing import Literal

from toolkiln.model.network import HostRules
from toolkiln.sandbox.network.addresses import (
    LOOPBACK,
    Address,
    Endpoint,
    Network,
    is_reachable,
    parse_networks,
    unmapped,
)
from toolkiln.sandbox.network.connection import (
    Caps,
    ConnectionEnded,
    ConnectionOutcome,
    ConnectionRecord,
    ProxyConnection,
    ProxyRequest,
    parse_request,
    requested_host,
    suggestion,
)

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

_CHUNK = 64 * 1024
_MAX_ADDRESSES = 4
_CLOSE_SECONDS = 2.0
_RETRY_SECONDS = 0.1
_NOT_LISTENING = {errno.EINVAL, errno.EBADF, errno.ENOTSOCK, errno.EOPNOTSUPP}
_RESET = "the connection was reset"
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_log = logging.getLogger(__name__)


class Listeners:
    """The listeners of a sandbox: one for proxy requests and one per endpoint."""

    def __init__(self, proxy: socket.socket, endpoints: Mapping[socket.socket, Endpoint]) -> None:
        listeners = {proxy: None, **endpoints}
        self._open = {each.fileno(): (each, endpoint) for each, endpoint in listeners.items()}
        self._poll = select.poll()
        for listener in listeners:
            listener.setblocking(True)
            self._poll.register(listener, select.POLLIN)

    def accept(self) -> tuple[socket.socket, Endpoint | None] | None:
        """Wait for a connection; return it with its endpoint, which is None for the proxy.

        Returns None once no listener is left.

        Raises:
            OSError: a connection cannot be accepted.
        """
        while self._open:
            descriptor, _ = self._poll.poll()[0]
            listener, endpoint = self._open[descriptor]
            try:
                return listener.accept()[0], endpoint
            except OSError as error:
                if error.errno not in _NOT_LISTENING:
                    raise
                self._close(descriptor)
        return None

    def shut_down(self) -> None:
        """Make a blocked `accept` return; may be called from another thread."""
        for listener, _ in list(self._open.values()):
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all listeners; not while `accept` is blocked."""
        for descriptor in list(self._open):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor)[0].close()


@asynccontextmanager
async def serve(
    listener: socket.socket,
    rules: HostRules,
    *,
    endpoints: Mapping[socket.socket, Endpoint] | None = None,
    allow_private: Iterable[str] = (),
    caps: Caps | None = None,
    resolve: Resolve | None = None,
    on_connection: Callable[[ConnectionRecord], None] | None = None,
) -> AsyncIterator[None]:
    """Serve the listeners while the block runs, then close them.

    Args:
        listener: accepts proxy requests.
        endpoints: listeners whose connections go to one granted host and port each.
        allow_private: private addresses and ranges that granted names may resolve to.
        resolve: resolves a host; raises OSError if it does not exist.
        on_connection: receives the record of each connection when it ends.

    Raises:
        InputError: `allow_private` is malformed.
    """
    listeners = Listeners(listener, endpoints or {})
    with closing(listeners):
        networks = parse_networks(allow_private)
        proxy = _Proxy(listeners, rules, networks, caps or Caps(), resolve, on_connection)
        accepting = asyncio.create_task(proxy.accept())
        try:
            yield
        finally:
            await proxy.close(accepting)


@dataclass(eq=False)
class _Proxy:
    listeners: Listeners
    rules: HostRules
    networks: tuple[Network, ...]
    caps: Caps
    resolve: Resolve | None
    on_connection: Callable[[ConnectionRecord], None] | None
    closing: bool = False
    carried: int = 0
    """Bytes of all connections."""
    open: dict[asyncio.Task[None], ProxyConnection] = field(default_factory=dict)
    # A separate pool: slow DNS lookups of a hostile tool must not delay the process.
    lookups: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))

    async def accept(self) -> None:
        """Accept connections until no listener is left or the maximum is reached."""
        # In a thread: the tool may have a copy of the listener, make it blocking and accept the
        # connection first; then an accept() on the event loop would block the process.
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "toolkiln-accept")
        count = 0
        try:
            while not self.closing and count <= self.caps.connections:
                try:
                    accepted = await loop.run_in_executor(thread, self.listeners.accept)
                except OSError:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if accepted is None:
                    return
                count += 1
                self.start(*accepted, count)
        finally:
            self.listeners.shut_down()
            # In the same thread: after an accept() that a cancellation left running.
            await loop.run_in_executor(thread, self.listeners.close)
            thread.shutdown(wait=False)

    async def close(self, accepting: asyncio.Task[None]) -> None:
        """End all connections; each one is still reported."""
        self.closing = True
        self.cancel()  # before the first await, which a second cancellation could interrupt
        while not accepting.done():
            self.listeners.shut_down()  # repeatedly: the tool may call listen() again
            await asyncio.wait([accepting], timeout=_RETRY_SECONDS)
        self.cancel()  # those accepted in the meantime
        self.lookups.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*self.open, return_exceptions=True)

    def cancel(self) -> None:
        for task in self.open:
            task.cancel()

    def start(self, client: socket.socket, endpoint: Endpoint | None, number: int) -> None:
        """Start serving a connection, or refuse it."""
        connection = ProxyConnection(client, time.monotonic())
        if endpoint is not None:
            connection.host, connection.port = endpoint.host, endpoint.port
            connection.is_direct = True
        client.setblocking(False)
        with suppress(OSError):
            # An SO_LINGER inherited from the listener could make our close() wait for the tool.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if number > self.caps.connections:
            self.refuse(connection, f"limit of {self.caps.connections} connections reached")
        elif len(self.open) >= self.caps.at_once:
            self.refuse(connection, f"limit of {self.caps.at_once} open connections reached")
        else:
            task = asyncio.create_task(self.handle(connection))
            self.open[task] = connection
            task.add_done_callback(self.finish)

    def refuse(self, connection: ProxyConnection, reason: str) -> None:
        connection.end(ConnectionOutcome.LIMITED, reason)
        if connection.is_direct:
            self.reset(connection)
            return
        with suppress(OSError):
            connection.client.recv(_CHUNK)  # closing over unread bytes would reset the connection
        with suppress(OSError):
            connection.client.send(_response(503, reason))
        connection.client.close()
        self.report(connection)

    def reset(self, connection: ProxyConnection) -> None:
        """Report and reset a direct connection.

        The client could mistake a normal close for the end of the host's data.
        """
        self.report(connection)  # before the tool can continue and end the call
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            connection.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.client.close()

    def finish(self, task: asyncio.Task[None]) -> None:
        """Close and report a connection, however it ended."""
        connection = self.open.pop(task)
        connection.client.close()
        if connection.upstream:
            connection.upstream.close()
        if task.cancelled():
            if connection.outcome is None:
                connection.end(ConnectionOutcome.CUT, "the call ended")
        elif error := task.exception():
            connection.end(ConnectionOutcome.FAILED, "the proxy failed")
            # Only the type: the message could quote data of the tool.
            _log.error("a connection of a tool failed: %s", type(error).__name__)
        self.report(connection)

    def report(self, connection: ProxyConnection) -> None:
        if self.on_connection is None or connection.is_reported:
            return
        connection.is_reported = True
        try:
            self.on_connection(connection.record())
        except Exception:  # noqa: BLE001 - must not affect other connections
            _log.exception("a connection could not be reported")

    async def handle(self, connection: ProxyConnection) -> None:
        """Serve one connection and set its outcome."""
        try:
            if connection.is_direct and connection.port is not None:
                request, early = ProxyRequest(connection.host, connection.port, tunnel=True), b""
            else:
                request, early = await self.read_request(connection)
            await self.connect(connection, request)
            await self.relay(connection, request, early)
            connection.end(ConnectionOutcome.ALLOWED, connection.reason)
        except ConnectionEnded as end:
            connection.end(end.outcome, end.reason)
            if connection.is_direct:
                self.reset(connection)
            elif end.status:
                self.report(connection)  # before the tool can continue and end the call
                await _reject(connection.client, end.status, end.reason)
        except OSError:
            connection.end(
                ConnectionOutcome.ALLOWED if connection.upstream else ConnectionOutcome.FAILED,
                _RESET,
            )
            if connection.is_direct:
                self.reset(connection)

    async def read_request(self, connection: ProxyConnection) -> tuple[ProxyRequest, bytes]:
        """Return the request and the bytes after its head."""
        loop = asyncio.get_running_loop()
        data = bytearray()
        searched = 0
        try:
            async with asyncio.timeout(self.caps.head_seconds):
                while (end := data.find(b"\r\n\r\n", searched)) < 0:
                    searched = max(0, len(data) - 3)
                    if len(data) >= self.caps.head_bytes:
                        raise ConnectionEnded(
                            ConnectionOutcome.LIMITED, "the headers are too long", 431
                        )
                    chunk = await loop.sock_recv(
                        connection.client, self.caps.head_bytes - len(data)
                    )
                    if not chunk:
                        raise ConnectionEnded(
                            ConnectionOutcome.REFUSED,
                            "the connection ended before the request was complete",
                        )
                    data += chunk
        except TimeoutError:
            raise ConnectionEnded(
                ConnectionOutcome.LIMITED, "the request took too long", 408
            ) from None
        head = bytes(data[:end])
        connection.host = requested_host(head)
        request = parse_request(head)
        connection.host, connection.port = request.host, request.port
        return request, bytes(data[end + 4 :])

    async def connect(self, connection: ProxyConnection, request: ProxyRequest) -> None:
        """Check the request and connect to its host."""
        host, port = request.host, request.port
        if not self.rules.allow(host, port):
            raise ConnectionEnded(
                ConnectionOutcome.REFUSED,
                f"{host}:{port} is not granted; declare it with {suggestion(host, port)} "
                "and ask the operator to grant it",
                403,
            )
        try:
            async with asyncio.timeout(self.caps.connect_seconds):
                for address in await self.addresses(connection, host, port):
                    if await _connected(connection, address, port):
                        return
        except TimeoutError:
            raise ConnectionEnded(
                ConnectionOutcome.FAILED, f"{host}:{port} did not answer in time", 504
            ) from None
        raise ConnectionEnded(ConnectionOutcome.FAILED, f"no connection to {host}:{port}", 502)

    async def addresses(self, connection: ProxyConnection, host: str, port: int) -> list[Address]:
        """Resolve a host once; the proxy connects only to the returned addresses."""
        try:
            found = list(dict.fromkeys(map(unmapped, await self.look_up(host, port))))
        except OSError:
            found = []
        if not found:
            raise ConnectionEnded(ConnectionOutcome.FAILED, f"the host {host} was not found", 502)
        connection.address = found[0]
        # A grant of `localhost` means this machine; other names require a private network.
        networks = (*self.networks, *LOOPBACK) if host == "localhost" else self.networks
        allowed = [address for address in found if is_reachable(address, networks)]
        if not allowed:
            # Only the record has the address: the tool must not learn the network's layout.
            raise ConnectionEnded(
                ConnectionOutcome.REFUSED,
                f"{host} resolves to an address that is not public; "
                "ask the operator to list its range as a private network",
                403,
            )
        return allowed[:_MAX_ADDRESSES]

    async def look_up(self, host: str, port: int) -> Sequence[Address]:
        if self.resolve is not None:
            return await self.resolve(host, port)
        lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self.lookups, lookup)
        return [ip_address(info[4][0]) for info in found]

    async def relay(self, connection: ProxyConnection, request: ProxyRequest, early: bytes) -> None:
        """Transfer bytes in both directions until the end or a cap."""
        if request.tunnel:
            up = self.pump(connection, "up", early, None)
            down = self.pump(
                connection, "down", b"", None, b"" if connection.is_direct else _ESTABLISHED
            )
        else:
            body = early[: request.length]
            up = self.pump(connection, "up", request.head + body, request.length - len(body))
            down = self.pump(connection, "down", b"", None)
        now = time.monotonic()
        connection.last_active, deadline = now, now + self.caps.seconds
        pumps = (asyncio.create_task(up), asyncio.create_task(down))
        waiting: set[asyncio.Task[None]] = set(pumps)
        try:
            while waiting and (request.tunnel or pumps[1] in waiting):
                now = time.monotonic()
                if now >= deadline:
                    raise ConnectionEnded(
                        ConnectionOutcome.LIMITED, f"open for {self.caps.seconds:g} s"
                    )
                if now >= connection.last_active + self.caps.idle_seconds:
                    raise ConnectionEnded(
                        ConnectionOutcome.LIMITED, f"idle for {self.caps.idle_seconds:g} s"
                    )
                left = min(deadline, connection.last_active + self.caps.idle_seconds) - now
                done, waiting = await asyncio.wait(
                    waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for pump in done:
                    pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        if waiting:  # the host responded before it had the whole body
            await _drain(connection.client)

    async def pump(
        self,
        connection: ProxyConnection,
        way: Literal["up", "down"],
        first: bytes,
        length: int | None,
        greeting: bytes = b"",
    ) -> None:
        """Send `first`, then `length` bytes, or everything until the end, in one direction."""
        loop = asyncio.get_running_loop()
        assert connection.upstream is not None
        ends = (connection.client, connection.upstream)
        source, sink = ends if way == "up" else ends[::-1]
        data = first
        while True:
            self.count(connection, way, len(data))
            try:
                await loop.sock_sendall(sink, greeting + data)
            except OSError:  # it stopped reading, but may still send
                connection.reason = _RESET
                return
            greeting = b""
            connection.last_active = time.monotonic()
            if length == 0:
                return
            data = await loop.sock_recv(source, min(_CHUNK, length or _CHUNK))
            if not data:
                break
            if length is not None:
                length -= len(data)
        sink.shutdown(socket.SHUT_WR)

    def count(self, connection: ProxyConnection, way: Literal["up", "down"], size: int) -> None:
        """Count bytes against the caps before they are sent."""
        if way == "up":
            count, limit = connection.up, self.caps.bytes_up
        else:
            count, limit = connection.down, self.caps.bytes_down
        if count + size > limit:
            raise ConnectionEnded(ConnectionOutcome.LIMITED, f"more than {limit} bytes {way}")
        if self.carried + size > self.caps.bytes_total:
            raise ConnectionEnded(
                ConnectionOutcome.LIMITED, f"more than {self.caps.bytes_total} bytes in total"
            )
        self.carried += size
        if way == "up":
            connection.up += size
        else:
            connection.down += size


async def _connected(connection: ProxyConnection, address: Address, port: int) -> bool:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    connection.address = address
    try:
        upstream = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return False
    try:
        upstream.setblocking(False)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(upstream, (str(address), port))
    except OSError:
        upstream.close()
        return False
    except BaseException:  # a timeout or the end of the call
        upstream.close()
        raise
    connection.upstream = upstream
    return True


async def _reject(client: socket.socket, status: int, reason: str) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await loop.sock_sendall(client, _response(status, reason))
        client.shutdown(socket.SHUT_WR)
        await _drain(client)


async def _drain(client: socket.socket) -> None:
    """Read a little more: closing over unread bytes would reset the connection."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            for _ in range(16):
                if not await loop.sock_recv(client, _CHUNK):
                    break


def _response(status: int, reason: str) -> bytes:
    # Most clients show only the status line of a refused tunnel.
    text = f"toolkiln: {reason}"
    return (
        f"HTTP/1.1 {status} {text}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(text) + 1}\r\nConnection: close\r\n\r\n{text}\n"
    ).encode("ascii")
