"""The system calls that a tool may make, as a classic BPF program for seccomp(2).

What is denied here is what no tool needs and what has been a way out, or a way to hurt
the host or the template that a call was forked from. It is not the only wall: namespaces,
dropped capabilities and `landlock` stand beside it. `linux.apply_seccomp` installs it.

The list names what is denied; everything that the kernel may learn later is denied too.
Arguments are compared by their lower 32 bits, deliberately: each of those examined is an
`int` to the kernel, which ignores the upper half, and so must we (CVE-2019-10063).
"""

from __future__ import annotations

import errno
import os
import struct

TYPE_CHECKING = False  # `typing` is slow to import, and this starts with every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Condition = Callable[["_Code", str], None]
    """Writes a test that goes on if it holds, and to the named mark otherwise."""
    _Refusal = tuple[int, list[_Condition]]
    """An error, and the conditions that must all hold for it."""

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
"""What a program answers: go on; end the process; fail with the error in the lower bits."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""How the kernel names each architecture to a filter."""

NEWEST = 462
"""mseal. What came later is unknown here, and answered as a kernel without it would."""

_GAP, _GAP_END = {"x86_64": 335, "aarch64": 295}, 424
"""The numbers that were left out: the first of them, and the first after them."""

_X32 = 0x40000000

SIGNALS: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
}  # fmt: skip
"""Calls that reach other processes; harmless in a process namespace of one's own."""

ATTRIBUTES: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
"""Calls that change what files are like, which Landlock does not refuse."""

# name: number on x86_64, on aarch64; None where it does not exist
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # memory and descriptors of other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "move_pages": (279, 239), "migrate_pages": (256, 238),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "statmount": (457, 457), "listmount": (458, 458),
    # files past the path: handles, device nodes, foreign notifications
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "mknod": (133, None),
    "mknodat": (259, 33), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # parts of the kernel with a long record of faults
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "vmsplice": (278, 75), "remap_file_pages": (216, 234),
    "modify_ldt": (154, None), "map_shadow_stack": (453, 453), "personality": (135, 92),
    # A further filter cannot weaken this one, but it is BPF code that a tool could choose.
    "seccomp": (317, 277),
    # the machine
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "create_module": (174, None), "get_kernel_syms": (177, None), "query_module": (178, None),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "syslog": (103, 116), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "ioperm": (173, None),
    "iopl": (172, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42), "uselib": (134, None), "ustat": (136, None),
    "sysfs": (139, None), "_sysctl": (156, None), "lsm_get_self_attr": (459, 459),
    "lsm_set_self_attr": (460, 460), "lsm_list_modules": (461, 461),
    # where memory lies; what others have in the page cache
    "mbind": (237, 235), "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450),
    "cachestat": (451, 451),
    # counted for the whole host or for the operator's user, flushed for the whole host
    "io_setup": (206, 0), "io_submit": (209, 2), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "sync": (162, 81), "syncfs": (306, 267),
    # memory that no limit on the address space counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # what is shared in an IPC namespace outlives the call, and calls of one tool share it
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    # flags behind a pointer, where no filter can look; libraries fall back to the old call
    "clone3": (435, 435), "openat2": (437, 437),
    # looked at more closely in `_rules`
    "clone": (56, 220), "socket": (41, 198), "socketpair": (53, 199), "setsockopt": (54, 208),
    "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167), "madvise": (28, 233),
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140),
    "ioprio_set": (251, 30), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "open": (2, None), "openat": (257, 56), "creat": (85, None),
}  # fmt: skip
"""Every system call that the filter names; all others that it knows of are allowed."""

_ABSENT = ("clone3", "openat2")

# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; and CLONE_PARENT, which would
# give the template a child that it did not fork.
_CLONE_FLAGS = 0x7E020000 | 0x8000
_AF_UNIX = 1
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 2, 5, 0xF
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17
_SOL_SOCKET, _SOL_TCP, _TCP_ULP = 1, 6, 31
_ATTACH_FILTER, _ATTACH_BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF = 26, 50, 51, 52
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE, _F_NOTIFY = 8, 10, 15, 1024, 1026
_PR_SET_SECCOMP, _PR_SET_MM, _PR_SCHED_CORE = 22, 35, 62
_MADV_MERGEABLE = 12
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_SELF = 0
_SET_ID_BITS = 0o6000
_MAKES_FILE = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE

_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""Where struct seccomp_data holds the call's number, the architecture, the six arguments."""

