"""Leases of calls: the table of a worker, its keeper, and the sweeper of expired leases.

The worker writes the table, which is in shared memory, when a call starts and ends; that takes
about a microsecond. The keeper reads it in another process and renews the leases. There is no
lock: each slot has one writer, and a torn read gives at worst an entry that the worker does not
hold, which Redis detects on renewal.

The sweeper finds the calls of dead workers and ends or requeues them. Every worker runs one; a
lease on a key makes one per pool active. A second active one would do no harm, because claiming
and requeueing are atomic. `steps` decides what happens to a call.
"""

import asyncio
import logging
import mmap
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from toolkiln.errors import StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Counts, Delivery, Ending
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.steps import Bury, End, Requeue, after_loss, before_leaving

_SLOT = Struct("48sd")
"""Entry id, empty if the slot is free, and the time by which the call must end."""
_ENTRY = re.compile(rb"[0-9]+-[0-9]+")
_BEAT = Struct("d")
_COUNTS = Struct("4Q")
_COUNTS_OFFSET = _BEAT.size
_UNTIL = Struct("d")
_UNTIL_OFFSET = 48
_HEADER = 64
"""Offset of the first slot."""
NOT_STARTED = -1.0
"""Deadline of a call that has not started."""


class HeldEntry(NamedTuple):
    """A stream entry that a worker holds."""

    entry: str
    until: float
    """By when its call must end, on the monotonic clock, which all processes share."""

    @property
    def has_begun(self) -> bool:
        """Whether the call may have started."""
        return self.until != NOT_STARTED


class LeaseTable:
    """Lease table, shared by a worker and its keeper."""

    def __init__(self, file: int) -> None:
        """`file` is a descriptor from `new_lease_table`, in either process."""
        self._memory = mmap.mmap(file, 0)
        self.slots = (len(self._memory) - _HEADER) // _SLOT.size
        self._free = [_HEADER + _SLOT.size * number for number in reversed(range(self.slots))]

    @property
    def free(self) -> int:
        """Number of free slots; for the writer."""
        return len(self._free)

    def hold(self, entry: str, until: float) -> int:
        """Add an entry and return its slot."""
        slot = self._free.pop()
        _SLOT.pack_into(self._memory, slot, entry.encode(), until)
        return slot

    def begin(self, slot: int, until: float) -> None:
        """Mark a NOT_STARTED call as started."""
        _UNTIL.pack_into(self._memory, slot + _UNTIL_OFFSET, until)

    def release(self, slot: int) -> None:
        """Free a slot."""
        self._memory[slot] = 0
        self._free.append(slot)

    def beat(self) -> None:
        """Record a heartbeat of the worker's event loop."""
        _BEAT.pack_into(self._memory, 0, time.monotonic())

    @property
    def silence(self) -> float:
        """Seconds since the last heartbeat; 0 before the first."""
        last: float = _BEAT.unpack_from(self._memory)[0]
        return max(0.0, time.monotonic() - last) if last else 0.0

    def write_counts(self, counts: Counts) -> None:
        """Store the counters of the keeper's process."""
        parts = counts.lost, counts.requeued, counts.poison, counts.reconnects
        _COUNTS.pack_into(self._memory, _COUNTS_OFFSET, *parts)

    @property
    def counts(self) -> Counts:
        """The counters of the keeper's process."""
        return Counts(0, *_COUNTS.unpack_from(self._memory, _COUNTS_OFFSET))

    def held(self) -> list[HeldEntry]:
        """Return the entries that the worker holds."""
        slots = _SLOT.iter_unpack(self._memory[_HEADER : _HEADER + self.slots * _SLOT.size])
        entries = ((entry.rstrip(b"\0"), until) for entry, until in slots)
        return [
            HeldEntry(entry.decode(), until) for entry, until in entries if _ENTRY.fullmatch(entry)
        ]

    def started(self) -> set[str]:
        """Return the entries whose calls may have started."""
        return {held.entry for held in self.held() if held.has_begun}

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()


def new_lease_table(slots: int) -> int:
    """Return the descriptor of an empty table, for this process and its children."""
    file = os.memfd_create("toolkiln-leases")
    os.truncate(file, _HEADER + slots * _SLOT.size)
    return file


