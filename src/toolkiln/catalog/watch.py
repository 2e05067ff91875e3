"""Hot reload: noticing that files of a catalog changed, and having it look at just those.

Each folder is watched by itself, so that links are never followed and folders that no tool
can come from cost nothing. Events only say where to look; what is there is read by the
catalog. Whatever no event tells is found by a look at everything: changes before watching
began, events that were too many for the system to keep, a tools' folder that was replaced.
"""

import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.disk import folders_below, is_folder, may_hold_modules
from toolkiln.catalog.manifest import FILE_NAME
from toolkiln.errors import InputError
from toolkiln.model import Finding, Served, Severity, Snapshot

DEBOUNCE = 0.05
"""Seconds without another event after which files are looked at."""
_LONGEST_DEBOUNCE = 0.2
_TICK = 0.25
"""Seconds of waiting for an event, before looking after what no event tells."""
_POLL = 1.0
_MANY = 1000
"""Events of one batch from which on some may have been lost."""


@dataclass(frozen=True)
class Change:
    """What became of a catalog."""

    snapshot: Snapshot
    added: tuple[str, ...] = ()
    """Tools by name, as the others."""
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    refused: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Files that could not be taken, and why; an earlier version serves on."""
    seconds: float = 0.0
    """That looking took, without waiting for the end of events."""
    error: InputError | None = None
    """Why nothing is served: the manifest is unusable, or there is no folder."""


async def watch(
    catalog: Catalog, say: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[Change, None]:
    """What changes in a catalog, by its files or otherwise, as long as somebody asks.

    The first look is at everything: what changed since the catalog was loaded is told, or,
    if nobody has loaded it yet, all that it serves.
    `say` gets what a person should know about watching itself.
    """
    from asyncio import get_running_loop  # most commands need no event loop
    from concurrent.futures import ThreadPoolExecutor

    watcher = _Watcher(catalog, say)
    loop = get_running_loop()
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
    """The state between two changes; `next` blocks, and belongs to one thread at a time."""

    def __init__(self, catalog: Catalog, say: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._say = say
        self._root = catalog.root
        self._manifest_file = catalog.root / FILE_NAME
        self.stop = threading.Event()
        self._events: _Events | None = None
        self._folders: set[Path] = set()
        self._identity: tuple[int, int] | None = None
        self._pending: set[Path] = set()
        """Folders to look at once more: they were not watched from the beginning."""
        self._has_gaps = True
        """Whether something may have changed without an event."""
        self._seen, self._error = catalog.current, catalog.problem
        self._refused: dict[str, tuple[Finding, ...]] = {}

    def next(self) -> Change | None:
        """Wait for events and have the catalog look; None if nothing changed in a while."""
        paths, self._pending = self._pending, set()
        is_second_look = bool(paths)
        if not is_second_look:
            found = self._wait()
            self._has_gaps |= len(found) >= _MANY
            paths = {path for path in found if self._is_relevant(path)}
        if self.stop.is_set():
            return None
        if not paths and (self._has_gaps or _identity(self._root) != self._identity):
            self._watch_everything()
            return self._look(None)
        change = self._look(paths)
        self._follow_folders(paths, is_second_look)
        return change

    def _wait(self) -> set[Path]:
        if self._events is not None:
            try:
                return self._events.wait(self.stop)
            except RuntimeError:  # a name that is no text, or the system's watching broke down
                self._events, self._has_gaps = None, True
        elif self._identity is not None:  # watching could not begin
            self.stop.wait(_TICK)
        return set()

    def _is_relevant(self, path: Path) -> bool:
        if path.suffix == ".py" and not path.name.startswith("."):
            return True
        if path == self._manifest_file or path in self._folders:
            return True
        if self._catalog.disk.depends_on(path):
            return True
        return may_hold_modules(path.name) and is_folder(path)

    def _look(self, paths: Iterable[Path] | None) -> Change | None:
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
        return Change(self._seen, added, changed, removed, refused, seconds, self._error)

    def _newly_refused(
        self, files: Iterable[str], known: tuple[Finding, ...]
    ) -> dict[str, tuple[Finding, ...]]:
        found: dict[str, tuple[Finding, ...]] = {}
        for file in sorted(files):
            read = self._catalog.disk.reads.get(file)
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
        self._folders = self._catalog.disk.folders()
        self._watch()

    def _follow_folders(self, paths: Iterable[Path], is_second_look: bool) -> None:
        """Watch folders that appeared, which may hold more by then than when they were read."""
        if self._catalog.disk.place != self._root:
            folders, changed = self._catalog.disk.folders(), {self._catalog.disk.place}
            is_second_look = True
        else:
            changed = {path for path in paths if path in self._folders or is_folder(path)}
            folders = {f for f in self._folders if changed.isdisjoint((f, *f.parents))}
            folders.update(below for path in changed for below in folders_below(path))
        if not changed or (is_second_look and folders == self._folders):
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
        except (FileNotFoundError, PermissionError):  # a folder went while we looked at it
            self._has_gaps = True
            return
        except (OSError, RuntimeError) as error:
            self._say(
                f"the system cannot watch {len(self._folders):,} folders ({error}): looking at "
                f"them every {_POLL:g} s instead (see fs.inotify.max_user_watches)"
            )
            self._events = _Polling(self._folders)
        if old is not None:
            with suppress(RuntimeError):
                self._pending |= set(filter(self._is_relevant, old.rest()))


class _Events(Protocol):
    """Where events come from."""

    def wait(self, stop: threading.Event) -> set[Path]:
        """Paths that something happened to; none if nothing happened for a while."""
        ...

    def rest(self) -> set[Path]:
        """Those that came since the last wait."""
        ...


class _Notification:
    """Events from the system."""

    def __init__(self, folders: Iterable[Path]) -> None:
        from watchfiles._rust_notify import RustNotify

        # It tells absolute paths, and its recursion would follow links.
        self._folders = {str(f.absolute()): f for f in folders if os.access(f, os.R_OK)}
        self._notify = RustNotify(list(self._folders), False, False, 0, False, False)

    def wait(self, stop: threading.Event) -> set[Path]:
        # It returns what came when it finds nothing more at the end of a step.
        return self._watch(DEBOUNCE / 2, _TICK, stop)

    def rest(self) -> set[Path]:
        return self._watch(0.001, 0.001, threading.Event())

    def _watch(self, step: float, patience: float, stop: threading.Event) -> set[Path]:
        longest, step_ms, timeout = (int(s * 1000) for s in (_LONGEST_DEBOUNCE, step, patience))
        found = self._notify.watch(longest, step_ms, timeout, stop)
        return {self._path(path) for _, path in found} if isinstance(found, set) else set()

    def _path(self, told: str) -> Path:
        if told in self._folders:
            return self._folders[told]
        folder, _, name = told.rpartition("/")
        return self._folders[folder or "/"] / name


class _Polling:
    """Events from looking at all files again and again."""

    def __init__(self, folders: set[Path]) -> None:
        self.folders = folders
        self._known = self._look()

    def wait(self, stop: threading.Event) -> set[Path]:
        stop.wait(_POLL)
        return self.rest()

    def rest(self) -> set[Path]:
        known, self._known = self._known, self._look()
        return {
            Path(path)
            for path in known.keys() | self._known.keys()
            if known.get(path) != self._known.get(path)
        }

    def _look(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for folder in self.folders:
            with suppress(OSError):  # it went, or may not be entered: so did its files
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
    """The tools that came, changed and went."""
    old, new = before.tools, after.tools
    changed = [
        name for name in new if name in old and _differs(before.served[name], after.served[name])
    ]
    added, removed = new.keys() - old.keys(), old.keys() - new.keys()
    return tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed))


def _differs(old: Served, new: Served) -> bool:
    return old is not new and (
        (old.read.digest, old.file) != (new.read.digest, new.file)
        or (old.dev, old.grants, old.is_reviewed) != (new.dev, new.grants, new.is_reviewed)
    )
