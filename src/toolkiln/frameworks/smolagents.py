"""Stand-in for smolagents: its base class `Tool` and `@tool`.

Agents, models and the Hub are unavailable.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Tool:
    """Base class of a tool; subclasses implement `forward`."""

    name: Any = ""
    description: Any = ""
    inputs: Any = None
    output_type: Any = "any"
    is_initialized = False

    def __init__(self, *_: Any, **__: Any) -> None:
        self.is_initialized = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not self.is_initialized:
            self.setup()
        named.pop("sanitize_inputs_outputs", None)
        return self.forward(*arguments, **named)  # type: ignore[attr-defined]

    def setup(self) -> None:
        """Prepare the first call; subclasses load models here."""
        self.is_initialized = True


def tool(function: Any) -> Any:
    """Return a function unchanged."""
    return function
