"""Tool schemas at work: health, provider formats, argument checks.

`providers` translates a schema for a provider and back, and rates its health; `arguments` checks
arguments against it, `signature_match` compares it with the imported function. Generating a schema
from source is up to `spec`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.schema.arguments import check as check
    from toolkiln.schema.providers import compile_tool as compile_tool
    from toolkiln.schema.providers.compilers import health as health

_PUBLIC = {
    "arguments": ("check",),
    "providers.compilers": ("health",),
    "providers": ("compile_tool",),
}

if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        for module, names in _PUBLIC.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
