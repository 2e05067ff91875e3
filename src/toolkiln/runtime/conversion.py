"""Conversion of JSON values to annotated types, without pydantic but with the same results.

The gateway has already checked the value against the schema, which includes the metadata of
`Annotated`; conversion checks only what it depends on. Values for classes of an unknown kind
stay unchanged. `conversion_scalars` converts single values, `signature` resolves names.
"""

from __future__ import annotations

import sys

from toolkiln.runtime.conversion_scalars import (
    EXACT,
    LAX,
    STRICT,
    BindingError,
    Fit,
    anything,
    integer,
    null,
    number,
    opaque,
    scalar,
    show,
    unfit,
)
from toolkiln.runtime.signature import AnnotationNames, class_hints, resolve, substitute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

    Fields = list[tuple[str, Convert, bool]]
    """Name, conversion, and whether the field is required."""

_FACTORIES = {"list": list, "dict": dict, "set": set, "tuple": tuple, "int": int, "str": str,
              "float": float, "bool": bool, "frozenset": frozenset}  # fmt: skip


def literal(values: tuple[Any, ...]) -> Convert:
    """Convert to one of the values of a `Literal`."""

    def convert(value: Any, fit: Fit) -> Any:
        for choice in values:
            if value == choice and type(value) is type(choice):
                return choice
        fit.floor(LAX)
        for choice in values:
            # 1.0 for 1, and enum members by their values, as in the schema.
            if value == getattr(choice, "value", choice) and type(value) is not bool:
                return choice
        raise BindingError(f"not one of the allowed values: {show(value)}")

    return convert


def enum_member(cls: Any) -> Convert:
    """Convert to a member of an enum, by its value."""
    parse = integer if issubclass(cls, int) else number if issubclass(cls, float) else None

    def convert(value: Any, fit: Fit) -> Any:
        fit.floor(LAX)
        for candidate in (value, _hashable(value)):
            try:
                return cls(candidate)
            except (ValueError, TypeError):
                continue
        if parse is not None and type(value) is str:
            try:
                return cls(parse(value, fit))
            except ValueError:
                pass
        raise BindingError(f"not one of the values of {cls.__name__}: {show(value)}")

    return convert


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def array(make: Callable[[list[Any]], Any], item: Convert | None, level: int = EXACT) -> Convert:
    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not list:
            raise unfit("an array", value)
        fit.floor(level)
        items: list[Any] = value
        if item is not None:
            items = []
            try:
                for element in value:
                    items.append(item(element, fit))
            except BindingError as error:
                raise error.under(len(items)) from None
        try:
            return make(items)
        except TypeError:
            raise BindingError("has items that cannot be in a set") from None

    return convert


def mapping(make: Callable[[dict[Any, Any]], Any], key: Convert, item: Convert) -> Convert:
    """Convert a JSON object to a mapping."""

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not dict:
            raise unfit("an object", value)
        items = {}
        name = ""
        key_fit = Fit(is_key=True)
        try:
            for name, element in value.items():
                items[key(name, key_fit)] = item(element, fit)
        except BindingError as error:
            raise error.under(name) from None
        except TypeError:
            raise unfit("a key", name) from None
        fit.floor(min(STRICT, key_fit.level))
        return make(items)

    return convert


def default_dict(cls: Any, type_name: str) -> Callable[[dict[Any, Any]], Any]:
    """Return a function that creates a `defaultdict` with values of a built-in type."""
    factory = _FACTORIES.get(type_name)
    return lambda items: cls(factory, items)


def fixed_array(fields: Fields, make: Callable[[list[Any]], Any]) -> Convert:
    """Convert a JSON array of fixed_array length, for example to a tuple."""
    least = sum(is_required for _, _, is_required in fields)

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not list:
            raise unfit("an array", value)
        if not least <= len(value) <= len(fields):
            raise BindingError(f"has {len(value)} items instead of {len(fields)}")
        fit.floor(STRICT)
        items: list[Any] = []
        try:
            for element, (_, item, _) in zip(value, fields, strict=False):
                items.append(item(element, fit))
        except BindingError as error:
            raise error.under(len(items)) from None
        return _construct(make, items)

    return convert


def record(fields: Fields, make: Callable[..., Any], level: int) -> Convert:
    """Convert a JSON object, for example to a dataclass; unknown names are dropped."""

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not dict:
            raise unfit("an object", value)
        fit.floor(level)
        values: dict[str, Any] = {}
        errors: list[BindingError] = []
        for name, item, is_required in fields:
            try:
                if name in value:
                    values[name] = item(value[name], fit)
                elif is_required:
                    errors.append(BindingError("missing", (name,)))
            except BindingError as error:
                errors.append(error.under(name))
        if errors:
            raise BindingError.joined(errors)
        fit.count(len(values))
        return _construct(make, **values)

    return convert


def _construct(make: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Create an object; errors of the author's class are reported to the model."""
    try:
        return make(*values, **named)
    except BindingError:
        raise
    except (ValueError, TypeError, AssertionError) as error:
        raise BindingError(str(error) or type(error).__name__) from error


PLAIN, NUMERIC, TYPED = 0, 1, 2
"""What an annotation requires: nothing, numbers of the right type, or conversion."""

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
    """Return what an annotation requires: `PLAIN`, `NUMERIC` or `TYPED`."""
    origin, arguments = split(annotation)
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
            return TYPED  # JSON keys are text
        return max(map(needs, arguments), default=PLAIN)
    return TYPED


_JSON = {str, int, bool, _NONE}


def split(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split an annotation into its origin, by name for special forms, and its arguments."""
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
    """Return the name of a standard library container; empty for other classes."""
    is_stdlib = getattr(cls, "__module__", "").partition(".")[0] in ("builtins", "collections")
    return cls.__name__ if is_stdlib and isinstance(cls, type) else ""


def _any() -> Any:
    return getattr(sys.modules.get("typing"), "Any", None)


def _is_null(annotation: Any) -> bool:
    return annotation is None or annotation is _NONE


class Conversions:
    """Compiles annotations to conversions; recursive types are compiled once."""

    def __init__(
        self,
        names: AnnotationNames,
        fallback: Callable[[Any], Convert | None] = lambda _annotation: None,
    ) -> None:
        """`fallback` converts to classes of unknown kinds and to `Annotated` types."""
        self._names = names
        self._fallback = fallback
        self._cache: dict[Any, Convert] = {}

    def of(self, annotation: Any) -> Convert:
        """Return the conversion to an annotation."""
        origin, arguments = split(annotation)
        if origin == "Union":
            return self._union(arguments)
        if origin == "Literal":
            return literal(arguments)
        if origin in _QUALIFIERS:
            found = self._fallback(annotation) if origin == "Annotated" else None
            return found or self.of(arguments[0])
        kind = type(annotation).__name__
        if kind in ("str", "ForwardRef"):
            return self.of(resolve(annotation, self._names))
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

    def _once(self, key: Any, compile_type: Callable[[], Convert]) -> Convert:
        """Compile a conversion that may refer to itself."""
        if key not in self._cache:
            self._cache[key] = lambda value, fit: self._cache[key](value, fit)  # noqa: PLW0108 - later
            self._cache[key] = compile_type()
        return self._cache[key]

    def _alias(self, alias: Any, arguments: tuple[Any, ...]) -> Convert:
        variables = dict(zip(getattr(alias, "__type_params__", ()), arguments, strict=False))
        return self.of(substitute(alias.__value__, variables))

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
            if len(others) == 1:  # its error is more precise
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
            value_type = split(arguments[-1])[0] or arguments[-1] if arguments else None
            return mapping(default_dict(cls, stdlib_name(value_type)), first, values)
        if name in _DICTS or name == "OrderedDict":
            return mapping(dict if name in _DICTS else cls, first, values)
        return None

    def _tuple(self, annotation: Any, arguments: tuple[Any, ...]) -> Convert:
        if any(split(argument)[0] == "Unpack" or _is_unpacked(argument) for argument in arguments):
            return array(tuple, anything, STRICT)
        if len(arguments) == 2 and arguments[1] is ...:
            return array(tuple, self.of(arguments[0]), STRICT)
        if not arguments and not hasattr(annotation, "__args__"):
            return array(tuple, anything, STRICT)
        return fixed_array([(str(i), self.of(a), True) for i, a in enumerate(arguments)], tuple)

    def _class(self, annotation: Any, cls: type) -> Convert:
        enum = sys.modules.get("enum")
        if enum is not None and isinstance(cls, enum.EnumMeta):
            return enum_member(cls)
        if hasattr(cls, "__dataclass_fields__") and "__pydantic_validator__" not in vars(cls):
            return self._once(annotation, lambda: self._dataclass(annotation, cls))
        if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
            return self._once(annotation, lambda: self._typed_dict(annotation, cls))
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._once(annotation, lambda: self._named_tuple(annotation, cls))
        return self._fallback(annotation) or opaque

    def _hints(self, annotation: Any, cls: type) -> dict[str, Any]:
        arguments = getattr(annotation, "__args__", ())
        variables = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        return {name: substitute(hint, variables) for name, hint in class_hints(cls).items()}

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
            qualifiers = set(_qualifiers(hint))
            is_required = "Required" in qualifiers or (
                name in cls.__required_keys__ and "NotRequired" not in qualifiers
            )
            fields.append((name, self.of(hint), is_required))
        return record(fields, dict, EXACT)

    def _named_tuple(self, annotation: Any, cls: Any) -> Convert:
        hints = self._hints(annotation, cls)
        fields = [
            (name, self.of(hints.get(name, object)), name not in cls._field_defaults)
            for name in cls._fields
        ]
        by_position = fixed_array(fields, lambda values: cls(*values))
        by_name = record(fields, cls, STRICT)

        def convert(value: Any, fit: Fit) -> Any:
            if type(value) is not dict:
                return by_position(value, fit)
            for name in value.keys() - set(cls._fields):
                raise BindingError("no such field", (name,))
            return by_name(value, fit)

        return convert


def _best(members: list[Convert], value: Any, fit: Fit) -> tuple[Fit, Any] | BindingError:
    """Convert a value with the union member that it fits best."""
    best: tuple[Fit, Any] | None = None
    errors: list[BindingError] = []
    for member in members:
        member_fit = Fit(fit)
        try:
            converted = member(value, member_fit)
        except BindingError as error:
            errors.append(error)
            continue
        if best is None or member_fit.beats(best[0]):
            best = member_fit, converted
        if member_fit.level == EXACT and member_fit.fields is None:
            break
    return best or _no_match(errors)


def _no_match(errors: list[BindingError]) -> BindingError:
    problems = [problem for error in errors for problem in error.problems]
    if any(path for path, _ in problems):
        return BindingError.joined(errors)
    return BindingError(", ".join(dict.fromkeys(message for _, message in problems)))


def _is_unpacked(argument: Any) -> bool:
    return getattr(argument, "__unpacked__", False) is True


def _qualifiers(hint: Any) -> Iterable[str]:
    origin, arguments = split(hint)
    while origin in _QUALIFIERS:
        yield origin
        origin, arguments = split(arguments[0])
