"""Opening and closing a Kiln: its engines, its synchronous methods, exit and fork.

Every event loop that makes calls has an engine of its own, because processes and locks belong
to the loop that made them. Synchronous methods share one loop, in a thread that starts with
the first of them. Reading and listing tools needs neither.
"""

import atexit
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

from toolkiln.errors import InputError

if TYPE_CHECKING:
    import asyncio

    from toolkiln.app.engine import Engine
    from toolkiln.app.loop_thread import LoopThread

_CLOSING = 10.0
"""Seconds that the event loop of another thread has to close its engine."""

T = TypeVar("T")


if TYPE_CHECKING:
    part = cached_property
else:

    class part(cached_property):  # noqa: N801 - used as a decorator
        """A part that is made once, with its first use, however many threads ask for it.

        With a lock of each object, not one of the class as in Python 3.11 (which a fork in the
        middle would leave locked for good) and not without any as in later versions.
        """

        def __get__(self, instance, owner=None):  # noqa: ANN001, ANN204
            if instance is None:
                return self
            made = vars(instance)
            with instance._making:
                if self.attrname not in made:
                    made[self.attrname] = self.func(instance)
                return made[self.attrname]


class Opened(ABC):
    """Something with engines, to be closed with `await close()` or `close_sync()`."""

    def __init__(self) -> None:
        self._begin()
        _opened.add(self)

    def _begin(self) -> None:
        self._engines: dict[asyncio.AbstractEventLoop | None, Engine] = {}
        """By event loop; None stands for that of `_thread`, started or not."""
        self._thread: LoopThread | None = None
        self._changing = threading.Lock()
        """Held to submit to the thread, and for as long as closing takes."""
        self._making = threading.RLock()
        self._closes_at_exit = False

    @abstractmethod
    def _new_engine(self) -> "Engine":
        """An engine for one event loop."""

    @abstractmethod
    def let_go(self) -> None:
        """Close what needs no event loop for that."""

    @property
    def engine(self) -> "Engine":
        """What calls need: environments, workspaces, the sandbox; made with the first use.

        The one of the running event loop, or without one that of synchronous methods.
        """
        loop = _running_loop()
        if loop is not None and self._thread is not None and loop is self._thread.loop:
            loop = None
        engine = self._engines.get(loop)
        return self._made_engine(loop) if engine is None else engine

    def _made_engine(self, loop: "asyncio.AbstractEventLoop | None") -> "Engine":
        with self._making:
            for other in [one for one in self._engines if one is not None and one.is_closed()]:
                self._engines.pop(other).kill()
            engine = self._engines.get(loop)
            if engine is None:
                engine = self._engines[loop] = self._new_engine()
                if not self._closes_at_exit:
                    self._closes_at_exit = True
                    self._close_at_exit()
        return engine

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this Kiln to its end, from a thread without an event loop.

        Any number of threads may do so at once. KeyboardInterrupt cancels the coroutine.

        Raises:
            InputError: an event loop runs in this thread.
            BackendError: the Kiln was closed before it ended.
        """
        if _running_loop() is not None:
            work.close()
            raise _in_a_loop(f"await kiln.{getattr(work, '__name__', '')}(…)")
        with self._changing:
            if self._thread is None:
                from toolkiln.app.loop_thread import LoopThread

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
            raise _in_a_loop("await kiln.close()")
        self._close_others()

    def _close_others(self) -> None:
        """Close all engines but that of the running loop."""
        with self._changing:
            if self._thread is not None:
                self._thread.stop(self._close_engine)
                self._thread = None
            elif engine := self._engines.pop(None, None):
                engine.kill()  # it has started nothing that needs a loop
            for loop in [one for one in self._engines if one is not None]:
                if engine := self._engines.pop(loop, None):
                    _close_in(loop, engine)
            self.let_go()
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
        """Close while Python exits: no process stays, and the audit is complete."""
        if self._thread is not None:
            self._thread.stop(self._close_engine, answer=False)
        while self._engines:
            self._engines.popitem()[1].kill()
        self.let_go()

    def _begin_in_child(self) -> None:
        """Start afresh in a forked process.

        What the parent opened is neither used nor closed here: its threads do not exist, its
        locks may be held, its sockets and connections are the parent's.
        """
        own = vars(self)
        parts = [name for name in own if isinstance(getattr(type(self), name, None), part)]
        self._inherited = [own.pop(name) for name in parts], self._engines, self._thread
        self._begin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()


def _running_loop() -> "asyncio.AbstractEventLoop | None":
    """The event loop of this thread; asyncio is not loaded to find out that there is none."""
    # Another thread may be importing it at this moment: then no loop runs here either.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running() if running else None


def _in_a_loop(instead: str) -> InputError:
    return InputError(
        f"an event loop runs in this thread, and a synchronous method would block it: "
        f"write `{instead}`"
    )


def _close_in(loop: "asyncio.AbstractEventLoop", engine: "Engine") -> None:
    """Close an engine in the event loop of another thread, or without it if that has ended."""
    from asyncio import run_coroutine_threadsafe

    if loop.is_running():
        closing = engine.close()
        try:
            run_coroutine_threadsafe(closing, loop).result(_CLOSING)
        except (TimeoutError, RuntimeError):  # it is blocked, or has just been closed
            closing.close()
    engine.kill()


_opened: WeakSet[Opened] = WeakSet()
"""What starts afresh in a forked process."""


def _after_fork() -> None:
    for one in list(_opened):
        with suppress(AttributeError):  # forked in the middle of its constructor
            one._begin_in_child()


os.register_at_fork(after_in_child=_after_fork)
