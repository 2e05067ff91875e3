"""Which calls a server may have forgotten to have given to a worker."""

from contextlib import closing, suppress
from pathlib import Path

import pytest

from toolkiln.errors import Unreachable
from toolkiln.fleet import keys
from toolkiln.fleet.queue import RestartTracker

from .mortals import mortal
from .queues import POOL, Desk, call, desk
from .servers import Server


async def reconnected(own: Desk) -> None:
    """Wait until both connections lead to the server that there is."""
    for pipe in (own.pipe, own.waiting):
        while pipe.connects < 2:
            with suppress(Unreachable):
                await pipe.command("PING")


async def taken(own: Desk) -> dict[str, bool]:
    """The calls that wait, and whether they may have run."""
    return {delivery.record: delivery.doubtful for delivery in await own.take()}


async def test_after_a_restart_from_a_snapshot_all_but_what_comes_later_is_doubtful(
    folder: Path,
) -> None:
    with mortal(folder) as redis:
        async with desk(redis.server.url) as own:
            await own.queue.enqueue(call("held"))
            await own.take("w1")
            await own.queue.enqueue(call("before"))
            redis.save()
            redis.die()
            redis.rise()
            await reconnected(own)

            old = await taken(own)
            await own.queue.enqueue(call("after"))
            new = await taken(own)
            [held] = [one for one in await own.queue.pending("w1") if one.record == "held"]
            _, abandoned = await own.queue.claim_abandoned("w2", "0-0", 0)

    assert (old, new) == ({"before": True}, {"after": False})
    assert held.doubtful
    assert {one.record: one.doubtful for one in abandoned} == {
        "held": True,
        "before": True,
        "after": False,
    }


@pytest.mark.parametrize(("sync", "is_doubtful"), [("always", False), ("everysec", True)])
async def test_only_a_server_that_syncs_its_log_with_each_write_forgets_nothing(
    folder: Path, sync: str, is_doubtful: bool
) -> None:
    with mortal(folder, "--appendonly", "yes", "--appendfsync", sync) as redis:
        async with desk(redis.server.url) as own:
            await own.queue.enqueue(call("before"))
            with closing(redis.server.client()) as client:
                client.bgrewriteaof()
                while client.info("persistence")["aof_rewrite_in_progress"]:
                    pass
            redis.die()
            redis.rise()
            await reconnected(own)

            assert await taken(own) == {"before": is_doubtful}


@pytest.mark.parametrize("are_known", [True, False])
async def test_a_pool_is_ready_for_workers_after_a_look(server: Server, are_known: bool) -> None:
    async with desk(server.url) as own:
        with closing(server.client()) as client:
            if are_known:
                await own.queue.enqueue(call("r"))
                client.xgroup_destroy(keys.calls(POOL), keys.GROUP)

            await RestartTracker(own.pipe, POOL).check()

            [group] = client.xinfo_groups(keys.calls(POOL))
        assert group["name"] == keys.GROUP.encode()
        assert await taken(own) == ({"r": False} if are_known else {})
