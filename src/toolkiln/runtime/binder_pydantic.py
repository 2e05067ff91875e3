"""Argument binding with pydantic, for tools that import it.

Never imports pydantic itself. A `TypeAdapter` in JSON mode converts typed values; `Field` gives
a parameter its name in the schema and its default.
"""

from __future__ import annotations

import sys

from toolkiln.runtime.conversion import split, stdlib_name
from toolkiln.runtime.conversion_scalars import BindingError, Fit, unfit
from toolkiln.runtime.signature import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

_LAZY = {"Iterable", "Iterator", "Generator"}


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


def _binding_error(error: Any) -> BindingError:
    errors = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
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
