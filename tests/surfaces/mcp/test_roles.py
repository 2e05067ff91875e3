"""Prompts and resources that are functions, as clients of both eras see them."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ElicitResult,
    PromptReference,
    ResourceTemplateReference,
)

from .role_functions import FUNCTIONS, PICTURE
from .served import BOUND, Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

ERAS = ("legacy", "2026-07-28")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    hidden: dict[str, Any] = {"effect": "deny", "tools": ("readable",)}
    state = tmp_path_factory.mktemp("roles")
    async with serving(state, FUNCTIONS, rules=(hidden,)) as served:
        yield served


@asynccontextmanager
async def connected(
    served: Served, era: str, answer: ElicitationFnT | None = None
) -> AsyncIterator[Client]:
    client = Client(served.url, mode=era, elicitation_callback=answer)
    async with asyncio.timeout(BOUND), client:
        yield client


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    era: str = request.param
    return era


async def test_prompts_are_listed_with_what_they_take(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        listed = (await client.list_prompts()).prompts
        tools = {tool.name for tool in (await client.list_tools()).tools}

    by_name = {prompt.name: prompt for prompt in listed}
    review = by_name["review"]
    assert [prompt.name for prompt in listed] == sorted(by_name)
    assert (review.title, bool(review.icons)) == ("Code review", True)
    assert [(one.name, one.required, one.description) for one in review.arguments or ()] == [
        ("code", True, "The code."),
        ("tone", False, "How to put it."),
        ("times", False, "How often to look."),
    ]
    assert any(name.startswith("talk_it_over_") for name in by_name)
    assert "add" in tools
    assert not tools & {"review", "today", "note"}


async def test_arguments_become_what_the_function_takes(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        found = await client.get_prompt("review", {"code": "x = 1", "times": "3"})

    (message,) = found.messages
    assert (message.role, message.content.text) == ("user", "plain 3 x = 1")  # type: ignore[union-attr]
    assert found.description == "Ask for the faults of some code, the worst one first."


async def test_a_prompt_may_be_a_conversation(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        found = await client.get_prompt("Talk-It-Over")

    assert [(one.role, one.content.type) for one in found.messages] == [
        ("user", "text"),
        ("assistant", "text"),
        ("user", "image"),
    ]


async def test_a_prompt_may_ask_the_person_at_the_client(served: Served, era: str) -> None:
    async def answer(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with connected(served, era, answer) as client:
        found = await client.get_prompt("greet")

    assert found.messages[0].content.text == "Hello Ada"  # type: ignore[union-attr]


async def test_a_client_waits_for_a_prompt_however_long_it_takes(
    served: Served, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.kiln.engine.tasks, "soft_limit", 0.01)

    async with connected(served, era) as client:
        found = await client.get_prompt("slow")

    assert found.messages[0].content.text == "at last"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "said"),
    [
        ("reviev", {}, INVALID_PARAMS, "Unknown prompt"),
        ("add", {"a": "1"}, INVALID_PARAMS, "Unknown prompt"),
        ("review", {}, INVALID_PARAMS, "code"),
        ("review", {"code": "x", "tone": "rude"}, INVALID_PARAMS, "tone"),
        ("review", {"code": "x", "times": "often"}, INVALID_PARAMS, "times"),
        ("broken", {}, INTERNAL_ERROR, "there is nothing to say"),
        ("endless", {}, INTERNAL_ERROR, "0.2"),
        ("guarded", {}, INTERNAL_ERROR, "approval"),
    ],
)
async def test_what_a_prompt_cannot_give_is_an_error(
    served: Served, era: str, name: str, arguments: dict[str, str], code: int, said: str
) -> None:
    async with connected(served, era) as client:
        with pytest.raises(MCPError) as failed:
            await client.get_prompt(name, arguments)

    assert failed.value.error.code == code
    assert said in failed.value.error.message


@pytest.mark.parametrize(
    "kind", ["number", "nothing", "dict", "texts", "role", "content", "base64", "missing"]
)
async def test_what_is_no_message_is_kept_from_clients(served: Served, kind: str) -> None:
    async with connected(served, "2026-07-28") as client:
        with pytest.raises(MCPError, match="The prompt misshapen returned") as failed:
            await client.get_prompt("misshapen", {"kind": kind})

    assert failed.value.error.code == INTERNAL_ERROR


async def test_a_prompt_is_no_tool(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        with pytest.raises(MCPError, match="Unknown tool") as failed:
            await client.call_tool("review", {"code": "x"})

    assert failed.value.error.code == INVALID_PARAMS


async def test_resources_are_listed_beside_pages(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        listed = {one.uri: one for one in (await client.list_resources()).resources}
        templates = (await client.list_resource_templates()).resource_templates

    assert listed["notes://today"].mime_type == "text/markdown"
    assert "toolkiln://tools/add" in listed
    assert not {"toolkiln://tools/today", "toolkiln://tools/review", "pictures://text"} & set(
        listed
    )
    assert [one.uri_template for one in templates] == [
        "toolkiln://tools/{name}",
        "notes://{year}/{name}",
    ]


async def test_a_resource_is_read_as_what_it_is(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        text = (await client.read_resource("notes://today")).contents[0]
        data = (await client.read_resource("pictures://dot")).contents[0]
        value = (await client.read_resource("notes://2026/a%2Fb")).contents[0]
        long = (await client.read_resource("notes://long")).contents[0]

    assert (text.mime_type, text.text) == ("text/markdown", "# Today")  # type: ignore[union-attr]
    assert (data.mime_type, b64decode(data.blob)) == ("image/png", PICTURE)  # type: ignore[union-attr]
    assert value.mime_type == "application/json"
    assert json.loads(value.text) == {"year": 2026, "name": "a/b"}  # type: ignore[union-attr]
    assert len(long.text) == 200_000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "uri",
    ["notes://nowhere", "notes://", "x", "toolkiln://tools/today", "pictures://text", "notes://1/"],
)
async def test_what_is_nowhere_is_not_found(served: Served, era: str, uri: str) -> None:
    async with connected(served, era) as client:
        with pytest.raises(MCPError, match="Resource not found") as failed:
            await client.read_resource(uri)

    assert failed.value.error.code == (-32002 if era == "legacy" else INVALID_PARAMS)


@pytest.mark.parametrize(
    ("uri", "said"), [("notes://broken", "the note is lost"), ("notes://then/x", "year")]
)
async def test_a_resource_that_fails_says_why(
    served: Served, era: str, uri: str, said: str
) -> None:
    async with connected(served, era) as client:
        with pytest.raises(MCPError, match=said):
            await client.read_resource(uri)


@pytest.mark.parametrize(
    ("reference", "argument", "typed", "values"),
    [
        (PromptReference(name="review"), "tone", "", ["kind", "plain"]),
        (PromptReference(name="review"), "tone", "PL", ["plain"]),
        (PromptReference(name="review"), "code", "x", []),
        (ResourceTemplateReference(uri="notes://{year}/{name}"), "name", "su", ["summer"]),
        (ResourceTemplateReference(uri="toolkiln://tools/{name}"), "name", "a", ["add"]),
    ],
)
async def test_arguments_are_completed_from_what_the_source_says(
    served: Served, era: str, reference: Any, argument: str, typed: str, values: list[str]
) -> None:
    async with connected(served, era) as client:
        found = await client.complete(reference, {"name": argument, "value": typed})

    assert found.completion.values == values
    assert (found.completion.total, found.completion.has_more) == (len(values), False)


@pytest.mark.parametrize(
    ("reference", "argument"),
    [
        (PromptReference(name="add"), "a"),
        (PromptReference(name="review"), "colour"),
        (ResourceTemplateReference(uri="notes://{x}"), "x"),
        (ResourceTemplateReference(uri="pictures://text"), "x"),
    ],
)
async def test_what_is_not_there_is_not_completed(
    served: Served, reference: Any, argument: str
) -> None:
    async with connected(served, "2026-07-28") as client:
        with pytest.raises(MCPError) as failed:
            await client.complete(reference, {"name": argument, "value": ""})

    assert failed.value.error.code == INVALID_PARAMS


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_capabilities_are_declared_in_both_eras(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        found = client.server_capabilities

    assert found is not None
    assert found.prompts is not None
    assert found.prompts.list_changed
    assert found.resources is not None
    assert found.resources.subscribe
    assert found.completions is not None


SANDBOXED = '''
from pathlib import Path

from toolkiln import Context, prompt, resource


@prompt(capabilities=["files"])
def look(ctx: Context) -> str:
    """Show a picture and ask what it is."""
    Path("dot.png").write_bytes(bytes(range(256)))
    ctx.send_file("dot.png")
    return "What is it?"


@resource("raw://{size}")
def raw(size: int) -> bytes:
    """So many bytes that are no text.

    Args:
        size: How many.
    """
    return b"\\\\xff" * size
'''


async def test_files_and_bytes_leave_the_sandbox_as_they_are(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "roles.py").write_text(SANDBOXED.replace("\\\\", "\\"))

    async with (
        serving(tmp_path / "state", (), tools=tools) as served,
        connected(served, "2026-07-28") as client,
    ):
        looked = (await client.get_prompt("look")).messages
        data = (await client.read_resource("raw://1000")).contents[0]
        with pytest.raises(MCPError, match="larger than 16 MB"):
            await client.read_resource(f"raw://{17 << 20}")

    assert [one.content.type for one in looked] == ["image", "text"]
    assert b64decode(looked[0].content.data) == bytes(range(256))  # type: ignore[union-attr]
    assert b64decode(data.blob) == b"\xff" * 1000  # type: ignore[union-attr]
