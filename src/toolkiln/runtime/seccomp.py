"""The seccomp filter of a call, as a classic BPF program.

It denies system calls that no tool needs and that have served for sandbox escapes or could harm
the host or the template a call was forked from. It is one layer among others: namespaces,
dropped capabilities and `landlock`. `linux.apply_seccomp` installs it.

The filter lists denied calls, and also denies every call newer than `NEWEST`. It deliberately
compares only the lower 32 bits of arguments: each argument checked here is an `int` to the
kernel, which ignores the upper half (CVE-2019-10063).
"""

from __future__ import annotations

import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Condition = Callable[["_Assembler", str], None]
    """Emits a test that falls through if true and jumps to the given label otherwise."""
    _Denial = tuple[int, list[_Condition]]
    """An errno, and the conditions that must all be true for it."""

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
"""Return values of a filter: allow, kill the process, fail with the errno in the lower bits."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The AUDIT_ARCH value of each architecture."""

NEWEST = 462
"""mseal. Later system calls fail with ENOSYS, as on a kernel without them."""

_GAP, _GAP_END = {"x86_64": 335, "aarch64": 295}, 424
"""The unused range of numbers: its first number, and the first one after it."""

_X32 = 0x40000000

SIGNALS: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
}  # fmt: skip
"""Calls that signal other processes; harmless in a separate PID namespace."""

ATTRIBUTES: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
"""Calls that change file attributes, which Landlock does not restrict."""

# name: number on x86_64, on aarch64; None if the architecture lacks the call
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
    # file access that bypasses paths: handles, device nodes, notifications
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "mknod": (133, None),
    "mknodat": (259, 33), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # kernel subsystems with a long record of vulnerabilities
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "vmsplice": (278, 75), "remap_file_pages": (216, 234),
    "modify_ldt": (154, None), "map_shadow_stack": (453, 453), "personality": (135, 92),
    # Another filter cannot weaken this one, but would let a tool load BPF code.
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
    # NUMA placement; the page cache of other processes
    "mbind": (237, 235), "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450),
    "cachestat": (451, 451),
    # limited per host or per operator's user; flushes for the whole host
    "io_setup": (206, 0), "io_submit": (209, 2), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "sync": (162, 81), "syncfs": (306, 267),
    # memory outside the address space limit
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # System V and POSIX IPC objects outlive the call, and calls of one template share them
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    # flags behind a pointer, invisible to a filter; libraries fall back to the older call
    "clone3": (435, 435), "openat2": (437, 437),
    # checked by argument in `_rules`
    "clone": (56, 220), "socket": (41, 198), "socketpair": (53, 199), "setsockopt": (54, 208),
    "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167), "madvise": (28, 233),
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140),
    "ioprio_set": (251, 30), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "open": (2, None), "openat": (257, 56), "creat": (85, None),
}  # fmt: skip
"""Every system call that the filter names; other calls up to `NEWEST` are allowed."""

_ABSENT = ("clone3", "openat2")

# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; and CLONE_PARENT, which would make
# the new process a child of the template.
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
_CREATE_FLAGS = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE

_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data: call number, architecture, six arguments."""

_BLOCK = 12
"""Denied numbers are grouped into blocks that most calls skip. When a filter is installed, the
kernel evaluates it once for every number, and the call waits for that."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45


def filter_program(
    *,
    arch: str | None = None,
    socket_domains: Sequence[int] = (),
    allow_memfd: bool,
    deny: Sequence[str] = (),
) -> bytes:
    """Build the filter for an architecture, by default this machine's.

    `socket_domains` are the only address families that `socket()` accepts. `deny` names
    additional calls from `SIGNALS` and `ATTRIBUTES`.
    """
    arch = os.uname().machine if arch is None else arch
    if arch not in ARCHITECTURES:
        raise ValueError(f"no system call numbers for {arch!r}, only {', '.join(ARCHITECTURES)}")
    column = list(ARCHITECTURES).index(arch)
    numbers = {
        name: number for name, pair in NUMBERS.items() if (number := pair[column]) is not None
    }
    rules = _rules(socket_domains)
    additional = {name: (SIGNALS | ATTRIBUTES)[name][column] for name in deny}
    rules = {name: denials for name, denials in rules.items() if name not in additional}

    code = _Assembler()
    code.load(_ARCH)
    code.jump(_EQUAL, ARCHITECTURES[arch], then="ours")
    code.end(KILL)
    code.label("ours")
    code.load(_NUMBER)
    if arch == "x86_64":
        code.jump(_AT_LEAST, _X32, otherwise="not x32")
        code.end(KILL)
        code.label("not x32")
    code.jump(_AT_LEAST, NEWEST + 1, then="unknown")
    code.jump(_AT_LEAST, _GAP_END, then="known")
    code.jump(_AT_LEAST, _GAP[arch], otherwise="known")
    code.label("unknown")
    code.end(ERRNO | errno.ENOSYS)
    code.label("known")
    for name, denials in rules.items():
        if name in numbers:
            _check_arguments(code, numbers[name], denials)
    denied = {numbers[name]: name for name in numbers.keys() - rules.keys()}
    if allow_memfd:
        del denied[numbers["memfd_create"]]
    denied |= {number: name for name, number in additional.items() if number is not None}
    order = sorted(denied)
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        code.jump(_AT_LEAST, block[-1] + 1, then=f"above {block[-1]}")
        for number in block:
            code.jump(_EQUAL, number, then="absent" if denied[number] in _ABSENT else "denied")
        code.end(ALLOW)
        code.label(f"above {block[-1]}")
    code.end(ALLOW)
    code.label("absent")
    code.end(ERRNO | errno.ENOSYS)
    code.label("denied")
    code.end(ERRNO | errno.EPERM)
    return code.assemble()


