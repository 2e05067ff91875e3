"""Cgroup shared by the calls of this process: bounds their total memory and number of processes."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "toolkiln-"
_MAX_PROCESSES = 2048
_REMOVE_ATTEMPTS = 200
_REMOVE_INTERVAL = 0.01
_FILES = {
    1: {"memory": "memory.limit_in_bytes", "kills": "memory.oom_control"},
    2: {"memory": "memory.max", "kills": "memory.events"},
}


@dataclass(slots=True)
class Cgroup:
    """The cgroup of this process's calls: one folder per controller, or none."""

    description: str
    """The version and memory limit, or why there is no cgroup."""
    folders: tuple[Path, ...] = ()
    """Memory first, then pids; in version 2 one folder for both."""
    version: int = 0

    def open(self) -> list[int]:
        """Open the files through which a process joins; the caller closes them."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY) for folder in self.folders]

    def kills(self) -> int:
        """Return how many processes the kernel has killed because of the memory limit."""
        if not self.folders:
            return 0
        text = (self.folders[0] / _FILES[self.version]["kills"]).read_text("ascii")
        counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", 0))

    async def close(self) -> None:
        """Remove the cgroup once its last process has exited.

        If it does not become empty, the next Toolkiln process removes it.
        """
        for seconds in self._remove_attempts():
            await asyncio.sleep(seconds)

    def remove(self) -> None:
        """Do the same as `close` without an event loop."""
        for seconds in self._remove_attempts():
            time.sleep(seconds)

    def _remove_attempts(self) -> Iterator[float]:
        """Try to remove the cgroup; yield the seconds to wait before the next attempt."""
        left, self.folders = list(self.folders), ()
        for _ in range(_REMOVE_ATTEMPTS):
            left = [folder for folder in left if not _remove(folder)]
            if not left:
                return
            yield _REMOVE_INTERVAL


def find_cgroup(root: Path = Path("/sys/fs/cgroup")) -> Cgroup:
    """Create a cgroup for the calls of this process, if the system permits it."""
    _remove_abandoned(root)
    name = f"{_PREFIX}{os.getpid()}-{os.urandom(3).hex()}"
    created: list[Path] = []
    folders: tuple[Path, ...]
    try:
        if (root / "memory").is_dir() and (root / "pids").is_dir():
            version, folders = 1, (root / "memory" / name, root / "pids" / name)
        else:
            version, folders = 2, (_delegated(root) / name,)
        for folder in folders:
            folder.mkdir()
            created.append(folder)
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        (folders[0] / _FILES[version]["memory"]).write_text(str(half), "ascii")
        (folders[-1] / "pids.max").write_text(str(_MAX_PROCESSES), "ascii")
    except (OSError, LookupError) as error:
        for folder in created:
            _remove(folder)
        return Cgroup(f"none: {getattr(error, 'strerror', None) or error}")
    return Cgroup(f"version {version}, {half >> 20:,} MB for all calls", folders, version)


def _delegated(root: Path) -> Path:
    """Return this process's version 2 cgroup, if its controllers are delegated."""
    line = Path("/proc/self/cgroup").read_text("ascii").strip().splitlines()[-1]
    own = root / line.split("::", 1)[-1].lstrip("/")
    if "memory" not in (own / "cgroup.subtree_control").read_text("ascii"):
        raise LookupError("the memory controller is not delegated to this process")
    return own


def _remove_abandoned(root: Path) -> None:
    for folder in [*root.glob(f"*/{_PREFIX}*"), *root.glob(f"{_PREFIX}*")]:
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _remove(folder)


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # not empty
    return True
