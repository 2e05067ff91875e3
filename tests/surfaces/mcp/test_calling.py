"""Clients of both eras over HTTP: calls, and what happens while they run."""

import json
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult

from .served import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
ERAS = ["legacy", "2026-07-28"]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    era: str = request.param
    return era


async def test_a_result_is_the_same_in_content_and_structured_content(
    served: Served, era: str
) -> None:
    async with Client(served.url, mode=era) as client:
        listed = (await client.list_tools()).tools  # so that it checks results against schemas
        text = await client.call_tool("Shout-Aloud", {"text": 'say "hello"\n'})
        empty = await client.call_tool("Shout-Aloud", {"text": ""})
        wrapped = await client.call_tool("add", {"a": 2})
        plain = await client.call_tool("pair", {"a": "x"})
        mapped = next(one.name for one in listed if one.name.startswith("shout_aloud_"))
        by_mapped = await client.call_tool(mapped, {"text": "hey"})

    assert [block.text for block in text.content] == ['SAY "HELLO"\n']  # type: ignore[union-attr]
    assert text.structured_content == {"result": 'SAY "HELLO"\n'}
    assert (empty.content, empty.structured_content) == ([], {"result": ""})
    assert by_mapped.structured_content == {"result": "HEY"}
    assert wrapped.structured_content == {"result": 3}
    assert plain.structured_content == {"a": "x"}
    for given in (wrapped, plain):
        assert json.loads(given.content[0].text) == given.structured_content  # type: ignore[union-attr]
        assert not given.is_error


async def test_failures_have_no_structured_content(served: Served, era: str) -> None:
    async with Client(served.url, mode=era) as client:
        failed = await client.call_tool("fail", {})
        lied = await client.call_tool("lie", {})
        wrong: Any = {"toolkiln/request": [1]}
        with pytest.raises(MCPError, match="the request context of a call is an object"):
            await client.call_tool("add", {"a": 2}, meta=wrong)

    for given in (failed, lied):
        assert given.is_error
        assert given.structured_content is None
    assert "this never works" in failed.content[0].text  # type: ignore[union-attr]


async def test_progress_arrives_before_the_result(served: Served, era: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def observe(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with Client(served.url, mode=era) as client:
        given = await client.call_tool("work", {}, progress_callback=observe)

    assert given.structured_content == {"result": "worked"}
    assert seen == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]


async def test_the_person_at_the_client_approves_or_declines(served: Served, era: str) -> None:
    questions: list[str] = []
    actions: list[Any] = ["accept", "decline"]

    async def answer(context: Any, params: Any) -> ElicitResult:
        questions.append(params.message)
        action = actions[len(questions) - 1]
        return ElicitResult(action=action, content={} if action == "accept" else None)

    async with Client(served.url, mode=era, elicitation_callback=answer) as client:
        approved, declined = [
            await client.call_tool("risky", {"what": f"a {what}"}) for what in ("jump", "dive")
        ]

    assert "risky" in questions[0]
    assert "a jump" in questions[0]
    assert approved.structured_content == {"result": "did a jump"}
    assert (approved.is_error, declined.is_error) == (False, True)


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
