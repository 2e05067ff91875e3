"""Modes B and C from outside: a program of its own for every job.

In mode B bwrap makes the namespaces; what it cannot do follows inside (`runtime.once`).
In mode C there is no bwrap: Landlock, seccomp and limits only, no sockets at all, and a
guardian that ends what the job leaves. Mode C must be allowed by a setting.
"""

import asyncio
import hashlib
import json
import os
import select
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from toolkiln.errors import BackendError
from toolkiln.execution.network import hosts_file
from toolkiln.execution.sandbox.cgroups import Cgroup
from toolkiln.execution.sandbox.fork_server import fixed_view, limits
from toolkiln.execution.sandbox.launching import Launch, Running, sandbox_user, start
from toolkiln.execution.sandbox.layout import (
    PACKAGE,
    Bind,
    Interpreter,
    base_packages,
    common_binds,
    program,
)
from toolkiln.execution.sandbox.processes import Ended, Job, Process, View
from toolkiln.execution.trees import empty, opened

_DEVICES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that hold nothing of the host; the others, and shared memory, are out of reach."""
_PROCESS_FILES = tuple(
    f"/proc/self/{name}"
    for name in ("cmdline", "comm", "fd", "limits", "maps", "smaps", "stat", "statm", "status")
)
"""What a process may read of itself: not its `net` and `mountinfo`, which describe the host."""

_ENDING = 2.0
"""Seconds that a program has to end after it was asked to."""


class _Programs:
    """Programs that run, each for one job, and how they end."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._running: dict[Running, Callable[[], None]] = {}
        """With what ends each."""

    def add(
        self, running: Running, end: Callable[[], None], settle: Callable[[int], int]
    ) -> Process:
        """Watch a program; `settle` clears up after it and tells the status of its job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended] = loop.create_future()
        kills = self._cgroup.kills()
        self._running[running] = end

        def on_end() -> None:
            loop.remove_reader(running.end)
            if self._running.pop(running, None) is None:  # another thread has ended it
                return
            status, cpu, memory = running.reap()
            out_of_memory = self._cgroup.kills() > kills
            ended = Ended(settle(status), cpu, memory, out_of_memory, running.complaint())
            if not future.done():
                future.set_result(ended)

        loop.add_reader(running.end, on_end)
        return Process(future, end)

    async def close(self) -> None:
        """End all of them."""
        for end in list(self._running.values()):
            end()
        while self._running:
            await asyncio.sleep(0.01)
        await self._cgroup.close()

    def kill(self) -> None:
        """End all of them, from any thread; for when the event loop has ended."""
        left, self._running = self._running, {}
        for end in left.values():
            end()
        for running in left:
            if select.select([running.end], [], [], _ENDING)[0]:
                running.reap()
            running.complaint()
        self._cgroup.remove()


class Bubblewrap:
    """Mode B: bwrap for each job."""

    mode = "B"
    start_seconds = 0.05

    def __init__(self, bwrap: Path, python: Interpreter, cgroup: Cgroup) -> None:
        self._bwrap = bwrap
        self._python = python
        self._cgroup = cgroup
        self._programs = _Programs(cgroup)
        self.close, self.kill = self._programs.close, self._programs.kill

    async def ready(self) -> None:
        """Nothing runs in advance."""

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Start bwrap around `runtime.once`."""
        binds = [*common_binds(self._python), Bind(job.version, "/tool")]
        if job.site:
            binds.append(Bind(job.site, "/env"))
        if job.workspace:
            binds.append(Bind(job.workspace.folder, "/workspace", job.workspace.writable))
        groups = self._cgroup.open()
        inherited = (*descriptors, *groups)
        settings = {
            "mode": "B",
            "descriptors": inherited,
            "limits": limits(job),
            "network": job.network,
            "endpoints": [each[:2] for each in job.endpoints],
            "workdir": "/tmp",  # noqa: S108
            "read": [str(self._python.prefix)],
            "write": [bind.target for bind in binds if bind.writable],
        }
        command = [*self._python.command, "-c", program("once"), json.dumps(settings)]
        launch = Launch(
            binds,
            command,
            inherited,
            hosts=hosts_file(job.endpoints),
            tmp_bytes=job.bounds.disk,
        )
        try:
            running = start(self._bwrap, self._python, launch)
        finally:
            _close_all(groups)
        return self._programs.add(running, running.kill, _as_inside)

    def view(self, job: Job) -> View:
        """Everything has its fixed place."""
        return fixed_view(job)


