"""Linux as the sandbox needs it: thin, typed wrappers over libc that raise what failed.

Nothing here decides anything: which namespaces, limits and rights a call gets is written
in `lockdown`; `landlock` and `seccomp` hold the rules of these two mechanisms. Loads with
the standard library's `ctypes` alone, because a small fork server starts with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # `typing` is slow to import, and this starts with every sandbox
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 0x2
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x8000000, 1 << 28, 1 << 29, 1 << 30

_X86 = os.uname().machine == "x86_64"
_SYS_CLONE, _SYS_GETTID, _SYS_SECCOMP = (56, 186, 317) if _X86 else (220, 178, 277)
_SIGCHLD = 17
_CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x200000, 0x1000000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 4, 23, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_GET_TID_ADDRESS, _PR_CAP_AMBIENT = 36, 38, 40, 47
_PR_GET_SECCOMP, _PR_GET_NO_NEW_PRIVS = 21, 39
_FILTERED, _CAP_SYS_ADMIN = 2, 21
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_AF_INET, _SOCK_DGRAM_CLOEXEC = 2, 0o2000002
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_libc = ctypes.CDLL(None, use_errno=True)
# The interpreter's lock is kept over `clone`: nobody could give it back in the child.
_libc_locked = ctypes.PyDLL(None, use_errno=True)
for _library in (_libc, _libc_locked):
    _library.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]
_libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]


def syscall(what: str, number: int, *arguments: Any) -> int:
    """Make one system call that libc has no function for; `what` names it in the error."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_word, arguments)), what)


def clone(flags: int) -> int:
    """Fork into new namespaces: the child's pid in the parent, 0 in the child.

    Does for the interpreter and for libc's idea of the thread id what `os.fork` does, but
    runs no `pthread_atfork` handlers: call it from a process that has one thread.
    """
    word, address = ctypes.c_long, _thread_id_address()
    if address:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    # The two architectures differ in the order of the last two: child tid, TLS.
    last = (word(address), word(0)) if _X86 else (word(0), word(address))
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc_locked.syscall(
        word(_SYS_CLONE), word(flags | _SIGCHLD), word(0), word(0), *last
    )
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    # Taken before the hooks of the fork run: these may call libc too.
    code = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _checked(pid, "clone", code)


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount, bind or remount, as mount(2)."""
    result = _libc.mount(_text(source), _text(target), _text(kind), flags, _text(data))
    _checked(result, f"mount {target}")


def umount2(target: str, flags: int = 0) -> None:
    """Unmount what is mounted at a path."""
    _checked(_libc.umount2(_text(target), ctypes.c_int(flags)), f"umount {target}")


def set_no_new_privs() -> None:
    """Make sure that no program started from here gains rights by setuid or file capabilities."""
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def set_not_dumpable() -> None:
    """Close this process's memory and descriptors to others of the same user.

    Children by fork inherit it; a program that is executed starts dumpable again.
    """
    _prctl("not dumpable", _PR_SET_DUMPABLE, 0)


def die_with_parent(signal: int) -> None:
    """Receive a signal when the thread that forked this process ends.

    Changing the user afterwards undoes it. A parent that is gone already is not noticed:
    where that can be, compare `os.getppid()` afterwards.
    """
    _prctl("die with parent", _PR_SET_PDEATHSIG, signal)


def set_child_subreaper() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl("child subreaper", _PR_SET_CHILD_SUBREAPER, 1)


def drop_bounding_set() -> None:
    """Give up, for every program started from here, each capability that the kernel knows."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() == errno.EINVAL:
                return  # the kernel knows none with this number, nor a higher one
            _checked(-1, f"drop capability {capability} from the bounding set")


def is_confined(*, bounding: bool) -> bool:
    """Whether the kernel says that nothing is left: no rights, none to be had, a filter."""
    ask = _libc.prctl
    return (
        ask(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
        and ask(_PR_GET_SECCOMP, 0, 0, 0, 0) == _FILTERED
        and capabilities() == 0
        and not (bounding and ask(_PR_CAPBSET_READ, _CAP_SYS_ADMIN, 0, 0, 0))
    )


def clear_ambient() -> None:
    """Give up all ambient capabilities."""
    _prctl("clear ambient capabilities", _PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)


def drop_capabilities() -> None:
    """Give up all effective, permitted and inheritable capabilities of this thread."""
    _checked(_libc.capset(_capability_header(), bytes(24)), "drop capabilities")


def capabilities() -> int:
    """The effective capabilities of this thread, bit by bit."""
    data = ctypes.create_string_buffer(24)
    _checked(_libc.capget(_capability_header(), data), "read capabilities")
    low, _, _, high, _, _ = struct.unpack("=6I", data.raw)
    return int(high << 32 | low)


def apply_seccomp(program: bytes) -> None:
    """Filter the system calls of all threads of this process, and of its children, for good.

    `set_no_new_privs` must come first, unless the process holds CAP_SYS_ADMIN.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, then, aligned, their address.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    thread = syscall(
        "seccomp", _SYS_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, header
    )
    if thread:
        raise OSError(f"seccomp: thread {thread} has a filter of its own")


def loopback_up() -> None:
    """Switch on the loopback interface of this network namespace."""
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
    """Set resource limits, soft and hard, by their names without `RLIMIT_`.

    One that is already lower stays: a process without rights cannot raise it.
    """
    import resource

    for name, value in limits.items():
        # The kernel reads a negative number as no limit.
        if not 0 <= value < 1 << 63:
            raise ValueError(f"limit {name} to {value}: not a limit")
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        kept = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(number, (kept, kept))
        except (OSError, ValueError) as error:
            raise OSError(f"limit {name} to {kept}: {error}") from error


def _prctl(what: str, option: int, value: int) -> None:
    _checked(_libc.prctl(option, value, 0, 0, 0), what)


def _thread_id_address() -> int:
    """Where libc keeps this thread's id, or 0 if that is not known.

    glibc's recursive locks read it there. Left as the parent's, it could equal the id of
    another thread in a new PID namespace, where counting starts at 1 again, and two threads
    would both hold a lock.
    """
    found = ctypes.c_ulong()
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(found), 0, 0, 0) or not found.value:
        return 0
    # musl registers the address of a lock instead: nothing may be written there.
    kept = ctypes.c_int.from_address(found.value).value
    return found.value if kept == syscall("gettid", _SYS_GETTID) else 0


def _capability_header() -> bytes:
    return struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)


def _word(argument: Any) -> Any:
    """An integer in full width: ctypes would pass the lower half only."""
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _text(text: str | None) -> bytes | None:
    if text is None:
        return None
    # libc would silently stop reading at a NUL.
    if "\0" in text:
        raise ValueError(f"NUL in {text!r}")
    return os.fsencode(text)


def _checked(result: int, what: str, code: int | None = None) -> int:
    if result < 0:
        code = ctypes.get_errno() if code is None else code
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
