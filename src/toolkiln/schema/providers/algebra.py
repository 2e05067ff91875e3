"""Schema algebra: merging (to eliminate `allOf`) and overlap of schemas.

A merge is exact or fails; it never widens or narrows. An object that does not mention
additional properties is treated as closed, as in all strict modes.
"""

import math
from collections.abc import Mapping
from typing import Any

from toolkiln.model.base import JsonSchema
from toolkiln.schema.document import ANNOTATIONS, ASSERTIONS, SchemaDocument, assertions, json_types
from toolkiln.schema.providers.codec import equal

_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_KEYWORD_GROUPS = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("not",),
)
"""Keywords that are only meaningful together."""
_PROPERTY_KEYWORDS = {"properties", "patternProperties", "additionalProperties"}
_MERGE_DEPTH = 40


class CannotMergeError(Exception):
    """Two schemas cannot be merged exactly because of `keyword`."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


class NothingFitsError(CannotMergeError):
    """No value can satisfy both schemas."""


def merge(left: Any, right: Any, document: SchemaDocument, depth: int = _MERGE_DEPTH) -> Any:
    """Build the schema of the values that both accept; descriptions of `left` win.

    Raises:
        CannotMergeError: no exact merge exists.
    """
    if left is True or right is True:
        return right if left is True else left
    if left is False or right is False:
        return False
    if depth == 0:
        raise CannotMergeError("allOf")
    left, right = flat(left, document, depth - 1), flat(right, document, depth - 1)
    if left is False or right is False:
        return False
    out = {**right, **left}
    if not assertions(left) or not assertions(right):
        return out
    for group in _KEYWORD_GROUPS:
        ours, theirs = ({k: side[k] for k in group if k in side} for side in (left, right))
        if ours and theirs and not equal(ours, theirs):
            raise CannotMergeError(next(iter(ours)))
    for keyword in (left.keys() & right.keys()) - ANNOTATIONS:
        if keyword in ASSERTIONS and not equal(left[keyword], right[keyword]):
            out[keyword] = _merge_keyword(keyword, left, right, document, depth)
    _merge_additional(out, left, right, document, depth)
    return out


def flat(node: Any, document: SchemaDocument, depth: int = _MERGE_DEPTH) -> Any:
    """Eliminate `$ref` and `allOf` at the top of `node`.

    Raises:
        CannotMergeError: no exact merge exists.
    """
    if not isinstance(node, dict):
        return node
    if depth == 0:
        raise CannotMergeError("$ref")
    parts: list[Any] = []
    if "$ref" in node:
        parts.append(document.target(node["$ref"]))
    parts.extend(node.get("allOf", ()))
    out: Any = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
    if "unevaluatedProperties" in out and "additionalProperties" not in out:
        unevaluated = out.pop("unevaluatedProperties")
    else:
        unevaluated = None
    for part in parts:
        out = merge(out, flat(part, document, depth - 1), document, depth - 1)
    if unevaluated is not None and isinstance(out, dict):
        out = {"additionalProperties": unevaluated, **out}
    return out


def _merge_keyword(
    keyword: str, left: JsonSchema, right: JsonSchema, document: SchemaDocument, depth: int
) -> Any:
    a, b = left[keyword], right[keyword]
    if keyword in _LOWER_BOUNDS:
        return max(a, b)
    if keyword in _UPPER_BOUNDS:
        return min(a, b)
    if keyword == "type":
        return _common_types(a, b)
    if keyword == "required":
        return [*a, *(name for name in b if name not in a)]
    if keyword == "enum":
        common = [value for value in a if any(equal(value, other) for other in b)]
        if not common:
            raise NothingFitsError(keyword)
        return common
    if keyword == "const":
        raise NothingFitsError(keyword)
    if keyword == "uniqueItems":
        return True
    if keyword == "multipleOf" and isinstance(a, int) and isinstance(b, int):
        return math.lcm(a, b)
    if keyword in ("items", "additionalProperties", "propertyNames", "unevaluatedProperties"):
        return merge(a, b, document, depth - 1)
    if keyword == "properties":
        common_names = a.keys() & b.keys()
        both = {name: merge(a[name], b[name], document, depth - 1) for name in common_names}
        return {**a, **b, **both}
    raise CannotMergeError(keyword)


def _common_types(a: Any, b: Any) -> Any:
    first = [a] if isinstance(a, str) else list(a)
    second = [b] if isinstance(b, str) else list(b)
    common = [t for t in first if t in second or (t == "integer" and "number" in second)]
    if "integer" in second and "number" in first and "integer" not in common:
        common.append("integer")
    if not common:
        raise NothingFitsError("type")
    return common[0] if len(common) == 1 else common


def _merge_additional(
    out: JsonSchema, left: JsonSchema, right: JsonSchema, document: SchemaDocument, depth: int
) -> None:
    """Apply each side's `additionalProperties` to properties only the other side declares."""
    for one, other in ((left, right), (right, left)):
        if "prefixItems" in one and ("items" in other or "prefixItems" in other):
            raise CannotMergeError("prefixItems")
        if "patternProperties" in one and assertions(other).keys() & _PROPERTY_KEYWORDS:
            raise CannotMergeError("patternProperties")
        rule = one.get("additionalProperties", True)
        for name in other.get("properties", {}).keys() - one.get("properties", {}).keys():
            merged = merge(rule, other["properties"][name], document, depth - 1)
            out["properties"] = {**out["properties"], name: merged}


