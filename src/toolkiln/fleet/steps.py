"""What to do with a call that was taken from the queue, decided without doing it.

Pure functions: time is handed over, in milliseconds of Redis's clock. Who acts on them is
`worker` (what it reads) and `sweeper` (what others left behind); how, is `queue`'s business.
"""

from dataclasses import dataclass
from typing import Protocol

from toolkiln.model import Result, Status

MOST_STARTS = 3
"""How often a call is begun before it is given up as poison."""
START_BY_MS = 60_000
"""How long a call may wait for a worker before its caller may give up."""
SHORT_MS = 30_000
"""How long the end of a call is known, so that a lost answer can be asked for again."""
LONG_MS = 24 * 3600 * 1000
"""How long a result is known by its caller's own id."""

# Nothing ran, and trying again may do better: the same id is free for that.
_FREE_AGAIN = frozenset({"stale", "no_worker", "no_replica", "overloaded"})


class Taken(Protocol):
    """What of a delivery decides."""

    @property
    def deadline_ms(self) -> int | None:
        """When its caller stops waiting."""

    @property
    def tries(self) -> int:
        """How often workers began it before."""

    @property
    def repeatable(self) -> bool:
        """Whether a second run does no harm."""

    @property
    def doubtful(self) -> bool:
        """Whether it may have run before Redis forgot that."""

    @property
    def cancelled(self) -> bool:
        """Whether its caller asked for it to be cancelled while it waited."""


@dataclass(frozen=True)
class Run:
    """Begin it; that is its nth start."""

    start: int

    @property
    def is_alone(self) -> bool:
        """Whether no other call may run in the same process.

        A call may have been lost only because it shared its process with one that killed it.
        The last start decides, so it has to be alone.
        """
        return self.start == MOST_STARTS


@dataclass(frozen=True)
class Requeue:
    """Put it back for another worker, as one that was begun so often."""

    tries: int


@dataclass(frozen=True)
class End:
    """Answer it with the reason that this code stands for (`endings`)."""

    code: str


@dataclass(frozen=True)
class Bury:
    """Answer it as poison, and keep it where an operator can look at it."""

    why: str


def next_step(taken: Taken, now_ms: int) -> Run | End | Bury:
    """What a worker does with a call that it has read."""
    if taken.cancelled:
        return End("cancelled")
    if taken.doubtful and not taken.repeatable:
        return End("lost")
    if _is_late(taken, now_ms):
        return End("timeout")
    if taken.tries >= MOST_STARTS:
        return Bury(f"begun {taken.tries} times and never ended")
    return Run(taken.tries + 1)


def after_loss(taken: Taken, now_ms: int) -> Requeue | End | Bury:
    """What a sweeper does with a call whose worker began it and is gone."""
    tries = taken.tries + 1
    if not taken.repeatable:
        return End("lost")
    if tries >= MOST_STARTS:
        return Bury(f"begun {tries} times and never ended")
    if _is_late(taken, now_ms):
        return End("timeout")
    return Requeue(tries)


def before_leaving(taken: Taken, now_ms: int, *, begun: bool) -> Requeue | End | Bury:
    """What a worker that has to stop does with a call that it holds."""
    if begun or taken.doubtful:
        return after_loss(taken, now_ms)
    return End("timeout") if _is_late(taken, now_ms) else Requeue(taken.tries)


def horizon_ms(code: str | None, *, remember: bool) -> int:
    """How long an end is known; 0 frees the id at once. `code` is None for a result."""
    if code in _FREE_AGAIN:
        return 0
    return LONG_MS if remember else SHORT_MS


def leaves_open(result: Result) -> bool:
    """Whether a call's id is free for another try: it was refused before anything ran.

    What a person decided stands.
    """
    was_refused = result.status in (Status.INVALID, Status.DENIED) and not result.sandbox
    is_decided = result.error is not None and result.error.code == "rejected"
    return result.is_open or (was_refused and not is_decided)


def _is_late(taken: Taken, now_ms: int) -> bool:
    return taken.deadline_ms is not None and taken.deadline_ms <= now_ms
