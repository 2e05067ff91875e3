"""LoopThread: an event loop in a background thread, for callers without one.

Any number of threads run coroutines in it. `engines` starts it with the first synchronous
method of a Kiln, and stops it when the Kiln is closed.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from toolkiln.errors import BackendError
from toolkiln.execution.inline import Threads

_STOPPING = 10.0
"""Seconds that cancelled coroutines have to end before the loop stops without them."""
_EXITING = 15.0
"""Seconds that all of it may take while Python exits."""
_WORKER = "toolkiln-worker"

T = TypeVar("T")


class LoopThread:
    """One event loop, running in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._runs: set[LoopRun[Any]] = set()
        self._executor = Threads(thread_name_prefix=_WORKER)
        self.loop.set_default_executor(self._executor)
        self.is_stopping = self._is_over = False
        """Whether the loop is being stopped, which cancels its runs."""
        self.answers = True
        """Whether runs return their results to the waiting threads."""
        self._thread = threading.Thread(target=self._serve, name="toolkiln-loop", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "LoopRun[T]":
        """Start a coroutine in the loop, with the context variables of this thread."""
        run = LoopRun(work, self)
        self.loop.call_soon_threadsafe(self._start, run)
        return run

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]], *, answer: bool = True) -> None:
        """Cancel all runs, run one last coroutine, and end the thread.

        Nothing may be submitted from here on. With `answer` off, threads that wait for a result
        go on waiting: while Python exits they are daemons, and an error would be printed.
        """
        self.answers = answer
        finishing = asyncio.run_coroutine_threadsafe(self._finish(last), self.loop)
        try:
            finishing.result(None if answer else _EXITING)
        except TimeoutError:  # a coroutine blocks the loop: the thread dies with the process
            return
        finally:
            self.loop.call_soon_threadsafe(self._end)
        self._thread.join()
        is_own = threading.current_thread().name.startswith(_WORKER)
        self._executor.shutdown(wait=not is_own)

    def _start(self, run: "LoopRun[T]") -> None:
        self._runs.add(run)
        run.start().add_done_callback(lambda _: self._runs.discard(run))

    async def _finish(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.is_stopping = True
        tasks = [run.task for run in self._runs if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOPPING)
        await last()

    def _end(self) -> None:
        self._is_over = True
        self.loop.stop()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_over:
            # Raised by a coroutine, one of these reaches its caller and stops the loop.
            with suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()
        try:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            for run in list(self._runs):  # they did not end when they were cancelled
                run.give_up()
            asyncio.set_event_loop(None)
            self.loop.close()


class LoopRun(Generic[T]):
    """A coroutine that runs in the loop of another thread."""

    def __init__(self, work: Coroutine[Any, Any, T], thread: LoopThread) -> None:
        self._work = work
        self._thread = thread
        self.task: asyncio.Task[T] | None = None
        self.ended: Future[T] = Future()

    def start(self) -> asyncio.Task[T]:
        """Start the coroutine; called in the loop."""
        self.task = asyncio.create_task(self._work)
        self.task.add_done_callback(self._on_end)
        return self.task

    def result(self) -> T:
        """Wait for the result. KeyboardInterrupt cancels the coroutine and waits for its end.

        Raises:
            BackendError: the loop was stopped first.
        """
        try:
            return self.ended.result()
        except CancelledError:
            if not self._thread.is_stopping:
                raise asyncio.CancelledError from None
            raise BackendError(
                "the Kiln was closed before this call ended",
                hint="close a Kiln after the last thread that uses it has ended",
            ) from None
        except BaseException:  # of the coroutine, or of a signal handler in this thread
            if not self.ended.done():
                self._thread.loop.call_soon_threadsafe(self._cancel)
                with suppress(CancelledError):
                    self.ended.exception()  # wait for the end
            raise

    def _cancel(self) -> None:
        assert self.task is not None
        self.task.cancel()

    def give_up(self) -> None:
        """End without a result of the coroutine."""
        if self._thread.answers:
            self.ended.cancel()

    def _on_end(self, task: asyncio.Task[T]) -> None:
        if self.ended.done() or not self._thread.answers:
            return
        if task.cancelled():
            self.ended.cancel()
        elif error := task.exception():
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())
