"""What changes in a catalog, told to any number of listeners by one watcher.

Whoever serves starts it; listeners come and go. A Change without names says that what
callers may see could be another: the rules were read again. The catalog itself is kept up
to date by `catalog.watch`, whether anybody listens or not.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace

from toolkiln.catalog import Change
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Snapshot

_PAUSE = 1.0
"""Seconds before watching begins again after it failed, and between looks at the rules."""
_log = logging.getLogger(__name__)


class Changes:
    """One watcher for all who want to know; everything happens in one event loop."""

    def __init__(
        self,
        watch: Callable[[], AsyncGenerator[Change, None]],
        rules: Callable[[], object] = lambda: None,
    ) -> None:
        """`watch` begins to watch, `rules` is the same object as long as no rule changes."""
        self._watch = watch
        self._rules = rules
        self._listeners: dict[object, Callable[[Change], None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._snapshot = Snapshot(number=0)

    def listen(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Have a function called with each Change; what is returned ends that.

        It is called in the event loop and must not wait. What it raises is logged.
        """
        key = object()
        self._listeners[key] = callback

        def forget() -> None:
            self._listeners.pop(key, None)

        return forget

    async def stream(self) -> AsyncGenerator[Change, None]:
        """Each Change; what comes while the taker is busy is put together as one.

        Listening starts with the first `anext`, and ends with `aclose`.
        """
        waiting: list[Change] = []
        came = asyncio.Event()

        def take(change: Change) -> None:
            waiting[:] = [joined(waiting[0], change) if waiting else change]
            came.set()

        forget = self.listen(take)
        try:
            while True:
                await came.wait()
                came.clear()
                yield waiting.pop()
        finally:
            forget()

    def start(self) -> None:
        """Begin to watch, if nothing does yet."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._follow_catalog()),
                asyncio.create_task(self._follow_rules()),
            ]

    async def stop(self) -> None:
        """Watch no longer; listeners stay, and hear nothing until it starts again."""
        loop, tasks = asyncio.get_running_loop(), self.cancel()
        own = [task for task in tasks if task.get_loop() is loop]
        await asyncio.gather(*own, return_exceptions=True)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop watching, from any thread; returns what will have ended soon."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            with suppress(RuntimeError):  # its loop has ended, and the task with it
                task.get_loop().call_soon_threadsafe(task.cancel)
        return tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch as long as the block runs."""
        self.start()
        try:
            yield
        finally:
            await self.stop()

    async def _follow_catalog(self) -> None:
        while True:
            try:
                changes = self._watch()
            except InputError:  # functions only: no file can change
                return
            try:
                async with aclosing(changes):
                    async for change in changes:
                        self._tell(change)
            except Exception:  # noqa: BLE001 - a folder's bad moment must not end hot reload
                _log.exception("watching the tools failed; it begins again in %g s", _PAUSE)
            await asyncio.sleep(_PAUSE)

    async def _follow_rules(self) -> None:
        known = self._rules()
        while known is not None:
            await asyncio.sleep(_PAUSE)
            with suppress(ToolkilnError):  # that they changed could not be recorded
                found, known = known, self._rules()
                if found is not known:
                    self._tell(Change(self._snapshot))

    def _tell(self, change: Change) -> None:
        self._snapshot = change.snapshot
        for listener in list(self._listeners.values()):
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - the listener's own fault; others are told too
                _log.exception("a change of the catalog could not be passed on")


def joined(first: Change, then: Change) -> Change:
    """Two changes as one: what somebody has to know who saw neither."""
    before = {*first.changed, *first.removed, *then.changed, *then.removed} - {*first.added}
    touched = before | {*first.added, *then.added}
    there = {name for name in touched if name in then.snapshot.tools}
    return replace(
        then,
        added=tuple(sorted(there - before)),
        changed=tuple(sorted(there & before)),
        removed=tuple(sorted(before - there)),
        refused={**first.refused, **then.refused},
        seconds=first.seconds + then.seconds,
    )
