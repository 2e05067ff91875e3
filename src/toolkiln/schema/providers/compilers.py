"""Compilers for OpenAI, Anthropic and Gemini, strict and non-strict.

Strict mode is used whenever the lowered schema is within the provider's limits. Otherwise
the tool is sent without `strict`, and a loss records that: no tool is ever dropped.
OpenAI's Chat Completions API nests the function and is non-strict by default; its Responses
API has a flat form and is strict by default.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from toolkiln.errors import InputError
from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import HealthLevel, HealthPoint, SchemaHealth, ToolSpec
from toolkiln.schema.document import IN_PLACE_LISTS, deeper_than, walk
from toolkiln.schema.providers.codec import SAME, Codec
from toolkiln.schema.providers.profile import Compiled, Loss, Profile, exceeded, measure
from toolkiln.schema.providers.transform import LoweredRoot, TooLargeError, lower_root
from toolkiln.schema.validity import invalid_points

_MAX_DEPTH = 200
"""Deeper arguments are not decoded: validators recurse on the C stack."""
_REJECTED_AT_ROOT = (*IN_PLACE_LISTS, "$ref", "enum", "const", "not", "if")
_TOO_LARGE_FOR_STRICT = "the schema is too large for strict mode once its references are expanded"
_TOO_LARGE = "the schema is too large once its references are expanded; it is left out"

ALL_KEYWORDS = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minItems", "maxItems", "uniqueItems", "default"),
    )
)


def name_errors(spec: ToolSpec, pattern: str) -> list[str]:
    """Return why a provider would reject the tool's name."""
    if re.fullmatch(pattern.removeprefix("^").removesuffix("$"), spec.name):
        return []
    return [f"the name {spec.name[:140]!r} does not match {pattern}"]


def _non_strict(parameters: JsonSchema, provider: str, key_pattern: str) -> LoweredRoot:
    """Keep the schema, or lower it as little as possible if its root or names are rejected."""
    valid_name = re.compile(key_pattern)
    names = (name for _, node in walk(parameters) for name in node.get("properties", ()))
    if all(valid_name.fullmatch(name) for name in names) and not any(
        keyword in parameters for keyword in _REJECTED_AT_ROOT
    ):
        return LoweredRoot({**parameters, "type": "object"}, SAME, (), ())
    profile = Profile(name=provider, keywords=ALL_KEYWORDS, key_pattern=key_pattern)
    try:
        return lower_root(parameters, profile)
    except TooLargeError:
        loss = Loss("", "$ref", _TOO_LARGE)
        return LoweredRoot({"type": "object", "properties": {}}, SAME, (loss,), ())


def _lower(
    parameters: JsonSchema,
    provider: str,
    strict: Profile | None,
    limits: Iterable[tuple[str, int, str]],
    key_pattern: str = r"(?s).*",
) -> tuple[LoweredRoot, list[Loss]]:
    """Lower for strict mode if that is wanted and within its limits; else give the reasons."""
    reasons: list[str] = []
    if strict:
        try:
            lowered = lower_root(parameters, strict)
            reasons = exceeded(lowered.wire, limits)
        except TooLargeError:
            reasons = [_TOO_LARGE_FOR_STRICT]
        if not reasons:
            return lowered, []
    losses = [Loss("", "strict", f"sent without strict: {reason}") for reason in reasons]
    return _non_strict(parameters, provider, key_pattern), losses


def compiled(
    payload: dict[str, Any], lowered: LoweredRoot, errors: list[str], losses: list[Loss]
) -> Compiled:
    """Build the result of a compiler."""
    return Compiled(
        payload=payload,
        losses=(*losses, *lowered.losses),
        errors=tuple(errors),
        decode=_decoder(lowered.codec),
        encode=lowered.codec.encode,
    )


def _decoder(codec: Codec) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def decode(arguments: dict[str, Any]) -> dict[str, Any]:
        if codec == SAME or not isinstance(arguments, dict) or deeper_than(arguments, _MAX_DEPTH):
            return arguments
        try:
            decoded = codec.decode(arguments)
        except (ValueError, RecursionError):
            # Not JSON: `arguments.check` explains why.
            return arguments
        return decoded if isinstance(decoded, dict) else arguments

    return decode


_OPENAI_NAME = r"^[A-Za-z0-9_-]{1,64}$"
_OPENAI_DESCRIPTION_LENGTH = 1024

