"""Results in the form that a tool's output schema promises for the Model Context Protocol."""

from collections.abc import Callable
from typing import Any

from jsonschema_rs import Draft202012Validator

from toolkiln.model import JsonSchema, ToolSpec
from toolkiln.schema.document import bounded
from toolkiln.schema.patterns import options_for
from toolkiln.schema.providers.mcp import wraps_result


def structuring(
    spec: ToolSpec, output: JsonSchema | None
) -> Callable[[Any], dict[str, Any] | None]:
    """What makes a tool's values an object that fits `output`, its schema as it is listed.

    The function gives None for a value that does not fit, or is no object where nothing
    is promised.
    """
    if output is None or spec.returns is None:
        return lambda value: value if isinstance(value, dict) else None
    kept = {key: part for key, part in output.items() if key not in ("$schema", "$id")}
    options = options_for(kept)
    is_valid = Draft202012Validator(bounded(kept), pattern_options=options, offline=True).is_valid
    wraps = wraps_result(spec.returns)

    def structured(value: Any) -> dict[str, Any] | None:
        given = {"result": value} if wraps else value
        try:
            return given if isinstance(given, dict) and is_valid(given) else None
        except (ValueError, TypeError, OverflowError, RecursionError):  # nothing to be checked
            return None

    return structured
