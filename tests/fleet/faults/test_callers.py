"""Callers that die, lose patience, or make one call several times."""

import asyncio
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from toolkiln.fleet import wire
from toolkiln.model.call import Status

from ..servers import Server
from ..workers import code_of, performer
from .conftest import Connect
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


async def test_a_late_reply_reaches_no_other_call(
    server: Server, tmp_path: Path, connect: Connect
) -> None:
    with performer(server.url, tmp_path):
        async with connect(server.url) as kiln:
            blocked = {"seconds": 2.5, "mark": "late"}
            result = await kiln.call("block", blocked, timeout=0.2)
            after = await kiln.call("double", {"number": 4})

    assert result.status is Status.TIMEOUT
    assert after.value == 8
    assert len(runs(tmp_path, "late")) == 1
    await settled(server)


async def test_a_call_that_is_made_by_several_under_one_id_runs_once(
    server: Server, tmp_path: Path, connect: Connect
) -> None:
    with performer(server.url, tmp_path):
        async with connect(server.url) as one, connect(server.url) as other:
            ann, ben = (
                one.security.sessions.create("ann").token,
                one.security.sessions.create("ben").token,
            )
            given = {"seconds": 0.3, "mark": "ann"}

            at_once = await asyncio.gather(
                *(
                    kiln.call("nap", given, call_id="same", session=ann)
                    for kiln in (one, other)
                    for _ in range(4)
                )
            )
            later = await other.call("nap", given, call_id="same", session=ann)
            different = await one.call(
                "nap", {"seconds": 0, "mark": "different"}, call_id="same", session=ann
            )
            bens = await one.call("nap", {"seconds": 0, "mark": "ben"}, call_id="same", session=ben)

    assert {result.status for result in (*at_once, later, bens)} == {Status.OK}
    assert code_of(different) == "conflict"
    made = {mark: len(runs(tmp_path, mark)) for mark in ("ann", "different", "ben")}
    assert made == {"ann": 1, "different": 0, "ben": 1}
    await settled(server)


async def test_a_call_too_large_to_be_sent_is_refused_before_it_is(
    server: Server, tmp_path: Path, connect: Connect
) -> None:
    with performer(server.url, tmp_path), closing(server.client()) as client:
        async with connect(server.url) as kiln:
            await kiln.call("double", {"number": 4})
            client.config_resetstat()
            too_large = {"seconds": 0, "mark": "x" * (wire.BODY_LIMIT + 1)}

            result = await kiln.call("nap", too_large)

            received = client.info("stats")["total_net_input_bytes"]
    assert result.status is Status.INVALID
    assert received < wire.BODY_LIMIT
    await settled(server)
