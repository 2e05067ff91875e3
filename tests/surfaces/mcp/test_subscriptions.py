"""Clients that are told when what stands behind an address changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated
from mcp_types import INVALID_PARAMS

from toolkiln.surfaces.mcp.resources import MAX_SUBSCRIPTIONS

from .served import BOUND, Served, serving

pytestmark = pytest.mark.filterwarnings(
    "ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning"
)

FILE = '''
from toolkiln import prompt, resource, tool


@tool
def greet() -> str:
    """Greet everybody who is there, {number} times."""
    return "Hello"


@prompt
def review() -> str:
    """Ask for a review of what there is."""
    return "Look"


@resource("notes://{{name}}")
def note(name: str) -> str:
    """A note of that name.

    Args:
        name: The name.
    """
    return name
'''
WATCHED = ["notes://a", "toolkiln://tools/greet"]


def write(tools: Path, number: int) -> None:
    (tools / "all.py").write_text(FILE.format(number=number))


@asynccontextmanager
async def changing(tools: Path) -> AsyncIterator[None]:
    """Change the file again and again: watching may begin after the first time."""

    async def change() -> None:
        number = 0
        while True:
            write(tools, number := number + 1)
            await asyncio.sleep(0.3)

    task = asyncio.create_task(change())
    try:
        yield
    finally:
        task.cancel()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    write(tools, 0)
    (tools / "still.py").write_text(
        'from toolkiln import resource\n\n@resource("still://x")\ndef still() -> str:\n'
        '    """A note that nobody ever changes."""\n    return ""\n'
    )
    return tools


@asynccontextmanager
async def served_files(tools: Path) -> AsyncIterator[Served]:
    async with asyncio.timeout(BOUND), serving(tools.parent / "state", (), tools=tools) as served:
        yield served


async def test_a_client_of_the_handshake_era_is_notified_of_its_subscriptions(tools: Path) -> None:
    told: set[str] = set()
    came = asyncio.Event()

    async def hear(message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            told.add(message.params.uri)
        elif method == "notifications/prompts/list_changed":
            told.add("prompts")
        if told >= {*WATCHED, "prompts"}:
            came.set()

    async with (
        served_files(tools) as served,
        Client(served.url, mode="legacy", message_handler=hear) as client,
    ):
        for uri in [*WATCHED, "notes://b", "still://x"]:
            await client.subscribe_resource(uri)
        await client.unsubscribe_resource("notes://b")
        async with changing(tools):
            await came.wait()

    assert told == {*WATCHED, "prompts"}


async def test_a_stream_of_the_modern_era_is_notified_of_its_subscriptions(tools: Path) -> None:
    heard: set[str] = set()

    async with served_files(tools) as served, Client(served.url, mode="2026-07-28") as client:
        asked = [*WATCHED, "still://x", "nowhere://x"]
        async with (
            client.listen(prompts_list_changed=True, resource_subscriptions=asked) as stream,
            changing(tools),
        ):
            honored = stream.honored.resource_subscriptions
            async for event in stream:
                if isinstance(event, ResourceUpdated):
                    heard.add(event.uri)
                elif isinstance(event, PromptsListChanged):
                    heard.add("prompts")
                if heard >= {*WATCHED, "prompts"}:
                    break

    assert honored == [*WATCHED, "still://x"]
    assert heard == {*WATCHED, "prompts"}


async def test_subscriptions_are_bounded_and_lead_somewhere(tools: Path) -> None:
    async with served_files(tools) as served:
        async with Client(served.url, mode="legacy") as client:
            for number in range(MAX_SUBSCRIPTIONS):
                await client.subscribe_resource(f"notes://{number}")
            await client.subscribe_resource("notes://0")
            with pytest.raises(MCPError, match="at most") as bound:
                await client.subscribe_resource("notes://more")
            with pytest.raises(MCPError, match="not found"):
                await client.subscribe_resource("nowhere://x")
        async with Client(served.url, mode="2026-07-28") as client:
            named = [f"notes://{number}" for number in range(MAX_SUBSCRIPTIONS + 1)]
            with pytest.raises(MCPError, match="at most"):
                async with client.listen(resource_subscriptions=named):
                    pass

    assert bound.value.error.code == INVALID_PARAMS


async def test_an_address_that_is_too_long_to_be_kept_is_refused(tools: Path) -> None:
    long = f"notes://{'x' * 100_000}"
    async with served_files(tools) as served:
        async with Client(served.url, mode="legacy") as client:
            with pytest.raises(MCPError, match="at most 2,000 characters"):
                await client.subscribe_resource(long)
        async with Client(served.url, mode="2026-07-28") as client:
            with pytest.raises(MCPError, match="at most 2,000 characters"):
                async with client.listen(resource_subscriptions=[long]):
                    pass
