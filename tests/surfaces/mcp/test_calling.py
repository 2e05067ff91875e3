"""Clients of both eras over HTTP: calls, and what happens while they run."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from .functions import ENDED, STARTED
from .served import BOUND, Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
ERAS = ["legacy", "2026-07-28"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
async def test_text_is_plain_in_content_and_wrapped_in_structured_content(
    served: Served, era: str
) -> None:
    async with Client(served.url, mode=era) as client:
        await client.list_tools()  # so that it checks results against output schemas
        given = await client.call_tool("Shout-Aloud", {"text": 'say "hello"\n'})
        empty = await client.call_tool("Shout-Aloud", {"text": ""})

    assert [block.text for block in given.content] == ['SAY "HELLO"\n']  # type: ignore[union-attr]
    assert given.structured_content == {"result": 'SAY "HELLO"\n'}
    assert (empty.content, empty.structured_content) == ([], {"result": ""})


@pytest.mark.parametrize("era", ERAS)
async def test_other_results_are_the_same_json_in_content_and_structured_content(
    served: Served, era: str
) -> None:
    async with Client(served.url, mode=era) as client:
        wrapped = await client.call_tool("add", {"a": 2})
        plain = await client.call_tool("pair", {"a": "x"})

    assert wrapped.structured_content == {"result": 3}
    assert plain.structured_content == {"a": "x"}
    for given in (wrapped, plain):
        assert json.loads(given.content[0].text) == given.structured_content  # type: ignore[union-attr]
        assert not given.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_with_schemas_and_hints(served: Served, era: str) -> None:
    async with Client(served.url, mode=era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    add = tools["add"]
    assert add.title == "Add"
    assert add.annotations is not None
    assert add.annotations.read_only_hint is True
    assert tools["pair"].annotations is not None
    assert tools["pair"].annotations.destructive_hint is True
    assert add.output_schema is not None
    assert add.output_schema["properties"]["result"] == {"type": "integer"}
    assert add.input_schema["properties"]["b"]["description"] == "The second. (default: 1)"
    assert {"rag_search", "await_task", "read_output"} <= tools.keys()
    assert not {"search_tools", "call_tool"} & tools.keys()


@pytest.mark.parametrize("era", ERAS)
async def test_own_tools_say_what_they_change(tmp_path: Path, era: str) -> None:
    async with (
        serving(tmp_path, mcp_tools=1) as server,
        Client(server.url, mode=era) as client,
    ):
        listed = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}

    own = {
        name: (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)
        for name, hints in listed.items()
        if hints is not None
    }
    assert own == {
        "search_tools": (True, False, False),
        "describe_tool": (True, False, False),
        "rag_search": (True, False, False),
        "read_output": (True, False, False),
        "check_task": (True, False, False),
        "await_task": (True, False, False),
        "cancel_task": (False, True, False),
        "call_tool": (False, True, True),
        "write_python_tool": (False, True, True),
    }
    assert listed["cancel_task"] is not None
    assert listed["cancel_task"].idempotent_hint is True


@pytest.mark.parametrize("era", ERAS)
async def test_an_odd_name_is_mapped_and_both_names_are_taken(served: Served, era: str) -> None:
    async with Client(served.url, mode=era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        mapped = next(name for name in names if name.startswith("shout_aloud_"))
        by_either = [
            await client.call_tool(name, {"text": "hey"}) for name in (mapped, "Shout-Aloud")
        ]

    assert [given.structured_content for given in by_either] == [{"result": "HEY"}] * 2


@pytest.mark.parametrize("era", ERAS)
async def test_bad_arguments_are_an_answer_and_unknown_tools_an_error(
    served: Served, era: str
) -> None:
    async with Client(served.url, mode=era) as client:
        bad = await client.call_tool("add", {"a": "much"})
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("ad", {})

    assert bad.is_error
    assert "a: " in bad.content[0].text  # type: ignore[union-attr]
    assert unknown.value.error.code == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_failures_have_no_structured_content(served: Served, era: str) -> None:
    async with Client(served.url, mode=era) as client:
        failed = await client.call_tool("fail", {})
        lied = await client.call_tool("lie", {})

    for given in (failed, lied):
        assert given.is_error
        assert given.structured_content is None
    assert "this never works" in failed.content[0].text  # type: ignore[union-attr]


async def test_a_cut_output_names_what_reads_the_rest(served: Served) -> None:
    async with Client(served.url) as client:
        cut = await client.call_tool("long_text", {"size": 60_000})
        told = cut.content[-1].text  # type: ignore[union-attr]
        handle = told.split('"')[1]
        page = await client.call_tool("read_output", {"handle": handle, "offset": 59_990})

    assert len(cut.structured_content["result"]) <= 50_000
    assert cut.content[0].text == cut.structured_content["result"]  # type: ignore[union-attr]
    assert "read_output" in told
    assert page.structured_content["text"] == "x" * 10


@pytest.mark.parametrize("era", ERAS)
async def test_progress_arrives_before_the_result(served: Served, era: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def observe(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with Client(served.url, mode=era) as client:
        given = await client.call_tool("work", {}, progress_callback=observe)

    assert given.structured_content == {"result": "worked"}
    assert seen == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_goes_ends_its_call(served: Served, era: str) -> None:
    STARTED.clear()
    ENDED.clear()
    async with Client(served.url, mode=era) as client:
        calling = asyncio.create_task(client.call_tool("wait", {}))
        assert await asyncio.to_thread(STARTED.wait, BOUND)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

        assert await asyncio.to_thread(ENDED.wait, BOUND)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_person_at_the_client_is_asked(served: Served, era: str, action: Any) -> None:
    asked: list[Any] = []

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action=action, content={} if action == "accept" else None)

    async with Client(served.url, mode=era, elicitation_callback=answer) as client:
        given = await client.call_tool("risky", {"what": "a jump"})

    assert "risky" in asked[0].message
    assert "a jump" in asked[0].message
    assert given.is_error is (action == "decline")
    if action == "accept":
        assert given.structured_content == {"result": "did a jump"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_this_client_cannot_approve_waits_as_a_task(
    served: Served, era: str
) -> None:
    async with Client(served.url, mode=era) as client:
        given = await client.call_tool("risky", {"what": "a jump"})
        task = given.meta["toolkiln/task"] if given.meta else ""
        guarding = served.kiln.security
        (waiting,) = (one for one in guarding.approvals.waiting() if one.call_id == task)
        guarding.approve(waiting.id)
        ended = await client.call_tool("await_task", {"task_id": task})

    assert "await_task" in given.content[0].text  # type: ignore[union-attr]
    assert ended.structured_content["result"] == "did a jump"
