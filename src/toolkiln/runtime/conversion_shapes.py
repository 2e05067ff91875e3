"""The conversions that are put together from others: arrays, objects, records, enums.

Each function makes one, which returns the value in its new shape, notes in `fit` how far it
had to bend it, and raises `BindingError` with the path to what does not fit. Which of them an
annotation needs is `conversion`'s business.
"""

from __future__ import annotations

from toolkiln.runtime.binding_fit import EXACT, LAX, STRICT, BindingError, Fit, shown, unfit
from toolkiln.runtime.conversion_scalars import integer, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

    Fields = list[tuple[str, Convert, bool]]
    """Name, conversion, and whether it must be there."""

_FACTORIES = {"list": list, "dict": dict, "set": set, "tuple": tuple, "int": int, "str": str,
              "float": float, "bool": bool, "frozenset": frozenset}  # fmt: skip


def literal(values: tuple[Any, ...]) -> Convert:
    """One of some values."""

    def convert(value: Any, fit: Fit) -> Any:
        for choice in values:
            if value == choice and type(value) is type(choice):
                return choice
        fit.floor(LAX)
        for choice in values:
            # 1.0 for 1, and members of enums by their values, as the schema lists them.
            if value == getattr(choice, "value", choice) and type(value) is not bool:
                return choice
        raise BindingError(f"not one of the allowed values: {shown(value)}")

    return convert


def enumerated(cls: Any) -> Convert:
    """A member of an enum, by its value."""
    bend = integer if issubclass(cls, int) else number if issubclass(cls, float) else None

    def convert(value: Any, fit: Fit) -> Any:
        fit.floor(LAX)
        for candidate in (value, _hashable(value)):
            try:
                return cls(candidate)
            except (ValueError, TypeError):
                continue
        if bend is not None and type(value) is str:
            try:
                return cls(bend(value, fit))
            except ValueError:
                pass
        raise BindingError(f"not one of the values of {cls.__name__}: {shown(value)}")

    return convert


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def array(make: Callable[[list[Any]], Any], item: Convert | None, level: int = EXACT) -> Convert:
    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not list:
            raise unfit("an array", value)
        fit.floor(level)
        made: list[Any] = value
        if item is not None:
            made = []
            try:
                for one in value:
                    made.append(item(one, fit))
            except BindingError as error:
                raise error.under(len(made)) from None
        try:
            return make(made)
        except TypeError:
            raise BindingError("has items that cannot be in a set") from None

    return convert


def mapping(make: Callable[[dict[Any, Any]], Any], key: Convert, item: Convert) -> Convert:
    """A JSON object as a mapping."""

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not dict:
            raise unfit("an object", value)
        made = {}
        name = ""
        of_keys = Fit(is_key=True)
        try:
            for name, one in value.items():
                made[key(name, of_keys)] = item(one, fit)
        except BindingError as error:
            raise error.under(name) from None
        except TypeError:
            raise unfit("a key", name) from None
        fit.floor(min(STRICT, of_keys.level))
        return make(made)

    return convert


def default_dict(cls: Any, values: str) -> Callable[[dict[Any, Any]], Any]:
    """What makes a `defaultdict` whose values are of the built-in type of this name."""
    factory = _FACTORIES.get(values)
    return lambda made: cls(factory, made)


def fixed(fields: Fields, make: Callable[[list[Any]], Any]) -> Convert:
    """A JSON array of a known length as a tuple or the like."""
    least = sum(is_required for _, _, is_required in fields)

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not list:
            raise unfit("an array", value)
        if not least <= len(value) <= len(fields):
            raise BindingError(f"has {len(value)} items instead of {len(fields)}")
        fit.floor(STRICT)
        made: list[Any] = []
        try:
            for one, (_, item, _) in zip(value, fields, strict=False):
                made.append(item(one, fit))
        except BindingError as error:
            raise error.under(len(made)) from None
        return _constructed(make, made)

    return convert


def record(fields: Fields, make: Callable[..., Any], level: int) -> Convert:
    """A JSON object with known names as a dataclass or the like; other names are dropped."""

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) is not dict:
            raise unfit("an object", value)
        fit.floor(level)
        made: dict[str, Any] = {}
        errors: list[BindingError] = []
        for name, item, is_required in fields:
            try:
                if name in value:
                    made[name] = item(value[name], fit)
                elif is_required:
                    errors.append(BindingError("missing", (name,)))
            except BindingError as error:
                errors.append(error.under(name))
        if errors:
            raise BindingError.joined(errors)
        fit.count(len(made))
        return _constructed(make, **made)

    return convert


def _constructed(make: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """What a class makes of converted values; its own complaints are for the model."""
    try:
        return make(*values, **named)
    except BindingError:
        raise
    except (ValueError, TypeError, AssertionError) as error:
        raise BindingError(str(error) or type(error).__name__) from error
