"""One connection of a tool: its caps, its outcome and its record. `proxy` does the I/O."""

import socket
import time
from dataclasses import dataclass
from enum import StrEnum

from pydantic import PositiveFloat, PositiveInt

from toolkiln.model.base import Value
from toolkiln.sandbox.network.addresses import Address

_MIB = 1024 * 1024


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
