"""The quota of an installation: how many bytes and files uv may unpack, measured while it runs.

The sizes in a wheel's directory are the wheel's own claim, so they decide nothing. Counted is
what uv has put on the disk: into its cache, where it unpacks each wheel to a new folder `.tmp…`,
and into the environment. A run that exceeds the quota is killed, and what it unpacked is
removed. Other runs may use the same cache: a folder belongs to the process that has files in it
open.
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
from toolkiln.execution.environments import folders

_SAMPLES = 20
_HINT = "require smaller packages, or raise the setting `{}`"


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that an environment may hold."""

    bytes: int = 2 << 30
    files: int = 100_000
    """Folders count as files."""


@dataclass(slots=True)
class Usage:
    """What one run of uv has put on the disk so far."""

    quota: Quota
    cache: Path
    target: Path | None
    """The environment's folder; None while requirements are resolved."""
    _before: set[str] = field(init=False)
    _unpacked: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)
    """Bytes and files of each new folder in the cache, as they were last seen."""
    _own: set[str] = field(init=False, default_factory=set)
    _foreign: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._before = {path.name for path in self._folders()}

    def check(self, pid: int) -> None:
        """Count what the uv with this process id has written.

        Raises:
            EnvironmentFailed: it is more than the quota.
        """
        self._own |= self._opened_by(pid)
        for folder in self._folders():
            if folder.name not in self._before | self._foreign:
                self._unpacked[folder.name] = self._counted(folder)
        if self._is_exceeded(self._unpacked.values()):
            with _stopped(pid):  # looking at all processes takes as long as unpacking gigabytes
                self._foreign |= self._opened_by_others(pid) - self._own
                # A folder that was finished meanwhile, and was never seen to be ours, is in the
                # environment if it was ours all the same.
                counted = self._own | {path.name for path in self._folders()} - self._foreign
                self._unpacked = {k: v for k, v in self._unpacked.items() if k in counted}
                self._judge(self._unpacked.values())
        if self.target:
            self._judge([self._counted(self.target)])

    def clear(self) -> None:
        """Remove what uv, now dead, left in its cache."""
        try:
            lock = os.open(self.cache / ".lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            # Each uv holds this lock, shared: without others, all new folders are ours.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = {path.name for path in self._folders()} - self._before
        except OSError:
            left = self._own
        finally:
            os.close(lock)
        for name in left:
            folders.remove(self.cache / name)

    def _opened_by(self, pid: int) -> set[str]:
        """The names of the new folders in which a process has a file open."""
        found, prefix = set(), f"{self.cache.resolve()}/"
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                path = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115
                name = path.removeprefix(prefix).partition("/")[0]
                if path.startswith(prefix) and name.startswith(".tmp"):
                    found.add(name)
        except OSError:  # it closed the file, or has ended
            pass
        return found

    def _opened_by_others(self, pid: int) -> set[str]:
        """The same of every other uv, looked at for a while: small files are open for moments."""
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

    def _counted(self, top: Path) -> tuple[int, int]:
        """Bytes and files below a folder; no more are counted than it takes to exceed the quota."""
        size = files = 0
        for folder, inner, names in os.walk(top):
            files += len(inner) + len(names)
            for name in names:
                try:
                    size += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
                except OSError:  # moved meanwhile
                    continue
            if size > self.quota.bytes or files > self.quota.files:
                break
        return size, files

    def _is_exceeded(self, counted: Iterable[tuple[int, int]]) -> bool:
        size, files = _sum(counted)
        return size > self.quota.bytes or files > self.quota.files

    def _judge(self, counted: Iterable[tuple[int, int]]) -> None:
        size, files = _sum(counted)
        if size > self.quota.bytes:
            raise too_large(self.quota)
        if files > self.quota.files:
            raise EnvironmentFailed(
                f"the packages have more than {self.quota.files:,} files",
                hint=_HINT.format("environment_files"),
            )


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Keep a process, which may have ended, from running; it goes on unless this raises."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _sum(counted: Iterable[tuple[int, int]]) -> tuple[int, int]:
    size = files = 0
    for more_bytes, more_files in counted:
        size, files = size + more_bytes, files + more_files
    return size, files


def too_large(quota: Quota) -> EnvironmentFailed:
    """Return the error for packages that unpack to more bytes than the quota."""
    return EnvironmentFailed(
        f"the packages unpack to more than {quota.bytes:,} bytes",
        hint=_HINT.format("environment_bytes"),
    )
