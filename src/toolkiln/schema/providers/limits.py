"""How large a lowered schema is, in the quantities that providers limit.

Measures and compares; each provider's module knows its numbers. Depth counts objects and arrays
inside one another, through references, once round a recursive one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.schema.providers.wording import shown


@dataclass
class Measures:
    """The quantities of one schema."""

    properties: int = 0
    depth: int = 0
    enum_values: int = 0
    largest_enum_chars: int = 0
    """Characters of the values of the longest enum with more than 250 values."""
    chars: int = 0
    """Names of properties and definitions, enum values."""
    optional: int = 0
    unions: int = 0


def measure(wire: JsonSchema) -> Measures:
    """Measure a schema with its definitions."""
    found = Measures()
    definitions: dict[str, JsonSchema] = wire.get("$defs", {})
    for name, definition in definitions.items():
        found.chars += len(name)
        _count(definition, found)
    _count(wire, found)
    found.depth = _depth(wire, definitions, (), {})
    return found


def _count(node: JsonSchema, found: Measures) -> None:
    if "enum" in node:
        chars = sum(len(shown(value)) for value in node["enum"])
        found.enum_values += len(node["enum"])
        found.chars += chars
        if len(node["enum"]) > 250:
            found.largest_enum_chars = max(found.largest_enum_chars, chars)
    properties = node.get("properties", {})
    found.properties += len(properties)
    found.chars += sum(map(len, properties))
    found.optional += len(properties.keys() - set(node.get("required", ())))
    if len(node.get("anyOf", ())) > 1 or isinstance(node.get("type"), list):
        found.unions += 1
    for child in _inner(node):
        _count(child, found)


def _inner(node: JsonSchema) -> list[JsonSchema]:
    items = [node["items"]] if isinstance(node.get("items"), dict) else []
    return [*node.get("properties", {}).values(), *node.get("anyOf", ()), *items]


def _depth(
    node: JsonSchema,
    definitions: dict[str, JsonSchema],
    above: tuple[str, ...],
    known: dict[str, int],
) -> int:
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        if name in above:
            return 0
        if name not in known:
            known[name] = _depth(definitions[name], definitions, (*above, name), known)
        return known[name]
    kind: Any = node.get("type", ())
    nests = "object" in kind or "array" in kind
    inner = (_depth(child, definitions, above, known) for child in _inner(node))
    return int(nests) + max(inner, default=0)


def exceeded(wire: JsonSchema, limits: Iterable[tuple[str, int, str]]) -> list[str]:
    """The limits of strict mode, as (quantity, limit, noun), that a schema does not keep."""
    found = measure(wire)
    return [
        f"it has {getattr(found, quantity):,} {noun}, strict mode takes {limit:,}"
        for quantity, limit, noun in limits
        if getattr(found, quantity) > limit
    ]
