"""Fork server of mode A: a small process in bwrap that clones a process for each call.

It has capabilities in bwrap's user namespace, which it uses to give each child its own
namespaces, mounts and limits. It runs only the standard library and this package and never sees
arguments, which travel on each call's own socket. While idle it preloads the modules that tools
use most, one at a time.

    host → server   {"op": "spawn", "id", …} with descriptors; {"op": "kill", "id"}
    server → host   {"op": "ready"}, then {"op": "ended", "id", "status", "cpu", "memory"}
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import os
import select
import sys

from toolkiln.runtime import linux, lockdown, tool_process, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_NAMESPACES = linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC
_PRELOADED = (
    "resource", "importlib.util", "toolkiln.runtime.binder",
    "toolkiln.runtime.serialise", "toolkiln.runtime.json_form", "toolkiln.define",
    "toolkiln.runtime.context", "inspect", "datetime",
)  # fmt: skip
_MAX_REQUEST = 65536
_PRELOAD_DELAY = 0.2
"""Seconds to wait for the first call, which must not wait for preloading."""


class ForkServerProcess:
    """Event loop that serves the host's requests and reaps children."""

    def __init__(self, control: wire.Socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._settings = settings
        self._pids: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self._filters: dict[bool, bytes] = {}
        self._user = os.getuid(), os.getgid()
        self._to_preload = list(_PRELOADED)
        self._has_served = False

    def run(self) -> NoReturn:
        """Serve until the host closes the control socket."""
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        _signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        _signal.signal(wire.SIGCHLD, lambda *_: None)
        self._send({"op": "ready"})
        while True:
            waiting: list[Any] = [self._control, wake_reader]
            ready, _, _ = select.select(waiting, [], [], self._timeout())
            if not ready:
                self._preload_next()
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                self._reap()
            if self._control in ready:
                self._serve()

    def _timeout(self) -> float | None:
        if not self._to_preload:
            return None
        return 0.0 if self._has_served else _PRELOAD_DELAY

    def _serve(self) -> None:
        data, descriptors = wire.receive_descriptors(self._control, _MAX_REQUEST, 16)
        if not data:
            os._exit(0)
        request = wire.decode(data.decode())
        if request["op"] == "kill":
            if pid := self._pids.get(request["id"]):
                os.kill(pid, wire.SIGKILL)
            return
        try:
            self._spawn(request, descriptors)
            self._has_served = True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _spawn(self, request: dict[str, Any], descriptors: list[int]) -> None:
        flags = _NAMESPACES | (linux.CLONE_NEWNET if request["network"] else 0)
        seccomp_filter = self._filter(request["network"])
        try:
            pid = linux.clone(flags)
        except OSError as error:
            self._send_ended(request["id"], -1, 0.0, 0, str(error))
            return
        if pid == 0:
            try:
                self._child(request, descriptors, seccomp_filter)
            except BaseException as error:  # no tool code has run: report and exit
                os.write(2, f"toolkiln: cannot set up the sandbox: {error}\n".encode())
            finally:
                os._exit(wire.SETUP_FAILED)
        self._pids[request["id"]] = pid
        self._ids[pid] = request["id"]

    def _child(
        self, request: dict[str, Any], descriptors: list[int], seccomp_filter: bytes
    ) -> NoReturn:
        limits = request["limits"]
        lockdown.take_descriptors(descriptors)
        lockdown.enter_session()
        lockdown.map_user(*self._user)
        lockdown.mount_all(request["mounts"], disk=limits["disk"], files=limits["files"])
        if request["network"]:
            lockdown.mount_hosts(request["hosts"])
            linux.loopback_up()
            lockdown.send_listeners(request["endpoints"])
        os.chdir("/tmp")  # noqa: S108
        lockdown.set_limits(limits)
        lockdown.drop_privileges(
            seccomp_filter,
            network=request["network"],
            read=(self._settings["prefix"],),
            write=[target for _, target, writable in request["mounts"] if writable],
        )
        lockdown.verify()
        tool_process.serve(has_pid_namespace=True, preloaded=not self._to_preload)

    def _filter(self, network: bool) -> bytes:
        if network not in self._filters:
            self._filters[network] = lockdown.seccomp_filter(network=network)
        return self._filters[network]

    def _reap(self) -> None:
        while self._ids:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            number = self._ids.pop(pid, None)
            if number is not None:
                del self._pids[number]
                cpu = usage.ru_utime + usage.ru_stime
                self._send_ended(number, status, cpu, usage.ru_maxrss * 1024)

    def _send_ended(self, number: int, status: int, cpu: float, memory: int, why: str = "") -> None:
        frame = {"op": "ended", "id": number, "status": status, "cpu": round(cpu, 4)}
        self._send({**frame, "memory": memory, "why": why})

    def _send(self, frame: dict[str, Any]) -> None:
        try:
            self._control.send(wire.encode(frame).encode())
        except OSError:
            os._exit(0)

    def _preload_next(self) -> None:
        try:
            __import__(self._to_preload.pop(0))
        except ImportError:
            pass  # other Python versions may lack it
        if not self._to_preload:
            gc.collect()
            gc.freeze()  # keeps garbage collection in children from copying these pages


def main() -> NoReturn:
    """Run the program; its argument is JSON with `control`, `groups` and `prefix`."""
    settings = wire.decode(sys.argv[1])
    for group in settings["groups"]:
        os.write(group, b"0")
        os.close(group)
    tool_process.open_output()
    ForkServerProcess(wire.Socket(fileno=settings["control"]), settings).run()
