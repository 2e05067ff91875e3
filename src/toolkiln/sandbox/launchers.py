"""Launchers: start unprivileged processes for tools, one launcher per sandbox mode.

Mode A asks one fork server in bwrap for a process per job. The server sees all versions,
environments and workspaces below /kiln, each job only its own. Mode B starts bwrap for each job.
Mode C has no bwrap, only Landlock, seccomp and limits. Launchers do not know the protocol on a
job's socket; see `channel`.
"""

import asyncio
import hashlib
import json
import math
import os
import select
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from toolkiln.errors import BackendError
from toolkiln.execution.executor import Bounds, Workspace
from toolkiln.sandbox.bubblewrap import (
    MOUNTED,
    PACKAGE,
    Bind,
    BwrapProcess,
    Cgroup,
    Interpreter,
    Launch,
    base_packages,
    common_binds,
    program,
    sandbox_user,
    start,
)
from toolkiln.sandbox.network.addresses import Endpoint, hosts_file
from toolkiln.sandbox.trees import remove_tree

_START_TIMEOUT = 20.0
_MAX_FILES = 4096
_CACHE_SIZE = 1024
_SHARED_FOLDERS = ("versions", "envs", "workspaces")
"""State folders that contain the mounts of jobs."""
_DEVICES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that reveal nothing about the host."""
_PROCESS_FILES = tuple(
    f"/proc/self/{name}"
    for name in ("cmdline", "comm", "fd", "limits", "maps", "smaps", "stat", "statm", "status")
)
"""What a process may read about itself: not `net` and `mountinfo`, which describe the host."""

_KILL_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class Job:
    """A process to start: its mounts, network access and limits."""

    version: Path
    """The folder with the tool's file and helper modules."""
    site: Path | None
    workspace: Workspace | None
    network: bool
    bounds: Bounds
    extra_processes: int = 0
    """Additional processes allowed: a template counts as one."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where it listens for plain sockets, if it has network access."""


@dataclass(frozen=True, slots=True)
class SandboxPaths:
    """Paths as a process in the sandbox sees them."""

    tool: str
    site: str | None
    base: str
    """The folder with pydantic."""
    workspace: str | None


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The wait status and resource usage of an ended process; null if the mode cannot tell."""

    status: int
    cpu: float | None = None
    memory: int | None = None
    out_of_memory: bool = False
    platform_error: str = ""
    """Set if the platform failed, not the tool."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is running or has ended."""

    ended: asyncio.Future[ProcessExit]
    kill: Callable[[], None]


