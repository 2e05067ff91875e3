"""A thread pool for reading callers' sources, separate from the default pool.

The queue is bounded, per caller and in total. `spec.work` limits the work for one source; a
caller that waits longer than the deadline gets an error.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from toolkiln.errors import ServerBusy

T = TypeVar("T")

_THREADS = 2
_MAX_SOURCES = 64
"""Sources being read or waiting."""
_MAX_PER_CALLER = 16
_SECONDS = 30
"""Deadline, including the time in the queue."""


class ReadingPool:
    """Reads sources in separate threads."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._by_caller: Counter[str] = Counter()

    async def run(self, who: str, work: Callable[[], T]) -> T:
        """Run work for one caller in a thread.

        Raises:
            ServerBusy: the queue is full, the caller has too many sources in it, or it timed out.
        """
        if self._by_caller[who] >= _MAX_PER_CALLER:
            raise ServerBusy(
                f"{_MAX_PER_CALLER} sources of {who} are being read already",
                hint="wait for one of them to finish, then try again",
            )
        if self._by_caller.total() >= _MAX_SOURCES:
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

        # Even after cancellation the thread is occupied until the work ends.
        running.add_done_callback(ended)
        try:
            async with asyncio.timeout(_SECONDS):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            raise ServerBusy(
                f"reading the source took more than {_SECONDS} s",
                hint="try again in a moment, or split the file",
            ) from None
