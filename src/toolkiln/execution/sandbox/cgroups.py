"""Control groups: one bound on memory and processes for all calls of this process together.

Version 1 as root, version 2 where a group is delegated to us. Not one group for each call:
entering one waits for the whole machine and takes longer than the call (ADR 8). A process
enters by writing to descriptors that it gets, so that the control files stay outside of
every sandbox. What a single call uses is bounded by its rlimits; without any group, that
is the only bound.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "toolkiln-"
_MOST_PROCESSES = 2048
_PATIENCE = 200
"""Hundredths of a second that killed processes may take to go."""
_FILES = {
    1: {"memory": "memory.limit_in_bytes", "kills": "memory.oom_control"},
    2: {"memory": "memory.max", "kills": "memory.events"},
}


@dataclass(slots=True)
class Cgroup:
    """The group of this process's calls: none, or a folder for each controller."""

    why: str
    """Which there are, or why there are none."""
    folders: tuple[Path, ...] = ()
    """Of memory first, then of processes; version 2 has one for both."""
    version: int = 0

    def open(self) -> list[int]:
        """Descriptors through which a process enters; to be closed by the caller."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY) for folder in self.folders]

    def kills(self) -> int:
        """How often the kernel has killed for want of memory."""
        if not self.folders:
            return 0
        text = (self.folders[0] / _FILES[self.version]["kills"]).read_text("ascii")
        counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", 0))

    async def close(self) -> None:
        """Remove the group once the last process has left it.

        One that does not get empty is removed when another process starts.
        """
        for pause in self._removing():
            await asyncio.sleep(pause)

    def remove(self) -> None:
        """As `close`, without an event loop."""
        for pause in self._removing():
            time.sleep(pause)

    def _removing(self) -> Iterator[float]:
        """Try to remove the group; yields the seconds to wait before the next attempt."""
        left, self.folders = list(self.folders), ()
        for _ in range(_PATIENCE):
            left = [folder for folder in left if not _remove(folder)]
            if not left:
                return
            yield 0.01


def find_cgroup(root: Path = _ROOT) -> Cgroup:
    """What this process may use, tried out."""
    _remove_abandoned(root)
    name = f"{_PREFIX}{os.getpid()}-{os.urandom(3).hex()}"
    made: list[Path] = []
    folders: tuple[Path, ...]
    try:
        if (root / "memory").is_dir() and (root / "pids").is_dir():
            version, folders = 1, (root / "memory" / name, root / "pids" / name)
        else:
            version, folders = 2, (_delegated(root) / name,)
        for folder in folders:
            folder.mkdir()
            made.append(folder)
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        _write(folders[0] / _FILES[version]["memory"], half)
        _write(folders[-1] / "pids.max", _MOST_PROCESSES)
    except (OSError, LookupError) as error:
        for folder in made:
            _remove(folder)
        return Cgroup(f"none: {getattr(error, 'strerror', None) or error}")
    return Cgroup(f"version {version}, {half >> 20:,} MB for all calls", folders, version)


def _delegated(root: Path) -> Path:
    """Our own group in version 2, if it hands its controllers on."""
    line = Path("/proc/self/cgroup").read_text("ascii").strip().splitlines()[-1]
    own = root / line.split("::", 1)[-1].lstrip("/")
    if "memory" not in (own / "cgroup.subtree_control").read_text("ascii"):
        raise LookupError("no memory controller is delegated to us")
    return own


def _remove_abandoned(root: Path) -> None:
    """Groups of processes that were killed before they could remove them."""
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
        return False  # somebody is still in it
    return True


def _write(file: Path, value: int) -> None:
    file.write_text(str(value), encoding="ascii")
