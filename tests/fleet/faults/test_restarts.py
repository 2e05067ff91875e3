"""A Redis that is killed and comes back, with all, some or nothing of what it had."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from toolkiln.fleet import keys
from toolkiln.model.call import Status

from .. import servers
from ..mortals import mortal
from ..servers import Server
from ..workers import asking, code_of, performer
from .cables import Cable, cable
from .conftest import Connect
from .reckoning import begun, runs, settled, soon

pytestmark = pytest.mark.faults

LONG = 600.0


async def waiting(server: Server, count: int = 1) -> None:
    """Wait until so many calls are in the queue."""

    def look() -> bool:
        with closing(server.client()) as client:
            return int(client.xlen(keys.calls("default"))) >= count

    await soon(look)


# Without persistence


@pytest.mark.parametrize("has_snapshot", [False, True])
async def test_of_a_redis_that_forgot_calls_every_call_still_ends(
    folder: Path, tmp_path: Path, connect: Connect, has_snapshot: bool
) -> None:
    with mortal(folder) as redis, performer(redis.server.url, tmp_path):
        async with connect(redis.server.url) as kiln:
            await kiln.call("double", {"number": 1})
            if has_snapshot:  # which is older than the calls
                redis.save()
            once = asyncio.create_task(kiln.call("nap", {"seconds": 5, "mark": "once"}))
            again = asyncio.create_task(kiln.call("doze", {"seconds": 5, "mark": "again"}))
            await begun(tmp_path, "once")
            await begun(tmp_path, "again")
            redis.die()
            redis.rise()

            lost, slept = await asyncio.wait_for(asyncio.gather(once, again), 60)
            after = await kiln.call("nap", {"seconds": 0, "mark": "after"})

        assert code_of(lost) == "lost"
        assert (slept.status, code_of(slept)) == (Status.OK, None)
        assert after.status is Status.OK
        assert [len(runs(tmp_path, mark)) for mark in ("once", "after")] == [1, 1]
        await settled(redis.server)


# With a snapshot that is older than what happened


async def test_a_call_that_ended_after_the_snapshot_does_not_run_again(
    folder: Path, tmp_path: Path
) -> None:
    with mortal(folder) as redis:
        async with asking(redis.server) as asker:
            call = await asker.start("nap", {"seconds": 0, "mark": "waited"})
            redis.save()
            with performer(redis.server.url, tmp_path):
                result = await asker.end_of(call)
                redis.die()
                redis.rise()
                await settled(redis.server)

    assert result.status is Status.OK
    assert len(runs(tmp_path, "waited")) == 1


async def test_a_call_that_ran_when_the_snapshot_was_made_does_not_run_again(
    folder: Path, tmp_path: Path
) -> None:
    with mortal(folder) as redis, performer(redis.server.url, tmp_path):
        async with asking(redis.server) as asker:
            call = await asker.start("nap", {"seconds": 0.5, "mark": "ran"})
            await begun(tmp_path, "ran")
            redis.save()
            result = await asker.end_of(call)
            redis.die()
            redis.rise()
            await settled(redis.server)

    assert result.status is Status.OK
    assert len(runs(tmp_path, "ran")) == 1


# With a log of every write


async def test_a_redis_that_is_killed_and_keeps_a_log_loses_nothing(
    folder: Path, tmp_path: Path, connect: Connect
) -> None:
    with mortal(folder, "--appendonly", "yes", "--appendfsync", "always") as redis:
        with performer(redis.server.url, tmp_path, slots=1, lease=30):
            async with connect(redis.server.url) as kiln:
                calls = [
                    asyncio.create_task(kiln.call("nap", {"seconds": 0.5, "mark": str(n)}))
                    for n in range(3)
                ]
                await waiting(redis.server, 3)
                redis.die()
                redis.rise()

                results = await asyncio.wait_for(asyncio.gather(*calls), 60)

        assert {result.status for result in results} == {Status.OK}
        assert [len(runs(tmp_path, str(n))) for n in range(3)] == [1, 1, 1]
        await settled(redis.server)


# Failover


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[Server, Server, Cable]]:
    """A primary, its replica, and the cable between them."""
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with (
        servers.running(folder / "a", "--repl-diskless-sync-delay", "0") as primary,
        cable(primary.port) as between,
        servers.running(folder / "b", "--replicaof", "127.0.0.1", str(between.port)) as replica,
    ):
        yield primary, replica, between


async def caught_up(primary: Server, replica: Server) -> None:
    """Wait until the replica has all that the primary has."""

    def look() -> bool:
        with closing(primary.client()) as one, closing(replica.client()) as other:
            ahead, behind = one.info("replication"), other.info("replication")
            is_up = behind["master_link_status"] == "up"
            return bool(is_up and behind["slave_repl_offset"] >= ahead["master_repl_offset"])

    await soon(look)


def promote(replica: Server) -> None:
    with closing(replica.client()) as client:
        client.replicaof("NO", "ONE")


async def test_after_a_failover_to_a_replica_that_lagged_no_call_runs_twice_and_all_end(
    folder: Path, tmp_path: Path, connect: Connect
) -> None:
    with (
        replicated(folder) as (primary, replica, between),
        cable(primary.port) as laid,
        # The usual lease: a shorter one runs out on a busy machine, which is another fault.
        performer(laid.url, tmp_path, slots=1, lease=10),
    ):
        async with connect(laid.url) as kiln:
            await kiln.call("nap", {"seconds": 0, "mark": "before"})
            busy = asyncio.create_task(kiln.call("nap", {"seconds": 2, "mark": "busy"}))
            await begun(tmp_path, "busy")
            # Its replica knows of this one as a call that waits; and then of nothing more.
            known = asyncio.create_task(kiln.call("nap", {"seconds": 0, "mark": "known"}))
            await waiting(primary, 2)
            await caught_up(primary, replica)
            between.silence()
            ended = await asyncio.wait_for(asyncio.gather(busy, known), 60)
            unknown = asyncio.create_task(kiln.call("nap", {"seconds": 1, "mark": "unknown"}))
            again = asyncio.create_task(kiln.call("doze", {"seconds": 0, "mark": "again"}))
            await begun(tmp_path, "unknown")
            primary.process.kill()
            laid.target = replica.port
            promote(replica)
            laid.cut()
            laid.mend()

            lost, slept = await asyncio.wait_for(asyncio.gather(unknown, again), 60)
            after = await kiln.call("nap", {"seconds": 0, "mark": "after"})
            await settled(replica)

    assert [result.status for result in ended] == [Status.OK, Status.OK]
    assert code_of(lost) == "lost"
    assert (slept.status, after.status) == (Status.OK, Status.OK)
    marks = ("before", "busy", "known", "unknown", "after")
    assert {mark: len(runs(tmp_path, mark)) for mark in marks} == dict.fromkeys(marks, 1)
