"""Dialect profiles: the JSON Schema subset and size limits of each provider, as data.

Values come from the providers' documentation; `tests/schema` checks compiled payloads
against an independent implementation of the same rules.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolkiln.model.base import JsonSchema
from toolkiln.schema.providers.wire import display

PRIMITIVES = frozenset(("string", "integer", "number", "boolean"))


@dataclass(frozen=True)
class Profile:
    """The schema dialect of a provider."""

    name: str
    keywords: frozenset[str]
    """Supported constraint keywords."""
    formats: frozenset[str] | None = None
    """Supported formats; None for all."""
    nullable_optionals: bool = False
    """Whether an optional property becomes a required, nullable one."""
    references: bool = True
    """Whether definitions may be referenced, also recursively; otherwise they are inlined."""
    null_type: bool = True
    empty_objects: bool = True
    """Whether objects below the root may have no properties."""
    enum_types: frozenset[str] = PRIMITIVES
    key_pattern: str = r"(?s).+"
    """Pattern of valid property names."""
    forbidden_pattern: str | None = None
    """Pattern of regular expressions that the provider does not support."""
    largest_min_items: int | None = None

    def keeps(self, keyword: str, value: object) -> bool:
        """Return whether the provider supports this keyword with this value."""
        if keyword not in self.keywords:
            return False
        if keyword == "format":
            return self.formats is None or value in self.formats
        if keyword == "pattern" and self.forbidden_pattern:
            return not re.search(self.forbidden_pattern, str(value))
        if keyword == "minItems" and self.largest_min_items is not None:
            return isinstance(value, int) and value <= self.largest_min_items
        return True


def wire_names(names: list[str], pattern: str) -> dict[str, str]:
    """Map each name to a distinct one that matches `pattern`; valid names stay unchanged."""
    valid = re.compile(pattern)
    taken = {name for name in names if valid.fullmatch(name)}
    renamed: dict[str, str] = {}
    for name in names:
        if name in taken:
            renamed[name] = name
            continue
        stem = re.sub(r"[^A-Za-z0-9_]", "_", name)[:56]
        stem = stem if re.match(r"[A-Za-z_]", stem) else f"_{stem}"
        candidate, count = stem, 1
        while candidate in taken:
            count += 1
            candidate = f"{stem}_{count}"
        taken.add(candidate)
        renamed[name] = candidate
    return renamed


class Loss(NamedTuple):
    """A constraint that the provider does not enforce; the description may mention it."""

    path: str
    """JSON pointer into the parameters."""
    keyword: str
    reason: str


class Gap(NamedTuple):
    """A part of the schema that a provider's strict mode cannot enforce."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A tool in the format of one provider."""

    payload: dict[str, Any]
    """An element of `tools` in the provider's request."""
    losses: tuple[Loss, ...]
    errors: tuple[str, ...]
    decode: Callable[[dict[str, Any]], dict[str, Any]]
    """Convert a model's arguments to the tool's; never raises."""
    encode: Callable[[dict[str, Any]], dict[str, Any]]
    """Convert the tool's arguments to those a model would send."""


@dataclass
class Measures:
    """Size of one schema, in the quantities that providers limit."""

    properties: int = 0
    depth: int = 0
    enum_values: int = 0
    largest_enum_chars: int = 0
    """Characters in the largest enum with more than 250 values."""
    chars: int = 0
    """Characters in property names, definition names and enum values."""
    optional: int = 0
    unions: int = 0


def measure(wire: JsonSchema) -> Measures:
    """Measure a schema and its definitions."""
    measures = Measures()
    definitions: dict[str, JsonSchema] = wire.get("$defs", {})
    for name, definition in definitions.items():
        measures.chars += len(name)
        _count(definition, measures)
    _count(wire, measures)
    measures.depth = _depth(wire, definitions, (), {})
    return measures


def _count(node: JsonSchema, measures: Measures) -> None:
    if "enum" in node:
        chars = sum(len(display(value)) for value in node["enum"])
        measures.enum_values += len(node["enum"])
        measures.chars += chars
        if len(node["enum"]) > 250:
            measures.largest_enum_chars = max(measures.largest_enum_chars, chars)
    properties = node.get("properties", {})
    measures.properties += len(properties)
    measures.chars += sum(map(len, properties))
    measures.optional += len(properties.keys() - set(node.get("required", ())))
    if len(node.get("anyOf", ())) > 1 or isinstance(node.get("type"), list):
        measures.unions += 1
    for child in _inner(node):
        _count(child, measures)


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
    """Describe the exceeded limits of strict mode, given as (quantity, limit, noun)."""
    measures = measure(wire)
    return [
        f"it has {getattr(measures, quantity):,} {noun}, strict mode allows {limit:,}"
        for quantity, limit, noun in limits
        if getattr(measures, quantity) > limit
    ]
