"""Environments: resolve, build, use, list, upgrade and prune.

    async with environments.use(spec.requirements) as environment:
        ...  # environment.site is a folder of packages; environment is None without requirements

On disk, in one folder:

    KEY/site, KEY/lock.txt   an environment, read-only and world-readable
    locks/SET.lock           the lock of a set of requirements
    guards/ID                file locks, taken to build or use KEY or to resolve SET
    ID.RANDOM.partial        being created or removed; leftovers of dead processes are removed

A running call locks its environment, so `prune` does not remove it.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from toolkiln.errors import EnvironmentFailed
from toolkiln.model.base import Value
from toolkiln.model.system import EnvironmentInfo
from toolkiln.sandbox.environments import folders
from toolkiln.sandbox.environments.folders import file_lock, try_lock
from toolkiln.sandbox.environments.lockfile import Lock, Locks, normalise, packages, parse_lock
from toolkiln.sandbox.environments.uv import Installer, Quota, Report

_QUOTA = Quota()


class Environment(Value):
    """A folder of installed packages for a tool."""

    key: str
    site: Path
    packages: dict[str, str]
    """The version of each package."""


class LockCandidate(Value):
    """A newer lock that is not in force yet."""

    lock: Lock
    changes: dict[str, tuple[str | None, str | None]]
    """By package: the current and the new version; None if the package is absent."""


def _silent(stage: str, done: int | None, total: int | None) -> None:
    pass


class Environments:
    """The environments in one folder, for the running interpreter."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        exclude_newer: str | None = None,
        quota: Quota = _QUOTA,
    ) -> None:
        """Configure without touching the disk.

        `environ` configures the package index with the variables of uv or pip. `exclude_newer`
        is a date; later uploads are ignored. `quota` limits each environment.
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
        """Use the environment of some requirements, building it if necessary.

        Raises:
            InputError: a requirement is malformed.
            EnvironmentFailed: the requirements cannot be resolved or installed.
        """
        normalised = normalise(requirements)
        if not normalised:
            yield None
            return
        async with self._use(await self._lock(normalised, report), report) as environment:
            yield environment

    async def build(
        self, requirements: Iterable[str], report: Report = _silent
    ) -> Environment | None:
        """Build an environment ahead of use; None without requirements."""
        async with self.use(requirements, report) as environment:
            return environment

    async def upgrade(
        self, requirements: Iterable[str], report: Report = _silent
    ) -> LockCandidate | None:
        """Resolve again and build the result, without changing the lock in force."""
        normalised = normalise(requirements)
        if not normalised:
            return None
        newer = await self._resolve(normalised, report, newest=True)
        async with self._use(newer, report):
            try:
                current = self._locks.get(normalised)
            except EnvironmentFailed:  # an upgrade replaces a damaged lock
                current = None
            return LockCandidate(lock=newer, changes=_changes(current, newer))

    @asynccontextmanager
    async def trial(self, candidate: LockCandidate) -> AsyncIterator[Environment]:
        """Use the environment of a candidate before its adoption."""
        async with self._use(candidate.lock, _silent) as environment:
            yield environment

    async def adopt(self, candidate: LockCandidate) -> None:
        """Make a candidate the lock of every tool with the same requirements."""
        self._prepare()
        name = self._locks.name(candidate.lock.requirements)
        async with file_lock(self._guards / name, exclusive=True) as guard:
            await _run_with_guard(guard, self._locks.put, candidate.lock)

    async def entries(self) -> list[EnvironmentInfo]:
        """Return every environment on disk, the last used first."""
        return await asyncio.to_thread(self._entries)

    async def prune(self, older_than: timedelta) -> list[EnvironmentInfo]:
        """Remove environments not used for that long; locks stay in force."""
        self._prepare()
        return await asyncio.to_thread(self._prune, older_than)

    def _prepare(self) -> None:
        with folders.disk_errors():
            for folder in (self._guards, self._locks.folder):
                folders.make(folder)

    async def _lock(self, normalised: tuple[str, ...], report: Report) -> Lock:
        lock = self._locks.get(normalised)
        if lock:
            return lock
        self._prepare()
        async with file_lock(self._guards / self._locks.name(normalised), exclusive=True) as guard:
            lock = self._locks.get(normalised)
            if not lock:
                lock = await self._resolve(normalised, report, newest=False)
                await _run_with_guard(guard, self._locks.put, lock)
            return lock

    async def _resolve(self, normalised: tuple[str, ...], report: Report, *, newest: bool) -> Lock:
        self._prepare()
        text = await self._installer.resolve(
            normalised, report, newest=newest, before=self._exclude_newer
        )
        return parse_lock(normalised, text)

    @asynccontextmanager
    async def _use(self, lock: Lock, report: Report) -> AsyncIterator[Environment]:
        key = lock.key
        self._prepare()
        while True:
            async with file_lock(self._guards / key, exclusive=False) as guard:
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
        target = self._root / lock.key
        async with file_lock(self._guards / lock.key, exclusive=True) as guard:
            await _run_with_guard(guard, self._remove_partials, lock.key)
            if (target / "site").is_dir():
                return
            partial = folders.partial(target)
            try:
                with folders.disk_errors():
                    (partial / "site").mkdir(parents=True)
                    (partial / "lock.txt").write_text(lock.text, "utf-8")
                await self._installer.install(
                    partial / "lock.txt", partial / "site", report, len(lock.packages), guard
                )
                report("finishing", None, None)
            except BaseException:  # including cancellation
                await _run_with_guard(guard, folders.remove, partial)
                raise
            await _run_with_guard(guard, _finish, partial, target)

    def _remove_partials(self, held: str = "") -> None:
        """Remove the leftovers of dead processes; the caller has locked the id `held`."""
        for folder in (self._root, self._locks.folder):
            for name, path in folders.partials(folder):
                if name == held:
                    folders.remove(path)
                elif (guard := try_lock(self._guards / name, exclusive=True)) is not None:
                    folders.remove(path)
                    os.close(guard)

    def _prune(self, older_than: timedelta) -> list[EnvironmentInfo]:
        self._remove_partials()
        removed = []
        for entry in self._entries():
            folder, file = self._root / entry.key, self._guards / entry.key
            guard = try_lock(file, exclusive=True)
            if guard is None:
                continue
            try:
                age = time.time() - os.fstat(guard).st_mtime
                if age < older_than.total_seconds() or not folder.exists():
                    continue
                partial = folders.partial(folder)
                with folders.disk_errors():
                    folder.rename(partial)
                    folders.remove(partial)
                    file.unlink()
                removed.append(entry)
            finally:
                os.close(guard)
        return removed

    def _entries(self) -> list[EnvironmentInfo]:
        users: dict[str, list[tuple[str, ...]]] = {}
        for lock in self._locks.all():
            users.setdefault(lock.key, []).append(lock.requirements)
        found = (self._entry(site.parent, users) for site in self._root.glob("*/site"))
        entries = (entry for entry in found if entry)
        return sorted(entries, key=lambda entry: entry.last_used, reverse=True)

    def _entry(
        self, folder: Path, users: Mapping[str, list[tuple[str, ...]]]
    ) -> EnvironmentInfo | None:
        if folder.suffix:
            return None
        try:
            lock = folder / "lock.txt"
            built = lock.stat().st_mtime
            guard = self._guards / folder.name
            last_used = guard.stat().st_mtime if guard.exists() else built
            return EnvironmentInfo(
                key=folder.name,
                packages=packages(lock.read_text("utf-8")),
                size=folders.measure(folder)[0],
                built=built,
                last_used=last_used,
                requirements=tuple(users.get(folder.name, ())),
            )
        except FileNotFoundError:  # pruned in the meantime
            return None


async def _run_with_guard(guard: int, function: Callable[..., None], *arguments: object) -> None:
    """Run a function in a thread that keeps the guard locked even if this is cancelled."""
    held = os.dup(guard)

    def run() -> None:
        try:
            function(*arguments)
        finally:
            os.close(held)

    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, run))


def _finish(partial: Path, target: Path) -> None:
    try:
        with folders.disk_errors():
            (partial / "site" / ".lock").unlink(missing_ok=True)  # uv's lock file
            folders.publish(partial, target)
    finally:
        folders.remove(partial)


def _touch(guard: int) -> None:
    # A call must not fail because its use cannot be recorded.
    with suppress(OSError):
        os.utime(guard)


def _changes(before: Lock | None, after: Lock) -> dict[str, tuple[str | None, str | None]]:
    old, new = before.packages if before else {}, after.packages
    return {
        name: (old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }
