"""Toolkiln's client and worker, as `bench.fleet` starts them.

`python -m bench.fleet_sides worker URL` performs calls of a function in its own process;
`python -m bench.fleet_sides client URL TOOL` makes calls as the clients of `bench.queued` do.
"""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.queued import IN_FLIGHT, Call, answer_async
from toolkiln import Kiln, tool
from toolkiln.config import Settings
from toolkiln.fleet.worker_process import new_loop, serve_fleet


@tool(read_only=True)
async def add_one(number: int) -> int:
    """Add one to a number."""
    return number + 1


async def _work(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state=Path(folder))
        async with Kiln(functions=[add_one], settings=settings) as kiln:
            await serve_fleet(kiln, url, slots=IN_FLIGHT)


def _call(url: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kiln = Kiln.connect(url, settings=Settings(state=Path(folder)))

        async def prepare() -> Call:
            await kiln.__aenter__()
            while name not in kiln.services.registry.specs:  # the worker starts beside us
                await asyncio.sleep(0.1)

            async def call(number: int) -> Any:
                result = await kiln.call(name, {"number": number})
                return result.error or result.value

            return call

        answer_async(prepare, new_loop())


if __name__ == "__main__":
    logging.disable()
    side, where, *rest = sys.argv[1:]
    if side == "worker":
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_work(where))
    else:
        _call(where, *rest)
