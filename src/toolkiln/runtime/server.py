"""The fork server of mode A: one small process in bwrap that clones every call.

It holds capabilities of the sandbox's own user namespace, and with them gives each child
namespaces, mounts and limits of its own. It runs the standard library and this package
only, and never sees arguments: those travel on each call's own socket. Between requests
it imports what tools use most, one module at a time, so that the first call need not wait.

    host → server   {"op": "spawn", "id", …} with descriptors; {"op": "kill", "id"}
    server → host   {"op": "ready"}, then {"op": "ended", "id", "status", "cpu", "memory"}
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import os
import select
import sys

from toolkiln.runtime import linux, lockdown, wire, worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_NAMESPACES = linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC
_WARM = (
    "resource", "importlib.util", "toolkiln.runtime.binding",
    "toolkiln.runtime.serialise", "toolkiln.runtime.foreign", "toolkiln.define",
    "toolkiln.runtime.context", "inspect", "datetime",
)  # fmt: skip
_LARGEST_REQUEST = 65536
_BEFORE_THE_FIRST = 0.2
"""Seconds: whoever starts a server has a call for it, which must not wait for imports."""
_SETUP_FAILED = 119


class Server:
    """The loop between requests of the host and ends of children."""

    def __init__(self, control: wire.Socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._settings = settings
        self._pids: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self._programs: dict[bool, bytes] = {}
        self._user = os.getuid(), os.getgid()
        self._cold = list(_WARM)
        self._served = False

    def run(self) -> NoReturn:
        """Serve until the host goes away."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(wire.SIGCHLD, lambda *_: None)
        self._tell({"op": "ready"})
        while True:
            waiting: list[Any] = [self._control, woken]
            ready, _, _ = select.select(waiting, [], [], self._patience())
            if not ready:
                self._warm_up()
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if self._control in ready:
                self._serve()

    def _patience(self) -> float | None:
        """How long to wait for requests before importing what tools may want."""
        if not self._cold:
            return None
        return 0.0 if self._served else _BEFORE_THE_FIRST

    def _serve(self) -> None:
        data, descriptors = wire.receive_descriptors(self._control, _LARGEST_REQUEST, 16)
        if not data:
            os._exit(0)
        request = wire.decode(data.decode())
        if request["op"] == "kill":
            if pid := self._pids.get(request["id"]):
                os.kill(pid, wire.SIGKILL)
            return
        try:
            self._spawn(request, descriptors)
            self._served = True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _spawn(self, request: dict[str, Any], descriptors: list[int]) -> None:
        flags = _NAMESPACES | (linux.CLONE_NEWNET if request["network"] else 0)
        program = self._program(request["network"])
        try:
            pid = linux.clone(flags)
        except OSError as error:
            self._ended(request["id"], -1, 0.0, 0, str(error))
            return
        if pid == 0:
            try:
                self._child(request, descriptors, program)
            except BaseException as error:  # nothing of the tool has run: say why, and end
                os.write(2, f"toolkiln: the sandbox cannot be set up: {error}\n".encode())
            finally:
                os._exit(_SETUP_FAILED)
        self._pids[request["id"]] = pid
        self._ids[pid] = request["id"]

    def _child(self, request: dict[str, Any], descriptors: list[int], program: bytes) -> NoReturn:
        limits = request["limits"]
        lockdown.take_descriptors(descriptors)
        lockdown.enter_session()
        lockdown.map_user(*self._user)
        lockdown.mount_all(request["mounts"], disk=limits["disk"], files=limits["files"])
        if request["network"]:
            lockdown.mount_hosts(request["hosts"])
            linux.loopback_up()
            lockdown.hand_over_listeners(request["endpoints"])
        os.chdir("/tmp")  # noqa: S108
        lockdown.set_limits(limits)
        lockdown.give_up_rights(
            program,
            network=request["network"],
            read=(self._settings["prefix"],),
            write=[target for _, target, writable in request["mounts"] if writable],
        )
        lockdown.verify()
        worker.serve(alone=True, settled=not self._cold)

    def _program(self, network: bool) -> bytes:
        if network not in self._programs:
            self._programs[network] = lockdown.program(network=network)
        return self._programs[network]

    def _reap(self) -> None:
        while self._ids:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            number = self._ids.pop(pid, None)
            if number is not None:
                del self._pids[number]
                cpu = usage.ru_utime + usage.ru_stime
                self._ended(number, status, cpu, usage.ru_maxrss * 1024)

    def _ended(self, number: int, status: int, cpu: float, memory: int, why: str = "") -> None:
        frame = {"op": "ended", "id": number, "status": status, "cpu": round(cpu, 4)}
        self._tell({**frame, "memory": memory, "why": why})

    def _tell(self, frame: dict[str, Any]) -> None:
        try:
            self._control.send(wire.encode(frame).encode())
        except OSError:
            os._exit(0)

    def _warm_up(self) -> None:
        try:
            __import__(self._cold.pop(0))
        except ImportError:
            pass  # another version of Python may lack it; it is only warmth
        if not self._cold:
            gc.collect()
            gc.freeze()  # so that collections in children do not copy these pages


def main() -> NoReturn:
    """The program: its argument says where the host listens and what surrounds the server."""
    settings = wire.decode(sys.argv[1])
    for group in settings["groups"]:
        os.write(group, b"0")
        os.close(group)
    worker.open_output()
    Server(wire.Socket(fileno=settings["control"]), settings).run()
