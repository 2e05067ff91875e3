"""Specs for tests that care about nothing but the parameters."""

from typing import Any

from toolkiln.model.spec import Dialect, ToolSpec


def spec(parameters: dict[str, Any], **changes: Any) -> ToolSpec:
    """A tool with these parameters."""
    fields: dict[str, Any] = {
        "name": "convert",
        "description": "Convert money.",
        "parameters": parameters,
        "dialect": Dialect.FUNCTION,
        "entry": "convert",
        "display_name": "Convert",
        "digest": "0" * 64,
        "path": "convert.py",
        "line": 1,
    }
    return ToolSpec(**{**fields, **changes})


def params(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Parameters of a function: a closed object."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
