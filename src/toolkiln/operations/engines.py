"""Call engines: one per event loop, and the loop behind synchronous methods.

Processes and locks belong to the event loop that created them, so each loop that makes calls
gets its own engine. Synchronous methods share one loop in a background thread, which starts
with the first of them. Reading and listing tools needs neither: asyncio is not imported here.
"""

import atexit
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from toolkiln.errors import InputError

if TYPE_CHECKING:
    import asyncio

    from toolkiln.operations.engine import CallEngine
    from toolkiln.operations.loop_thread import LoopThread

_CLOSING = 10.0
"""Seconds that the event loop of another thread has to close its engine."""

T = TypeVar("T")


class CallEngines:
    """The engines of one Kiln, closed with `await close()` or `close_sync()`."""

    def __init__(self, create: "Callable[[], CallEngine]", release: Callable[[], None]) -> None:
        """`create` makes the engine of a loop; `release` closes the parts that need no loop."""
        self._create = create
        self._release = release
        self._engines: dict[asyncio.AbstractEventLoop | None, CallEngine] = {}
        """By event loop; None is the loop of `_thread`, started or not."""
        self._thread: LoopThread | None = None
        self._closing = threading.Lock()
        """Held to submit to the thread, and for as long as closing takes."""
        self._creating = threading.RLock()
        self._closes_at_exit = False

    @property
    def current(self) -> "CallEngine":
        """The engine of the running event loop, or without one that of synchronous methods."""
        loop = _running_loop()
        if loop is not None and self._thread is not None and loop is self._thread.loop:
            loop = None
        engine = self._engines.get(loop)
        return self._create_for(loop) if engine is None else engine

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, from a thread without an event loop.

        Any number of threads may do so at once. KeyboardInterrupt cancels the coroutine.

        Raises:
            InputError: an event loop runs in this thread.
            BackendError: the Kiln was closed before it ended.
        """
        if _running_loop() is not None:
            work.close()
            raise _blocks_loop(f"await kiln.{getattr(work, '__name__', '')}(…)")
        with self._closing:
            if self._thread is None:
                from toolkiln.operations.loop_thread import LoopThread

                self._thread = LoopThread()
            run = self._thread.submit(work)
        return run.result()

    async def close(self) -> None:
        """End everything that calls started, in all threads; a later call starts it again.

        Raises:
            InputError: this runs in the event loop of synchronous methods.
        """
        from asyncio import get_running_loop, to_thread

        loop, thread = get_running_loop(), self._thread
        if thread is not None and loop is thread.loop:
            raise InputError("a Kiln cannot close itself in a call: write `kiln.close_sync()`")
        engine = self._engines.pop(loop, None)
        if engine is not None:
            await engine.close()
        await to_thread(self._close_others)

    def close_sync(self) -> None:
        """As `close`, from a thread without an event loop.

        Calls of other threads that still run end with an error.

        Raises:
            InputError: an event loop runs in this thread.
        """
        if _running_loop() is not None and (self._engines or self._thread):
            raise _blocks_loop("await kiln.close()")
        self._close_others()

    def _create_for(self, loop: "asyncio.AbstractEventLoop | None") -> "CallEngine":
        with self._creating:
            for other in [one for one in self._engines if one is not None and one.is_closed()]:
                self._engines.pop(other).kill()
            engine = self._engines.get(loop)
            if engine is None:
                engine = self._engines[loop] = self._create()
                if not self._closes_at_exit:
                    self._closes_at_exit = True
                    self._close_at_exit()
        return engine

    def _close_others(self) -> None:
        """Close all engines but that of the running loop."""
        with self._closing:
            if self._thread is not None:
                self._thread.stop(self._close_engine)
                self._thread = None
            elif engine := self._engines.pop(None, None):
                engine.kill()  # it has started nothing that needs a loop
            for loop in [one for one in self._engines if one is not None]:
                if engine := self._engines.pop(loop, None):
                    _close_in(loop, engine)
            self._release()
            atexit.unregister(self._exit)
            self._closes_at_exit = False

    async def _close_engine(self) -> None:
        if engine := self._engines.pop(None, None):
            await engine.close()

    def _close_at_exit(self) -> None:
        atexit.register(self._exit)
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            # Children of multiprocessing end without the functions of atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self.close_sync, exitpriority=10)

    def _exit(self) -> None:
        """Close while Python exits: no process stays, and the audit log is complete."""
        if self._thread is not None:
            self._thread.stop(self._close_engine, answer=False)
        while self._engines:
            self._engines.popitem()[1].kill()
        self._release()


def _running_loop() -> "asyncio.AbstractEventLoop | None":
    """Return the event loop of this thread; without one, asyncio is not imported."""
    # Another thread may be importing it at this moment: then no loop runs here either.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running() if running else None


def _blocks_loop(alternative: str) -> InputError:
    return InputError(
        f"an event loop runs in this thread, and a synchronous method would block it: "
        f"write `{alternative}`"
    )


def _close_in(loop: "asyncio.AbstractEventLoop", engine: "CallEngine") -> None:
    """Close an engine in the event loop of another thread, or without it if that has ended."""
    from asyncio import run_coroutine_threadsafe

    if loop.is_running():
        closing = engine.close()
        try:
            run_coroutine_threadsafe(closing, loop).result(_CLOSING)
        except (TimeoutError, RuntimeError):  # it is blocked, or has just been closed
            closing.close()
    engine.kill()
