"""Disk quota of an installation: bytes and files that uv may unpack, measured while it runs.

The sizes recorded in a wheel are not trusted. Only files on disk count: in uv's cache, where it
unpacks each wheel to a new folder `.tmp…`, and in the environment. A run that exceeds the quota
is killed, and the files it unpacked are removed. Other runs may use the same cache: a folder
belongs to the process that has files open in it.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from toolkiln.errors import EnvironmentFailed
from toolkiln.sandbox.environments import folders

_SAMPLES = 20
_HINT = "require smaller packages, or raise the setting `{}`"


@dataclass(frozen=True, slots=True)
class Quota:
    """The maximum size of an environment."""

    bytes: int = 2 << 30
    files: int = 100_000
    """Folders count as files."""


@dataclass(slots=True)
class QuotaUsage:
    """The disk usage of one run of uv."""

    quota: Quota
    cache: Path
    target: Path | None
    """The environment's folder; None while requirements are resolved."""
    _before: set[str] = field(init=False)
    _unpacked: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)
    """Bytes and files of each new folder in the cache, as last measured."""
    _own: set[str] = field(init=False, default_factory=set)
    _foreign: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._before = {path.name for path in self._folders()}

    def check(self, pid: int) -> None:
        """Measure what the uv process has written.

        Raises:
            EnvironmentFailed: the quota is exceeded.
        """
        self._own |= self._opened_by(pid)
        for folder in self._folders():
            if folder.name not in self._before | self._foreign:
                self._unpacked[folder.name] = self._measure(folder)
        if self._is_exceeded(self._unpacked.values()):
            with _stopped(pid):  # checking all processes takes as long as unpacking gigabytes
                self._foreign |= self._opened_by_others(pid) - self._own
                # A finished folder that was never seen open by this uv is either foreign or
                # already part of the environment.
                ours = self._own | {path.name for path in self._folders()} - self._foreign
                self._unpacked = {k: v for k, v in self._unpacked.items() if k in ours}
                self._check_quota(self._unpacked.values())
        if self.target:
            self._check_quota([self._measure(self.target)])

    def clear(self) -> None:
        """Remove what uv, which has ended, left in its cache."""
        try:
            lock = os.open(self.cache / ".lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            # Every uv process takes this lock shared: if no other has it, all new folders are ours.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = {path.name for path in self._folders()} - self._before
        except OSError:
            left = self._own
        finally:
            os.close(lock)
        for name in left:
            folders.remove(self.cache / name)

    def _opened_by(self, pid: int) -> set[str]:
        """Return the names of the new folders in which a process has open files."""
        found, prefix = set(), f"{self.cache.resolve()}/"
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = os.readlink(f"/proc/{pid}/fd/{number}")
                name = path.removeprefix(prefix).partition("/")[0]
                if path.startswith(prefix) and name.startswith(".tmp"):
                    found.add(name)
        except OSError:  # the file was closed or the process ended
            pass
        return found

    def _opened_by_others(self, pid: int) -> set[str]:
        """Return the folders of other uv processes (sampled: small files are open briefly)."""
        found: set[str] = set()
        for _ in range(_SAMPLES):
            for comm in Path("/proc").glob("[0-9]*/comm"):
                try:
                    other = int(comm.parent.name)
                    if other != pid and comm.read_text() == "uv\n":
                        found |= self._opened_by(other)
                except OSError:
                    continue
            time.sleep(0.005)
        return found

    def _folders(self) -> list[Path]:
        return list(self.cache.glob(".tmp*"))

    def _measure(self, top: Path) -> tuple[int, int]:
        """Count bytes and files in a folder; stop once the quota is exceeded."""
        size = files = 0
        for folder, inner, names in os.walk(top):
            files += len(inner) + len(names)
            for name in names:
                try:
                    size += os.lstat(os.path.join(folder, name)).st_size
                except OSError:  # moved in the meantime
                    continue
            if size > self.quota.bytes or files > self.quota.files:
                break
        return size, files

    def _is_exceeded(self, measured: Iterable[tuple[int, int]]) -> bool:
        size, files = _sum(measured)
        return size > self.quota.bytes or files > self.quota.files

    def _check_quota(self, measured: Iterable[tuple[int, int]]) -> None:
        size, files = _sum(measured)
        if size > self.quota.bytes:
            raise too_large(self.quota)
        if files > self.quota.files:
            raise EnvironmentFailed(
                f"the packages have more than {self.quota.files:,} files",
                hint=_HINT.format("environment_files"),
            )


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Stop a process while the block runs; it continues unless the block raises."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _sum(measured: Iterable[tuple[int, int]]) -> tuple[int, int]:
    size = files = 0
    for more_bytes, more_files in measured:
        size, files = size + more_bytes, files + more_files
    return size, files


def too_large(quota: Quota) -> EnvironmentFailed:
    """Return the error for packages that unpack to more bytes than the quota."""
    return EnvironmentFailed(
        f"the packages unpack to more than {quota.bytes:,} bytes",
        hint=_HINT.format("environment_bytes"),
    )
