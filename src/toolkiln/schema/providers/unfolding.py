"""A schema for readers who drop half of it: references unfolded, constraints in words too.

Clients of the Model Context Protocol hand schemas on to models after taking out what they
do not know. What is said here twice survives that; nothing is taken away, and the same
values fit before and after. Recursive references stay, and so do all in a schema that
would grow too large without them.
"""

from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.schema.document import ANNOTATIONS, children, resolve
from toolkiln.schema.providers.wording import default_note, described, phrase

_DEFINITIONS = ("$defs", "definitions")
_MOST_NODES = 1_000
_LONGEST_ENUM = 100
"""Characters of a list of values that is repeated in words; no client drops those lists."""
_SPOKEN = (
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    *("not", "contains", "dependentRequired", "propertyNames"),
)
_SHAPES = frozenset(
    (
        *("properties", "patternProperties", "additionalProperties", "items", "prefixItems"),
        *("anyOf", "oneOf", "allOf"),
        *_DEFINITIONS,
    )
)
"""What describes a value or a part of it; a `not` or an `if` says what it need not be."""


class _TooLargeError(Exception):
    """The schema has too many nodes without its references."""


def unfolded(schema: JsonSchema) -> JsonSchema:
    """The schema with what it says spelled out."""
    try:
        found = _Unfolding(schema).root()
    except _TooLargeError:
        found = schema
    return _spoken(found, is_value=False)


class _Unfolding:
    """Replaces local references by what they mean."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._nodes = 0
        self._is_kept = False
        """Whether a reference stayed, and definitions with it."""

    def root(self) -> JsonSchema:
        bare = {k: v for k, v in self._schema.items() if k not in _DEFINITIONS}
        found = self._node(bare, ("#",))
        kept = {k: v for k, v in self._schema.items() if k in _DEFINITIONS}
        return {**found, **kept} if self._is_kept else found

    def _node(self, node: JsonSchema, within: tuple[str, ...]) -> JsonSchema:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooLargeError
        ref = node.get("$ref")
        if isinstance(ref, str):
            return self._referred(node, ref, within)
        copy = dict(node)
        for tokens, child in children(node):
            if not isinstance(child, dict):
                continue
            keyword = str(tokens[0])
            if len(tokens) == 1:
                copy[keyword] = self._node(child, within)
            else:
                if copy[keyword] is node[keyword]:
                    copy[keyword] = node[keyword].copy()
                copy[keyword][tokens[1]] = self._node(child, within)
        return copy

    def _referred(self, node: JsonSchema, ref: str, within: tuple[str, ...]) -> JsonSchema:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        try:
            target = resolve(self._schema, ref)
        except (LookupError, ValueError):
            target = None
        # Another keyword beside the reference constrains as well, and would be overwritten.
        is_plain = beside.keys() <= ANNOTATIONS and isinstance(target, dict)
        if ref in within or not is_plain or not ref.startswith(("#/$defs/", "#/definitions/")):
            self._is_kept = True
            return node
        return {**self._node(target, (*within, ref)), **beside}


def _spoken(node: JsonSchema, *, is_value: bool = True) -> JsonSchema:
    copy = dict(node)
    for tokens, child in children(node):
        keyword = str(tokens[0])
        if not isinstance(child, dict) or keyword not in _SHAPES:
            continue
        spoken = _spoken(child, is_value=keyword != "anyOf" or len(_branches(node)) > 1)
        if len(tokens) == 1:
            copy[keyword] = spoken
        else:
            if copy[keyword] is node[keyword]:
                copy[keyword] = node[keyword].copy()
            copy[keyword][tokens[1]] = spoken
    if is_value and (text := described(node.get("description"), _notes(node))):
        copy["description"] = text
    return copy


def _notes(node: JsonSchema) -> list[str]:
    said = node.get("description")
    text = said if isinstance(said, str) else ""
    notes = [phrase(key, value) for key, value in _constraints(node) if value is not False]
    if node.get("default") is not None:
        notes.append(default_note(node["default"]))
    return [note for note in notes if note not in text]


def _constraints(node: JsonSchema) -> list[tuple[str, Any]]:
    found = [(key, node[key]) for key in _SPOKEN if key in node]
    if "const" in node:
        found.append(("enum", [node["const"]]))
    if "enum" in node and len(phrase("enum", node["enum"])) <= _LONGEST_ENUM:
        found.append(("enum", node["enum"]))
    branches = _branches(node)
    if len(branches) == 1:
        found += _constraints(branches[0])
    return found


def _branches(node: JsonSchema) -> list[JsonSchema]:
    """What a value may be but null: `int | None` says its bounds itself, not in a branch."""
    given = node.get("anyOf", ())
    return [each for each in given if isinstance(each, dict) and each.get("type") != "null"]
