"""Compiler for Gemini's function declarations, in the OpenAPI subset (`parameters`).

Gemini also takes `parametersJsonSchema`, which needs no lowering. It is not used: older
API versions, Vertex AI endpoints and most client libraries know `parameters` only, and
with the codec on the way back the subset loses nothing but bounds, formats and the like,
which stay in the descriptions. For the same reason references and
`additionalProperties`, which only some endpoints take, are avoided: definitions are
written out, mappings travel as pairs, a recursive value as JSON text.
"""

from typing import Any

from toolkiln.model import JsonSchema, ToolSpec
from toolkiln.schema.providers.codec import SAME
from toolkiln.schema.providers.compiled import Compiled, Loss
from toolkiln.schema.providers.declaration import compiled, name_errors
from toolkiln.schema.providers.lowering import LoweredRoot, TooLargeError, lower_root
from toolkiln.schema.providers.profile import Profile

_NAME = r"^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$"

SUBSET = Profile(
    name="gemini",
    keywords=frozenset(
        (
            *("minLength", "maxLength", "pattern", "format", "default"),
            *("minimum", "maximum", "minItems", "maxItems"),
        )
    ),
    formats=frozenset(("date-time",)),
    references=False,
    null_type=False,
    empty_objects=False,
    enum_types=frozenset(("string",)),
    key_pattern=r"[A-Za-z_][A-Za-z0-9_]{0,63}",
)


def compile_gemini(spec: ToolSpec) -> Compiled:
    """The tool as a function declaration."""
    losses: list[Loss] = []
    try:
        lowered = lower_root(spec.parameters, SUBSET)
    except TooLargeError:
        lowered = LoweredRoot({"type": "object"}, SAME, (), ())
        losses = [Loss("", "$ref", "the schema unfolds without end; the tool is sent without it")]
    payload: dict[str, Any] = {"name": spec.name, "description": spec.description}
    if lowered.wire.get("properties"):  # an object without properties is refused
        payload["parameters"] = _openapi(lowered.wire)
    return compiled(payload, lowered, name_errors(spec, _NAME), losses)


def _openapi(wire: JsonSchema) -> JsonSchema:
    out = {key: value for key, value in wire.items() if key != "additionalProperties"}
    if isinstance(out.get("type"), list):
        (out["type"],) = (kind for kind in out["type"] if kind != "null")
        out["nullable"] = True
    if None in out.get("enum", ()):
        out["enum"] = [value for value in out["enum"] if value is not None]
    if "properties" in out:
        out["properties"] = {name: _openapi(child) for name, child in out["properties"].items()}
    if "items" in out:
        out["items"] = _openapi(out["items"])
    if "anyOf" in out:
        branches = [_openapi(child) for child in out["anyOf"] if child != {"type": "null"}]
        if len(branches) < len(out["anyOf"]):
            out["nullable"] = True
        out["anyOf"] = branches
    return out
