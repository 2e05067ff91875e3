"""Control groups: memory and processes of a whole call, where the system lets us have them.

Version 1 as root, version 2 where a group is delegated to us. Groups are made once and
used again, because making one costs more than a call. A process enters its group itself,
by writing to a descriptor that it gets; so the control files stay outside of every
sandbox. Without any of this each process is bounded by its rlimits alone.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from toolkiln.execution.executor import Bounds

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "toolkiln-"


@dataclass(slots=True)
class Group:
    """One call's groups: a folder for each controller, or one for all of them."""

    folders: dict[str, Path] = field(default_factory=dict)
    """By controller: memory, pids."""
    descriptors: list[int] = field(default_factory=list)
    """Of `cgroup.procs`, open while a call uses the group."""
    kills_before: int = 0


class NoCgroups:
    """Nothing to be had."""

    bounds_memory = False

    def __init__(self, why: str) -> None:
        self.why = why

    def enter(self, bounds: Bounds, extra_processes: int = 0) -> Group:  # noqa: ARG002
        """A group that is none."""
        return Group()

    def leave(self, group: Group) -> bool:  # noqa: ARG002
        """Never out of memory."""
        return False

    def close(self) -> None:
        """Nothing to remove."""


class Cgroups:
    """A pool of groups below one folder of ours in each hierarchy."""

    bounds_memory = True

    def __init__(self, homes: dict[str, Path], version: int) -> None:
        self._homes = homes
        self.version = version
        self.why = f"version {version}, {' and '.join(homes)}"
        self._free: list[Group] = []
        self._made = 0

    def enter(self, bounds: Bounds, extra_processes: int = 0) -> Group:
        """A group with these bounds, to be entered through its descriptors."""
        group = self._free.pop() if self._free else self._make()
        files = _FILES[self.version]
        # Files in /tmp are memory, too.
        memory = group.folders["memory"]
        _write_limit(memory / files["memory"], bounds.memory + bounds.disk)
        _write(group.folders["pids"] / "pids.max", str(bounds.processes + extra_processes))
        group.kills_before = self._kills(memory)
        group.descriptors = [
            os.open(folder / "cgroup.procs", os.O_WRONLY)
            for folder in dict.fromkeys(group.folders.values())
        ]
        return group

    def leave(self, group: Group) -> bool:
        """Take a group back; whether the kernel killed for want of memory."""
        for descriptor in group.descriptors:
            os.close(descriptor)
        group.descriptors = []
        self._free.append(group)
        return self._kills(group.folders["memory"]) > group.kills_before

    def close(self) -> None:
        """Remove every group that is empty; the last of ours goes with its parent."""
        for group in self._free:
            for folder in dict.fromkeys(group.folders.values()):
                _remove(folder)
        self._free.clear()
        for home in dict.fromkeys(self._homes.values()):
            _remove(home)

    def _make(self) -> Group:
        self._made += 1
        folders = {name: home / str(self._made) for name, home in self._homes.items()}
        for folder in dict.fromkeys(folders.values()):
            folder.mkdir(parents=True, exist_ok=True)
        return Group(folders)

    def _kills(self, folder: Path) -> int:
        text = (folder / _FILES[self.version]["kills"]).read_text("ascii")
        for line in text.splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
        return 0


_FILES = {
    1: {"memory": "memory.limit_in_bytes", "kills": "memory.oom_control"},
    2: {"memory": "memory.max", "kills": "memory.events"},
}


def find_cgroups(root: Path = _ROOT) -> Cgroups | NoCgroups:
    """What this process may use, tried out."""
    _remove_abandoned(root)
    name = f"{_PREFIX}{os.getpid()}-{os.urandom(3).hex()}"
    try:
        if (root / "memory").is_dir() and (root / "pids").is_dir():
            homes = {which: root / which / name for which in ("memory", "pids")}
            version = 1
        else:
            homes = dict.fromkeys(("memory", "pids"), _delegated(root) / name)
            version = 2
        for home in dict.fromkeys(homes.values()):
            home.mkdir()
        if version == 2:
            _write(homes["memory"] / "cgroup.subtree_control", "+memory +pids")
        found = Cgroups(homes, version)
        found.leave(found.enter(Bounds()))
    except (OSError, LookupError) as error:
        return NoCgroups(getattr(error, "strerror", None) or str(error))
    return found


def _delegated(root: Path) -> Path:
    """Our own group in version 2, if it hands its controllers on."""
    line = Path("/proc/self/cgroup").read_text("ascii").strip().splitlines()[-1]
    own = root / line.split("::", 1)[1].lstrip("/")
    if "memory" not in (own / "cgroup.subtree_control").read_text("ascii"):
        raise LookupError("no memory controller is delegated to us")
    return own


def _remove_abandoned(root: Path) -> None:
    """Groups of processes that were killed before they could remove them."""
    for folder in [*root.glob(f"*/{_PREFIX}*"), *root.glob(f"{_PREFIX}*")]:
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            for inner in folder.glob("*/"):
                _remove(inner)
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass  # somebody is still in it; the next process that starts removes it


def _write_limit(file: Path, value: int) -> None:
    try:
        _write(file, str(value))
    except OSError:
        # Files that an earlier call left in memory may exceed a lower limit for a moment.
        _write(file.with_name("memory.force_empty"), "0")
        _write(file, str(value))


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="ascii")
