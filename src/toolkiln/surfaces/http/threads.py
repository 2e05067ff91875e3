"""The threads of a server, shared fairly among callers.

Whatever blocks runs here by `asyncio.to_thread`: looking up sessions, reading the store, search,
checking large arguments. With one queue for all, a caller with hundreds of slow requests would
make every other caller wait for them, even to sign in. Here each caller has a queue of its own,
and no caller gets the last threads. `gate` says whose work it is.
"""

import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

CALLER: ContextVar[str] = ContextVar("CALLER", default="")
"""Whose request this is; empty: the server's own work."""
_MOST = min(32, (os.cpu_count() or 1) + 6)
_MOST_PER_CALLER = _MOST - 2
"""As many as asyncio's own executor has for all callers together."""


class CallerThreads(ThreadPoolExecutor):
    """An executor that takes work from the callers in turn."""

    def __init__(self, most: int = _MOST, most_per_caller: int = _MOST_PER_CALLER) -> None:
        super().__init__(most, "toolkiln-server")
        self._most_running = most
        self._most_per_caller = most_per_caller
        self._changing = threading.Lock()
        self._running: Counter[str] = Counter()
        self._queues: dict[str, deque[_Work]] = {}
        """Work that waits, by caller; the caller whose turn is next comes first."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Run a function for the caller of this context, once it is the caller's turn."""
        done: Future[T] = Future()
        work = _Work(CALLER.get(), done, lambda: fn(*args, **kwargs))
        with self._changing:
            self._queues.setdefault(work.who, deque()).append(work)
        self._start()
        return done

    def _start(self) -> None:
        """Hand over as much work as there are threads for it."""
        while (work := self._next()) is not None:
            try:
                super().submit(self._run, work)
            except RuntimeError:  # it was shut down
                self._end(work.who)
                work.done.cancel()
                work.done.set_running_or_notify_cancel()

    def _next(self) -> "_Work | None":
        with self._changing:
            if self._running.total() >= self._most_running:
                return None
            free = (w for w in self._queues if self._running[w] < self._most_per_caller)
            if (who := next(free, None)) is None:
                return None
            self._running[who] += 1
            queue = self._queues.pop(who)
            work = queue.popleft()
            if queue:  # behind the other callers
                self._queues[who] = queue
            return work

    def _run(self, work: "_Work") -> None:
        try:
            if work.done.set_running_or_notify_cancel():
                work.run()
        finally:
            self._end(work.who)
            self._start()

    def _end(self, who: str) -> None:
        with self._changing:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]


class _Work:
    def __init__(self, who: str, done: "Future[Any]", function: Callable[[], Any]) -> None:
        self.who = who
        self.done = done
        self._function = function

    def run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
            self.done.set_exception(error)
        else:
            self.done.set_result(result)