OPENAI_STRICT = Profile(
    name="openai-strict",
    keywords=frozenset(
        (
            *("pattern", "format", "minItems", "maxItems"),
            *("multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
        )
    ),
    formats=frozenset(
        (
            *("date-time", "time", "date", "duration", "email"),
            *("hostname", "ipv4", "ipv6", "uuid"),
        )
    ),
    nullable_optionals=True,
    forbidden_pattern=r"\(\?(=|!|<=|<!)",
)
OPENAI_LIMITS = (
    ("properties", 5_000, "properties"),
    ("depth", 10, "levels of nesting"),
    ("enum_values", 1_000, "enum values"),
    ("largest_enum_chars", 15_000, "characters in one enum"),
    ("chars", 120_000, "characters of names and enum values"),
)


def compile_openai(spec: ToolSpec, *, strict: bool) -> Compiled:
    """Compile a tool for the Chat Completions API."""
    profile = OPENAI_STRICT if strict else None
    lowered, losses = _lower(spec.parameters, "openai", profile, OPENAI_LIMITS)
    description = spec.description
    function: dict[str, Any] = {
        "name": spec.name,
        "description": description,
        "parameters": lowered.wire,
    }
    if strict and not losses:
        function["strict"] = True
    if len(description) > _OPENAI_DESCRIPTION_LENGTH:
        function["description"] = f"{description[: _OPENAI_DESCRIPTION_LENGTH - 3]}..."
        reason = f"the description is truncated to {_OPENAI_DESCRIPTION_LENGTH:,} characters"
        losses.append(Loss("", "description", reason))
    payload = {"type": "function", "function": function}
    return compiled(payload, lowered, name_errors(spec, _OPENAI_NAME), losses)


def compile_openai_responses(spec: ToolSpec, *, strict: bool) -> Compiled:
    """Compile a tool for the Responses API."""
    tool = compile_openai(spec, strict=strict)
    function = tool.payload["function"]
    return replace(tool, payload={"type": "function", "strict": False, **function})


_ANTHROPIC_NAME = r"^[a-zA-Z0-9_-]{1,128}$"
_ANTHROPIC_PROPERTY = r"[a-zA-Z0-9_.-]{1,64}"

ANTHROPIC_STRICT = Profile(
    name="anthropic-strict",
    keywords=frozenset(("pattern", "format", "minItems")),
    formats=frozenset(
        (
            *("date-time", "time", "date", "duration", "email"),
            *("hostname", "uri", "ipv4", "ipv6", "uuid"),
        )
    ),
    references=False,
    key_pattern=_ANTHROPIC_PROPERTY,
    forbidden_pattern=r"\(\?(=|!|<=|<!|P=)|\\[1-9bBk]",
    largest_min_items=1,
)
ANTHROPIC_LIMITS = (
    ("optional", 24, "optional properties"),
    ("unions", 16, "properties with unions"),
)


def compile_anthropic(spec: ToolSpec, *, strict: bool) -> Compiled:
    """Compile a tool, renaming property names that Anthropic rejects."""
    profile = ANTHROPIC_STRICT if strict else None
    lowered, losses = _lower(
        spec.parameters, "anthropic", profile, ANTHROPIC_LIMITS, _ANTHROPIC_PROPERTY
    )
    payload: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "input_schema": lowered.wire,
    }
    if strict and not losses:
        payload["strict"] = True
    return compiled(payload, lowered, name_errors(spec, _ANTHROPIC_NAME), losses)


_GEMINI_NAME = r"^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$"

