"""Callers that die, lose patience, or make one call several times."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..servers import Server
from ..workers import performer
from .reckoning import begun, runs, settled

pytestmark = pytest.mark.faults

CALLER = """
import asyncio, sys
from toolkiln import Kiln

async def main():
    async with Kiln.connect(sys.argv[1]) as kiln:
        await kiln.call("nap", {"seconds": 0.5, "mark": "orphan"})

asyncio.run(main())
"""


async def test_the_call_of_a_caller_that_dies_runs_to_its_end_and_leaves_nothing(
    server: Server, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CALLER, server.url]
    with performer(server.url, tmp_path), subprocess.Popen(command, cwd=tmp_path) as caller:
        await begun(tmp_path, "orphan")

        caller.kill()

        await settled(server)
    assert len(runs(tmp_path, "orphan")) == 1
