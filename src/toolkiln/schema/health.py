"""Schema health: whether a provider's strict mode can enforce a tool's schema.

INVALID: not usable as a schema for arguments. NON_STRICT_ONLY: strict mode sends part of it
as JSON text, cannot enforce it, or rejects its size. STRICT_COMPLIANT: strict mode keeps its
structure, although bounds may move into descriptions. The reference is OpenAI's strict mode,
the most capable one.
"""

from toolkiln.model import HealthLevel, HealthPoint, JsonSchema, SchemaHealth
from toolkiln.schema.providers.compilers import OPENAI_LIMITS, OPENAI_STRICT
from toolkiln.schema.providers.profile import exceeded
from toolkiln.schema.providers.transform import TooLargeError, lower_root
from toolkiln.schema.validity import invalid_points


def health(parameters: JsonSchema) -> SchemaHealth:
    """Rate a tool's parameters and give the reasons; accepts any value, never raises."""
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
        return [("", "the schema is too large for strict mode once its references are expanded")]
    return [*lowered.gaps, *(("", reason) for reason in exceeded(lowered.wire, OPENAI_LIMITS))]
