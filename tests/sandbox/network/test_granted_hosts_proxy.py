"""What passes through the proxy, what does not, and its responses and records."""

import asyncio
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from sandbox.network.loopback import BOUND, closed, echo, greet, proxied, server
from sandbox.services import self_signed
from tables import each_row
from toolkiln.errors import InputError
from toolkiln.sandbox.network.access import proxy_environment
from toolkiln.sandbox.network.addresses import Address
from toolkiln.sandbox.network.connection import Caps, ConnectionOutcome


async def script(source: str, *arguments: str, port: int) -> str:
    """What a Python program prints that only has the proxy's variables."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", source, *arguments,
        env=proxy_environment(port), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(BOUND):
        out, _ = await process.communicate()
    return out.decode()


# What is granted


async def test_a_tunnel_carries_bytes_both_ways_and_is_recorded() -> None:
    async with server(echo) as port, proxied(f"echo.example:{port}") as proxy:
        reader, writer = await proxy.tunnel("echo.example", port)
        writer.write(b"hello")
        answer = await reader.readexactly(5)
        await closed(writer)
        record = await proxy.record()

    assert answer == b"hello"
    assert (record.host, record.port, record.address) == ("echo.example", port, "127.0.0.1")
    assert (record.outcome, record.reason) == (ConnectionOutcome.ALLOWED, "")
    assert (record.bytes_up, record.bytes_down) == (5, 5)
    assert record.seconds >= 0


async def test_a_tunnel_carries_more_than_the_buffers_hold() -> None:
    data = bytes(range(256)) * 20_000
    async with server(echo) as port, proxied(f"echo.example:{port}") as proxy:
        reader, writer = await proxy.tunnel("echo.example", port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(BOUND):
            answer = await reader.read()
        await closed(writer)

    assert answer == data


async def test_one_side_of_a_tunnel_can_end_before_the_other() -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got %d" % len(await reader.read()))

    async with server(answer_at_the_end) as port, proxied(f"a.example:{port}") as proxy:
        reader, writer = await proxy.open()
        writer.write(b"CONNECT a.example:%d HTTP/1.1\r\n\r\nearly" % port)
        writer.write(b" and late")
        writer.write_eof()
        answer = await reader.read()
        await closed(writer)

    assert answer.endswith(b"\r\n\r\ngot 14")


async def test_urllib_reaches_granted_hosts_by_the_variables_and_loopback_directly() -> None:
    send = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], b'body').read())"
    source = """
import sys, urllib.request as u
for url in sys.argv[1:]:
    try: print(u.urlopen(url).status)
    except OSError as error: print(error)
"""
    others = ("http://other.example/", "https://other.example:8443/")
    async with server(greet) as port, proxied(f"web.example:{port}") as proxy:
        page = await script(send, f"http://web.example:{port}/a?b", port=proxy.port)
        records = [await proxy.record()]  # made when the connection ends
        urls = (*others, f"http://127.0.0.1:{port}/")
        plain, secure, direct = (await script(source, *urls, port=proxy.port)).splitlines()
        records += [await proxy.record() for _ in range(2)]

    assert f"POST /a?b HTTP/1.1\\r\\nHost: web.example:{port}" in page
    assert "Connection: close" in page
    assert "body" in page
    assert (
        'other.example:80 is not granted; declare it with @tool(network=["other.example"])' in plain
    )
    assert '8443 is not granted; declare it with @tool(network=["other.example:8443"])' in secure
    assert direct == "200"
    assert [(r.host, r.port, r.outcome) for r in records] == [
        ("web.example", port, ConnectionOutcome.ALLOWED),
        ("other.example", 80, ConnectionOutcome.REFUSED),
        ("other.example", 8443, ConnectionOutcome.REFUSED),
    ]


async def test_tls_is_end_to_end(tmp_path: Path) -> None:
    _, context = self_signed(tmp_path, "web.example")
    source = """
