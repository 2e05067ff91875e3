"""Toolkiln turns Python functions into tools that language models can be trusted with.

Names are loaded on first use, so `import toolkiln` is cheap in a tool file. `define` has the
API for tool authors, `Kiln` everything else.
"""

TYPE_CHECKING = False  # `typing` is slow to import, and every sandbox imports this
if TYPE_CHECKING:
    from typing import Any

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
        ToolDenied,
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
    from toolkiln.kiln import Kiln

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
    "ToolDenied",
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

_HOMES = {"Kiln": "toolkiln.kiln", "ToolkilnError": "toolkiln.errors"}


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> "Any":
        if name not in __all__:
            raise AttributeError(f"module 'toolkiln' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES.get(name, "toolkiln.define")), name)
