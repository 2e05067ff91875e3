"""Threads that read sources for callers, apart from the threads that everything else needs.

The queue is bounded, and each caller gets a share of it. How much work one source can take is
limited in `spec.work`; a caller that waits longer than the deadline gets an error.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from toolkiln.errors import ServerBusy

T = TypeVar("T")

_THREADS = 2
_MOST = 64
"""Sources that are read or wait to be read."""
_MOST_PER_CALLER = 16
_SECONDS = 30
"""How long a caller waits, the time in the queue included."""


class ReadingPool:
    """Reads sources in its own threads."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._by_caller: Counter[str] = Counter()

    async def run(self, who: str, work: Callable[[], T]) -> T:
        """Do the work of one caller in a thread.

        Raises:
            ServerBusy: the queue is full, the caller has too much in it, or it took too long.
        """
        if self._by_caller[who] >= _MOST_PER_CALLER:
            raise ServerBusy(
                f"{_MOST_PER_CALLER} sources of {who} are being read already",
                hint="wait for one of them to finish, then try again",
            )
        if self._by_caller.total() >= _MOST:
            raise ServerBusy(
                "too many sources are waiting to be read", hint="try again in a moment"
            )
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="toolkiln-read")
        loop = asyncio.get_running_loop()
        self._by_caller[who] += 1
        running = self._threads.submit(work)

        def end() -> None:
            self._by_caller[who] -= 1
            if not self._by_caller[who]:
                del self._by_caller[who]

        def ended(_: "Future[Any]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)

        # Cancelled or not: a thread that reads is taken until it ends.
        running.add_done_callback(ended)
        try:
            async with asyncio.timeout(_SECONDS):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            raise ServerBusy(
                f"reading the source took more than {_SECONDS} s",
                hint="try again in a moment, or split the file",
            ) from None
