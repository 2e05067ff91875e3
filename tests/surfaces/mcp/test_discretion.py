"""Tools that rules hide from a caller: every answer is as if they did not exist."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from pydantic import Field

from toolkiln import Context, tool
from toolkiln.model.audit import AuditFilter
from toolkiln.surfaces.mcp.tools import wire_name

from .functions import FUNCTIONS
from .served import Served, serving
from .wire import TASKS, Legacy, modern, modern_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


Ask = Callable[..., Awaitable[dict[str, Any]]]
InHeader = Annotated[int, Field(json_schema_extra={"x-mcp-header": "A"})]
"""An argument that travels as a header too."""


@tool
def by_header(a: InHeader) -> int:
    """Give a number that is public."""
    return a


@tool
def secret_sum(a: InHeader) -> int:
    """Give a number that is private."""
    return a


@tool(name="Secret-Shout")
def secret_shout(text: str) -> str:
    """Shout what is private."""
    return text


@tool
def hand_on(name: str, ctx: Context) -> Any:
    """Call a tool whose name the model chose."""
    return ctx.call(name)


RULES = ({"effect": "deny", "tools": ("secret_*", "Secret-*"), "reason": "not for agents"},)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    functions = (*FUNCTIONS, by_header, secret_sum, secret_shout, hand_on)
    async with serving(tmp_path_factory.mktemp("discretion"), functions, rules=RULES) as server:
        yield server


@pytest.fixture
def ask(served: Served, client: httpx.AsyncClient) -> Ask:
    """Sends requests of the modern era."""
    return partial(modern, client, served.url)


def as_absent(answer: Any, hidden: str, absent: str) -> Any:
    """An answer about a hidden tool, as if it had been about an absent one."""
    return json.loads(json.dumps(answer).replace(hidden, absent))


async def test_a_tool_that_a_caller_may_not_run_is_neither_listed_nor_readable(ask: Ask) -> None:
    tools, pages = await ask("tools/list"), await ask("resources/list")
    hidden, absent = [
        await ask("resources/read", uri=f"toolkiln://tools/{name}")
        for name in ("secret_sum", "absent_sum")
    ]

    assert "ecret" not in json.dumps([tools, pages])
    assert hidden["error"]["message"] == "Resource not found"
    assert as_absent(hidden, "secret_sum", "absent_sum") == absent


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_hidden_tool_is_answered_as_one_that_is_not_there(
    served: Served, client: httpx.AsyncClient, ask: Ask, era: str
) -> None:
    legacy = Legacy(client, served.url)
    await legacy.start()
    send: Ask = legacy.ask if era == "legacy" else ask
    given: dict[str, Any] = {"arguments": {"a": "no number"}}
    forms: list[dict[str, Any]] = [{}, {"task": {}}]
    for hidden in ("secret_sum", "Secret-Shout", wire_name("Secret-Shout")):
        absent = hidden.replace("ecret", "ocret")

        for more in forms:
            kept, missing = [
                await send("tools/call", name=name, **given, **more) for name in (hidden, absent)
            ]

            assert more or missing["error"]["code"] == -32602
            assert as_absent(kept, hidden, absent) == missing


async def test_hints_do_not_name_a_hidden_tool(ask: Ask) -> None:
    hidden, near, other = [
        await ask("tools/call", name=name, arguments={})
        for name in ("secret_sum", "secret_sun", "long_tex")
    ]

    assert other["error"]["data"]["hint"] == "did you mean 'long_text'?"
    assert "did you mean" not in json.dumps([hidden, near])


async def test_tools_about_tools_leave_hidden_ones_out(ask: Ask) -> None:
    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        return await ask("tools/call", name=tool, arguments=arguments)

    found = [
        await call(name, query="a number that is private", k=20)
        for name in ("search_tools", "rag_search")
    ]

    assert "ecret" not in json.dumps(found)
    for through in ("call_tool", "hand_on", "describe_tool"):
        hidden, absent = [await call(through, name=name) for name in ("secret_sum", "absent_sum")]
        assert "there is no tool named 'absent_sum'" in absent["result"]["content"][0]["text"]
        assert as_absent(hidden, "secret_sum", "absent_sum") == absent


async def test_headers_of_arguments_do_not_reveal_a_hidden_tool(
    served: Served, client: httpx.AsyncClient
) -> None:
    more: dict[str, Any] = {"arguments": {"a": 1}, "headers": {"mcp-param-a": "2"}}
    seen, hidden, absent = [
        await modern_reply(client, served.url, "tools/call", name=name, **more)
        for name in ("by_header", "secret_sum", "absent_sum")
    ]

    assert (seen.status_code, seen.json()["error"]["code"]) == (400, -32020)
    assert hidden.status_code == absent.status_code
    assert as_absent(hidden.json(), "secret_sum", "absent_sum") == absent.json()


async def test_refused_calls_of_hidden_tools_are_in_the_audit(served: Served, ask: Ask) -> None:
    await ask("tools/call", name="secret_sum", arguments={"a": 1})
    nested_call = {"name": "secret_sum", "arguments": {"a": 1}}
    await ask("tools/call", name="call_tool", arguments=nested_call)

    wanted = AuditFilter(tool="secret_sum", outcome="denied")
    nested, direct = (entry.record for entry in served.kiln.security.audit.entries(wanted, 2))
    assert (direct.parent, bool(nested.parent)) == ("", True)
    assert all("not for agents" in record.detail for record in (direct, nested))


async def test_tasks_of_others_are_not_there(
    served: Served, client: httpx.AsyncClient, ask: Ask
) -> None:
    await served.kiln.call("add", {"a": 1}, call_id="theirs", background=True)
    legacy = Legacy(client, served.url)
    await legacy.start()

    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        theirs, absent = [await legacy.ask(method, taskId=task) for task in ("theirs", "nobodys")]
        assert absent["error"]["code"] == -32602
        assert as_absent(theirs, "theirs", "nobodys") == absent
    theirs, absent = [
        await ask("tasks/get", {TASKS: {}}, taskId=task) for task in ("theirs", "nobodys")
    ]
    assert as_absent(theirs, "theirs", "nobodys") == absent