def _rules(socket_domains: Sequence[int]) -> dict[str, list[_Denial]]:
    not_self = [(errno.EPERM, [_outside(0, [_SELF])])]
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
        # A datagram socket of a pair can still send to any path.
        "socketpair": [
            (errno.EAFNOSUPPORT, [_outside(0, [_AF_UNIX])]),
            (errno.EPERM, [_outside(1, [_SOCK_STREAM, _SOCK_SEQPACKET], mask=_SOCK_TYPE)]),
        ],
        "setsockopt": [
            (errno.EPERM, [_within(1, [_SOL_SOCKET]), _within(2, filters)]),
            # Kernel TLS: as if not compiled in.
            (errno.ENOENT, [_within(1, [_SOL_TCP]), _within(2, [_TCP_ULP])]),
        ],
        # The kernel would send a file's owner signals that the tool chooses. A lease delays
        # other processes that open the file.
        "fcntl": [(errno.EPERM, [_within(1, commands)])],
        "ioctl": [(errno.EPERM, [_within(1, requests)])],
        "prctl": [(errno.EPERM, [_within(0, [_PR_SET_SECCOMP, _PR_SET_MM, _PR_SCHED_CORE])])],
        # The timing of merged pages reveals the memory of other processes.
        "madvise": [(errno.EINVAL, [_within(2, [_MADV_MERGEABLE])])],
        "prlimit64": not_self,
        "sched_setaffinity": not_self,
        "sched_setscheduler": not_self,
        "sched_setparam": not_self,
        "sched_setattr": not_self,
        # For a user or group, 0 means all its processes, including the template.
        "setpriority": [(errno.EPERM, [_outside(0, [_PRIO_PROCESS])]),
                        (errno.EPERM, [_outside(1, [_SELF])])],
        "ioprio_set": [(errno.EPERM, [_outside(0, [_IOPRIO_WHO_PROCESS])]),
                       (errno.EPERM, [_outside(1, [_SELF])])],
        # Workspace files belong to the operator outside the sandbox too: never setuid or setgid.
        "chmod": [(errno.EPERM, [_any_bit(1, _SET_ID_BITS)])],
        "fchmod": [(errno.EPERM, [_any_bit(1, _SET_ID_BITS)])],
        "fchmodat": [(errno.EPERM, [_any_bit(2, _SET_ID_BITS)])],
        "fchmodat2": [(errno.EPERM, [_any_bit(2, _SET_ID_BITS)])],
        "creat": [(errno.EPERM, [_any_bit(1, _SET_ID_BITS)])],
        # The mode argument is undefined unless the flags create a file.
        "open": [(errno.EPERM, [_any_bit(1, _CREATE_FLAGS), _any_bit(2, _SET_ID_BITS)])],
        "openat": [(errno.EPERM, [_any_bit(2, _CREATE_FLAGS), _any_bit(3, _SET_ID_BITS)])],
    }  # fmt: skip


def _check_arguments(code: _Assembler, number: int, denials: list[_Denial]) -> None:
    other = f"not {number}"
    code.jump(_EQUAL, number, otherwise=other)
    for index, (error, conditions) in enumerate(denials):
        passed = f"{number} passed {index}"
        for condition in conditions:
            condition(code, passed)
        code.end(ERRNO | error)
        code.label(passed)
    code.end(ALLOW)
    code.label(other)


def _within(argument: int, values: Sequence[int]) -> _Condition:
    def write(code: _Assembler, otherwise: str) -> None:
        code.load(_ARGUMENTS + 8 * argument)
        matched = code.new_label()
        for value in values[:-1]:
            code.jump(_EQUAL, value, then=matched)
        code.jump(_EQUAL, values[-1], otherwise=otherwise)
        code.label(matched)

    return write


def _outside(argument: int, values: Sequence[int], *, mask: int | None = None) -> _Condition:
    """Test that the argument, or its masked bits, is none of the values."""

    def write(code: _Assembler, otherwise: str) -> None:
        code.load(_ARGUMENTS + 8 * argument)
        if mask is not None:
            code.mask(mask)
        for value in values:
            code.jump(_EQUAL, value, then=otherwise)

    return write


def _any_bit(argument: int, bits: int) -> _Condition:
    def write(code: _Assembler, otherwise: str) -> None:
        code.load(_ARGUMENTS + 8 * argument)
        code.jump(_ANY_BIT, bits, otherwise=otherwise)

    return write


class _Assembler:
    """Assembler for classic BPF, whose jumps go forward by at most 255 instructions."""

    def __init__(self) -> None:
        self._instructions: list[tuple[int, int, str | None, str | None]] = []
        self._labels: dict[str, int] = {}

    def load(self, offset: int) -> None:
        self._instructions.append((_LOAD, offset, None, None))

    def mask(self, mask: int) -> None:
        self._instructions.append((_AND, mask, None, None))

    def jump(
        self, test: int, value: int, *, then: str | None = None, otherwise: str | None = None
    ) -> None:
        """Compare the loaded value; without a label, fall through."""
        self._instructions.append((test, value, then, otherwise))

    def end(self, action: int) -> None:
        self._instructions.append((_RETURN, action, None, None))

    def label(self, name: str) -> None:
        if name in self._labels:
            raise ValueError(f"label {name!r} is defined twice")
        self._labels[name] = len(self._instructions)

    def new_label(self) -> str:
        return f"at {len(self._instructions)}"

    def assemble(self) -> bytes:
        # struct.pack rejects distances outside 0 to 255.
        return b"".join(
            struct.pack("=HBBI", code, self._distance(i, then), self._distance(i, other), value)
            for i, (code, value, then, other) in enumerate(self._instructions)
        )

    def _distance(self, index: int, label: str | None) -> int:
        return 0 if label is None else self._labels[label] - index - 1