SILENT_SECONDS = 2.0
"""Seconds without a heartbeat after which an event loop counts as blocked."""
GRACE_SECONDS = 5.0
"""Seconds that a worker gets to end a call after its deadline."""
FROZEN_SECONDS = 30.0
"""Seconds after which a stopped process, or an idle one with a blocked loop, is hung."""
_RENEW_BATCH = 500
"""Entries renewed by one script, which blocks Redis."""
_STOPPED = frozenset("Tt")
_TRACED = "t"
_GONE = frozenset("ZX")
_log = logging.getLogger(__name__)
Renew = Callable[[str, Sequence[str]], Awaitable[list[bool]]]
"""Renews the leases of a consumer's entries; returns for each whether it still holds it."""


class WorkerHealth(Enum):
    """A keeper's assessment of its worker."""

    HEALTHY = "healthy"
    STOPPED = "stopped"  # its leases are not renewed
    GONE = "gone"
    HUNG = "hung"


def assess_worker(
    state: str,
    silence: float,
    held: Iterable[HeldEntry],
    now: float,
    frozen: float = FROZEN_SECONDS,
) -> WorkerHealth:
    """Assess a worker by its process state, its event loop and its calls.

    `state` is a letter from /proc, empty if the process is gone. A process stopped by a debugger
    never counts as hung.
    """
    if not state or state in _GONE:
        return WorkerHealth.GONE
    if state in _STOPPED:
        return WorkerHealth.HUNG if silence > frozen and state != _TRACED else WorkerHealth.STOPPED
    started = [held_entry for held_entry in held if held_entry.has_begun]
    if silence > SILENT_SECONDS and any(
        now > held_entry.until + GRACE_SECONDS for held_entry in started
    ):
        return WorkerHealth.HUNG
    return WorkerHealth.HUNG if silence > frozen and not started else WorkerHealth.HEALTHY


def process_state(process: int) -> str:
    """Return the state letter of a process (R, S, T …); empty if it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("latin-1")
    except OSError:
        return ""
    return stat.rpartition(") ")[2][:1]


class LeaseKeeper:
    """Renews the leases of a worker from another process, so that a blocked worker keeps them."""

    def __init__(
        self,
        leases: LeaseTable,
        renew: Renew,
        consumer: str,
        process: int,
        lease: float,
        frozen: float = FROZEN_SECONDS,
        counts: Callable[[], Counts] = Counts,
    ) -> None:
        """`lease` is the lease time in seconds.

        A process without a heartbeat for `frozen` seconds is hung. `counts` returns the counters
        of this process, which the worker reports.
        """
        self._leases = leases
        self._renew_leases = renew
        self._consumer = consumer
        self._process = process
        self._pause = lease / 3
        self._frozen = frozen
        self._counts = counts
        self._last, self._awake_since = time.monotonic(), 0.0

    async def run(self, channel: socket.socket) -> WorkerHealth:
        """Renew leases until the worker is gone or hung; lost ones are sent over `channel`."""
        while True:
            now = time.monotonic()
            if now - self._last > self._pause + SILENT_SECONDS:
                self._awake_since = now  # this process was stopped too, perhaps with the worker
            self._last = now
            self._leases.write_counts(self._counts())
            held, state = self._leases.held(), process_state(self._process)
            silence = min(self._leases.silence, now - self._awake_since)
            health = assess_worker(state, silence, held, now, self._frozen)
            if health in (WorkerHealth.GONE, WorkerHealth.HUNG):
                return health
            if health is WorkerHealth.HEALTHY:
                entries = [held_entry.entry for held_entry in held]
                for start in range(0, len(entries), _RENEW_BATCH):
                    await self._renew(entries[start : start + _RENEW_BATCH], channel)
            await asyncio.sleep(self._pause)

    async def _renew(self, entries: list[str], channel: socket.socket) -> None:
        try:
            renewed = await self._renew_leases(self._consumer, entries)
        except StoreError as error:  # the next attempt may succeed in time
            _log.warning("cannot renew leases: %s", error.message)
            return
        lost = [entry for entry, is_renewed in zip(entries, renewed, strict=True) if not is_renewed]
        if lost:
            await send_lines(channel, *lost)


async def send_lines(channel: socket.socket, *lines: str) -> None:
    """Send lines to the process at the other end, if it reads."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            await loop.sock_sendall(channel, "".join(f"{line}\n" for line in lines).encode())
    except (OSError, TimeoutError):
        _log.warning("the worker does not read its channel")