_ALL_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_OVERLAP_DEPTH = 6


def disjoint(
    left: JsonSchema,
    right: JsonSchema,
    definitions: Mapping[str, JsonSchema],
    depth: int = _OVERLAP_DEPTH,
) -> bool:
    """Return whether no value matches both; a pending definition may match anything."""
    if depth == 0:
        return False
    for one, other in ((left, right), (right, left)):
        if "$ref" in one:
            target = definitions.get(one["$ref"].removeprefix("#/$defs/"))
            return target is not None and disjoint(target, other, definitions, depth - 1)
        if "anyOf" in one:
            return all(disjoint(branch, other, definitions, depth) for branch in one["anyOf"])
    common = _types(left) & _types(right)
    if not common:
        return True
    if "enum" in left and "enum" in right:
        return not any(equal(a, b) for a in left["enum"] for b in right["enum"])
    return common == {"object"} and _objects_disjoint(left, right, definitions, depth - 1)


def admits_null(wire: JsonSchema, definitions: Mapping[str, JsonSchema]) -> bool | None:
    """Return whether null is valid; None if that depends on a pending definition."""
    if "$ref" in wire:
        target = definitions.get(wire["$ref"].removeprefix("#/$defs/"))
        return None if target is None else admits_null(target, definitions)
    if "anyOf" in wire:
        answers = [admits_null(branch, definitions) for branch in wire["anyOf"]]
        return True if True in answers else None if None in answers else False
    return "null" in _types(wire)


def _types(wire: JsonSchema) -> frozenset[str]:
    if "enum" in wire:
        return frozenset().union(*(json_types(value) for value in wire["enum"]))
    declared = wire.get("type", _ALL_TYPES)
    types = frozenset((declared,) if isinstance(declared, str) else declared)
    return types | {"integer"} if "number" in types else types


def _objects_disjoint(
    left: JsonSchema, right: JsonSchema, definitions: Mapping[str, JsonSchema], depth: int
) -> bool:
    for one, other in ((left, right), (right, left)):
        closed = other.get("additionalProperties") is False
        if closed and any(name not in other["properties"] for name in one.get("required", ())):
            return True
    shared = set(left.get("required", ())) & set(right.get("required", ()))
    return any(
        disjoint(left["properties"][name], right["properties"][name], definitions, depth)
        for name in shared
        if name in left["properties"] and name in right["properties"]
    )
