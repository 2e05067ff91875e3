"""Placeholders for what other frameworks have and the sandbox does not.

A placeholder can be imported, subclassed, decorated with and named in annotations. While a
file is imported or an object created, calling one gives another; during a call of a tool, using
one raises.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

importing = False
"""Whether the tool's file is being imported or its object created, which uses nothing yet."""


class Unavailable:
    """Placeholder for an object of a framework, by its dotted name."""

    def __init__(self, name: str, hint: str = "") -> None:
        self.__dict__.update(_name=name, _hint=hint, __doc__=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Unavailable(f"{self._name}.{name}", self._hint)

    def __setattr__(self, name: str, _: object) -> None:
        if not importing:
            self._raise()

    def __call__(self, *arguments: object, **options: object) -> Any:
        if not importing:
            self._raise()
        is_decorator = len(arguments) == 1 and not options and callable(arguments[0])
        return arguments[0] if is_decorator else self

    def __add__(self, *_: object) -> Any:
        return self if importing else self._raise()

    __radd__ = __mod__ = __truediv__ = __lt__ = __gt__ = __contains__ = __add__

    def __getitem__(self, _: object) -> Any:
        return self if importing else self._raise()

    def __or__(self, _: object) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (_base(self._name),)

    def __bool__(self) -> bool:
        return False if importing else self._raise()

    def __iter__(self) -> Any:
        return iter(()) if importing else self._raise()

    def __await__(self) -> Any:
        self._raise()

    __len__ = __enter__ = __aenter__ = __int__ = __float__ = __await__

    def __str__(self) -> str:
        return repr(self) if importing else self._raise()

    def __repr__(self) -> str:
        return f"<{self._name}, which is not available in the sandbox>"

    def __get_pydantic_core_schema__(self, *_: object) -> Any:
        from pydantic_core.core_schema import any_schema

        return any_schema()

    def _raise(self) -> NoReturn:
        from toolkiln.define import ToolError

        hint = f": {self._hint}" if self._hint else ""
        raise ToolError(f"{self._name} is not available in the sandbox{hint}")


def _base(name: str) -> type:
    """Return a class to extend, which names itself where an attribute is missing."""

    def create(_self: object, *_: object, **__: object) -> None: ...

    def missing(_: object, attribute: str) -> NoReturn:
        raise AttributeError(f"{name}.{attribute} is not available in the sandbox")

    return type(name.rpartition(".")[2], (), {"__init__": create, "__getattr__": missing})
