"""Operations: what can be done to a Kiln, and the parts that do it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.operations.operation import Operation

_MODULES = {
    "proposals": ("proposals",),
    "tool_settings": ("secrets",),
    "toolkits": ("toolkits",),
    "tools": ("tools", "tool_files"),
    "versions": ("versions",),
}
"""Where the operations that workers run are defined, by the noun in their names."""


def find_worker_operation(name: str) -> "Operation[Any, Any] | None":
    """Return an operation that workers run; only the modules of its noun are imported."""
    from toolkiln.operations.operation import Operation

    for module in _MODULES.get(name.partition(".")[0], ()):
        for found in vars(import_module(f"{__name__}.{module}")).values():
            if isinstance(found, Operation) and (found.name, found.routing) == (name, "worker"):
                return found
    return None