GEMINI = Profile(
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
    """Compile a function declaration for Gemini."""
    losses: list[Loss] = []
    try:
        lowered = lower_root(spec.parameters, GEMINI)
    except TooLargeError:
        lowered = LoweredRoot({"type": "object"}, SAME, (), ())
        losses = [Loss("", "$ref", _TOO_LARGE)]
    payload: dict[str, Any] = {"name": spec.name, "description": spec.description}
    if lowered.wire.get("properties"):  # Gemini rejects an object without properties
        payload["parameters"] = _openapi(lowered.wire)
    return compiled(payload, lowered, name_errors(spec, _GEMINI_NAME), losses)


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


_ANTHROPIC_STRICT_TOOLS = 20
"""Anthropic's maximum number of strict tools in one request."""


_DECLARATIONS = "functionDeclarations"


def request_tools(provider: str, tools: Iterable[Compiled]) -> list[dict[str, Any]]:
    """Build the `tools` value of a request from tools compiled for this provider."""
    payloads = [tool.payload for tool in tools]
    if provider == "gemini":
        return [{_DECLARATIONS: payloads}] if payloads else []
    if provider == "anthropic-strict":
        return _within_strict_limits(payloads)
    return payloads


def extend_request(request: list[Any], provider: str, tools: list[dict[str, Any]]) -> None:
    """Add tools, as `request_tools` builds them, to those of a request, unless it has them."""
    own = _payloads(request)
    names = {payload.get("function", payload).get("name") for payload in own}
    added = [each for each in _payloads(tools) if each.get("function", each)["name"] not in names]
    if provider == "anthropic-strict":
        own = [payload for payload in own if "input_schema" in payload]
        added = _within_strict_limits([*own, *added])[len(own) :]
    # Gemini accepts one list of functions only.
    lists = [entry[_DECLARATIONS] for entry in _dicts(request) if _DECLARATIONS in entry]
    if lists or provider != "gemini":
        (lists[0] if lists else request).extend(added)
    else:
        request += tools


def _payloads(request: list[Any]) -> list[dict[str, Any]]:
    return [payload for entry in _dicts(request) for payload in entry.get(_DECLARATIONS, [entry])]


def _dicts(request: list[Any]) -> list[dict[str, Any]]:
    return [entry for entry in request if isinstance(entry, dict)]


def _within_strict_limits(payloads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    left = {quantity: limit for quantity, limit, _ in ANTHROPIC_LIMITS} | {
        "tools": _ANTHROPIC_STRICT_TOOLS
    }
    kept: list[dict[str, Any]] = []
    for payload in payloads:
        sizes = measure(payload["input_schema"])
        cost = {"optional": sizes.optional, "unions": sizes.unions, "tools": 1}
        if "strict" in payload and all(cost[name] <= left[name] for name in left):
            left = {name: left[name] - cost[name] for name in left}
            kept.append(payload)
        else:
            kept.append({key: value for key, value in payload.items() if key != "strict"})
    return kept


_SEARCH_TOOLS: dict[str, dict[str, Any]] = {
    "openai": {"type": "tool_search"},
    "openai-responses": {"type": "tool_search"},
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}


def deferred_request_tools(
    provider: str, loaded: Iterable[Compiled], deferred: Iterable[Compiled]
) -> list[dict[str, Any]]:
    """Build the `tools` value of a request: the provider's search tool, loaded, deferred tools.

    Raises:
        InputError: the provider does not support deferred loading.
    """
    search = _SEARCH_TOOLS.get(provider.removesuffix("-strict"))
    if search is None:
        raise InputError(
            f"{provider} does not support deferred loading",
            hint="use the tools search_tools, describe_tool and call_tool instead",
        )
    return [
        dict(search),
        *(_flat_payload(tool) for tool in loaded),
        *({**_flat_payload(tool), "defer_loading": True} for tool in deferred),
    ]


def _flat_payload(tool: Compiled) -> dict[str, Any]:
    payload = dict(tool.payload)
    function = payload.pop("function", {})
    return {**payload, **function}


def health(parameters: JsonSchema) -> SchemaHealth:
    """Rate whether a provider's strict mode can enforce a schema, and give the reasons.

    INVALID: not usable as a schema for arguments. NON_STRICT_ONLY: strict mode sends part of it
    as JSON text, cannot enforce it, or rejects its size. STRICT_COMPLIANT: strict mode keeps its
    structure, although bounds may move into descriptions. The reference is OpenAI's strict mode,
    the most capable one. Accepts any value, never raises.
    """
    points = tuple(invalid_points(parameters))
    if points:
        return SchemaHealth(level=HealthLevel.INVALID, points=points)
    points = tuple(
        HealthPoint(level=HealthLevel.NON_STRICT_ONLY, path=path, reason=reason)
        for path, reason in _strict_gaps(parameters)
    )
    level = HealthLevel.NON_STRICT_ONLY if points else HealthLevel.STRICT_COMPLIANT
    return SchemaHealth(level=level, points=points)


def _strict_gaps(parameters: JsonSchema) -> list[tuple[str, str]]:
    try:
        lowered = lower_root(parameters, OPENAI_STRICT)
    except TooLargeError:
        return [("", _TOO_LARGE_FOR_STRICT)]
    return [*lowered.gaps, *(("", reason) for reason in exceeded(lowered.wire, OPENAI_LIMITS))]
