"""The values of a queue: what became of a call that was put in, what comes out, how it ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec import Struct

from toolkiln.fleet import bodies
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.wire import Envelope, Malformed, Reply, envelope_from_wire


@dataclass(frozen=True)
class Accepted:
    """The call is in the queue: exactly one terminal reply will follow."""

    entry: str = field(default="", compare=False)
    """Its place there; a reply to an earlier one is not about this call."""


@dataclass(frozen=True)
class Running:
    """It was accepted before and has not ended: whoever asks again gets the same reply."""


@dataclass(frozen=True)
class Finished:
    """It has ended."""

    reply: Reply | None
    """None if it is not remembered: the reply stream of whoever asked first has it."""


@dataclass(frozen=True)
class Conflict:
    """The id belongs to a call with another tool or other arguments."""


@dataclass(frozen=True)
class Overloaded:
    """It was not accepted; the same id can be tried again."""

    retry_after: float
    """Seconds."""


Admission = Accepted | Running | Finished | Conflict | Overloaded


class Delivery(Struct, frozen=True):
    """A call that this consumer holds."""

    entry: str
    """Its place in the queue: after it was handed on or ended, this one counts no more."""
    envelope: Envelope
    deadline_ms: int | None
    """By Redis's clock."""
    tries: int
    """How often workers began it before."""
    stored: bool = False
    """Whether its envelope is a key of its own."""
    doubtful: bool = False
    """Whether it may have run before Redis forgot that (`lives`)."""
    cancelled: bool = False
    """Whether its caller asked for it to be cancelled while it waited."""

    @property
    def record(self) -> str:
        """What the call is known by."""
        return self.envelope.record

    @property
    def repeatable(self) -> bool:
        """Whether a second run does no harm."""
        return self.envelope.repeatable


class Ending(NamedTuple):
    """How a delivery ends."""

    delivery: Delivery
    kind: Literal["result", "end"]
    body: bytes
    """`wire.result_to_wire`, or the code of an end (`endings`)."""
    is_open: bool = False
    """Whether another call may be made under the same id, as nothing ran."""


class Standing(NamedTuple):
    """How a call stands."""

    state: Literal["waiting", "running", "done", "missing"]
    """`missing`: Redis knows nothing of it, or lost its entry."""
    age_ms: int
    """Since it was put into the queue or handed on, of a running one since its worker last
    renewed its lease, by Redis's clock; 0 if it is over."""
    reply: Reply | None
    """Of one that is done, if it is remembered."""


class Ask(NamedTuple):
    """Something that workers are asked to do."""

    ask: str
    """`cancel`, `answer`, `drain`, `reload` …"""
    of: str
    """A record, a worker's id, or nothing."""
    is_client: bool = False
    """Whether a client asks, whose word counts for calls of its own only."""


class Consumer(NamedTuple):
    """One that reads, or once read, from the queue."""

    name: str
    pending: int
    """Calls that it holds."""
    idle_ms: int


async def read_delivery(pipe: Pipe, entry: str, said: Mapping[bytes, bytes]) -> Delivery:
    """The delivery that the fields of an entry stand for.

    Raises:
        Malformed: they stand for none, or their body is gone.
        StoreError: Redis failed.
    """
    try:
        record, data = said[b"record"].decode(), said[b"call"]
        by, tries = int(said[b"by"]), int(said[b"tries"])
    except (KeyError, ValueError) as error:
        raise Malformed(f"an entry cannot be read: {error}") from None
    stored = bodies.is_reference(data)
    if stored:
        data = await bodies.fetch(pipe, record, "call", data)
    envelope = envelope_from_wire(data)
    if envelope.record != record or tries < 0:
        raise Malformed("an entry contradicts its envelope")
    return Delivery(entry, envelope, by or None, tries, stored)
