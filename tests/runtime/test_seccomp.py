import asyncio
import contextlib
import ctypes
import errno
import json
import mmap
import multiprocessing
import os
import re
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.runtime import linux
from toolkiln.runtime.seccomp import (
    ALLOW,
    ARCHITECTURES,
    ATTRIBUTES,
    ERRNO,
    KILL,
    NUMBERS,
    SIGNALS,
    filter_program,
)

from .children import USERS, ChildDied, error_of, in_child

MACHINE = os.uname().machine
EPERM, ENOSYS = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
HIGH = 0xDEADBEEF << 32
"""In the upper half of an argument: the kernel does not look there."""

both = pytest.mark.parametrize("ordinary", USERS)
each_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)
PROGRAMS: dict[tuple[str, tuple[int, ...]], bytes] = {
    (arch, domains): filter_program(arch=arch, socket_domains=domains, allow_memfd=bool(domains))
    for arch in ARCHITECTURES
    for domains in [(), (1, 2, 10)]
}


def decide(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel answers: an interpreter of classic BPF, as seccomp uses it."""
    words = [a & 0xFFFFFFFFFFFFFFFF for a in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, audit, 0, *words)
    at = accumulator = 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            assert value % 4 == 0
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        else:
            tests = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: accumulator & value != 0,
            }
            at += yes if tests[code] else no


def ask(arch: str, name: str, *arguments: int, domains: tuple[int, ...] = ()) -> int:
    number = NUMBERS[name][list(ARCHITECTURES).index(arch)]
    assert number is not None
    return decide(PROGRAMS[arch, domains], ARCHITECTURES[arch], number, *arguments)


# What each system call with arguments in it must answer: (arguments, answer).
NAMESPACE_FLAGS = [0x20000, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30]
CASES: dict[str, list[tuple[tuple[int, ...], int]]] = {
    "clone": [
        ((17,), ALLOW),
        ((0x3D0F00,), ALLOW),  # a thread
        ((0x4111,), ALLOW),  # posix_spawn
        ((0x1200011 | HIGH,), ALLOW),  # fork
        ((0x8011,), EPERM),  # a sibling
        *[((flag | 17,), EPERM) for flag in NAMESPACE_FLAGS],
        *[((flag | 17 | HIGH,), EPERM) for flag in NAMESPACE_FLAGS],
    ],
    "socket": [((domain, 1, 0), ERRNO | errno.EAFNOSUPPORT) for domain in range(64)],
    "socketpair": [
        ((1, 1, 0), ALLOW),
        ((1, 5 | 0o2004000, 0), ALLOW),
        ((1 | HIGH, 1 | HIGH, 0), ALLOW),
        ((1, 2, 0), EPERM),
        ((1, 3 | 0o2000000, 0), EPERM),
        ((2, 1, 0), ERRNO | errno.EAFNOSUPPORT),
        ((30 | HIGH, 1, 0), ERRNO | errno.EAFNOSUPPORT),
    ],
    "setsockopt": [
        ((3, 1, 2), ALLOW),
        ((3, 6, 26), ALLOW),
        ((3, 1, 31), ALLOW),
        ((3, 6 | HIGH, 31), ERRNO | errno.ENOENT),
        *[((3, 1 | HIGH, option | HIGH), EPERM) for option in (26, 50, 51, 52)],
    ],
    "ioctl": [
        ((0, 0x5401), ALLOW),
        *[((0, command), EPERM) for command in (0x5412, 0x541C, 0x5423, 0x8901, 0x8902)],
        *[((0, command | HIGH), EPERM) for command in (0x5412, 0x541C, 0x5423, 0x8901, 0x8902)],
    ],
    "fcntl": [
        ((1, 3), ALLOW),
        ((1, 8 | HIGH, 1), EPERM),
        ((1, 10, 9), EPERM),
        ((1, 15), EPERM),
        ((1, 1024, 1), EPERM),
        ((1, 1026, 1), EPERM),
        ((1, 1030), ALLOW),
    ],
    "prctl": [
        *[((option,), ALLOW) for option in (1, 4, 15, 36, 38, 0x53564D41)],
        *[((option | HIGH,), EPERM) for option in (22, 35, 62)],
    ],
    "madvise": [((0, 0, 4), ALLOW), ((0, 0, 12 | HIGH), ERRNO | errno.EINVAL)],
    **{
        name: [((0,), ALLOW), ((HIGH,), ALLOW), ((1,), EPERM), ((1 | HIGH,), EPERM), ((-1,), EPERM)]
        for name in (
            "prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam",
            "sched_setattr",
        )
    },
    "setpriority": [
        ((0, 0), ALLOW), ((0, 1), EPERM), ((1, 0), EPERM), ((2, 0), EPERM), ((2 | HIGH, 0), EPERM),
    ],
    "ioprio_set": [
        ((1, 0), ALLOW), ((1, 1), EPERM), ((2, 0), EPERM), ((3, 0), EPERM), ((1, 1 | HIGH), EPERM),
    ],
    "chmod": [((0, 0o1777), ALLOW), ((0, 0o4755), EPERM), ((0, 0o2755 | HIGH), EPERM)],
    "fchmod": [((0, 0o1777), ALLOW), ((0, 0o4755), EPERM), ((0, 0o2755 | HIGH), EPERM)],
    "creat": [((0, 0o1777), ALLOW), ((0, 0o4755), EPERM), ((0, 0o2755 | HIGH), EPERM)],
    "fchmodat": [((0, 0, 0o1777), ALLOW), ((0, 0, 0o4755), EPERM), ((0, 0, 0o2000), EPERM)],
    "fchmodat2": [((0, 0, 0o1777), ALLOW), ((0, 0, 0o4755), EPERM), ((0, 0, 0o2000), EPERM)],
    "open": [
        ((0, 0o101, 0o644), ALLOW), ((0, 0, 0o7777), ALLOW), ((0, 0o101, 0o4644), EPERM),
        ((0, 0o20200002, 0o2644), EPERM),
    ],
    "openat": [
        ((0, 0, 0o101, 0o644), ALLOW), ((0, 0, 0, 0o7777), ALLOW),
        ((0, 0, 0o101 | HIGH, 0o4644 | HIGH), EPERM), ((0, 0, 0o20200002, 0o2644), EPERM),
    ],
}  # fmt: skip


@each_row(
    "arch, name",
    [
        (arch, name)
        for column, arch in enumerate(ARCHITECTURES)
        for name in CASES
        if NUMBERS[name][column] is not None
    ],
)
def test_a_call_is_answered_by_its_arguments(arch: str, name: str) -> None:
    answers = [(arguments, ask(arch, name, *arguments)) for arguments, _ in CASES[name]]

    assert answers == CASES[name]


def expected(arch: str, number: int) -> int | None:
    """What a number is answered with, whatever its arguments; None where they count."""
    column = list(ARCHITECTURES).index(arch)
    names = {pair[column]: name for name, pair in NUMBERS.items() if pair[column] is not None}
    if arch == "x86_64" and number >= 0x40000000:
        return KILL
    if number > 462 or {"x86_64": 335, "aarch64": 295}[arch] <= number < 424:
        return ENOSYS
    if number not in names:
        return ALLOW
    if names[number] in CASES:
        return None
    return ENOSYS if names[number] in ("clone3", "openat2") else EPERM


@each_architecture
def test_every_number_is_answered_as_the_table_expects(arch: str) -> None:
    numbers = [*range(1200), 0x3FFFFFFF, 0x40000000, 0x40000027, 0x7FFFFFFF, 0xFFFFFFFF]
    wrong = {
        number: answer
        for number in numbers
        for answer in [decide(PROGRAMS[arch, ()], ARCHITECTURES[arch], number)]
        if expected(arch, number) not in (None, answer)
    }

    assert wrong == {}


WORDS = st.integers(0, 2**64 - 1)
SMALL = st.one_of(st.integers(0, 64), WORDS)


@given(
    st.sampled_from(list(PROGRAMS)),
    st.one_of(st.integers(0, 500), st.integers(0, 2**32 - 1)),
    st.lists(SMALL, min_size=6, max_size=6),
)
def test_any_call_ends_and_the_upper_halves_of_its_arguments_never_count(
    built: tuple[str, tuple[int, ...]], number: int, arguments: list[int]
) -> None:
    audit = ARCHITECTURES[built[0]]
    lower = [argument & 0xFFFFFFFF for argument in arguments]

    answer = decide(PROGRAMS[built], audit, number, *arguments)

    assert answer in (ALLOW, KILL) or (answer & 0xFFFF0000 == ERRNO and answer & 0xFFFF)
    assert answer == decide(PROGRAMS[built], audit, number, *lower)
    if (fixed := expected(built[0], number)) is not None and number not in (319, 279):
        assert answer == fixed


@given(
    st.sampled_from(list(PROGRAMS)), st.integers(0, 2**32 - 1), st.integers(0, 500)
)  # fmt: skip
def test_a_call_of_another_architecture_kills(
    built: tuple[str, tuple[int, ...]], audit: int, number: int
) -> None:
    for other in (audit, 0x40000003, 0x40000028, *ARCHITECTURES.values()):
        if other != ARCHITECTURES[built[0]]:
            assert decide(PROGRAMS[built], other, number) == KILL


@each_architecture
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_only_the_given_domains_and_plain_kinds_and_protocols_make_a_socket(
    arch: str, domain: int, protocol: int
) -> None:
    domains = (1, 2, 10)
    for family in (domain, *range(50)):
        answer = ask(arch, "socket", family | HIGH, 1, 0, domains=domains)
        assert answer == (ALLOW if family in domains else ERRNO | errno.EAFNOSUPPORT)
    for kind in range(16):
        answer = ask(arch, "socket", 2, kind | 0o2004000, 0, domains=domains)
        assert answer == (ALLOW if kind in (1, 2) else ERRNO | errno.ESOCKTNOSUPPORT)
    plain = protocol & 0xFFFFFFFF in (0, 6, 17)
    assert ask(arch, "socket", 2, 1, protocol, domains=domains) == (
        ALLOW if plain else ERRNO | errno.EPROTONOSUPPORT
    )


@each_architecture
def test_anonymous_files_in_memory_are_denied_unless_allowed(arch: str) -> None:
    assert ask(arch, "memfd_create") == EPERM
    assert ask(arch, "memfd_create", domains=(1, 2, 10)) == ALLOW
    assert ask(arch, "memfd_secret", domains=(1, 2, 10)) == EPERM


@each_row("arch", ["i686", "armv7l", "riscv64", ""])
def test_an_unknown_architecture_has_no_program(arch: str) -> None:
    with pytest.raises(ValueError, match="no system call numbers"):
        filter_program(arch=arch, allow_memfd=False)


@pytest.mark.parametrize("domains", [(), (1,), tuple(range(60))])
@each_architecture
def test_a_program_is_whole_and_short_enough(arch: str, domains: tuple[int, ...]) -> None:
    program = filter_program(arch=arch, socket_domains=domains, allow_memfd=False)

    assert len(program) % 8 == 0
    assert len(program) // 8 <= 4096


def test_too_many_domains_to_jump_over_are_refused() -> None:
    with pytest.raises(struct.error):
        filter_program(arch="x86_64", socket_domains=range(300), allow_memfd=False)


def test_the_default_is_the_architecture_of_this_machine() -> None:
    assert filter_program(allow_memfd=False) == filter_program(arch=MACHINE, allow_memfd=False)


HEADERS = {
    "x86_64": [
        Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        Path("/usr/include/asm/unistd_64.h"),
        Path("/usr/x86_64-linux-gnu/include/asm/unistd_64.h"),
    ],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}


@each_architecture
def test_numbers_are_those_of_the_kernels_headers(arch: str) -> None:
    header = next((path for path in HEADERS[arch] if path.exists()), None)
    if header is None:
        pytest.skip("linux-libc-dev is not installed")
    text = header.read_text("utf-8")
    found = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)
    }
    newest = max(number for name, number in found.items() if name != "syscalls")
    column = list(ARCHITECTURES).index(arch)
    ours = {name: pair[column] for name, pair in NUMBERS.items()}

    # Recent headers leave out what no kernel has any more.
    gone = {"create_module", "get_kernel_syms", "query_module", "nfsservctl", "_sysctl"}
    known = {
        name: number
        for name, number in ours.items()
        if number is not None and number <= newest and (name in found or name not in gone)
    }
    assert known == {name: found.get(name) for name in known}
    assert [n for n, number in ours.items() if number is None and n in found] == []
    # The number after the first table is free, as is the last one before the second.
    numbers = sorted(number for name, number in found.items() if name != "syscalls")
    gap = next(pair for pair in pairwise(n for n in numbers if not 402 < n < 424) if pair[1] == 424)
    assert gap[0] + 1 == {"x86_64": 335, "aarch64": 295}[arch]


# From here on the kernel answers.

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

supported = pytest.mark.skipif(MACHINE not in ARCHITECTURES, reason=f"no filter for {MACHINE}")


def raw(name: str, *arguments: int) -> int:
    """The error that a system call ends in, 0 if it succeeds."""
    number = NUMBERS[name][list(ARCHITECTURES).index(MACHINE)]
    assert number is not None
    words = [ctypes.c_long(argument) for argument in (number, *arguments)]
    return ctypes.get_errno() if LIBC.syscall(*words) < 0 else 0


def filtered(
    function: Callable[[], Any], *, ordinary: bool = False, domains: tuple[int, ...] = ()
) -> Any:
    """What a function returns in a child under the filter."""
    program = filter_program(socket_domains=domains, allow_memfd=False)

    def run() -> Any:
        linux.set_no_new_privs()
        linux.apply_seccomp(program)
        return function()

    return in_child(run, ordinary=ordinary)


@supported
@both
def test_the_kernel_denies_what_is_always_denied(ordinary: bool) -> None:
    column = list(ARCHITECTURES).index(MACHINE)
    names = [
        name
        for name, pair in NUMBERS.items()
        if (number := pair[column]) is not None and expected(MACHINE, number) == EPERM
    ]

    answers = filtered(
        lambda: {name: raw(name, 0, 0, 0, 0, 0) for name in names}, ordinary=ordinary
    )

    assert answers == dict.fromkeys(names, errno.EPERM)
    assert len(names) > 80


def reach(kind: int, path: str) -> None:
    """Send to a path, and connect to it, from one of a pair of sockets."""
    left, right = socket.socketpair(socket.AF_UNIX, kind)
    with left, right:
        with contextlib.suppress(OSError):
            left.sendto(b"out", path)
        left.connect(path)


@supported
@each_row("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_socket_pair_cannot_reach_a_socket_outside(kind: int, tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.setblocking(False)

        refused = filtered(lambda: error_of(lambda: reach(kind, path)))

        assert refused in (errno.EPERM, errno.EISCONN, errno.EPROTOTYPE)
        with pytest.raises(BlockingIOError):
            server.recv(3)


def test_a_pair_of_datagram_sockets_reaches_outside_without_the_filter(tmp_path: Path) -> None:
    """Why such pairs are denied; once a kernel refuses it, they need not be."""
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.setblocking(False)

        in_child(lambda: reach(socket.SOCK_DGRAM, path))

        assert server.recv(3) == b"out"


@supported
@both
def test_other_processes_keep_their_limits_and_priorities(ordinary: bool) -> None:
    def changed() -> list[int]:
        parent = os.getppid()
        own = (8, 8)
        return [
            error_of(lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, own)),
            error_of(lambda: os.sched_setaffinity(parent, {0})),
            error_of(lambda: os.setpriority(os.PRIO_PROCESS, parent, 19)),
            error_of(lambda: os.setpriority(os.PRIO_USER, 0, 19)),
            raw("ioprio_set", 3, 0, 3 << 13),
            error_of(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
            error_of(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
            error_of(lambda: os.nice(1) and None),
        ]

    assert filtered(changed, ordinary=ordinary) == [*[errno.EPERM] * 5, 0, 0, 0]


@pytest.mark.skipif(MACHINE != "x86_64", reason="calls of x86")
@each_row(
    "code",
    [
        pytest.param(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3", id="getpid by int 0x80"),
        pytest.param(b"\xb8\x27\x00\x00\x40\x0f\x05\xc3", id="getpid of x32"),
    ],
)
def test_a_call_by_another_entry_of_the_machine_kills(code: bytes) -> None:
    def call() -> int:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())

    with pytest.raises(ChildDied, match="SIGSYS"):
        filtered(call)


# What tools do all day must go on working.


def in_threads() -> int:
    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(int, "1234"))


def in_subprocess() -> str:
    done = subprocess.run(["/bin/echo", "hello"], capture_output=True, text=True, check=True)
    return done.stdout + subprocess.getoutput("echo shell | cat")


def in_processes() -> list[int]:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        return pool.map(abs, [-1, -2])


def in_asyncio() -> list[Any]:
    async def main() -> list[Any]:
        process = await asyncio.create_subprocess_exec(
            "/bin/cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate(b"through a pipe")
        return [out.decode(), await asyncio.to_thread(len, "four"), process.returncode]

    return asyncio.run(main())


def in_files() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.json"
        path.write_text(json.dumps({"a": [1, 2]}), "utf-8")
        with sqlite3.connect(Path(folder) / "base.db") as base:
            base.execute("create table t (a)")
            base.executemany("insert into t values (?)", [(1,), (2,)])
            (total,) = base.execute("select sum(a) from t").fetchone()
        base.close()
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * 100_000)
            os.fsync(file.fileno())
        return [json.loads(path.read_text("utf-8")), total]


def in_signals() -> list[int]:
    caught: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: caught.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    process = subprocess.Popen(["/bin/sleep", "600"])
    process.kill()
    return [caught[0], process.wait()]


def in_shared_memory() -> bytes:
    from multiprocessing import heap

    arena = heap.Arena(4096)
    arena.buffer[:4] = b"data"
    lock = multiprocessing.get_context("fork").Lock()
    with lock:
        return bytes(arena.buffer[:4])


WORK: dict[str, tuple[Callable[[], Any], Any]] = {
    "threads": (in_threads, 10),
    "subprocess": (in_subprocess, "hello\nshell"),
    "processes": (in_processes, [1, 2]),
    "asyncio": (in_asyncio, ["through a pipe", 4, 0]),
    "files": (in_files, [{"a": [1, 2]}, 3]),
    "signals": (in_signals, [signal.SIGUSR1, -signal.SIGKILL]),
    "shared memory": (lambda: in_shared_memory().decode(), "data"),
    "interpreter": (
        lambda: subprocess.check_output([sys.executable, "-I", "-c", "print(1)"], text=True),
        "1\n",
    ),
}


@supported
@each_row("name", WORK)
def test_ordinary_work_succeeds_under_the_filter(name: str) -> None:
    function, result = WORK[name]

    assert filtered(function) == result


@supported
def test_servers_and_names_work_with_internet_domains() -> None:
    def served() -> str:
        async def main() -> str:
            async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"served")
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            async with server:
                port = server.sockets[0].getsockname()[1]
                reader, writer = await asyncio.open_connection("localhost", port)
                said = (await reader.read()).decode()
                writer.close()
                return said

        return asyncio.run(main())

    assert filtered(served, domains=(1, 2, 10)) == "served"


@each_row("arch", ARCHITECTURES)
@each_row("name", [*SIGNALS, *ATTRIBUTES])
def test_signals_and_attributes_are_refused_only_where_others_are_around(
    arch: str, name: str
) -> None:
    number = (SIGNALS | ATTRIBUTES)[name][list(ARCHITECTURES).index(arch)]
    if number is None:
        return
    alone = filter_program(arch=arch, allow_memfd=False)
    among_others = filter_program(arch=arch, allow_memfd=False, deny=[*SIGNALS, *ATTRIBUTES])

    assert decide(alone, ARCHITECTURES[arch], number) == ALLOW
    assert decide(among_others, ARCHITECTURES[arch], number) == ERRNO | errno.EPERM
