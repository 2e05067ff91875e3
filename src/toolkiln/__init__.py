"""Toolkiln turns Python functions into tools that language models can be trusted with.

The names below load on first use, so that `import toolkiln` inside a tool file costs
next to nothing. What tool authors need lives in `define`, the rest behind `Kiln`.
"""

TYPE_CHECKING = False  # `typing` is slow to import, and every sandbox imports this
if TYPE_CHECKING:
    from typing import Any

    from toolkiln.app import Kiln
    from toolkiln.define import (
        BaseTool,
        Context,
        Filled,
        Form,
        NotAnswered,
        OutputKind,
        Root,
        Roots,
        Sample,
        Sampled,
        ToolError,
        ToolResult,
        method_metadata,
        openapi_schema,
        prompt,
        resource,
        tool,
        tool_metadata,
    )
    from toolkiln.errors import ToolkilnError

__all__ = [
    "BaseTool",
    "Context",
    "Filled",
    "Form",
    "Kiln",
    "NotAnswered",
    "OutputKind",
    "Root",
    "Roots",
    "Sample",
    "Sampled",
    "ToolError",
    "ToolResult",
    "ToolkilnError",
    "method_metadata",
    "openapi_schema",
    "prompt",
    "resource",
    "tool",
    "tool_metadata",
]

_HOMES = {"Kiln": "toolkiln.app", "ToolkilnError": "toolkiln.errors"}


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'toolkiln' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "toolkiln.define")), name)
