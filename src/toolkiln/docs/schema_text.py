"""JSON Schema in words: types, constraints, members; each referenced type once.

Describes any JSON as far as possible, without validating it; `schema` does that. Long or deep
schemas are truncated.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from toolkiln.docs import blocks
from toolkiln.docs.blocks import (
    Blocks,
    Bullets,
    CodeSpan,
    Inline,
    TextSpan,
    joined,
    labelled,
    paragraph,
)

_CONSTRAINTS = {
    "format": ("in the format ", ""),
    "pattern": ("matching the regular expression ", ""),
    "minLength": ("at least ", " characters"),
    "maxLength": ("at most ", " characters"),
    "minimum": ("at least ", ""),
    "exclusiveMinimum": ("more than ", ""),
    "maximum": ("at most ", ""),
    "exclusiveMaximum": ("less than ", ""),
    "multipleOf": ("a multiple of ", ""),
    "minItems": ("at least ", " items"),
    "maxItems": ("at most ", " items"),
    "minProperties": ("at least ", " entries"),
    "maxProperties": ("at most ", " entries"),
    "contains": ("with an item that fits ", ""),
    "minContains": ("at least ", " such items"),
    "maxContains": ("at most ", " such items"),
    "propertyNames": ("with keys that fit ", ""),
    "not": ("nothing that fits ", ""),
    "if": ("if it fits ", ""),
    "then": ("then it also fits ", ""),
    "else": ("else it fits ", ""),
    "dependentRequired": ("with entries that need others: ", ""),
    "dependentSchemas": ("with entries that have consequences: ", ""),
    "contentEncoding": ("encoded as ", ""),
    "contentMediaType": ("of the media type ", ""),
    "examples": ("for example ", ""),
}
_UNQUOTED = frozenset({"format", "pattern", "contentEncoding", "contentMediaType"})
"""Constraints whose strings are shown without quotes."""
_ALTERNATIVES = (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and "))
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "enum"})
_STRUCTURE = frozenset(
    {"properties", "patternProperties", "additionalProperties", "items", "prefixItems"}
    | {"anyOf", "oneOf", "allOf"}
)
_MAX_LISTED = 50
_MAX_LENGTH = 300
_MAX_DEPTH = 8


class SchemaWords:
    """Describes one schema document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._types: dict[str, str] = {}
        """Reference to type name, in order of appearance."""

    def phrase(self, schema: Any) -> list[Inline]:
        """Describe the type and constraints of a value in a few words."""
        return joined([self._kind(schema, 0), *_constraints(schema)], "; ")

    def members(self, schema: Any, notes: Mapping[str, str] | None = None) -> Blocks:
        """Describe the members of an object or array; `notes` are more about some of them."""
        items = tuple(self._members(schema, notes or {}, 0))
        return (Bullets(items),) if items else ()

    def types(self) -> Blocks:
        """Describe all types referenced so far, including by each other."""
        items: list[Blocks] = []
        while len(items) < len(self._types):
            reference, name = list(self._types.items())[len(items)]
            items.append(self._member([CodeSpan(name)], self._resolved(reference), (), 0))
        return (paragraph("The types named above:"), Bullets(tuple(items))) if items else ()

    def _kind(self, schema: Any, depth: int) -> list[Inline]:
        if not isinstance(schema, dict):
            return [TextSpan("nothing" if schema is False else "any value")]
        if depth > _MAX_DEPTH:
            return [TextSpan("a value of further depth")]
        if isinstance(reference := schema.get("$ref"), str):
            return [CodeSpan(self._name(reference))]
        if "const" in schema:
            return [TextSpan("always "), _value(schema["const"])]
        if isinstance(values := schema.get("enum"), list):
            return [TextSpan("one of "), *_several([[_value(value)] for value in values], ", ")]
        for keyword, word in _ALTERNATIVES:
            if isinstance(options := schema.get(keyword), list):
                return _several([self._option(option, depth) for option in options], word)
        kinds = schema.get("type")
        names = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind]
        return joined([self._named(str(kind), schema, depth) for kind in names], " or ") or [
            TextSpan("object" if "properties" in schema else "any value")
        ]

    def _option(self, schema: Any, depth: int) -> list[Inline]:
        kind, constraints = self._kind(schema, depth + 1), joined(_constraints(schema), "; ")
        return [*kind, TextSpan(" ("), *constraints, TextSpan(")")] if constraints else kind

    def _inner(self, schema: Any, depth: int) -> list[Inline]:
        # In parentheses if it could be mistaken for several options.
        option = self._option(schema, depth)
        several = isinstance(schema, dict) and (
            isinstance(schema.get("type"), list) or not _SEVERAL.isdisjoint(schema)
        )
        return [TextSpan("("), *option, TextSpan(")")] if several else option

    def _named(self, kind: str, schema: dict[str, Any], depth: int) -> list[Inline]:
        if kind == "array":
            if isinstance(items := schema.get("prefixItems"), list):
                inside = [self._inner(item, depth) for item in items]
                return [TextSpan("array of: "), *_several(inside, ", ")]
            if schema.get("items") not in (None, {}, True):
                return [TextSpan("array of "), *self._inner(schema["items"], depth)]
        entries = schema.get("additionalProperties")
        if kind == "object" and isinstance(entries, dict) and entries and not _of(schema):
            return [TextSpan("object with any keys, each "), *self._inner(entries, depth)]
        return [TextSpan(kind)]

    def _members(self, schema: Any, notes: Mapping[str, str], depth: int) -> Iterator[Blocks]:
        if not isinstance(schema, dict) or _STRUCTURE.isdisjoint(schema):
            return
        if depth > _MAX_DEPTH:
            yield (paragraph("further levels, as in the schema"),)
            return
        required = schema.get("required")
        for name, inner in _of(schema).items():
            must = isinstance(required, list) and name in required
            yield self._member(
                [CodeSpan(name)], inner, _presence(inner, must), depth, notes.get(name)
            )
        for pattern, inner in _of(schema, "patternProperties").items():
            yield self._member([TextSpan("keys like "), CodeSpan(pattern)], inner, (), depth)
        for label, inner in _inside(schema):
            below = self._below(inner, None, depth)
            if below:
                yield (paragraph(f"{label}:"), *below)

    def _member(
        self,
        label: list[Inline],
        schema: Any,
        presence: tuple[Inline, ...],
        depth: int,
        note: str | None = None,
    ) -> Blocks:
        facts = [self.phrase(schema), *([list(presence)] if presence else [])]
        line = [*label, TextSpan(" ("), *joined(facts, "; "), TextSpan(")")]
        return labelled(line, self._below(schema, note, depth))

    def _below(self, schema: Any, note: str | None, depth: int) -> Blocks:
        """Describe a value further: its description, then its members."""
        text = schema.get("description") if isinstance(schema, dict) else None
        texts = [text] if isinstance(text, str) and text else []
        if note and note not in texts:
            texts.append(note)
        prose = blocks.blocks("\n\n".join(texts))
        members = tuple(self._members(schema, {}, depth + 1))
        return (*prose, Bullets(members)) if members else prose

    def _name(self, reference: str) -> str:
        if reference not in self._types:
            if self._resolved(reference) is None:
                return reference
            name = _segments(reference)[-1]
            taken = name in self._types.values() or not name
            self._types[reference] = reference if taken else name
        return self._types[reference]

    def _resolved(self, reference: str) -> Any:
        """Resolve a local reference; None if it has no target."""
        if not reference.startswith("#"):
            return None
        node: Any = self._root
        for segment in _segments(reference)[1:]:
            if isinstance(node, list) and segment.isdecimal() and int(segment) < len(node):
                node = node[int(segment)]
            elif isinstance(node, dict) and segment in node:
                node = node[segment]
            else:
                return None
        return node if isinstance(node, dict | bool) else None


