"""Sessions, rules, approvals, secrets and the audit. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.security.authentication import KeyScope as KeyScope
    from toolkiln.security.sessions import LOCAL_OPERATOR as LOCAL_OPERATOR

_PUBLIC = {
    "authentication": ("KeyScope",),
    "sessions": ("LOCAL_OPERATOR",),
}

if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        for module, names in _PUBLIC.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
