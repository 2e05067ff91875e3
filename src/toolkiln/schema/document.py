"""A JSON Schema document as a tree of subschemas with local references.

It knows where subschemas sit, how JSON pointers are written and what a reference means;
it judges nothing (`validity` does) and rewrites nothing (`providers` do). References are
local pointers only: nothing is ever fetched.
"""

from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from typing import Any
from urllib.parse import unquote

from jsonschema_rs import Draft202012Validator, Registry

from toolkiln.model import JsonSchema
from toolkiln.schema.formats import FORMATS
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
_IN_PLACE = frozenset((*IN_PLACE_LISTS, *IN_PLACE_SINGLES, "dependentSchemas"))
_OF_PROPERTIES = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))
_OF_ITEMS = frozenset(("items", "contains", "unevaluatedItems"))

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


def format_options(schema: JsonSchema) -> dict[str, Any]:
    """What a validator is given to check the formats of a schema; each format costs time."""
    used = {node["format"] for _, node in walk(schema) if "format" in node}
    formats = {name: accepts for name, accepts in FORMATS.items() if name in used}
    return {"validate_formats": True, "formats": formats} if used else {}


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


def member_schema(node: JsonSchema, key: str | int) -> Any:
    """The subschema that one part of a schema has for a member of an object or an array."""
    if isinstance(key, str):
        others = None if node.get("patternProperties") else node.get("additionalProperties")
        return node.get("properties", {}).get(key, others)
    prefix = node.get("prefixItems", ())
    return prefix[key] if key < len(prefix) else node.get("items")


def _member(value: object, key: str | int) -> list[Any]:
    """The member of a value with this name or index, if there is one."""
    if isinstance(value, dict):
        return [value[key]] if key in value else []
    return value[key : key + 1] if isinstance(value, list) and isinstance(key, int) else []


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
        self._formats: dict[str, Any] = {}
        self._validators: dict[int, tuple[Draft202012Validator, object]] = {}

    def target(self, ref: str) -> Any:
        """What `ref` points at; LookupError if nothing."""
        return resolve(self.root, ref)

    def parts(self, node: JsonSchema) -> list[JsonSchema]:
        """The subschemas that all apply to the same value: references and `allOf`."""
        found: dict[int, JsonSchema] = {}
        pending: list[Any] = [node]
        while pending:
            part = pending.pop()
            if isinstance(part, dict) and id(part) not in found:
                found[id(part)] = part
                if "$ref" in part:
                    pending.append(self.target(part["$ref"]))
                pending += reversed(part.get("allOf", ()))
        return list(found.values())

    def steps(self, node: object, value: object, limit: int) -> int:
        """How many subschemas a validation looks at that stops at no error.

        The count grows with each alternative, at each level: it can be exponential in the
        depth of the value. It ends shortly after the limit.
        """
        count = 0
        pending = [(node, value)]
        while pending and count <= limit:
            schema, item = pending.pop()
            count += 1
            if isinstance(schema, dict) and "$ref" in schema:
                pending.append((self.target(schema["$ref"]), item))
            for (keyword, *name), child in children(schema) if isinstance(schema, dict) else ():
                count += 1
                if not isinstance(child, dict):
                    continue
                if keyword in _IN_PLACE:
                    pending.append((child, item))
                elif keyword in ("properties", "prefixItems"):
                    pending += [(child, member) for member in _member(item, name[0])]
                elif keyword == "propertyNames" and isinstance(item, dict):
                    pending += [(child, key) for key in islice(item, limit)]
                elif keyword in _OF_PROPERTIES and isinstance(item, dict):
                    pending += [(child, member) for member in islice(item.values(), limit)]
                elif keyword in _OF_ITEMS and isinstance(item, list):
                    pending += [(child, member) for member in item[:limit]]
        return count + len(pending)

    def accepts(self, node: object, value: object) -> bool:
        """Whether a value is valid for a part of the document."""
        return bool(self.kept_validator(node).is_valid(value))

    def kept_validator(self, node: object) -> Draft202012Validator:
        """A validator for a part of the document, compiled once."""
        kept = self._validators.get(id(node))
        if kept is None:
            # The entry holds the part, so that no other object can get its id.
            kept = self._validators[id(node)] = (self.validator(node), node)
        return kept[0]

    def validator(self, node: object) -> Draft202012Validator:
        """A validator for a part of the document, or for a schema made from its parts."""
        if self._registry is None:
            self._registry = Registry([(_URN, _detached(bounded(self.root)))])
            self._options = options_for(self.root)
            self._formats = format_options(self.root)
        schema = _detached(bounded(node) if isinstance(node, dict) else node)
        return Draft202012Validator(
            schema,
            registry=self._registry,
            pattern_options=self._options,
            offline=True,
            **self._formats,
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
