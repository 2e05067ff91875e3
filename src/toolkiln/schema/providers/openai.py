"""Compilers for OpenAI's function tools, loose and strict, for both of its interfaces.

Chat Completions nests what the Responses interface has side by side, and takes a tool
without `strict` for a loose one, where the other holds the model to it unless told not to.
Strict is used whenever the lowered schema keeps within OpenAI's limits. Where it does
not, the tool is sent without `strict`, and a loss says so: a tool is never dropped.
"""

from dataclasses import replace

from toolkiln.model import ToolSpec
from toolkiln.schema.providers.compiled import Compiled, Loss
from toolkiln.schema.providers.declaration import compiled, cut, name_errors, passed_on
from toolkiln.schema.providers.limits import exceeded
from toolkiln.schema.providers.lowering import LoweredRoot, TooLargeError, lower_root
from toolkiln.schema.providers.profile import Profile

_NAME = r"^[A-Za-z0-9_-]{1,64}$"
_DESCRIPTION = 1024

STRICT = Profile(
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
LIMITS = (
    ("properties", 5_000, "properties"),
    ("depth", 10, "levels of nesting"),
    ("enum_values", 1_000, "enum values"),
    ("largest_enum_chars", 15_000, "characters in one enum"),
    ("chars", 120_000, "characters of names and enum values"),
)


def compile_openai(spec: ToolSpec) -> Compiled:
    """The tool with its schema as it is."""
    return _tool(spec, passed_on(spec.parameters, "openai"), strict=False)


def compile_openai_strict(spec: ToolSpec) -> Compiled:
    """The tool with a schema that OpenAI holds the model to."""
    try:
        lowered = lower_root(spec.parameters, STRICT)
        reasons = exceeded(lowered.wire, LIMITS)
    except TooLargeError:
        reasons = ["the schema unfolds into more than strict mode takes"]
    if not reasons:
        return _tool(spec, lowered, strict=True)
    losses = [Loss("", "strict", f"sent without strict: {reason}") for reason in reasons]
    return _tool(spec, passed_on(spec.parameters, "openai"), strict=False, losses=losses)


def compile_openai_responses(spec: ToolSpec) -> Compiled:
    """As `compile_openai`, in the form of the Responses interface."""
    return _flat(compile_openai(spec))


def compile_openai_responses_strict(spec: ToolSpec) -> Compiled:
    """As `compile_openai_strict`, in the form of the Responses interface."""
    return _flat(compile_openai_strict(spec))


def _flat(made: Compiled) -> Compiled:
    function = made.payload["function"]
    return replace(made, payload={"type": "function", "strict": False, **function})


def _tool(
    spec: ToolSpec, lowered: LoweredRoot, *, strict: bool, losses: list[Loss] | None = None
) -> Compiled:
    description, shortened = cut(spec.description, _DESCRIPTION)
    function: dict[str, object] = {
        "name": spec.name,
        "description": description,
        "parameters": lowered.wire,
    }
    if strict:
        function["strict"] = True
    payload = {"type": "function", "function": function}
    return compiled(payload, lowered, name_errors(spec, _NAME), [*(losses or ()), *shortened])
