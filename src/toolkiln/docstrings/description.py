"""Detailed description: Markdown for a model that has chosen a tool, made of its docstrings.

It has at most one section of each kind, the most important ones first. The page of a tool has
all of them.
"""

import re
from collections.abc import Mapping
from typing import Any

from toolkiln.docstrings.parser import Docstring, listed_parameters, parse

ARGUMENTS = ("args", "arguments", "params", "input", "kwargs")
"""Names of a parameter that takes all arguments as one dict."""
_MISSING = "*No detailed documentation available.*"
_SHORT = 50
"""A text that is not this much longer than the description of its tool is too short."""
_DIFFERENCES, _USAGE, _WARNING = "differences", "usage", "warning"
_KINDS = tuple(
    (kind, re.compile(rf"\b(?:{words})\b"))
    for kind, words in (
        (_DIFFERENCES, "differences?"),
        (_DIFFERENCES, "why use .*instead"),
        (_DIFFERENCES, "vs|versus|compared|comparison"),
        (_DIFFERENCES, "when not to use|do not use|not for"),
        (_USAGE, "use cases?"),
        (_USAGE, "when to use|use (?:this |it )?(?:tool )?(?:when|for)"),
        (_USAGE, "usage"),
        (_USAGE, "why use"),
        (_USAGE, "benefits"),
        (_WARNING, "critical"),
        (_WARNING, "important"),
        (_WARNING, "warnings?|caution|danger|attention"),
        (_WARNING, "notes?"),
    )
)
"""Kinds of sections by the words of their titles. The first match decides about the kind of a
section, and which of several is shown.
"""


def class_docstring(own: str | None, method: str | None) -> Docstring:
    """Return the parts of a class's docstring, completed by the method that does its work."""
    if not own or own == method:
        own, method = method, None
    first, second = parse(own or ""), parse(method or "")
    return Docstring(
        text=first.text or second.text,
        sections=first.sections + second.sections,
        parameters=arguments(first) or arguments(second),
        returns=first.returns or second.returns,
        raises=first.raises or second.raises,
        examples=first.examples or second.examples,
    )


def arguments(docstring: Docstring) -> tuple[tuple[str, str], ...]:
    """Return the parameters; if one takes all arguments, those that its description lists."""
    if len(docstring.parameters) == 1:
        name, text = docstring.parameters[0]
        if name in ARGUMENTS and (listed := listed_parameters(text)):
            return listed
    return docstring.parameters


def describe(docstring: Docstring, description: str, properties: Mapping[str, Any]) -> str:
    """Render the detailed description; `properties` are those of the schema of the arguments."""
    sections = _most_important(docstring)
    parts = [docstring.text or description]
    if not any(docstring):
        parts.append(_MISSING)
    if _WARNING in sections:
        body = sections[_WARNING][1].replace("**", "")
        is_list = body.startswith(("- ", "* ", "1. "))
        parts.append(f"⚠️ **Important**:{chr(10) if is_list else ' '}{body}")
    chosen = [sections[kind] for kind in (_USAGE, _DIFFERENCES) if kind in sections]
    parts += [f"**{title}**\n{body}" for title, body in chosen]
    parameters = dict(docstring.parameters)
    for name, schema in properties.items():
        if name not in parameters and isinstance(schema, dict) and schema.get("description"):
            parameters[name] = str(schema["description"])
    if parameters:
        parts.append("\n".join(["**Parameters**", *map(_item, parameters.items())]))
    if docstring.returns:
        parts.append(f"**Returns**\n{docstring.returns}")
    if docstring.raises:
        parts.append("\n".join(["**Errors**", *map(_item, docstring.raises)]))
    if examples := docstring.examples:
        # Without a fence, `>>>` would be three nested block quotes.
        fenced = examples if "```" in examples else f"```\n{examples}\n```"
        parts.append(f"**Examples**\n{fenced}")
    text = "\n\n".join(part for part in parts if part)
    if len(text) < len(description) + _SHORT and not text.startswith(description):
        return f"{description}\n\n{text}"
    return text


def _most_important(docstring: Docstring) -> dict[str, tuple[str, str]]:
    """Return the first section of each kind in the order of the table."""
    found: dict[str, tuple[int, tuple[str, str]]] = {}
    for section in docstring.sections:
        title = section[0].casefold()
        for rank, (kind, pattern) in enumerate(_KINDS):
            if pattern.search(title):
                if kind not in found or rank < found[kind][0]:
                    found[kind] = rank, section
                break
    return {kind: section for kind, (_, section) in found.items()}


def _item(pair: tuple[str, str]) -> str:
    name, text = pair
    indented = text.replace("\n", "\n  ")
    return f"- {name}: {indented}" if text else f"- {name}"