class Bare:
    """Mode C: no bwrap. Not `locked` it is a mere process, for tools that may be one."""

    start_seconds = 0.0

    def __init__(
        self,
        python: Interpreter,
        state: Path,
        cgroup: Cgroup,
        *,
        locked: bool = True,
    ) -> None:
        self.mode = "C" if locked else "none"
        self._locked = locked
        self._python = python
        origin = hashlib.sha256("\n".join(map(str, base_packages())).encode()).hexdigest()
        self._base = state / "base" / origin[:16]
        self._cgroup = cgroup
        self._programs = _Programs(cgroup)
        self.close, self.kill = self._programs.close, self._programs.kill

    async def ready(self) -> None:
        """Lay out pydantic where tools find it."""
        self._base.mkdir(parents=True, exist_ok=True)
        for path in base_packages():
            with suppress(FileExistsError):
                (self._base / path.name).symlink_to(path)

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Start `runtime.once` with a guardian.

        Raises:
            BackendError: the job needs what this mode cannot give.
        """
        if job.network and self._locked:
            raise BackendError(
                "a tool with network access cannot run in the reduced sandbox",
                hint="`toolkiln doctor` says what the full one needs",
            )
        folder = Path(tempfile.mkdtemp(prefix="toolkiln-"))
        if (user := sandbox_user()) is not None:
            os.chown(folder, user, user)
        groups = self._cgroup.open()
        inherited = (*descriptors, *groups)
        writable = [str(folder)]
        read = [str(job.version), str(self._python.prefix), "/usr", "/lib", "/lib64", "/bin"]
        read += ["/etc/ld.so.cache", *_DEVICES, *_PROCESS_FILES, str(self._base)]
        read += [str(PACKAGE / name) for name in ("__init__.py", "define.py", "runtime")]
        read += map(str, base_packages())
        if job.site:
            read.append(str(job.site))
        if job.workspace:
            (writable if job.workspace.writable else read).append(str(job.workspace.folder))
        settings = {
            "mode": self.mode,
            "descriptors": inherited,
            "limits": limits(job),
            "processes_of_user": _tasks_of_user(),
            "network": False,
            "workdir": str(folder),
            "read": read,
            "write": [*writable, "/dev/null"],
        }
        command = [*self._python.command, "-c", program("once", str(PACKAGE.parent))]
        try:
            running = Running([*command, json.dumps(settings)], inherited, become_user=self._locked)
        except BackendError:
            _remove(folder)
            raise
        finally:
            _close_all(groups)

        def settle(status: int) -> int:
            # Not here: a tool can leave so much that it takes minutes.
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)
            return status

        return self._programs.add(running, running.terminate, settle)

    def view(self, job: Job) -> View:
        """The host's own paths."""
        site = str(job.site) if job.site else None
        workspace = str(job.workspace.folder) if job.workspace else None
        return View(str(job.version), site, str(self._base), workspace)


def _tasks_of_user() -> int:
    """Processes and threads of the user that jobs run as, who counts for all of them here."""
    user = sandbox_user() or os.geteuid()
    count = 0
    for folder in Path("/proc").glob("[0-9]*/task"):
        with suppress(OSError):  # it has just ended
            if folder.stat().st_uid == user:
                count += len(os.listdir(folder))
    return count


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder that a tool filled: as deep, and as closed, as it liked."""
    try:
        with opened(folder, 0o700) as top:
            empty(top)
        folder.rmdir()
    except OSError:
        pass  # the system empties its folder of temporary files at times


def _as_inside(status: int) -> int:
    """The status of the process inside, which bwrap passes on as a shell would."""
    code = status >> 8
    return code - 128 if code > 128 else status
