"""How well a value fits a type: not at all (`BindingError`), or how closely (`Fit`).

What the conversions share. It converts nothing itself.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is costly to import and most tools do without
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

LAX, STRICT, EXACT = 0, 1, 2
"""How much a value was bent to fit: parsed or rounded, of a wider type, not at all."""

_SHOWN = 60
_PROBLEMS = 10


class BindingError(ValueError):
    """Arguments that cannot become what the tool's parameters ask for, said for a model."""

    def __init__(self, message: str, path: Iterable[str | int] = ()) -> None:
        super().__init__(message)
        self.problems: list[tuple[tuple[str | int, ...], str]] = [(tuple(path), message)]
        """Where, and what is wrong there."""

    @classmethod
    def joined(cls, errors: Iterable[BindingError]) -> BindingError:
        """One error that says what several say."""
        error = cls("")
        error.problems = [problem for one in errors for problem in one.problems]
        return error

    def under(self, key: str | int) -> BindingError:
        """The same error, seen from the value that has the faulty one under `key`."""
        self.problems = [((key, *path), message) for path, message in self.problems]
        return self

    def __str__(self) -> str:
        said = [f"{place(path)}: {what}" if path else what for path, what in self.problems]
        more = len(said) - _PROBLEMS
        return "; ".join(said[:_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


class Fit:
    """How closely a value fitted one member of a union, to be compared with the others."""

    __slots__ = ("fields", "is_key", "level", "tried")

    def __init__(self, outer: Fit | None = None, *, is_key: bool = False) -> None:
        self.is_key: bool = is_key if outer is None else outer.is_key
        """Whether the value is the key of an object, which is text before anything else."""
        self.tried: dict[tuple[int, int], Any] = {} if outer is None else outer.tried
        """What unions made of which arrays and objects, so that none is tried twice: the
        attempts at unions inside of unions would double with every level."""
        self.level = EXACT
        self.fields: int | None = None
        """How many fields of records were given; None where there is no record."""

    def floor(self, level: int) -> None:
        """Note that part of the value fitted no better than this."""
        if level < self.level:
            self.level = level

    def count(self, fields: int) -> None:
        """Note the fields that a record was given."""
        self.fields = fields + (self.fields or 0)

    def beats(self, other: Fit) -> bool:
        """Whether this is the better fit: more fields, else closer; pydantic's order."""
        if None not in (self.fields, other.fields) and self.fields != other.fields:
            return (self.fields or 0) > (other.fields or 0)
        return self.level > other.level


def unfit(what: str, value: Any) -> BindingError:
    """The error of a value that is not what it should be."""
    return BindingError(f"not {what}: {shown(value)}")


def shown(value: Any) -> str:
    """A JSON value in a sentence, cut when long."""
    if isinstance(value, str):
        text = repr(value[: _SHOWN + 1])
    elif isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    elif isinstance(value, int) and value.bit_length() > 256:
        return "a huge number"  # Python refuses to print the largest
    elif value is None:
        return "null"
    else:
        text = repr(value).lower()  # true and false, as JSON has them
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def place(path: tuple[str | int, ...]) -> str:
    """A path as a person writes it: `items[2].name`."""
    text = ""
    for key in path:
        named = isinstance(key, str) and key.isidentifier()
        text += f".{key}" if named else f"[{shown(key)}]"
    text = text.removeprefix(".")
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}…"
