"""Endpoints: a listener leads to one granted host and port, whatever is said to it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest

from sandbox.network.loopback import BOUND, closed, echo, server
from toolkiln.model.network import HostRules, parse_rules
from toolkiln.sandbox.network.addresses import Address, Endpoint, hosts_file, plan_endpoints
from toolkiln.sandbox.network.connection import Caps, ConnectionOutcome, ConnectionRecord
from toolkiln.sandbox.network.proxy import serve


@dataclass
class Guarded:
    """A guard with a proxy listener and one endpoint."""

    proxy: int
    endpoint: int
    records: asyncio.Queue[ConnectionRecord] = field(default_factory=asyncio.Queue)
    listeners: list[socket.socket] = field(default_factory=list)

    async def record(self) -> ConnectionRecord:
        async with asyncio.timeout(BOUND):
            return await self.records.get()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.endpoint)

    async def ask(self, data: bytes, *, port: int | None = None) -> bytes:
        """Send bytes to the endpoint, or to another port, and read until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.endpoint)
        writer.write(data)
        writer.write_eof()
        try:
            async with asyncio.timeout(BOUND):
                return await reader.read()
        finally:
            await closed(writer)


@asynccontextmanager
async def guarded(
    host: str,
    port: int,
    *,
    rules: HostRules | None = None,
    addresses: Sequence[str] = ("127.0.0.1",),
    allow_private: Sequence[str] = ("127.0.0.0/8",),
    caps: Caps | None = None,
) -> AsyncIterator[Guarded]:
    answers = iter([*addresses, *[addresses[-1]] * 100])

    async def resolve(host: str, port: int) -> list[Address]:
        return [ip_address(next(answers))]

    listener, direct = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    proxy, endpoint = (each.getsockname()[1] for each in (listener, direct))
    guard = Guarded(proxy, endpoint, listeners=[listener, direct])
    async with serve(
        listener,
        rules or parse_rules([f"{host}:{port}"]),
        endpoints={direct: Endpoint("127.1.0.1", port, host)},
        allow_private=allow_private,
        caps=caps,
        resolve=resolve,
        on_connection=guard.records.put_nowait,
    ):
        yield guard


# What is planned


def test_every_host_gets_an_address_and_every_port_an_endpoint() -> None:
    rules = parse_rules(["b.example", "a.example:5432", "localhost:6379", "b.example:8443"])

    endpoints = plan_endpoints(rules)

    assert endpoints == (
        ("127.1.0.1", 80, "b.example"),
        ("127.1.0.1", 443, "b.example"),
        ("127.1.0.1", 8443, "b.example"),
        ("127.1.0.2", 5432, "a.example"),
        ("127.0.0.1", 6379, "localhost"),
    )
    assert hosts_file(endpoints) == (
        "127.1.0.1 b.example\n127.1.0.2 a.example\n127.0.0.1 localhost\n"
    )


def test_wildcards_get_none() -> None:
    assert plan_endpoints(parse_rules(["*.example.org:443"])) == ()
    assert hosts_file(()) == ""


def test_their_number_is_bounded() -> None:
    endpoints = plan_endpoints(parse_rules(f"h{number}.example" for number in range(1000)))

    assert len(endpoints) == 32
    assert len({(each.address, each.port) for each in endpoints}) == 32


# What passes


async def test_bytes_pass_unchanged_in_both_directions() -> None:
    data = bytes(range(256)) * 1000
    async with server(echo) as port, guarded("a.example", port) as guard:
        answer = await guard.ask(data)
        record = await guard.record()

    assert answer == data
    assert (record.host, record.port, record.address) == ("a.example", port, "127.0.0.1")
    assert (record.outcome, record.bytes_up, record.bytes_down) == (
        ConnectionOutcome.ALLOWED, len(data), len(data),
    )  # fmt: skip


async def test_a_server_that_speaks_first_is_heard() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await writer.drain()
        await reader.read()

    async with server(greet) as port, guarded("a.example", port) as guard:
        reader, writer = await guard.open()
        async with asyncio.timeout(BOUND):
            assert await reader.readline() == b"220 hello\r\n"
        await closed(writer)


@pytest.mark.parametrize(
    "said",
    [
        b"CONNECT b.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
        b"\x05\x01\x00\x05\x01\x00\x03\x09b.example\x01\xbb",  # SOCKS 5
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1 443\r\n",
    ],
)
async def test_what_is_said_to_an_endpoint_does_not_choose_the_host(said: bytes) -> None:
    async with server(echo) as port, guarded("a.example", port) as guard:
        answer = await guard.ask(said)
        record = await guard.record()

    assert answer == said  # as the granted host, an echo, sent it back
    assert (record.host, record.port, record.outcome) == (
        "a.example",
        port,
        ConnectionOutcome.ALLOWED,
    )


async def test_the_proxy_beside_an_endpoint_wants_proxy_requests() -> None:
    async with server(echo) as port, guarded("a.example", port) as guard:
        answer = await guard.ask(b"hello\r\n\r\n", port=guard.proxy)
        record = await guard.record()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert record.outcome is ConnectionOutcome.REFUSED


# What does not


