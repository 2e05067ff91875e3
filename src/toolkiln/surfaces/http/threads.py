"""The thread pool of a server, shared fairly among callers.

Blocking work runs here through `asyncio.to_thread`: session lookups, store reads, search,
validation of large arguments. With a single queue, a caller with hundreds of slow requests
would delay all others, even their logins. Here each caller has a queue, and no caller gets the
last threads. The middleware sets the caller.
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
"""The caller of the current request; empty for work of the server itself."""
_MAX_THREADS = min(32, (os.cpu_count() or 1) + 6)
_MAX_PER_CALLER = _MAX_THREADS - 2
"""As many as asyncio's default executor has in total."""


class CallerThreads(ThreadPoolExecutor):
    """A thread pool that serves callers in turn."""

    def __init__(
        self, max_workers: int = _MAX_THREADS, max_per_caller: int = _MAX_PER_CALLER
    ) -> None:
        super().__init__(max_workers, "toolkiln-server")
        self._max_running = max_workers
        self._max_per_caller = max_per_caller
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._queues: dict[str, deque[_Work]] = {}
        """Queued work by caller, in the order of their turns."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Queue a function for the current caller."""
        future: Future[T] = Future()
        work = _Work(CALLER.get(), future, lambda: fn(*args, **kwargs))
        with self._lock:
            self._queues.setdefault(work.caller, deque()).append(work)
        self._start()
        return future

    def _start(self) -> None:
        """Start as much queued work as there are free threads."""
        while (work := self._next()) is not None:
            try:
                super().submit(self._run, work)
            except RuntimeError:  # the pool was shut down
                self._end(work.caller)
                work.future.cancel()
                work.future.set_running_or_notify_cancel()

    def _next(self) -> "_Work | None":
        with self._lock:
            if self._running.total() >= self._max_running:
                return None
            callers = (name for name in self._queues if self._running[name] < self._max_per_caller)
            if (caller := next(callers, None)) is None:
                return None
            self._running[caller] += 1
            queue = self._queues.pop(caller)
            work = queue.popleft()
            if queue:  # behind the other callers
                self._queues[caller] = queue
            return work

    def _run(self, work: "_Work") -> None:
        try:
            if work.future.set_running_or_notify_cancel():
                work.run()
        finally:
            self._end(work.caller)
            self._start()

    def _end(self, caller: str) -> None:
        with self._lock:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]


class _Work:
    def __init__(self, caller: str, future: "Future[Any]", function: Callable[[], Any]) -> None:
        self.caller = caller
        self.future = future
        self._function = function

    def run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
