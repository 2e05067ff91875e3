"""`toolkiln call` of a tool that asks: its form on the terminal, field by field."""

import json

import pytest

from toolkiln.errors import Unanswered
from toolkiln.model.question import RootsQuestion
from toolkiln.surfaces.cli.prompts import ask

from .conftest import Shell

SETTINGS = ""
TOOLS = {
    "survey.py": '''
from toolkiln import Context, Form, tool

@tool
def survey(ctx: Context) -> dict:
    """Ask for something of every kind."""
    colors = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}
    several = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    fields = {
        "name": {"type": "string", "title": "Your \\x1b[31mname"},
        "age": {"type": "integer", "default": 7, "description": "in years"},
        "share": float, "sure": {"type": "boolean", "default": True}, "color": colors,
        "several": several, "note": str,
    }
    required = ["name", "age", "share", "color", "several"]
    given = ctx.ask(Form("Who are you?\\x07", fields, required))
    return {"action": given.action, **given.values}

@tool
def confirm(ctx: Context) -> str:
    """Ask for a yes."""
    return ctx.ask(Form("Go on?")).action
''',
}


def test_a_form_is_filled_in_field_by_field(shell: Shell) -> None:
    replies = [
        (b"name: ", b"\n"),
        (b"Ctrl-D", b"Ada\n"),
        (b"age", b"old\n"),
        (b"valid integer", b"\n"),
        (b"share", b"0.5\n"),
        (b"sure", b"n\n"),
        (b"color", b"green\n"),
        (b"not one of r", b"r\n"),
        (b"several", b"b, a\n"),
        (b"note", b"\n"),
    ]

    code, shown = shell.typed(replies, "call", "survey", ahead=b"too early\n")

    assert code == 0, shown
    assert "the tool asks: Who are you?\\x07\n" in shown
    assert "Your \\x1b[31mname: " in shown
    assert "age (in years) [7]: " in shown
    assert "sure (y or n) [y]: " in shown
    assert "color (r (Red)): " in shown
    assert "several (some of a, b): " in shown
    assert json.loads(shown[shown.rindex("{") :]) == {
        "action": "accept", "name": "Ada", "age": 7, "share": 0.5, "sure": False, "color": "r",
        "several": ["b", "a"],
    }  # fmt: skip


@pytest.mark.parametrize(("typed", "action"), [(b"y\n", "accept"), (b"\n", "decline")])
def test_a_form_without_fields_asks_for_a_yes(shell: Shell, typed: bytes, action: str) -> None:
    code, shown = shell.typed([(b"[y/N] ", typed)], "call", "confirm")

    assert code == 0
    assert shown.endswith(f"{action}\n")


def test_the_end_of_input_declines(shell: Shell) -> None:
    code, shown = shell.typed([(b"name: ", b"\x04")], "call", "survey")

    assert (code, "declined" in shown, '"decline"' in shown) == (0, True, True)


async def test_a_terminal_has_forms_only() -> None:
    with pytest.raises(Unanswered, match="a terminal supports forms only"):
        await ask((RootsQuestion(),))


def test_without_a_terminal_the_tool_gets_an_error(shell: Shell) -> None:
    done = shell.run("call", "survey")

    assert (done.code, done.out) == (1, "")
    assert "the caller cannot be asked" in done.err