import ssl, sys, urllib.request as u
context = ssl.create_default_context(cafile=sys.argv[2])
print(u.urlopen(sys.argv[1], context=context).read())
"""
    async with server(greet, context) as port, proxied(f"web.example:{port}") as proxy:
        url = f"https://web.example:{port}/secret"
        out = await script(source, url, str(tmp_path / "web.example.pem"), port=proxy.port)

    assert "GET /secret HTTP/1.1" in out


async def test_the_usual_lookup_finds_a_host() -> None:
    async with (
        server(echo) as port,
        proxied(f"localhost:{port}", resolve="usual", allow_private=["127.0.0.1", "::1"]) as proxy,
    ):
        _, writer = await proxy.tunnel("LOCALHOST", port)
        await closed(writer)
        record = await proxy.record()

    assert record.outcome is ConnectionOutcome.ALLOWED


# Where names lead to


@each_row(
    "address",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0",
     "2002:7f00:1::"],
)  # fmt: skip
async def test_a_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    async with server(echo) as port:
        inside = proxied(
            f"a.example:{port}", names={"a.example": [address]}, allow_private=["10.9.0.0/16"]
        )
        async with inside as proxy:
            answer = await proxy.ask(b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % port)
            record = await proxy.record()

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert address.encode() not in answer
    assert record.outcome is ConnectionOutcome.REFUSED
    assert record.address in {address, "127.0.0.1"}


async def test_a_host_is_looked_up_once_and_that_address_is_used() -> None:
    asked = []

    async def rebinding(host: str, port: int) -> list[Address]:
        asked.append(host)
        return [ip_address("127.0.0.1" if len(asked) == 1 else "169.254.169.254")]

    async with server(greet) as port, proxied(f"a.example:{port}", resolve=rebinding) as proxy:
        first = await proxy.ask(b"GET http://a.example:%d/ HTTP/1.1\r\n\r\n" % port)
        second = await proxy.ask(b"GET http://a.example:%d/ HTTP/1.1\r\n\r\n" % port)

    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 403 ")
    assert asked == ["a.example"] * 2


async def test_only_the_addresses_that_may_be_reached_are_tried() -> None:
    names = {"a.example": ["10.0.0.1", "127.0.0.9", "127.0.0.1"]}
    async with server(echo) as port, proxied(f"a.example:{port}", names=names) as proxy:
        _, writer = await proxy.tunnel("a.example", port)
        await closed(writer)
        record = await proxy.record()

    assert record.address == "127.0.0.1"


async def test_a_name_that_is_not_granted_is_not_even_looked_up() -> None:
    asked = []

    async def resolve(host: str, port: int) -> list[Address]:
        asked.append(host)
        return []

    async with proxied("a.example", resolve=resolve) as proxy:
        answer = await proxy.ask(b"CONNECT secret.data.example:443 HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert asked == []


@each_row("found", [True, False])
async def test_a_host_that_does_not_answer_is_a_failure_not_a_refusal(found: bool) -> None:
    async def resolve(host: str, port: int) -> list[Address]:
        if found:
            return [ip_address("127.0.0.1")]
        raise OSError("no such host")

    async with server(echo) as unused:
        pass
    async with proxied(f"a.example:{unused}", resolve=resolve) as proxy:
        answer = await proxy.ask(b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % unused)
        record = await proxy.record()

    assert answer.startswith(b"HTTP/1.1 502 ")
    assert record.outcome is ConnectionOutcome.FAILED


async def test_a_lookup_that_takes_too_long_is_given_up() -> None:
    async def resolve(host: str, port: int) -> list[Address]:
        await asyncio.Event().wait()
        return []

    async with proxied("a.example", resolve=resolve, caps=Caps(connect_seconds=0.05)) as proxy:
        answer = await proxy.ask(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
        record = await proxy.record()

    assert answer.startswith(b"HTTP/1.1 504 ")
    assert record.outcome is ConnectionOutcome.FAILED


async def test_a_range_that_cannot_be_read_stops_the_proxy_from_starting() -> None:
    proxy = proxied(allow_private=["10.0.0.0/99"])

    with pytest.raises(InputError):
        await proxy.__aenter__()


# Plain requests


async def test_a_second_request_on_a_connection_is_not_passed_on() -> None:
    seen = asyncio.Queue[bytes]()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.write_eof()
        seen.put_nowait(head + await reader.read())

    async with server(collect) as port, proxied(f"a.example:{port}") as proxy:
        answer = await proxy.ask(
            b"POST http://a.example:%d/1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
            b"GET http://b.example/2 HTTP/1.1\r\nHost: b.example\r\n\r\n" % port
        )
        async with asyncio.timeout(BOUND):
            got = await seen.get()

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert got.endswith(b"\r\n\r\nabc")
    assert b"b.example" not in got


def answer_then_send(port: int, head: bytes) -> bytes:
    """The answer to a head; what is sent after it must not be reset."""
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND) as client:
        client.sendall(head)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += client.recv(65536)
        for _ in range(10):
            client.sendall(b"x" * 1000)
        return answer


async def test_an_answer_before_the_end_of_the_body_arrives() -> None:
    async def too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")

    async with server(too_large) as port, proxied(f"a.example:{port}") as proxy:
        head = b"POST http://a.example:%d/ HTTP/1.1\r\nContent-Length: 99999\r\n\r\n" % port
        answer = await asyncio.to_thread(answer_then_send, proxy.port, head)
        record = await proxy.record()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert record.outcome is ConnectionOutcome.ALLOWED


async def test_a_refusal_is_read_even_by_a_tool_that_is_still_sending() -> None:
    async with proxied("a.example") as proxy:
        head = b"POST http://b.example/ HTTP/1.1\r\nContent-Length: 99999\r\n\r\n"
        answer = await asyncio.to_thread(answer_then_send, proxy.port, head)

    assert answer.startswith(b"HTTP/1.1 403 toolkiln: b.example:80 is not granted")
    assert answer.endswith(b"grant it\n")


@each_row(
    "data",
    [
        b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"\x05\x01\x00\r\n\r\n",
    ],
)
async def test_what_cannot_be_granted_is_refused_and_recorded(data: bytes) -> None:
    async with proxied("a.example") as proxy:
        answer = await proxy.ask(data)
        record = await proxy.record()

    assert answer.startswith((b"HTTP/1.1 400 toolkiln: ", b"HTTP/1.1 403 toolkiln: "))
    assert record.outcome is ConnectionOutcome.REFUSED
    assert (record.bytes_up, record.bytes_down) == (0, 0)


def test_the_variables_are_given_in_both_spellings() -> None:
    variables = proxy_environment(3128)

    assert variables["http_proxy"] == variables["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert {name.lower() for name in variables} == {"http_proxy", "https_proxy", "no_proxy"}
    assert len(variables) == 6
