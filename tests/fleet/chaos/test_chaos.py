"""Minutes of calls of every kind while everything dies at random, then the reckoning."""

import asyncio
import os
import random
import secrets
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
import redis

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.fleet import keys

from ..faults.reckoning import lasting, soon, under_way
from ..mortals import mortal
from .calamities import POOL, Fleet
from .callers import Callers, Ledger

SECONDS = float(os.environ.get("CHAOS_SECONDS", "300"))
SEED = os.environ.get("CHAOS_SEED") or secrets.token_hex(4)
POOLS = ("default", POOL)
AT_ONCE = 10
MEGABYTE = 1 << 20


@pytest.mark.chaos
async def test_whatever_dies_every_call_ends_once_and_nothing_is_left(
    folder: Path, tmp_path: Path
) -> None:
    chance, ledger = random.Random(SEED), Ledger()
    sync = chance.choice(["always", "everysec"])
    print(f"\nCHAOS_SECONDS={SECONDS:g} CHAOS_SEED={SEED}: appendfsync {sync}")
    with mortal(folder, "--appendonly", "yes", "--appendfsync", sync) as server:
        fleet = Fleet(server, tmp_path, random.Random(chance.random()))
        try:
            await fleet.begin()
            before = memory(server.server.port)
            await run(fleet, ledger, chance, tmp_path)
            await soon(lambda: is_over(server.server.port))
            await soon_alone(server.server.port, fleet)
            await fleet.end()
        finally:
            fleet.kill_all()
        print(f"{len(ledger.entries)} calls: {dict(sorted(ledger.summary().items()))}")
        print(f"calamities: {dict(fleet.seen)}")

        complaints = ledger.complaints(fleet, may_forget=sync != "always")
        if complaints:
            print(*fleet.story, *complaints, sep="\n")
        assert complaints == []
        with closing(server.server.client()) as client:
            assert lasting(client) == []
            for key in client.scan_iter(count=1000):
                if client.ttl(key) > 0:  # which it does by itself, later
                    client.delete(key)
        assert memory(server.server.port) < before + MEGABYTE


async def run(fleet: Fleet, ledger: Ledger, chance: random.Random, folder: Path) -> None:
    """Call and suffer until the time is up, then let every call end."""
    url = fleet.redis.server.url
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                Kiln.connect(url, settings=Settings(state=folder / f"caller-{name}"))
            )
            for name in ("one", "other")
        ]
        session = one.security.sessions.create("ann", workspace="default", seconds=86_400).token
        callers = [
            Callers((one, other), session, ledger, random.Random(chance.random()))
            for _ in range(AT_ONCE)
        ]
        calling = [asyncio.create_task(caller.call_on()) for caller in callers]
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(chance.uniform(0, 3))
            await fleet.suffer()
        for caller in callers:
            caller.stop()
        await asyncio.gather(*calling)


def is_over(port: int) -> bool:
    """Whether no call is under way in any pool."""
    with closing(redis.Redis(port=port)) as client:
        return not any(any(under_way(client, pool).values()) for pool in POOLS)


async def soon_alone(port: int, fleet: Fleet) -> None:
    """Wait until none but the workers that live are known; the others are forgotten in a minute."""
    async with asyncio.timeout(120):
        while consumers(port) > 2 * fleet.size:
            await asyncio.sleep(1)


def memory(port: int) -> int:
    """Bytes that Redis has in use."""
    with closing(redis.Redis(port=port)) as client:
        return int(client.info("memory")["used_memory"])


def consumers(port: int) -> int:
    with closing(redis.Redis(port=port)) as client:
        groups = [group for pool in POOLS for group in client.xinfo_groups(keys.calls(pool))]
        return sum(group["consumers"] for group in groups)
