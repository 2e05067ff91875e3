"""An annotation → the function that turns a JSON value into what the annotation asks for.

The results equal pydantic's for JSON input, without pydantic. That the value fits its schema
has been checked before; what is checked here is what conversion needs. Metadata of
`Annotated` is ignored: the schema has it. A class that is none of the known kinds gets the
value as it is. Single values are `conversion_scalars`', names `conversion_hints`'.
"""

from __future__ import annotations

import sys

from toolkiln.runtime.binding_fit import EXACT, STRICT, BindingError, Fit
from toolkiln.runtime.conversion_hints import Names, class_hints, filled, resolved
from toolkiln.runtime.conversion_scalars import anything, integer, null, opaque, scalar
from toolkiln.runtime.conversion_shapes import (
    array,
    default_dict,
    enumerated,
    fixed,
    literal,
    mapping,
    record,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

PLAIN, NUMERIC, TYPED = 0, 1, 2
"""What an annotation needs: nothing, numbers of the right kind, or real conversion."""

_NONE = type(None)
_QUALIFIERS = {"Annotated", "Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}
_LISTS = {
    "list", "List", "Sequence", "MutableSequence", "Iterable", "Collection", "Container",
    "Reversible",
}  # fmt: skip
_ITERATORS = {"Iterator", "Generator"}
_DICTS = {"dict", "Mapping", "MutableMapping"}
_SETS = {"set": set, "MutableSet": set, "frozenset": frozenset, "Set": frozenset}


def needs(annotation: Any) -> int:
    """What it takes to turn JSON into this: `PLAIN`, `NUMERIC` or `TYPED`."""
    origin, arguments = parts(annotation)
    if origin == "Literal":
        kinds = {type(value) for value in arguments}
        return PLAIN if kinds <= {str, bool, _NONE} else NUMERIC if kinds <= _JSON else TYPED
    if origin == "Union":
        return max(map(needs, arguments))
    if any(annotation is plain for plain in (None, str, bool, object, _NONE, _any())):
        return PLAIN
    if annotation is int or annotation is float:
        return NUMERIC
    name = stdlib_name(annotation if origin is None else origin)
    if name in _LISTS or name in _DICTS:
        if name in _DICTS and arguments and needs(arguments[0]) != PLAIN:
            return TYPED  # keys are text in JSON
        return max(map(needs, arguments), default=PLAIN)
    return TYPED


_JSON = {str, int, bool, _NONE}


def parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """What an annotation is of, unions and special forms by name, and its arguments."""
    arguments = getattr(annotation, "__args__", ())
    arguments = arguments if isinstance(arguments, tuple) else ()
    if type(annotation).__name__ in ("UnionType", "Union"):
        return "Union", arguments
    if hasattr(annotation, "__metadata__"):
        return "Annotated", (annotation.__origin__,)
    origin = getattr(annotation, "__origin__", None)
    if origin is not None and not isinstance(origin, type) and not hasattr(origin, "__value__"):
        return repr(origin).rpartition(".")[2], arguments
    return origin, arguments


def stdlib_name(cls: Any) -> str:
    """The name of a container of the standard library, else nothing."""
    known = getattr(cls, "__module__", "").partition(".")[0] in ("builtins", "collections")
    return cls.__name__ if known and isinstance(cls, type) else ""


def _any() -> Any:
    """`Any`, if the tool can have it."""
    return getattr(sys.modules.get("typing"), "Any", None)


def _is_null(annotation: Any) -> bool:
    return annotation is None or annotation is _NONE


class Conversions:
    """Compiles annotations; types that contain themselves are compiled once."""

    def __init__(
        self, names: Names, foreign: Callable[[Any], Convert | None] = lambda _annotation: None
    ) -> None:
        """`foreign` may know classes that nothing here knows, and metadata."""
        self._names = names
        self._foreign = foreign
        self._known: dict[Any, Convert] = {}

    def of(self, annotation: Any) -> Convert:
        """The conversion to what the annotation says."""
        origin, arguments = parts(annotation)
        if origin == "Union":
            return self._union(arguments)
        if origin == "Literal":
            return literal(arguments)
        if origin in _QUALIFIERS:
            found = self._foreign(annotation) if origin == "Annotated" else None
            return found or self.of(arguments[0])
        kind = type(annotation).__name__
        if kind in ("str", "ForwardRef"):
            return self.of(resolved(annotation, self._names))
        if annotation is None:
            return null
        if kind == "TypeVar":
            return self._variable(annotation)
        if kind == "InitVar":
            return self.of(annotation.type)
        if hasattr(annotation, "__supertype__"):
            return self.of(annotation.__supertype__)
        if hasattr(origin or annotation, "__value__") and kind != "type":
            return self._once(annotation, lambda: self._alias(origin or annotation, arguments))
        cls = origin or annotation
        if not isinstance(cls, type):
            return anything
        found = scalar(cls)
        if found is None and stdlib_name(cls):
            found = self._container(annotation, cls, arguments)
        return found or self._class(annotation, cls)

    def _once(self, key: Any, compiled: Callable[[], Convert]) -> Convert:
        """A conversion that may come across itself while it is compiled."""
        if key not in self._known:
            self._known[key] = lambda value, fit: self._known[key](value, fit)  # noqa: PLW0108 - later
            self._known[key] = compiled()
        return self._known[key]

    def _alias(self, alias: Any, arguments: tuple[Any, ...]) -> Convert:
        variables = dict(zip(getattr(alias, "__type_params__", ()), arguments, strict=False))
        return self.of(filled(alias.__value__, variables))

    def _variable(self, variable: Any) -> Convert:
        default = getattr(variable, "__default__", None)
        if default is not None and type(default).__name__ not in ("NoDefaultType", "NoDefault"):
            return self.of(default)
        if variable.__constraints__:
            return self._union(variable.__constraints__)
        return self.of(variable.__bound__) if variable.__bound__ is not None else anything

    def _union(self, members: tuple[Any, ...]) -> Convert:
        others = [self.of(member) for member in members if not _is_null(member)]
        may_be_null = len(others) < len(members)

        def convert(value: Any, fit: Fit) -> Any:
            if value is None and may_be_null:
                return None
            if len(others) == 1:  # what is wrong is then wrong with this one
                return others[0](value, fit)
            key = id(others), id(value)
            found = fit.tried.get(key) or _best(others, value, fit)
            if type(value) in (list, dict):
                fit.tried[key] = found
            if isinstance(found, BindingError):
                raise BindingError.joined([found])
            fit.floor(found[0].level)
            if found[0].fields is not None:
                fit.count(found[0].fields)
            return found[1]

        return convert

    def _container(self, annotation: Any, cls: type, arguments: tuple[Any, ...]) -> Convert | None:
        name = stdlib_name(cls)
        first = self.of(arguments[0]) if arguments and name != "tuple" else anything
        if name in _LISTS:
            return array(list, None if first is anything else first)
        if name in _ITERATORS:
            return array(iter, first)
        if name in _SETS:
            return array(_SETS[name], first, STRICT)
        if name == "deque":
            return array(cls, first, STRICT)
        if name == "tuple":
            return self._tuple(annotation, arguments)
        if name == "Counter":
            return mapping(cls, first, integer)
        values = self.of(arguments[1]) if len(arguments) > 1 else anything
        if name == "defaultdict":
            held = parts(arguments[-1])[0] or arguments[-1] if arguments else None
            return mapping(default_dict(cls, stdlib_name(held)), first, values)
        if name in _DICTS or name == "OrderedDict":
            return mapping(dict if name in _DICTS else cls, first, values)
        return None

    def _tuple(self, annotation: Any, arguments: tuple[Any, ...]) -> Convert:
        if any(parts(argument)[0] == "Unpack" or _is_unpacked(argument) for argument in arguments):
            return array(tuple, anything, STRICT)
        if len(arguments) == 2 and arguments[1] is ...:
            return array(tuple, self.of(arguments[0]), STRICT)
        if not arguments and not hasattr(annotation, "__args__"):
            return array(tuple, anything, STRICT)
        return fixed([(str(i), self.of(a), True) for i, a in enumerate(arguments)], tuple)

    def _class(self, annotation: Any, cls: type) -> Convert:
        enum = sys.modules.get("enum")
        if enum is not None and isinstance(cls, enum.EnumMeta):
            return enumerated(cls)
        if hasattr(cls, "__dataclass_fields__") and "__pydantic_validator__" not in vars(cls):
            return self._once(annotation, lambda: self._dataclass(annotation, cls))
        if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
            return self._once(annotation, lambda: self._typed_dict(annotation, cls))
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._once(annotation, lambda: self._named_tuple(annotation, cls))
        return self._foreign(annotation) or opaque

    def _hints(self, annotation: Any, cls: type) -> dict[str, Any]:
        arguments = getattr(annotation, "__args__", ())
        variables = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        return {name: filled(hint, variables) for name, hint in class_hints(cls).items()}

    def _dataclass(self, annotation: Any, cls: Any) -> Convert:
        missing = sys.modules["dataclasses"].MISSING
        hints = self._hints(annotation, cls)
        fields = [
            (
                field.name,
                self.of(hints.get(field.name, object)),
                field.default is missing and field.default_factory is missing,
            )
            for field in cls.__dataclass_fields__.values()
            if field.init and field._field_type.name != "_FIELD_CLASSVAR"
        ]
        return record(fields, cls, STRICT)

    def _typed_dict(self, annotation: Any, cls: Any) -> Convert:
        fields: list[tuple[str, Convert, bool]] = []
        for name, hint in self._hints(annotation, cls).items():
            marks = set(_qualifiers(hint))
            is_required = "Required" in marks or (
                name in cls.__required_keys__ and "NotRequired" not in marks
            )
            fields.append((name, self.of(hint), is_required))
        return record(fields, dict, EXACT)

    def _named_tuple(self, annotation: Any, cls: Any) -> Convert:
        hints = self._hints(annotation, cls)
        fields = [
            (name, self.of(hints.get(name, object)), name not in cls._field_defaults)
            for name in cls._fields
        ]
        by_position = fixed(fields, lambda values: cls(*values))
        by_name = record(fields, cls, STRICT)

        def convert(value: Any, fit: Fit) -> Any:
            if type(value) is not dict:
                return by_position(value, fit)
            for name in value.keys() - set(cls._fields):
                raise BindingError("no such field", (name,))
            return by_name(value, fit)

        return convert


def _best(members: list[Convert], value: Any, fit: Fit) -> tuple[Fit, Any] | BindingError:
    """What the member of a union makes of a value that it fits best."""
    best: tuple[Fit, Any] | None = None
    errors: list[BindingError] = []
    for member in members:
        own = Fit(fit)
        try:
            made = member(value, own)
        except BindingError as error:
            errors.append(error)
            continue
        if best is None or own.beats(best[0]):
            best = own, made
        if own.level == EXACT and own.fields is None:
            break
    return best or _none_of(errors)


def _none_of(errors: list[BindingError]) -> BindingError:
    """What no member of a union could make of a value."""
    problems = [problem for error in errors for problem in error.problems]
    if any(path for path, _ in problems):
        return BindingError.joined(errors)
    return BindingError(", ".join(dict.fromkeys(message for _, message in problems)))


def _is_unpacked(argument: Any) -> bool:
    return getattr(argument, "__unpacked__", False) is True


def _qualifiers(hint: Any) -> Iterable[str]:
    origin, arguments = parts(hint)
    while origin in _QUALIFIERS:
        yield origin
        origin, arguments = parts(arguments[0])
