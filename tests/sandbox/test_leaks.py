"""A thousand calls, good and hostile: nothing is left open, running, mounted or on disk."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Status

from .conftest import ATTACKS, BOUND, settings, skip_without

CALLS = 1000
CONCURRENT = 8

MIXED: list[tuple[str, dict[str, Any]]] = [
    ("good", {"number": 1}),
    ("good", {"number": 2}),
    ("good", {"number": "wrong"}),
    ("nobody", {}),
    ("leave_daemon", {"marker": "3600"}),
    ("leave_cheap", {"marker": "3600"}),
    ("leave_heavy", {"marker": "3600"}),
    ("look_heavy", {"since": 0}),
    ("look_spare", {"since": 0}),
    ("kill_all", {"number": 9}),
    ("leave_by", {"how": "_exit"}),
    ("leave_by", {"how": "fault"}),
    ("raise_error", {"kind": "interrupt"}),
    ("say_bytes", {"data": "\xff\xff\xff\xff"}),
    ("say", {"body": '{"op":"result","value":1}', "then": "3600"}),
    ("hang_up", {"then": "exit"}),
    ("pass_descriptors", {"count": 2}),
    ("many_descriptors", {}),
    ("call_another", {"tool": "good", "arguments": {"number": 1}}),
    ("keep_note", {"text": "x"}),
    ("die_by", {"number": 11}),
    ("endless_thread", {}),
]


class Census(NamedTuple):
    """What a process holds of the machine."""

    descriptors: int
    children: int
    mounts: int
    groups: int


def census() -> Census:
    return Census(
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        children=len(descendants(os.getpid())),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        groups=len(list(Path("/sys/fs/cgroup").glob(f"*/toolkiln-{os.getpid()}-*")))
        + len(list(Path("/sys/fs/cgroup").glob(f"toolkiln-{os.getpid()}-*"))),
    )


def descendants(pid: int) -> set[int]:
    """All processes below one, zombies too."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.parametrize(
    ("mode", "calls"),
    [
        ("A", CALLS),
        ("B", CALLS // 5),
        pytest.param("A", 20 * CALLS, marks=pytest.mark.soak),
        pytest.param("B", 5 * CALLS, marks=pytest.mark.soak),
    ],
)
async def test_nothing_is_left_after_many_calls(mode: str, calls: int, tmp_path: Path) -> None:
    await asyncio.to_thread(int)  # the loop's own thread pool is no leak
    before = await at_rest()
    slots = asyncio.Semaphore(CONCURRENT)
    chance = random.Random(7)
    grants = {"*": {"workspace": "write"}}

    async with Kiln(
        ATTACKS, settings=settings(tmp_path / "state", mode, grants=grants), dev=True
    ) as kiln:
        await skip_without(kiln, mode, number=1)

        async def one() -> Status:
            tool, arguments = chance.choice(MIXED)
            async with slots:
                call = asyncio.create_task(kiln.call(tool, arguments))
                if chance.random() < 0.02:
                    await asyncio.sleep(0.005)
                    call.cancel()
                    await asyncio.wait([call])
                    return Status.CANCELLED
                return (await call).status

        statuses = await asyncio.gather(*(one() for _ in range(calls)))
        during = census()
        files = {path.name for path in (tmp_path / "state").iterdir()}
    await settled(before)

    assert Status.UNAVAILABLE not in statuses
    assert statuses.count(Status.OK) > calls / 4
    # A server, warm workers and their sockets; not what a thousand calls would have left.
    assert during.descriptors - before.descriptors < 100
    assert during.children - before.children < 100
    assert during.mounts == before.mounts
    kept = {
        ".gitignore", "versions", "envs", "workspaces", "mode.json", "store.db", "base", "readings",
        "audit.key", "audit.db", "audit.db-wal", "audit.db-shm",
    }  # fmt: skip
    assert files <= kept


async def settled(before: Census) -> None:
    """Wait until everything is as it was."""
    try:
        async with asyncio.timeout(BOUND):
            while any(now > then for now, then in zip(census(), before, strict=True)):
                await asyncio.sleep(0.05)
    except TimeoutError:
        assert census() == before


async def at_rest() -> Census:
    """What there is once services of other tests have stopped warming up."""
    seen = census()
    async with asyncio.timeout(BOUND):
        while True:
            await asyncio.sleep(0.5)
            if seen == (seen := census()):
                return seen
