"""Whether two encoded forms can be told apart by looking at a value.

Answers for the schemas that `lowering` writes, and errs on one side only: what it calls
disjoint is disjoint. Full reasoning about JSON Schema is not attempted.
"""

from collections.abc import Mapping

from toolkiln.model import JsonSchema
from toolkiln.schema.providers.codec import equal
from toolkiln.schema.structure import json_types

_ALL = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_DEPTH = 6


def disjoint(
    left: JsonSchema, right: JsonSchema, definitions: Mapping[str, JsonSchema], depth: int = _DEPTH
) -> bool:
    """Whether no value is valid for both; a definition not written yet may be anything."""
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
    """Whether null is valid; None where a definition is not written yet."""
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
    declared = wire.get("type", _ALL)
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
