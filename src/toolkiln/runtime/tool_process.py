"""Unprivileged process that runs a tool: once, or forking for each call.

It communicates on descriptor 3. A process for a single call receives the frames `load` and
`call`. A warm worker receives `load`, replies `loaded`, and then receives the socket and output
descriptors of each call. If the import left no threads or files that calls would share, the
worker forks for each call and cleans up after it; otherwise it serves one call itself.
"""

from __future__ import annotations

import os
import sys
import time

from toolkiln.runtime import call as calls
from toolkiln.runtime import wire
from toolkiln.runtime.lockdown import CALL
from toolkiln.runtime.wire import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from toolkiln.runtime.loader import EntryPoint
    from toolkiln.runtime.wire import Frame

_FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108
_HOST_GONE = 120
_SLOW = 0.1
"""Seconds that importing the preloaded modules never takes."""


def serve(*, has_pid_namespace: bool, preloaded: bool = True) -> NoReturn:
    """Serve the host's requests on the call's descriptor; does not return.

    With a PID namespace it may kill every process that it sees: they are all the tool's. Unless
    `preloaded`, short import times are reported as 0, because they include modules that the
    fork server had not preloaded yet.
    """
    _reseed()
    channel = Channel(CALL)
    try:
        frame = channel.receive()
    except (EOFError, ValueError):
        os._exit(_HOST_GONE)
    if not frame.get("warm"):
        channel.send({"op": "begun"})  # any exit status is the tool's from here on
    if frame.get("environment"):
        os.environ.update(frame["environment"])
    stopwatch = _Stopwatch()
    try:
        entry = calls.load(frame)
    except BaseException as error:  # the tool's import failed: that is the result
        calls.finish(channel, {**calls.failure(error, frame["file"]), "loading": True})
    seconds = stopwatch.seconds()
    if frame.get("warm"):
        _serve_warm(channel, entry, frame, seconds, has_pid_namespace=has_pid_namespace)
    channel.send({"op": "loaded", "seconds": seconds if preloaded or seconds > _SLOW else 0.0})
    _serve_call(channel, entry, frame["file"])


class _Stopwatch:
    """Measures how long code takes, without the time other processes kept it off the CPU."""

    def __init__(self) -> None:
        self._wall, self._cpu, self._waits = _clocks()

    def seconds(self) -> float:
        """Return the CPU time since creation, or the wall time if the code blocked."""
        wall, cpu, waits = _clocks()
        return wall - self._wall if waits != self._waits else cpu - self._cpu


def _clocks() -> tuple[float, float, int]:
    import resource

    waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    return time.perf_counter(), time.thread_time(), waits


def _serve_call(channel: Channel, entry: EntryPoint, file: str) -> NoReturn:
    try:
        call = channel.receive()
    except (EOFError, ValueError):
        os._exit(_HOST_GONE)
    calls.finish(channel, calls.run(entry, call, channel, file))
    raise AssertionError("unreachable")


def _serve_warm(
    control: Channel, entry: EntryPoint, frame: Frame, seconds: float, *, has_pid_namespace: bool
) -> NoReturn:
    forks = frame["warm"] == "template" and has_pid_namespace and not _has_side_effects()
    control.send({"op": "loaded", "seconds": seconds, "forks": forks, "memory": _memory()})
    while True:
        try:
            descriptors = control.receive_descriptors(3)
        except (EOFError, OSError):
            os._exit(_HOST_GONE)
        pid = os.fork() if forks else 0
        if pid == 0:
            _install(descriptors)
            _reseed()
            _serve_call(Channel(CALL), entry, frame["file"])
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, usage = os.wait4(pid, 0)
        _clean_up()
        cpu = round(usage.ru_utime + usage.ru_stime, 4)
        control.send({"op": "ended", "status": status, "cpu": cpu, "memory": usage.ru_maxrss})


def _install(descriptors: list[int]) -> None:
    call, out, err = descriptors
    for descriptor, number in ((out, 1), (err, 2), (call, CALL)):
        os.dup2(descriptor, number, inheritable=number != CALL)
        os.close(descriptor)


def open_output() -> None:
    """Make stdout and stderr line-buffered and able to encode any text."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115 - stays open
            number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _reseed() -> None:
    """Reseed random generators that were seeded before the fork."""
    for name in ("random", "numpy.random"):
        module: Any = sys.modules.get(name)
        if module is not None:
            module.seed()


def _has_side_effects() -> bool:
    """Return whether importing the tool left threads, processes or files behind."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return True
    return any(next(os.scandir(folder), None) for folder in _FOLDERS) or _has_children()


def _memory() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _clean_up() -> None:
    """Kill the processes and delete the files that a call left; exit if that fails."""
    try:
        os.kill(-1, wire.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
    try:
        for folder in _FOLDERS:
            _empty(folder)
    except (OSError, RecursionError):
        os._exit(_HOST_GONE)


def _empty(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                _empty(entry.path)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
