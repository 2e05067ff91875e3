"""A function's parameters, read off its code object.

`inspect` would do the same, but importing it costs more than most calls; it is asked only
for what is no plain function: partials, callable objects, `__signature__`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

ABSENT: Any = type("Absent", (), {"__repr__": lambda _self: "ABSENT"})()
"""Stands for a default that is not there."""

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
_WRAPPERS = 100


class Parameter:
    """One parameter: its kind is `positional`, `either`, `keyword`, `rest` or `more`."""

    __slots__ = ("annotation", "default", "kind", "name")

    def __init__(self, name: str, kind: str, annotation: Any, default: Any = ABSENT) -> None:
        self.name = name
        self.kind = kind
        self.annotation = annotation
        self.default = default


class Signature:
    """The parameters that a caller fills in, and the function that wrote them down."""

    def __init__(self, function: Callable[..., Any]) -> None:
        is_bound = getattr(function, "__self__", None) is not None
        self.function = _innermost(getattr(function, "__func__", function))
        """Where annotations are looked up."""
        self.bound_name = ""
        """The parameter that a method's object takes."""
        if not hasattr(self.function, "__code__") or hasattr(self.function, "__signature__"):
            self.parameters = list(_from_inspect(function))
            return
        self.parameters = list(_from_code(self.function))
        if is_bound and self.parameters and self.parameters[0].kind in ("positional", "either"):
            self.bound_name = self.parameters.pop(0).name

    def of_kind(self, *kinds: str) -> list[Parameter]:
        """The parameters of these kinds, in order."""
        return [parameter for parameter in self.parameters if parameter.kind in kinds]


def _innermost(function: Any) -> Any:
    """The function under decorators that used `functools.wraps`."""
    for _ in range(_WRAPPERS):
        if not hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
            break
        function = function.__wrapped__
    return function


def _from_code(function: Any) -> Iterator[Parameter]:
    code = function.__code__
    annotations = function.__annotations__
    names = code.co_varnames
    defaults = function.__defaults__ or ()
    keyword_defaults = function.__kwdefaults__ or {}
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    for index, name in enumerate(names[:count]):
        kind = "positional" if index < code.co_posonlyargcount else "either"
        at = index - (count - len(defaults))
        default = defaults[at] if at >= 0 else ABSENT
        yield Parameter(name, kind, annotations.get(name, object), default)
    end = count + keywords
    if code.co_flags & _VARARGS:
        yield Parameter(names[end], "rest", annotations.get(names[end], object))
        end += 1
    for name in names[count : count + keywords]:
        default = keyword_defaults.get(name, ABSENT)
        yield Parameter(name, "keyword", annotations.get(name, object), default)
    if code.co_flags & _VARKEYWORDS:
        yield Parameter(names[end], "more", annotations.get(names[end], object))


def _from_inspect(function: Any) -> Iterator[Parameter]:
    import inspect

    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_POSITIONAL: "rest",
        inspect.Parameter.VAR_KEYWORD: "more",
    }
    for name, found in inspect.signature(function).parameters.items():
        annotation = object if found.annotation is found.empty else found.annotation
        default = ABSENT if found.default is found.empty else found.default
        yield Parameter(name, kinds[found.kind], annotation, default)
