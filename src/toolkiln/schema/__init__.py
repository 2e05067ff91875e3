"""Tool schemas at work: health, provider formats, argument checks.

`health` rates a schema, `compile_tool` translates it for a provider and back, `check`
validates arguments, `signature_mismatches` compares it with the imported function,
`secret_fields` lists the secrets of a settings schema, `result_structurer` shapes results
for MCP. Generating a schema from source is up to `spec`.
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
