"""The sweeper: finds the calls that dead workers left behind, and sees that they end.

Every worker brings one along, and of those of a pool one is at work, by a lease on a key; a
second one would do no harm, as taking over and handing on are atomic. What becomes of a call
is decided by `steps`.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence

from toolkiln.fleet import keys
from toolkiln.fleet.deliveries import Delivery, Ending
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.steps import Bury, End, Requeue, after_loss, before_leaving
from toolkiln.store import StoreError

_FORGOTTEN_MS = 60_000
"""How long a consumer that holds nothing is kept: one that lives asks every few seconds."""
_START = "0-0"
_MOST_LOOKS, _PAUSE = 50, 0.02
"""How often, and with how many seconds between, the calls of a dead worker are looked at."""
_log = logging.getLogger(__name__)


class Sweeper:
    """Looks after one pool, if no other does."""

    def __init__(self, pipe: Pipe, queue: Queue, name: str, lease: float) -> None:
        """`name` is the worker's; `lease` the seconds for which its calls hold unrenewed."""
        self._pipe = pipe
        self._queue = queue
        self._name = name
        self._consumer = f"{name}.sweeper"
        self._lease_ms = round(lease * 1000)
        self._lease, self._pause = lease, lease / 3
        self._connects = pipe.connects
        self._cursor = _START

    async def run(self) -> None:
        """Sweep now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(self._pause)
            if self._connects != self._pipe.connects:
                # Nobody could renew anything meanwhile; those who live have to come first.
                self._connects = self._pipe.connects
                await asyncio.sleep(self._lease)
            try:
                if await self._is_ours():
                    await self.sweep()
            except StoreError as error:  # the next time may do better
                _log.warning("abandoned calls cannot be looked for: %s", error.message)

    async def sweep(self) -> int:
        """Go through all calls once, and say how many had been abandoned."""
        found = 0
        while True:
            self._cursor, abandoned = await self._queue.abandoned(
                self._consumer, self._cursor, self._lease_ms
            )
            await self._see_to(abandoned)
            found += len(abandoned)
            if self._cursor == _START:
                break
        for consumer in await self._queue.crew.consumers():
            if not consumer.pending and consumer.idle_ms > _FORGOTTEN_MS:
                await self._queue.crew.retire(consumer.name)
        return found

    async def leave(self) -> None:
        """Let others look after the pool at once, and forget the worker that this one is of."""
        # What it had just taken over when it was stopped nobody else would see to so soon.
        await self._see_to(await self._queue.own(self._consumer))
        await self._queue.crew.retire(self._consumer)
        await self._pipe.command("DEL", keys.worker(self._name))
        if await self._holder() == self._name:
            await self._pipe.command("DEL", keys.sweeper(self._queue.pool))

    async def _see_to(self, abandoned: Sequence[Delivery]) -> None:
        now = await self._queue.now_ms() if abandoned else 0
        for delivery in abandoned:
            await carry_out(self._queue, delivery, after_loss(delivery, now))

    async def _is_ours(self) -> bool:
        key, milliseconds = keys.sweeper(self._queue.pool), round(self._pause * 1500)
        if await self._pipe.command("SET", key, self._name, "NX", "PX", milliseconds) is not None:
            return True
        if await self._holder() != self._name:
            return False
        await self._pipe.command("PEXPIRE", key, milliseconds)
        return True

    async def _holder(self) -> str:
        held: bytes | None = await self._pipe.command("GET", keys.sweeper(self._queue.pool))
        return (held or b"").decode("utf-8", "replace")


async def settle(queue: Queue, consumer: str, begun: Collection[str]) -> None:
    """Hand on, or end, what a worker held that is known to be dead; then forget it.

    Redis may not have noticed yet that the connections of the worker are closed, and give a
    call that is handed on to its blocked read: what the dead worker holds is looked at again.

    Raises:
        StoreError: Redis failed; a sweeper finds what is left.
    """
    for _ in range(_MOST_LOOKS):
        held = await queue.own(consumer)
        now = await queue.now_ms() if held else 0
        for delivery in held:
            step = before_leaving(delivery, now, begun=delivery.entry in begun)
            await carry_out(queue, delivery, step)
        if await queue.crew.retire(consumer):
            return
        await asyncio.sleep(_PAUSE)


async def carry_out(queue: Queue, delivery: Delivery, step: Requeue | End | Bury) -> bool:
    """Do what was decided about a call; False if it was ended or handed on before.

    Raises:
        StoreError: Redis failed; nothing or all of it was done.
    """
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
