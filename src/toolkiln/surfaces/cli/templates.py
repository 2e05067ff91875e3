"""First versions of a tool, one for each dialect; each passes `toolkiln check --strict`."""

import keyword
import re
import sys
from string import Template

from toolkiln.errors import InputError, nearest_hint
from toolkiln.model.spec import Dialect

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def source(name: str, dialect: str) -> str:
    """The text of a file with one tool.

    Raises:
        InputError: the name or the dialect cannot be used.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name == "main":
        raise InputError(
            f"{name!r} cannot be the name of a tool",
            hint="use lower-case letters, digits and underscores, a letter first, at most 40",
        )
    if name in sys.stdlib_module_names:
        raise InputError(
            f"{name}.py would hide the module {name!r} of the standard library",
            hint=f"call it {name}_tool, or say what it does",
        )
    known = [item.value for item in Dialect]
    if dialect not in known:
        hint = nearest_hint(dialect, known) or f"one of {', '.join(known)}"
        raise InputError(f"there is no dialect {dialect!r}", hint=hint)
    camel = "".join(part.capitalize() for part in name.split("_"))
    text = Template(_TEMPLATES[Dialect(dialect)])
    return text.substitute(name=name, Title=name.replace("_", " ").capitalize(), Class=camel)


_FUNCTION = '''\
def $name(text: str, limit: int = 10) -> list[str]:
    """Split a text into words, longest first.

    Args:
        text: The text to split.
        limit: How many words to return at most.

    Returns:
        The words.

    Examples:
        >>> $name("a bit of text", limit=2)
        ['text', 'bit']
    """
    return sorted(text.split(), key=len, reverse=True)[:limit]
'''

_TEMPLATES = {
    Dialect.FUNCTION: _FUNCTION,
    Dialect.DECORATED: f"from toolkiln import tool\n\n\n@tool(read_only=True)\n{_FUNCTION}",
    Dialect.CONSTANTS: '''\
TOOL_NAME = "$name"
TOOL_DESCRIPTION = "Split a text into words, longest first."
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The text to split."},
        "limit": {
            "type": "integer",
            "description": "How many words to return at most.",
            "default": 10,
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}


def run(text: str, limit: int = 10, ctx=None) -> list[str]:
    """Split a text into words, longest first."""
    return sorted(text.split(), key=len, reverse=True)[:limit]
''',
    Dialect.TOOLKIT: '''\
from toolkiln import method_metadata, tool_metadata


@tool_metadata(description="Looks at texts.", icon="text", visible=True)
class ${Class}Tool:
    """Looks at texts."""

    @method_metadata(display_name="Longest words")
    def $name(self, text: str, limit: int = 10) -> list[str]:
        """Split a text into words, longest first.

        Args:
            text: The text to split.
            limit: How many words to return at most.

        Returns:
            The words.
        """
        return sorted(text.split(), key=len, reverse=True)[:limit]
''',
    Dialect.BASE_TOOL: '''\
from toolkiln import BaseTool, ToolResult


class ${Class}Tool(BaseTool):
    """Split a text into words, longest first."""

    name = "$name"
    description = "Split a text into words, longest first."
    parameters = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The text to split."}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def execute(self, args: dict) -> ToolResult:
        words = sorted(args["text"].split(), key=len, reverse=True)
        return ToolResult(ok=True, stdout="\\n".join(words))
''',
    Dialect.OPEN_WEBUI: '''\
"""
title: $Title
description: Looks at texts.
version: 0.1.0
"""


class Tools:
    def $name(self, text: str, limit: int = 10) -> list[str]:
        """
        Split a text into words, longest first.

        :param text: The text to split.
        :param limit: How many words to return at most.
        """
        return sorted(text.split(), key=len, reverse=True)[:limit]
''',
}
