"""Compiler for the Model Context Protocol's tool listing. The protocol's server is elsewhere.

JSON Schema 2020-12 is the protocol's dialect: input schemas accept what they accept
elsewhere, only with references and constraints spelled out (`unfolding`). Output schemas
have to be objects for all but the latest protocol, so that any other result is wrapped as
`{"result": ...}`; `wraps_result` tells a server to do the same.
"""

from typing import Any

from toolkiln.model import JsonSchema, ToolSpec
from toolkiln.schema.document import children
from toolkiln.schema.providers.codec import SAME
from toolkiln.schema.providers.compiled import Compiled, Loss
from toolkiln.schema.providers.declaration import compiled, name_errors
from toolkiln.schema.providers.lowering import LoweredRoot
from toolkiln.schema.providers.unfolding import unfolded
from toolkiln.schema.structure import flaws
from toolkiln.schema.validity import BOUNDS, invalid_points

_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)
_DEFINITIONS = ("$defs", "definitions")


def compile_mcp(spec: ToolSpec) -> Compiled:
    """The tool as `tools/list` shows it."""
    payload: dict[str, Any] = {
        "name": spec.name,
        "title": spec.display_name,
        "description": spec.description,
        "inputSchema": {**unfolded(spec.parameters), "type": "object"},
    }
    losses: list[Loss] = []
    if spec.returns is not None and flaws(spec.returns, BOUNDS):
        losses.append(Loss("", "outputSchema", "the result's schema is too large or not JSON"))
    elif spec.returns is not None:
        payload["outputSchema"] = _output(spec.returns)
    hints = {wire: getattr(spec.hints, name) for wire, name in _HINTS}
    annotations = {wire: value for wire, value in hints.items() if value is not None}
    if annotations:
        payload["annotations"] = annotations
    lowered = LoweredRoot(payload["inputSchema"], SAME, (), ())
    return compiled(payload, lowered, name_errors(spec, _NAME), losses)


def wraps_result(returns: JsonSchema) -> bool:
    """Whether results of this schema travel as `{"result": ...}`."""
    # An object schema is one that would do as parameters: its root accepts objects only.
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
    """A subschema whose references follow the schema to its place below `result`."""
    if not isinstance(node, dict):
        return node
    copy = dict(node)
    ref = copy.get("$ref")
    if isinstance(ref, str) and ref.startswith("#") and not ref.startswith(("#/$d", "#/defi")):
        copy["$ref"] = f"#/properties/result{ref[1:]}"
    for tokens, child in children(node):
        keyword = str(tokens[0])
        if len(tokens) == 1:
            copy[keyword] = _moved(child)
        else:
            if copy[keyword] is node[keyword]:
                copy[keyword] = node[keyword].copy()
            copy[keyword][tokens[1]] = _moved(child)
    return copy
