"""Clients that subscribe to changes of resources."""

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
    """A note of that name."""
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
        '    """A note that never changes."""\n    return ""\n'
    )
    return tools


@asynccontextmanager
async def served_files(tools: Path) -> AsyncIterator[Served]:
    async with asyncio.timeout(BOUND), serving(tools.parent / "state", (), tools=tools) as served:
        yield served


async def test_a_client_of_the_handshake_era_is_notified_of_its_subscriptions(tools: Path) -> None:
    heard: set[str] = set()
    came = asyncio.Event()

    async def hear(message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            heard.add(message.params.uri)
        elif method == "notifications/prompts/list_changed":
            heard.add("prompts")
        if heard >= {*WATCHED, "prompts"}:
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

    assert heard == {*WATCHED, "prompts"}


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


async def test_subscriptions_are_bounded_in_number_and_length_and_lead_somewhere(
    tools: Path,
) -> None:
    refused = {f"notes://{'x' * 100_000}": "at most 2,000 characters", "nowhere://x": "not found"}
    many = [f"notes://{number}" for number in range(MAX_SUBSCRIPTIONS + 1)]
    async with served_files(tools) as served:
        async with Client(served.url, mode="legacy") as client:
            for uri in many[:-1]:
                await client.subscribe_resource(uri)
            await client.subscribe_resource(many[0])
            with pytest.raises(MCPError, match="at most") as bound:
                await client.subscribe_resource(many[-1])
            await client.unsubscribe_resource(many[0])
            for uri, words in refused.items():
                with pytest.raises(MCPError, match=words):
                    await client.subscribe_resource(uri)
        async with Client(served.url, mode="2026-07-28") as client:
            for uris in (many, list(refused)[:1]):
                with pytest.raises(MCPError, match="at most"):
                    async with client.listen(resource_subscriptions=uris):
                        pass

    assert bound.value.error.code == INVALID_PARAMS
