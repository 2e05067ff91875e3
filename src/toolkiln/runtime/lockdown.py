"""From a fresh process to one that may run a tool: mounts, limits, no rights left.

Every step raises if it fails, and `verify` looks at what the kernel says in the end, so
that a tool never runs with less around it than was asked for. Each mechanism lives in a
module of its own: `linux`, `landlock`, `seccomp`. Who calls is `server` (mode A, where
namespaces are made here) or `once` (modes B and C, where they are made, or not, outside).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in slow enumerations
import fcntl
import os

from toolkiln.runtime import landlock, linux, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

CALL = 3
"""The descriptor of the call's socket inside."""

_INSIDE = 1000
"""The user inside: not 0, so that /proc of the template, not dumpable, belongs to nobody here."""
_READ_ONLY = ("/usr", "/etc", "/proc", "/dev", "/toolkiln", "/tool", "/env", "/workspace")
_WRITABLE = ("/tmp", "/dev/shm", "/dev/null")  # noqa: S108
_UNIX, _INET, _INET6 = 1, 2, 10
FIRST_FREE_PORT = 1024
"""Ports below need a capability in the network namespace."""


def take_descriptors(descriptors: Sequence[int]) -> None:
    """Make the call's socket 3, its output 1 and 2, and close everything else.

    Those after the first three are control files of cgroups, which are entered.
    """
    call, out, err, *groups = [_duplicate_high(descriptor) for descriptor in descriptors]
    for group in groups:
        os.write(group, b"0")
    nothing = _duplicate_high(os.open("/dev/null", os.O_RDONLY))
    for number, descriptor in enumerate((nothing, out, err, call)):
        os.dup2(descriptor, number, inheritable=number < CALL)
    os.closerange(CALL + 1, 65536)


def enter_session() -> None:
    """Leave the launcher's session, die with it, forget its signal handlers."""
    linux.die_with_parent(_signal.SIGKILL)
    os.setsid()
    _signal.set_wakeup_fd(-1)
    # Also so that no signal of its children reaches a worker that is process 1.
    for number in (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)


def map_user(uid: int, gid: int) -> None:
    """Become an ordinary user of the user namespace that was just made.

    A namespace for each call also counts processes for each call: RLIMIT_NPROC holds for
    a user in a namespace.
    """
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_INSIDE} {uid} 1"),
        ("gid_map", f"{_INSIDE} {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def mount_all(binds: Sequence[tuple[str, str, bool]], *, disk: int, files: int) -> None:
    """The call's own view: its tool, its environment, its own empty work folders."""
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    for source, target, writable in binds:
        linux.mount(source, target, None, linux.MS_BIND)
        locked = 0 if writable else linux.MS_RDONLY
        flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NOSUID | linux.MS_NODEV
        linux.mount(None, target, None, flags | locked)
    private = linux.MS_NOSUID | linux.MS_NODEV
    size = f"size={disk},nr_inodes={files},mode=700"
    linux.mount("tmpfs", "/tmp", "tmpfs", private, size)  # noqa: S108
    linux.mount("tmpfs", "/dev/shm", "tmpfs", private, size)  # noqa: S108
    # Other tools' sources and environments, and other sessions' files, end here.
    linux.mount("tmpfs", "/kiln", "tmpfs", private | linux.MS_RDONLY, "size=4k,nr_inodes=2")
    linux.mount("proc", "/proc", "proc", private | linux.MS_NOEXEC)


def mount_hosts(text: str) -> None:
    """Make `/etc/hosts` this text, in the mount namespace that was just made."""
    private = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", "/kiln", "tmpfs", private, "size=64k,nr_inodes=2")
    file = "/kiln/hosts"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o444)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    linux.mount(file, "/etc/hosts", None, linux.MS_BIND)
    flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY
    linux.mount(None, "/etc/hosts", None, flags | private)
    linux.umount2("/kiln", linux.MNT_DETACH)


def enter_network() -> None:
    """Move to a network namespace of this process's own, where it may bind every port.

    That of bwrap belongs to a user namespace in which this process has no capability. A
    child tries it first: where the machine forbids it, this process stays where it is, and
    `hand_over_listeners` leaves out the ports below 1024.
    """
    pid = os.fork()
    if pid == 0:
        try:
            _new_network()
            linux.drop_bounding_set()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1] == 0:
        _new_network()


def _new_network() -> None:
    user = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
    map_user(*user)
    linux.loopback_up()


def hand_over_listeners(endpoints: Sequence[Sequence[Any]]) -> None:
    """Listen on this network namespace's loopback, and pass the listeners to the host.

    One for each endpoint, an address and a port, and one for the proxy on a free port. A
    port that this process may not bind is left out. No descriptor stays here: only the
    host accepts on them.
    """
    import socket  # calls without a network do not pay for it

    listeners = []
    # The proxy comes last, so that its port is not one of an endpoint.
    for address, port in (*endpoints, ("127.0.0.1", 0)):
        listener = socket.socket()
        try:
            listener.bind((address, port))
        except PermissionError:  # below 1024, and without the capability
            listener.close()
            continue
        listener.listen(64)
        listeners.append(listener)
    with socket.socket(fileno=os.dup(CALL)) as call:
        socket.send_fds(call, [b"L"], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()


def set_limits(limits: dict[str, Any]) -> None:
    """The kernel's own bounds on one process, and on the number of processes."""
    linux.set_limits(
        {
            "AS": limits["memory"],
            "CPU": limits["cpu"],
            "FSIZE": limits["disk"],
            "NPROC": limits["processes"],
            "NOFILE": 256,
            "CORE": 0,
            "MEMLOCK": 65536,
            "MSGQUEUE": 0,
            "STACK": 8 << 20,
            "NICE": 0,
            "RTPRIO": 0,
        }
    )
    # The kernel, when it runs out of memory, takes the call and not the service.
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(descriptor, b"1000")
    os.close(descriptor)


def give_up_rights(
    program: bytes,
    *,
    network: bool,
    read: Sequence[str],
    write: Sequence[str],
    only_landlock: bool = False,
) -> None:
    """Drop what is left: capabilities, new privileges, files by Landlock, calls by seccomp.

    With `only_landlock` nothing else hides the host's files, so that it must be there.
    """
    if linux.capabilities():
        linux.drop_bounding_set()
        linux.clear_ambient()
        linux.drop_capabilities()
    linux.set_no_new_privs()
    linux.set_not_dumpable()
    if only_landlock:
        landlock.restrict(read=read, write=write, network=network)
    elif landlock.abi():
        paths = {"read": (*_READ_ONLY, *read), "write": (*_WRITABLE, *write)}
        landlock.restrict(**paths, network=network)
    linux.apply_seccomp(program)


def program(*, network: bool, among_others: bool = False) -> bytes:
    """The system call filter of a call.

    `among_others` there are processes and files around that it must not touch.
    """
    deny: list[str] = []
    if among_others:
        # Landlock keeps signals inside from version 6 on, and attributes never.
        deny = [*seccomp.ATTRIBUTES, *(seccomp.SIGNALS if landlock.abi() < 6 else ())]
    return seccomp.filter_program(
        socket_domains=(_UNIX, _INET, _INET6) if network else (),
        allow_memfd=False,  # such memory belongs to no process, so that no limit holds for it
        deny=deny,
    )


def verify(*, bounding: bool = True) -> None:
    """Look whether the rights are really gone; in mode C the bounding set cannot be emptied.

    Raises:
        OSError: the kernel says otherwise.
    """
    if not linux.is_confined(bounding=bounding):
        raise OSError("rights are left that should be gone")


def _duplicate_high(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, 200)
