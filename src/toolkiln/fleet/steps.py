"""Decisions about calls taken from the queue, as pure functions.

Times are in milliseconds of the Redis clock. `worker` applies them to calls that it reads,
`leases` to calls of dead workers.
"""

from dataclasses import dataclass

from toolkiln.fleet.delivery import Delivery
from toolkiln.model.call import Result, Status

MOST_STARTS = 3
"""How often a call is started before it counts as poison."""
START_BY_MS = 60_000
"""How long a call may wait for a worker before its caller may withdraw it."""
SHORT_MS = 30_000
"""How long the end of a call is kept, in case its reply is lost."""
LONG_MS = 24 * 3600 * 1000
"""How long a result is kept under a caller-chosen id."""

# Nothing ran and a retry may succeed, so the id can be reused.
_REUSABLE = frozenset({"stale", "no_worker", "no_replica", "overloaded"})


@dataclass(frozen=True)
class Begin:
    """Start the call, for the nth time."""

    start: int

    @property
    def is_alone(self) -> bool:
        """Whether no other call may run in the same process.

        A call may have been lost because another call killed the process they shared. The last
        start decides, so it runs alone.
        """
        return self.start == MOST_STARTS


@dataclass(frozen=True)
class Requeue:
    """Return the call to the queue, with this number of starts."""

    tries: int


@dataclass(frozen=True)
class End:
    """End the call with this code."""

    code: str


@dataclass(frozen=True)
class Bury:
    """End the call as poison and keep it as a dead letter."""

    why: str


def next_step(call: Delivery, now_ms: int) -> Begin | End | Bury:
    """Decide what a worker does with a call that it has read."""
    if call.cancelled:
        return End("cancelled")
    if call.doubtful and not call.repeatable:
        return End("lost")
    if _is_late(call, now_ms):
        return End("timeout")
    if call.tries >= MOST_STARTS:
        return Bury(f"begun {call.tries} times and never ended")
    return Begin(call.tries + 1)


def after_loss(call: Delivery, now_ms: int) -> Requeue | End | Bury:
    """Decide what a sweeper does with a call whose worker started it and died."""
    tries = call.tries + 1
    if not call.repeatable:
        return End("lost")
    if tries >= MOST_STARTS:
        return Bury(f"begun {tries} times and never ended")
    if _is_late(call, now_ms):
        return End("timeout")
    return Requeue(tries)


def before_leaving(call: Delivery, now_ms: int, *, begun: bool) -> Requeue | End | Bury:
    """Decide what a stopping worker does with a call that it holds."""
    if begun or call.doubtful:
        return after_loss(call, now_ms)
    return End("timeout") if _is_late(call, now_ms) else Requeue(call.tries)


def horizon_ms(code: str | None, *, remember: bool) -> int:
    """Return how long an end is kept; 0 frees the id. `code` is None for a result."""
    if code in _REUSABLE:
        return 0
    return LONG_MS if remember else SHORT_MS


def leaves_open(result: Result) -> bool:
    """Return whether a call's id can be reused: it was refused before anything ran.

    A person's rejection is final.
    """
    was_refused = result.status in (Status.INVALID, Status.DENIED) and not result.sandbox
    is_decided = result.error is not None and result.error.code == "rejected"
    return result.is_open or (was_refused and not is_decided)


def _is_late(call: Delivery, now_ms: int) -> bool:
    return call.deadline_ms is not None and call.deadline_ms <= now_ms
