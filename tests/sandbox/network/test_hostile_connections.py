"""Hostile clients of the proxy: caps, floods, garbage, and attacks through the listener."""

import asyncio
import logging
import random
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.network import loopback
from sandbox.network.loopback import BOUND, Handler, closed, echo, greet, proxied, server
from tables import each_row
from toolkiln.model.network import parse_rules
from toolkiln.sandbox.network.addresses import Address
from toolkiln.sandbox.network.connection import Caps, ConnectionOutcome, ConnectionRecord
from toolkiln.sandbox.network.proxy import serve


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send without end."""
    while True:
        writer.write(bytes(65536))
        await writer.drain()


# Caps


@each_row(
    "caps, handler, sent, reason",
    [
        (Caps(bytes_up=1000), echo, 1001, "more than 1000 bytes up"),
        (Caps(bytes_down=100_000), flood, 0, "more than 100000 bytes down"),
        (Caps(seconds=0.1), flood, 0, "open for 0.1 s"),
    ],
)
async def test_bytes_and_time_of_a_tunnel_are_capped(
    caps: Caps, handler: Handler, sent: int, reason: str
) -> None:
    async with server(handler) as port, proxied(f"a.example:{port}", caps=caps) as proxy:
        reader, writer = await proxy.tunnel("a.example", port)
        writer.write(bytes(sent))
        with suppress(ConnectionResetError):
            while await reader.read(65536):
                pass
        await closed(writer)
        record = await proxy.record()

    assert (record.outcome, record.reason) == (ConnectionOutcome.LIMITED, reason)
    assert record.bytes_up <= caps.bytes_up
    assert record.bytes_down <= caps.bytes_down


async def test_exactly_as_many_bytes_as_allowed_pass() -> None:
    caps = Caps(bytes_up=1000, bytes_down=1000, bytes_total=2000)
    async with server(echo) as port, proxied(f"a.example:{port}", caps=caps) as proxy:
        reader, writer = await proxy.tunnel("a.example", port)
        writer.write(bytes(1000))
        writer.write_eof()
        answer = await reader.read()
        await closed(writer)
        record = await proxy.record()

    assert answer == bytes(1000)
    assert record.outcome is ConnectionOutcome.ALLOWED


async def test_the_bytes_of_all_connections_together_are_capped() -> None:
    caps = Caps(bytes_total=100)
    async with server(echo) as port, proxied(f"a.example:{port}", caps=caps) as proxy:
        for _ in range(2):
            reader, writer = await proxy.tunnel("a.example", port)
            writer.write(bytes(40))
            with suppress(asyncio.IncompleteReadError, ConnectionResetError):
                await reader.readexactly(40)
            await closed(writer)
        records = [await proxy.record(), await proxy.record()]

    outcomes = [record.outcome for record in records]
    assert outcomes == [ConnectionOutcome.ALLOWED, ConnectionOutcome.LIMITED]
    assert records[1].reason == "more than 100 bytes in total"


async def test_more_connections_at_once_than_allowed_are_turned_away() -> None:
    async with proxied(caps=Caps(at_once=2)) as proxy:
        held = [await proxy.open() for _ in range(2)]
        answer = await proxy.ask(b"")
        record = await proxy.record()
        for _, writer in held:
            await closed(writer)
        for _ in held:
            await proxy.record()
        again = await proxy.ask(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 503 toolkiln: limit of 2 open connections reached")
    assert record.outcome is ConnectionOutcome.LIMITED
    assert again.startswith(b"HTTP/1.1 403 ")


async def test_more_connections_in_all_than_allowed_close_the_listener() -> None:
    async with proxied(caps=Caps(connections=3)) as proxy:
        for _ in range(3):
            _, writer = await proxy.open()
            await closed(writer)
            await proxy.record()
        answer = await proxy.ask(b"")
        record = await proxy.record()
        await proxy.until_refused()

    assert b"limit of 3 connections reached" in answer
    assert record.outcome is ConnectionOutcome.LIMITED


async def test_an_idle_tunnel_is_closed() -> None:
    caps = Caps(idle_seconds=0.05)
    async with server(echo) as port, proxied(f"a.example:{port}", caps=caps) as proxy:
        reader, writer = await proxy.tunnel("a.example", port)
        async with asyncio.timeout(BOUND):
            assert await reader.read() == b""
        await closed(writer)
        record = await proxy.record()

    assert (record.outcome, record.reason) == (ConnectionOutcome.LIMITED, "idle for 0.05 s")


async def test_a_tool_that_does_not_read_is_idle() -> None:
    caps = Caps(idle_seconds=0.3)
    async with server(flood) as port, proxied(f"a.example:{port}", caps=caps) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % port)
            record = await proxy.record()

    assert (record.outcome, record.reason) == (ConnectionOutcome.LIMITED, "idle for 0.3 s")


@each_row("filler", [b"a", b"\nX: y", b"\x00", b"y\r\nX: "])
async def test_a_head_without_end_is_refused(filler: bytes) -> None:
    async with proxied(caps=Caps(head_bytes=4096)) as proxy:
        answer = await proxy.ask(b"GET http://a.example/ HTTP/1.1\r\nA: " + filler * 5000)
        record = await proxy.record()

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert record.outcome is ConnectionOutcome.LIMITED


async def test_a_head_that_never_ends_is_given_up() -> None:
    async with proxied(caps=Caps(head_seconds=0.05)) as proxy:
        answer = await proxy.ask(b"GET http://a.exam")
        record = await proxy.record()

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert (record.outcome, record.host) == (ConnectionOutcome.LIMITED, "")


# The end


async def test_the_end_of_the_call_cuts_what_is_open() -> None:
    async with server(echo) as port:
        async with proxied(f"a.example:{port}") as proxy:
            reader, writer = await proxy.tunnel("a.example", port)
        record = await proxy.record()

        assert await reader.read() == b""
        await closed(writer)

    assert (record.outcome, record.host) == (ConnectionOutcome.CUT, "a.example")
    with pytest.raises(ConnectionRefusedError):
        await proxy.open()


async def test_a_refusal_stays_one_if_the_call_ends_meanwhile() -> None:
    async with proxied() as proxy:
        reader, writer = await proxy.open()
        writer.write(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")  # and keep it open
    record = await proxy.record()
    await closed(writer)

    assert record.outcome is ConnectionOutcome.REFUSED


async def test_cancelling_the_call_ends_the_proxy() -> None:
    started = asyncio.get_running_loop().create_future()

    async def call() -> None:
        async with proxied() as proxy:
            _, writer = await proxy.open()
            started.set_result(proxy)
            try:
                await asyncio.Event().wait()
            finally:
                await closed(writer)

    before = asyncio.all_tasks()
    task = asyncio.create_task(call())
    proxy = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.all_tasks() == before
    assert proxy.listener.fileno() == -1


def test_the_end_of_the_loop_ends_the_proxy() -> None:
    """All tasks are cancelled at once then, the proxy's own before the call's."""

    async def call() -> None:
        async with proxied():
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        assert not task.done()

    before = threading.active_count()
    asyncio.run(main())

    for thread in threading.enumerate():
        if thread.name.startswith("toolkiln-accept"):
            thread.join(BOUND)
    assert threading.active_count() <= before


# Faults around it


async def test_a_failing_record_callback_does_not_stop_the_proxy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = []

    def take(record: ConnectionRecord) -> None:
        taken.append(record)
        raise RuntimeError("the disk is full")

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with serve(listener, parse_rules([]), on_connection=take):
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
            await reader.read()
            await closed(writer)

    assert len(taken) == 2
    assert "could not be reported" in caplog.text


async def test_an_internal_error_ends_one_connection_and_quotes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def resolve(host: str, port: int) -> list[Address]:
        raise KeyError(host)

    caplog.set_level(logging.DEBUG)
    async with proxied("secret.example", resolve=resolve) as proxy:
        for _ in range(2):
            await proxy.ask(b"CONNECT secret.example:443 HTTP/1.1\r\n\r\n")
        records = [await proxy.record(), await proxy.record()]

    assert {record.outcome for record in records} == {ConnectionOutcome.FAILED}
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_host_that_resets_is_not_reported_as_a_failure() -> None:
    async with server(loopback.reset) as port, proxied(f"a.example:{port}") as proxy:
        reader, writer = await proxy.tunnel("a.example", port)
        writer.write(b"x")
        with suppress(ConnectionResetError):
            await reader.read()
        await closed(writer)
        record = await proxy.record()

    assert record.outcome is ConnectionOutcome.ALLOWED
    assert record.reason == "the connection was reset"


# The listener as a weapon: its copy in the sandbox shares flags, options and queue


async def test_a_tool_that_makes_the_listener_non_blocking_is_still_served() -> None:
    async with proxied() as proxy:
        with proxy.listener.dup() as copy:
            copy.setblocking(False)
            for _ in range(3):
                answer = await proxy.ask(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")

                assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_tool_that_takes_connections_itself_does_not_stop_the_loop() -> None:
    async with asyncio.timeout(BOUND), proxied() as proxy:
        await loopback.take_connections(proxy.listener, proxy.open)

    assert proxy.listener.fileno() == -1


async def test_a_tool_that_shuts_its_listener_loses_its_network() -> None:
    async with proxied() as proxy:
        with proxy.listener.dup() as copy:
            copy.shutdown(socket.SHUT_RDWR)

            with pytest.raises(ConnectionRefusedError):
                await proxy.open()


async def test_a_tool_cannot_make_closing_wait_for_it() -> None:
    caps = Caps(idle_seconds=0.2)
    rescued = threading.Event()
    async with server(flood) as port, proxied(f"a.example:{port}", caps=caps) as proxy:
        with proxy.listener.dup() as copy:
            hour = struct.pack("ii", 1, 3600)
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hour)
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:

            def let_go() -> None:
                rescued.set()
                client.close()

            rescue = threading.Timer(BOUND, let_go)  # a stopped loop could not fail by itself
            rescue.start()
            client.sendall(b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % port)
            record = await proxy.record()
            rescue.cancel()
            rescue.join()

    assert record.outcome is ConnectionOutcome.LIMITED
    assert not rescued.is_set()


# Everything at once


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def misbehave(proxy: int, granted: int, seed: int) -> None:
    """Open a connection and do one of many wrong things to it."""
    chance = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
    tunnel = b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % granted
    plain = b"POST http://a.example:%d/ HTTP/1.1\r\nContent-Length: 50\r\n\r\n" % granted
    sent = chance.choice(
        [
            b"", chance.randbytes(3000), b"\r\n\r\n", b"CONNECT " + b"a" * 40_000,
            b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % granted,
            b"CONNECT a.example:1 HTTP/1.1\r\n\r\n",
            tunnel, tunnel + chance.randbytes(3000), tunnel + bytes(400_000),
            plain, plain + bytes(50), plain + bytes(5000),
            tunnel[: chance.randrange(len(tunnel))],
        ]
    )  # fmt: skip
    with suppress(OSError):
        writer.write(sent)
        await asyncio.wait_for(writer.drain(), BOUND)
    match chance.randrange(4):
        case 0:
            linger = struct.pack("ii", 1, 0)
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        case 1:
            with suppress(OSError):
                writer.write_eof()
        case 2:
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(reader.read(100), 0.05)
    await closed(writer)


async def test_two_hundred_hostile_connections_leave_nothing_behind() -> None:
    caps = Caps(at_once=20, bytes_up=300_000, idle_seconds=0.5, head_seconds=0.5)
    async with server(echo) as port:
        tasks, threads, fds = asyncio.all_tasks(), threading.active_count(), descriptors()
        async with proxied(f"a.example:{port}", "a.example:1", caps=caps) as proxy:
            await asyncio.gather(*(misbehave(proxy.port, port, seed) for seed in range(200)))
            outcomes = Counter([(await proxy.record()).outcome for _ in range(200)])
            held = [await proxy.open() for _ in range(5)]
            answer = await proxy.ask(b"CONNECT 10.0.0.1:1 HTTP/1.1\r\n\r\n")
        for _, writer in held:
            await closed(writer)
        outcomes.update([(await proxy.record()).outcome for _ in range(6)])
        async with asyncio.timeout(BOUND):
            while (
                asyncio.all_tasks() != tasks
                or descriptors() != fds
                or threading.active_count() > threads
            ):
                await asyncio.sleep(0)  # until the server has let go of its side

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert proxy.records.empty()
    assert set(outcomes) == set(ConnectionOutcome)


async def test_many_proxies_one_after_another_leave_nothing_behind() -> None:
    async with server(greet) as port:
        fds, threads = descriptors(), threading.active_count()
        for _ in range(50):
            async with proxied(f"a.example:{port}") as proxy:
                answer = await proxy.ask(b"GET http://a.example:%d/ HTTP/1.1\r\n\r\n" % port)
                assert answer.startswith(b"HTTP/1.1 200 ")
        async with asyncio.timeout(BOUND):
            while descriptors() != fds or threading.active_count() > threads:
                await asyncio.sleep(0)
