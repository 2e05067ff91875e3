"""A tool's signature, compiled once: the arguments of a call → what the function is given.

The arguments have been checked against the tool's schema. Here they become Python objects:
plain values pass as they are, typed ones through pydantic if the tool itself has imported it,
else through `conversion`. An absent argument is left to the source's own default, but
defaults that a call could change are made anew for each: lists, dicts, sets, bytearrays and
deques, dataclasses that are not frozen, pydantic models, tuples of these. Other objects are
shared: a tool may know them by identity (`if x is MISSING`). What is injected comes from
outside and is passed on untouched.
"""

from __future__ import annotations

import sys

from toolkiln.runtime.binding_fit import BindingError, Fit
from toolkiln.runtime.binding_pydantic import Field, adapted
from toolkiln.runtime.binding_signature import ABSENT, Parameter, Signature
from toolkiln.runtime.conversion import PLAIN, TYPED, Conversions, needs, parts
from toolkiln.runtime.conversion_hints import function_names, resolved
from toolkiln.runtime.conversion_scalars import anything, opaque
from toolkiln.runtime.conversion_shapes import array, mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

__all__ = ["Binder", "BindingError"]

_LOADED: Any = object()
"""Stands for the pydantic that the tool has imported, if it has."""


class Binder:
    """Binds the arguments of calls to the parameters of one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        injected: Mapping[str, str] | None = None,
        pydantic: ModuleType | None = _LOADED,
    ) -> None:
        """Compile a signature; `injected` says what the runtime gives which parameters."""
        signature = Signature(function)
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
        self._leading = signature.of_kind("positional")
        """What can be passed by position only."""
        self._before_rest = signature.of_kind("positional", "either")
        self._rest = next(map(compiler.rest, signature.of_kind("rest")), None)
        self._more = next(map(compiler.more, signature.of_kind("more")), None)
        self._taken = {signature.bound_name, *(injected or {})}
        self._taken |= {parameter.name for parameter in named if parameter.kind != "positional"}

    def bind(
        self, arguments: Mapping[str, Any], injections: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments to call the function with.

        Raises:
            BindingError: arguments are missing, unknown or cannot be converted; it names all.
        """
        given: dict[str, Any] = {}
        errors: list[BindingError] = []
        fit = Fit()  # of interest inside unions only
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
                given[slot.name] = value
            elif slot.make is not None:
                given[slot.name] = slot.make(given)
            elif slot.default is ABSENT:
                errors.append(BindingError("missing", (slot.argument,)))
        for name, what, is_required in self._injected:
            if is_required or what in injections:
                given[name] = injections.get(what)
        rest: list[Any] = []
        if used < len(arguments):
            rest = self._take_further(arguments, given, errors)
        if errors:
            raise BindingError.joined(errors)
        leading = self._before_rest if rest else self._leading
        if not leading:
            return (), given
        by_position = [given.pop(p.name) if p.name in given else p.default for p in leading]
        return (*by_position, *rest), given

    def _take_further(
        self, arguments: Mapping[str, Any], given: dict[str, Any], errors: list[BindingError]
    ) -> list[Any]:
        """What `*args` gets; what `**kwargs` gets goes to `given`."""
        known = {slot.argument for slot in self._slots}
        further = {name: value for name, value in arguments.items() if name not in known}
        rest: list[Any] = []
        if self._rest is not None and self._rest.argument in further:
            value = further.pop(self._rest.argument)
            try:
                rest = self._rest.convert(value, Fit())
            except (BindingError, RecursionError) as error:
                errors.append(_located(error, self._rest.argument))
        # Nobody but the runtime fills in what is injected, nor a parameter twice.
        unknown = [name for name in further if self._more is None or name in self._taken]
        errors += [BindingError("no such parameter", (name,)) for name in unknown]
        if self._more is not None and not unknown:
            try:
                given |= self._more(further, Fit())
            except (BindingError, RecursionError) as error:
                errors.append(_located(error))
        return rest


