"""The change feed: catalog and rule changes for any number of subscribers.

Servers start it; subscribers come and go. A change without tool names means that the rules
were reloaded, which may change the visibility of tools. `catalog.watch` keeps the catalog itself
up to date, with or without subscribers.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model.catalog import CatalogChange, Snapshot

_PAUSE = 1.0
"""Seconds before a failed watcher is restarted, and between two checks of the rules."""
_log = logging.getLogger(__name__)


class Changes:
    """One watcher for all subscribers, in one event loop."""

    def __init__(
        self,
        watch: Callable[[], AsyncGenerator[CatalogChange, None]],
        rules: Callable[[], object] = lambda: None,
    ) -> None:
        """`watch` starts watching; `rules` returns the same object until a rule changes."""
        self._watch = watch
        self._rules = rules
        self._listeners: dict[object, Callable[[CatalogChange], None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._snapshot = Snapshot(number=0)

    def listen(self, callback: Callable[[CatalogChange], None]) -> Callable[[], None]:
        """Subscribe to changes. Returns a function that unsubscribes.

        The callback runs in the event loop and must not block. Its exceptions are logged.
        """
        key = object()
        self._listeners[key] = callback

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    async def stream(self) -> AsyncGenerator[CatalogChange, None]:
        """Yield changes; those that arrive while the consumer is busy are merged into one.

        The subscription starts with the first `anext` and ends with `aclose`.
        """
        pending: list[CatalogChange] = []
        arrived = asyncio.Event()

        def add(change: CatalogChange) -> None:
            pending[:] = [merged(pending[0], change) if pending else change]
            arrived.set()

        unsubscribe = self.listen(add)
        try:
            while True:
                await arrived.wait()
                arrived.clear()
                yield pending.pop()
        finally:
            unsubscribe()

    def start(self) -> None:
        """Start watching, unless it is running."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._follow_catalog()),
                asyncio.create_task(self._follow_rules()),
            ]

    async def stop(self) -> None:
        """Stop watching; subscriptions stay for the next start."""
        loop, tasks = asyncio.get_running_loop(), self.cancel()
        local = [task for task in tasks if task.get_loop() is loop]
        await asyncio.gather(*local, return_exceptions=True)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop watching, from any thread. Returns the cancelled tasks."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            with suppress(RuntimeError):  # its loop is closed, and the task with it
                task.get_loop().call_soon_threadsafe(task.cancel)
        return tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs."""
        self.start()
        try:
            yield
        finally:
            await self.stop()

    async def _follow_catalog(self) -> None:
        while True:
            try:
                changes = self._watch()
            except InputError:  # there are functions only, no files
                return
            try:
                async with aclosing(changes):
                    async for change in changes:
                        self._publish(change)
            except Exception:  # noqa: BLE001 - no failure may end hot reload
                _log.exception("watching the tools failed; restarting in %g s", _PAUSE)
            await asyncio.sleep(_PAUSE)

    async def _follow_rules(self) -> None:
        rules = self._rules()
        while rules is not None:
            await asyncio.sleep(_PAUSE)
            with suppress(ToolkilnError):  # the change could not be audited
                before, rules = rules, self._rules()
                if before is not rules:
                    self._publish(CatalogChange(self._snapshot))

    def _publish(self, change: CatalogChange) -> None:
        self._snapshot = change.snapshot
        for listener in list(self._listeners.values()):
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - must not affect other subscribers
                _log.exception("a subscriber to catalog changes failed")


def merged(first: CatalogChange, second: CatalogChange) -> CatalogChange:
    """Merge two successive changes into one."""
    before = {*first.changed, *first.removed, *second.changed, *second.removed} - {*first.added}
    touched = before | {*first.added, *second.added}
    after = {name for name in touched if name in second.snapshot.tools}
    return replace(
        second,
        added=tuple(sorted(after - before)),
        changed=tuple(sorted(after & before)),
        removed=tuple(sorted(before - after)),
        refused={**first.refused, **second.refused},
        seconds=first.seconds + second.seconds,
    )
