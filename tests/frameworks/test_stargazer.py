"""Stargazer: files that use `ToolContext` and its lists, called unmodified."""

from typing import Any

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Result, Status

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "glaze_chart.py": '''
        """Charts of glazes."""

        from __future__ import annotations

        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from tool_context import ToolContext

        TOOL_NAME = "glaze_chart"
        TOOL_DESCRIPTION = "Draw a chart of a glaze for the room that asked for it."
        TOOL_PARAMETERS = {
            "type": "object",
            "properties": {"glaze": {"type": "string", "description": "Name of the glaze."}},
            "required": ["glaze"],
        }


        async def run(glaze: str, ctx: "ToolContext | None" = None) -> str:
            with open("chart.txt", "w") as chart:
                chart.write(glaze)
            ctx.sent_files.append({"data": b"png", "filename": f"{glaze}.png"})
            ctx.sent_files += ["chart.txt"]
            ctx.sent_rich_messages.extend([{"title": glaze}, "done"])
            ctx.sent_rich_messages.insert(0, "first of the list, last to leave")
            ctx.injected_tools = [*ctx.injected_tools, "fire_kiln"]
            ctx.injected_tools.append("cool_kiln")
            ctx.injected_tools.remove("fire_kiln")
            skills = len(ctx.disclosed_skill_ids)
            return f"{ctx.user_name} {ctx.message_id} {ctx.room_context} {skills}"
    ''',
    "whoami.py": '''
        from tool_context import ToolContext


        def whoami(where: ToolContext) -> list:
            """Tell who calls.

            Returns:
                The caller.
            """
            assert isinstance(where, ToolContext)
            return [where.user_id, where.platform, where.guild_id, where.channel_id, where.request]


        def reach(name: str, where: ToolContext) -> str:
            """Use what the process of the bot has.

            Args:
                name: Name of the attribute.
            """
            assert getattr(where, name, "absent") == "absent"
            return str(getattr(where, name))


        def send(item: dict, where: ToolContext) -> None:
            """Send a file.

            Args:
                item: What to send.
            """
            where.sent_files.append(item)


        def relay(where: ToolContext) -> list:
            """Tell who calls, through another tool."""
            return where.call("whoami")
    ''',
    "bot/tool_context.py": """
        from dataclasses import dataclass


        @dataclass
        class ToolContext:
            user_id: str = ""
    """,
    "bot/own_class.py": '''
        from tool_context import ToolContext


        def own_class(where: ToolContext | None = None) -> str:
            """Tell who calls, with the bot's own module beside the file."""
            return where.user_name
    ''',
}
REQUEST: dict[str, Any] = {
    "user_name": "Ann", "message_id": "m7", "room_context": "pottery", "disclosed_skill_ids": [1],
    "is_admin": True, "user_id": "root",
}  # fmt: skip


async def test_what_is_added_to_the_lists_of_the_context_is_delivered_in_order(kiln: Kiln) -> None:
    events: list[Event] = []
    arguments = {"glaze": "celadon"}

    result = await kiln.call("glaze_chart", arguments, request=REQUEST, observe=events.append)

    assert result.value == "Ann m7 pottery 1", result.error
    assert [(file.name, file.data) for file in result.files] == [
        ("celadon.png", b"png"),
        ("chart.txt", b"celadon"),
    ]
    assert result.messages == ({"title": "celadon"}, "done", "first of the list, last to leave")
    assert result.injected_tools == ("fire_kiln", "cool_kiln")
    assert [event.kind for event in events] == [*["file"] * 2, *["message"] * 3, *["injected"] * 2]


async def test_without_a_request_its_names_are_empty(kiln: Kiln) -> None:
    result = await kiln.call("glaze_chart", {"glaze": "celadon"})

    assert result.value == "   0", result.error


async def test_a_context_of_the_bot_s_own_class_is_injected_too(kiln: Kiln) -> None:
    result = await kiln.call("own_class", request=REQUEST)

    assert result.value == "Ann", result.error
    assert kiln.tool("own_class").parameters["properties"] == {}


async def test_identity_is_that_of_the_session_whatever_the_request_says(kiln: Kiln) -> None:
    where: dict[str, Any] = {"platform": "discord", "guild_id": "g", "channel_id": "c"}
    session = kiln.security.sessions.create("42", **where)

    for tool in ("whoami", "relay"):
        result: Result = await kiln.call(tool, session=session.token, request=REQUEST)

        assert result.value == ["42", "discord", "g", "c", REQUEST], result.error


async def test_the_calls_in_a_model_s_message_have_the_request_of_the_program(kiln: Kiln) -> None:
    function = {"name": "own_class", "arguments": "{}"}
    message = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }

    (reply,) = await kiln.handle(message, request=REQUEST)

    assert reply["content"] == "Ann"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("redis", 'workspace="write"'),
        ("config", "ctx.settings"),
        ("tool_registry", "ctx.call"),
        ("adapter", "ctx.send_message"),
        ("kg_manager", "Kiln(functions=[…])"),
        ("message_cache", "Kiln(functions=[…])"),
        ("openrouter", "Kiln(functions=[…])"),
        ("is_admin", "has no attribute"),
    ],
)
async def test_what_a_call_cannot_have_says_what_to_do_instead(
    kiln: Kiln, name: str, instead: str
) -> None:
    result = await kiln.call("reach", {"name": name}, request=REQUEST)

    assert result.error is not None
    assert instead in result.error.message or name == "is_admin"
    assert result.error.code == ("exception" if name == "is_admin" else "tool_error")


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"note": "x" * 16_384}, "larger than 16,384 bytes"),
        ({"note": float("nan")}, "not plain JSON"),
        ({"note": "\ud800"}, "not plain JSON"),
    ],
)
async def test_a_request_is_limited_and_plain_json(
    kiln: Kiln, request_: dict[str, Any], problem: str
) -> None:
    result = await kiln.call("whoami", request=request_)

    assert (result.status, result.error and result.error.code) == (
        Status.INVALID,
        "invalid_caller",
    )
    assert problem in result.text


async def test_a_file_that_is_neither_path_nor_data_is_an_error_of_the_tool(kiln: Kiln) -> None:
    result = await kiln.call("send", {"item": {"url": "https://example.org/a.png"}})

    assert result.error is not None
    assert "a sent file is a path" in result.error.message