def _segments(reference: str) -> list[str]:
    parts = unquote(reference).split("/")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _of(schema: dict[str, Any], keyword: str = "properties") -> dict[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def _inside(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "each item", schema.get("items")
    yield "each other entry" if _of(schema) else "each entry", schema.get("additionalProperties")
    for keyword, label in (
        ("prefixItems", "item"),
        ("anyOf", "alternative"),
        ("oneOf", "alternative"),
        ("allOf", "part"),
    ):
        inner = schema.get(keyword)
        for number, subschema in enumerate(inner if isinstance(inner, list) else (), 1):
            yield f"{label} {number}", subschema


def _presence(schema: Any, required: bool) -> tuple[Inline, ...]:
    if isinstance(schema, dict) and "default" in schema:
        return TextSpan("default "), _value(schema["default"])
    return (TextSpan("required" if required else "optional"),)


def _constraints(schema: Any) -> list[list[Inline]]:
    if not isinstance(schema, dict):
        return []
    found: list[list[Inline]] = []
    for keyword, (before, after) in _CONSTRAINTS.items():
        if keyword not in schema:
            continue
        value = schema[keyword]
        if keyword == "examples" and isinstance(value, list):
            shown = _several([[_value(example)] for example in value], ", ")
        elif keyword in _UNQUOTED and isinstance(value, str):
            shown = [CodeSpan(_cut(value))]
        elif isinstance(value, int | float):
            shown = [TextSpan(_json(value))]
        else:
            shown = [_value(value)]
        found.append([TextSpan(before), *shown, *([TextSpan(after)] if after else [])])
    if schema.get("uniqueItems") is True:
        found.append([TextSpan("without duplicates")])
    if schema.get("additionalProperties") is False and _of(schema):
        found.append([TextSpan("no other entries")])
    if schema.get("deprecated") is True:
        found.append([TextSpan("deprecated")])
    return found


def _several(lines: list[list[Inline]], separator: str) -> list[Inline]:
    more = len(lines) - _MAX_LISTED
    line = joined(lines[:_MAX_LISTED], separator)
    return [*line, TextSpan(f" and {more:,} more")] if more > 0 else line or [TextSpan("nothing")]


def _value(value: Any) -> CodeSpan:
    return CodeSpan(_cut(_json(value)))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    more = len(text) - _MAX_LENGTH
    return f"{text[:_MAX_LENGTH]}… ({more:,} characters more)" if more > 0 else text
