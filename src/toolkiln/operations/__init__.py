"""Operations: what can be done to a Kiln, and the parts that do it. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from toolkiln.operations.operation import Operation

_TABLE = {
    "approvals": ("approvals",),
    "audit": ("audit",),
    "calls": ("calls",),
    "catalog": ("catalog",),
    "dead_letters": ("system",),
    "docs": ("search",),
    "environments": ("system",),
    "fleet": ("system",),
    "outputs": ("calls",),
    "proposals": ("proposals",),
    "rules": ("policy",),
    "runs": ("runs",),
    "sandbox": ("system",),
    "search": ("search",),
    "secrets": ("secrets",),
    "settings": ("system",),
    "sources": ("sources",),
    "tool_settings": ("tool_settings",),
    "toolkits": ("tools",),
    "tools": ("tools", "tool_files"),
    "usages": ("search",),
    "versions": ("versions",),
    "workspaces": ("system",),
}


def find_operation(name: str) -> "Operation[Any, Any] | None":
    """Return an operation by its name; only the modules of its noun are imported."""
    for module in _TABLE.get(name.partition(".")[0], ()):
        for found in import_module(f"{__name__}.{module}").OPERATIONS:
            if found.name == name:
                return cast("Operation[Any, Any]", found)
    return None
