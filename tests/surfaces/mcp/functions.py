"""Tools of this process, for clients to call."""

import asyncio
import threading

from toolkiln import Context, ToolError, tool

STARTED, ENDED = threading.Event(), threading.Event()
"""Set while a call of `wait` runs, and when it was cancelled; tests clear them."""


@tool(read_only=True)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def pair(a: str) -> dict[str, str]:
    """Give a text with a name."""
    return {"a": a}


@tool(name="Shout-Aloud")
def shout(text: str) -> str:
    """Say it in capitals."""
    print(text)
    return text.upper()


@tool
def fail() -> int:
    """Fail on purpose."""
    raise ToolError("this never works")


@tool
def lie() -> int:
    """Return something else than promised."""
    return "three"  # type: ignore[return-value]


@tool
def long_text(size: int) -> str:
    """Give a long text."""
    return "x" * size


@tool
def work(ctx: Context, steps: int = 3) -> str:
    """Work in steps."""
    for step in range(steps):
        ctx.report_progress(step + 1, steps, f"step {step + 1}")
    ctx.log("all done")
    return "worked"


@tool
async def wait() -> str:
    """Wait for ever."""
    STARTED.set()
    try:
        await asyncio.Event().wait()
    finally:
        ENDED.set()
    return "never"


@tool(needs_approval=True)
def risky(what: str) -> str:
    """Do something that a person has to allow."""
    return f"did {what}"


FUNCTIONS = (add, pair, shout, fail, lie, long_text, work, wait, risky)