def _located(error: BindingError | RecursionError, *name: str) -> BindingError:
    if isinstance(error, RecursionError):
        return BindingError("nested too deeply", name)
    return error.under(name[0]) if name else error


class _Slot:
    """One parameter that a caller may fill."""

    __slots__ = ("argument", "convert", "default", "make", "name")

    def __init__(self, name: str, field: Field, convert: Convert | None) -> None:
        self.name = name
        self.argument = field.alias or name
        self.convert = convert
        self.default = field.default
        self.make = field.factory


class _Rest:
    """`*args`, which a caller sends as one array."""

    __slots__ = ("argument", "convert")

    def __init__(self, argument: str, convert: Convert) -> None:
        self.argument = argument
        self.convert = convert


class _Compiler:
    """Decides for each parameter what has to be done with a value, or without one."""

    def __init__(self, function: Any, pydantic: Any) -> None:
        if pydantic is _LOADED:
            pydantic = sys.modules.get("pydantic")
        # Version 1 has no adapters, and neither has a module that is only half imported.
        self._pydantic = pydantic if hasattr(pydantic, "TypeAdapter") else None
        self._names = function_names(function)
        self._conversions = Conversions(self._names, self._adapted)

    def slot(self, parameter: Parameter) -> _Slot:
        """A parameter with a name of its own."""
        annotation = resolved(parameter.annotation, self._names)
        field = Field(self._pydantic, annotation, parameter.default)
        slot = _Slot(parameter.name, field, self._conversion(field))
        if slot.make is None and field.default is not ABSENT:
            is_pythons = field.default is parameter.default
            slot.make = _maker(field.default, is_pythons=is_pythons)
        return slot

    def rest(self, parameter: Parameter) -> _Rest:
        """`*args`."""
        return _Rest(parameter.name, array(list, self._item(parameter)))

    def more(self, parameter: Parameter) -> Convert:
        """`**kwargs`, each of one type or together a `TypedDict`."""
        annotation = resolved(parameter.annotation, self._names)
        origin, arguments = parts(annotation)
        if origin == "Unpack":
            field = Field(self._pydantic, arguments[0], ABSENT)
            return self._conversion(field) or anything
        return mapping(dict, anything, self._item(parameter))

    def _item(self, parameter: Parameter) -> Convert:
        annotation = resolved(parameter.annotation, self._names)
        return self._conversion(Field(self._pydantic, annotation, ABSENT)) or anything

    def _conversion(self, field: Field) -> Convert | None:
        """What turns a value into one of the field's type; None if it can stay as it is."""
        try:
            needed = TYPED if field.constraints else needs(field.type)
            if needed == PLAIN:
                return None
            if needed == TYPED and self._pydantic is not None:
                wanted = field.type
                if field.constraints:
                    from typing import Annotated

                    wanted = Annotated[(wanted, *field.constraints)]
                adapter = self._adapted(wanted)
                if adapter is not None:
                    return adapter
            return self._conversions.of(field.type)
        except Exception:  # an annotation can be any object and do anything
            return opaque

    def _adapted(self, annotation: Any) -> Convert | None:
        return None if self._pydantic is None else adapted(self._pydantic, annotation)


def _maker(default: Any, *, is_pythons: bool) -> Callable[[Any], Any] | None:
    """What makes a default for each call; None where Python's own will do."""
    if _is_mutable(default):
        from copy import copy, deepcopy

        for duplicate in (deepcopy, copy):
            try:
                duplicate(default)
            except Exception:  # noqa: S112 - a lock, a file, a class of the author's …
                continue
            return lambda _given: duplicate(default)
    return None if is_pythons else lambda _given: default


def _is_mutable(default: Any) -> bool:
    if isinstance(default, tuple):
        return any(map(_is_mutable, default))
    if isinstance(default, list | dict | set | bytearray):
        return True
    declared = getattr(type(default), "__dataclass_params__", None)
    if declared is not None:
        return not declared.frozen
    if hasattr(type(default), "__pydantic_validator__"):
        return True
    return (type(default).__module__, type(default).__name__) == ("collections", "deque")
