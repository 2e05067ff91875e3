"""The guard between a tool and the hosts it was granted.

It accepts on listeners that were opened inside the sandbox's network namespace: one for
HTTP proxy requests, and one for each endpoint, where the listener itself says which host
and port are meant. It checks them against the rules, looks the host up once and connects
to that address from here. It does not read what passes: TLS is not opened. One connection
carries one request or one tunnel. Everything that the tool sends, and the listeners
themselves, are hostile.
"""

import asyncio
import logging
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

from toolkiln.execution.network.addresses import (
    LOOPBACK,
    Address,
    Network,
    parse_networks,
    plain,
    reachable,
)
from toolkiln.execution.network.connection import Caps, ConnectionRecord, Ended, Link, Outcome
from toolkiln.execution.network.endpoints import Endpoint
from toolkiln.execution.network.listeners import Listeners
from toolkiln.execution.network.request import Request, asked_host, parse_request, suggestion
from toolkiln.execution.network.rules import HostRules

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

_CHUNK = 64 * 1024
_MOST_ADDRESSES = 4
_FAREWELL_SECONDS = 2.0
_RETRY_SECONDS = 0.1
_RESET = "the connection was reset"
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_log = logging.getLogger(__name__)


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
    """Serve the listeners for as long as the block lasts, and close them.

    Args:
        listener: takes proxy requests.
        endpoints: listeners whose connections go to one granted host and port each.
        allow_private: addresses and ranges that granted names may lead to though not public.
        resolve: looks a host up; an OSError means that there is none.
        on_connection: gets one record for each connection, when it is over.

    Raises:
        InputError: `allow_private` cannot be read.
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
    """Bytes, of all connections."""
    open: dict[asyncio.Task[None], Link] = field(default_factory=dict)
    # A pool of its own: slow answers to a hostile tool's lookups must not hold up the process.
    lookups: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))

    async def accept(self) -> None:
        """Take connections until no listener is left or too many were made."""
        # In a thread: the tool may hold a copy of the listener, make it blocking and take the
        # connection that we were told of, and an accept() on the loop would stop the process.
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "toolkiln-accept")
        accepted = 0
        try:
            while not self.closing and accepted <= self.caps.connections:
                try:
                    arrived = await loop.run_in_executor(thread, self.listeners.take)
                except OSError:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if arrived is None:
                    return
                accepted += 1
                self.admit(*arrived, accepted)
        finally:
            self.listeners.shut_down()
            # In the same thread: behind an accept() that a cancellation left behind.
            await loop.run_in_executor(thread, self.listeners.close)
            thread.shutdown(wait=False)

    async def close(self, accepting: asyncio.Task[None]) -> None:
        """End everything; each open connection is still reported."""
        self.closing = True
        self.cancel()  # before the first await, which a second cancellation could end
        while not accepting.done():
            self.listeners.shut_down()  # again, if the tool made the socket listen again meanwhile
            await asyncio.wait([accepting], timeout=_RETRY_SECONDS)
        self.cancel()  # what was accepted meanwhile
        self.lookups.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*self.open, return_exceptions=True)

    def cancel(self) -> None:
        for task in self.open:
            task.cancel()

    def admit(self, client: socket.socket, endpoint: Endpoint | None, number: int) -> None:
        """Start serving a connection, or turn it away."""
        link = Link(client, time.monotonic())
        if endpoint is not None:
            link.host, link.port, link.is_direct = endpoint.host, endpoint.port, True
        client.setblocking(False)
        with suppress(OSError):
            # Inherited from the listener, it could make our close() wait for the tool.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if number > self.caps.connections:
            self.turn_away(
                link, f"{self.caps.connections} connections, the most allowed, were made"
            )
        elif len(self.open) >= self.caps.at_once:
            self.turn_away(link, f"{self.caps.at_once} connections, the most allowed, are open")
        else:
            task = asyncio.create_task(self.handle(link))
            self.open[task] = link
            task.add_done_callback(self.finish)

    def turn_away(self, link: Link, reason: str) -> None:
        link.end(Outcome.LIMITED, reason)
        if link.is_direct:
            self.reset(link)
            return
        with suppress(OSError):
            link.client.recv(_CHUNK)  # unread bytes would reset the connection, answer and all
        with suppress(OSError):
            link.client.send(_answer(503, reason))
        link.client.close()
        self.report(link)

    def reset(self, link: Link) -> None:
        """Report a direct connection and reset it.

        An end without a reset could pass for the end of what the host sent.
        """
        self.report(link)  # before the tool can go on and end the call
        with suppress(OSError):
            link.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.client.close()

    def finish(self, task: asyncio.Task[None]) -> None:
        """Close and report a connection, however it ended, also one that never began."""
        link = self.open.pop(task)
        link.client.close()
        if link.upstream:
            link.upstream.close()
        if task.cancelled():
            if link.outcome is None:
                link.end(Outcome.CUT, "the call ended")
        elif error := task.exception():
            link.end(Outcome.FAILED, "the proxy failed")
            # The type only: a message could quote what the tool sent.
            _log.error("a connection of a tool failed: %s", type(error).__name__)
        self.report(link)

    def report(self, link: Link) -> None:
        if self.on_connection is None or link.is_reported:
            return
        link.is_reported = True
        try:
            self.on_connection(link.record())
        except Exception:  # noqa: BLE001 - not ours; the other connections go on
            _log.exception("a connection could not be reported")

    async def handle(self, link: Link) -> None:
        """Serve one connection; whatever it does ends in its link."""
        try:
            if link.is_direct and link.port is not None:
                request, early = Request(link.host, link.port, tunnel=True), b""
            else:
                request, early = await self.read_request(link)
            await self.connect(link, request)
            await self.relay(link, request, early)
            link.end(Outcome.ALLOWED, link.reason)
        except Ended as end:
            link.end(end.outcome, end.reason)
            if link.is_direct:
                self.reset(link)
            elif end.status:
                self.report(link)  # before the tool can go on and end the call
                await _dismiss(link.client, end.status, end.reason)
        except OSError:
            link.end(Outcome.ALLOWED if link.upstream else Outcome.FAILED, _RESET)
            if link.is_direct:
                self.reset(link)

    async def read_request(self, link: Link) -> tuple[Request, bytes]:
        """The request and what came behind its head."""
        loop = asyncio.get_running_loop()
        data = bytearray()
        searched = 0
        try:
            async with asyncio.timeout(self.caps.head_seconds):
                while (end := data.find(b"\r\n\r\n", searched)) < 0:
                    searched = max(0, len(data) - 3)
                    if len(data) >= self.caps.head_bytes:
                        raise Ended(Outcome.LIMITED, "the headers are too long", 431)
                    chunk = await loop.sock_recv(link.client, self.caps.head_bytes - len(data))
                    if not chunk:
                        raise Ended(Outcome.REFUSED, "the connection ended before its request")
                    data += chunk
        except TimeoutError:
            raise Ended(Outcome.LIMITED, "the request took too long", 408) from None
        head = bytes(data[:end])
        link.host = asked_host(head)
        request = parse_request(head)
        link.host, link.port = request.host, request.port
        return request, bytes(data[end + 4 :])

    async def connect(self, link: Link, request: Request) -> None:
        """Check the request and connect to its host."""
        host, port = request.host, request.port
        if not self.rules.allow(host, port):
            raise Ended(
                Outcome.REFUSED,
                f"{host}:{port} is not granted; declare it with {suggestion(host, port)} "
                "and ask the operator to grant it",
                403,
            )
        try:
            async with asyncio.timeout(self.caps.connect_seconds):
                for address in await self.addresses(link, host, port):
                    if await _connected(link, address, port):
                        return
        except TimeoutError:
            raise Ended(Outcome.FAILED, f"{host}:{port} did not answer in time", 504) from None
        raise Ended(Outcome.FAILED, f"no connection to {host}:{port}", 502)

    async def addresses(self, link: Link, host: str, port: int) -> list[Address]:
        """Look a host up, once: the addresses returned are the ones that are connected to."""
        try:
            found = list(dict.fromkeys(map(plain, await self.look_up(host, port))))
        except OSError:
            found = []
        if not found:
            raise Ended(Outcome.FAILED, f"the host {host} was not found", 502)
        link.address = found[0]
        # Granting `localhost` means this machine; other names need a private network for that.
        networks = (*self.networks, *LOOPBACK) if host == "localhost" else self.networks
        allowed = [address for address in found if reachable(address, networks)]
        if not allowed:
            # Which address stays in the record: the tool must not learn the network's layout.
            raise Ended(
                Outcome.REFUSED,
                f"{host} leads to an address that is not public; "
                "ask the operator to list its range as a private network",
                403,
            )
        return allowed[:_MOST_ADDRESSES]

    async def look_up(self, host: str, port: int) -> Sequence[Address]:
        if self.resolve is not None:
            return await self.resolve(host, port)
        lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self.lookups, lookup)
        return [ip_address(info[4][0]) for info in found]

    async def relay(self, link: Link, request: Request, early: bytes) -> None:
        """Pass bytes both ways until the end or a cap."""
        if request.tunnel:
            up = self.pump(link, "up", early, None)
            down = self.pump(link, "down", b"", None, b"" if link.is_direct else _ESTABLISHED)
        else:
            body = early[: request.length]
            up = self.pump(link, "up", request.head + body, request.length - len(body))
            down = self.pump(link, "down", b"", None)
        now = time.monotonic()
        link.moved, deadline = now, now + self.caps.seconds
        pumps = (asyncio.create_task(up), asyncio.create_task(down))
        waiting: set[asyncio.Task[None]] = set(pumps)
        try:
            while waiting and (request.tunnel or pumps[1] in waiting):
                now = time.monotonic()
                if now >= deadline:
                    raise Ended(Outcome.LIMITED, f"open for {self.caps.seconds:g} s")
                if now >= link.moved + self.caps.idle_seconds:
                    raise Ended(Outcome.LIMITED, f"idle for {self.caps.idle_seconds:g} s")
                left = min(deadline, link.moved + self.caps.idle_seconds) - now
                done, waiting = await asyncio.wait(
                    waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for pump in done:
                    pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        if waiting:  # the host answered before it had the whole body
            await _drain(link.client)

    async def pump(
        self,
        link: Link,
        way: Literal["up", "down"],
        first: bytes,
        length: int | None,
        greeting: bytes = b"",
    ) -> None:
        """Pass `first` and then `length` bytes one way, or all there are and then the end."""
        loop = asyncio.get_running_loop()
        assert link.upstream is not None
        ends = (link.client, link.upstream)
        source, sink = ends if way == "up" else ends[::-1]
        data = first
        while True:
            self.count(link, way, len(data))
            try:
                await loop.sock_sendall(sink, greeting + data)
            except OSError:  # it reads no more, but may still have something to say
                link.reason = _RESET
                return
            greeting = b""
            link.moved = time.monotonic()
            if length == 0:
                return
            data = await loop.sock_recv(source, min(_CHUNK, length or _CHUNK))
            if not data:
                break
            if length is not None:
                length -= len(data)
        sink.shutdown(socket.SHUT_WR)

    def count(self, link: Link, way: Literal["up", "down"], size: int) -> None:
        """Take bytes off the caps before they are passed on."""
        so_far, most = (
            (link.up, self.caps.bytes_up) if way == "up" else (link.down, self.caps.bytes_down)
        )
        if so_far + size > most:
            raise Ended(Outcome.LIMITED, f"more than {most} bytes {way}")
        if self.carried + size > self.caps.bytes_total:
            raise Ended(Outcome.LIMITED, f"more than {self.caps.bytes_total} bytes in all")
        self.carried += size
        if way == "up":
            link.up += size
        else:
            link.down += size


async def _connected(link: Link, address: Address, port: int) -> bool:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    link.address = address
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
    link.upstream = upstream
    return True


async def _dismiss(client: socket.socket, status: int, reason: str) -> None:
    """Say no and why."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await loop.sock_sendall(client, _answer(status, reason))
        client.shutdown(socket.SHUT_WR)
        await _drain(client)


async def _drain(client: socket.socket) -> None:
    """Read on for a moment: closing over unread bytes would reset the answer away."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            for _ in range(16):
                if not await loop.sock_recv(client, _CHUNK):
                    break


def _answer(status: int, reason: str) -> bytes:
    # Most clients show the status line of a refused tunnel and drop the body.
    text = f"toolkiln: {reason}"
    return (
        f"HTTP/1.1 {status} {text}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(text) + 1}\r\nConnection: close\r\n\r\n{text}\n"
    ).encode("ascii")
