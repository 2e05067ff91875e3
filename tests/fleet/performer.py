"""A program that performs calls with functions of its own. Not a test itself.

performer.py URL LEASE SLOTS FOLDER    says `ready`; what functions leave behind is in FOLDER
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolkiln import Context, Kiln, tool
from toolkiln.config import Settings
from toolkiln.fleet.supervisor import WorkerConfig
from toolkiln.fleet.worker_process import new_loop, run_embedded_worker

FOLDER = Path(sys.argv[4]) if len(sys.argv) > 4 else Path()


@tool(read_only=True)
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(read_only=True)
async def halve(number: int) -> float:
    """Halve a number; how often is limited."""
    return number / 2


@tool
async def nap(seconds: float, mark: str, ctx: Context) -> str:
    """Sleep, which must not happen twice."""
    return await _sleep(seconds, mark, ctx)


@tool(idempotent=True)
async def doze(seconds: float, mark: str, ctx: Context) -> str:
    """Sleep if it is the first time; it may be begun again."""
    return await _sleep(0 if (FOLDER / mark).exists() else seconds, mark, ctx)


@tool(idempotent=True, timeout=1)
async def block(seconds: float, mark: str, ctx: Context) -> str:
    """Keep the event loop from going on."""
    _note(mark)
    time.sleep(seconds)
    return "blocked"


@tool(idempotent=True)
async def hold(count: int, mark: str) -> int:
    """Let no other thread of the process go on."""
    _note(mark)
    return sum(range(count))  # one call from one bytecode to the next


@tool(read_only=True)
async def give(count: int) -> str:
    """Give a long text."""
    return "x" * count


@tool(idempotent=True)
async def linger(seconds: float, mark: str) -> str:
    """Sleep each time that it is begun."""
    _note(mark)
    await asyncio.sleep(seconds)
    return "lingered"


@tool(idempotent=True)
async def die(mark: str) -> str:
    """Kill the process."""
    _note(mark)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool
async def act(mark: str, seconds: float, ctx: Context) -> str:
    """Do what must not be done twice."""
    return await _do(mark, seconds, ctx)


@tool(idempotent=True)
async def redo(mark: str, seconds: float, ctx: Context) -> str:
    """Do what may be done again."""
    return await _do(mark, seconds, ctx)


async def _do(mark: str, seconds: float, ctx: Context) -> str:
    await _sleep(seconds, mark, ctx)
    ctx.report_progress(1, 1, "done")
    return mark


async def _sleep(seconds: float, mark: str, ctx: Context) -> str:
    _note(mark)
    ctx.report_progress(0, None, f"begun by {os.getpid()}")
    await asyncio.sleep(seconds)
    return f"slept by {os.getpid()}"


def _note(mark: str) -> None:
    """Leave a line behind for each time that a function was begun."""
    with (FOLDER / mark).open("a") as file:
        file.write(f"{os.getpid()}\n")


FUNCTIONS: list[Callable[..., Any]] = [
    double, halve, nap, doze, block, hold, give, linger, die, act, redo,
]  # fmt: skip


async def main(url: str, lease: str, slots: str, folder: str) -> None:
    """Does the above."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    post = WorkerConfig(url, slots=int(slots), lease=float(lease), block_ms=200)
    settings = Settings(
        state=Path(folder) / f"state-{os.getpid()}",
        drain_seconds=1,
        rates={"halve": {"caller": "1000000/minute"}},
    )
    async with Kiln(functions=FUNCTIONS, settings=settings) as kiln:
        await run_embedded_worker(
            kiln.services, post, lambda: print("ready", file=sys.stderr, flush=True), stop
        )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(*sys.argv[1:]))
