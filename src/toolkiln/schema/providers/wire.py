"""Builders for wire schemas, and constraints in words."""

import json
import re
from typing import Any, NamedTuple

from toolkiln.model.base import JsonSchema
from toolkiln.schema.providers.codec import Codec


class Lowered(NamedTuple):
    """A wire schema and the codec for its values."""

    wire: JsonSchema
    codec: Codec


def closed_object(properties: JsonSchema, required: list[str] | None = None) -> JsonSchema:
    """Build an object schema with exactly these properties, by default all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def nullable(wire: JsonSchema) -> JsonSchema:
    """Extend a schema to accept null."""
    if "anyOf" in wire:
        null = {"type": "null"}
        return wire if null in wire["anyOf"] else {**wire, "anyOf": [*wire["anyOf"], null]}
    if "$ref" in wire:
        return {"anyOf": [wire, {"type": "null"}]}
    kinds = [wire["type"]] if isinstance(wire["type"], str) else wire["type"]
    if "null" in kinds:
        return wire
    out = {**wire, "type": [*kinds, "null"]}
    if "enum" in wire:
        out["enum"] = [*wire["enum"], None]
    return out


def size(wire: Any) -> int:
    """Count the objects in a schema."""
    if isinstance(wire, dict):
        return 1 + sum(map(size, wire.values()))
    return sum(map(size, wire)) if isinstance(wire, list) else 0


def reachable(wire: JsonSchema, definitions: dict[str, JsonSchema]) -> set[str]:
    """Return the names of definitions that a schema references, directly or indirectly."""
    found: set[str] = set()
    pending: list[Any] = [wire]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str):
                name = ref.removeprefix("#/$defs/")
                if name not in found and name in definitions:
                    found.add(name)
                    pending.append(definitions[name])
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return found


def definition_name(ref: str, taken: set[str]) -> str:
    """Choose an unused definition name for the target of `ref`."""
    last = ref.rsplit("/", 1)[-1].replace("#", "") or "Arguments"
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", last)[:56]
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    return name


_PHRASES = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "pattern": "matches the regular expression {}",
    "format": "format: {}",
    "required": "with the keys {}",
    "propertyNames": "keys match the JSON Schema {}",
    "contains": "contains an item that matches the JSON Schema {}",
    "minContains": "at least {} such items",
    "maxContains": "at most {} such items",
    "not": "does not match the JSON Schema {}",
    "if": "if it matches the JSON Schema {}",
    "then": "then it also matches {}",
    "else": "otherwise it matches {}",
    "dependentRequired": "properties that need others: {}",
    "dependentSchemas": "properties with consequences: {}",
    "oneOf": "fits exactly one of the alternatives",
    "uniqueItems": "no duplicates",
    "enum": "one of {}",
}
_MAX_LENGTH = 600


def phrase(keyword: str, value: Any) -> str:
    """Describe a constraint in a few words."""
    template = _PHRASES.get(keyword, keyword + " {}")
    return template.format(display(value))


def display(value: Any) -> str:
    """Format a value as JSON, strings without quotes; long values are truncated."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


def described(text: object, notes: list[str]) -> str | None:
    """Append notes to a description; None if both are empty."""
    base = text if isinstance(text, str) else ""
    if not notes:
        return base or None
    joined = "; ".join(dict.fromkeys(notes))
    return f"{base} ({joined})" if base else joined[0].upper() + joined[1:]


def json_text(node: Any) -> str:
    """Describe a value that is sent as JSON text."""
    schema = json.dumps(node, ensure_ascii=False) if isinstance(node, dict) else ""
    if not 2 < len(schema) <= _MAX_LENGTH:
        return "any JSON value, written as JSON text"
    return f"written as JSON text that matches the JSON Schema {schema}"


def default_note(value: Any) -> str:
    """Describe the default value of a parameter."""
    return f"default: {repr(value) if isinstance(value, str) else display(value)}"
