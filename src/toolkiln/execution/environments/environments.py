"""Environments by what they hold: resolved, built once, used, listed, upgraded, pruned.

    async with environments.use(spec.requirements) as environment:
        ...  # environment.site is a folder of packages, None where nothing is required

On the disk, below one folder:

    KEY/site, KEY/lock.txt   an environment, read-only, for all to read
    locks/SET.lock           what a set of requirements was resolved to
    guards/ID                what processes lock while they build or use KEY, or resolve SET
    ID.RANDOM.partial        what is being made or removed; whose maker is dead is swept up

A call in flight holds its environment, so it is never removed under it. What runs in an
environment, and whether an upgrade is good, is for others to say.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from toolkiln.errors import EnvironmentFailed
from toolkiln.execution.environments import folders
from toolkiln.execution.environments.guard import attempt, hold
from toolkiln.execution.environments.installer import Installer, Report
from toolkiln.execution.environments.locks import Lock, Locks, packages, resolved
from toolkiln.execution.environments.quota import Quota
from toolkiln.execution.environments.requirements import normalise
from toolkiln.model import Value

_QUOTA = Quota()


class Environment(Value):
    """A folder of installed packages that a tool may import."""

    key: str
    site: Path
    packages: dict[str, str]
    """The version of each package."""


class Entry(Value):
    """What is known about one environment on the disk."""

    key: str
    packages: dict[str, str]
    size: int
    """Bytes."""
    built: datetime
    last_used: datetime
    requirements: tuple[tuple[str, ...], ...]
    """The sets of requirements whose lock in force names it."""


class Candidate(Value):
    """A newer lock that is not in force; forgetting it is to reject it."""

    lock: Lock
    changes: dict[str, tuple[str | None, str | None]]
    """By package, the version in force and the newer one; None where there is none."""


def _silent(stage: str, done: int | None, total: int | None) -> None:
    pass


class Environments:
    """The environments in one folder, for the interpreter that runs us."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        exclude_newer: str | None = None,
        quota: Quota = _QUOTA,
    ) -> None:
        """Nothing is touched yet.

        `environ` says how a package index is reached, by the variables of uv or pip;
        `exclude_newer` is a date, uploads after which are not chosen; `quota` bounds each
        environment.
        """
        self._root = root.absolute()
        self._guards = self._root / "guards"
        self._locks = Locks(self._root / "locks", exclude_newer or "")
        self._exclude_newer = exclude_newer
        self._installer = Installer(environ, self._root, quota)

    @asynccontextmanager
    async def use(
        self, requirements: Iterable[str], report: Report = _silent
    ) -> AsyncIterator[Environment | None]:
        """The environment of some requirements, built if need be, kept while it is used.

        Raises:
            InputError: a requirement is not the name of a package with versions.
            EnvironmentFailed: they cannot be resolved or installed.
        """
        wanted = normalise(requirements)
        if not wanted:
            yield None
            return
        async with self._occupied(await self._lock(wanted, report), report) as environment:
            yield environment

    async def build(
        self, requirements: Iterable[str], report: Report = _silent
    ) -> Environment | None:
        """The same ahead of use; None where nothing is required."""
        async with self.use(requirements, report) as environment:
            return environment

    async def upgrade(
        self, requirements: Iterable[str], report: Report = _silent
    ) -> Candidate | None:
        """Resolve again and build that, while the lock in force stays so.

        Raises:
            InputError, EnvironmentFailed: as `use` does.
        """
        wanted = normalise(requirements)
        if not wanted:
            return None
        newer = await self._resolve(wanted, report, newest=True)
        async with self._occupied(newer, report):
            try:
                current = self._locks.get(wanted)
            except EnvironmentFailed:  # a damaged lock is mended by another one
                current = None
            return Candidate(lock=newer, changes=_changes(current, newer))

    @asynccontextmanager
    async def trial(self, candidate: Candidate) -> AsyncIterator[Environment]:
        """The environment of a candidate, to try it before it is adopted."""
        async with self._occupied(candidate.lock, _silent) as environment:
            yield environment

    async def adopt(self, candidate: Candidate) -> None:
        """Bring a candidate into force, for every tool with the same requirements."""
        self._prepare()
        name = self._locks.name(candidate.lock.requirements)
        async with hold(self._guards / name, exclusive=True) as guard:
            await _keeping(guard, self._locks.put, candidate.lock)

    async def entries(self) -> list[Entry]:
        """Every environment on the disk, the last used first."""
        return await asyncio.to_thread(self._entries)

    async def prune(self, older_than: timedelta) -> list[Entry]:
        """Remove what was not used for so long and is not in use; locks stay in force."""
        self._prepare()
        return await asyncio.to_thread(self._prune, older_than)

    def _prepare(self) -> None:
        with folders.disk_errors():
            for folder in (self._guards, self._locks.folder):
                folders.make(folder)

    async def _lock(self, wanted: tuple[str, ...], report: Report) -> Lock:
        lock = self._locks.get(wanted)
        if lock:
            return lock
        self._prepare()
        async with hold(self._guards / self._locks.name(wanted), exclusive=True) as guard:
            lock = self._locks.get(wanted)
            if not lock:
                lock = await self._resolve(wanted, report, newest=False)
                await _keeping(guard, self._locks.put, lock)
            return lock

    async def _resolve(self, wanted: tuple[str, ...], report: Report, *, newest: bool) -> Lock:
        self._prepare()
        text = await self._installer.resolve(
            wanted, report, newest=newest, before=self._exclude_newer
        )
        return resolved(wanted, text)

    @asynccontextmanager
    async def _occupied(self, lock: Lock, report: Report) -> AsyncIterator[Environment]:
        key = lock.key
        self._prepare()
        while True:
            async with hold(self._guards / key, exclusive=False) as guard:
                site = self._root / key / "site"
                if site.is_dir():
                    _touch(guard)
                    try:
                        yield Environment(key=key, site=site, packages=lock.packages)
                    finally:
                        _touch(guard)
                    return
            await self._build(lock, report)

    async def _build(self, lock: Lock, report: Report) -> None:
        whole = self._root / lock.key
        async with hold(self._guards / lock.key, exclusive=True) as guard:
            await _keeping(guard, self._sweep, lock.key)
            if (whole / "site").is_dir():
                return
            unfinished = folders.partial(whole)
            try:
                with folders.disk_errors():
                    (unfinished / "site").mkdir(parents=True)
                    (unfinished / "lock.txt").write_text(lock.text, "utf-8")
                await self._installer.install(
                    unfinished / "lock.txt", unfinished / "site", report, len(lock.packages), guard
                )
                report("finishing", None, None)
            except BaseException:  # a build that was cancelled leaves nothing either
                await _keeping(guard, folders.remove, unfinished)
                raise
            await _keeping(guard, _finish, unfinished, whole)

    def _sweep(self, held: str = "") -> None:
        """Remove what dead processes left; `held` is what the caller has locked."""
        for folder in (self._root, self._locks.folder):
            for name, path in folders.partials(folder):
                if name == held:
                    folders.remove(path)
                elif (guard := attempt(self._guards / name, exclusive=True)) is not None:
                    folders.remove(path)
                    os.close(guard)

    def _prune(self, older_than: timedelta) -> list[Entry]:
        self._sweep()
        removed = []
        for entry in self._entries():
            folder, file = self._root / entry.key, self._guards / entry.key
            guard = attempt(file, exclusive=True)
            if guard is None:
                continue
            try:
                unused = time.time() - os.fstat(guard).st_mtime
                if unused < older_than.total_seconds() or not folder.exists():
                    continue
                unfinished = folders.partial(folder)
                with folders.disk_errors():
                    folder.rename(unfinished)
                    folders.remove(unfinished)
                    file.unlink()
                removed.append(entry)
            finally:
                os.close(guard)
        return removed

    def _entries(self) -> list[Entry]:
        users: dict[str, list[tuple[str, ...]]] = {}
        for lock in self._locks.all():
            users.setdefault(lock.key, []).append(lock.requirements)
        found = (self._entry(site.parent, users) for site in self._root.glob("*/site"))
        return sorted((entry for entry in found if entry), key=_last_used, reverse=True)

    def _entry(self, folder: Path, users: Mapping[str, list[tuple[str, ...]]]) -> Entry | None:
        if folder.suffix:
            return None
        try:
            lock = folder / "lock.txt"
            built = lock.stat().st_mtime
            guard = self._guards / folder.name
            last_used = guard.stat().st_mtime if guard.exists() else built
            return Entry(
                key=folder.name,
                packages=packages(lock.read_text("utf-8")),
                size=folders.size(folder),
                built=datetime.fromtimestamp(built, UTC),
                last_used=datetime.fromtimestamp(last_used, UTC),
                requirements=tuple(users.get(folder.name, ())),
            )
        except FileNotFoundError:  # pruned while we looked
            return None


async def _keeping(guard: int, function: Callable[..., None], *arguments: object) -> None:
    """Run in a thread that no cancellation calls off and that holds the guard till its end."""
    held = os.dup(guard)

    def run() -> None:
        try:
            function(*arguments)
        finally:
            os.close(held)

    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, run))


def _finish(unfinished: Path, whole: Path) -> None:
    try:
        with folders.disk_errors():
            (unfinished / "site" / ".lock").unlink(missing_ok=True)  # uv's own
            folders.publish(unfinished, whole)
    finally:
        folders.remove(unfinished)


def _touch(guard: int) -> None:
    # A disk that cannot note the use is no reason to fail a call.
    with suppress(OSError):
        os.utime(guard)


def _changes(before: Lock | None, after: Lock) -> dict[str, tuple[str | None, str | None]]:
    old, new = before.packages if before else {}, after.packages
    return {
        name: (old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def _last_used(entry: Entry) -> datetime:
    return entry.last_used
