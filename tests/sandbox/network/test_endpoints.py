"""Endpoints: a listener leads to one granted host and port, whatever data it receives."""

import asyncio
import socket
from contextlib import AbstractAsyncContextManager
from functools import partial
from ipaddress import ip_address
from typing import Any

import pytest

from sandbox.network import loopback
from sandbox.network.loopback import BOUND, Proxy, closed, echo, proxied, server
from tables import each_row
from toolkiln.model.network import parse_rules
from toolkiln.sandbox.network.addresses import Address, hosts_file, plan_endpoints
from toolkiln.sandbox.network.connection import Caps, ConnectionOutcome


def guarded(
    host: str, port: int, *entries: str, **options: Any
) -> AbstractAsyncContextManager[Proxy]:
    """A proxy with an endpoint for this host and port, which the rules grant unless they differ."""
    return proxied(*(entries or [f"{host}:{port}"]), endpoint=(host, port), **options)


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
        answer = await guard.ask_endpoint(data)
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
        reader, writer = await guard.open(guard.endpoint)
        async with asyncio.timeout(BOUND):
            assert await reader.readline() == b"220 hello\r\n"
        await closed(writer)


@each_row(
    "said",
    [
        b"CONNECT b.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
        b"\x05\x01\x00\x05\x01\x00\x03\x09b.example\x01\xbb",  # SOCKS 5
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1 443\r\n",
    ],
)
async def test_data_sent_to_an_endpoint_does_not_choose_the_host(said: bytes) -> None:
    async with server(echo) as port, guarded("a.example", port) as guard:
        answer = await guard.ask_endpoint(said)
        record = await guard.record()

    assert answer == said  # as the granted host, an echo, sent it back
    assert (record.host, record.port) == ("a.example", port)
    assert record.outcome is ConnectionOutcome.ALLOWED


async def test_the_proxy_beside_an_endpoint_wants_proxy_requests() -> None:
    async with server(echo) as port, guarded("a.example", port) as guard:
        answer = await guard.ask(b"hello\r\n\r\n", port=guard.port, eof=True)
        record = await guard.record()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert record.outcome is ConnectionOutcome.REFUSED


# What does not


INSIDE = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"]


@each_row(
    "host, address, options, outcome, reason",
    [
        *[("a.example", inside, {}, ConnectionOutcome.REFUSED, "not public") for inside in INSIDE],
        ("localhost", "10.0.0.1", {}, ConnectionOutcome.REFUSED, "not public"),
        ("a.example", "127.0.0.9", {"allow_private": ["127.0.0.9"]},
         ConnectionOutcome.FAILED, "no connection to a.example:"),
        ("a.example", "127.0.0.1", {"allow_private": ["127.0.0.1"], "caps": Caps(bytes_up=10)},
         ConnectionOutcome.LIMITED, "more than 10 bytes up"),
    ],
)  # fmt: skip
async def test_what_an_endpoint_may_not_do_resets_the_connection(
    host: str, address: str, options: dict[str, Any], outcome: ConnectionOutcome, reason: str
) -> None:
    options = {"names": {host: [address]}, "allow_private": (), **options}
    async with server(echo) as port, guarded(host, port, **options) as guard:
        with pytest.raises(ConnectionResetError):
            await guard.ask_endpoint(bytes(11))
        record = await guard.record()

    assert (record.host, record.port, record.address) == (host, port, address)
    assert record.outcome is outcome
    assert reason in record.reason


async def test_an_endpoint_that_no_rule_covers_is_refused() -> None:
    async with server(echo) as port, guarded("a.example", port, "other.example") as guard:
        with pytest.raises(ConnectionResetError):
            await guard.ask_endpoint(b"hello")
        record = await guard.record()

    assert (record.outcome, record.host) == (ConnectionOutcome.REFUSED, "a.example")
    assert "is not granted" in record.reason


async def test_granting_localhost_allows_loopback() -> None:
    async with server(echo) as port, guarded("localhost", port, allow_private=()) as guard:
        assert await guard.ask_endpoint(b"hello") == b"hello"


async def test_a_name_that_is_rebound_between_connections_is_judged_each_time() -> None:
    answers = iter(["127.0.0.1", "10.0.0.1"])

    async def rebind(host: str, port: int) -> list[Address]:
        return [ip_address(next(answers))]

    async with server(echo) as port:
        rebound = guarded("a.example", port, resolve=rebind, allow_private=["127.0.0.1"])
        async with rebound as guard:
            first = await guard.ask_endpoint(b"hello")
            with pytest.raises(ConnectionResetError):
                await guard.ask_endpoint(b"hello")
            outcomes = [(await guard.record()).outcome for _ in range(2)]

    assert first == b"hello"
    assert outcomes == [ConnectionOutcome.ALLOWED, ConnectionOutcome.REFUSED]


async def test_a_host_that_resets_is_no_end_of_what_it_sent() -> None:
    async with server(loopback.reset) as port, guarded("a.example", port) as guard:
        reader, writer = await guard.open(guard.endpoint)
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(BOUND):
                await reader.read()
        await closed(writer)
        record = await guard.record()

    assert record.outcome is ConnectionOutcome.ALLOWED
    assert record.reason == "the connection was reset"


# Caps hold for endpoints and proxy together


async def test_connections_are_counted_together_with_those_of_the_proxy() -> None:
    caps = Caps(at_once=2)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        _, half_open = await guard.open(guard.endpoint)
        _, asking = await guard.open()
        with pytest.raises(ConnectionResetError):
            await guard.ask_endpoint(b"hello")
        record = await guard.record()
        for writer in (half_open, asking):
            await closed(writer)

    assert (record.outcome, record.host) == (ConnectionOutcome.LIMITED, "a.example")


async def test_too_many_connections_close_every_listener() -> None:
    caps = Caps(connections=3)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        for _ in range(3):
            assert await guard.ask_endpoint(b"hello") == b"hello"
        with pytest.raises(ConnectionResetError):
            await guard.ask_endpoint(b"hello")
        for listener in (guard.port, guard.endpoint):
            await guard.until_refused(listener)

    assert {listener.fileno() for listener in guard.listeners} == {-1}


async def test_a_silent_connection_is_closed() -> None:
    caps = Caps(idle_seconds=0.05)
    async with server(echo) as port, guarded("a.example", port, caps=caps) as guard:
        reader, writer = await guard.open(guard.endpoint)
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(BOUND):
                await reader.read()
        await closed(writer)
        record = await guard.record()

    assert (record.outcome, record.reason) == (ConnectionOutcome.LIMITED, "idle for 0.05 s")


async def test_the_end_of_the_call_cuts_what_is_open_and_closes_every_listener() -> None:
    async with server(echo) as port:
        async with guarded("a.example", port) as guard:
            reader, writer = await guard.open(guard.endpoint)
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

        assert await guard.ask_endpoint(b"hello") == b"hello"


async def test_a_tool_that_takes_connections_itself_does_not_stop_the_loop() -> None:
    async with (
        asyncio.timeout(BOUND),
        server(echo) as port,
        guarded("a.example", port) as guard,
    ):
        await loopback.take_connections(guard.listeners[1], partial(guard.open, guard.endpoint))

    assert {listener.fileno() for listener in guard.listeners} == {-1}
