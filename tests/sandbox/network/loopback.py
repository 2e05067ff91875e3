"""A proxy and servers on loopback, under names that the tests map."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from ssl import SSLContext
from typing import Literal

from toolkiln.model.network import parse_rules
from toolkiln.sandbox.network.addresses import Address, Endpoint
from toolkiln.sandbox.network.connection import Caps, ConnectionRecord
from toolkiln.sandbox.network.proxy import Resolve, serve

BOUND = 20.0
"""Seconds that anything may take before a test gives up."""

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@dataclass
class Proxy:
    """A running proxy as a tool and the audit see it, with an endpoint if it has one."""

    listener: socket.socket
    port: int
    endpoint: int
    listeners: list[socket.socket]
    records: asyncio.Queue[ConnectionRecord] = field(default_factory=asyncio.Queue)

    async def record(self) -> ConnectionRecord:
        """The next connection that is over."""
        async with asyncio.timeout(BOUND):
            return await self.records.get()

    async def open(
        self, port: int | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port or self.port)

    async def ask(self, data: bytes, *, port: int | None = None, eof: bool = False) -> bytes:
        """Everything that the proxy, or whoever serves the port, answers to these bytes."""
        reader, writer = await self.open(port)
        writer.write(data)
        if eof:
            writer.write_eof()
        try:
            async with asyncio.timeout(BOUND):
                return await reader.read()
        finally:
            await closed(writer)

    async def ask_endpoint(self, data: bytes) -> bytes:
        return await self.ask(data, port=self.endpoint, eof=True)

    async def tunnel(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which CONNECT succeeded."""
        reader, writer = await self.open()
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        async with asyncio.timeout(BOUND):
            answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return reader, writer

    async def until_refused(self, port: int | None = None) -> None:
        """Connect until the proxy has come round to closing this listener."""
        async with asyncio.timeout(BOUND):
            with suppress(ConnectionRefusedError):
                while True:
                    with suppress(ConnectionResetError):
                        await self.ask(b"", port=port, eof=True)


@asynccontextmanager
async def proxied(
    *entries: str,
    names: Mapping[str, Sequence[str]] | None = None,
    resolve: Resolve | Literal["usual"] | None = None,
    allow_private: Sequence[str] = ("127.0.0.0/8",),
    caps: Caps | None = None,
    endpoint: tuple[str, int] | None = None,
) -> AsyncIterator[Proxy]:
    """A proxy with these rules; every name that is not mapped leads to 127.0.0.1.

    With an endpoint, what arrives at a second listener goes to that host and port.
    """

    async def mapped(host: str, port: int) -> list[Address]:
        return [ip_address(text) for text in (names or {}).get(host, ["127.0.0.1"])]

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 if endpoint else 1)]
    ports = [listener.getsockname()[1] for listener in listeners]
    proxy = Proxy(listeners[0], ports[0], ports[-1], listeners)
    endpoints = {}
    if endpoint is not None:
        endpoints[listeners[1]] = Endpoint("127.1.0.1", endpoint[1], endpoint[0])
    async with serve(
        listeners[0],
        parse_rules(entries),
        endpoints=endpoints,
        allow_private=allow_private,
        caps=caps,
        resolve=None if resolve == "usual" else resolve or mapped,
        on_connection=proxy.records.put_nowait,
    ):
        yield proxy


@asynccontextmanager
async def server(
    handler: Handler,
    ssl: SSLContext | None = None,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[int]:
    """The port of a server that hands each connection to `handler`."""
    busy: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            await closed(writer)

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        busy.add(task)
        task.add_done_callback(busy.discard)

    running = await asyncio.start_server(start, address, port, ssl=ssl)
    async with running:
        yield running.sockets[0].getsockname()[1]
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


async def on_loopback(host: str, port: int) -> list[Address]:
    """Resolve every name to this machine."""
    return [ip_address("127.0.0.1")]


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a stream, whatever the other side did to it."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back all that comes, until the other side is done."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A web server that answers one request with what it read."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        ),
        0,
    )
    body = head + await reader.readexactly(length)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reset the connection at the first byte."""
    await reader.readexactly(1)
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def take_connections(listener: socket.socket, open_one: Open) -> None:
    """Accept connections as a tool with a copy of the listener, and make the copy block."""
    with listener.dup() as copy:
        clients = [await open_one() for _ in range(20)]
        copy.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                copy.accept()[0].close()
        copy.setblocking(True)
        for _, writer in clients:
            await closed(writer)
        copy.listen()
