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


async def test_prompts_and_resources_are_listed_beside_tools_and_pages(
    served: Served, era: str
) -> None:
    async with connected(served, era) as client:
        prompts = (await client.list_prompts()).prompts
        tools = {tool.name for tool in (await client.list_tools()).tools}
        resources = {one.uri: one for one in (await client.list_resources()).resources}
        templates = (await client.list_resource_templates()).resource_templates

    by_name = {prompt.name: prompt for prompt in prompts}
    review = by_name["review"]
    assert [prompt.name for prompt in prompts] == sorted(by_name)
    assert (review.title, bool(review.icons)) == ("Code review", True)
    assert [(one.name, one.required, one.description) for one in review.arguments or ()] == [
        ("code", True, "The code."),
        ("tone", False, "How to put it."),
        ("times", False, "How often to look."),
    ]
    assert any(name.startswith("talk_it_over_") for name in by_name)
    assert "add" in tools
    assert not tools & {"review", "today", "note"}
    assert resources["notes://today"].mime_type == "text/markdown"
    assert "toolkiln://tools/add" in resources
    hidden = {"toolkiln://tools/today", "toolkiln://tools/review", "pictures://text"}
    assert not hidden & resources.keys()
    assert [one.uri_template for one in templates] == [
        "toolkiln://tools/{name}", "notes://{year}/{name}",
    ]  # fmt: skip


async def test_a_prompt_takes_arguments_as_text_and_may_be_a_conversation(
    served: Served, era: str
) -> None:
    async with connected(served, era) as client:
        review = await client.get_prompt("review", {"code": "x = 1", "times": "3"})
        talk = await client.get_prompt("Talk-It-Over")

    (message,) = review.messages
    assert (message.role, message.content.text) == ("user", "plain 3 x = 1")  # type: ignore[union-attr]
    assert review.description == "Ask for the faults of some code, the worst one first."
    assert [(one.role, one.content.type) for one in talk.messages] == [
        ("user", "text"), ("assistant", "text"), ("user", "image"),
    ]  # fmt: skip


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


REFUSED_PROMPTS: list[tuple[str, dict[str, str], int, str]] = [
    ("reviev", {}, INVALID_PARAMS, "Unknown prompt"),
    ("add", {"a": "1"}, INVALID_PARAMS, "Unknown prompt"),
    ("review", {}, INVALID_PARAMS, "code"),
    ("review", {"code": "x", "tone": "rude"}, INVALID_PARAMS, "tone"),
    ("review", {"code": "x", "times": "often"}, INVALID_PARAMS, "times"),
    ("broken", {}, INTERNAL_ERROR, "there is nothing to say"),
    ("endless", {}, INTERNAL_ERROR, "0.2"),
    ("guarded", {}, INTERNAL_ERROR, "approval"),
    *(
        ("misshapen", {"kind": kind}, INTERNAL_ERROR, "The prompt misshapen returned")
        for kind in (
            "number", "nothing", "dict", "texts", "role", "content", "base64", "missing",
        )
    ),
]  # fmt: skip


async def test_a_prompt_that_cannot_be_given_is_an_error(served: Served, era: str) -> None:
    async with connected(served, era) as client:
        for name, arguments, code, words in REFUSED_PROMPTS:
            with pytest.raises(MCPError) as failed:
                await client.get_prompt(name, arguments)

            assert failed.value.error.code == code, (name, arguments)
            assert words in failed.value.error.message
        with pytest.raises(MCPError, match="Unknown tool") as no_tool:
            await client.call_tool("review", {"code": "x"})

    assert no_tool.value.error.code == INVALID_PARAMS


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


async def test_a_resource_that_cannot_be_read_is_an_error(served: Served, era: str) -> None:
    missing = [
        "notes://nowhere", "notes://", "x", "toolkiln://tools/today", "pictures://text", "notes://1/",
    ]  # fmt: skip
    async with connected(served, era) as client:
        for uri in missing:
            with pytest.raises(MCPError, match="Resource not found") as failed:
                await client.read_resource(uri)

            assert failed.value.error.code == (-32002 if era == "legacy" else INVALID_PARAMS)
        for uri, words in (("notes://broken", "the note is lost"), ("notes://then/x", "year")):
            with pytest.raises(MCPError, match=words):
                await client.read_resource(uri)


async def test_arguments_are_completed_from_the_types_in_the_source(
    served: Served, era: str
) -> None:
    review, note = PromptReference(name="review"), "notes://{year}/{name}"
    page = "toolkiln://tools/{name}"
    completed: list[tuple[Any, str, str, list[str]]] = [
        (review, "tone", "", ["kind", "plain"]),
        (review, "tone", "PL", ["plain"]),
        (review, "code", "x", []),
        (ResourceTemplateReference(uri=note), "name", "su", ["summer"]),
        (ResourceTemplateReference(uri=page), "name", "a", ["add"]),
    ]
    unknown: list[tuple[Any, str]] = [
        (PromptReference(name="add"), "a"),
        (review, "colour"),
        (ResourceTemplateReference(uri="notes://{x}"), "x"),
        (ResourceTemplateReference(uri="pictures://text"), "x"),
    ]
    async with connected(served, era) as client:
        for reference, argument, typed, values in completed:
            found = (
                await client.complete(reference, {"name": argument, "value": typed})
            ).completion

            assert found.values == values
            assert (found.total, found.has_more) == (len(values), False)
        for reference, argument in unknown:
            with pytest.raises(MCPError) as failed:
                await client.complete(reference, {"name": argument, "value": ""})

            assert failed.value.error.code == INVALID_PARAMS


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
    """So many bytes that are no text."""
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
