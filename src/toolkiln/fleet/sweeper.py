"""Sweeper: finds the calls of dead workers and ends or requeues them.

Every worker runs one; a lease on a key makes one per pool active. A second active one would do no
harm, because claiming and requeueing are atomic. `steps` decides what happens to a call.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence

from toolkiln.errors import StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Delivery, Ending
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.steps import Bury, End, Requeue, after_loss, before_leaving

_IDLE_MS = 60_000
"""How long an idle consumer is kept; a live one reads every few seconds."""
_FIRST_CURSOR = "0-0"
_MAX_CHECKS, _PAUSE = 50, 0.02
"""How often, and at what interval, the calls of a dead worker are checked."""
_log = logging.getLogger(__name__)


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
        await asyncio.sleep(_PAUSE)


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
