"""A proxy and servers on loopback, under names that the tests map."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from ssl import SSLContext
from typing import Literal

from toolkiln.model.network import parse_rules
from toolkiln.sandbox.network.addresses import Address
from toolkiln.sandbox.network.connection import Caps, ConnectionRecord
from toolkiln.sandbox.network.proxy import Resolve, serve

BOUND = 20.0
"""Seconds that anything may take before a test gives up."""

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Proxy:
    """A running proxy as a tool and the audit see it."""

    listener: socket.socket
    port: int
    records: asyncio.Queue[ConnectionRecord] = field(default_factory=asyncio.Queue)

    async def record(self) -> ConnectionRecord:
        """The next connection that is over."""
        async with asyncio.timeout(BOUND):
            return await self.records.get()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, data: bytes) -> bytes:
        """Everything that the proxy answers to these bytes."""
        reader, writer = await self.open()
        writer.write(data)
        try:
            async with asyncio.timeout(BOUND):
                return await reader.read()
        finally:
            await closed(writer)

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


def proxied(
    *entries: str,
    names: Mapping[str, Sequence[str]] | None = None,
    resolve: Resolve | Literal["usual"] | None = None,
    allow_private: Sequence[str] = ("127.0.0.0/8",),
    caps: Caps | None = None,
) -> AbstractAsyncContextManager[Proxy]:
    """A proxy with these rules; every name that is not mapped leads to 127.0.0.1."""

    async def mapped(host: str, port: int) -> list[Address]:
        return [ip_address(text) for text in (names or {}).get(host, ["127.0.0.1"])]

    @asynccontextmanager
    async def running() -> AsyncIterator[Proxy]:
        listener = socket.create_server(("127.0.0.1", 0))
        proxy = Proxy(listener, listener.getsockname()[1])
        async with serve(
            listener,
            parse_rules(entries),
            allow_private=allow_private,
            caps=caps,
            resolve=None if resolve == "usual" else resolve or mapped,
            on_connection=proxy.records.put_nowait,
        ):
            yield proxy

    return running()


@asynccontextmanager
async def server(handler: Handler, ssl: SSLContext | None = None) -> AsyncIterator[int]:
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

    running = await asyncio.start_server(start, "127.0.0.1", 0, ssl=ssl)
    async with running:
        yield running.sockets[0].getsockname()[1]
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


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
