"""What workers leave behind when there are very many calls, or very many of them."""

import asyncio
from contextlib import closing

import pytest

from toolkiln.fleet import keys
from toolkiln.fleet.leases import Sweeper, recover_calls
from toolkiln.fleet.queue import PoolConsumers
from toolkiln.fleet.wire import Envelope, Observe
from toolkiln.model.call import Result, Status

from ..queues import POOL, Desk, call, desk, result, working
from ..servers import Server
from .reckoning import settled, soon

pytestmark = pytest.mark.faults

LEASE = 0.3


async def test_an_abandoned_call_behind_2000_live_ones_is_found(server: Server) -> None:
    async with desk(server.url) as own:
        for record in (*(f"r{number}" for number in range(2000)), "left"):
            await own.queue.enqueue(call(record, repeatable=True))
        live = [delivery.entry for delivery in await own.take("alive", 2000)]
        [left] = await own.take("dead")
        await asyncio.sleep(1.5 * LEASE)
        await own.queue.renew("alive", live)

        found = await Sweeper(own.pipe, own.queue, "sweeper", LEASE).sweep()

        [again] = await own.take("other")
        kept = await own.queue.renew("alive", live)
    assert found == 1
    assert (again.record, again.tries) == (left.record, 1)
    assert all(kept)


async def test_a_sweeper_that_leaves_sees_to_what_it_has_just_taken_over(server: Server) -> None:
    async with desk(server.url) as own:
        await own.queue.enqueue(call("left", repeatable=True))
        await own.take("dead")
        await own.queue.claim_abandoned("w1.sweeper", "0-0", 0)  # and then it was stopped

        await Sweeper(own.pipe, own.queue, "w1", LEASE).leave()

        [again] = await own.take("other")
        consumers = await PoolConsumers(own.pipe, POOL).members()
    assert (again.record, again.tries) == ("left", 1)
    assert "w1.sweeper" not in {one.name for one in consumers}


async def perform(envelope: Envelope, left: float | None, observe: Observe | None) -> Result:
    return Result(call_id=envelope.id, tool=envelope.tool, status=Status.OK, value=1)


async def test_1000_workers_that_came_and_went_leave_nothing(server: Server) -> None:
    async with desk(server.url) as own:
        for number in range(1000):
            await (come_and_go if number % 20 else work_and_leave)(own, f"w{number}")
        consumers = await PoolConsumers(own.pipe, POOL).members()
        replies = await own.replies_to("c1")
        with closing(server.client()) as client:
            left = {key.decode() for key in client.scan_iter() if client.ttl(key) == -1}

    assert consumers == []
    assert len(replies) == 256  # as many as one read takes
    assert left <= {keys.calls(POOL), keys.lives(POOL)}
    await settled(server)


async def work_and_leave(own: Desk, name: str) -> None:
    """A worker that performs a call and leaves."""
    await own.queue.enqueue(call(name))
    async with working(own.queue, own.pipe.address, name, perform):
        while (await own.queue.call_states([name]))[0].state != "done":
            pass
    await recover_calls(own.queue, name, set())


async def come_and_go(own: Desk, name: str) -> None:
    """A worker that ends a call, begins another, and dies."""
    await own.queue.enqueue(call(name))
    await own.queue.enqueue(call(f"{name}-lost"))
    ended, begun = await own.take(name)
    await own.queue.finish(result(ended))
    await recover_calls(own.queue, name, {begun.entry})


async def test_a_call_delivered_to_a_worker_that_just_died_is_requeued_uncounted(
    server: Server,
) -> None:
    async with desk(server.url) as own, desk(server.url) as dead:
        await own.queue.enqueue(call("again", repeatable=True))
        [begun] = await dead.queue.read("w1", 1, 1)
        # The connection of a dead worker that Redis has not noticed to be closed.
        still_open = asyncio.create_task(dead.queue.read("w1", 1, 30_000))
        with closing(server.client()) as client:
            await soon(lambda: client.info("clients")["blocked_clients"] == 1)

        await recover_calls(own.queue, "w1", {begun.entry})

        given = await still_open
        [left] = await own.take("w2")
    assert (left.record, left.tries) == ("again", 1)
    assert [delivery.record for delivery in given] == ["again"]
