"""Retries for work that waits until Redis is reachable, for example during a failover."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from toolkiln.errors import Unreachable

T = TypeVar("T")
REDIS_WAIT_SECONDS = 60.0
"""How long a call without its own time limit waits for Redis."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


async def retry_while_unreachable(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Run `work` and retry it for this many seconds while Redis is unreachable.

    Use it only for work that is safe to repeat: the server may have run a command although
    the connection failed.

    Raises:
        Unreachable: Redis did not come back in time.
    """
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            return await work()
        except Unreachable:
            if time.monotonic() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
