"""Long calls as tasks, in the form of each era, as bytes over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from .served import Served, serving
from .wire import TASKS, Legacy, meta, modern, modern_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bounded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server whose clients and approvals wait for a second at most."""
    folder = tmp_path_factory.mktemp("bounded")
    async with serving(folder, mcp_wait_seconds=1, approval_seconds=1) as server:
        yield server


async def test_a_legacy_client_makes_a_call_a_task_and_takes_its_result(
    served: Served, client: httpx.AsyncClient
) -> None:
    legacy = Legacy(client, served.url)
    hello = await legacy.start()
    made = await legacy.ask("tools/call", name="add", arguments={"a": 1}, task={"ttl": 1000})
    task = made["result"]["task"]["taskId"]
    result = await legacy.ask("tasks/result", taskId=task)
    state = await legacy.ask("tasks/get", taskId=task)
    listed = await legacy.ask("tasks/list")
    unknown = await legacy.ask("tasks/get", taskId="none")
    late = await legacy.ask("tasks/cancel", taskId=task)

    assert hello["result"]["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
    assert result["result"]["structuredContent"] == {"result": 2}
    related = result["result"]["_meta"]["io.modelcontextprotocol/related-task"]
    assert related == {"taskId": task}
    assert state["result"]["status"] == "completed"
    assert task in {one["taskId"] for one in listed["result"]["tasks"]}
    assert unknown["error"]["code"] == late["error"]["code"] == -32602


async def test_a_task_that_was_not_approved_in_time_says_so(
    bounded: Served, client: httpx.AsyncClient
) -> None:
    legacy = Legacy(client, bounded.url)
    await legacy.start()
    made = await legacy.ask("tools/call", name="risky", arguments={"what": "it"}, task={})
    task = made["result"]["task"]["taskId"]
    result = await legacy.ask("tasks/result", taskId=task)
    state = await legacy.ask("tasks/get", taskId=task)

    assert result["result"]["isError"]
    assert "this call was not approved in time" in result["result"]["content"][0]["text"]
    assert state["result"]["status"] == "completed"


async def test_a_client_finds_the_question_of_its_task_however_many_others_wait(
    served: Served, client: httpx.AsyncClient
) -> None:
    flooder = served.kiln.security.keys.create(
        "flooder", KeyScope(user_id="flooder"), LOCAL_OPERATOR
    )
    headers = {"authorization": f"Bearer {flooder.text}"}
    polling: dict[str, Any] = {
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}
    }
    call: dict[str, Any] = {"name": "risky", "arguments": {"what": "it"}, "_meta": meta(**polling)}
    made = await modern_reply(client, served.url, "tools/call", **call)
    task = made.json()["result"]["taskId"]
    await asyncio.gather(
        *(
            modern_reply(client, served.url, "tools/call", headers=headers, **call)
            for _ in range(100)
        )
    )
    asked = await modern(client, served.url, "tasks/get", {TASKS: {}}, taskId=task)
    (approval,) = asked["result"].get("inputRequests", ["none"])
    answers = {approval: {"action": "accept", "content": {}}}
    await modern(
        client, served.url, "tasks/update", {TASKS: {}}, taskId=task, inputResponses=answers
    )
    waiting = len(served.kiln.security.approvals.waiting(1_000))

    assert asked["result"]["status"] == "input_required"
    assert waiting == 100


async def test_a_legacy_client_stops_a_task(served: Served, client: httpx.AsyncClient) -> None:
    legacy = Legacy(client, served.url)
    await legacy.start()
    made = await legacy.ask("tools/call", name="wait", arguments={}, task={})
    task = made["result"]["task"]["taskId"]
    stopped = await legacy.ask("tasks/cancel", taskId=task)

    assert made["result"]["task"]["status"] == "working"
    assert stopped["result"]["status"] == "cancelled"


async def test_a_modern_client_polls_a_task_only_if_it_said_that_it_can(
    bounded: Served, client: httpx.AsyncClient
) -> None:
    plain = await modern(client, bounded.url, "tools/call", {}, name="wait", arguments={})
    able = await modern(client, bounded.url, "tools/call", {TASKS: {}}, name="wait", arguments={})
    task = able["result"]["taskId"]
    refused = await modern(client, bounded.url, "tasks/get", {}, taskId=task)
    state = await modern(client, bounded.url, "tasks/get", {TASKS: {}}, taskId=task)
    await modern(client, bounded.url, "tasks/cancel", {TASKS: {}}, taskId=task)
    ended = await modern(client, bounded.url, "tasks/get", {TASKS: {}}, taskId=task)
    again = await modern(client, bounded.url, "tasks/get", {TASKS: {}}, taskId=task)

    assert "await_task" in plain["result"]["content"][0]["text"]
    assert able["result"]["resultType"] == "task"
    assert refused["error"]["code"] == -32601
    assert state["result"]["status"] == "working"
    assert ended["result"]["status"] == "cancelled"
    assert {one["result"]["createdAt"] for one in (state, ended)} == {able["result"]["createdAt"]}
    assert again["result"]["lastUpdatedAt"] == ended["result"]["lastUpdatedAt"]


async def test_waiting_for_a_task_becomes_no_task_itself(
    bounded: Served, client: httpx.AsyncClient
) -> None:
    first = await modern(client, bounded.url, "tools/call", {}, name="wait", arguments={})
    waiting = {"task_id": first["result"]["_meta"]["toolkiln/task"], "seconds": 1.5}
    waited = await modern(
        client, bounded.url, "tools/call", {}, name="await_task", arguments=waiting
    )

    assert waited["result"]["structuredContent"]["state"] == "running"
