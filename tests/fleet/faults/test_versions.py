"""Tools that change while they are called: one deploy rolls over another."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from toolkiln import Kiln
from toolkiln.model.call import Status

from ..servers import Server
from ..workers import worker
from .conftest import Connect
from .reckoning import settled, soon, under_way

pytestmark = pytest.mark.faults

TOOLS = '''
from toolkiln import tool

@tool(read_only=True)
def version() -> int:
    """Tell which one this is."""
    return {number}

@tool
def linger(seconds: float) -> int:
    """Take some time, once."""
    import time
    time.sleep(seconds)
    return {number}
'''


def deployed(folder: Path, number: int) -> Path:
    """A folder of tools, of one version."""
    tools = folder / f"v{number}" / "tools"
    tools.mkdir(parents=True)
    (tools / "some.py").write_text(TOOLS.format(number=number))
    return tools


async def called_until(kiln: Kiln, value: int) -> list[tuple[Status, object]]:
    """What calls give, up to the first that gives this."""
    seen: list[tuple[Status, object]] = []
    async with asyncio.timeout(60):
        while not seen or seen[-1][1] != value:
            result = await kiln.call("version")
            seen.append((result.status, result.value))
    return seen


async def test_while_one_version_replaces_another_every_call_is_answered(
    server: Server, tmp_path: Path, connect: Connect
) -> None:
    first, second = deployed(tmp_path, 1), deployed(tmp_path, 2)
    with worker(server.url, first) as old:
        async with connect(server.url) as kiln:
            await called_until(kiln, 1)
            lingering = asyncio.create_task(kiln.call("linger", {"seconds": 4}))
            with closing(server.client()) as client:
                await soon(lambda: under_way(client)["held"])
            with worker(server.url, second):
                seen = await called_until(kiln, 2)
                stopped = await asyncio.to_thread(old.stop)
                seen += await called_until(kiln, 2)
                lingered = await lingering
                # The file of a worker changes under it.
                (second / "some.py").write_text(TOOLS.format(number=3))
                seen += await called_until(kiln, 3)

    assert stopped == 0
    assert {status for status, _ in seen} == {Status.OK}
    assert {value for _, value in seen} <= {1, 2, 3}
    assert (lingered.status, lingered.value) == (Status.OK, 1)
    await settled(server)
