"""What calls give beside their value, and what they say while they run, in both eras."""

import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from mcp_types import Icon

from tables import each_row

from .functions import FUNCTIONS
from .served import Served, serving
from .wire import TASKS, Legacy, messages, meta, modern, modern_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENDING = '''import json
import logging
from pathlib import Path
from typing import Any

from toolkiln import Context, tool

FILES = {
    "dot.png": b"\\x89PNG\\r\\n\\x1a\\n\\0",
    "beep.wav": b"RIFF\\0\\0",
    "notes.txt": "grüße".encode(),
    "data.bin": bytes(range(256)),
    "text.bin": b"ab\\0cd",
    "drawing.svg": b"<svg/>",
    "sp ace&.csv": b"a,b",
}


@tool
def send_files(ctx: Context) -> str:
    """Send files of many kinds."""
    for name, data in FILES.items():
        (ctx.workdir / name).write_bytes(data)
        ctx.send_file(ctx.workdir / name)
    return "sent"


@tool
def send_messages(ctx: Context) -> dict[str, int]:
    """Send rich messages and offer tools."""
    ctx.send_message("a line for the user")
    ctx.send_message({"card": {"title": "Grüße"}})
    ctx.inject_tools("add", "pair")
    return {"sent": 2}


@tool(icon="megaphone", color="emerald")
def tell(ctx: Context) -> str:
    """Write log lines."""
    ctx.log("first")
    ctx.send_message({"card": "Ü"})
    ctx.inject_tools("add")
    ctx.log("second", logging.WARNING)
    return "told"


@tool(icon="text")
def much(size: int) -> list[str]:
    """Give many words."""
    return ["word"] * size


@tool(return_char_limit=100, icon="no-such-icon")
def plain(size: int):
    """Give a text without a promise."""
    return "é" * size


@tool(name="Wordy-Tool")
def wordy() -> str:
    """Say little.

    MANY SENTENCES
    """
    return "little"
'''.replace("MANY SENTENCES", "This is one of many sentences. " * 50 + "This is the last one.")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    place = tmp_path_factory.mktemp("content")
    (place / "tools").mkdir()
    (place / "tools" / "sending.py").write_text(SENDING)
    async with serving(place / "state", FUNCTIONS, tools=place / "tools") as server:
        yield server


