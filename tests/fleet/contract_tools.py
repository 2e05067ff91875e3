"""The tools that the contract of a Kiln is tested with, as a file of tools' source."""

SOURCE = '''
"""Tools of the contract."""
import time
from toolkiln import Context, Form, Roots, Sample, ToolError, tool


@tool(read_only=True, parallel=True)
def add(left: int, right: int = 2) -> int:
    """Add two whole numbers.

    Args:
        left: The first.
        right: The second.
    """
    return left + right


@tool(is_core=True, weight=1)
def divide(dividend: float, divisor: float) -> float:
    """Divide one number by another.

    Args:
        dividend: What is divided.
        divisor: By what.
    """
    if not divisor:
        raise ToolError("nothing can be divided by 0")
    return dividend / divisor


@tool
def count_runs(ctx: Context) -> dict:
    """Tell who calls, and something that no two runs have in common."""
    return {"user": ctx.user_id, "agent": ctx.agent_id, "run": time.time_ns()}


@tool
def send_out(ctx: Context) -> str:
    """Hand a file, a message and further tools to the caller."""
    (ctx.workdir / "data.bin").write_bytes(bytes(range(256)))
    ctx.send_file("data.bin")
    ctx.send_message({"card": "hello"})
    ctx.inject_tools("add")
    return "sent"


@tool
def report(steps: int, ctx: Context) -> str:
    """Report progress and write to the log."""
    ctx.log("it begins")
    for step in range(steps):
        ctx.report_progress(step + 1, steps, "step")
    return "reported"


@tool
def last(seconds: float, ctx: Context) -> str:
    """Take some time."""
    ctx.report_progress(0, None, "it runs")
    time.sleep(seconds)
    return "lasted"


@tool(return_char_limit=1000)
def write_much(characters: int) -> str:
    """Give a long text."""
    return "0123456789" * (characters // 10)


@tool
def give_back(value: dict) -> dict:
    """Give what was given."""
    return value


@tool(needs_approval=True)
def delete_all(what: str) -> str:
    """Delete everything of a kind."""
    return f"deleted {what}"


@tool
def be_hidden() -> str:
    """Tell a secret."""
    return "seen"


@tool
def add_twice(number: int, ctx: Context) -> int:
    """Add a number to itself, by way of another tool."""
    return ctx.call("add", left=number, right=number)


@tool
def introduce(ctx: Context) -> list:
    """Ask for a name, and what can be asked."""
    fields = {"name": str, "age": {"type": "integer", "default": 7, "minimum": 0}}
    given = ctx.ask(Form("Who are you?", fields))
    kinds = [ctx.can_ask(kind) for kind in (Form, Sample, Roots)]
    return [given.action, dict(given.values), kinds]


@tool
def introduce_through(ctx: Context) -> list:
    """Have another tool ask for a name."""
    return ctx.call("introduce")


@tool
def consult(ctx: Context) -> list:
    """Ask a model and for folders at once, with a long text."""
    said, folders = ctx.ask(Sample("x" * 150_000, system="y" * 150_000), Roots())
    return [len(said.text), [folder.uri for folder in folders]]
'''
SETTINGS = """
policy = "deny"

[[rules]]
effect = "deny"
tools = "be_hidden"
users = ["ann", "bob"]

[[rules]]
effect = "allow"
"""
WRITTEN = '''
def triple(number: int) -> int:
    """Triple a number.

    Args:
        number: Which one.

    Examples:
        >>> triple(2)
        6
    """
    return number * 3
'''
