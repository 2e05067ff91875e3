"""Linux system calls: thin, typed wrappers over libc that raise OSError on failure.

No policy here: `lockdown` chooses the namespaces, limits and capabilities of a call, `landlock`
and `seccomp` contain the rules of these two mechanisms. Imports only `ctypes` and other cheap
modules, because every sandbox starts with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 0x2
CLONE_NEWNS, CLONE_NEWIPC = 0x20000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 28, 1 << 29, 1 << 30

_X86 = os.uname().machine == "x86_64"
_SYS_CLONE, _SYS_GETTID, _SYS_SECCOMP = (56, 186, 317) if _X86 else (220, 178, 277)
_SIGCHLD = 17
_CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x200000, 0x1000000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 4, 23, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_GET_TID_ADDRESS, _PR_CAP_AMBIENT = 36, 38, 40, 47
_PR_GET_SECCOMP, _PR_GET_NO_NEW_PRIVS = 21, 39
_SECCOMP_MODE_FILTER, _CAP_SYS_ADMIN = 2, 21
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_AF_INET, _SOCK_DGRAM_CLOEXEC = 2, 0o2000002
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_libc = ctypes.CDLL(None, use_errno=True)
# Keeps the GIL during `clone`: the child could not reacquire it.
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)
for _library in (_libc, _libc_with_gil):
    _library.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]
_libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]


def syscall(what: str, number: int, *arguments: Any) -> int:
    """Make a system call that libc does not wrap; `what` names it in the error."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_word, arguments)), what)


def clone(flags: int) -> int:
    """Fork into new namespaces; return the child's pid in the parent and 0 in the child.

    Like `os.fork` it updates the interpreter's state and libc's cached thread id, but it runs no
    `pthread_atfork` handlers: call it only from a single-threaded process.
    """
    word, address = ctypes.c_long, _thread_id_address()
    if address:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    # The architectures differ in the order of the last two arguments: child tid, TLS.
    last = (word(address), word(0)) if _X86 else (word(0), word(address))
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc_with_gil.syscall(
        word(_SYS_CLONE), word(flags | _SIGCHLD), word(0), word(0), *last
    )
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    # Read errno first: the fork hooks may call libc too.
    code = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _checked(pid, "clone", code)


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount, bind or remount: mount(2)."""
    result = _libc.mount(_text(source), _text(target), _text(kind), flags, _text(data))
    _checked(result, f"mount {target}")


def umount2(target: str, flags: int = 0) -> None:
    """Unmount a path: umount2(2)."""
    _checked(_libc.umount2(_text(target), ctypes.c_int(flags)), f"umount {target}")


def set_no_new_privs() -> None:
    """Prevent execve from granting privileges through setuid bits or file capabilities."""
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def set_not_dumpable() -> None:
    """Deny other processes of the same user access to this one's memory and descriptors.

    Forked children inherit the flag; execve resets it.
    """
    _prctl("not dumpable", _PR_SET_DUMPABLE, 0)


def die_with_parent(signal: int) -> None:
    """Receive a signal when the thread that forked this process ends.

    Changing the user resets it. If the parent may already be dead, check `os.getppid()`
    afterwards.
    """
    _prctl("die with parent", _PR_SET_PDEATHSIG, signal)


def set_child_subreaper() -> None:
    """Become the parent of orphaned descendants."""
    _prctl("child subreaper", _PR_SET_CHILD_SUBREAPER, 1)


def drop_bounding_set() -> None:
    """Drop every capability from the bounding set."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() == errno.EINVAL:
                return  # beyond the kernel's last capability
            _checked(-1, f"drop capability {capability} from the bounding set")


def is_confined(*, bounding: bool) -> bool:
    """Return whether the kernel reports no_new_privs, a seccomp filter and no capabilities.

    With `bounding`, CAP_SYS_ADMIN must also be absent from the bounding set.
    """
    prctl = _libc.prctl
    return (
        prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
        and prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) == _SECCOMP_MODE_FILTER
        and capabilities() == 0
        and not (bounding and prctl(_PR_CAPBSET_READ, _CAP_SYS_ADMIN, 0, 0, 0))
    )


def clear_ambient() -> None:
    """Drop all ambient capabilities."""
    _prctl("clear ambient capabilities", _PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)


def drop_capabilities() -> None:
    """Drop all effective, permitted and inheritable capabilities of this thread."""
    _checked(_libc.capset(_capability_header(), bytes(24)), "drop capabilities")


def capabilities() -> int:
    """Return the effective capabilities of this thread as a bit mask."""
    data = ctypes.create_string_buffer(24)
    _checked(_libc.capget(_capability_header(), data), "read capabilities")
    low, _, _, high, _, _ = struct.unpack("=6I", data.raw)
    return int(high << 32 | low)


def apply_seccomp(program: bytes) -> None:
    """Install a seccomp filter irrevocably on all threads of this process and its children.

    Call `set_no_new_privs` first, unless the process has CAP_SYS_ADMIN.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: number of instructions, padding, address.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    thread = syscall(
        "seccomp", _SYS_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, header
    )
    if thread:
        raise OSError(f"seccomp: thread {thread} has a different filter")


def loopback_up() -> None:
    """Bring up the loopback interface of this network namespace."""
    descriptor = _checked(_libc.socket(_AF_INET, _SOCK_DGRAM_CLOEXEC, 0), "loopback: socket")
    try:
        request = ctypes.create_string_buffer(struct.pack("=16sH22x", b"lo", 0), 40)
        _checked(_libc.ioctl(descriptor, _SIOCGIFFLAGS, request), "loopback: read flags")
        (flags,) = struct.unpack_from("=H", request, 16)
        struct.pack_into("=H", request, 16, flags | _IFF_UP)
        _checked(_libc.ioctl(descriptor, _SIOCSIFFLAGS, request), "loopback: up")
    finally:
        os.close(descriptor)


def set_limits(limits: Mapping[str, int]) -> None:
    """Set soft and hard resource limits by name, without the prefix `RLIMIT_`.

    A hard limit that is already lower stays: an unprivileged process cannot raise it.
    """
    import resource

    for name, value in limits.items():
        # The kernel reads a negative number as unlimited.
        if not 0 <= value < 1 << 63:
            raise ValueError(f"limit {name} to {value}: out of range")
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(number, (limit, limit))
        except (OSError, ValueError) as error:
            raise OSError(f"limit {name} to {limit}: {error}") from error


def _prctl(what: str, option: int, value: int) -> None:
    _checked(_libc.prctl(option, value, 0, 0, 0), what)


def _thread_id_address() -> int:
    """Return the address where libc caches this thread's id, or 0 if unknown.

    glibc's recursive locks read the id there. A stale id of the parent could equal another
    thread's id in the new PID namespace, where numbering restarts at 1, and two threads could
    own one lock.
    """
    address = ctypes.c_ulong()
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(address), 0, 0, 0) or not address.value:
        return 0
    # musl registers the address of a lock instead, which must not be overwritten.
    cached = ctypes.c_int.from_address(address.value).value
    return address.value if cached == syscall("gettid", _SYS_GETTID) else 0


def _capability_header() -> bytes:
    return struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)


def _word(argument: Any) -> Any:
    """Widen an integer to a machine word: ctypes would pass only 32 bits."""
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _text(text: str | None) -> bytes | None:
    if text is None:
        return None
    # libc would silently truncate at a NUL.
    if "\0" in text:
        raise ValueError(f"NUL in {text!r}")
    return os.fsencode(text)


def _checked(result: int, what: str, code: int | None = None) -> int:
    if result < 0:
        code = ctypes.get_errno() if code is None else code
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
