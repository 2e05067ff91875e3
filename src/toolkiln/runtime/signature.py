"""Signature of a function, read from its code object, and its resolved annotations.

`inspect` is used only for partials, callable objects and `__signature__`, because importing it
takes longer than most calls.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

ABSENT: Any = type("Absent", (), {"__repr__": lambda _self: "ABSENT"})()
"""Marks a missing default."""

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
_MAX_WRAPPERS = 100


class Parameter:
    """One parameter: its kind is `positional`, `either`, `keyword`, `rest` or `more`."""

    __slots__ = ("annotation", "default", "kind", "name")

    def __init__(self, name: str, kind: str, annotation: Any, default: Any = ABSENT) -> None:
        self.name = name
        self.kind = kind
        self.annotation = annotation
        self.default = default


class FunctionSignature:
    """The parameters that a caller can pass."""

    def __init__(self, function: Callable[..., Any]) -> None:
        is_bound = getattr(function, "__self__", None) is not None
        self.function = _innermost(getattr(function, "__func__", function))
        """The innermost function, which has the annotations."""
        self.bound_name = ""
        """The name of a method's `self` or `cls` parameter."""
        if not hasattr(self.function, "__code__") or hasattr(self.function, "__signature__"):
            self.parameters = list(_from_inspect(function))
            return
        self.parameters = list(_from_code(self.function))
        if is_bound and self.parameters and self.parameters[0].kind in ("positional", "either"):
            self.bound_name = self.parameters.pop(0).name

    def of_kind(self, *kinds: str) -> list[Parameter]:
        """Return the parameters of these kinds, in order."""
        return [parameter for parameter in self.parameters if parameter.kind in kinds]


def _innermost(function: Any) -> Any:
    """Return the function below decorators that use `functools.wraps`."""
    for _ in range(_MAX_WRAPPERS):
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
        offset = index - (count - len(defaults))
        default = defaults[offset] if offset >= 0 else ABSENT
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
    for name, item in inspect.signature(function).parameters.items():
        annotation = object if item.annotation is item.empty else item.annotation
        default = ABSENT if item.default is item.empty else item.default
        yield Parameter(name, kinds[item.kind], annotation, default)


class AnnotationNames(dict[str, object]):
    """The names visible to an annotation: the first scope that has a name wins."""

    def __init__(self, *scopes: Mapping[str, Any]) -> None:
        super().__init__()
        self._scopes = (*scopes, vars(builtins))

    def __missing__(self, name: str) -> Any:
        for scope in self._scopes:
            if name in scope:
                return scope[name]
        from typing import Any

        return Any


def resolve(annotation: Any, names: AnnotationNames) -> Any:
    """Evaluate strings in an annotation; `object` if it cannot be evaluated."""
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation
    if isinstance(annotation, str) and annotation.isidentifier():
        annotation = names[annotation] if annotation != "None" else None
    try:
        return _evaluate(annotation, names) if _has_strings(annotation) else annotation
    except Exception:  # an annotation can be any expression
        return object


def _evaluate(annotation: Any, names: AnnotationNames) -> Any:
    from typing import get_type_hints

    module = sys.modules.get(getattr(annotation, "__forward_module__", None) or "")
    if module is not None:
        names = AnnotationNames(vars(module))
    # A class, because `Required`, `Final` and `ClassVar` are valid only there.
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


def function_names(function: Any) -> AnnotationNames:
    """Return the names visible to a function's annotations: its module, its enclosing classes."""
    module: dict[str, Any] = getattr(function, "__globals__", {})
    scopes: list[Mapping[str, Any]] = [module]
    enclosing: Any = None
    for part in getattr(function, "__qualname__", "").split(".")[:-1]:
        enclosing = module.get(part) if enclosing is None else vars(enclosing).get(part)
        if not isinstance(enclosing, type):
            break
        scopes.append(vars(enclosing))
    return AnnotationNames(*scopes)


def class_hints(cls: type) -> dict[str, Any]:
    """Return the resolved annotations of a class and its bases, base classes first."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get("__annotations__")
        if isinstance(own, dict):
            module = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
            # Module before class: in `date: date = None` the class attribute shadows the type.
            names = AnnotationNames(module, {base.__name__: base}, vars(base))
            hints |= {name: resolve(annotation, names) for name, annotation in own.items()}
    return hints


def substitute(annotation: Any, variables: Mapping[Any, Any]) -> Any:
    """Replace type variables in an annotation."""
    if not variables:
        return annotation
    if type(annotation).__name__ == "TypeVar":
        return variables.get(annotation, annotation)
    free = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not isinstance(free, tuple) or not free:
        return annotation
    return annotation[tuple(variables.get(variable, variable) for variable in free)]
