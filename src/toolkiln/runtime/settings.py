"""Values that an operator or a user set → what the tool's own settings class makes of them.

The values fit the schema that was read from the class; what it asks beyond that, its
validators say here. Some values are secrets: no error repeats any, nor the words of a
validator, which may.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MOST = 10


class BadSettings(Exception):
    """The settings class refuses the values."""


def typed(function: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the class of `@tool(settings=…)`, defaults filled in; else the values.

    Raises:
        BadSettings: the class refuses them.
    """
    declared = getattr(function, "__toolkiln_tool__", None)
    cls = declared.get("settings") if isinstance(declared, dict) else None
    if cls is None:
        return values
    instance = made(cls, values)
    if isinstance(instance, dict):  # a TypedDict
        return instance
    names: Any = getattr(instance, "__dataclass_fields__", getattr(instance, "__dict__", values))
    return {name: getattr(instance, name) for name in names if hasattr(instance, name)}


def made(cls: Any, values: Mapping[str, Any]) -> Any:
    """An instance of a settings class.

    Raises:
        BadSettings: the class refuses the values.
    """
    try:
        if hasattr(cls, "__dataclass_fields__"):
            return _converted(cls, values)
        return cls(**values)
    except Exception as error:  # pydantic's, or whatever the author's class raises
        raise BadSettings(f"{cls.__name__} refuses its values: {_problems(error)}") from None


def _converted(cls: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass, which checks and converts nothing by itself."""
    from toolkiln.runtime.binding import Binder

    def given(settings: Any) -> None: ...

    given.__annotations__ = {"settings": cls}
    return Binder(given).bind({"settings": dict(values)}, {})[1]["settings"]


def _problems(error: Exception) -> str:
    """Which fields are wrong, and in which way; not their values, and no words that repeat them."""
    core = sys.modules.get("pydantic_core")
    if core is not None and isinstance(error, core.ValidationError):
        found = [(one["loc"], one["type"].replace("_", " ")) for one in error.errors()]
    else:
        name = type(error).__name__
        found = [(path[1:], name) for path, _ in getattr(error, "problems", [((), name)])]
    said = (f"{'.'.join(map(str, path)) or 'the whole'} ({what})" for path, what in found[:_MOST])
    return ", ".join(said)
