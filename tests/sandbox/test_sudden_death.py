"""kill -9 of a sandbox ends its call in one result; of the service, it leaves no process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.sandbox.bubblewrap import find_cgroup, interpreter

from .conftest import ATTACKS, BOUND, all_gone, is_reachable, running, settings, skip_without
from .test_leaks import descendants

pytestmark = pytest.mark.faults

HOST = """
import asyncio, sys
from pathlib import Path
from toolkiln.kiln import Kiln
from toolkiln.config import Settings

async def main(tools, state, mode, marker):
    settings = Settings(state=Path(state), sandbox=mode, allow_reduced=True)
    async with Kiln(tools, settings=settings, dev=True) as kiln:
        for _ in range(3):
            await kiln.call("look_heavy", {"since": 0})
        calls = [kiln.call("run_on_and_wait", {"marker": marker}) for _ in range(3)]
        print(await asyncio.gather(*calls))

asyncio.run(main(*sys.argv[1:]))
"""


async def started(marker: str, count: int = 1) -> None:
    async with asyncio.timeout(3 * BOUND):
        while len(running(marker)) < count:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_a_call_whose_sandbox_is_killed_ends_in_one_result(
    mode: str, tmp_path: Path, marker: str
) -> None:
    async with Kiln(ATTACKS, settings=settings(tmp_path / "state", mode), dev=True) as kiln:
        await skip_without(kiln, mode, number=1)
        before = {pid for pid in descendants(os.getpid()) if _parent(pid) == os.getpid()}
        call = asyncio.create_task(kiln.call("run_on_and_wait", {"marker": marker}))
        await started(marker)
        ours = {pid for pid in descendants(os.getpid()) if _parent(pid) == os.getpid()}
        for pid in ours if mode == "A" else ours - before:
            os.kill(pid, signal.SIGKILL)

        async with asyncio.timeout(BOUND):
            result = await call
        after = await kiln.call("good", {"number": 1})

    if mode == "A":
        assert result.status is Status.UNAVAILABLE
    assert result.error is not None
    assert after.value == 2
    await all_gone(marker)


@pytest.mark.parametrize("mode", ["A", "B", "C"])
async def test_nothing_outlives_a_service_that_is_killed(
    mode: str, tmp_path: Path, marker: str
) -> None:
    if mode == "C" and not is_reachable(interpreter()):
        pytest.skip("mode C: an ordinary user cannot start this Python")
    arguments = [str(ATTACKS), str(tmp_path / "state"), mode, marker]
    host = subprocess.Popen([sys.executable, "-c", HOST, *arguments], stdout=subprocess.PIPE)
    try:
        await started(marker, 3)
        below = descendants(host.pid)
        host.kill()
        host.wait()
    finally:
        host.kill()
        host.communicate()

    await all_gone(marker)
    async with asyncio.timeout(BOUND):
        while any(_is_alive(pid) for pid in below):
            await asyncio.sleep(0.02)
    await find_cgroup().close()
    left = [*Path("/sys/fs/cgroup").glob(f"*/toolkiln-{host.pid}-*")]
    assert [folder for folder in left if folder.exists()] == []


def _parent(pid: int) -> int:
    try:
        return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