async def called(
    client: httpx.AsyncClient, served: Served, era: str, name: str, **arguments: Any
) -> dict[str, Any]:
    """The result of a call."""
    if era == "modern":
        answer = await modern(client, served.url, "tools/call", name=name, arguments=arguments)
    else:
        legacy = Legacy(client, served.url)
        await legacy.start()
        answer = await legacy.ask("tools/call", name=name, arguments=arguments)
    result: dict[str, Any] = answer["result"]
    return result


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_files_are_blocks_of_their_kind(
    client: httpx.AsyncClient, served: Served, era: str
) -> None:
    result = await called(client, served, era, "send_files")

    value, png, wav, txt, data, nul, svg, odd = result["content"]
    assert value["text"] == "sent"
    assert result["structuredContent"] == {"result": "sent"}
    assert (png["type"], png["mimeType"]) == ("image", "image/png")
    assert b64decode(png["data"]) == b"\x89PNG\r\n\x1a\n\0"
    assert (wav["type"], wav["mimeType"]) == ("audio", "audio/wav")
    assert b64decode(wav["data"]) == b"RIFF\0\0"
    assert txt["type"] == "resource"
    assert (txt["resource"]["text"], txt["resource"]["mimeType"]) == ("grüße", "text/plain")
    assert b64decode(data["resource"]["blob"]) == bytes(range(256))
    assert data["resource"]["mimeType"] == "application/octet-stream"
    assert b64decode(nul["resource"]["blob"]) == b"ab\0cd"
    assert (svg["resource"]["text"], svg["resource"]["mimeType"]) == ("<svg/>", "image/svg+xml")
    assert odd["resource"]["uri"].endswith("/files/sp%20ace%26.csv")
    assert len({block["resource"]["uri"] for block in (txt, data, nul, svg, odd)}) == 5


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_rich_messages_are_for_the_user_and_offers_for_the_model(
    client: httpx.AsyncClient, served: Served, era: str
) -> None:
    result = await called(client, served, era, "send_messages")

    value, line, card, offer = result["content"]
    assert result["structuredContent"] == json.loads(value["text"]) == {"sent": 2}
    assert line == {
        "type": "text",
        "text": "a line for the user",
        "annotations": {"audience": ["user"]},
    }
    assert json.loads(card["text"]) == {"card": {"title": "Grüße"}}
    assert card["annotations"] == {"audience": ["user"]}
    assert "add, pair" in offer["text"]
    assert "annotations" not in offer


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_cut_output_names_the_tool_that_reads_on(
    client: httpx.AsyncClient, served: Served, era: str
) -> None:
    result = await called(client, served, era, "much", size=20_000)
    text = await called(client, served, era, "long_text", size=60_000)
    unpromised = await called(client, served, era, "plain", size=1000)
    nothing = await called(client, served, era, "plain", size=0)

    cut, why, reading_on = (block["text"] for block in result["content"])
    assert result["isError"] is True  # it has lost its form
    assert "structuredContent" not in result
    assert len(cut) <= 50_000
    assert "was truncated" in why
    assert "read_output" in reading_on
    handle = reading_on.split('"')[1]
    page = await called(client, served, era, "read_output", handle=handle, offset=159_990)
    assert page["structuredContent"]["text"].endswith('word"]')
    assert text["content"][0]["text"] == text["structuredContent"]["result"]
    assert len(text["structuredContent"]["result"]) <= 50_000
    shown, reading_on = (block["text"] for block in unpromised["content"])
    assert not unpromised.get("isError")
    assert shown.startswith("é")
    assert len(shown) <= 200
    assert "of 1,000 characters were omitted" in reading_on
    assert (nothing["content"], bool(nothing.get("isError"))) == ([], False)


async def test_a_long_description_names_where_the_rest_is(
    client: httpx.AsyncClient, served: Served
) -> None:
    listed = (await modern(client, served.url, "tools/list"))["result"]["tools"]
    (described,) = (one["description"] for one in listed if one["title"] == "Wordy")

    text, _, more = described.rpartition("\n\nMore: ")
    page, tool = re.findall(r"the resource (\S+), or (\w+)\.", more)[0]
    read = await modern(client, served.url, "resources/read", uri=page)

    assert len(described) <= 1_000
    assert text.endswith("This is one of many sentences.")
    assert "This is the last one." in read["result"]["contents"][0]["text"]
    assert tool in {one["name"] for one in listed}


