"""What ends a call ends the process in the sandbox that runs it, whichever way clients take."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from .functions import FUNCTIONS
from .served import BOUND, Served, serving
from .spoken import Spoken
from .wire import HELLO, Legacy, meta, modern_request, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEATING = '''import time
from pathlib import Path

from toolkiln import tool


@tool(workspace="write", timeout=120, parallel=True)
def beat(name: str) -> str:
    """Write numbers to a file, for ever."""
    number = 0
    while True:
        Path("/workspace", name).write_text(str(number := number + 1))
        time.sleep(0.005)
'''
GRANTS = {"beat": {"workspace": "write"}}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beating") / "tools"
    folder.mkdir()
    (folder / "beat.py").write_text(BEATING)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tools: Path) -> AsyncIterator[Served]:
    state = tools.parent / "state"
    async with serving(state, FUNCTIONS, tools=tools, grants=GRANTS) as server:
        yield server


def space(served: Served) -> Path:
    return served.kiln.engine.workspaces.open("default", writable=True).folder


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.01)


async def until_still(file: Path) -> None:
    """Wait until a file, which was written every few milliseconds, no longer changes."""
    async with asyncio.timeout(BOUND):
        seen = 0
        while seen != (seen := file.stat().st_mtime_ns):
            await asyncio.sleep(0.2)


async def running(file: Path) -> None:
    """Wait until a call beats, and has not stopped."""
    await until(file.exists)
    before = file.stat().st_mtime_ns
    await until(lambda: file.stat().st_mtime_ns != before)


async def opened(served: Served, body: dict[str, Any], headers: dict[str, str]) -> Any:
    """A socket over which a request was sent."""
    data = json.dumps(body).encode()
    shown = {**headers, "host": "127.0.0.1", "content-length": str(len(data))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(served.url).port)
    writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + data)
    return writer


@pytest.mark.parametrize("wants_stream", [False, True])
async def test_a_modern_client_that_vanishes_ends_its_call(
    served: Served, wants_stream: bool
) -> None:
    name = f"modern_{wants_stream}"
    more: dict[str, Any] = {"progressToken": 1} if wants_stream else {}
    params = {"name": "beat", "arguments": {"name": name}, "_meta": meta(**more)}

    writer = await opened(served, *modern_request("tools/call", params))
    await running(space(served) / name)
    writer.transport.abort()

    await until_still(space(served) / name)


async def test_a_client_of_the_handshake_era_cancels_its_call(
    served: Served, client: httpx.AsyncClient
) -> None:
    file = space(served) / "legacy"
    legacy = Legacy(client, served.url)
    await legacy.start()
    params = {"name": "beat", "arguments": {"name": "legacy"}}
    calling = asyncio.create_task(legacy.messages("tools/call", **params))
    await running(file)
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    await client.post(served.url, json={"jsonrpc": "2.0", **cancelled}, headers=legacy.headers)

    await until_still(file)
    await asyncio.wait_for(calling, BOUND)


async def test_a_session_of_the_handshake_era_that_ends_ends_its_calls(
    served: Served, client: httpx.AsyncClient
) -> None:
    file = space(served) / "session"
    legacy = Legacy(client, served.url)
    await legacy.start()
    body = request("tools/call", 2, name="beat", arguments={"name": "session"})
    writer = await opened(served, body, legacy.headers)
    await running(file)
    writer.transport.abort()
    await running(file)
    ended = await legacy.end()
    later = await legacy.post("ping")

    await until_still(file)
    assert (ended.status_code, later.status_code) == (200, 404)


@pytest.mark.parametrize("method", ["tasks/cancel", "cancel_task"])
async def test_a_task_that_is_cancelled_ends(
    served: Served, client: httpx.AsyncClient, method: str
) -> None:
    file = space(served) / method.replace("/", "_")
    legacy = Legacy(client, served.url)
    await legacy.start()
    made = await legacy.ask("tools/call", name="beat", arguments={"name": file.name}, task={})
    task = made["result"]["task"]["taskId"]
    await running(file)
    if method == "tasks/cancel":
        await legacy.ask(method, taskId=task)
    else:
        await legacy.ask("tools/call", name=method, arguments={"task_id": task})

    await until_still(file)


async def beats(spoken: Spoken, name: str) -> Path:
    """The file that a call writes, once it does."""
    # A name that starts with a dot is of a folder that is being made, and soon renamed.
    found = partial((spoken.state / "workspaces").glob, f"[!.]*/files/{name}")
    await until(lambda: any(found()))
    (file,) = found()
    await running(file)
    return file


@pytest.fixture
def spoken(tools: Path) -> Iterator[Spoken]:
    (tools.parent / "toolkiln.toml").write_text('[grants.beat]\nworkspace = "write"\n')
    environ = {**os.environ, "TOOLKILN_STATE": str(tools.parent / "spoken")}
    with Spoken(tools.parent, "--dev", environ=environ) as spoken:
        spoken.state = tools.parent / "spoken"
        yield spoken


async def test_over_stdio_a_cancelled_call_ends_and_so_do_all_when_the_client_goes(
    spoken: Spoken,
) -> None:
    spoken.say("initialize", 1, **HELLO)
    spoken.say("notifications/initialized")
    spoken.say("tools/call", 2, name="beat", arguments={"name": "stdio"})
    file = await beats(spoken, "stdio")
    spoken.say("notifications/cancelled", requestId=2)
    await until_still(file)
    spoken.say("ping", 3)
    assert spoken.hear(3)["result"] == {}

    spoken.say("tools/call", 4, name="beat", arguments={"name": "left"})
    file = await beats(spoken, "left")
    spoken.close()

    await until_still(file)
    assert await asyncio.to_thread(spoken.process.wait, BOUND) == 0


async def test_over_stdio_a_modern_call_is_cancelled_and_others_end_with_a_killed_server(
    spoken: Spoken,
) -> None:
    spoken.say("tools/call", 1, name="beat", arguments={"name": "modern"}, _meta=meta())
    file = await beats(spoken, "modern")
    spoken.say("notifications/cancelled", requestId=1, _meta=meta())
    await until_still(file)
    assert "tools" in spoken.ask("tools/list", 2)["result"]

    spoken.say("tools/call", 3, name="beat", arguments={"name": "killed"}, _meta=meta())
    file = await beats(spoken, "killed")
    spoken.process.kill()

    await until_still(file)
