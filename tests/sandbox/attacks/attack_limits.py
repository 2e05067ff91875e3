"""Attacks on limits: memory, time, disk, descriptors, output."""
# mypy: ignore-errors

import os
import re
import sys
import time
from typing import Any

from trying import tried

from toolkiln import tool


@tool(timeout=10, memory="96MB")
def balloon() -> int:
    """Take memory until there is none."""
    held = []
    while True:
        held.append(bytearray(1 << 20))


@tool(timeout=10, memory="96MB")
def balloon_at_once() -> int:
    """Take it at once."""
    return len("x" * (1 << 34))


@tool(timeout=10, memory="64MB", processes=8)
def balloon_by_children() -> int:
    """Take it in many processes; each has its own bound."""
    for _ in range(4):
        if os.fork() == 0:
            try:
                balloon()
            finally:
                os._exit(1)
    statuses = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)]
    return sum(status != 0 for status in statuses)


@tool(timeout=20, cpu=1)
def burn() -> int:
    """Calculate for ever."""
    while True:
        pass


@tool(timeout=1)
def sleep_for_ever() -> int:
    """Wait for nothing."""
    while True:
        time.sleep(9)


@tool(timeout=1, cpu=9)
def catastrophe() -> bool:
    """Match a pattern that takes exponential time."""
    return bool(re.match(r"(a+)+$", "a" * 60 + "b"))


@tool(timeout=10, disk="4MB")
def fill(path: str) -> int:
    """Write until the disk is full, in many files."""
    for number in range(10_000):
        with open(f"{path}/{number}", "wb") as file:
            file.write(bytes(1 << 18))
    return 0


@tool(timeout=10, disk="4MB")
def huge_file() -> int:
    """Make one file of a terabyte."""
    with open(f"{os.environ['TMPDIR']}/huge", "wb") as file:
        file.truncate(1 << 40)
    return 0


@tool(timeout=10)
def many_files(count: int) -> str:
    """Make files that hold nothing."""
    os.chdir(os.environ["TMPDIR"])
    for number in range(count):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY))
    return "done"


@tool(timeout=10)
def deep_folders(depth: int) -> str:
    """Make folders inside of folders, closed to their owner."""
    os.chdir(os.environ["TMPDIR"])
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    os.mkdir("closed", 0)
    return "done"


@tool
def many_descriptors() -> str:
    """Open files until it is refused."""
    kept = []
    return tried(lambda: [kept.append(os.open("/dev/null", 0)) for _ in range(100_000)])


@tool(timeout=20)
def flood(stream: int, megabytes: int) -> str:
    """Print without end."""
    chunk = b"x" * (1 << 20)
    for _ in range(megabytes):
        view = memoryview(chunk)
        while view:
            view = view[os.write(stream, view) :]
    return "done"


@tool
def recurse() -> int:
    """Call oneself."""
    return recurse() + 1


@tool
def recurse_in_c() -> Any:
    """Overflow the stack of the interpreter."""
    sys.setrecursionlimit(1 << 30)

    class Deep:
        def __getattr__(self, name: str) -> Any:
            return getattr(self, name + "x")

    return Deep().x


@tool
def gigantic_text(megabytes: int) -> str:
    """Return more than anybody can read."""
    return "x" * (megabytes << 20)


@tool
def gigantic_number() -> int:
    """Return a number that takes long to print."""
    return 1 << 4_000_000


@tool(memory="256MB")
def gigantic_list() -> list[Any]:
    """Return what is small here and large as text."""
    inner: list[Any] = ["x" * 1000] * 100
    for _ in range(4):
        inner = [inner] * 10
    return inner


@tool(timeout=2)
def exploding_value() -> Any:
    """Return what is small here and endless as text."""
    inner: list[Any] = []
    for _ in range(60):
        inner = [inner, inner]
    return inner
