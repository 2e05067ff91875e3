"""Import finder of the stand-ins, the last one that Python asks.

A package of the tool's environment and a module beside its file are found before.
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec  # `importlib` is slower to import

from toolkiln.frameworks.modules import (
    INSTALLABLE,
    OLD_MODULES,
    PACKAGES,
    STAND_INS,
    is_provided,
)
from toolkiln.frameworks.unavailable import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def install(source: bytes) -> None:
    """Offer the stand-ins to imports of a file that nothing else can serve."""
    is_open_webui = b"\nclass Tools" in source
    framework = "open_webui" if is_open_webui else "core" if b"agentpress" in source else ""
    StandInFinder.framework = framework
    if StandInFinder not in sys.meta_path:
        sys.meta_path.append(StandInFinder)


class StandInFinder:
    """Finds and loads stand-ins; it has no instances."""

    framework = ""
    """The package of the framework that the tool's file is written for, if that is known."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        """Return the spec of a stand-in, or of any other module of a framework."""
        if not is_provided(name, framework=StandInFinder.framework):
            return None
        top = sys.modules.get(name.partition(".")[0])
        if top is not None and not _is_stand_in(top):
            return None  # the package itself is installed
        loader: Any = StandInFinder
        return ModuleSpec(name, loader, origin="toolkiln", is_package=True)

    @staticmethod
    def create_module(_: ModuleSpec) -> None:
        """Leave the creation to Python."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Copy the names of the stand-in; others are placeholders."""
        name = module.__name__
        framework = StandInFinder.framework
        if name.partition(".")[0] in OLD_MODULES.get(framework, ()):
            name = f"{framework}.{name}"
        if name in STAND_INS:
            stand_in = _imported(f"{__package__}.{STAND_INS[name]}")
            names = vars(stand_in)
            vars(module).update({key: names[key] for key in names if not key.startswith("__")})

        def missing(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            dotted = f"{name}.{attribute}"
            if dotted in STAND_INS or dotted in PACKAGES:
                return _imported(dotted)
            top = name.partition(".")[0]
            hint = f"list {top!r} among its requirements" if top in INSTALLABLE else ""
            return Unavailable(dotted, hint)

        module.__getattr__ = missing  # type: ignore[method-assign]


def stand_in(kind: str) -> Any:
    """Return a stand-in by the kind of an injected parameter: `module:name`.

    A mark with an argument, `InjectedState("messages")`, has that as a third part.
    """
    module, name, *arguments = kind.split(":", 2)
    factory = getattr(_imported(f"{__package__}.{module}"), name)
    return (lambda ctx: factory(ctx, *arguments)) if arguments else factory


def _is_stand_in(module: ModuleType) -> bool:
    return getattr(module.__spec__, "loader", None) is StandInFinder


def _imported(name: str) -> ModuleType:
    __import__(name)
    return sys.modules[name]
