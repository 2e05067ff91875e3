"""A decorated function that returns a `TypedDict` and bounds its own running time."""

import re
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from toolkiln import ToolError, tool

Flag = Literal["ignore_case", "multi_line", "dot_matches_newline"]

_FLAGS = {
    "ignore_case": re.IGNORECASE,
    "multi_line": re.MULTILINE,
    "dot_matches_newline": re.DOTALL,
}


class Match(TypedDict):
    """One place where the pattern matched."""

    text: str
    start: int
    line: int
    groups: list[str | None]


# Some patterns take exponential time; the limit ends them.
@tool(read_only=True, idempotent=True, parallel=True, timeout=10, icon="regex")
def extract_matches(
    text: str,
    pattern: Annotated[str, "A regular expression in Python's syntax."],
    flags: tuple[Flag, ...] = (),
    limit: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> list[Match]:
    """Find every place in a text where a regular expression matches.

    Args:
        text: The text to look through.
        flags: How the pattern is understood.
        limit: How many matches to return at most.

    Returns:
        The matches with their offsets, lines and groups.

    Examples:
        >>> extract_matches("a=1\\nb=22", r"(\\w)=(\\d+)")[1]
        {'text': 'b=22', 'start': 4, 'line': 2, 'groups': ['b', '22']}
        >>> [m["text"] for m in extract_matches("One one", "one", flags=("ignore_case",))]
        ['One', 'one']
    """
    combined = re.NOFLAG
    for flag in flags:
        combined |= _FLAGS[flag]
    try:
        compiled = re.compile(pattern, combined)
    except re.error as error:
        raise ToolError(f"the pattern is not a regular expression: {error}") from error
    found: list[Match] = []
    for match in compiled.finditer(text):
        found.append(
            Match(
                text=match[0],
                start=match.start(),
                line=text.count("\n", 0, match.start()) + 1,
                groups=list(match.groups()),
            )
        )
        if len(found) == limit:
            break
    return found
