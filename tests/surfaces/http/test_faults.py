"""Clients that are hostile, slow or gone, and a server that is killed."""

import asyncio
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tables import each_row

from ..conftest import BOUND
from .served import SETTINGS, Served, make_shell, received, serving, until

pytestmark = pytest.mark.faults

MIB = 1 << 20
HURRIED = f"request_seconds = 1\nconcurrent_requests = 100\nbody_bytes = 1_000_000\n{SETTINGS}"
START = (
    b"POST /v1/tools/greet/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that has no patience and little room, and has answered a call."""
    with serving(make_shell(tmp_path_factory.mktemp("served"), HURRIED)) as served:
        assert served.call("greet", name="Ada")["status"] == "ok"
        yield served
        assert not [line for line in served.err[3:] if "Traceback" in line]


def is_idle(served: Served) -> bool:
    text = served.ask("GET", "/metrics").text
    found = re.findall(r"^toolkiln_\w+_in_flight (\S+)$", text, re.M)
    return found == ["0.0", "0.0"]


def exchange(served: Served, sent: bytes) -> bytes:
    """All that a connection receives for some bytes."""
    with served.connect() as connection:
        connection.sendall(sent)
        return received(connection)


def flood(connection: socket.socket, data: bytes) -> None:
    """Send something again and again, until the other side will have no more of it."""
    with suppress(OSError):
        while True:
            connection.sendall(data)


# Sizes


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_of_100_mb_is_refused_and_never_held(served: Served, is_chunked: bool) -> None:
    size = 100 * MIB
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % size
    before = served.peak()

    with served.connect() as connection:
        connection.sendall(START + length + b"\r\n\r\n")
        piece = b"x" * MIB
        framed = b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece
        for _ in range(size // MIB):
            connection.sendall(framed)
        connection.sendall((b"0\r\n\r\n" if is_chunked else b"") + b"GET /healthz HTTP/1.1\r\n")
        connection.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        answer = received(connection)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"too_large"' in answer
    assert b"HTTP/1.1 200 OK" in answer  # the connection is still good
    assert served.peak() - before < 20 * MIB


def test_a_client_that_asks_before_it_sends_is_answered_at_once(served: Served) -> None:
    answer = exchange(served, START + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer


def test_json_that_is_nested_too_deeply_is_refused(served: Served) -> None:
    body = b'{"arguments": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    refused = served.ask("POST", "/v1/tools/greet/call", body, {"Content-Type": "application/json"})

    assert (refused.status, refused.code) == (400, "bad_json")
    assert "nesting" in refused.json()["detail"]


@each_row(
    "request",
    [
        b"/healthz HTTP/1.1\r\nHost: localhost\r\n"
        + b"".join(b"X-%d: x\r\n" % n for n in range(200)),
        b"/healthz HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n" % (b"x" * 40_000),
        b"/v1/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % (b"x" * 40_000),
    ],
)
def test_too_many_or_too_long_headers_and_paths_are_refused(served: Served, request: bytes) -> None:
    answer = exchange(served, b"GET " + request + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"headers_too_large"' in answer


def test_a_flood_of_headers_ends_while_it_comes(served: Served) -> None:
    before = served.peak()

    with served.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        flood(connection, b"X: %s\r\n" % (b"x" * 1000))

    assert served.peak() - before < 20 * MIB
    assert served.ask("GET", "/healthz").status == 200


def test_requests_sent_ahead_without_end_are_not_kept(served: Served) -> None:
    before = served.peak()

    with served.connect() as connection:
        slow = b'{"arguments": {"name": "ahead", "seconds": 20}}'
        connection.sendall(START.replace(b"greet", b"linger"))
        connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(slow), slow))
        flood(connection, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)

    until(lambda: is_idle(served))
    assert served.peak() - before < 20 * MIB


# Time


@pytest.mark.parametrize(
    "sent",
    [b"GET /healthz HTTP/1.1\r\nHost: loc", START + b"Content-Length: 100\r\n\r\n{"],
    ids=["headers", "body"],
)
def test_a_request_that_does_not_come_to_an_end_is_answered_with_408(
    served: Served, sent: bytes
) -> None:
    answer = exchange(served, sent)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too_slow"' in answer


def test_clients_that_send_a_little_now_and_then_are_cut_off(served: Served) -> None:
    def is_cut_off(start: bytes, drop: bytes) -> bool:
        with served.connect() as connection:
            connection.sendall(start)
            connection.settimeout(0.2)
            deadline = time.monotonic() + BOUND
            while time.monotonic() < deadline:  # slow loris: a byte at a time, never the last
                try:
                    if connection.recv(1) == b"":
                        return True
                except TimeoutError:
                    connection.sendall(drop)
                except OSError:
                    return True
        return False

    clients = [(b"", b"\r"), (b"\r\n", b"\r"), (START + b"Content-Length: 99\r\n\r\n1", b"1")]
    with ThreadPoolExecutor(len(clients)) as pool:
        found = list(pool.map(lambda client: is_cut_off(*client), clients))

    assert found == [True] * 3
    assert served.ask("GET", "/healthz").status == 200


def test_a_client_that_does_not_read_its_answer_is_disconnected(served: Served) -> None:
    request = b'{"arguments": {"text": "%s", "times": 8000}}' % (b"x" * 1000)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((served.host, served.port))
        connection.sendall(START.replace(b"greet", b"repeat"))
        connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(request), request))
        until(lambda: served.metric("toolkiln_http_requests_in_flight") == 1)
        until(lambda: is_idle(served))
        answer = received(connection)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(answer) < 8 * 1000 * 1000