class Launcher(Protocol):
    """Starts unprivileged processes."""

    mode: str
    start_seconds: float
    """The startup time of a fresh process before it can import anything."""

    async def ready(self) -> None:
        """Prepare for jobs; raises BackendError on failure."""
        ...

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Start a process with these descriptors: socket, stdout, stderr.

        Raises:
            BackendError: the process cannot be started.
        """
        ...

    def paths(self, job: Job) -> SandboxPaths:
        """Return the paths that the process of a job sees."""
        ...

    async def close(self) -> None:
        """End all processes."""
        ...

    def kill(self) -> None:
        """End all processes from any thread, after the event loop has ended."""
        ...


def _fixed_paths(job: Job) -> SandboxPaths:
    site = "/env" if job.site else None
    return SandboxPaths("/tool", site, "/toolkiln/base", "/workspace" if job.workspace else None)


class ForkServerLauncher:
    """Mode A: a fork server, started on first use and restarted after it died."""

    mode = "A"
    start_seconds = 0.0
    paths = staticmethod(_fixed_paths)

    def __init__(self, bwrap: Path, python: Interpreter, state: Path, cgroup: Cgroup) -> None:
        self._bwrap = bwrap
        self._python = python
        self._state = state
        self._cgroup = cgroup
        self._server: BwrapProcess | None = None
        self._control: socket.socket | None = None
        self._jobs: dict[int, asyncio.Future[ProcessExit]] = {}
        self._last_id = 0
        self._kills = 0
        self._requests: dict[Job, bytes] = {}
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The pid of bwrap."""
        return self._server.pid if self._server else None

    async def ready(self) -> None:
        """Start the fork server unless it is running."""
        if self._control is not None:
            return
        async with self._starting:
            if self._control is None:
                await self._start()

    async def _start(self) -> None:
        binds = common_binds(self._python)
        for name in _SHARED_FOLDERS:
            folder = self._state / name
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            binds.append(Bind(folder, f"/kiln/{name}", writable=name == "workspaces"))
        control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        groups = self._cgroup.open()
        settings = {
            "control": far.fileno(),
            "groups": groups,
            "prefix": str(self._python.prefix),
        }
        command = [*self._python.command, "-c", program("fork_server"), json.dumps(settings)]
        launch = Launch(binds, command, (far.fileno(), *groups), keep_capabilities=True)
        try:
            process = start(self._bwrap, self._python, launch)
        finally:
            far.close()
            _close_all(groups)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                greeting = await loop.sock_recv(control, 4096)
        except (TimeoutError, OSError):
            greeting = b""
        except BaseException:  # cancelled
            control.close()
            _end(process)
            raise
        if not greeting:
            control.close()
            reason = _end(process) or "no response"
            raise BackendError(f"the fork server does not start: {reason}")
        self._server, self._control = process, control
        loop.add_reader(control, self._on_control)

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Request a process from the fork server."""
        loop = asyncio.get_running_loop()
        self._last_id += 1
        job_id = self._last_id
        try:
            if self._control is None:
                raise OSError("it is not running")
            data = b'{"op": "spawn", "id": %d, %b' % (job_id, self._request(job))
            socket.send_fds(self._control, [data], list(descriptors))
        except OSError as error:
            raise BackendError(f"the fork server does not accept the call: {error}") from error
        ended: asyncio.Future[ProcessExit] = loop.create_future()
        self._jobs[job_id] = ended
        ended.add_done_callback(lambda _: self._jobs.pop(job_id, None))
        return Process(ended, lambda: self._kill(job_id))

    async def close(self) -> None:
        """End the server and all its processes."""
        if self._server is None:
            return
        _end(self._server)
        self._on_server_lost("the fork server was closed")
        await self._cgroup.close()

    def kill(self) -> None:
        """End the server and all its processes from any thread, after the event loop has ended."""
        process, control = self._server, self._control
        self._server = self._control = None
        if process is not None:
            _end(process)
        if control is not None:
            control.close()
        self._cgroup.remove()

    def _kill(self, job_id: int) -> None:
        if job_id in self._jobs and self._control is not None:
            try:
                self._control.send(json.dumps({"op": "kill", "id": job_id}).encode())
            except OSError:
                pass  # the server has died, and the process with it

    def _request(self, job: Job) -> bytes:
        """Encode a request, without the opening brace and the id."""
        if job not in self._requests:
            if len(self._requests) >= _CACHE_SIZE:
                self._requests.clear()
            request = {
                **_settings(job),
                "mounts": self._mounts(job),
                "hosts": hosts_file(job.endpoints),
            }
            self._requests[job] = json.dumps(request).encode()[1:]
        return self._requests[job]

    def _mounts(self, job: Job) -> list[tuple[str, str, bool]]:
        mounts = [(self._inside(job.version), "/tool", False)]
        if job.site:
            mounts.append((self._inside(job.site), "/env", False))
        if job.workspace:
            folder, writable = job.workspace.folder, job.workspace.writable
            mounts.append((self._inside(folder), "/workspace", writable))
        return mounts

    def _inside(self, path: Path) -> str:
        return f"/kiln/{path.relative_to(self._state)}"

    def _on_control(self) -> None:
        if self._control is None:  # another thread has just killed the server
            return
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if self._server:
                _end(self._server)
            self._on_server_lost("the fork server died; the tool may have run partially")
            return
        frame: dict[str, Any] = json.loads(data)
        future = self._jobs.get(frame["id"])
        if future is not None and not future.done():
            future.set_result(
                ProcessExit(
                    frame["status"],
                    frame["cpu"],
                    frame["memory"],
                    self._is_out_of_memory(frame["status"]),
                    frame["why"],
                )
            )

    def _is_out_of_memory(self, status: int) -> bool:
        if status & 0x7F != signal.SIGKILL:
            return False
        kills, self._kills = self._kills, self._cgroup.kills()
        return self._kills > kills

    def _on_server_lost(self, reason: str) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        self._control = self._server = None
        for future in list(self._jobs.values()):
            if not future.done():
                future.set_result(ProcessExit(-1, platform_error=reason))


def _settings(job: Job) -> dict[str, Any]:
    """Return the settings that the programs of all modes understand."""
    bounds = job.bounds
    limits = {
        "memory": bounds.memory,
        "cpu": math.ceil(bounds.cpu),
        "disk": bounds.disk,
        "files": _MAX_FILES,
        "processes": bounds.processes + job.extra_processes,
    }
    endpoints = [each[:2] for each in job.endpoints]
    return {"limits": limits, "network": job.network, "endpoints": endpoints}


def _end(process: BwrapProcess) -> str:
    """Kill a process and return what it wrote to stderr."""
    process.kill()
    process.reap()
    return process.read_errors()


class _Processes:
    def __init__(self, cgroup: Cgroup, *, measures_cpu: bool) -> None:
        """`measures_cpu`: whether a process waits for its job, so that its time counts."""
        self._cgroup = cgroup
        self._measures_cpu = measures_cpu
        self._running: dict[BwrapProcess, Callable[[], None]] = {}
        """The function that ends each."""

    def add(
        self, process: BwrapProcess, end: Callable[[], None], job_status: Callable[[int], int]
    ) -> Process:
        """Watch a process; `job_status` cleans up after it and returns the status of its job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ProcessExit] = loop.create_future()
        kills = self._cgroup.kills()
        self._running[process] = end

        def on_end() -> None:
            loop.remove_reader(process.pidfd)
            if self._running.pop(process, None) is None:  # another thread has killed it
                return
            status, cpu = process.reap()
            out_of_memory = self._cgroup.kills() > kills
            ended = ProcessExit(
                job_status(status),
                cpu if self._measures_cpu else None,
                out_of_memory=out_of_memory,
                platform_error=process.read_errors(),
            )
            if not future.done():
                future.set_result(ended)

        loop.add_reader(process.pidfd, on_end)
        return Process(future, end)

    async def close(self) -> None:
        for end in list(self._running.values()):
            end()
        while self._running:
            await asyncio.sleep(0.01)
        await self._cgroup.close()

    def kill(self) -> None:
        left, self._running = self._running, {}
        for end in left.values():
            end()
        for process in left:
            if select.select([process.pidfd], [], [], _KILL_TIMEOUT)[0]:
                process.reap()
            process.read_errors()
        self._cgroup.remove()


