"""One connection of a tool: the caps on it, how it can end, the record of it.

Nothing here touches a socket but to hold it; `proxy` does the work.
"""

import socket
import time
from dataclasses import dataclass
from enum import StrEnum

from pydantic import PositiveFloat, PositiveInt

from toolkiln.execution.network.addresses import Address
from toolkiln.model import Value

_MIB = 1024 * 1024


class Caps(Value):
    """How much one proxy carries before it says no."""

    at_once: PositiveInt = 64
    """Connections open at the same time."""
    connections: PositiveInt = 1000
    """Connections in all, refused ones too; one more is turned away and closes the listener."""
    bytes_up: PositiveInt = 64 * _MIB
    """From the tool, for each connection."""
    bytes_down: PositiveInt = 256 * _MIB
    """To the tool, for each connection."""
    bytes_total: PositiveInt = 1024 * _MIB
    """Both directions of all connections."""
    head_bytes: PositiveInt = 32 * 1024
    """Request line and headers."""
    head_seconds: PositiveFloat = 10.0
    connect_seconds: PositiveFloat = 15.0
    """For looking the host up and for connecting to it, together."""
    idle_seconds: PositiveFloat = 60.0
    seconds: PositiveFloat = 600.0
    """From the moment that the host is connected."""


class Outcome(StrEnum):
    """What became of a connection."""

    ALLOWED = "allowed"  # it ran to its end
    REFUSED = "refused"  # we said no
    FAILED = "failed"  # the host could not be reached
    LIMITED = "limited"  # a cap ended it
    CUT = "cut"  # it was open when the call ended


class ConnectionRecord(Value):
    """What one connection asked for and what became of it."""

    host: str
    """As asked for; empty if nothing readable was."""
    port: int | None
    address: str | None
    """Where it led to, or would have led to."""
    outcome: Outcome
    reason: str
    """Empty if there is nothing to say."""
    bytes_up: int
    bytes_down: int
    seconds: float


class Ended(Exception):
    """A connection is over before its natural end, and why."""

    def __init__(self, outcome: Outcome, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.status = status
        """What to answer; 0 if there is nobody to answer or an answer has begun."""


@dataclass(eq=False)
class Link:
    """One connection while it lives."""

    client: socket.socket
    began: float
    host: str = ""
    port: int | None = None
    is_direct: bool = False
    """Whether it came through an endpoint, which fixes host and port, not to the proxy."""
    address: Address | None = None
    upstream: socket.socket | None = None
    up: int = 0
    down: int = 0
    is_reported: bool = False
    moved: float = 0.0
    """When bytes last passed."""
    outcome: Outcome | None = None
    """None until it is decided."""
    reason: str = ""

    def end(self, outcome: Outcome, reason: str) -> None:
        """Decide what became of it."""
        self.outcome, self.reason = outcome, reason

    def record(self) -> ConnectionRecord:
        """What was asked and became of it."""
        return ConnectionRecord(
            host=self.host,
            port=self.port,
            address=None if self.address is None else str(self.address),
            outcome=self.outcome or Outcome.CUT,
            reason=self.reason,
            bytes_up=self.up,
            bytes_down=self.down,
            seconds=time.monotonic() - self.began,
        )
