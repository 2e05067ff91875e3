"""Schema validity: reasons why a schema is unusable as a tool's parameters for any provider.

Strictness is up to `health`. All other modules rely on these checks: a valid schema can be
walked, resolved and compiled without endless recursion or network access.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jsonschema_rs import Draft202012Validator, ReferencingError, ValidationError

from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import HealthLevel, HealthPoint
from toolkiln.schema.document import (
    IN_PLACE_LISTS,
    IN_PLACE_SINGLES,
    JsonLimits,
    flaws,
    join,
    resolve,
    walk,
)
from toolkiln.schema.validator_options import MAX_BACKTRACKED_LENGTH, engine_of, options_for

BOUNDS = JsonLimits(depth=100, string_length=200_000, items=20_000, total_bytes=2_000_000)
"""Maximum size of a schema."""
_MAX_EXPANSION = 1_000
"""Maximum number of subschemas that apply to one value, counting repeated references."""
_MAX_CHAIN = 100
"""Maximum number of references and combinators between the root and its type."""
_MAX_POINTS = 50
_ORDERED = (
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minimum", "maximum"),
)
_Nodes = list[tuple[str, JsonSchema]]
"""The object subschemas of a document, each with its JSON pointer."""


def invalid_points(parameters: object) -> list[HealthPoint]:
    """Return the reasons why `parameters` cannot describe a tool's arguments."""
    if not isinstance(parameters, dict):
        return [_point("", "the parameters are not a JSON object")]
    found = [_point(path, reason) for path, reason in flaws(parameters, BOUNDS)]
    if found:
        return found
    found = list(_against_metaschema(parameters))
    if found:
        return found[:_MAX_POINTS]
    nodes = list(walk(parameters))
    references = list(_reference_points(parameters, nodes))
    if not references:
        references = list(_expansion_points(parameters, nodes))
    found = [*references, *_contradictions(nodes)]
    if not references:
        found.extend(_root_points(parameters))
    if not found:
        found.extend(_refused_by_validator(parameters))
    return found[:_MAX_POINTS]


def _point(path: str, reason: str) -> HealthPoint:
    return HealthPoint(level=HealthLevel.INVALID, path=path, reason=reason)


@lru_cache(maxsize=1)
def _metaschema() -> Draft202012Validator:
    schema = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    return Draft202012Validator(schema, offline=True)


def _against_metaschema(parameters: JsonSchema) -> Iterator[HealthPoint]:
    seen: set[str] = set()
    for error in _metaschema().iter_errors(parameters):
        path = join("", *error.instance_path)
        if path not in seen:
            seen.add(path)
            yield _point(path, f"not valid JSON Schema 2020-12: {_brief(error)}")


def _brief(error: ValidationError) -> str:
    if error.instance_path and error.instance_path[-1] == "type":
        return "'type' must be one of the seven JSON types, or a list of them"
    message = error.message
    return message if len(message) <= 160 else f"{message[:157]}..."


def _reference_points(root: JsonSchema, nodes: _Nodes) -> Iterator[HealthPoint]:
    positions = {id(node) for _, node in nodes}
    for path, node in nodes:
        if "$dynamicRef" in node:
            yield _point(path, "'$dynamicRef' is not supported; use '$ref'")
        if "$id" in node and path:
            yield _point(path, "a nested '$id' changes the meaning of references; remove it")
        ref = node.get("$ref")
        if ref is None:
            continue
        if not ref.startswith("#"):
            yield _point(path, f"the reference {ref!r} is external; only local ones are supported")
        elif ref != "#" and not ref.startswith("#/"):
            yield _point(path, f"the reference {ref!r} is not a JSON pointer such as '#/$defs/X'")
        else:
            try:
                target = resolve(root, ref)
            except (LookupError, ValueError):
                yield _point(path, f"the reference {ref!r} has no target")
                continue
            # A pointer into a `default` or an unknown keyword may find an object that is no schema.
            if not isinstance(target, bool) and id(target) not in positions:
                yield _point(path, f"the reference {ref!r} does not point to a schema")