# No HTTP


@each_row(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%zz\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_bytes_that_are_no_http_are_answered_with_400_and_an_end(
    served: Served, sent: bytes
) -> None:
    answer = exchange(served, sent)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer
    assert served.ask("GET", "/healthz").status == 200


# Many, and gone


def test_a_call_whose_client_went_is_killed(served: Served) -> None:
    series = 'toolkiln_tool_calls_total{outcome="cancelled",surface="http",tool="linger"}'
    before = served.metric(series)
    request = b'{"arguments": {"name": "gone", "seconds": 20}}'

    with served.connect() as connection:
        connection.sendall(START.replace(b"greet", b"linger"))
        connection.sendall(b"Authorization: Bearer %s\r\n" % served.token.encode())
        connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(request), request))
        until(lambda: served.written("gone"))

    until(lambda: served.metric(series) > before)
    assert is_idle(served)
    assert served.written("gone") == "begun\n"


async def test_of_a_thousand_calls_at_once_each_gets_its_result_or_is_asked_to_try_again(
    served: Served,
) -> None:
    descriptors, memory = served.descriptors(), served.peak()

    async def call(number: int) -> tuple[int, bytes]:
        reading, writing = await asyncio.open_connection(served.host, served.port)
        body = b'{"arguments": {"name": "n%d"}}' % number
        writing.write(START + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = await reading.read()
        writing.close()
        return number, answer

    answers = await asyncio.gather(*(call(number) for number in range(1000)))

    results = [number for number, answer in answers if b'"Hello n%d"' % number in answer]
    busy = [answer for _, answer in answers if answer.startswith(b"HTTP/1.1 503 ")]
    assert len(results) + len(busy) == 1000
    assert len(results) >= 50  # half of the places: they all come from one address
    assert all(b'"code":"busy"' in answer and b"retry-after: 1" in answer for answer in busy)
    until(lambda: served.descriptors() <= descriptors + 5)
    assert served.peak() - memory < 60 * MIB


def test_calls_that_a_killed_server_left_end_with_one_result_each(tmp_path: Path) -> None:
    shell = make_shell(tmp_path)
    names = ["a", "b", "c"]

    def call(served: Served, name: str) -> tuple[str, object]:
        key = {"Idempotency-Key": f"key-{name}"}
        result = served.call("linger", key, name=name, seconds=0 if name == "a" else 2)
        return result["call_id"], result["value"]

    with ThreadPoolExecutor(3) as pool:
        with serving(shell) as served:
            first = [pool.submit(call, served, name) for name in names]
            until(lambda: all(served.written(name) for name in names))
            until(lambda: "ended" in served.written("a"))
            first_a = first[0].result()
            served.end(signal.SIGKILL)
            for cut in first[1:]:
                with pytest.raises(OSError, match=r"closed|reset"):
                    cut.result()
        # The killed server had a lease on them, which would end in a while.
        with closing(sqlite3.connect(tmp_path / "state" / "store.db")) as store, store:
            store.execute("UPDATE toolkiln_calls SET leased_until = started WHERE result IS NULL")
        with serving(shell) as served:
            again = [[pool.submit(call, served, name) for name in names] for _ in range(2)]
            second, third = ([one.result() for one in some] for some in again)

    assert second == third
    assert second[0] == first_a
    assert [value for _, value in second] == ["done"] * 3
    assert [served.written(name).count("ended") for name in names] == [1, 1, 1]
