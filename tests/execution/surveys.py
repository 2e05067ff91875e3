"""Tools that ask their caller; handed over as functions, and copied into sandboxes as a file."""

from typing import Any

from toolkiln import Context, Filled, Form, NotAnswered, Roots, Sample, tool

NAME = Form("Who are you?", {"name": str, "age": {"type": "integer", "default": 7, "minimum": 0}})


@tool
def introduce(ctx: Context) -> dict[str, Any]:
    """Ask for a name and an age."""
    given = ctx.ask(NAME)
    return {"action": given.action, "values": dict(given.values)}


@tool
def insist(ctx: Context) -> str:
    """Take a name for granted."""
    return str(ctx.ask(NAME)["name"])


@tool
def consult(ctx: Context) -> list[Any]:
    """Ask everything at once."""
    person, sample, folders = ctx.ask(NAME, Sample([("user", "hi")], system="be brief"), Roots())
    return [isinstance(person, Filled), sample.text, [folder.uri for folder in folders]]


@tool
def look(ctx: Context) -> list[bool]:
    """Tell what can be asked."""
    return [ctx.can_ask(kind) for kind in (Form, Sample, Roots)]


@tool(timeout=3)
def dawdle(ctx: Context) -> str:
    """Ask for longer than a call may take."""
    return str(ctx.ask(NAME)["name"])


@tool(timeout=3)
def relay_dawdling(ctx: Context) -> str:
    """Have another tool ask for longer than a call may take."""
    return str(ctx.call("dawdle"))


@tool
def pester(ctx: Context, times: int) -> int:
    """Ask again and again.

    Args:
        times: How often.
    """
    for done in range(times):
        try:
            ctx.ask(Roots())
        except NotAnswered:
            return done
    return times


@tool
def ask_anything(ctx: Context, questions: Any) -> Any:
    """Ask what no author could write, and tell why not.

    Args:
        questions: As they travel.
    """
    return ctx._request({"op": "ask", "questions": questions})  # type: ignore[attr-defined]


@tool(requires_secrets=["KEY"])
def tell(ctx: Context) -> str:
    """Put a secret into every part of a question."""
    key = ctx.secrets["KEY"]
    choice = {"type": "string", "title": key, "enum": [key, "other"]}
    ctx.ask(Form(f"Is it {key}?", {"which": choice}), Sample(f"say {key}", system=key))
    return "asked"


FUNCTIONS = (
    introduce, insist, consult, look, dawdle, relay_dawdling, pester, ask_anything, tell,
)  # fmt: skip