def _in_place(root: JsonSchema, node: JsonSchema) -> Iterator[Any]:
    if "$ref" in node:
        yield resolve(root, node["$ref"])
    for keyword in IN_PLACE_LISTS:
        yield from node.get(keyword, ())
    for keyword in IN_PLACE_SINGLES:
        if keyword in node:
            yield node[keyword]
    yield from node.get("dependentSchemas", {}).values()


def _expansion_points(root: JsonSchema, nodes: _Nodes) -> Iterator[HealthPoint]:
    """Yield circular references, and references that multiply beyond the limit."""
    cost: dict[int, int] = {}
    for path, start in nodes:
        pending: list[tuple[JsonSchema, bool]] = [(start, False)]
        open_nodes: set[int] = set()
        while pending:
            node, leaving = pending.pop()
            if leaving:
                open_nodes.discard(id(node))
                below = (cost.get(id(child), 1) for child in _in_place(root, node))
                cost[id(node)] = min(1 + sum(below), _MAX_EXPANSION + 1)
            elif id(node) in open_nodes:
                yield _point(path, "the references are circular without describing a value")
                return
            elif id(node) not in cost:
                open_nodes.add(id(node))
                pending.append((node, True))
                inner = _in_place(root, node)
                pending.extend((child, False) for child in inner if isinstance(child, dict))
        if cost[id(start)] > _MAX_EXPANSION:
            yield _point(path, f"more than {_MAX_EXPANSION:,} subschemas apply to one value")
            return


def _contradictions(nodes: _Nodes) -> Iterator[HealthPoint]:
    for path, node in nodes:
        for keyword in ("pattern", "patternProperties"):
            patterns = node.get(keyword, ())
            for pattern in (patterns,) if isinstance(patterns, str) else patterns:
                if not _compiles(pattern):
                    where = join(path, keyword)
                    yield _point(where, f"{pattern[:80]!r} is not a regular expression")
        properties = node.get("properties")
        if properties is not None and not any(key in node for key in (*IN_PLACE_LISTS, "$ref")):
            patterns = [p for p in node.get("patternProperties", {}) if _compiles(p)]
            for name in node.get("required", ()):
                if name not in properties and not _matches(name, patterns):
                    where = join(path, "required")
                    yield _point(where, f"{name!r} is required but not among the properties")
        if node.get("enum") == []:
            yield _point(join(path, "enum"), "an empty enum accepts no value")
        for low, high in _ORDERED:
            if low in node and high in node and node[low] > node[high]:
                yield _point(path, f"{low} {node[low]} is greater than {high} {node[high]}")


def _compiles(pattern: str) -> bool:
    return engine_of(pattern) is not None


def _matches(name: str, patterns: list[str]) -> bool:
    return any(
        Draft202012Validator(
            {"pattern": pattern}, pattern_options=engine_of(pattern), offline=True
        ).is_valid(name[:MAX_BACKTRACKED_LENGTH])
        for pattern in patterns
    )


def _root_points(root: JsonSchema) -> Iterator[HealthPoint]:
    if not is_object(root, root):
        kind = root.get("type")
        actual = f"is {kind!r}" if isinstance(kind, str) else "is not declared"
        yield _point("", f"the root must have type 'object'; its type {actual}")


def is_object(root: JsonSchema, node: object, chain: int = 0) -> bool:
    """Return whether a subschema without circular references accepts only objects."""
    if not isinstance(node, dict) or chain > _MAX_CHAIN:
        return False
    if node.get("type") in ("object", ["object"]):
        return True
    if "$ref" in node and is_object(root, resolve(root, node["$ref"]), chain + 1):
        return True
    if any(is_object(root, child, chain + 1) for child in node.get("allOf", ())):
        return True
    return any(
        node.get(keyword) and all(is_object(root, child, chain + 1) for child in node[keyword])
        for keyword in ("anyOf", "oneOf")
    )


def _refused_by_validator(root: JsonSchema) -> Iterator[HealthPoint]:
    schema = {key: value for key, value in root.items() if key not in ("$schema", "$id")}
    try:
        Draft202012Validator(schema, pattern_options=options_for(schema), offline=True)
    except ValidationError as error:
        yield _point(join("", *error.instance_path), _brief(error))
    except (ValueError, ReferencingError) as error:
        yield _point("", re.sub(r"\s+", " ", str(error))[:160])
