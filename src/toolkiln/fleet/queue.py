"""A pool's calls in Redis: in, out, ended, handed on. Moves bytes and decides nothing.

Each act is one script, atomic and safe to repeat where an answer may be lost; what to do
with a call is decided in `steps`. Keys are in `keys`, the scripts in `lua/`. A `Queue` is
used by callers (`enqueue`, `standing`, `cancel`) and workers (the rest) alike; replies are
read with `replies.Replies`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.wire import Envelope, Reply


@dataclass(frozen=True)
class Accepted:
    """The call is in the queue: exactly one terminal reply will follow."""


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


@dataclass(frozen=True)
class Delivery:
    """A call that this consumer holds."""

    entry: str
    """Its place in the queue: after it was handed on or ended, this one counts no more."""
    envelope: Envelope
    deadline_ms: int | None
    """By Redis's clock."""
    tries: int
    """How often workers began it before."""

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


class Standing(NamedTuple):
    """How a call stands."""

    state: Literal["waiting", "running", "done", "missing"]
    """`missing`: Redis knows nothing of it, or lost its entry."""
    age_ms: int
    """Since it was put into the queue, or handed on, by Redis's clock; 0 if it is over."""
    reply: Reply | None
    """Of one that is done, if it is remembered."""


class Ask(NamedTuple):
    """Something that workers are asked to do."""

    ask: str
    """`cancel`, `drain`, `reload` …"""
    of: str
    """A record, a worker's id, or nothing."""


class Consumer(NamedTuple):
    """One that reads, or once read, from the queue."""

    name: str
    pending: int
    """Calls that it holds."""
    idle_ms: int


class Queue:
    """The calls of one pool."""

    def __init__(
        self,
        pipe: Pipe,
        pool: str,
        *,
        waiting: Pipe | None = None,
        most_waiting: int = 10_000,
        oldest_waiting_ms: int = 60_000,
    ) -> None:
        """`waiting` is the connection for reads that block; workers need one of its own."""
        self.pool = pool
        self._pipe, self._waiting = pipe, waiting or pipe
        self._limits = (most_waiting, oldest_waiting_ms)

    async def enqueue(self, envelope: Envelope) -> Admission:
        """Put a call in, or say what became of the same one; with others of the same moment.

        Raises:
            Unreachable: with `sent`, it may have been accepted; asking again is safe.
            StoreError: Redis failed.
            InputError: the call is too large.
        """
        raise NotImplementedError

    async def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        """Take up to so many calls, waiting for the first; what cannot be read is buried."""
        raise NotImplementedError

    async def own(self, consumer: str) -> list[Delivery]:
        """All that this consumer holds already, for after a reconnect."""
        raise NotImplementedError

    async def finish(self, ending: Ending) -> bool:
        """End a call and tell all who asked; False if it was ended or handed on before.

        With others of the same moment. Works when Redis has no memory left.
        """
        raise NotImplementedError

    async def requeue(self, delivery: Delivery, tries: int) -> bool:
        """Hand a call on to another worker; False if it was ended or handed on before."""
        raise NotImplementedError

    async def bury(self, delivery: Delivery, why: str) -> bool:
        """End a call as poison and keep it with the dead letters; False as in `finish`."""
        raise NotImplementedError

    async def renew(self, consumer: str, entries: Sequence[str]) -> list[bool]:
        """Say that this consumer is at work on its calls; False for one that it lost."""
        raise NotImplementedError

    async def abandoned(
        self, consumer: str, cursor: str, idle_ms: int, count: int = 100
    ) -> tuple[str, list[Delivery]]:
        """Take over calls that nobody renewed for so long; where to go on, `0-0` at the end."""
        raise NotImplementedError

    async def cancel(self, record: str) -> Literal["cancelled", "asked", "done", "unknown"]:
        """End a call that waits, or ask the workers to stop one that runs."""
        raise NotImplementedError

    async def withdraw(self, record: str, code: str) -> bool:
        """End a call for a reason if no worker has taken it yet, such as `no_worker`."""
        raise NotImplementedError

    async def standing(self, records: Sequence[str]) -> list[Standing]:
        """How calls stand, of any pool."""
        raise NotImplementedError

    async def attach(self, record: str, reply_to: str) -> Standing:
        """Tell this stream too when a call ends; how the call stands."""
        raise NotImplementedError

    async def tell(self, reply_to: str, replies: Sequence[Reply]) -> None:
        """Send events to one caller."""
        raise NotImplementedError

    async def ask(self, ask: Ask) -> None:
        """Ask all workers of the pool for something."""
        raise NotImplementedError

    async def asked(self, last: str, block_ms: int, pipe: Pipe) -> tuple[str, list[Ask]]:
        """What was asked since `last` (at first `$`), over a connection that may wait."""
        raise NotImplementedError

    async def now_ms(self) -> int:
        """Redis's clock."""
        raise NotImplementedError

    async def consumers(self) -> list[Consumer]:
        """All that read, or once read, from the queue."""
        raise NotImplementedError

    async def retire(self, consumer: str) -> bool:
        """Forget a consumer if it holds nothing."""
        raise NotImplementedError

    async def depth(self) -> tuple[int, int]:
        """How many calls wait, and how many are held by workers."""
        raise NotImplementedError
