"""What pydantic adds to binding, for tools that have imported it themselves.

Never imports pydantic: the module is handed in. Typed values are read by a `TypeAdapter` in
JSON mode; `Field` gives a parameter its name in the schema and its default.
"""

from __future__ import annotations

import sys

from toolkiln.runtime.binding_fit import BindingError, Fit, unfit
from toolkiln.runtime.binding_signature import ABSENT
from toolkiln.runtime.conversion import parts, stdlib_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from toolkiln.runtime.conversion_scalars import Convert

_LAZY = {"Iterable", "Iterator", "Generator"}
_PREFIXES = ("Value error, ", "Assertion failed, ")


class Field:
    """What the `Field(…)`s of one parameter say, in `Annotated` and as its default."""

    def __init__(self, pydantic: ModuleType | None, annotation: Any, default: Any) -> None:
        metadata = getattr(annotation, "__metadata__", ())
        self.type = annotation.__origin__ if metadata else annotation
        self.alias: str | None = None
        """The name of the argument, where it is not the parameter's."""
        self.constraints: list[Any] = []
        """What pydantic has to know besides the type."""
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
        taking_data: Callable[[dict[str, Any]], Any] = info.default_factory
        return taking_data
    return lambda _given: info.default_factory()


def _alias(alias: Any) -> str | None:
    """The name that the schema uses: of choices the first that is one plain name."""
    for choice in getattr(alias, "choices", [alias]):
        path = getattr(choice, "path", [choice])
        if len(path) == 1 and isinstance(path[0], str):
            return path[0]
    return None


def adapted(pydantic: Any, annotation: Any) -> Convert | None:
    """Pydantic's reading of an annotation, or None where it has none or ours serves better.

    Members of enums in a `Literal` it refuses to take by their values, and what is iterable
    it would check only while the tool runs.
    """
    origin, arguments = parts(annotation)
    lazy = stdlib_name(origin) if stdlib_name(origin) in _LAZY else None
    if lazy:
        annotation = list[arguments[0]]  # type: ignore[valid-type]
    if _has_enum_literal(annotation):
        return None
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except Exception:  # classes write their own schemas and raise anything
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
            except ValueError:  # a lone surrogate has no JSON
                return adapter.validate_python(value)
            return adapter.validate_json(text)
        except core.ValidationError as error:
            raise _explained(error) from error
        except (ValueError, TypeError, AssertionError) as error:  # of the author's validators
            raise BindingError(str(error) or type(error).__name__) from error

    return convert


def _explained(error: Any) -> BindingError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = []
    for problem in found:
        message = problem["msg"]
        for prefix in _PREFIXES:
            message = message.removeprefix(prefix)
        problems.append(BindingError(message, problem["loc"]))
    return BindingError.joined(problems) if problems else unfit("valid", None)


def _has_enum_literal(annotation: Any) -> bool:
    origin, arguments = parts(annotation)
    if origin == "Literal":
        return any(type(value) not in (str, int, bool, type(None)) for value in arguments)
    return any(map(_has_enum_literal, arguments))
