"""Compilers for Anthropic's tools, loose and strict.

Strict takes optional properties as they are but counts them, as it counts unions; a tool
beyond the counts is sent without `strict`, and a loss says so. The counts hold for all
strict tools of a request together, which one tool cannot see. There is no recursion:
where a definition refers back to itself, the value travels as JSON text.
"""

from toolkiln.model import ToolSpec
from toolkiln.schema.providers.compiled import Compiled, Loss
from toolkiln.schema.providers.declaration import compiled, name_errors, passed_on
from toolkiln.schema.providers.limits import exceeded
from toolkiln.schema.providers.lowering import LoweredRoot, TooLargeError, lower_root
from toolkiln.schema.providers.profile import Profile

_NAME = r"^[a-zA-Z0-9_-]{1,128}$"
_KEY = r"[a-zA-Z0-9_.-]{1,64}"

STRICT = Profile(
    name="anthropic-strict",
    keywords=frozenset(("pattern", "format", "minItems")),
    formats=frozenset(
        (
            *("date-time", "time", "date", "duration", "email"),
            *("hostname", "uri", "ipv4", "ipv6", "uuid"),
        )
    ),
    references=False,
    key_pattern=_KEY,
    forbidden_pattern=r"\(\?(=|!|<=|<!|P=)|\\[1-9bBk]",
    largest_min_items=1,
)
LIMITS = (("optional", 24, "optional properties"), ("unions", 16, "properties with unions"))


def compile_anthropic(spec: ToolSpec) -> Compiled:
    """The tool with its schema as it is, property names made acceptable."""
    return _tool(spec, passed_on(spec.parameters, "anthropic", _KEY), strict=False)


def compile_anthropic_strict(spec: ToolSpec) -> Compiled:
    """The tool with a schema that Anthropic holds the model to."""
    try:
        lowered = lower_root(spec.parameters, STRICT)
        reasons = exceeded(lowered.wire, LIMITS)
    except TooLargeError:
        reasons = ["the schema unfolds into more than strict mode takes"]
    if not reasons:
        return _tool(spec, lowered, strict=True)
    losses = [Loss("", "strict", f"sent without strict: {reason}") for reason in reasons]
    loose = passed_on(spec.parameters, "anthropic", _KEY)
    return _tool(spec, loose, strict=False, losses=losses)


def _tool(
    spec: ToolSpec, lowered: LoweredRoot, *, strict: bool, losses: list[Loss] | None = None
) -> Compiled:
    payload: dict[str, object] = {
        "name": spec.name,
        "description": spec.description,
        "input_schema": lowered.wire,
    }
    if strict:
        payload["strict"] = True
    return compiled(payload, lowered, name_errors(spec, _NAME), losses or [])
