"""Values of a queue: admissions, deliveries, ends, and bodies too large for a stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolkiln.fleet import keys
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.wire import (
    CallReply,
    Envelope,
    Malformed,
    envelope_from_wire,
    reply_from_wire,
)

# The msgpack header of 32 bytes; an envelope is an array and has another one.
_DIGEST = b"\xc4\x20"
_DIGEST_SIZE = 34


def body_reference(data: bytes) -> bytes:
    """Return the digest that replaces a large body in a stream."""
    return _DIGEST + sha256(data).digest()


async def _fetch_body(
    pipe: RedisPipe, record: str, what: Literal["call", "result"], reference: bytes
) -> bytes:
    data = await pipe.command("GET", keys.body(record, what))
    if not isinstance(data, bytes) or body_reference(data) != reference:
        raise Malformed(f"the body of a {what} is missing or has another digest")
    return data


async def resolve_reply(pipe: RedisPipe, reply: CallReply) -> CallReply:
    """Return the referenced reply; an end with code `lost` if its body is gone."""
    if reply.kind != "stored":
        return reply
    try:
        found = reply_from_wire(await _fetch_body(pipe, reply.record, "result", reply.body))
    except Malformed:
        found = None
    if found is None or found.record != reply.record:
        return CallReply(reply.record, "end", b"lost")
    return replace(found, proof=reply.proof)  # it covers the digest of the body


@dataclass(frozen=True)
class Accepted:
    """The call is queued: exactly one terminal reply will follow."""

    entry: str = field(default="", compare=False)
    """Its entry id; a reply to an earlier entry belongs to another call."""


@dataclass(frozen=True)
class AlreadyRunning:
    """An equal call is queued or running; this caller gets the same reply."""


@dataclass(frozen=True)
class Finished:
    """The call has ended."""

    reply: CallReply | None
    """None if it is not remembered; it went to the first caller's reply stream."""


@dataclass(frozen=True)
class DeliveryConflict:
    """The id belongs to a call with another tool or other arguments."""


@dataclass(frozen=True)
class Overloaded:
    """The call was rejected; it can be retried under the same id."""

    retry_after: float
    """Seconds."""


Admission = Accepted | AlreadyRunning | Finished | DeliveryConflict | Overloaded


class Delivery(Struct, frozen=True):
    """A call that a consumer holds."""

    entry: str
    """Its entry id, which becomes invalid when the call is requeued or ends."""
    envelope: Envelope
    deadline_ms: int | None
    """In milliseconds of the Redis clock."""
    tries: int
    """How often workers started it before."""
    stored: bool = False
    """Whether its envelope is stored under a separate key."""
    doubtful: bool = False
    """Whether it may have run before Redis lost the delivery (`RestartTracker`)."""
    cancelled: bool = False
    """Whether its caller cancelled it while it was waiting."""

    @property
    def record(self) -> str:
        """The key of the call's record."""
        return self.envelope.record

    @property
    def repeatable(self) -> bool:
        """Whether a second run does no harm."""
        return self.envelope.repeatable


class Ending(NamedTuple):
    """The end of a delivery."""

    delivery: Delivery
    kind: Literal["result", "end"]
    body: bytes
    """An encoded result (`wire.result_to_wire`), or an end code."""
    is_open: bool = False
    """Whether the id can be reused, because nothing ran."""


class CallState(NamedTuple):
    """The state of a call in the queue."""

    state: Literal["waiting", "running", "done", "missing"]
    """`missing`: Redis has no record or no entry of it."""
    age_ms: int
    """Since it was queued or requeued; of a running call since its lease was last renewed. 0 if
    it has ended."""
    reply: CallReply | None
    """Of an ended call, if it is remembered."""


class ControlMessage(NamedTuple):
    """A request to the workers of a pool."""

    command: str
    """`cancel`, `answer`, `drain`, `reload` …"""
    target: str
    """The key of a call record, a worker's name, or empty."""
    from_client: bool = False
    """Whether a client sent it, which may control only its own calls."""


class Consumer(NamedTuple):
    """A current or former consumer of the queue."""

    name: str
    pending: int
    """Number of calls it holds."""
    idle_ms: int


def entry_order(entry: str) -> tuple[int, int]:
    """Return the sort key of an entry id."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)


async def read_delivery(pipe: RedisPipe, entry: str, fields: Mapping[bytes, bytes]) -> Delivery:
    """Decode the fields of a stream entry.

    Raises:
        Malformed: the entry is invalid, or its body is gone.
    """
    try:
        record, data = fields[b"record"].decode(), fields[b"call"]
        deadline, tries = int(fields[b"by"]), int(fields[b"tries"])
    except (KeyError, ValueError) as error:
        raise Malformed(f"an entry cannot be read: {error}") from None
    stored = len(data) == _DIGEST_SIZE and data.startswith(_DIGEST)
    if stored:
        data = await _fetch_body(pipe, record, "call", data)
    envelope = envelope_from_wire(data)
    if envelope.record != record or tries < 0:
        raise Malformed("an entry does not match its envelope")
    return Delivery(entry, envelope, deadline or None, tries, stored)


@dataclass(slots=True)
class Counts:
    """Counters of calls since the process started."""

    started: int = 0
    """Started calls, counting each start."""
    lost: int = 0
    requeued: int = 0
    """Calls returned to the queue for another worker."""
    poison: int = 0
    reconnects: int = 0
    """Reconnects to Redis."""

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum of both."""
        return Counts(
            self.started + other.started,
            self.lost + other.lost,
            self.requeued + other.requeued,
            self.poison + other.poison,
            self.reconnects + other.reconnects,
        )


@dataclass(frozen=True, slots=True)
class WorkerMetrics:
    """Metrics of a worker: its pool's queue and its counters."""

    pool: str
    waiting: int
    oldest: float
    """Seconds that the first call has been waiting."""
    counts: Counts
