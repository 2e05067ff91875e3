"""The table of leases and its keeper, with real processes; Redis has no part in this."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from math import inf

import pytest

from tables import each_row
from toolkiln.fleet.leases import (
    FROZEN_SECONDS,
    GRACE_SECONDS,
    NOT_STARTED,
    SILENT_SECONDS,
    HeldEntry,
    LeaseKeeper,
    LeaseTable,
    WorkerHealth,
    assess_worker,
    new_lease_table,
)
from toolkiln.fleet.supervisor import READY, Supervisor

from .workers import await_state

LATE = [HeldEntry("1-0", 100.0), HeldEntry("2-0", inf)]


@pytest.fixture
def table() -> Iterator[int]:
    file = new_lease_table(4)
    yield file
    os.close(file)


@pytest.fixture
def leases(table: int) -> Iterator[LeaseTable]:
    with closing(LeaseTable(table)) as found:
        yield found


class Renewing:
    """Takes note of what is renewed, and has lost some of it."""

    def __init__(self, lost: Sequence[str] = ()) -> None:
        self.lost = lost
        self.renewed: list[list[str]] = []
        self.came = asyncio.Event()

    async def renew(self, consumer: str, entries: Sequence[str]) -> list[bool]:
        assert consumer.startswith("me")
        self.renewed.append(list(entries))
        self.came.set()
        return [entry not in self.lost for entry in entries]


def test_what_one_process_writes_into_the_table_another_one_reads(table: int) -> None:
    code = f"""
