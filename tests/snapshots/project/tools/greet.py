"""Greetings."""

from typing import Literal

from toolkiln import Context, ToolError, tool


@tool(read_only=True, icon="hand", color="sky", weight=10)
def greet(name: str, language: Literal["en", "de"] = "en", times: int = 1) -> str:
    """Greet a person by name.

    Args:
        name: The person to greet.
        language: The language of the greeting.
        times: The number of greetings.

    Examples:
        >>> greet("Ada")
        'Hello Ada'
    """
    if not name:
        raise ToolError("a greeting needs a name")
    word = {"en": "Hello", "de": "Hallo"}[language]
    return "\n".join([f"{word} {name}"] * times)


@tool(read_only=True, timeout=30)
def shout(name: str, ctx: Context) -> str:
    """Greet a person loudly, by another tool.

    Args:
        name: The person to greet.
    """
    ctx.report_progress(1, 2, "half of it")
    ctx.log("shouting")
    print("a line on stdout")
    return str(ctx.call("greet", name=name)).upper()


@tool(read_only=True)
def crash(divisor: int = 0) -> float:
    """Divide one by a number.

    Args:
        divisor: The number.
    """
    return 1 / divisor
