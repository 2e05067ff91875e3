"""A docstring's argument list as a schema, for tools that take one dict of arguments.

The only place where types in a docstring count: such tools have no annotations.
"""

import ast
import re

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations import TypeReader
from toolkiln.spec.annotations.shapes import Omitted, Unresolved
from toolkiln.spec.annotations.values import Unknown, evaluate, jsonable
from toolkiln.spec.docstrings import parse
from toolkiln.spec.modules import Scope

_WORDS = {
    "string": "str",
    "text": "str",
    "integer": "int",
    "number": "float",
    "double": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "dictionary": "dict",
}
_DEFAULT = re.compile(r"\bdefaults?(?:\s+(?:to|is)|\s*[=:])?\s*([^\s,;)]+)", re.I)
_LIST_OF = re.compile(r"(?:list|array|sequence) of (\w+?)s?$", re.I)


def argument_schema(docstring: str | None, scope: Scope) -> JsonSchema | None:
    """The schema of the arguments that a docstring lists, or None if it lists none."""
    documented = parse(docstring).parameters if docstring else ()
    if not docstring or not documented:
        return None
    properties: dict[str, JsonSchema] = {}
    required = []
    for item in documented:
        written = _written_type(docstring, item.name)
        note = f"{written}, {item.text}".lower()
        schema = _schema(written, scope)
        default = _DEFAULT.search(written) or _DEFAULT.search(item.text)
        if default:
            schema |= _default(default[1], scope)
        properties[item.name] = {**schema, "description": item.text} if item.text else schema
        if not default and "optional" not in note:
            required.append(item.name)
    result: JsonSchema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**result, "required": required} if required else result


def _written_type(docstring: str, name: str) -> str:
    """The type that stands beside a parameter's name, in any of the styles."""
    escaped = re.escape(name)
    for pattern in (
        rf"^\s*[-*]?\s*{escaped}\s*\(([^)\n]*)\)\s*:",  # Google
        rf"^\s*{escaped} : ([^\n]+)$",  # NumPy
        rf"^\s*[:@]type\s+{escaped}\s*:\s*([^\n]+)$",  # Sphinx
        rf"^\s*[:@]param\s+([^:\n]+?)\s+{escaped}\s*:",
    ):
        found = re.search(pattern, docstring, re.M)
        if found:
            return found[1].strip()
    return ""


def _schema(written: str, scope: Scope) -> JsonSchema:
    kept = [
        part
        for part in re.split(r",(?![^\[]*\])", written)
        if part.strip().lower() not in ("optional", "required", "")
        and not part.strip().lower().startswith("default")
    ]
    text = ",".join(kept).strip().strip("`")
    if many := _LIST_OF.match(text):
        text = f"list[{_WORDS.get(many[1].lower(), many[1])}]"
    text = _WORDS.get(text.lower(), text)
    try:
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Set):  # NumPy's {'a', 'b'}
            return {"enum": sorted(evaluate(node, scope))}
        return TypeReader().render(node, scope)
    except (SyntaxError, ValueError, TypeError, Unresolved, Omitted, Unknown, RecursionError):
        return {}


def _default(text: str, scope: Scope) -> JsonSchema:
    try:
        node = ast.parse(text.strip("`."), mode="eval").body
        return {"default": jsonable(evaluate(node, scope))}
    except (SyntaxError, ValueError, Unknown, RecursionError):
        return {}