from toolkiln.fleet.leases import LeaseTable
leases = LeaseTable({table})
leases.release(leases.hold("1-0", 5.0))
leases.hold("18446744073709551615-18446744073709551615", 6.5)
leases.hold("3-0", float("inf"))
leases.beat()
"""
    subprocess.run([sys.executable, "-c", code], pass_fds=[table], check=True, timeout=60)

    with closing(LeaseTable(table)) as leases:
        assert leases.held() == [
            HeldEntry("18446744073709551615-18446744073709551615", 6.5),
            HeldEntry("3-0", inf),
        ]
        assert 0 < leases.silence < 60


def test_a_slot_is_used_again_once_it_is_released(leases: LeaseTable) -> None:
    slots = {leases.hold(f"{number}-0", inf) for number in range(4)}
    for slot in slots:
        leases.release(slot)

    assert leases.free == 4
    assert {leases.hold("9-0", inf) for _ in range(4)} == slots


def test_what_is_no_entry_is_not_held(leases: LeaseTable) -> None:
    leases.hold("12-", inf)
    leases.hold("3-4", inf)

    assert leases.held() == [HeldEntry("3-4", inf)]


@each_row(
    "state, silence, now, expected",
    [
        ("S", 0.0, 50.0, WorkerHealth.HEALTHY),
        ("R", 0.0, 1e9, WorkerHealth.HEALTHY),  # a live loop ends calls in time by itself
        # A call may block the loop for its time.
        ("R", SILENT_SECONDS + 1, 100.0 + GRACE_SECONDS, WorkerHealth.HEALTHY),
        ("R", SILENT_SECONDS + 1, 101.0 + GRACE_SECONDS, WorkerHealth.HUNG),
        ("T", 0.0, 50.0, WorkerHealth.STOPPED),
        ("T", FROZEN_SECONDS + 1, 50.0, WorkerHealth.HUNG),
        ("t", FROZEN_SECONDS + 1, 1e9, WorkerHealth.STOPPED),  # under a debugger
        ("Z", 0.0, 50.0, WorkerHealth.GONE),
        ("", 0.0, 50.0, WorkerHealth.GONE),
    ],
)
def test_a_worker_is_judged_by_its_process_its_loop_and_its_calls(
    state: str, silence: float, now: float, expected: WorkerHealth
) -> None:
    assert assess_worker(state, silence, LATE, now) is expected


def test_a_worker_with_a_silent_loop_is_hung_once_no_call_may_keep_it() -> None:
    for held in ([], [HeldEntry("1-0", NOT_STARTED)]):
        assert assess_worker("S", FROZEN_SECONDS - 1, held, 1e9) is WorkerHealth.HEALTHY
        assert assess_worker("S", FROZEN_SECONDS + 1, held, 1e9) is WorkerHealth.HUNG
    assert assess_worker("R", 1e6, [HeldEntry("1-0", 1e9)], 1e6) is WorkerHealth.HEALTHY


async def test_an_idle_worker_that_is_frozen_is_killed_and_replaced() -> None:
    children = Children("leases.beat(); os.kill(os.getpid(), signal.SIGSTOP)", "sys.exit(0)")

    assert await children.run() == 0
    assert children.settled == [("me.1",), ("me.2",)]


@contextmanager
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Between a keeper and the process that runs tools."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def test_leases_are_renewed_but_of_a_stopped_process_until_it_is_gone(
    leases: LeaseTable,
) -> None:
    queue, process = Renewing(), subprocess.Popen(["sleep", "60"])
    leases.hold("1-0", inf)
    process.send_signal(signal.SIGSTOP)
    await asyncio.to_thread(await_state, process.pid, "T")
    with channel() as (ours, _):
        keeper = LeaseKeeper(leases, queue.renew, "me", process.pid, 0.03)
        keeping = asyncio.create_task(keeper.run(ours))
        for _ in range(20):  # several beats
            await asyncio.sleep(0.01)
        renewed_while_stopped = list(queue.renewed)
        process.send_signal(signal.SIGCONT)
        await asyncio.wait_for(queue.came.wait(), 30)

        process.kill()

        assert await asyncio.wait_for(keeping, 30) is WorkerHealth.GONE
        process.wait()
    assert renewed_while_stopped == []
    assert queue.renewed[0] == ["1-0"]


async def test_the_worker_is_notified_of_a_lost_lease(leases: LeaseTable) -> None:
    queue = Renewing(lost=["2-0"])
    leases.hold("1-0", inf)
    leases.hold("2-0", inf)
    with channel() as (ours, theirs):
        keeper = LeaseKeeper(leases, queue.renew, "me", os.getpid(), 60)
        keeping = asyncio.create_task(keeper.run(ours))

        lost = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(theirs, 100), 30)

        keeping.cancel()
    assert lost == b"2-0\n"


# The supervisor


CHILD = """
import os, signal, socket, sys, time
from toolkiln.fleet.leases import LeaseTable
leases, channel = LeaseTable(int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
channel.send(sys.argv[3].encode())
"""


class Children:
    """Starts a child for each of some programs, and takes note of what was settled."""

    def __init__(self, *programs: str, says: str = READY.decode()) -> None:
        self._programs = iter(programs)
        self._says = says
        self.settled: list[tuple[str, ...]] = []
        self.started = asyncio.Event()
        self.supervisor = Supervisor("me", 2, self._start, self._keep, self._settle)

    async def _start(self, consumer: str, table: int, channel: int) -> asyncio.subprocess.Process:
        code, passed = CHILD + next(self._programs), [str(table), str(channel), self._says]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *passed, pass_fds=[table, channel]
        )
        self.started.set()
        return process

    def _keep(self, leases: LeaseTable, consumer: str, process: int) -> LeaseKeeper:
        return LeaseKeeper(leases, Renewing().renew, consumer, process, 0.1, frozen=0.5)

    async def _settle(self, consumer: str, begun: Collection[str]) -> None:
        self.settled.append((consumer, *begun))

    async def run(self) -> int:
        return await asyncio.wait_for(self.supervisor.run(), 60)


async def test_a_worker_that_dies_is_started_again_and_what_it_held_is_settled() -> None:
    kill = 'leases.hold("5-0", 1e9); os.kill(os.getpid(), signal.SIGKILL)'
    children = Children(kill, "sys.exit(7)", "sys.exit(0)")

    assert await children.run() == 0
    assert children.settled == [("me.1", "5-0"), ("me.2",), ("me.3",)]


async def test_a_worker_that_never_gets_ready_is_not_started_again() -> None:
    children = Children("sys.exit(2)", "sys.exit(0)", says="sorry")

    assert await children.run() == 2


async def test_a_worker_that_hangs_beyond_the_deadline_of_its_call_is_killed() -> None:
    long_ago = time.monotonic() - GRACE_SECONDS - SILENT_SECONDS - 1
    hang = f"""
from struct import pack_into
leases.hold("1-0", {long_ago})
pack_into("d", leases._memory, 0, {long_ago})
signal.pause()
"""
    children = Children(hang, "sys.exit(0)")

    assert await children.run() == 0
    assert children.settled == [("me.1", "1-0"), ("me.2",)]


async def test_a_stopped_supervisor_forwards_the_signal_and_starts_no_other() -> None:
    children = Children("signal.signal(15, lambda *_: sys.exit(3)); signal.pause()")
    running = asyncio.create_task(children.run())
    await children.started.wait()

    children.supervisor.stop()

    assert await running in (3, -15)  # it may have had no time to heed it
    assert children.settled == [("me.1",)]
