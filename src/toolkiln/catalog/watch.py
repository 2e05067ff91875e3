"""Hot reload: watches the files of a catalog, reloads those that change, and informs subscribers.

Each folder is watched separately: links are not followed, and folders without tools cost
nothing. Events only say which paths to reload. A full reload finds changes without events:
those before watching started, events the system dropped, a replaced tools folder.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.folder import folders_below, is_folder, may_contain_modules
from toolkiln.catalog.manifest import MANIFEST
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model.catalog import CatalogChange, ServedVersion, Snapshot
from toolkiln.model.source import Finding, Severity

DEBOUNCE = 0.05
"""Seconds without another event before files are reloaded."""
_MAX_DEBOUNCE = 0.2
_TICK = 0.25
"""Seconds to wait for an event before checking for changes without events."""
_POLL = 1.0
_MANY = 1000
"""Number of events in a batch that suggests that some were lost."""
_PAUSE = 1.0
"""Seconds before a failed watcher is restarted, and between two checks of the rules."""
_log = logging.getLogger(__name__)


async def watch(
    catalog: Catalog, warn: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[CatalogChange, None]:
    """Yield the changes of a catalog.

    The first change covers everything since the catalog was loaded, or all tools if it was not
    loaded yet. `warn` gets warnings about the watcher itself.
    """
    watcher = _Watcher(catalog, warn)
    loop = asyncio.get_running_loop()
    threads = ThreadPoolExecutor(1, thread_name_prefix="toolkiln-watch")
    try:
        while True:
            change = await loop.run_in_executor(threads, watcher.next)
            if change is not None:
                yield change
    finally:
        watcher.stop.set()
        threads.shutdown()


class _Watcher:
    """The state of the watcher; `next` blocks and is called by one thread at a time."""

    def __init__(self, catalog: Catalog, warn: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._warn = warn
        self._root = catalog.root
        self._manifest_file = catalog.root / MANIFEST
        self.stop = threading.Event()
        self._events: _Events | None = None
        self._folders: set[Path] = set()
        self._identity: tuple[int, int] | None = None
        self._pending: set[Path] = set()
        """Folders to reload again: they changed before they were watched."""
        self._has_gaps = True
        """Whether there may be changes without events."""
        self._seen, self._error = catalog.current, catalog.problem
        self._refused: dict[str, tuple[Finding, ...]] = {}

    def next(self) -> CatalogChange | None:
        """Wait for events and reload; None if nothing changed for a while."""
        paths, self._pending = self._pending, set()
        is_repeat = bool(paths)
        if not is_repeat:
            found = self._wait()
            self._has_gaps |= len(found) >= _MANY
            paths = {path for path in found if self._is_relevant(path)}
        if self.stop.is_set():
            return None
        if not paths and (self._has_gaps or _identity(self._root) != self._identity):
            self._watch_everything()
            return self._reload(None)
        change = self._reload(paths)
        self._follow_folders(paths, is_repeat)
        return change

    def _wait(self) -> set[Path]:
        if self._events is not None:
            try:
                return self._events.wait(self.stop)
            except RuntimeError:  # a name that is not text, or the watcher failed
                self._events, self._has_gaps = None, True
        elif self._identity is not None:  # the watcher could not start
            self.stop.wait(_TICK)
        return set()

    def _is_relevant(self, path: Path) -> bool:
        if path.suffix == ".py" and not path.name.startswith("."):
            return True
        if path == self._manifest_file or path in self._folders:
            return True
        if self._catalog.folder.depends_on(path):
            return True
        return may_contain_modules(path.name) and is_folder(path)

    def _reload(self, paths: Iterable[Path] | None) -> CatalogChange | None:
        started = time.perf_counter()
        files = self._catalog.refresh(paths) if paths or paths is None else set()
        seconds = time.perf_counter() - started
        before, self._seen = self._seen, self._catalog.current
        error, self._error = self._error, self._catalog.problem
        if before is self._seen:
            return None
        added, changed, removed = _differences(before, self._seen)
        refused = self._newly_refused(files, before.findings)
        is_same = not (added or changed or removed or refused) and str(error) == str(self._error)
        if is_same and before.number > 0:
            return None
        return CatalogChange(self._seen, added, changed, removed, refused, seconds, self._error)

    def _newly_refused(
        self, files: Iterable[str], known: tuple[Finding, ...]
    ) -> dict[str, tuple[Finding, ...]]:
        found: dict[str, tuple[Finding, ...]] = {}
        for file in sorted(files):
            read = self._catalog.folder.reads.get(file)
            findings = read.reading.findings if read else ()
            if read is None or all(f.severity is not Severity.ERROR for f in findings):
                self._refused.pop(file, None)
            elif self._refused.get(file) != findings:
                self._refused[file] = found[read.reading.path] = findings
        earlier = set(known)
        for finding in self._seen.findings:
            if finding not in earlier:
                path = finding.path or str(self._root)
                found[path] = (*found.get(path, ()), finding)
        return found

    def _watch_everything(self) -> None:
        self._identity = _identity(self._root)
        self._has_gaps = False
        self._folders = self._catalog.folder.folders()
        self._watch()

    def _follow_folders(self, paths: Iterable[Path], is_repeat: bool) -> None:
        """Watch new folders, which may have changed since they were read."""
        if self._catalog.folder.place != self._root:
            folders, changed = self._catalog.folder.folders(), {self._catalog.folder.place}
            is_repeat = True
        else:
            changed = {path for path in paths if path in self._folders or is_folder(path)}
            folders = {f for f in self._folders if changed.isdisjoint((f, *f.parents))}
            folders.update(below for path in changed for below in folders_below(path))
        if not changed or (is_repeat and folders == self._folders):
            return
        self._folders = folders
        self._pending = changed
        self._watch()

    def _watch(self) -> None:
        old = self._events
        if isinstance(old, _Polling):
            old.folders = self._folders
            return
        try:
            self._events = _Notification(self._folders)
        except (FileNotFoundError, PermissionError):  # a folder was removed meanwhile
            self._has_gaps = True
            return
        except (OSError, RuntimeError) as error:
            self._warn(
                f"the system cannot watch {len(self._folders):,} folders ({error}): polling "
                f"them every {_POLL:g} s instead (see fs.inotify.max_user_watches)"
            )
            self._events = _Polling(self._folders)
        if old is not None:
            with suppress(RuntimeError):
                self._pending |= set(filter(self._is_relevant, old.rest()))


class _Events(Protocol):
    """A source of events."""

    def wait(self, stop: threading.Event) -> set[Path]:
        """Wait for events and return their paths; may be empty."""
        ...

    def rest(self) -> set[Path]:
        """Return the paths of events since the last wait."""
        ...


class _Notification:
    """Events from the operating system."""

    def __init__(self, folders: Iterable[Path]) -> None:
        from watchfiles._rust_notify import RustNotify

        # RustNotify reports absolute paths, and its recursive mode follows links.
        self._folders = {str(f.absolute()): f for f in folders if os.access(f, os.R_OK)}
        self._notify = RustNotify(list(self._folders), False, False, 0, False, False)

    def wait(self, stop: threading.Event) -> set[Path]:
        # It returns when a step ends without further events.
        return self._watch(DEBOUNCE / 2, _TICK, stop)

    def rest(self) -> set[Path]:
        return self._watch(0.001, 0.001, threading.Event())

    def _watch(self, step: float, patience: float, stop: threading.Event) -> set[Path]:
        longest, step_ms, timeout = (int(s * 1000) for s in (_MAX_DEBOUNCE, step, patience))
        found = self._notify.watch(longest, step_ms, timeout, stop)
        return {self._path(path) for _, path in found} if isinstance(found, set) else set()

    def _path(self, path: str) -> Path:
        if path in self._folders:
            return self._folders[path]
        folder, _, name = path.rpartition("/")
        return self._folders[folder or "/"] / name


class _Polling:
    """Events from polling all files."""

    def __init__(self, folders: set[Path]) -> None:
        self.folders = folders
        self._stamps = self._scan()

    def wait(self, stop: threading.Event) -> set[Path]:
        stop.wait(_POLL)
        return self.rest()

    def rest(self) -> set[Path]:
        before, self._stamps = self._stamps, self._scan()
        return {
            Path(path)
            for path in before.keys() | self._stamps.keys()
            if before.get(path) != self._stamps.get(path)
        }

    def _scan(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for folder in self.folders:
            with suppress(OSError):  # removed or not accessible, and so are its files
                for entry in os.scandir(folder):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path] = (
                        (status.st_ino, status.st_mode)
                        if entry.is_dir(follow_symlinks=False)
                        else (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
                    )
        return found


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _differences(
    before: Snapshot, after: Snapshot
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of added, changed and removed tools."""
    old, new = before.tools, after.tools
    changed = [
        name for name in new if name in old and _differs(before.served[name], after.served[name])
    ]
    added, removed = new.keys() - old.keys(), old.keys() - new.keys()
    return tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed))


def _differs(old: ServedVersion, new: ServedVersion) -> bool:
    return old is not new and (
        (old.read.digest, old.file) != (new.read.digest, new.file)
        or (old.dev, old.grants, old.is_reviewed) != (new.dev, new.grants, new.is_reviewed)
    )


class Changes:
    """One watcher for all subscribers, in one event loop.

    A change without tool names means that the rules were reloaded, which may change the
    visibility of tools.
    """

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
