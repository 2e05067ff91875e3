"""Options that a tool declares, as typed values. A value of the wrong type is a finding."""

import math
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, overload

from toolkiln import appearance
from toolkiln.model.spec import Capability
from toolkiln.spec.findings import Findings

T = TypeVar("T", bound=str)

_KINDS = ("knowledge", "file", "file_view", "execution_result", "error", "status")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.I)


class FunctionName(NamedTuple):
    """An option value that refers to a function of the file by its entry."""

    entry: str


class DeclaredOptions:
    """Typed access to a tool's options. A value of the wrong type is reported and ignored."""

    def __init__(self, values: dict[str, Any], tool: str, line: int, findings: Findings) -> None:
        self._values = values
        self._tool = tool
        self._line = line
        self._findings = findings

    def has(self, *names: str) -> bool:
        """Return whether any of these options is declared."""
        return not self._values.keys().isdisjoint(names)

    def text(self, name: str) -> str | None:
        """Return a string."""
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        self.report(name, value, "a string")
        return None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self._values.get(name)
        if value is None:
            return ()
        if isinstance(value, list | tuple | set) and all(isinstance(v, str) for v in value):
            return tuple(sorted(value) if isinstance(value, set) else value)
        self.report(name, value, "a list of strings")
        return ()

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return a dict with string keys."""
        value = self._values.get(name)
        if value is None or (isinstance(value, dict) and all(isinstance(k, str) for k in value)):
            return value
        self.report(name, value, "a dict")
        return None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return True or False."""
        value = self.optional_flag(name)
        return default if value is None else value

    def optional_flag(self, name: str) -> bool | None:
        """Return True, False, or None if the option is not declared."""
        value = self._values.get(name)
        if value is None or isinstance(value, bool):
            return value
        self.report(name, value, "True or False")
        return None

    def approval(self, name: str) -> tuple[bool, str | None]:
        """Return whether calls need approval, and the function that decides by arguments.

        An invalid value counts as True.
        """
        value = self._values.get(name)
        if isinstance(value, FunctionName):
            return True, value.entry
        return self.flag(name, default=value is not None), None

    @overload
    def number(
        self, name: str, *, integer: Literal[True], minimum: int | None = ..., maximum: int = ...,
        default: int,
    ) -> int: ...  # fmt: skip
    @overload
    def number(self, name: str, *, integer: Literal[True]) -> int | None: ...
    @overload
    def number(self, name: str) -> float | None: ...
    def number(
        self,
        name: str,
        *,
        integer: bool = False,
        minimum: int | None = 1,
        maximum: int | None = None,
        default: int | None = None,
    ) -> Any:
        """Return a number within bounds; a float only needs to be above zero."""
        value = self._values.get(name)
        if value is None:
            return default
        fits = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
        fits = fits and math.isfinite(value)
        if fits and (minimum is None or value >= minimum or (not integer and value > 0)):
            if maximum is None or value <= maximum:
                return value
        bounds = " above zero" if minimum else ""
        if maximum:
            bounds = f" from {minimum or 0} to {maximum:,}"
        self.report(name, value, f"{'an integer' if integer else 'a number'}{bounds}")
        return default

    def size(self, name: str) -> int | None:
        """Return a number of bytes, given as a number or as text such as `256MB`."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            value = int(match[1]) * _UNITS[match[2].lower()]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self.report(name, value, "a number of bytes, or text such as '256MB'")
        return None

    def choice(self, name: str, choices: tuple[T, ...]) -> T | None:
        """Return one of the choices."""
        value = self._values.get(name)
        for choice in choices:
            if value == choice:
                return choice
        if value is not None:
            self.report(name, value, f"one of {', '.join(choices)}")
        return None

    def kind(self, name: str) -> Any:
        """Return an output kind; case, spaces and dashes do not matter."""
        value = self._values.get(name)
        if isinstance(value, str):
            value = value.strip().lower().replace(" ", "_").replace("-", "_")
        if value is None or value in _KINDS:
            return value
        self.report(name, value, f"one of {', '.join(_KINDS)}")
        return None

    def capabilities(self, name: str) -> tuple[Capability, ...]:
        """Return a list of capabilities."""
        known = {item.value for item in Capability}
        texts = self.texts(name)
        for text in texts:
            if text not in known:
                self.report(name, text, f"one of {', '.join(sorted(known))}")
        return tuple(Capability(text) for text in texts if text in known)

    def icon(self, name: str) -> str | None:
        """Return the name of a Lucide icon."""
        return self._checked(name, "bad-icon", appearance.icon_problem)

    def color(self, name: str) -> str | None:
        """Return a color."""
        return self._checked(name, "bad-color", appearance.color_problem)

    def _checked(self, name: str, rule: str, check: Callable[[str], str | None]) -> str | None:
        value = self.text(name)
        problem = check(value) if value else None
        if problem:
            self._findings.warn(rule, problem, self._line, f"correct {name}", tool=self._tool)
        return value

    def report(self, name: str, value: Any, expected: str) -> None:
        """Report a value of the wrong type."""
        message = f"{name} is {repr(value)[:40]}, not {expected}"
        fix = f"set {name} to {expected}"
        self._findings.error("bad-option", message, self._line, fix, tool=self._tool)
