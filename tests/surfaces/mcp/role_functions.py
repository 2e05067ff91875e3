"""Prompts and resources of this process, for clients to choose and read."""

import asyncio
from typing import Any, Literal

from toolkiln import Context, Form, ToolError, prompt, resource, tool

PICTURE = bytes(range(256))
DOT = {"type": "image", "data": "AAEC", "mimeType": "image/png"}


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@prompt(display_name="Code review", icon="glasses")
def review(code: str, tone: Literal["kind", "plain"] = "plain", times: int = 1) -> str:
    """Ask for the faults of some code, the worst one first.

    Args:
        code: The code.
        tone: How to put it.
        times: How often to look.
    """
    return f"{tone} {times} {code}"


@prompt(name="Talk-It-Over")
def talk() -> list[dict[str, Any]]:
    """Begin a conversation."""
    return [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": {"type": "text", "text": "How are you?"}},
        {"role": "user", "content": DOT},
    ]


@prompt
def greet(ctx: Context) -> str:
    """Greet a person who is asked for a name."""
    return f"Hello {ctx.ask(Form('Who?', {'name': str}))['name']}"


@prompt
def misshapen(kind: str) -> Any:
    """Return what is no message."""
    return {
        "number": 3,
        "nothing": None,
        "dict": {"role": "user", "content": "x"},
        "texts": ["x"],
        "role": [{"role": "system", "content": "x"}],
        "content": [{"role": "user", "content": {"type": "video", "data": "AAEC"}}],
        "base64": [{"role": "user", "content": {**DOT, "data": "%%%"}}],
        "missing": [{"role": "user"}],
    }[kind]


@prompt
def broken() -> str:
    """Fail in words of its own."""
    raise ToolError("there is nothing to say")


@prompt(timeout=0.2)
async def endless() -> str:
    """Never come back."""
    await asyncio.Event().wait()
    return ""


@prompt
async def slow() -> str:
    """Take longer than a call that goes on as a task."""
    await asyncio.sleep(0.3)
    return "at last"


@prompt(needs_approval=True)
def guarded() -> str:
    """Run once a person has said yes."""
    return "yes"


@resource("notes://today", mime_type="text/markdown")
def today() -> str:
    """What is on today."""
    return "# Today"


@resource("notes://{year}/{name}")
def note(year: int, name: Literal["spring", "summer"] | str) -> dict[str, Any]:
    """A note of some year."""
    return {"year": year, "name": name}


@resource("pictures://dot", mime_type="image/png")
def dot() -> bytes:
    """A picture, of sorts."""
    return PICTURE


@resource("pictures://text")
def readable() -> bytes:
    """Bytes that could be text."""
    return b"text"


@resource("notes://broken")
def broken_note() -> str:
    """Fail in words of its own."""
    raise ToolError("the note is lost")


@resource("notes://long")
def long_note() -> str:
    """More than a model would be shown."""
    return "x" * 200_000


FUNCTIONS = (
    add, review, talk, greet, misshapen, broken, endless, slow, guarded,
    today, note, dot, readable, broken_note, long_note,
)  # fmt: skip