class BwrapLauncher:
    """Mode B: bwrap for each job."""

    mode = "B"
    start_seconds = 0.05
    paths = staticmethod(_fixed_paths)

    def __init__(self, bwrap: Path, python: Interpreter, cgroup: Cgroup) -> None:
        self._bwrap = bwrap
        self._python = python
        self._cgroup = cgroup
        self._processes = _Processes(cgroup, measures_cpu=False)
        self.close, self.kill = self._processes.close, self._processes.kill

    async def ready(self) -> None:
        """Do nothing: no process runs in advance."""

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Start `runtime.one_shot` in bwrap."""
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
            **_settings(job),
            "workdir": "/tmp",  # noqa: S108
            "read": [str(self._python.prefix)],
            "write": [bind.target for bind in binds if bind.writable],
        }
        command = [*self._python.command, "-c", program("one_shot"), json.dumps(settings)]
        hosts = hosts_file(job.endpoints)
        launch = Launch(binds, command, inherited, hosts=hosts, tmp_bytes=job.bounds.disk)
        try:
            process = start(self._bwrap, self._python, launch)
        finally:
            _close_all(groups)
        return self._processes.add(process, process.kill, _inner_status)


class ProcessLauncher:
    """Mode C: no bwrap. With `sandboxed=False` mode none, for tools allowed to run unsandboxed."""

    start_seconds = 0.0

    def __init__(
        self,
        python: Interpreter,
        state: Path,
        cgroup: Cgroup,
        *,
        sandboxed: bool = True,
    ) -> None:
        self.mode = "C" if sandboxed else "none"
        self._sandboxed = sandboxed
        self._python = python
        origin = hashlib.sha256("\n".join(map(str, base_packages())).encode()).hexdigest()
        self._base = state / "base" / origin[:16]
        self._cgroup = cgroup
        self._processes = _Processes(cgroup, measures_cpu=True)
        self.close, self.kill = self._processes.close, self._processes.kill

    async def ready(self) -> None:
        """Link pydantic into the folder that tools import it from."""
        self._base.mkdir(parents=True, exist_ok=True)
        for path in base_packages():
            with suppress(FileExistsError):
                (self._base / path.name).symlink_to(path)

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Start `runtime.one_shot` with its supervisor."""
        if job.network and self._sandboxed:
            raise BackendError(
                "a tool with network access cannot run in the reduced sandbox (mode C)",
                hint="run `toolkiln doctor` to see what the full sandbox requires",
            )
        folder = Path(tempfile.mkdtemp(prefix="toolkiln-"))
        if (user := sandbox_user()) is not None:
            os.chown(folder, user, user)
        groups = self._cgroup.open()
        inherited = (*descriptors, *groups)
        writable = [str(folder)]
        read = [str(job.version), str(self._python.prefix), "/usr", "/lib", "/lib64", "/bin"]
        read += ["/etc/ld.so.cache", *_DEVICES, *_PROCESS_FILES, str(self._base)]
        read += [str(PACKAGE / name) for name in MOUNTED]
        read += map(str, base_packages())
        if job.site:
            read.append(str(job.site))
        if job.workspace:
            (writable if job.workspace.writable else read).append(str(job.workspace.folder))
        settings = {
            "mode": self.mode,
            "descriptors": inherited,
            **_settings(job),
            "processes_of_user": _tasks_of_user(),
            "network": False,
            "workdir": str(folder),
            "read": read,
            "write": [*writable, "/dev/null"],
        }
        command = [*self._python.command, "-c", program("one_shot", str(PACKAGE.parent))]
        try:
            process = BwrapProcess(
                [*command, json.dumps(settings)], inherited, become_user=self._sandboxed
            )
        except BackendError:
            _remove(folder)
            raise
        finally:
            _close_all(groups)

        def job_status(status: int) -> int:
            # In a thread: a tool may leave so many files that removing them takes minutes.
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)
            return status

        return self._processes.add(process, process.terminate, job_status)

    def paths(self, job: Job) -> SandboxPaths:
        """Return the host's paths."""
        site = str(job.site) if job.site else None
        workspace = str(job.workspace.folder) if job.workspace else None
        return SandboxPaths(str(job.version), site, str(self._base), workspace)


def _tasks_of_user() -> int:
    """Count the processes and threads of the user that jobs run as."""
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
    with suppress(OSError):  # the system cleans up temporary files eventually
        remove_tree(folder)


def _inner_status(status: int) -> int:
    """Return the status of the process inside; bwrap reports signals as 128 + n, like a shell."""
    code = status >> 8
    return code - 128 if code > 128 else status
