"""The head of one proxy request, read strictly: what cannot be read in one way is refused.

Only bytes come in and a value goes out; `proxy` moves the data. A plain request is not
passed on as it came: its head is written anew from the parts that were understood, so
that no other reader can find a second request, another host or another length in it.
"""

import re
from dataclasses import dataclass

from toolkiln.execution.network.connection import Ended, Outcome
from toolkiln.execution.network.rules import DEFAULT_PORTS, host_name, port_number

_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-~]+) (HTTP/1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_ABSOLUTE = re.compile(r"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(.*?)(?::([0-9]*))?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What the tool asked for; host and port have the right form and nothing more."""

    host: str
    port: int
    tunnel: bool
    head: bytes = b""
    """What the host gets to read first; empty for a tunnel."""
    length: int = 0
    """Bytes of body that follow the head; a tunnel has no such bound."""


def asked_host(head: bytes) -> str:
    """What a head seems to ask for, for the record of a refusal: printable, short, untrusted."""
    match = _REQUEST_LINE.match(head)
    if not match:
        return ""
    target = match[2].decode("ascii")
    absolute = _ABSOLUTE.match(target)
    return (absolute[1] if absolute else target)[:253]


def parse_request(head: bytes) -> Request:
    """Read a request line and headers up to the empty line, without it.

    Raises:
        Ended: it is not one proxy request beyond doubt.
    """
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if not line:
        raise _bad("the request line cannot be read")
    headers = [_header(text) for text in lines]
    method, target, version = line.groups()
    if method == b"CONNECT":
        host, port = _authority(target.decode("ascii"), default=None)
        _check_host(headers, host, port, default=port)
        return Request(host, port, tunnel=True)
    absolute = _ABSOLUTE.fullmatch(target.decode("ascii"))
    if not absolute:
        raise _bad("this is a proxy: ask for http://host/path, or CONNECT host:443")
    host, port = _authority(absolute[1], default=80)
    _check_host(headers, host, port, default=80)
    path = absolute[2] or "/"
    start = b"%b %b %b" % (method, ("/" * (path[0] == "?") + path).encode("ascii"), version)
    host_header = host if port == 80 else f"{host}:{port}"
    length = _body_length(headers)
    passed = [
        start,
        b"Host: " + host_header.encode("ascii"),
        *(name + b": " + value for name, value in _end_to_end(headers)),
        *([] if length is None else [b"Content-Length: %d" % length]),
        b"Connection: close",
        b"\r\n",
    ]
    return Request(host, port, tunnel=False, head=b"\r\n".join(passed), length=length or 0)


def suggestion(host: str, port: int) -> str:
    """How a source declares this host and port."""
    entry = host if port in DEFAULT_PORTS else f"{host}:{port}"
    return f'@tool(network=["{entry}"])'


def _header(line: bytes) -> tuple[bytes, bytes]:
    match = _HEADER.fullmatch(line)
    if not match:
        raise _bad("a header cannot be read")
    return match[1], match[2].strip(b" \t")


def _authority(text: str, default: int | None) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    assert match is not None  # anything matches: the text is one line
    host = host_name(match[1])
    port = default if match[2] is None else port_number(match[2])
    if host is None:
        raise Ended(
            Outcome.REFUSED,
            f"{text[:253]} is not a host name; addresses are never granted, name the host",
            403,
        )
    if port is None:
        raise _bad(f"{text[:253]} has no port from 1 to 65535")
    return host, port


def _check_host(headers: list[tuple[bytes, bytes]], host: str, port: int, default: int) -> None:
    values = _values(headers, b"host")
    if not values:
        return
    text = values[0].decode("latin-1")
    if len(values) > 1 or _authority(text, default) != (host, port):
        raise _bad("the Host header does not name the host that is asked for")


def _body_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    if _values(headers, b"transfer-encoding"):
        raise Ended(
            Outcome.REFUSED,
            "a body needs a Content-Length; chunked ones pass through CONNECT only",
            411,
        )
    lengths = _values(headers, b"content-length")
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise _bad("Content-Length cannot be read")
    return int(lengths[0])


def _end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    named = {
        name.strip().lower()
        for value in _values(headers, b"connection")
        for name in value.split(b",")
    }
    dropped = _HOP_BY_HOP | named | {b"host", b"content-length"}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == wanted]


def _bad(reason: str) -> Ended:
    return Ended(Outcome.REFUSED, reason, 400)
