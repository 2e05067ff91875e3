"""A JSON Schema in words: kinds, constraints, members; each type that it refers to once.

For reading only. Whether a schema is right is for `schema` to judge; here any JSON is
described as far as it makes sense, and what is too long or too deep is said to go on.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from toolkiln.docs import prose
from toolkiln.docs.blocks import (
    Block,
    Blocks,
    Bullets,
    Code,
    Inline,
    Text,
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
_BARE = frozenset({"format", "pattern", "contentEncoding", "contentMediaType"})
"""Constraints whose strings are not values."""
_ALTERNATIVES = (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and "))
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "enum"})
_STRUCTURE = frozenset(
    {"properties", "patternProperties", "additionalProperties", "items", "prefixItems"}
    | {"anyOf", "oneOf", "allOf"}
)
_MOST = 50
_LONGEST = 300
_DEEPEST = 8


class SchemaWords:
    """The words for one schema document."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._types: dict[str, str] = {}
        """The names of the types referred to, by reference, in order of appearance."""

    def phrase(self, schema: Any) -> list[Inline]:
        """The kind and the constraints of a value in a few words."""
        return joined([self._kind(schema, 0), *_constraints(schema)], "; ")

    def members(self, schema: Any, notes: Mapping[str, str] | None = None) -> Blocks:
        """The entries of an object, the items of an array, with `notes` where it says nothing."""
        items = tuple(self._members(schema, notes or {}, 0))
        return (Bullets(items),) if items else ()

    def types(self) -> Blocks:
        """The types that were referred to by anything described so far, and by one another."""
        items: list[Blocks] = []
        while len(items) < len(self._types):
            reference, name = list(self._types.items())[len(items)]
            items.append(self._member([Code(name)], self._resolved(reference), (), 0))
        return (paragraph("The types named above:"), Bullets(tuple(items))) if items else ()

    def _kind(self, schema: Any, depth: int) -> list[Inline]:
        if not isinstance(schema, dict):
            return [Text("nothing" if schema is False else "any value")]
        if depth > _DEEPEST:
            return [Text("a value of further depth")]
        if isinstance(reference := schema.get("$ref"), str):
            return [Code(self._name(reference))]
        if "const" in schema:
            return [Text("always "), _value(schema["const"])]
        if isinstance(values := schema.get("enum"), list):
            return [Text("one of "), *_several([[_value(value)] for value in values], ", ")]
        for keyword, word in _ALTERNATIVES:
            if isinstance(options := schema.get(keyword), list):
                return _several([self._option(option, depth) for option in options], word)
        kinds = schema.get("type")
        names = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind]
        return joined([self._named(str(kind), schema, depth) for kind in names], " or ") or [
            Text("object" if "properties" in schema else "any value")
        ]

    def _option(self, schema: Any, depth: int) -> list[Inline]:
        kind, constraints = self._kind(schema, depth + 1), joined(_constraints(schema), "; ")
        return [*kind, Text(" ("), *constraints, Text(")")] if constraints else kind

    def _inner(self, schema: Any, depth: int) -> list[Inline]:
        """An option that cannot be taken for several."""
        option = self._option(schema, depth)
        several = isinstance(schema, dict) and (
            isinstance(schema.get("type"), list) or not _SEVERAL.isdisjoint(schema)
        )
        return [Text("("), *option, Text(")")] if several else option

    def _named(self, kind: str, schema: dict[str, Any], depth: int) -> list[Inline]:
        if kind == "array":
            if isinstance(places := schema.get("prefixItems"), list):
                inside = [self._inner(place, depth) for place in places]
                return [Text("array of: "), *_several(inside, ", ")]
            if schema.get("items") not in (None, {}, True):
                return [Text("array of "), *self._inner(schema["items"], depth)]
        entries = schema.get("additionalProperties")
        if kind == "object" and isinstance(entries, dict) and entries and not _of(schema):
            return [Text("object with any keys, each "), *self._inner(entries, depth)]
        return [Text(kind)]

    def _members(self, schema: Any, notes: Mapping[str, str], depth: int) -> Iterator[Blocks]:
        if not isinstance(schema, dict) or _STRUCTURE.isdisjoint(schema):
            return
        if depth > _DEEPEST:
            yield (paragraph("further levels, as in the schema"),)
            return
        required = schema.get("required")
        for name, inner in _of(schema).items():
            must = isinstance(required, list) and name in required
            yield self._member([Code(name)], inner, _presence(inner, must), depth, notes.get(name))
        for pattern, inner in _of(schema, "patternProperties").items():
            yield self._member([Text("keys like "), Code(pattern)], inner, (), depth)
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
        line = [*label, Text(" ("), *joined(facts, "; "), Text(")")]
        return labelled(line, self._below(schema, note, depth))

    def _below(self, schema: Any, note: str | None, depth: int) -> Blocks:
        """What else there is to say of a value: its description, then its members."""
        said = schema.get("description") if isinstance(schema, dict) else None
        found: list[Block] = [*prose.blocks(said if isinstance(said, str) and said else note or "")]
        members = tuple(self._members(schema, {}, depth + 1))
        return (*found, Bullets(members)) if members else tuple(found)

    def _name(self, reference: str) -> str:
        if reference not in self._types:
            if self._resolved(reference) is None:
                return reference
            name = _segments(reference)[-1]
            taken = name in self._types.values() or not name
            self._types[reference] = reference if taken else name
        return self._types[reference]

    def _resolved(self, reference: str) -> Any:
        """What a local reference points to; None if it points to nothing."""
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
    """Subschemas without a name of their own."""
    yield "each item", schema.get("items")
    yield "each other entry" if _of(schema) else "each entry", schema.get("additionalProperties")
    for keyword, label in (
        ("prefixItems", "item"),
        ("anyOf", "alternative"),
        ("oneOf", "alternative"),
        ("allOf", "part"),
    ):
        inner = schema.get(keyword)
        for number, one in enumerate(inner if isinstance(inner, list) else (), 1):
            yield f"{label} {number}", one


def _presence(schema: Any, required: bool) -> tuple[Inline, ...]:
    if isinstance(schema, dict) and "default" in schema:
        return Text("default "), _value(schema["default"])
    return (Text("required" if required else "optional"),)


def _constraints(schema: Any) -> list[list[Inline]]:
    if not isinstance(schema, dict):
        return []
    found: list[list[Inline]] = []
    for keyword, (before, after) in _CONSTRAINTS.items():
        if keyword not in schema:
            continue
        value = schema[keyword]
        if keyword == "examples" and isinstance(value, list):
            shown = _several([[_value(one)] for one in value], ", ")
        elif keyword in _BARE and isinstance(value, str):
            shown = [Code(_cut(value))]
        elif isinstance(value, int | float):
            shown = [Text(_json(value))]
        else:
            shown = [_value(value)]
        found.append([Text(before), *shown, *([Text(after)] if after else [])])
    if schema.get("uniqueItems") is True:
        found.append([Text("without duplicates")])
    if schema.get("additionalProperties") is False and _of(schema):
        found.append([Text("no other entries")])
    if schema.get("deprecated") is True:
        found.append([Text("deprecated")])
    return found


def _several(lines: list[list[Inline]], separator: str) -> list[Inline]:
    more = len(lines) - _MOST
    line = joined(lines[:_MOST], separator)
    return [*line, Text(f" and {more:,} more")] if more > 0 else line or [Text("nothing")]


def _value(value: Any) -> Code:
    return Code(_cut(_json(value)))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    more = len(text) - _LONGEST
    return f"{text[:_LONGEST]}… ({more:,} characters more)" if more > 0 else text
