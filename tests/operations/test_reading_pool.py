"""The threads that read sources: a bounded queue, and a share of it for each caller."""

import asyncio
import threading

import pytest

from toolkiln.catalog.admission_pipeline import ReadingPool
from toolkiln.errors import ServerBusy


async def test_one_caller_cannot_fill_the_queue() -> None:
    pool, goes_on = ReadingPool(), threading.Event()
    try:
        taken = [asyncio.ensure_future(pool.run("ann", goes_on.wait)) for _ in range(16)]
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match="ann"):
            await pool.run("ann", goes_on.wait)
        other = asyncio.ensure_future(pool.run("bob", lambda: "read"))
        await asyncio.sleep(0)
        assert not other.done()
    finally:
        goes_on.set()

    assert await other == "read"
    assert all(await asyncio.gather(*taken))
    assert await pool.run("ann", lambda: "again") == "again"


async def test_a_full_queue_is_busy_for_all() -> None:
    pool, goes_on = ReadingPool(), threading.Event()
    try:
        taken = [
            asyncio.ensure_future(pool.run(f"caller {number % 8}", goes_on.wait))
            for number in range(64)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match="too many sources"):
            await pool.run("another", goes_on.wait)
    finally:
        goes_on.set()

    await asyncio.gather(*taken)
