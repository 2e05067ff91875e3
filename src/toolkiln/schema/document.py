"""A JSON Schema document as a tree of subschemas with local references.

It knows where subschemas sit, how JSON pointers are written and what a reference means;
it judges nothing (`validity` does) and rewrites nothing (`providers` do). References are
local pointers only: nothing is ever fetched.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

from jsonschema_rs import Draft202012Validator, Registry

from toolkiln.model import JsonSchema
from toolkiln.schema.patterns import (
    LINEAR,
    LONGEST_BACKTRACKED,
    PatternOptions,
    backtracks,
    options_for,
)

IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE_SINGLES = ("not", "if", "then", "else")
_SINGLES = (
    *IN_PLACE_SINGLES,
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
)
_LISTS = (*IN_PLACE_LISTS, "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_URN = "urn:toolkiln:parameters"

ANNOTATIONS = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "$defs",
        "definitions",
        "$comment",
        "$schema",
        "$id",
        "$anchor",
        "$vocabulary",
    )
)
"""Keywords that describe without constraining; unknown keywords count as these too."""

ASSERTIONS = frozenset(
    (
        *_SINGLES,
        *_LISTS,
        *("$ref", "$dynamicRef", "type", "enum", "const", "format", "pattern"),
        *("properties", "patternProperties", "dependentSchemas", "dependentRequired", "required"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
        *("minProperties", "maxProperties", "minContains", "maxContains"),
    )
) - {"contentSchema"}
"""Keywords that can refuse a value."""


def join(path: str, *tokens: str | int) -> str:
    """The JSON pointer `path` with `tokens` appended."""
    escaped = (str(token).replace("~", "~0").replace("/", "~1") for token in tokens)
    return "/".join((path, *escaped))


def resolve(root: object, ref: str) -> Any:
    """What the local reference `ref` points at.

    Raises:
        LookupError: it points nowhere, or outside of the document.
    """
    if ref != "#" and not ref.startswith("#/"):
        raise LookupError(ref)
    found: Any = root
    for token in unquote(ref).split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit():
            found = found[int(key)]
        else:
            raise LookupError(ref)
    return found


def children(node: JsonSchema) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The direct subschemas of `node` with the pointer tokens that lead to them."""
    for keyword in _SINGLES:
        if keyword in node:
            yield (keyword,), node[keyword]
    for keyword in _LISTS:
        if isinstance(node.get(keyword), list):
            for index, child in enumerate(node[keyword]):
                yield (keyword, index), child
    for keyword in _MAPS:
        if isinstance(node.get(keyword), dict):
            for name, child in node[keyword].items():
                yield (keyword, name), child


def walk(root: JsonSchema) -> Iterator[tuple[str, JsonSchema]]:
    """Every object subschema of a valid document with its pointer, the root first."""
    pending: list[tuple[str, Any]] = [("", root)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, dict):
            yield path, node
            found = [(join(path, *tokens), child) for tokens, child in children(node)]
            pending.extend(reversed(found))


def bounded(schema: JsonSchema) -> JsonSchema:
    """The schema, with a length for strings and keys that a backtracking engine matches."""
    if options_for(schema) is LINEAR:
        return schema
    copy: JsonSchema = deepcopy(schema)
    for _, node in list(walk(copy)):
        if backtracks(node.get("pattern")):
            longest = node.get("maxLength", LONGEST_BACKTRACKED)
            node["maxLength"] = min(longest, LONGEST_BACKTRACKED)
        if any(map(backtracks, node.get("patternProperties", ()))):
            short = {"propertyNames": {"maxLength": LONGEST_BACKTRACKED}}
            node["allOf"] = [*node.get("allOf", ()), short]
    return copy


def assertions(node: JsonSchema) -> JsonSchema:
    """The part of `node` that can refuse a value."""
    return {key: value for key, value in node.items() if key in ASSERTIONS}


def is_free_form(node: object) -> bool:
    """Whether a subschema says nothing about its values."""
    return node is True or (isinstance(node, dict) and not assertions(node))


def without_definitions(node: Any) -> Any:
    """A subschema without what it merely defines."""
    if not isinstance(node, dict):
        return node
    return {key: value for key, value in node.items() if key not in ("$defs", "definitions")}


def implied_type(node: JsonSchema) -> str | None:
    """The type that a schema without one is about, by the keywords it has."""
    if "properties" in node:
        return "object"
    return "array" if "prefixItems" in node or isinstance(node.get("items"), dict) else None


class Document:
    """A valid schema whose parts can be looked up and used as validators."""

    def __init__(self, root: JsonSchema) -> None:
        self.root = root
        self._registry: Registry | None = None
        self._options: PatternOptions = LINEAR

    def target(self, ref: str) -> Any:
        """What `ref` points at; LookupError if nothing."""
        return resolve(self.root, ref)

    def validator(self, node: object) -> Draft202012Validator:
        """A validator for a part of the document, or for a schema made from its parts."""
        if self._registry is None:
            self._registry = Registry([(_URN, _detached(bounded(self.root)))])
            self._options = options_for(self.root)
        schema = _detached(bounded(node) if isinstance(node, dict) else node)
        return Draft202012Validator(
            schema, registry=self._registry, pattern_options=self._options, offline=True
        )


def _detached(node: Any) -> Any:
    """A copy whose references are absolute, so that it keeps its meaning anywhere."""
    if not isinstance(node, dict):
        return node
    copy = {key: value for key, value in node.items() if key not in ("$id", "$schema")}
    if isinstance(copy.get("$ref"), str) and copy["$ref"].startswith("#"):
        copy["$ref"] = _URN + copy["$ref"]
    for keyword in _SINGLES:
        if keyword in copy:
            copy[keyword] = _detached(copy[keyword])
    for keyword in _LISTS:
        if isinstance(copy.get(keyword), list):
            copy[keyword] = [_detached(child) for child in copy[keyword]]
    for keyword in _MAPS:
        if isinstance(copy.get(keyword), dict):
            copy[keyword] = {name: _detached(child) for name, child in copy[keyword].items()}
    return copy
