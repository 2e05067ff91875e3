"""A sandbox for one worker: started by bwrap in mode B, alone in mode C.

In mode B bwrap has made the namespaces and mounts and dropped the capabilities; what it
cannot do, limits, Landlock and seccomp, follows here. In mode C there is nothing around
it: this process stays outside as a guardian that counts and ends every descendant of the
worker, and the worker gets no sockets at all. Mode none has the guardian and nothing else.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys

from toolkiln.runtime import linux, lockdown, wire, worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_SETUP_FAILED = 119
_TOO_MANY = 118
_MEANWHILE = 512
"""Processes that the same user may start elsewhere before the kernel refuses ours."""
_COUNTED_EVERY = 20
"""Milliseconds."""


def main() -> NoReturn:
    """The program: its argument says what to lock down."""
    settings = wire.decode(sys.argv[1])
    try:
        lockdown.take_descriptors(settings["descriptors"])
        worker.open_output()
        if settings["mode"] == "B":
            linux.set_child_subreaper()  # what a call leaves comes to the worker
        else:
            _guard(settings["limits"]["processes"] if settings["mode"] == "C" else None)
        os.chdir(settings["workdir"])
        os.environ["TMPDIR"] = os.environ["HOME"] = settings["workdir"]
        if settings["mode"] != "none":
            _lock(settings)
    except BaseException as error:  # nothing of the tool has run: say why, and end
        os.write(2, f"toolkiln: the sandbox cannot be set up: {error}\n".encode())
        os._exit(_SETUP_FAILED)
    worker.serve(alone=settings["mode"] == "B")


def _lock(settings: dict[str, Any]) -> None:
    bare = settings["mode"] == "C"
    if settings["network"]:
        endpoints = settings["endpoints"]
        if any(port < lockdown.FIRST_FREE_PORT for _, port in endpoints):
            lockdown.enter_network()
        lockdown.hand_over_listeners(endpoints)
    limits = settings["limits"]
    if bare:
        others = settings["processes_of_user"] + _MEANWHILE
        limits = {**limits, "processes": limits["processes"] + others}
    _limit(limits)
    lockdown.give_up_rights(
        lockdown.program(network=settings["network"], among_others=bare),
        network=settings["network"],
        read=settings["read"],
        write=settings["write"],
        only_landlock=bare,
    )
    lockdown.verify(bounding=not bare)


def _limit(limits: dict[str, int]) -> None:
    """All limits; the soft one of processor time comes first, and says by its signal what it is.

    In mode A the server sees what was used; bwrap does not pass that on.
    """
    import resource

    lockdown.set_limits({**limits, "cpu": limits["cpu"] + 1})
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (min(limits["cpu"], hard), hard))


def _guard(processes: int | None) -> None:
    """Fork; the parent waits for the child, and leaves no descendant of it alive.

    It counts `processes` itself: the kernel's own count is of all that a user runs, so that
    other calls would use up the bound of this one.
    """
    linux.set_child_subreaper()
    pid = os.fork()
    if pid == 0:
        lockdown.enter_session()
        return
    os.close(lockdown.CALL)
    for number in (wire.SIGTERM, wire.SIGINT):
        _signal.signal(number, lambda *_: os.kill(pid, wire.SIGKILL))
    linux.die_with_parent(wire.SIGTERM)
    too_many = _has_too_many(pid, processes) if processes else False
    if too_many:
        os.kill(pid, wire.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # Whoever asks again is too late, and must not keep us from this.
    for number in (wire.SIGTERM, wire.SIGINT):
        _signal.signal(number, _signal.SIG_IGN)
    try:
        os.killpg(pid, wire.SIGKILL)  # all at once, however fast they fork
    except ProcessLookupError:  # it ended before it had a session of its own
        pass
    _, status = os.waitpid(pid, 0)
    _end_descendants()
    if too_many:
        os._exit(_TOO_MANY)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != wire.SIGKILL:  # which nobody handles
            _signal.signal(os.WTERMSIG(status), _signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _has_too_many(worker: int, bound: int) -> bool:
    """Wait until the worker ends, or until there are more processes and threads than that."""
    import select

    ended = select.poll()
    ended.register(os.pidfd_open(worker), select.POLLIN)
    while not ended.poll(_COUNTED_EVERY):
        if _tasks_below(os.getpid(), bound) > bound:
            return True
    return False


def _tasks_below(pid: int, bound: int) -> int:
    """Processes and threads that descend from a process; no more are counted than it takes."""
    count, known = -1, [str(pid)]  # its one thread does not count
    while known and count <= bound:
        folder = f"/proc/{known.pop()}/task"
        try:
            for task in os.listdir(folder):
                count += 1
                with open(f"{folder}/{task}/children", encoding="ascii") as listed:
                    known += listed.read().split()
        except OSError:  # it has just ended
            pass
    return count


def _end_descendants() -> None:
    """Orphans come to the subreaper; kill children until there are none."""
    children = f"/proc/self/task/{os.getpid()}/children"
    while True:
        with open(children, encoding="ascii") as listed:
            for pid in listed.read().split():
                os.kill(int(pid), wire.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
