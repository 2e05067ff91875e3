"""A process without rights that runs a tool: once, or forking for each call.

It speaks on descriptor 3. A single call gets the frames `load` and `call` there. A warm
worker gets `load`, answers `loaded`, and then receives, for each call, the descriptors of
that call's own socket and output. If the import left nothing behind that calls would
share (threads, files), the worker forks for each call and clears up after it, else it
serves one call itself. It has a namespace of its own: what it kills is all there is.
"""

from __future__ import annotations

import os
import sys
import time

from toolkiln.runtime import running, wire
from toolkiln.runtime.channel import Channel
from toolkiln.runtime.lockdown import CALL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from toolkiln.runtime.channel import Frame
    from toolkiln.runtime.loading import Entry

_FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108
_GONE = 120
_SLOW = 0.1
"""Seconds that no module of the server's own takes."""


def serve(*, alone: bool, settled: bool = True) -> NoReturn:
    """Serve what the host asks for on the call's descriptor; does not return.

    `alone` it may kill every process that it sees: they are all the tool's.
    Not `settled` it tells no import time: the server itself had not imported everything.
    """
    _forget_randomness()
    channel = Channel(CALL)
    try:
        frame = channel.receive()
    except (EOFError, ValueError):
        os._exit(_GONE)
    if not frame.get("warm"):
        channel.send({"op": "begun"})  # from here on an end is the tool's, whatever its status
    if frame.get("environment"):
        os.environ.update(frame["environment"])
    watch = _Watch()
    try:
        entry = running.load(frame)
    except BaseException as error:  # the tool's own code, at import: this is the answer
        running.finish(channel, {**running.failure(error, frame["file"]), "loading": True})
    seconds = watch.seconds()
    if frame.get("warm"):
        _serve_warm(channel, entry, frame, seconds, alone=alone)
    channel.send({"op": "loaded", "seconds": seconds if settled or seconds > _SLOW else 0.0})
    _serve_call(channel, entry, frame["file"])


class _Watch:
    """How long something takes, by itself: not how long others kept it from a processor."""

    def __init__(self) -> None:
        self._wall, self._worked, self._waits = _clocks()

    def seconds(self) -> float:
        """Since it was made: the time worked, or all of it if something was waited for."""
        wall, worked, waits = _clocks()
        return wall - self._wall if waits != self._waits else worked - self._worked


def _clocks() -> tuple[float, float, int]:
    import resource

    waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    return time.perf_counter(), time.thread_time(), waits


def _serve_call(channel: Channel, entry: Entry, file: str) -> NoReturn:
    try:
        call = channel.receive()
    except (EOFError, ValueError):
        os._exit(_GONE)
    running.finish(channel, running.answer(entry, call, channel, file))
    raise AssertionError("unreachable")


def _serve_warm(
    control: Channel, entry: Entry, frame: Frame, seconds: float, *, alone: bool
) -> NoReturn:
    forks = frame["warm"] == "template" and alone and not _left_something()
    control.send({"op": "loaded", "seconds": seconds, "forks": forks, "memory": _memory()})
    while True:
        try:
            descriptors = control.receive_descriptors(3)
        except (EOFError, OSError):
            os._exit(_GONE)
        pid = os.fork() if forks else 0
        if pid == 0:
            _take(descriptors)
            _forget_randomness()
            _serve_call(Channel(CALL), entry, frame["file"])
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, usage = os.wait4(pid, 0)
        _clear_up()
        cpu = round(usage.ru_utime + usage.ru_stime, 4)
        control.send({"op": "ended", "status": status, "cpu": cpu, "memory": usage.ru_maxrss})


def _take(descriptors: list[int]) -> None:
    """Put a call's own socket and output in the place of the worker's."""
    call, out, err = descriptors
    for descriptor, number in ((out, 1), (err, 2), (call, CALL)):
        os.dup2(descriptor, number, inheritable=number != CALL)
        os.close(descriptor)


def open_output() -> None:
    """Let output leave line by line, whatever characters it has; once for each program."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115 - it stays open for as long as the process lives
            number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _forget_randomness() -> None:
    """Give generators that were seeded before the fork a seed of their own."""
    for name in ("random", "numpy.random"):
        module: Any = sys.modules.get(name)
        if module is not None:
            module.seed()


def _left_something() -> bool:
    """Whether importing the tool left threads, processes or files behind."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return True
    return any(next(os.scandir(folder), None) for folder in _FOLDERS) or _has_children()


def _memory() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", "rb") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _clear_up() -> None:
    """End and forget everything that a call left; a worker that cannot ends itself."""
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
        os._exit(_GONE)


def _empty(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                _empty(entry.path)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
