"""Program that sets up a sandbox for a single worker, in modes B and C.

In mode B bwrap has created the namespaces and mounts and dropped the capabilities; this program
adds what bwrap cannot: limits, Landlock and seccomp. In mode C there are no namespaces: this
process stays outside as a supervisor that counts and kills the worker's descendants, and the
worker may open no sockets. Mode none has only the supervisor.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys

from toolkiln.runtime import linux, lockdown, tool_process, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_NPROC_MARGIN = 512
"""Processes that the same user may start elsewhere before RLIMIT_NPROC affects this call."""
_COUNT_INTERVAL_MS = 20


def main() -> NoReturn:
    """Run the program; its argument is JSON."""
    settings = wire.decode(sys.argv[1])
    try:
        lockdown.take_descriptors(settings["descriptors"])
        tool_process.open_output()
        if settings["mode"] == "B":
            linux.set_child_subreaper()  # the worker reaps what a call leaves behind
        else:
            _supervise(settings["limits"]["processes"] if settings["mode"] == "C" else None)
        os.chdir(settings["workdir"])
        os.environ["TMPDIR"] = os.environ["HOME"] = settings["workdir"]
        if settings["mode"] != "none":
            _lock_down(settings)
    except BaseException as error:  # no tool code has run: report and exit
        os.write(2, f"toolkiln: cannot set up the sandbox: {error}\n".encode())
        os._exit(wire.SETUP_FAILED)
    tool_process.serve(has_pid_namespace=settings["mode"] == "B")


def _lock_down(settings: dict[str, Any]) -> None:
    is_mode_c = settings["mode"] == "C"
    if settings["network"]:
        endpoints = settings["endpoints"]
        if any(port < lockdown.FIRST_FREE_PORT for _, port in endpoints):
            lockdown.enter_network()
        lockdown.send_listeners(endpoints)
    limits = settings["limits"]
    if is_mode_c:
        others = settings["processes_of_user"] + _NPROC_MARGIN
        limits = {**limits, "processes": limits["processes"] + others}
    _set_limits(limits)
    lockdown.drop_privileges(
        lockdown.seccomp_filter(network=settings["network"], shares_host=is_mode_c),
        network=settings["network"],
        read=settings["read"],
        write=settings["write"],
        only_landlock=is_mode_c,
    )
    lockdown.verify(bounding=not is_mode_c)


def _set_limits(limits: dict[str, int]) -> None:
    """Set all limits, with a soft CPU limit whose SIGXCPU identifies the cause.

    In mode A the fork server measures the CPU time; bwrap does not report it.
    """
    import resource

    lockdown.set_limits({**limits, "cpu": limits["cpu"] + 1})
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (min(limits["cpu"], hard), hard))


def _supervise(max_processes: int | None) -> None:
    """Fork; return in the child. The parent waits for it and kills all its descendants.

    The parent counts processes itself: the kernel counts all processes of the user, including
    those of other calls.
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
    too_many = _has_too_many(pid, max_processes) if max_processes else False
    if too_many:
        os.kill(pid, wire.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # Another SIGTERM must not interrupt the cleanup.
    for number in (wire.SIGTERM, wire.SIGINT):
        _signal.signal(number, _signal.SIG_IGN)
    try:
        os.killpg(pid, wire.SIGKILL)  # atomic, however fast they fork
    except ProcessLookupError:  # it ended before it called setsid
        pass
    _, status = os.waitpid(pid, 0)
    _kill_descendants()
    if too_many:
        os._exit(wire.TOO_MANY_PROCESSES)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != wire.SIGKILL:  # SIGKILL cannot have a handler
            _signal.signal(os.WTERMSIG(status), _signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _has_too_many(worker: int, limit: int) -> bool:
    """Wait until the worker ends (False), or until it has too many processes and threads."""
    import select

    ended = select.poll()
    ended.register(os.pidfd_open(worker), select.POLLIN)
    while not ended.poll(_COUNT_INTERVAL_MS):
        if _count_descendants(os.getpid(), limit) > limit:
            return True
    return False


def _count_descendants(pid: int, limit: int) -> int:
    """Count the descendant processes and threads of a process; stop above the limit."""
    count, pids = -1, [str(pid)]  # excludes the process's own thread
    while pids and count <= limit:
        folder = f"/proc/{pids.pop()}/task"
        try:
            for task in os.listdir(folder):
                count += 1
                with open(f"{folder}/{task}/children", encoding="ascii") as file:
                    pids += file.read().split()
        except OSError:  # it has just ended
            pass
    return count


def _kill_descendants() -> None:
    """Kill children until none are left; this process, a subreaper, inherits orphans."""
    children = f"/proc/self/task/{os.getpid()}/children"
    while True:
        with open(children, encoding="ascii") as file:
            for pid in file.read().split():
                os.kill(int(pid), wire.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
