"""System calls: those that no tool needs are refused, whatever their arguments."""

import os

import pytest

from toolkiln.runtime import seccomp

from .conftest import Service, all_modes

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSED = [
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise",
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at",
    "open_by_handle_at", "mknodat", "fanotify_init", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key",
    "vmsplice", "personality", "seccomp", "init_module", "finit_module", "delete_module",
    "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "syslog",
    "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname",
    "ioperm", "iopl", "vhangup", "mbind", "memfd_create", "memfd_secret", "shmget", "shmat",
    "shmctl", "semget", "semop", "msgget", "msgsnd", "mq_open", "inotify_init1", "io_setup",
]  # fmt: skip
COLUMN = 0 if os.uname().machine == "x86_64" else 1


def number(name: str) -> int:
    found = seccomp.NUMBERS[name][COLUMN]
    assert found is not None
    return found


@all_modes
async def test_dangerous_system_calls_are_refused(service: Service) -> None:
    numbers = {name: number(name) for name in REFUSED if seccomp.NUMBERS[name][COLUMN]}

    outcomes = await service.value("system_calls", numbers=numbers)

    assert {name: said for name, said in outcomes.items() if said != "EPERM"} == {}


@all_modes
async def test_calls_whose_flags_no_filter_can_see_seem_not_to_exist(service: Service) -> None:
    unseen = {"clone3": number("clone3"), "openat2": number("openat2"), "unknown": 500, "gap": 400}

    outcomes = await service.value("system_calls", numbers=unseen)

    assert set(outcomes.values()) == {"ENOSYS"}


NAMESPACES = {
    "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000,
    "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "parent": 0x8000,
}  # fmt: skip
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY = 8, 10, 15, 1024, 1026
FIOSETOWN, SIOCSPGRP = 0x8901, 0x8902
OTHERS: list[tuple[str, list[int]]] = [
    *[("clone", [flag | 17, 0, 0, 0, 0]) for flag in NAMESPACES.values()],
    # The kernel ignores the upper half of an int, and so must the filter.
    ("clone", [NAMESPACES["user"] | 17 | 1 << 32, 0, 0, 0, 0]),
    ("ioctl", [0, TIOCSTI, 0]),
    ("ioctl", [0, TIOCSTI | 1 << 32, 0]),
    ("ioctl", [0, TIOCLINUX, 0]),
    ("ioctl", [0, TIOCSETD, 0]),
    # Signals that the kernel sends on behalf of a descriptor, to any process of the same user.
    *[
        ("fcntl", [1, command | high, 1])
        for command in (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY)
        for high in (0, 1 << 32)
    ],
    *[
        ("ioctl", [3, command | high, 0])
        for command in (FIOSETOWN, SIOCSPGRP)
        for high in (0, 1 << 32)
    ],
    ("prlimit64", [1, 7, 0, 0]),
    ("sched_setaffinity", [1, 8, 0]),
    ("sched_setscheduler", [1, 0, 0]),
    ("setpriority", [2, 0, 19]),
    ("setpriority", [0, 1, 19]),
    ("ioprio_set", [3, 0, 0]),
    ("prctl", [22, 2, 0, 0, 0]),
    ("prctl", [35, 1, 0, 0, 0]),
    # Filters on the call's socket: SO_ATTACH_FILTER, SO_ATTACH_BPF.
    ("setsockopt", [3, 1, 26, 0, 0]),
    ("setsockopt", [3, 1, 50, 0, 0]),
]


@all_modes
async def test_dangerous_arguments_are_refused(service: Service) -> None:
    calls = [[number(name), *arguments] for name, arguments in OTHERS]

    said = await service.value("system_calls_with", calls=calls)

    allowed = [call for call, outcome in zip(OTHERS, said, strict=True) if outcome != "EPERM"]
    assert allowed == []


@pytest.mark.skipif(COLUMN == 1, reason="there is one way in only")
@all_modes
async def test_the_older_way_into_the_kernel_kills(service: Service) -> None:
    x32 = 0x40000000

    code = await service.code("system_calls_with", calls=[[x32 + 39]])

    assert code == "failed: crashed"
