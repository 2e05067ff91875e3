"""Declared options as typed values; one of the wrong kind is a finding and left out."""

import math
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, overload

from toolkiln import looks
from toolkiln.model import Capability
from toolkiln.spec.report import Findings

T = TypeVar("T", bound=str)

_KINDS = ("knowledge", "file", "file_view", "execution_result", "error", "status")
OutputKind = Literal["knowledge", "file", "file_view", "execution_result", "error", "status"]
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.I)


class FunctionName(NamedTuple):
    """The value of an option that is a function of the file, by its entry."""

    entry: str


class Options:
    """What a tool declares, read with a type in mind."""

    def __init__(self, given: dict[str, Any], tool: str, line: int, findings: Findings) -> None:
        self._given = given
        self._tool = tool
        self._line = line
        self._findings = findings

    def has(self, *names: str) -> bool:
        """Whether any of these is declared."""
        return not self._given.keys().isdisjoint(names)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self._given.get(name)
        if value is None or isinstance(value, str):
            return value
        self.refuse(name, value, "a string")
        return None

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._given.get(name)
        if value is None:
            return ()
        if isinstance(value, list | tuple | set) and all(isinstance(v, str) for v in value):
            return tuple(sorted(value) if isinstance(value, set) else value)
        self.refuse(name, value, "a list of strings")
        return ()

    def mapping(self, name: str) -> dict[str, Any] | None:
        """A dict with string keys."""
        value = self._given.get(name)
        if value is None or (isinstance(value, dict) and all(isinstance(k, str) for k in value)):
            return value
        self.refuse(name, value, "a dict")
        return None

    def flag(self, name: str, *, otherwise: bool = False) -> bool:
        """True or False."""
        value = self.maybe(name)
        return otherwise if value is None else value

    def maybe(self, name: str) -> bool | None:
        """True, False, or not said."""
        value = self._given.get(name)
        if value is None or isinstance(value, bool):
            return value
        self.refuse(name, value, "True or False")
        return None

    def approval(self, name: str) -> tuple[bool, str | None]:
        """True or False, and what function decides on the arguments; if in doubt, True."""
        value = self._given.get(name)
        if isinstance(value, FunctionName):
            return True, value.entry
        return self.flag(name, otherwise=value is not None), None

    @overload
    def number(
        self, name: str, *, whole: Literal[True], least: int | None = ..., most: int = ...,
        otherwise: int,
    ) -> int: ...  # fmt: skip
    @overload
    def number(self, name: str, *, whole: Literal[True]) -> int | None: ...
    @overload
    def number(self, name: str) -> float | None: ...
    def number(
        self,
        name: str,
        *,
        whole: bool = False,
        least: int | None = 1,
        most: int | None = None,
        otherwise: int | None = None,
    ) -> Any:
        """A number within bounds; without `whole` any number above zero."""
        value = self._given.get(name)
        if value is None:
            return otherwise
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        fits = fits and math.isfinite(value)
        if fits and (least is None or value >= least or (not whole and value > 0)):
            if most is None or value <= most:
                return value
        bounds = f" from {least or 0} to {most:,}" if most else " above zero" if least else ""
        self.refuse(name, value, f"a {'whole ' if whole else ''}number{bounds}")
        return otherwise

    def size(self, name: str) -> int | None:
        """Bytes, as a number or as text such as `256MB`."""
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            value = int(match[1]) * _UNITS[match[2].lower()]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self.refuse(name, value, "a number of bytes, or text such as '256MB'")
        return None

    def choice(self, name: str, choices: tuple[T, ...]) -> T | None:
        """One of a few words."""
        value = self._given.get(name)
        for choice in choices:
            if value == choice:
                return choice
        if value is not None:
            self.refuse(name, value, f"one of {', '.join(choices)}")
        return None

    def kind(self, name: str) -> Any:
        """A semantic output kind, however its source spells it."""
        value = self._given.get(name)
        if isinstance(value, str):
            value = value.strip().lower().replace(" ", "_").replace("-", "_")
        if value is None or value in _KINDS:
            return value
        self.refuse(name, value, f"one of {', '.join(_KINDS)}")
        return None

    def capabilities(self, name: str) -> tuple[Capability, ...]:
        """A list of capabilities."""
        known = {item.value for item in Capability}
        texts = self.texts(name)
        for text in texts:
            if text not in known:
                self.refuse(name, text, f"one of {', '.join(sorted(known))}")
        return tuple(Capability(text) for text in texts if text in known)

    def icon(self, name: str) -> str | None:
        """The name of a Lucide icon."""
        return self._checked(name, "bad-icon", looks.icon_problem)

    def color(self, name: str) -> str | None:
        """A colour."""
        return self._checked(name, "bad-color", looks.color_problem)

    def _checked(self, name: str, rule: str, problem_of: Callable[[str], str | None]) -> str | None:
        value = self.text(name)
        problem = problem_of(value) if value else None
        if problem:
            self._findings.warn(rule, problem, self._line, f"correct {name}", tool=self._tool)
        return value

    def refuse(self, name: str, value: Any, wanted: str) -> None:
        """Report a value of the wrong kind."""
        message = f"{name} is {repr(value)[:40]}, not {wanted}"
        fix = f"set {name} to {wanted}"
        self._findings.error("bad-option", message, self._line, fix, tool=self._tool)
