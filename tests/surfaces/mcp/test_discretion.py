"""Tools that rules hide from a caller: whatever is asked of them, they are not there."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from pydantic import Field

from toolkiln import Context, tool
from toolkiln.model.audit import AuditFilter
from toolkiln.surfaces.mcp.tools import wire_name

from .functions import FUNCTIONS
from .served import BOUND, Served, serving
from .wire import TASKS, Legacy, modern, modern_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


Told = Annotated[int, Field(json_schema_extra={"x-mcp-header": "A"})]
"""An argument that travels as a header too."""


@tool
def by_header(a: Told) -> int:
    """Give a number that anybody may have.

    Args:
        a: A number.
    """
    return a


@tool
def secret_sum(a: Told) -> int:
    """Give a number that is nobody's business.

    Args:
        a: A number.
    """
    return a


@tool(name="Secret-Shout")
def secret_shout(text: str) -> str:
    """Shout what is nobody's business.

    Args:
        text: What to say.
    """
    return text


@tool
def hand_on(name: str, ctx: Context) -> Any:
    """Call a tool whose name the model chose.

    Args:
        name: The tool.
    """
    return ctx.call(name)


RULES = ({"effect": "deny", "tools": ("secret_*", "Secret-*"), "reason": "not for agents"},)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    functions = (*FUNCTIONS, by_header, secret_sum, secret_shout, hand_on)
    async with serving(tmp_path_factory.mktemp("discretion"), functions, rules=RULES) as server:
        yield server


def as_absent(answer: dict[str, Any], hidden: str, absent: str) -> Any:
    """An answer about a hidden tool, as if it had been asked about an absent one."""
    return json.loads(json.dumps(answer).replace(hidden, absent))


async def test_what_a_caller_may_not_run_is_neither_listed_nor_readable(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        tools = await modern(client, served.url, "tools/list")
        pages = await modern(client, served.url, "resources/list")
        hidden, absent = [
            await modern(client, served.url, "resources/read", uri=f"toolkiln://tools/{name}")
            for name in ("secret_sum", "absent_sum")
        ]

    assert "ecret" not in json.dumps([tools, pages])
    assert hidden["error"]["message"] == "Resource not found"
    assert as_absent(hidden, "secret_sum", "absent_sum") == absent


@pytest.mark.parametrize("hidden", ["secret_sum", "Secret-Shout", wire_name("Secret-Shout")])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_hidden_tool_is_answered_as_one_that_is_not_there(
    served: Served, era: str, hidden: str
) -> None:
    absent = hidden.replace("ecret", "ocret")

    async with httpx.AsyncClient(timeout=BOUND) as client:
        legacy = Legacy(client, served.url)
        await legacy.start()

        async def call(name: str, **more: Any) -> dict[str, Any]:
            params: dict[str, Any] = {"name": name, "arguments": {"a": "no number"}, **more}
            if era == "legacy":
                return await legacy.ask("tools/call", **params)
            return await modern(client, served.url, "tools/call", **params)

        kept, missing = await call(hidden), await call(absent)
        task, no_task = await call(hidden, task={}), await call(absent, task={})

    assert missing["error"]["code"] == -32602
    assert as_absent(kept, hidden, absent) == missing
    assert as_absent(task, hidden, absent) == no_task


async def test_a_hidden_tool_gets_the_hints_of_one_that_is_not_there(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        hidden = await modern(client, served.url, "tools/call", name="secret_sum", arguments={})
        near = await modern(client, served.url, "tools/call", name="secret_sun", arguments={})
        other = await modern(client, served.url, "tools/call", name="long_tex", arguments={})

    assert other["error"]["data"]["hint"] == "did you mean 'long_text'?"
    assert "did you mean" not in json.dumps([hidden, near])


@pytest.mark.parametrize("through", ["call_tool", "hand_on"])
async def test_a_tool_that_calls_a_hidden_one_finds_none(served: Served, through: str) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        hidden, absent = [
            await modern(client, served.url, "tools/call", name=through, arguments={"name": name})
            for name in ("secret_sum", "absent_sum")
        ]

    assert "there is no tool named 'absent_sum'" in absent["result"]["content"][0]["text"]
    assert as_absent(hidden, "secret_sum", "absent_sum") == absent


async def test_tools_about_tools_leave_hidden_ones_out(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        told = [
            await modern(client, served.url, "tools/call", name=name, arguments=arguments)
            for name, arguments in (
                ("search_tools", {"query": "a number that is nobody's business", "k": 50}),
                ("rag_search", {"query": "a number that is nobody's business", "k": 20}),
            )
        ]
        described, absent = [
            await modern(
                client, served.url, "tools/call", name="describe_tool", arguments={"name": name}
            )
            for name in ("secret_sum", "absent_sum")
        ]

    assert "ecret" not in json.dumps(told)
    assert as_absent(described, "secret_sum", "absent_sum") == absent


async def test_headers_of_arguments_do_not_betray_a_hidden_tool(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        seen, hidden, absent = [
            await modern_reply(
                client, served.url, "tools/call", name=name, arguments={"a": 1},
                headers={"mcp-param-a": "2"},
            )
            for name in ("by_header", "secret_sum", "absent_sum")
        ]  # fmt: skip

    assert (seen.status_code, seen.json()["error"]["code"]) == (400, -32020)
    assert hidden.status_code == absent.status_code
    assert as_absent(hidden.json(), "secret_sum", "absent_sum") == absent.json()


async def test_what_callers_do_not_see_is_in_the_audit(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        for name, arguments in (
            ("secret_sum", {"a": 1}),
            ("call_tool", {"name": "secret_sum", "arguments": {"a": 1}}),
        ):
            await modern(client, served.url, "tools/call", name=name, arguments=arguments)

    wanted = AuditFilter(tool="secret_sum", outcome="denied")
    nested, direct = (entry.record for entry in served.kiln.security.audit.entries(wanted, 2))
    assert (direct.parent, bool(nested.parent)) == ("", True)
    assert all("not for agents" in record.detail for record in (direct, nested))


async def test_tasks_of_others_are_not_there(served: Served) -> None:
    kiln = served.kiln
    await kiln.call("add", {"a": 1}, call_id="theirs", background=True)

    async with httpx.AsyncClient(timeout=BOUND) as client:
        legacy = Legacy(client, served.url)
        await legacy.start()
        for method in ("tasks/get", "tasks/cancel", "tasks/result"):
            theirs, absent = [
                await legacy.ask(method, taskId=task) for task in ("theirs", "nobodys")
            ]
            assert absent["error"]["code"] == -32602
            assert as_absent(theirs, "theirs", "nobodys") == absent
        theirs, absent = [
            await modern(client, served.url, "tasks/get", {TASKS: {}}, taskId=task)
            for task in ("theirs", "nobodys")
        ]

    assert as_absent(theirs, "theirs", "nobodys") == absent
