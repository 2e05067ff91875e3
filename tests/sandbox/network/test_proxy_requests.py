"""Request heads: what is accepted, what is refused, what is forwarded to the host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.sandbox.network.connection import (
    ConnectionEnded,
    ProxyRequest,
    parse_request,
    requested_host,
)


def head(*lines: str) -> bytes:
    return "\r\n".join(lines).encode("latin-1")


def test_connect_asks_for_a_tunnel() -> None:
    assert parse_request(head("CONNECT API.example.com:443 HTTP/1.1")) == ProxyRequest(
        "api.example.com", 443, tunnel=True
    )


@each_row("value", ["example.com", "example.com:443", "EXAMPLE.com:443"])
def test_connect_may_name_its_host_again(value: str) -> None:
    assert parse_request(head("CONNECT example.com:443 HTTP/1.1", f"Host: {value}")).tunnel


def test_the_head_of_a_plain_request_is_rebuilt() -> None:
    request = parse_request(
        head(
            "POST http://Example.com:8080/a?b=c HTTP/1.1",
            "host: example.com:8080",
            "Accept:   text/plain  ",
            "Connection: keep-alive, X-Private, Content-Length",
            "X-Private: 1",
            "Keep-Alive: 5",
            "Proxy-Authorization: Basic eA==",
            "Proxy-Connection: keep-alive",
            "TE: trailers",
            "Upgrade: websocket",
            "Content-Length: 4",
        )
    )

    assert (request.host, request.port, request.length) == ("example.com", 8080, 4)
    assert request.head == (
        b"POST /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nAccept: text/plain\r\n"
        b"Content-Length: 4\r\nConnection: close\r\n\r\n"
    )


@each_row(
    "target, path",
    [("http://a.example", b"/"), ("http://a.example?x", b"/?x"), ("HTTP://A.example/%41", b"/%41")],
)
def test_the_path_is_what_follows_the_host(target: str, path: bytes) -> None:
    request = parse_request(head(f"GET {target} HTTP/1.1"))

    assert request.head.split(b"\r\n")[:2] == [b"GET " + path + b" HTTP/1.1", b"Host: a.example"]


GET = "GET http://a.example/ HTTP/1.1"
POST = "POST http://a.example/ HTTP/1.1"


BAD_LINES = [
    "", "\x16\x03\x01\x02", "OPTIONS * HTTP/1.1", "GET https://a.example/ HTTP/1.1",
    "GET ftp://a.example/ HTTP/1.1", "GET http://a.example/#x HTTP/1.1",
    "GET http://a.example/ HTTP/2.0", "GET http://a.example/ HTTP/1.1 ",
    "GET  http://a.example/ HTTP/1.1", "GET\thttp://a.example/ HTTP/1.1",
    "get http://a.example/ HTTP/1.1", "GET http://a.example/\x00 HTTP/1.1",
    "GET http://a.example/é HTTP/1.1", "GET http://a.example/", "CONNECT a.example HTTP/1.1",
    "CONNECT a.example:0 HTTP/1.1", "CONNECT a.example:65536 HTTP/1.1",
    "CONNECT a.example:0443 HTTP/1.1", "CONNECT a.example: HTTP/1.1",
]  # fmt: skip
BAD_HOSTS = [
    "CONNECT http://a.example:443 HTTP/1.1", "CONNECT a.example/:443 HTTP/1.1",
    "CONNECT x@a.example:443 HTTP/1.1", "CONNECT a.example.:443 HTTP/1.1",
    "CONNECT a%2eexample:443 HTTP/1.1", "CONNECT *.example:443 HTTP/1.1", "CONNECT :443 HTTP/1.1",
    "GET http:///x HTTP/1.1", "GET http://u:p@a.example/ HTTP/1.1",
    "GET http://a.example\\@b.example/ HTTP/1.1",
]  # fmt: skip
BAD_HEADERS = [
    "Host: b.example", "Host: a.example:81", "X: 1\r\n folded", "\tX: 1", "X : 1", "X", ": 1",
    "X: 1\nHost: b.example", "X: 1\rY: 2", "X: \x00", "X: \x7f", "Hos\u00f6t: 1",
    "Host: a.example\r\nHost: a.example", "Host: a.example\r\nhOST: b.example",
]  # fmt: skip
BAD_LENGTHS = [
    "Content-Length: 3\r\nContent-Length: 3", "Content-Length: 3, 3", "Content-Length: +3",
    "Content-Length: -3", "Content-Length: 0x3", "Content-Length:",
    "Content-Length: 9999999999999999",
]  # fmt: skip


@each_row(
    "lines, status",
    [
        *(([line], 400) for line in BAD_LINES),
        *(([line], 403) for line in BAD_HOSTS),
        *(([GET, line], 400) for line in BAD_HEADERS),
        *(([POST, line], 400) for line in BAD_LENGTHS),
        (["GET / HTTP/1.1", "Host: a.example"], 400),
        ([GET, "Host: a.example, b.example"], 403),
        ([GET, "Host:"], 403),
        (["CONNECT a.example:443 HTTP/1.1", "Host: b.example:443"], 400),
        (["CONNECT a.example:443 HTTP/1.1", "Host: a.example:80"], 400),
        ([POST, "Content-Length: 3", "Transfer-Encoding: chunked"], 411),
        ([POST, "Transfer-Encoding: chunked"], 411),
        ([POST, "transfer-encoding: xchunked"], 411),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(lines: list[str], status: int) -> None:
    with pytest.raises(ConnectionEnded) as caught:
        parse_request(head(*lines))

    assert caught.value.status == status
    assert caught.value.reason.isprintable()


@each_row(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
        "017700000001", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "::1",
        "%31%32%37.0.0.1", "x@127.0.0.1",
    ],
)  # fmt: skip
@each_row("line", ["CONNECT {}:443 HTTP/1.1", "GET http://{}:443/ HTTP/1.1"])
def test_an_address_is_refused_in_every_notation(line: str, host: str) -> None:
    with pytest.raises(ConnectionEnded, match="use a name") as caught:
        parse_request(head(line.format(host)))

    assert caught.value.status == 403


@each_row("host", ["１２７.0.0.1", "127。0。0。1", "①.example", "\u212a.example"])
def test_a_host_outside_ascii_is_refused(host: str) -> None:
    with pytest.raises(ConnectionEnded):
        parse_request(f"CONNECT {host}:443 HTTP/1.1".encode())


LINE = st.binary(max_size=40) | st.sampled_from(
    [b"Host: a.example", b"Content-Length: 3", b"Connection: host", b"X: y", b" z", b"X:\x80"]
)
TUNNEL, WRONG_PORT = b"CONNECT a.example:1 HTTP/1.1", b"GET http://a.example:x/ HTTP/1.0"
FIRST = st.binary(max_size=60) | st.sampled_from([GET.encode(), POST.encode(), TUNNEL, WRONG_PORT])


@given(FIRST, st.lists(LINE, max_size=5))
def test_any_bytes_give_a_request_or_a_refusal(first: bytes, lines: list[bytes]) -> None:
    data = b"\r\n".join([first, *lines])

    assert requested_host(data).isascii()
    request = request_or_refusal(data)
    if isinstance(request, ConnectionEnded):
        assert request.status in {400, 403, 411}
        assert request.reason.isascii()
        assert request.reason.isprintable()
    else:
        text = request.head.lower()
        assert text.count(b"\r\n\r\n") == (not request.tunnel)
        assert text.count(b"\nhost:") == (not request.tunnel)
        assert text.count(b"\ncontent-length:") <= 1
        assert text.count(b"\n") == text.count(b"\r") == text.count(b"\r\n")


def request_or_refusal(data: bytes) -> ProxyRequest | ConnectionEnded:
    try:
        return parse_request(data)
    except ConnectionEnded as end:
        return end


@each_row("filler", [b" ", b"\t", b":", b"a", b"1:", b"a.", b"?"])
def test_reading_takes_time_in_proportion_to_the_length(filler: bytes) -> None:
    many = filler * (30_000 // len(filler))

    for data in (
        b"GET http://a.example/ HTTP/1.1\r\nX:" + many + b"\x01",
        b"GET http://a.example/ HTTP/1.1\r\nHost:" + many + b"!",
        b"CONNECT " + many + b"! HTTP/1.1",
        b"GET http://" + many + b"!# HTTP/1.1",
    ):
        with pytest.raises(ConnectionEnded):
            parse_request(data)
