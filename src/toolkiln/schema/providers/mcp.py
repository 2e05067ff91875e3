"""MCP tool listing: compiler, inlined references, structured results. Not the MCP server.

MCP supports all of JSON Schema 2020-12, but many clients drop references and constraints:
references are inlined and constraints repeated in descriptions. All protocol versions but the
latest require object output schemas, so other results are wrapped as `{"result": ...}`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from jsonschema_rs import Draft202012Validator

from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.document import (
    ANNOTATIONS,
    flaws,
    limit_backtracking,
    map_children,
    resolve,
)
from toolkiln.schema.providers.codec import SAME
from toolkiln.schema.providers.compilers import compiled, name_errors
from toolkiln.schema.providers.profile import Compiled, Loss
from toolkiln.schema.providers.transform import LoweredRoot
from toolkiln.schema.providers.wire import default_note, described, phrase
from toolkiln.schema.validator_options import options_for
from toolkiln.schema.validity import BOUNDS, invalid_points

_DEFINITIONS = ("$defs", "definitions")
_MAX_NODES = 1_000
_MAX_ENUM_LENGTH = 100
"""Longer enums are not repeated in descriptions; clients do not drop enums."""
_DESCRIBED_KEYWORDS = (
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    *("not", "contains", "dependentRequired", "propertyNames"),
)
_DESCRIBED_CHILDREN = frozenset(
    (
        *("properties", "patternProperties", "additionalProperties", "items", "prefixItems"),
        *("anyOf", "oneOf", "allOf"),
        *_DEFINITIONS,
    )
)
"""Keywords whose subschemas describe a value or part of it, unlike `not` or `if`."""


class _TooLargeError(Exception):
    """The schema has too many nodes once its references are inlined."""


def inlined(schema: JsonSchema) -> JsonSchema:
    """Inline references and repeat constraints in descriptions."""
    with suppress(_TooLargeError):
        schema = _Inliner(schema).root()
    return _describe(schema, is_value=False)


class _Inliner:
    """Replaces local references with their targets."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._nodes = 0
        self._has_references = False
        """Whether a reference, and with it the definitions, could not be inlined."""

    def root(self) -> JsonSchema:
        bare = {k: v for k, v in self._schema.items() if k not in _DEFINITIONS}
        root = self._node(bare, ("#",))
        definitions = {k: v for k, v in self._schema.items() if k in _DEFINITIONS}
        return {**root, **definitions} if self._has_references else root

    def _node(self, node: JsonSchema, ancestors: tuple[str, ...]) -> JsonSchema:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _TooLargeError
        ref = node.get("$ref")
        if isinstance(ref, str):
            return self._inline(node, ref, ancestors)
        return map_children(
            node,
            lambda _, child: self._node(child, ancestors) if isinstance(child, dict) else child,
        )

    def _inline(self, node: JsonSchema, ref: str, ancestors: tuple[str, ...]) -> JsonSchema:
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        try:
            target = resolve(self._schema, ref)
        except (LookupError, ValueError):
            target = None
        # Constraints beside the reference apply as well, and would be overwritten.
        is_plain = siblings.keys() <= ANNOTATIONS and isinstance(target, dict)
        if ref in ancestors or not is_plain or not ref.startswith(("#/$defs/", "#/definitions/")):
            self._has_references = True
            return node
        return {**self._node(target, (*ancestors, ref)), **siblings}


def _describe(node: JsonSchema, *, is_value: bool = True) -> JsonSchema:
    def describe_child(keyword: str, child: Any) -> Any:
        if not isinstance(child, dict) or keyword not in _DESCRIBED_CHILDREN:
            return child
        return _describe(child, is_value=keyword != "anyOf" or len(_branches(node)) > 1)

    copy = map_children(node, describe_child)
    if is_value and (text := described(node.get("description"), _notes(node))):
        copy["description"] = text
    return copy


def _notes(node: JsonSchema) -> list[str]:
    description = node.get("description")
    text = description if isinstance(description, str) else ""
    notes = [phrase(key, value) for key, value in _constraints(node) if value is not False]
    if node.get("default") is not None:
        notes.append(default_note(node["default"]))
    return [note for note in notes if note not in text]


