"""Argument binding: converts the JSON arguments of calls to the parameters of a function.

The gateway has already checked the arguments against the tool's schema. Plain values pass
unchanged. Typed ones go through a pydantic `TypeAdapter` in JSON mode if the tool has imported
pydantic, which this module never does, otherwise through `conversion`. A missing argument gets
the function's default. Mutable defaults are copied for each call: lists, dicts, sets,
bytearrays, deques, dataclasses that are not frozen, pydantic models, and tuples of these. Other
defaults are shared, because a tool may compare them by identity (`if x is MISSING`). Injected
values are passed unchanged.
"""

from __future__ import annotations

import sys

from toolkiln.runtime.conversion import (
    PLAIN,
    TYPED,
    Conversions,
    array,
    mapping,
    needs,
    split,
    stdlib_name,
)
from toolkiln.runtime.conversion_scalars import BindingError, Fit, anything, opaque, unfit
from toolkiln.runtime.signature import (
    ABSENT,
    FunctionSignature,
    Parameter,
    function_names,
    resolve,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

__all__ = ["Binder", "BindingError"]

_LAZY = {"Iterable", "Iterator", "Generator"}
_LOADED: Any = object()
"""Means the pydantic module that the tool has imported, if any."""


class Binder:
    """The compiled signature of one function, which binds the arguments of calls."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        injected: Mapping[str, str] | None = None,
        pydantic: ModuleType | None = _LOADED,
    ) -> None:
        """Compile a signature; `injected` maps parameters to the kind of value injected."""
        signature = FunctionSignature(function)
        compiler = _Compiler(signature.function, pydantic)
        named = signature.of_kind("positional", "either", "keyword")
        self._injected = [
            (parameter.name, (injected or {})[parameter.name], parameter.default is ABSENT)
            for parameter in named
            if parameter.name in (injected or {})
        ]
        self._slots = [
            compiler.slot(parameter)
            for parameter in named
            if parameter.name not in (injected or {})
        ]
        self._positional_only = signature.of_kind("positional")
        self._before_rest = signature.of_kind("positional", "either")
        self._rest = next(map(compiler.rest, signature.of_kind("rest")), None)
        self._more = next(map(compiler.more, signature.of_kind("more")), None)
        self._reserved = {signature.bound_name, *(injected or {})}
        self._reserved |= {parameter.name for parameter in named if parameter.kind != "positional"}

    def bind(
        self, arguments: Mapping[str, Any], injections: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments for the function.

        Raises:
            BindingError: arguments are missing, unknown or cannot be converted; it lists all.
        """
        named: dict[str, Any] = {}
        errors: list[BindingError] = []
        fit = Fit()  # matters only inside unions
        used = 0
        for slot in self._slots:
            if slot.argument in arguments:
                used += 1
                value = arguments[slot.argument]
                if slot.convert is not None and (value is not None or slot.default is not None):
                    try:
                        value = slot.convert(value, fit)
                    except (BindingError, RecursionError) as error:
                        errors.append(_located(error, slot.argument))
                named[slot.name] = value
            elif slot.make is not None:
                named[slot.name] = slot.make(named)
            elif slot.default is ABSENT:
                errors.append(BindingError("missing", (slot.argument,)))
        for name, kind, is_required in self._injected:
            if is_required or kind in injections:
                named[name] = injections.get(kind)
        rest: list[Any] = []
        if used < len(arguments):
            rest = self._bind_variadic(arguments, named, errors)
        if errors:
            raise BindingError.joined(errors)
        leading = self._before_rest if rest else self._positional_only
        if not leading:
            return (), named
        positional = [named.pop(p.name) if p.name in named else p.default for p in leading]
        return (*positional, *rest), named

    def _bind_variadic(
        self, arguments: Mapping[str, Any], named: dict[str, Any], errors: list[BindingError]
    ) -> list[Any]:
        """Return the values of `*args`; add those of `**kwargs` to `named`."""
        slots = {slot.argument for slot in self._slots}
        others = {name: value for name, value in arguments.items() if name not in slots}
        rest: list[Any] = []
        if self._rest is not None and self._rest.argument in others:
            value = others.pop(self._rest.argument)
            try:
                rest = self._rest.convert(value, Fit())
            except (BindingError, RecursionError) as error:
                errors.append(_located(error, self._rest.argument))
        # A caller can neither set injected parameters nor pass a parameter twice.
        unknown = [name for name in others if self._more is None or name in self._reserved]
        errors += [BindingError("no such parameter", (name,)) for name in unknown]
        if self._more is not None and not unknown:
            try:
                named |= self._more(others, Fit())
            except (BindingError, RecursionError) as error:
                errors.append(_located(error))
        return rest


def _located(error: BindingError | RecursionError, *name: str) -> BindingError:
    if isinstance(error, RecursionError):
        return BindingError("nested too deeply", name)
    return error.under(name[0]) if name else error


class _Slot:
    __slots__ = ("argument", "convert", "default", "make", "name")

    def __init__(self, name: str, field: PydanticField, convert: Convert | None) -> None:
        self.name = name
        self.argument = field.alias or name
        self.convert = convert
        self.default = field.default
        self.make = field.factory


class _Rest:
    """`*args`, which a caller passes as one array."""

    __slots__ = ("argument", "convert")

    def __init__(self, argument: str, convert: Convert) -> None:
        self.argument = argument
        self.convert = convert


class _Compiler:
    """Compiles the conversion and the default of each parameter."""

    def __init__(self, function: Any, pydantic: Any) -> None:
        if pydantic is _LOADED:
            pydantic = sys.modules.get("pydantic")
        # Pydantic 1 and a partially imported module have no adapters.
        self._pydantic = pydantic if hasattr(pydantic, "TypeAdapter") else None
        self._names = function_names(function)
        self._conversions = Conversions(self._names, self._by_pydantic)

    def slot(self, parameter: Parameter) -> _Slot:
        annotation = resolve(parameter.annotation, self._names)
        field = PydanticField(self._pydantic, annotation, parameter.default)
        slot = _Slot(parameter.name, field, self._conversion(field))
        if slot.make is None and field.default is not ABSENT:
            is_own_default = field.default is parameter.default
            slot.make = _default_factory(field.default, is_own_default=is_own_default)
        return slot

    def rest(self, parameter: Parameter) -> _Rest:
        return _Rest(parameter.name, array(list, self._item(parameter)))

    def more(self, parameter: Parameter) -> Convert:
        """Compile `**kwargs`: all of one type, or together a `TypedDict`."""
        annotation = resolve(parameter.annotation, self._names)
        origin, arguments = split(annotation)
        if origin == "Unpack":
            field = PydanticField(self._pydantic, arguments[0], ABSENT)
            return self._conversion(field) or anything
        return mapping(dict, anything, self._item(parameter))

    def _item(self, parameter: Parameter) -> Convert:
        annotation = resolve(parameter.annotation, self._names)
        return self._conversion(PydanticField(self._pydantic, annotation, ABSENT)) or anything

    def _conversion(self, field: PydanticField) -> Convert | None:
        """Return the conversion to the field's type; None if values need none."""
        try:
            needed = TYPED if field.constraints else needs(field.type)
            if needed == PLAIN:
                return None
            if needed == TYPED and self._pydantic is not None:
                annotation = field.type
                if field.constraints:
                    from typing import Annotated

                    annotation = Annotated[(annotation, *field.constraints)]
                conversion = self._by_pydantic(annotation)
                if conversion is not None:
                    return conversion
            return self._conversions.of(field.type)
        except Exception:  # an annotation can be any object
            return opaque

    def _by_pydantic(self, annotation: Any) -> Convert | None:
        return None if self._pydantic is None else pydantic_conversion(self._pydantic, annotation)


def _default_factory(default: Any, *, is_own_default: bool) -> Callable[[Any], Any] | None:
    """Return a function that creates the default of each call; None if Python's own suffices."""
    if _is_mutable(default):
        from copy import copy, deepcopy

        for duplicate in (deepcopy, copy):
            try:
                duplicate(default)
            except Exception:  # noqa: S112 - locks, files and other objects cannot be copied
                continue
            return lambda _named: duplicate(default)
    return None if is_own_default else lambda _named: default


def _is_mutable(default: Any) -> bool:
    if isinstance(default, tuple):
        return any(map(_is_mutable, default))
    if isinstance(default, list | dict | set | bytearray):
        return True
    dataclass = getattr(type(default), "__dataclass_params__", None)
    if dataclass is not None:
        return not dataclass.frozen
    if hasattr(type(default), "__pydantic_validator__"):
        return True
    return (type(default).__module__, type(default).__name__) == ("collections", "deque")


class PydanticField:
    """The `Field(…)` metadata of one parameter, from `Annotated` and from its default."""

    def __init__(self, pydantic: ModuleType | None, annotation: Any, default: Any) -> None:
        metadata = getattr(annotation, "__metadata__", ())
        self.type = annotation.__origin__ if metadata else annotation
        self.alias: str | None = None
        """The name of the argument, if it differs from the parameter's."""
        self.constraints: list[Any] = []
        """Metadata for pydantic besides the type."""
        self.default = default
        self.factory: Callable[[dict[str, Any]], Any] | None = None
        if pydantic is None:
            return
        info_type = getattr(sys.modules.get("pydantic.fields"), "FieldInfo", ())
        infos = []
        for item in metadata:
            if isinstance(item, info_type):
                infos.append(item)
            elif not isinstance(item, str):
                self.constraints.append(item)
        if isinstance(default, info_type):
            self.default = ABSENT
            infos.append(default)
        has_default = self.default is not ABSENT
        for info in infos:
            self._read(info, pydantic)
            if not has_default and not info.is_required():
                self.factory = _factory(info)
                self.default = info.default if self.factory is None else self.factory

    def _read(self, info: Any, pydantic: Any) -> None:
        self.alias = _alias(info.validation_alias) or info.alias or self.alias
        self.constraints += info.metadata
        tag = info.discriminator
        if tag is not None:
            self.constraints.append(pydantic.Discriminator(tag) if isinstance(tag, str) else tag)


def _factory(info: Any) -> Callable[[dict[str, Any]], Any] | None:
    if info.default_factory is None:
        return None
    if getattr(info, "default_factory_takes_validated_data", False):
        factory: Callable[[dict[str, Any]], Any] = info.default_factory
        return factory
    return lambda _named: info.default_factory()


def _alias(alias: Any) -> str | None:
    """Return the name in the schema: the first choice that is a single name."""
    for choice in getattr(alias, "choices", [alias]):
        path = getattr(choice, "path", [choice])
        if len(path) == 1 and isinstance(path[0], str):
            return path[0]
    return None


def pydantic_conversion(pydantic: Any, annotation: Any) -> Convert | None:
    """Return pydantic's conversion to an annotation, or None if `conversion` must do it.

    Pydantic rejects the values of enum members in a `Literal`, and would validate iterables only
    while the tool consumes them.
    """
    origin, arguments = split(annotation)
    lazy = stdlib_name(origin) if stdlib_name(origin) in _LAZY else None
    if lazy:
        annotation = list[arguments[0]]  # type: ignore[valid-type]
    if _has_enum_literal(annotation):
        return None
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except Exception:  # custom schemas may raise anything
        return None
    if lazy in (None, "Iterable"):
        return _validation(adapter)
    validate = _validation(adapter)
    return lambda value, fit: iter(validate(value, fit))


def _validation(adapter: Any) -> Convert:
    core = sys.modules["pydantic_core"]

    def convert(value: Any, _fit: Fit) -> Any:
        try:
            try:
                text = core.to_json(value)
            except ValueError:  # lone surrogates have no JSON form
                return adapter.validate_python(value)
            return adapter.validate_json(text)
        except core.ValidationError as error:
            raise _binding_error(error) from error
        except (ValueError, TypeError, AssertionError) as error:  # from the author's validators
            raise BindingError(str(error) or type(error).__name__) from error

    return convert


def bind_model(
    model: Any,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    injected: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the fields of a pydantic model, of either version, as arguments of a function.

    Raises:
        BindingError: the model rejects the arguments.
    """
    signature = FunctionSignature(function)
    fields = getattr(model, "model_fields", None) or model.__fields__
    if hidden := {name: (object, None) for name in injected if _is_required(fields.get(name))}:
        pydantic = sys.modules["pydantic" if hasattr(model, "model_fields") else "pydantic.v1"]
        model = pydantic.create_model(model.__name__, __base__=model, **hidden)
    given = {name: value for name, value in arguments.items() if name not in injected}
    try:
        values = model.model_validate(given) if hasattr(model, "model_validate") else model(**given)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise BindingError(str(error)) from error
        raise _binding_error(error) from error
    accepted = {p.name: p.default for p in signature.of_kind("positional", "either", "keyword")}
    takes_any = bool(signature.of_kind("more"))
    named = {name: getattr(values, name) for name in fields if takes_any or name in accepted}
    for name, value in injected.items():
        if name in accepted and (value is not None or accepted[name] is ABSENT):
            named[name] = value
        elif name in hidden:
            named.pop(name, None)
    return named


def _is_required(field: Any) -> bool:
    """Return whether a field of a pydantic model, of either version, has no default."""
    check = getattr(field, "is_required", None)
    return bool(check() if check else getattr(field, "required", False))


def _binding_error(error: Any) -> BindingError:
    errors = []
    for problem in error.errors():
        message = problem["msg"]
        for prefix in ("Value error, ", "Assertion failed, "):
            message = message.removeprefix(prefix)
        errors.append(BindingError(message, problem["loc"]))
    return BindingError.joined(errors) if errors else unfit("valid", None)


def _has_enum_literal(annotation: Any) -> bool:
    origin, arguments = split(annotation)
    if origin == "Literal":
        return any(type(value) not in (str, int, bool, type(None)) for value in arguments)
    return any(map(_has_enum_literal, arguments))
