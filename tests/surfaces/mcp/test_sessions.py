"""Calls within a session of the handshake era, as bytes over HTTP."""

import httpx2 as httpx
import pytest
import pytest_asyncio

from tables import each_row

from .served import Served
from .wire import Legacy, messages

pytestmark = pytest.mark.asyncio(loop_scope="module")
ADD = {"name": "add", "arguments": {"a": 2}}


@pytest_asyncio.fixture(loop_scope="module")
async def session(served: Served, client: httpx.AsyncClient) -> Legacy:
    legacy = Legacy(client, served.url)
    await legacy.start()
    return legacy


async def test_a_quick_call_is_answered_without_a_stream(session: Legacy) -> None:
    answer = await session.post("tools/call", ADD)

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["structuredContent"] == {"result": 3}


async def test_a_call_that_reports_something_first_gets_a_stream(session: Legacy) -> None:
    params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "here"}}

    answer = await session.post("tools/call", params)

    received = messages(answer)
    assert answer.headers["content-type"] == "text/event-stream"
    assert [one.get("method") for one in received[:3]] == ["notifications/progress"] * 3
    assert received[-1]["result"]["structuredContent"] == {"result": "worked"}


async def test_an_error_is_streamed(session: Legacy) -> None:
    answer = await session.post("tools/call", {"name": "nothing"})

    assert answer.headers["content-type"] == "text/event-stream"
    assert [one["error"]["code"] for one in messages(answer)] == [-32602]


async def test_a_long_call_is_answered_with_a_comment_before_it_ends(
    session: Legacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint._STREAM_AFTER_SECONDS", 0.0)

    answer = await session.post("tools/call", ADD)

    assert answer.text.startswith(":")
    assert [one["result"]["structuredContent"] for one in messages(answer)] == [{"result": 3}]


@each_row(
    "header, value, status",
    [
        ("accept", "application/json", 406),
        ("content-type", "text/plain", 415),
        ("mcp-session-id", "0" * 32, 404),
    ],
)
async def test_a_call_in_the_wrong_form_is_refused(
    session: Legacy, header: str, value: str, status: int
) -> None:
    answer = await session.post("tools/call", ADD, **{header: value})

    assert answer.status_code == status
