"""Lockdown of a process before it runs a tool: mounts, limits, privileges.

Every step raises on failure, and `verify` finally checks what the kernel reports, so a tool
never runs with a partial sandbox. The mechanisms are in `linux`, `landlock` and `seccomp`. The
callers are `fork_server` (mode A, which creates the namespaces here) and `one_shot` (mode B,
where bwrap created them, and mode C, which has none).
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
"""The descriptor of the call's socket."""

_INSIDE = 1000
"""Uid and gid inside: not 0, which would own the undumpable template's /proc entries."""
_READ_ONLY = ("/usr", "/etc", "/proc", "/dev", "/toolkiln", "/tool", "/env", "/workspace")
_WRITABLE = ("/tmp", "/dev/shm", "/dev/null")  # noqa: S108
_UNIX, _INET, _INET6 = 1, 2, 10
FIRST_FREE_PORT = 1024
"""Lower ports require a capability in the network namespace."""


def take_descriptors(descriptors: Sequence[int]) -> None:
    """Move the call's socket to 3 and its output to 1 and 2; close all other descriptors.

    Descriptors after the first three are `cgroup.procs` files; the process joins these cgroups.
    """
    call, out, err, *groups = [_duplicate_high(descriptor) for descriptor in descriptors]
    for group in groups:
        os.write(group, b"0")
    null = _duplicate_high(os.open("/dev/null", os.O_RDONLY))
    for number, descriptor in enumerate((null, out, err, call)):
        os.dup2(descriptor, number, inheritable=number < CALL)
    os.closerange(CALL + 1, 65536)


def enter_session() -> None:
    """Start a session, die with the parent, and reset signal handlers."""
    linux.die_with_parent(_signal.SIGKILL)
    os.setsid()
    _signal.set_wakeup_fd(-1)
    # Process 1 ignores signals that have no handler: its children cannot disturb a worker.
    for number in (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)


def map_user(uid: int, gid: int) -> None:
    """Map this user into the new user namespace as an ordinary user.

    RLIMIT_NPROC counts per user and namespace, so each call has its own process count.
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
    """Mount the call's tool, environment and workspace, and empty /tmp and /dev/shm."""
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    for source, target, writable in binds:
        linux.mount(source, target, None, linux.MS_BIND)
        read_only = 0 if writable else linux.MS_RDONLY
        flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NOSUID | linux.MS_NODEV
        linux.mount(None, target, None, flags | read_only)
    private = linux.MS_NOSUID | linux.MS_NODEV
    size = f"size={disk},nr_inodes={files},mode=700"
    linux.mount("tmpfs", "/tmp", "tmpfs", private, size)  # noqa: S108
    linux.mount("tmpfs", "/dev/shm", "tmpfs", private, size)  # noqa: S108
    # Hides the sources and environments of other tools and the files of other sessions.
    linux.mount("tmpfs", "/kiln", "tmpfs", private | linux.MS_RDONLY, "size=4k,nr_inodes=2")
    linux.mount("proc", "/proc", "proc", private | linux.MS_NOEXEC)


def mount_hosts(text: str) -> None:
    """Replace `/etc/hosts` in the new mount namespace."""
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
    """Enter a new network namespace in which this process may bind every port.

    bwrap's network namespace belongs to a user namespace in which this process has no
    capabilities. A child tries first: if the system forbids it, this process stays in bwrap's
    namespace, and `send_listeners` skips ports below 1024.
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


def send_listeners(endpoints: Sequence[Sequence[Any]]) -> None:
    """Open listeners on this namespace's loopback interface and send them to the host.

    One listener per endpoint (address, port), and one on a free port for the proxy. Ports that
    this process may not bind are skipped. The host accepts; no descriptor stays open here.
    """
    import socket  # only for calls with network access

    listeners = []
    # The proxy comes last, so its port differs from those of the endpoints.
    for address, port in (*endpoints, ("127.0.0.1", 0)):
        listener = socket.socket()
        try:
            listener.bind((address, port))
        except PermissionError:  # below 1024 without the capability
            listener.close()
            continue
        listener.listen(64)
        listeners.append(listener)
    with socket.socket(fileno=os.dup(CALL)) as call:
        socket.send_fds(call, [b"L"], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()


def set_limits(limits: dict[str, Any]) -> None:
    """Set the resource limits of a call, and make it the first victim of the OOM killer."""
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
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(descriptor, b"1000")
    os.close(descriptor)


def drop_privileges(
    seccomp_filter: bytes,
    *,
    network: bool,
    read: Sequence[str],
    write: Sequence[str],
    only_landlock: bool = False,
) -> None:
    """Drop capabilities, then apply no_new_privs, Landlock and seccomp.

    With `only_landlock` no mount namespace hides the host's files, so Landlock is required.
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
    linux.apply_seccomp(seccomp_filter)


def seccomp_filter(*, network: bool, shares_host: bool = False) -> bytes:
    """Build the seccomp filter of a call.

    With `shares_host` the process sees the host's processes and files, and must not touch them.
    """
    deny: list[str] = []
    if shares_host:
        # Landlock blocks signals from ABI 6 on, and changes of attributes in no version.
        deny = [*seccomp.ATTRIBUTES, *(seccomp.SIGNALS if landlock.abi() < 6 else ())]
    return seccomp.filter_program(
        socket_domains=(_UNIX, _INET, _INET6) if network else (),
        allow_memfd=False,  # such memory belongs to no process and escapes every limit
        deny=deny,
    )


def verify(*, bounding: bool = True) -> None:
    """Raise OSError if the kernel reports privileges that `drop_privileges` should have removed.

    `bounding` is false in mode C, where the bounding set cannot be emptied.
    """
    if not linux.is_confined(bounding=bounding):
        raise OSError("the process still has privileges")


def _duplicate_high(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, 200)
