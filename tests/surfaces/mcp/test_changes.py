"""How clients of both eras hear of changes of the catalog, and large catalogs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.subscriptions import ToolsListChanged

from ..conftest import GREET
from .functions import FUNCTIONS
from .served import BOUND, serving


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_tool_that_is_written_is_announced_and_listed(tmp_path: Path, era: str) -> None:
    tools, heard = tmp_path / "tools", asyncio.Event()
    tools.mkdir()
    (tools / "greet.py").write_text(GREET)

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.set()

    async with (
        serving(tmp_path / "state", FUNCTIONS, tools=tools) as served,
        Client(served.url, mode=era, message_handler=hear) as client,
        asyncio.timeout(BOUND),
    ):
        before = {tool.name for tool in (await client.list_tools()).tools}
        if era == "legacy":
            changing = asyncio.create_task(_change_until(tools, heard))
            await heard.wait()
        else:
            async with client.listen(tools_list_changed=True) as changes:
                changing = asyncio.create_task(_change_until(tools, heard))
                async for event in changes:
                    if isinstance(event, ToolsListChanged):
                        heard.set()
                        break
        await changing
        after = {tool.name for tool in (await client.list_tools()).tools}

    assert "greet" in before
    assert "welcome" in after - before


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_version_without_admission_is_marked_until_it_is_admitted(
    tmp_path: Path, era: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "greet.py").write_text(GREET)
    async with serving(tmp_path / "state", FUNCTIONS, tools=tools) as served:
        before = await _marks(served.url, era)
        admissions = served.kiln.services.admissions
        by = served.kiln.security.decision()
        await asyncio.to_thread(admissions.admit, [admissions.candidate("greet.py")], by)
        after = await _marks(served.url, era)

    assert before == {"greet": True, "add": None, "call": True}
    assert after == {"greet": None, "add": None, "call": None}


async def _marks(url: str, era: str) -> dict[str, object]:
    """The mark in `_meta` of two tools, and of a call of one, for a client without a cache."""
    async with Client(url, mode=era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("greet", {"name": "Ada"})
    marked = {"greet": listed["greet"].meta, "add": listed["add"].meta, "call": result.meta}
    return {name: (meta or {}).get("toolkiln/dev") for name, meta in marked.items()}


async def _change_until(tools: Path, heard: asyncio.Event) -> None:
    """Change a file again and again: watching may begin after the first time."""
    number = 0
    while not heard.is_set():
        number += 1
        text = GREET.replace("greet", "welcome").replace("Hello", f"Hello {number}")
        (tools / "welcome.py").write_text(text)
        await asyncio.sleep(0.3)


async def test_a_large_catalog_is_found_and_called_by_tools_that_declare_their_effects(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, mcp_tools=3) as served, Client(served.url) as client:
        listed = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        called = await client.call_tool("call_tool", {"name": "add", "arguments": {"a": 4}})
        direct = await client.call_tool("add", {"a": 4})
        described = await client.call_tool("describe_tool", {"name": "add"})

    effects = {
        name: (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)
        for name, hints in listed.items()
        if hints is not None
    }
    reading = ("search_tools", "describe_tool", "rag_search", "read_output", "check_task")
    assert effects == {
        **dict.fromkeys((*reading, "await_task"), (True, False, False)),
        "cancel_task": (False, True, False),
        "call_tool": (False, True, True),
        "write_python_tool": (False, True, True),
    }
    assert listed["cancel_task"] is not None
    assert listed["cancel_task"].idempotent_hint is True
    assert called.structured_content is None or "5" in called.content[0].text  # type: ignore[union-attr]
    assert direct.structured_content == {"result": 5}
    assert described.structured_content["name"] == "add"