def log_lines(heard: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log lines among messages."""
    return [one["params"] for one in heard if one.get("method") == "notifications/message"]


LINES = [
    {"level": "info", "logger": "tell", "data": "first"},
    {
        "level": "info",
        "logger": "tell",
        "data": {"kind": "message", "value": {"card": "Ü"}, "index": 0},
    },
    {"level": "info", "logger": "tell", "data": {"kind": "injected", "text": "add", "index": 0}},
    {"level": "warning", "logger": "tell", "data": "second"},
]


async def test_log_lines_come_before_the_result_from_the_level_that_a_session_set(
    client: httpx.AsyncClient, served: Served
) -> None:
    legacy, other = Legacy(client, served.url), Legacy(client, served.url)
    call = {"name": "tell", "arguments": {}}
    hello = await legacy.start()
    await other.start()

    unset = await legacy.messages("tools/call", **call)
    await legacy.ask("logging/setLevel", level="warning")
    warnings = await legacy.messages("tools/call", **call)
    beside = await other.messages("tools/call", **call)
    await legacy.ask("logging/setLevel", level="info")
    lines = await legacy.messages("tools/call", **call)
    wrong = await legacy.ask("logging/setLevel", level="loud")

    assert "logging" in hello["result"]["capabilities"]
    assert log_lines(unset) == log_lines(beside) == log_lines(lines) == LINES
    assert log_lines(warnings) == LINES[-1:]
    assert wrong["error"]["code"] == -32602
    for heard in (unset, warnings, beside, lines):
        assert heard[-1]["result"]["structuredContent"] == {"result": "told"}


@each_row("level, lines", [(None, []), ("debug", LINES), ("info", LINES), ("error", [])])
async def test_a_modern_request_says_which_log_lines_it_wants(
    client: httpx.AsyncClient, served: Served, level: str | None, lines: list[dict[str, Any]]
) -> None:
    more: dict[str, Any] = {"io.modelcontextprotocol/logLevel": level} if level else {}
    call: dict[str, Any] = {"name": "tell", "arguments": {}, "_meta": meta(**more)}

    heard = messages(await modern_reply(client, served.url, "tools/call", **call))

    assert log_lines(heard) == lines
    assert heard[-1]["result"]["structuredContent"] == {"result": "told"}


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_task_asks_its_client_who_answers_with_an_update(
    client: httpx.AsyncClient, served: Served, action: str
) -> None:
    async def ask(method: str, **params: Any) -> dict[str, Any]:
        answer = await modern(client, served.url, method, {TASKS: {}}, **params)
        result: dict[str, Any] = answer["result"]
        return result

    call = {"name": "risky", "arguments": {"what": f"a jump {action}"}}
    unable = {**meta({TASKS: {}}), "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {TASKS: {}}}}  # fmt: skip
    made = await ask("tools/call", **call, _meta=unable)
    waits = await ask("tasks/get", taskId=made["taskId"])
    ((key, question),) = waits["inputRequests"].items()
    await ask("tasks/update", taskId=made["taskId"], inputResponses={"other": {"action": action}})
    still = await ask("tasks/get", taskId=made["taskId"])
    answers = {key: {"action": action, "content": {}}}
    taken = await ask("tasks/update", taskId=made["taskId"], inputResponses=answers)
    await ask("tools/call", name="await_task", arguments={"task_id": made["taskId"]})
    ended = await ask("tasks/get", taskId=made["taskId"])

    assert (made["resultType"], made["status"]) == ("task", "input_required")
    assert "a jump" in question["params"]["message"]
    assert still["status"] == "input_required"
    assert taken["resultType"] == "complete"
    assert ended["status"] == "completed"
    if action == "accept":
        assert ended["result"]["structuredContent"] == {"result": f"did a jump {action}"}
    else:
        assert ended["result"]["isError"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_icon_is_a_drawing_in_the_list_in_the_color_of_its_tool(
    client: httpx.AsyncClient, served: Served, era: str
) -> None:
    if era == "modern":
        answer = await modern(client, served.url, "tools/list")
    else:
        legacy = Legacy(client, served.url)
        await legacy.start()
        answer = await legacy.ask("tools/list")

    listed = {tool["name"]: tool for tool in answer["result"]["tools"]}
    (tell,), (much,) = listed["tell"]["icons"], listed["much"]["icons"]
    assert (tell["mimeType"], tell["sizes"]) == ("image/svg+xml", ["any"])
    assert 'stroke="#10b981"' in drawn(tell)
    assert 'stroke="#808080"' in drawn(much)  # an image has no text around it
    assert listed["tell"]["_meta"]["toolkiln/icon"] == "megaphone"
    assert listed["plain"]["_meta"]["toolkiln/icon"] == "wrench"
    assert "icons" in listed["rag_search"]


async def test_a_long_list_has_the_names_of_icons_without_the_drawings(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.tools.MAX_TOOLS_WITH_ICONS", 3)

    async with serving(tmp_path) as server:
        answer = await modern(client, server.url, "tools/list")

    listed = {tool["name"]: tool for tool in answer["result"]["tools"]}
    assert listed["rag_search"]["_meta"] == {"toolkiln/icon": "wrench"}
    assert not any("icons" in tool for tool in listed.values())


def drawn(icon: dict[str, Any]) -> str:
    """The drawing that a client makes of an icon."""
    kind, _, data = Icon.model_validate(icon).src.partition(",")
    assert kind == "data:image/svg+xml;base64"
    return b64decode(data).decode()
