"""Whether models can be held to a tool's schema, point by point.

INVALID: not a schema for arguments at all. NON_STRICT_ONLY: strict modes carry a part of
it as JSON text, cannot enforce what it means, or refuse its size. STRICT_COMPLIANT: the
strict compiler keeps its structure; bounds that move into descriptions do not count.
OpenAI's strict mode is the measure, as the most capable one.
"""

from toolkiln.model import Health, HealthLevel, HealthPoint, JsonSchema
from toolkiln.schema.providers.limits import exceeded
from toolkiln.schema.providers.lowering import TooLargeError, lower_root
from toolkiln.schema.providers.openai import LIMITS, STRICT
from toolkiln.schema.validity import invalid_points


def health(parameters: JsonSchema) -> Health:
    """The level of a tool's parameters, with the reasons; takes anything, never raises."""
    points = tuple(invalid_points(parameters))
    if points:
        return Health(level=HealthLevel.INVALID, points=points)
    points = tuple(
        HealthPoint(level=HealthLevel.NON_STRICT_ONLY, path=path, reason=reason)
        for path, reason in _strict_gaps(parameters)
    )
    level = HealthLevel.NON_STRICT_ONLY if points else HealthLevel.STRICT_COMPLIANT
    return Health(level=level, points=points)


def _strict_gaps(parameters: JsonSchema) -> list[tuple[str, str]]:
    try:
        lowered = lower_root(parameters, STRICT)
    except TooLargeError:
        return [("", "the schema unfolds into more than strict mode takes")]
    return [*lowered.gaps, *(("", reason) for reason in exceeded(lowered.wire, LIMITS))]