_IDLE_MS = 60_000
"""How long an idle consumer is kept; a live one reads every few seconds."""
_FIRST_CURSOR = "0-0"
_MAX_CHECKS, _CHECK_PAUSE = 50, 0.02
"""How often, and at what interval, the calls of a dead worker are checked."""


class Sweeper:
    """Sweeper of one pool."""

    def __init__(self, pipe: RedisPipe, queue: Queue, name: str, lease: float) -> None:
        """`name` is the worker's; `lease` the lease time of its calls in seconds."""
        self._pipe = pipe
        self._queue = queue
        self._name = name
        self._consumer = f"{name}.sweeper"
        self._lease_ms = round(lease * 1000)
        self._lease, self._pause = lease, lease / 3
        self._connects = pipe.connects
        self._cursor = _FIRST_CURSOR

    async def run(self) -> None:
        """Sweep periodically until cancelled."""
        while True:
            await asyncio.sleep(self._pause)
            if self._connects != self._pipe.connects:
                # No worker could renew its leases: give live ones time to do so.
                self._connects = self._pipe.connects
                await asyncio.sleep(self._lease)
            try:
                if await self._acquire_lease():
                    await self.sweep()
            except StoreError as error:  # retried next time
                _log.warning("cannot sweep abandoned calls: %s", error.message)

    async def sweep(self) -> int:
        """Check all calls once and return how many were abandoned."""
        count = 0
        while True:
            self._cursor, abandoned = await self._queue.claim_abandoned(
                self._consumer, self._cursor, self._lease_ms
            )
            await self._recover(abandoned)
            count += len(abandoned)
            if self._cursor == _FIRST_CURSOR:
                break
        for consumer in await self._queue.consumers.members():
            if not consumer.pending and consumer.idle_ms > _IDLE_MS:
                await self._queue.consumers.retire(consumer.name)
        return count

    async def leave(self) -> None:
        """Release the sweeper lease and delete the worker from Redis."""
        # Calls that it claimed just before it was stopped: others would notice them late.
        await self._recover(await self._queue.pending(self._consumer))
        await self._queue.consumers.retire(self._consumer)
        await self._pipe.command("DEL", keys.worker(self._name))
        if await self._lease_owner() == self._name:
            await self._pipe.command("DEL", keys.sweeper(self._queue.pool))

    async def _recover(self, abandoned: Sequence[Delivery]) -> None:
        now = await self._queue.now_ms() if abandoned else 0
        for delivery in abandoned:
            await apply_step(self._queue, delivery, after_loss(delivery, now))

    async def _acquire_lease(self) -> bool:
        key, milliseconds = keys.sweeper(self._queue.pool), round(self._pause * 1500)
        if await self._pipe.command("SET", key, self._name, "NX", "PX", milliseconds) is not None:
            return True
        if await self._lease_owner() != self._name:
            return False
        await self._pipe.command("PEXPIRE", key, milliseconds)
        return True

    async def _lease_owner(self) -> str:
        held: bytes | None = await self._pipe.command("GET", keys.sweeper(self._queue.pool))
        return (held or b"").decode("utf-8", "replace")


async def recover_calls(queue: Queue, consumer: str, started: Collection[str]) -> None:
    """End or requeue the calls of a worker known to be dead, and delete its consumer.

    Redis may not have noticed yet that the worker's connections are closed, and deliver a requeued
    call to its blocked read: so check several times. A sweeper finds the rest.
    """
    for _ in range(_MAX_CHECKS):
        held = await queue.pending(consumer)
        now = await queue.now_ms() if held else 0
        for delivery in held:
            step = before_leaving(delivery, now, begun=delivery.entry in started)
            await apply_step(queue, delivery, step)
        if await queue.consumers.retire(consumer):
            return
        await asyncio.sleep(_CHECK_PAUSE)


async def apply_step(queue: Queue, delivery: Delivery, step: Requeue | End | Bury) -> bool:
    """Apply a decision to a call; False if it already ended or was requeued."""
    counts = queue.counts
    match step:
        case Requeue(tries):
            is_done = await queue.requeue(delivery, tries)
            counts.requeued += is_done
        case End(code):
            is_done = await queue.finish(Ending(delivery, "end", code.encode()))
            counts.lost += is_done and code == "lost"
        case Bury(why):
            is_done = await queue.bury(delivery, why)
            counts.poison += is_done
    return is_done