_BLOCK = 12
"""Denied numbers stand in blocks that most calls skip: the kernel runs a program that is
applied for every number once, and a call waits for that."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45


def filter_program(
    *,
    arch: str | None = None,
    socket_domains: Sequence[int] = (),
    allow_memfd: bool,
    deny: Sequence[str] = (),
) -> bytes:
    """The program for an architecture, by default this machine's: build it once, apply it often.

    `socket_domains` are the only address families that `socket()` accepts. `deny` names
    further calls, of `SIGNALS` and `ATTRIBUTES`.
    """
    arch = os.uname().machine if arch is None else arch
    if arch not in ARCHITECTURES:
        raise ValueError(f"no system call numbers for {arch!r}, only {', '.join(ARCHITECTURES)}")
    column = list(ARCHITECTURES).index(arch)
    numbers = {
        name: number for name, pair in NUMBERS.items() if (number := pair[column]) is not None
    }
    rules = _rules(socket_domains)
    further = {name: (SIGNALS | ATTRIBUTES)[name][column] for name in deny}
    rules = {name: refusals for name, refusals in rules.items() if name not in further}

    code = _Code()
    code.load(_ARCH)
    code.jump(_EQUAL, ARCHITECTURES[arch], then="ours")
    code.end(KILL)
    code.mark("ours")
    code.load(_NUMBER)
    if arch == "x86_64":
        code.jump(_AT_LEAST, _X32, otherwise="not x32")
        code.end(KILL)
        code.mark("not x32")
    code.jump(_AT_LEAST, NEWEST + 1, then="unknown")
    code.jump(_AT_LEAST, _GAP_END, then="known")
    code.jump(_AT_LEAST, _GAP[arch], otherwise="known")
    code.mark("unknown")
    code.end(ERRNO | errno.ENOSYS)
    code.mark("known")
    for name, refusals in rules.items():
        if name in numbers:
            _examine(code, numbers[name], refusals)
    flat = {numbers[name]: name for name in numbers.keys() - rules.keys()}
    if allow_memfd:
        del flat[numbers["memfd_create"]]
    flat |= {number: name for name, number in further.items() if number is not None}
    order = sorted(flat)
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        code.jump(_AT_LEAST, block[-1] + 1, then=f"above {block[-1]}")
        for number in block:
            code.jump(_EQUAL, number, then="absent" if flat[number] in _ABSENT else "denied")
        code.end(ALLOW)
        code.mark(f"above {block[-1]}")
    code.end(ALLOW)
    code.mark("absent")
    code.end(ERRNO | errno.ENOSYS)
    code.mark("denied")
    code.end(ERRNO | errno.EPERM)
    return code.assemble()


def _rules(socket_domains: Sequence[int]) -> dict[str, list[_Refusal]]:
    """The calls that depend on their arguments: refused if all conditions of a refusal hold."""
    of_others = [(errno.EPERM, [_outside(0, [_SELF])])]
    commands = [_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE, _F_NOTIFY]
    requests = [_TIOCSTI, _TIOCLINUX, _TIOCSETD, _FIOSETOWN, _SIOCSPGRP]
    filters = [_ATTACH_FILTER, _ATTACH_BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF]
    return {
        "clone": [(errno.EPERM, [_any_bit(0, _CLONE_FLAGS)])],
        "socket": [
            (errno.EAFNOSUPPORT, [_outside(0, socket_domains)]),
            # SOCK_PACKET would turn AF_INET into AF_PACKET, SOCK_SEQPACKET into SCTP.
            (errno.ESOCKTNOSUPPORT, [_outside(1, [_SOCK_STREAM, _SOCK_DGRAM], mask=_SOCK_TYPE)]),
            (errno.EPROTONOSUPPORT, [_outside(2, [0, _IPPROTO_TCP, _IPPROTO_UDP])]),
        ],
        # One of a pair of datagram sockets can still send to any path.
        "socketpair": [
            (errno.EAFNOSUPPORT, [_outside(0, [_AF_UNIX])]),
            (errno.EPERM, [_outside(1, [_SOCK_STREAM, _SOCK_SEQPACKET], mask=_SOCK_TYPE)]),
        ],
        "setsockopt": [
            (errno.EPERM, [_within(1, [_SOL_SOCKET]), _within(2, filters)]),
            # TLS in the kernel: as if it were not compiled in.
            (errno.ENOENT, [_within(1, [_SOL_TCP]), _within(2, [_TCP_ULP])]),
        ],
        # With an owner set, the kernel sends that process signals of the tool's choice. A lease
        # holds up others who open the file.
        "fcntl": [(errno.EPERM, [_within(1, commands)])],
        "ioctl": [(errno.EPERM, [_within(1, requests)])],
        "prctl": [(errno.EPERM, [_within(0, [_PR_SET_SECCOMP, _PR_SET_MM, _PR_SCHED_CORE])])],
        # Merged pages tell by their timing what others have in memory.
        "madvise": [(errno.EINVAL, [_within(2, [_MADV_MERGEABLE])])],
        "prlimit64": of_others,
        "sched_setaffinity": of_others,
        "sched_setscheduler": of_others,
        "sched_setparam": of_others,
        "sched_setattr": of_others,
        # 0 as a user or group means all processes of it, the template too.
        "setpriority": [(errno.EPERM, [_outside(0, [_PRIO_PROCESS])]),
                        (errno.EPERM, [_outside(1, [_SELF])])],
        "ioprio_set": [(errno.EPERM, [_outside(0, [_IOPRIO_WHO_PROCESS])]),
                       (errno.EPERM, [_outside(1, [_SELF])])],
        # A file in a workspace belongs to the operator, outside too: never setuid or setgid.
        "chmod": [(errno.EPERM, [_any_bit(1, _SET_ID_BITS)])],
        "fchmod": [(errno.EPERM, [_any_bit(1, _SET_ID_BITS)])],
        "fchmodat": [(errno.EPERM, [_any_bit(2, _SET_ID_BITS)])],
        "fchmodat2": [(errno.EPERM, [_any_bit(2, _SET_ID_BITS)])],
        "creat": [(errno.EPERM, [_any_bit(1, _SET_ID_BITS)])],
        # The mode is an argument only if a file may be made: left over otherwise.
        "open": [(errno.EPERM, [_any_bit(1, _MAKES_FILE), _any_bit(2, _SET_ID_BITS)])],
        "openat": [(errno.EPERM, [_any_bit(2, _MAKES_FILE), _any_bit(3, _SET_ID_BITS)])],
    }  # fmt: skip


def _examine(code: _Code, number: int, refusals: list[_Refusal]) -> None:
    """Answer one system call by its arguments."""
    other = f"not {number}"
    code.jump(_EQUAL, number, otherwise=other)
    for index, (error, conditions) in enumerate(refusals):
        passed = f"{number} passed {index}"
        for condition in conditions:
            condition(code, passed)
        code.end(ERRNO | error)
        code.mark(passed)
    code.end(ALLOW)
    code.mark(other)


def _within(argument: int, values: Sequence[int]) -> _Condition:
    """The argument is one of the values."""

    def write(code: _Code, otherwise: str) -> None:
        code.load(_ARGUMENTS + 8 * argument)
        holds = code.label()
        for value in values[:-1]:
            code.jump(_EQUAL, value, then=holds)
        code.jump(_EQUAL, values[-1], otherwise=otherwise)
        code.mark(holds)

    return write


def _outside(argument: int, values: Sequence[int], *, mask: int | None = None) -> _Condition:
    """The argument, or its bits under the mask, is none of the values."""

    def write(code: _Code, otherwise: str) -> None:
        code.load(_ARGUMENTS + 8 * argument)
        if mask is not None:
            code.keep(mask)
        for value in values:
            code.jump(_EQUAL, value, then=otherwise)

    return write


def _any_bit(argument: int, bits: int) -> _Condition:
    """The argument has at least one of the bits set."""

    def write(code: _Code, otherwise: str) -> None:
        code.load(_ARGUMENTS + 8 * argument)
        code.jump(_ANY_BIT, bits, otherwise=otherwise)

    return write


class _Code:
    """A program under construction, whose jumps name the marks that they lead to.

    Classic BPF jumps forward only, and over at most 255 instructions.
    """

    def __init__(self) -> None:
        self._instructions: list[tuple[int, int, str | None, str | None]] = []
        self._marks: dict[str, int] = {}

    def load(self, offset: int) -> None:
        self._instructions.append((_LOAD, offset, None, None))

    def keep(self, mask: int) -> None:
        self._instructions.append((_AND, mask, None, None))

    def jump(
        self, test: int, value: int, *, then: str | None = None, otherwise: str | None = None
    ) -> None:
        """Compare what was loaded; without a mark to go to, go on."""
        self._instructions.append((test, value, then, otherwise))

    def end(self, action: int) -> None:
        self._instructions.append((_RETURN, action, None, None))

    def mark(self, name: str) -> None:
        if name in self._marks:
            raise ValueError(f"{name!r} is marked twice")
        self._marks[name] = len(self._instructions)

    def label(self) -> str:
        """A mark for the next instructions that no one else uses."""
        return f"at {len(self._instructions)}"

    def assemble(self) -> bytes:
        # struct.pack refuses a distance that is negative or above 255.
        return b"".join(
            struct.pack("=HBBI", what, self._distance(at, then), self._distance(at, other), value)
            for at, (what, value, then, other) in enumerate(self._instructions)
        )

    def _distance(self, at: int, name: str | None) -> int:
        return 0 if name is None else self._marks[name] - at - 1
