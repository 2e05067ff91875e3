"""Counters of one process at work for a pool, for `/metrics`."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """What became of calls, since the process started."""

    started: int = 0
    """Calls that it began, each time."""
    lost: int = 0
    requeued: int = 0
    """Calls that it handed on to another worker."""
    poison: int = 0
    reconnects: int = 0
    """Connections to Redis that were lost and made again."""

    def plus(self, other: "Counts") -> "Counts":
        """Return the sums of both."""
        return Counts(
            self.started + other.started,
            self.lost + other.lost,
            self.requeued + other.requeued,
            self.poison + other.poison,
            self.reconnects + other.reconnects,
        )


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What a worker measures: its pool's queue, and its own counters."""

    pool: str
    waiting: int
    oldest: float
    """Seconds for which the first call waits."""
    counts: Counts
