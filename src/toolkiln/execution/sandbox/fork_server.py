"""Mode A from outside: one fork server in bwrap, asked to clone a process for each job.

The server sees all versions, environments and workspaces below /kiln, so that jobs can
come and go without another bwrap; each job sees its own only.
"""

import asyncio
import json
import math
import os
import signal
import socket
from pathlib import Path
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.execution.network import hosts_file
from toolkiln.execution.sandbox.cgroups import Cgroup
from toolkiln.execution.sandbox.launching import Launch, Running, start
from toolkiln.execution.sandbox.layout import Bind, Interpreter, common_binds, program
from toolkiln.execution.sandbox.processes import Ended, Job, Process, View

_START_SECONDS = 20.0
_FILES = 4096
_REMEMBERED = 1024
SHARED = ("versions", "envs", "workspaces")
"""Folders of the state that jobs get parts of."""


class ForkServer:
    """A fork server that starts when it is first needed, and again after it died."""

    mode = "A"
    start_seconds = 0.0

    def __init__(self, bwrap: Path, python: Interpreter, state: Path, cgroup: Cgroup) -> None:
        self._bwrap = bwrap
        self._python = python
        self._state = state
        self._cgroup = cgroup
        self._running: Running | None = None
        self._control: socket.socket | None = None
        self._jobs: dict[int, asyncio.Future[Ended]] = {}
        self._number = 0
        self._kills = 0
        self._requests: dict[Job, bytes] = {}
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of bwrap."""
        return self._running.pid if self._running else None

    async def ready(self) -> None:
        """Start the server unless it runs."""
        if self._control is not None:
            return
        async with self._starting:
            if self._control is None:
                await self._start()

    async def _start(self) -> None:
        binds = common_binds(self._python)
        for name in SHARED:
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
        command = [*self._python.command, "-c", program("server"), json.dumps(settings)]
        launch = Launch(binds, command, (far.fileno(), *groups), keep_capabilities=True)
        try:
            running = start(self._bwrap, self._python, launch)
        finally:
            far.close()
            for group in groups:
                os.close(group)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_START_SECONDS):
                said = await loop.sock_recv(control, 4096)
        except (TimeoutError, OSError):
            said = b""
        except BaseException:  # cancelled: nothing of it may stay
            control.close()
            _end(running)
            raise
        if not said:
            control.close()
            running.kill()
            running.reap()
            why = running.complaint() or "it gave no answer"
            raise BackendError(f"the fork server does not start: {why}")
        self._running, self._control = running, control
        loop.add_reader(control, self._on_control)

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Ask for a process.

        Raises:
            BackendError: the server has died or is flooded.
        """
        loop = asyncio.get_running_loop()
        self._number += 1
        number = self._number
        try:
            if self._control is None:
                raise OSError("it has ended")
            data = b'{"op": "spawn", "id": %d, %b' % (number, self._described(job))
            socket.send_fds(self._control, [data], list(descriptors))
        except OSError as error:
            raise BackendError(f"the fork server does not take the call: {error}") from error
        ended: asyncio.Future[Ended] = loop.create_future()
        self._jobs[number] = ended
        ended.add_done_callback(lambda _: self._jobs.pop(number, None))
        return Process(ended, lambda: self._kill(number))

    def view(self, job: Job) -> View:
        """Everything has its fixed place."""
        return fixed_view(job)

    async def close(self) -> None:
        """End the server and with it every process that it made."""
        if self._running is None:
            return
        _end(self._running)
        self._lost("it was closed")
        await self._cgroup.close()

    def kill(self) -> None:
        """End the server and its processes, from any thread; for when the event loop has ended."""
        running, control = self._running, self._control
        self._running = self._control = None
        if running is not None:
            _end(running)
        if control is not None:
            control.close()
        self._cgroup.remove()

    def _kill(self, number: int) -> None:
        if number in self._jobs and self._control is not None:
            try:
                self._control.send(json.dumps({"op": "kill", "id": number}).encode())
            except OSError:
                pass  # it has died, and the process with it

    def _described(self, job: Job) -> bytes:
        """What a request says of a job, after the opening brace and its number."""
        if job not in self._requests:
            if len(self._requests) >= _REMEMBERED:
                self._requests.clear()
            request = {
                "limits": limits(job),
                "mounts": self._mounts(job),
                "network": job.network,
                "endpoints": [each[:2] for each in job.endpoints],
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
        if self._control is None:  # another thread has just ended the server
            return
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if self._running:
                _end(self._running)
            self._lost("the fork server has died; the tool may have run in part")
            return
        frame: dict[str, Any] = json.loads(data)
        future = self._jobs.get(frame["id"])
        if future is not None and not future.done():
            future.set_result(
                Ended(
                    frame["status"],
                    frame["cpu"],
                    frame["memory"],
                    self._is_out_of_memory(frame["status"]),
                    frame["why"],
                )
            )

    def _is_out_of_memory(self, status: int) -> bool:
        """Whether the kernel killed a process, which nobody here asked for, for its memory."""
        if status & 0x7F != signal.SIGKILL:
            return False
        kills, self._kills = self._kills, self._cgroup.kills()
        return self._kills > kills

    def _lost(self, why: str) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        self._control = self._running = None
        for future in list(self._jobs.values()):
            if not future.done():
                future.set_result(Ended(-1, trouble=why))


def fixed_view(job: Job) -> View:
    """Where a process finds things that has a view of its own."""
    site = "/env" if job.site else None
    return View("/tool", site, "/toolkiln/base", "/workspace" if job.workspace else None)


def limits(job: Job) -> dict[str, int]:
    """The bounds of a job as the kernel wants them."""
    bounds = job.bounds
    return {
        "memory": bounds.memory,
        "cpu": math.ceil(bounds.cpu),
        "disk": bounds.disk,
        "files": _FILES,
        "processes": bounds.processes + job.extra_processes,
    }


def _end(running: Running) -> None:
    running.kill()
    running.reap()
    running.complaint()
