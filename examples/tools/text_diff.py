"""The dialect of module constants: a schema written by hand, and a function `run`."""

import difflib
from typing import Any

TOOL_NAME = "text_diff"
TOOL_DESCRIPTION = "Show the differences between two texts, line by line, as a unified diff."
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {
        "before": {"type": "string", "description": "The text as it was."},
        "after": {"type": "string", "description": "The text as it is."},
        "context": {
            "type": "integer",
            "description": "How many unchanged lines to show around each change.",
            "minimum": 0,
            "maximum": 100,
            "default": 3,
        },
    },
    "required": ["before", "after"],
    "additionalProperties": False,
}


def run(before: str, after: str, context: int = 3, ctx: Any = None) -> str:
    """Show the differences between two texts, line by line, as a unified diff.

    Returns:
        The diff; empty if the texts are equal.

    Examples:
        >>> print(run("one\\ntwo\\nthree", "one\\n2\\nthree", context=0))
        --- before
        +++ after
        @@ -2 +2 @@
        -two
        +2
    """
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "before", "after", n=context, lineterm=""
    )
    return "\n".join(lines)
