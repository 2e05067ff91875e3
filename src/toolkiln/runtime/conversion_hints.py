"""Annotations as they were meant: strings evaluated, names looked up where they were written.

A name that does not exist at run time, such as one imported for the type checker only,
stands for `Any`: the tool does without it, and so can we. Nothing here is converted.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Names(dict[str, object]):
    """The names in sight of an annotation, the first mapping that has one deciding."""

    def __init__(self, *places: Mapping[str, Any]) -> None:
        super().__init__()
        self._places = (*places, vars(builtins))

    def __missing__(self, name: str) -> Any:
        for place in self._places:
            if name in place:
                return place[name]
        from typing import Any

        return Any


def resolved(annotation: Any, names: Names) -> Any:
    """The annotation without strings in it; `object` where it makes no sense at run time."""
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation
    if isinstance(annotation, str) and annotation.isidentifier():
        annotation = names[annotation] if annotation != "None" else None
    try:
        return _evaluated(annotation, names) if _has_strings(annotation) else annotation
    except Exception:  # any object, any expression of the author's
        return object


def _evaluated(annotation: Any, names: Names) -> Any:
    from typing import get_type_hints

    module = sys.modules.get(getattr(annotation, "__forward_module__", None) or "")
    if module is not None:
        names = Names(vars(module))
    # A class, because only those may say `Required`, `Final` and `ClassVar`.
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    return get_type_hints(holder, {}, names, include_extras=True)["it"]


def _has_strings(annotation: Any) -> bool:
    if isinstance(annotation, str) or hasattr(annotation, "__forward_arg__"):
        return True
    if getattr(annotation, "__origin__", None) is getattr(
        sys.modules.get("typing"), "Literal", object
    ):
        return False
    inner = getattr(annotation, "__args__", ())
    if hasattr(annotation, "__metadata__"):
        inner = (annotation.__origin__,)
    return isinstance(inner, tuple) and any(map(_has_strings, inner))


def function_names(function: Any) -> Names:
    """What is in sight of a function's annotations: its module, the classes around it."""
    module: dict[str, Any] = getattr(function, "__globals__", {})
    places: list[Mapping[str, Any]] = [module]
    around: Any = None
    for part in getattr(function, "__qualname__", "").split(".")[:-1]:
        around = module.get(part) if around is None else vars(around).get(part)
        if not isinstance(around, type):
            break
        places.append(vars(around))
    return Names(*places)


def class_hints(cls: type) -> dict[str, Any]:
    """The annotations of a class and its bases, resolved, nearest last."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get("__annotations__")
        if isinstance(own, dict):
            module = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
            # Module before class: in `date: date = None` the class knows another `date`.
            names = Names(module, {base.__name__: base}, vars(base))
            found |= {name: resolved(annotation, names) for name, annotation in own.items()}
    return found


def filled(annotation: Any, variables: Mapping[Any, Any]) -> Any:
    """The annotation with type variables replaced."""
    if not variables:
        return annotation
    if type(annotation).__name__ == "TypeVar":
        return variables.get(annotation, annotation)
    free = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not isinstance(free, tuple) or not free:
        return annotation
    return annotation[tuple(variables.get(variable, variable) for variable in free)]
