"""One connection of a tool: its caps, its request, its outcome and its record.

`proxy` does the I/O. The parser of request heads is strict: anything ambiguous is refused. A
plain request is not forwarded as received: its head is rebuilt from the parsed parts, so the
upstream server cannot find a second request, another host or another length in it (request
smuggling).
"""

import re
import socket
import time
from dataclasses import dataclass
from enum import StrEnum

from pydantic import PositiveFloat, PositiveInt

from toolkiln.model.base import Value
from toolkiln.model.network import DEFAULT_PORTS, host_name, port_number
from toolkiln.sandbox.network.addresses import Address

_MIB = 1024 * 1024
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


class Caps(Value):
    """The limits of one proxy and of each of its connections."""

    at_once: PositiveInt = 64
    """Concurrent connections."""
    connections: PositiveInt = 1000
    """Total connections, including refused ones; the next one is refused and closes the
    listener."""
    bytes_up: PositiveInt = 64 * _MIB
    """From the tool, per connection."""
    bytes_down: PositiveInt = 256 * _MIB
    """To the tool, per connection."""
    bytes_total: PositiveInt = 1024 * _MIB
    """Both directions of all connections."""
    head_bytes: PositiveInt = 32 * 1024
    """Request line and headers."""
    head_seconds: PositiveFloat = 10.0
    connect_seconds: PositiveFloat = 15.0
    """For resolving the host and connecting to it."""
    idle_seconds: PositiveFloat = 60.0
    seconds: PositiveFloat = 600.0
    """Maximum duration after connecting."""


class ConnectionOutcome(StrEnum):
    """How a connection ended."""

    ALLOWED = "allowed"  # it completed
    REFUSED = "refused"  # the proxy denied it
    FAILED = "failed"  # the host could not be reached
    LIMITED = "limited"  # it exceeded a cap
    CUT = "cut"  # it was open when the call ended


class ConnectionRecord(Value):
    """The record of one connection."""

    host: str
    """As requested; empty if the request was unreadable."""
    port: int | None
    address: str | None
    """The address it resolved to."""
    outcome: ConnectionOutcome
    reason: str
    """May be empty."""
    bytes_up: int
    bytes_down: int
    seconds: float


class ConnectionEnded(Exception):
    """Ends a connection early, with an outcome and a reason."""

    def __init__(self, outcome: ConnectionOutcome, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.status = status
        """The HTTP status to send; 0 if no response is possible."""


@dataclass(eq=False)
class ProxyConnection:
    """A connection while it is open."""

    client: socket.socket
    began: float
    host: str = ""
    port: int | None = None
    is_direct: bool = False
    """Whether it arrived at an endpoint, which determines host and port, not at the proxy."""
    address: Address | None = None
    upstream: socket.socket | None = None
    up: int = 0
    down: int = 0
    is_reported: bool = False
    last_active: float = 0.0
    """When bytes were last transferred."""
    outcome: ConnectionOutcome | None = None
    """None while it is open."""
    reason: str = ""

    def end(self, outcome: ConnectionOutcome, reason: str) -> None:
        """Set the outcome."""
        self.outcome, self.reason = outcome, reason

    def record(self) -> ConnectionRecord:
        """Return the record of this connection."""
        return ConnectionRecord(
            host=self.host,
            port=self.port,
            address=None if self.address is None else str(self.address),
            outcome=self.outcome or ConnectionOutcome.CUT,
            reason=self.reason,
            bytes_up=self.up,
            bytes_down=self.down,
            seconds=time.monotonic() - self.began,
        )


@dataclass(frozen=True)
class ProxyRequest:
    """A parsed request; host and port are well-formed, but not checked against the rules."""

    host: str
    port: int
    tunnel: bool
    head: bytes = b""
    """The rebuilt head to send to the host; empty for a tunnel."""
    length: int = 0
    """Bytes of the body; unused for a tunnel."""


def requested_host(head: bytes) -> str:
    """Return the apparent target of a head, for the record: printable, short, untrusted."""
    match = _REQUEST_LINE.match(head)
    if not match:
        return ""
    target = match[2].decode("ascii")
    absolute = _ABSOLUTE.match(target)
    return (absolute[1] if absolute else target)[:253]


def parse_request(head: bytes) -> ProxyRequest:
    """Parse the request line and headers, without the final empty line.

    Raises:
        ConnectionEnded: the head is not an unambiguous proxy request.
    """
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if not line:
        raise _refusal("the request line is malformed")
    headers = [_header(text) for text in lines]
    method, target, version = line.groups()
    if method == b"CONNECT":
        host, port = _authority(target.decode("ascii"), default=None)
        _check_host(headers, host, port, default=port)
        return ProxyRequest(host, port, tunnel=True)
    absolute = _ABSOLUTE.fullmatch(target.decode("ascii"))
    if not absolute:
        raise _refusal("this is a proxy: request http://host/path or CONNECT host:443")
    host, port = _authority(absolute[1], default=80)
    _check_host(headers, host, port, default=80)
    path = absolute[2] or "/"
    start = b"%b %b %b" % (method, ("/" * (path[0] == "?") + path).encode("ascii"), version)
    host_header = host if port == 80 else f"{host}:{port}"
    length = _body_length(headers)
    lines = [
        start,
        b"Host: " + host_header.encode("ascii"),
        *(name + b": " + value for name, value in _end_to_end(headers)),
        *([] if length is None else [b"Content-Length: %d" % length]),
        b"Connection: close",
        b"\r\n",
    ]
    return ProxyRequest(host, port, tunnel=False, head=b"\r\n".join(lines), length=length or 0)


def suggestion(host: str, port: int) -> str:
    """Return the declaration of this host and port in a tool's source."""
    entry = host if port in DEFAULT_PORTS else f"{host}:{port}"
    return f'@tool(network=["{entry}"])'


def _header(line: bytes) -> tuple[bytes, bytes]:
    match = _HEADER.fullmatch(line)
    if not match:
        raise _refusal("a header is malformed")
    return match[1], match[2].strip(b" \t")


def _authority(text: str, default: int | None) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    assert match is not None  # any single line matches
    host = host_name(match[1])
    port = default if match[2] is None else port_number(match[2])
    if host is None:
        reason = f"{text[:253]} is not a host name; use a name, IP addresses cannot be granted"
        raise _refusal(reason, 403)
    if port is None:
        raise _refusal(f"{text[:253]} has no port from 1 to 65535")
    return host, port


def _check_host(headers: list[tuple[bytes, bytes]], host: str, port: int, default: int) -> None:
    values = _values(headers, b"host")
    if not values:
        return
    text = values[0].decode("latin-1")
    if len(values) > 1 or _authority(text, default) != (host, port):
        raise _refusal("the Host header differs from the requested host")


def _body_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    if _values(headers, b"transfer-encoding"):
        reason = (
            "a body requires a Content-Length; chunked bodies are possible only through CONNECT"
        )
        raise _refusal(reason, 411)
    lengths = _values(headers, b"content-length")
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise _refusal("Content-Length is malformed")
    return int(lengths[0])


def _end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    connection_headers = {
        name.strip().lower()
        for value in _values(headers, b"connection")
        for name in value.split(b",")
    }
    dropped = _HOP_BY_HOP | connection_headers | {b"host", b"content-length"}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def _values(headers: list[tuple[bytes, bytes]], header: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == header]


def _refusal(reason: str, status: int = 400) -> ConnectionEnded:
    return ConnectionEnded(ConnectionOutcome.REFUSED, reason, status)
