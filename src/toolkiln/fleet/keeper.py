"""The keeper: a process beside the worker that renews its leases, and that no tool can stall.

It runs no tool code. It believes the table (`leases`) as long as the worker's process goes
on: one that is stopped keeps nothing, one whose event loop stands still keeps its calls until
the first of them must have ended, and is then taken for hung. So is one that is stopped, or
idle without a sign of its event loop, for longer than `FROZEN`. What is lost it tells the
worker, by the entry's id on a line. It decides nothing else about calls.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from toolkiln.fleet.counts import Counts
from toolkiln.fleet.leases import Held, Leases
from toolkiln.store import StoreError

SILENT = 2.0
"""Seconds after which an event loop that has not said anything is taken to stand still."""
GRACE = 5.0
"""Seconds that a worker gets to end a call which has run out of time."""
FROZEN = 30.0
"""Seconds after which a process that is stopped, or idle with a silent event loop, is hung."""
_AT_ONCE = 500
"""Entries that are renewed together: Redis does nothing else meanwhile."""
_STOPPED = frozenset("Tt")
_TRACED = "t"
_GONE = frozenset("ZX")
_log = logging.getLogger(__name__)


class Renews(Protocol):
    """The part of a queue that a keeper needs."""

    def renew(self, consumer: str, entries: Sequence[str]) -> Awaitable[list[bool]]:
        """Hold entries for another lease; whether each was still this consumer's."""
        ...


class Verdict(Enum):
    """What a keeper makes of its worker."""

    GOES_ON = "goes on"
    STOPPED = "stopped"  # it holds nothing until it is continued
    GONE = "gone"
    HUNG = "hung"


def judge(
    state: str, silence: float, held: Iterable[Held], now: float, frozen: float = FROZEN
) -> Verdict:
    """Judge a worker by the state of its process, its event loop and its calls.

    `state` is a letter of /proc, empty if there is no such process. A process under a
    debugger is never taken for hung because it is stopped.
    """
    if not state or state in _GONE:
        return Verdict.GONE
    if state in _STOPPED:
        return Verdict.HUNG if silence > frozen and state != _TRACED else Verdict.STOPPED
    begun = [one for one in held if one.has_begun]
    if silence > SILENT and any(now > one.until + GRACE for one in begun):
        return Verdict.HUNG
    return Verdict.HUNG if silence > frozen and not begun else Verdict.GOES_ON


def state_of(process: int) -> str:
    """How a process stands: R, S, T …; empty if there is none."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("latin-1")
    except OSError:
        return ""
    return stat.rpartition(") ")[2][:1]


class Keeper:
    """Keeps the leases of one worker process."""

    def __init__(
        self,
        leases: Leases,
        queue: Renews,
        consumer: str,
        process: int,
        lease: float,
        frozen: float = FROZEN,
        counts: Callable[[], Counts] = Counts,
    ) -> None:
        """`lease` is how long an entry is held without being renewed, in seconds.

        `frozen` are the seconds after which a process without a sign of life is hung;
        `counts` are this process's own, for the worker to show.
        """
        self._leases = leases
        self._queue = queue
        self._consumer = consumer
        self._process = process
        self._pause = lease / 3
        self._frozen = frozen
        self._counts = counts
        self._last, self._awake_since = time.monotonic(), 0.0

    async def run(self, channel: socket.socket) -> Verdict:
        """Renew until the worker is gone or hung; the channel leads to it."""
        while True:
            now = time.monotonic()
            if now - self._last > self._pause + SILENT:
                self._awake_since = now  # this process was stopped too, maybe with the worker
            self._last = now
            self._leases.note(self._counts())
            held, state = self._leases.held(), state_of(self._process)
            silence = min(self._leases.silence, now - self._awake_since)
            verdict = judge(state, silence, held, now, self._frozen)
            if verdict in (Verdict.GONE, Verdict.HUNG):
                return verdict
            if verdict is Verdict.GOES_ON:
                entries = [one.entry for one in held]
                for start in range(0, len(entries), _AT_ONCE):
                    await self._renew(entries[start : start + _AT_ONCE], channel)
            await asyncio.sleep(self._pause)

    async def _renew(self, entries: list[str], channel: socket.socket) -> None:
        try:
            kept = await self._queue.renew(self._consumer, entries)
        except StoreError as error:  # the next try may come in time
            _log.warning("leases cannot be renewed: %s", error.message)
            return
        lost = [entry for entry, is_kept in zip(entries, kept, strict=True) if not is_kept]
        if lost:
            await tell(channel, *lost)


async def tell(channel: socket.socket, *words: str) -> None:
    """Write lines to the process at the other end, if there is one that reads."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SILENT):
            await loop.sock_sendall(channel, "".join(f"{word}\n" for word in words).encode())
    except (OSError, TimeoutError):
        _log.warning("the worker does not listen")