def _constraints(node: JsonSchema) -> list[tuple[str, Any]]:
    found = [(key, node[key]) for key in _DESCRIBED_KEYWORDS if key in node]
    if "const" in node:
        found.append(("enum", [node["const"]]))
    if "enum" in node and len(phrase("enum", node["enum"])) <= _MAX_ENUM_LENGTH:
        found.append(("enum", node["enum"]))
    branches = _branches(node)
    if len(branches) == 1:
        found += _constraints(branches[0])
    return found


def _branches(node: JsonSchema) -> list[JsonSchema]:
    # Without null: `int | None` describes the bounds at the union, not in a branch.
    branches = node.get("anyOf", ())
    return [each for each in branches if isinstance(each, dict) and each.get("type") != "null"]


_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)


def compile_mcp(spec: ToolSpec) -> Compiled:
    """Compile an entry of `tools/list`."""
    payload: dict[str, Any] = {
        "name": spec.name,
        "title": spec.display_name,
        "description": spec.description,
        "inputSchema": {**inlined(spec.parameters), "type": "object"},
    }
    losses: list[Loss] = []
    if spec.returns is not None and flaws(spec.returns, BOUNDS):
        losses.append(Loss("", "outputSchema", "the output schema is too large or not JSON"))
    elif spec.returns is not None:
        payload["outputSchema"] = _output(spec.returns)
    hints = {wire: getattr(spec.hints, name) for wire, name in _HINTS}
    annotations = {wire: value for wire, value in hints.items() if value is not None}
    if annotations:
        payload["annotations"] = annotations
    lowered = LoweredRoot(payload["inputSchema"], SAME, (), ())
    return compiled(payload, lowered, name_errors(spec, _NAME), losses)


def wraps_result(returns: JsonSchema) -> bool:
    """Return whether results of this schema are wrapped as `{"result": ...}`."""
    # A schema that is valid as parameters accepts only objects.
    return returns.get("type") != "object" and bool(invalid_points(returns))


def _output(returns: JsonSchema) -> JsonSchema:
    if not wraps_result(returns):
        return {**returns, "type": "object"}
    inner = {key: value for key, value in returns.items() if key not in _DEFINITIONS}
    wrapped: JsonSchema = {
        "type": "object",
        "properties": {"result": _moved(inner)},
        "required": ["result"],
    }
    for keyword in _DEFINITIONS:
        if isinstance(returns.get(keyword), dict):
            wrapped[keyword] = {name: _moved(node) for name, node in returns[keyword].items()}
    return wrapped


def _moved(node: Any) -> Any:
    """Adjust references for the move of the schema below `result`."""
    if not isinstance(node, dict):
        return node
    copy = dict(node)
    ref = copy.get("$ref")
    if isinstance(ref, str) and ref.startswith("#") and not ref.startswith(("#/$d", "#/defi")):
        copy["$ref"] = f"#/properties/result{ref[1:]}"
    return map_children(copy, lambda _, child: _moved(child))


def result_structurer(
    spec: ToolSpec, output: JsonSchema | None
) -> Callable[[Any], dict[str, Any] | None]:
    """Return a function from a tool's value to an object valid for `output`, the listed schema.

    It returns None for an invalid value, and without a schema for a value that is no object.
    """
    if output is None or spec.returns is None:
        return lambda value: value if isinstance(value, dict) else None
    schema = {key: part for key, part in output.items() if key not in ("$schema", "$id")}
    is_valid = Draft202012Validator(
        limit_backtracking(schema), pattern_options=options_for(schema), offline=True
    ).is_valid
    wraps = wraps_result(spec.returns)

    def structured(value: Any) -> dict[str, Any] | None:
        result = {"result": value} if wraps else value
        try:
            return result if isinstance(result, dict) and is_valid(result) else None
        except (ValueError, TypeError, OverflowError, RecursionError):  # not JSON
            return None

    return structured
