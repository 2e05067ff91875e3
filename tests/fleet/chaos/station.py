"""A program that performs calls for the chaos. Not a test itself.

station.py URL FOLDER    says `ready`; each function leaves a line in FOLDER/MARK when it begins
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from toolkiln import Context, Kiln, tool
from toolkiln.config import Settings
from toolkiln.fleet.supervisor import WorkerConfig
from toolkiln.fleet.worker_process import new_loop, run_embedded_worker

LEASE = 2.0
FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()


@tool
async def act(mark: str, seconds: float, ctx: Context) -> str:
    """Do what must not be done twice."""
    return await _do(mark, seconds, ctx)


@tool(idempotent=True)
async def redo(mark: str, seconds: float, ctx: Context) -> str:
    """Do what may be done again."""
    return await _do(mark, seconds, ctx)


async def _do(mark: str, seconds: float, ctx: Context) -> str:
    with (FOLDER / mark).open("a") as file:
        file.write(f"{os.getpid()} at {time.time():.2f}\n")
    ctx.report_progress(0, 1, "begun")
    await asyncio.sleep(seconds)
    ctx.report_progress(1, 1, "done")
    return mark


async def main(url: str, folder: str) -> None:
    """Does the above."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    state = Path(folder).parent / f"state-{os.getpid()}"
    settings = Settings(state=state, drain_seconds=1)
    async with Kiln(functions=[act, redo], settings=settings) as kiln:
        post = WorkerConfig(url, slots=8, lease=LEASE)
        await run_embedded_worker(
            kiln.services, post, lambda: print("ready", file=sys.stderr, flush=True), stop
        )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(*sys.argv[1:]))