async def test_an_endpoint_that_no_rule_covers_leads_nowhere() -> None:
    async with server(echo) as port:
        rules = parse_rules([f"other.example:{port}"])
        async with guarded("a.example", port, rules=rules) as guard:
            with pytest.raises(ConnectionResetError):
                await guard.ask(b"hello")
            record = await guard.record()

    assert (record.outcome, record.host) == (ConnectionOutcome.REFUSED, "a.example")
    assert "is not granted" in record.reason


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_a_name_that_leads_inside_resets_the_connection(address: str) -> None:
    async with server(echo) as port:
        inside = guarded("a.example", port, addresses=[address], allow_private=())
        async with inside as guard:
            with pytest.raises(ConnectionResetError):
                await guard.ask(b"hello")
            record = await guard.record()

    assert (record.outcome, record.address) == (ConnectionOutcome.REFUSED, address)


async def test_a_name_that_is_rebound_between_connections_is_judged_each_time() -> None:
    async with server(echo) as port:
        rebound = guarded(
            "a.example", port, addresses=["127.0.0.1", "10.0.0.1"], allow_private=["127.0.0.1"]
        )
        async with rebound as guard:
            first = await guard.ask(b"hello")
            with pytest.raises(ConnectionResetError):
                await guard.ask(b"hello")
            outcomes = [(await guard.record()).outcome for _ in range(2)]

    assert first == b"hello"
    assert outcomes == [ConnectionOutcome.ALLOWED, ConnectionOutcome.REFUSED]


async def test_granting_localhost_allows_loopback_and_no_other_private_address() -> None:
    async with server(echo) as port:
        async with guarded("localhost", port, allow_private=()) as guard:
            assert await guard.ask(b"hello") == b"hello"
        elsewhere = guarded("localhost", port, addresses=["10.0.0.1"], allow_private=())
        async with elsewhere as guard:
            with pytest.raises(ConnectionResetError):
                await guard.ask(b"hello")
            record = await guard.record()

    assert record.outcome is ConnectionOutcome.REFUSED


async def test_a_host_that_does_not_accept_resets_the_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with guarded("a.example", port) as guard:
            with pytest.raises(ConnectionResetError):
                await guard.ask(b"hello")
            record = await guard.record()

    assert (record.outcome, record.reason) == (
        ConnectionOutcome.FAILED, f"no connection to a.example:{port}",
    )  # fmt: skip


async def test_a_host_that_resets_is_no_end_of_what_it_sent() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with server(reset) as port, guarded("a.example", port) as guard:
        reader, writer = await guard.open()
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(BOUND):
                await reader.read()
        await closed(writer)
        record = await guard.record()

    assert (record.outcome, record.reason) == (
        ConnectionOutcome.ALLOWED,
        "the connection was reset",
    )


# Caps hold for endpoints and proxy together


async def test_connections_are_counted_together_with_those_of_the_proxy() -> None:
    caps = Caps(at_once=2)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        _, half_open = await guard.open()
        _, asking = await asyncio.open_connection("127.0.0.1", guard.proxy)
        with pytest.raises(ConnectionResetError):
            await guard.ask(b"hello")
        record = await guard.record()
        for writer in (half_open, asking):
            await closed(writer)

    assert (record.outcome, record.host) == (ConnectionOutcome.LIMITED, "a.example")


async def test_too_many_connections_close_every_listener() -> None:
    caps = Caps(connections=3)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        for _ in range(3):
            assert await guard.ask(b"hello") == b"hello"
        with pytest.raises(ConnectionResetError):
            await guard.ask(b"hello")
        async with asyncio.timeout(BOUND):
            for listener in (guard.proxy, guard.endpoint):
                while True:  # until the guard has come round to it
                    try:
                        with suppress(ConnectionResetError):
                            await guard.ask(b"", port=listener)
                    except ConnectionRefusedError:
                        break

    assert {listener.fileno() for listener in guard.listeners} == {-1}


async def test_a_cap_on_bytes_resets_the_connection() -> None:
    caps = Caps(bytes_up=10)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        with pytest.raises(ConnectionResetError):
            await guard.ask(bytes(11))
        record = await guard.record()

    assert (record.outcome, record.reason) == (ConnectionOutcome.LIMITED, "more than 10 bytes up")


async def test_a_connection_that_says_nothing_is_closed() -> None:
    caps = Caps(idle_seconds=0.05)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        reader, writer = await guard.open()
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(BOUND):
                await reader.read()
        await closed(writer)
        record = await guard.record()

    assert (record.outcome, record.reason) == (ConnectionOutcome.LIMITED, "idle for 0.05 s")


async def test_the_end_of_the_call_cuts_what_is_open_and_closes_every_listener() -> None:
    async with server(echo) as port:
        async with guarded("a.example", port) as guard:
            reader, writer = await guard.open()
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
        record = await guard.record()
        await closed(writer)

    assert record.outcome is ConnectionOutcome.CUT
    assert {listener.fileno() for listener in guard.listeners} == {-1}


async def test_a_tool_that_shuts_one_listener_keeps_the_others() -> None:
    async with server(echo) as port, guarded("a.example", port) as guard:
        with guard.listeners[0].dup() as copy:
            copy.shutdown(socket.SHUT_RDWR)

        assert await guard.ask(b"hello") == b"hello"


async def test_a_tool_that_takes_connections_itself_does_not_stop_the_loop() -> None:
    async with (
        asyncio.timeout(BOUND),
        server(echo) as port,
        guarded("a.example", port) as guard,
    ):
        with guard.listeners[1].dup() as copy:
            clients = [await guard.open() for _ in range(20)]
            copy.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    copy.accept()[0].close()
            copy.setblocking(True)
            for _, writer in clients:
                await closed(writer)
            copy.listen()

    assert {listener.fileno() for listener in guard.listeners} == {-1}
