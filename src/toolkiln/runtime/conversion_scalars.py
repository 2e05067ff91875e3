"""Conversion of single JSON values to numbers, dates, durations, paths and so on, as in pydantic.

Types are recognised by name, so none is imported here: a tool that annotates with `Decimal` has
imported it. Each function returns the converted value, records in `fit` how closely the value
fitted, and raises `BindingError` if it cannot convert. `conversion` handles containers and classes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable
    from typing import Any

    Convert = Callable[[Any, "Fit"], Any]

LAX, STRICT, EXACT = 0, 1, 2
"""How closely a value fits a type: parsed or rounded, of a wider type, exactly."""

_MAX_SHOWN = 60
_MAX_PROBLEMS = 10


class BindingError(ValueError):
    """Arguments that cannot be converted to a tool's parameters; the message is for a model."""

    def __init__(self, message: str, path: Iterable[str | int] = ()) -> None:
        super().__init__(message)
        self.problems: list[tuple[tuple[str | int, ...], str]] = [(tuple(path), message)]
        """The path and message of each problem."""

    @classmethod
    def joined(cls, errors: Iterable[BindingError]) -> BindingError:
        """Join several errors into one."""
        joined = cls("")
        joined.problems = [problem for error in errors for problem in error.problems]
        return joined

    def under(self, key: str | int) -> BindingError:
        """Prefix the paths of this error with a key, and return it."""
        self.problems = [((key, *path), message) for path, message in self.problems]
        return self

    def __str__(self) -> str:
        texts = [f"{_path_text(path)}: {text}" if path else text for path, text in self.problems]
        more = len(texts) - _MAX_PROBLEMS
        return "; ".join(texts[:_MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


class Fit:
    """How closely a value fits one member of a union."""

    __slots__ = ("fields", "is_key", "level", "tried")

    def __init__(self, outer: Fit | None = None, *, is_key: bool = False) -> None:
        self.is_key: bool = is_key if outer is None else outer.is_key
        """Whether the value is a key of an object, for which text is an exact fit."""
        self.tried: dict[tuple[int, int], Any] = {} if outer is None else outer.tried
        """Results by union and array or object: without this cache, the attempts for unions in
        unions would double with every level."""
        self.level = EXACT
        self.fields: int | None = None
        """Number of record fields set; None without a record."""

    def floor(self, level: int) -> None:
        """Record that part of the value fits only at this level."""
        if level < self.level:
            self.level = level

    def count(self, fields: int) -> None:
        """Add the number of fields set in a record."""
        self.fields = fields + (self.fields or 0)

    def beats(self, other: Fit) -> bool:
        """Return whether this fit is better: more fields, else a closer level, as in pydantic."""
        if None not in (self.fields, other.fields) and self.fields != other.fields:
            return (self.fields or 0) > (other.fields or 0)
        return self.level > other.level


def unfit(expected: str, value: Any) -> BindingError:
    """Return the error for a value of the wrong type."""
    return BindingError(f"not {expected}: {show(value)}")


def show(value: Any) -> str:
    """Format a JSON value for a message, truncated."""
    if isinstance(value, str):
        text = repr(value[: _MAX_SHOWN + 1])
    elif isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    elif isinstance(value, int) and value.bit_length() > 256:
        return "a huge number"  # Python refuses to print very large ones
    elif value is None:
        return "null"
    else:
        text = repr(value).lower()  # true and false, as in JSON
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _path_text(path: tuple[str | int, ...]) -> str:
    """Format a path, for example `items[2].name`."""
    text = ""
    for key in path:
        named = isinstance(key, str) and key.isidentifier()
        text += f".{key}" if named else f"[{show(key)}]"
    text = text.removeprefix(".")
    return text if len(text) <= 2 * _MAX_SHOWN else f"{text[: 2 * _MAX_SHOWN]}…"


_TRUE = {"1", "on", "t", "true", "y", "yes"}
_FALSE = {"0", "off", "f", "false", "n", "no"}
_MAX_LENGTH = 128  # of a date, a time or a duration
_MAX_SECONDS = 20_000_000_000
"""Larger timestamps are milliseconds."""
_INTEGER = r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*"
_TIMESTAMP = r"[+-]?[0-9]{1,20}(?:\.[0-9]{1,9})?"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_INSTANT = _DATE + r"[Tt _][0-9]{2}.*"
_CLOCK = r"[0-9]{2}:[0-9]{2}.*"
_DURATION = (
    r"([+-]?)P(?=.)((?:[0-9]+(?:[.,][0-9]+)?[YMWD])*)(?:T((?:[0-9]+(?:[.,][0-9]+)?[HMS])*))?"
)
_DAYS_AND_CLOCK = (
    r"([+-]?)(?:([0-9]+) ?d(?:ays?)?(?:,? ?(?=[0-9])|$))?"
    r"(?:([0-9]{1,9}):([0-5][0-9])(?::([0-5][0-9])(?:[.,]([0-9]+))?)?)?"
)
_UUID_LENGTHS = (32, 36, 38, 45)  # bare, with hyphens, in braces, as a URN
_MAX_INT = 2**63
_MAX_EXACT = 1e16  # floats below this have an exact decimal form


def anything(value: Any, fit: Fit) -> Any:
    """Accept anything (`Any`); fits better than parsing the value for another union member."""
    fit.floor(STRICT)
    return value


def opaque(value: Any, fit: Fit) -> Any:
    """Pass the value unchanged, for classes that cannot be converted to."""
    fit.floor(LAX)
    return value


def text(value: Any, fit: Fit) -> Any:
    """Convert to `str`; not an exact fit, because text may represent another type."""
    if type(value) is str:
        fit.floor(EXACT if fit.is_key else STRICT)
        return value
    raise unfit("a string", value)


def null(value: Any, _fit: Fit) -> Any:
    """Convert to `None`."""
    if value is None:
        return value
    raise unfit("null", value)


def integer(value: Any, fit: Fit) -> Any:
    """Convert to `int`; 1.0 is an integer in JSON Schema, and object keys are text."""
    kind = type(value)
    if kind is int:
        return value
    fit.floor(LAX)
    if kind is bool or (kind is float and value.is_integer() and abs(value) < _MAX_INT):
        return int(value)
    if kind is str:
        match = _match(_INTEGER, value)
        if match:
            return _parse(int, match[1], "an integer", value)
    raise unfit("an integer", value)


def number(value: Any, fit: Fit) -> Any:
    """Convert to `float`."""
    kind = type(value)
    if kind is float:
        return value
    fit.floor(STRICT if kind is int else LAX)
    if kind in (int, bool) or (kind is str and value.isascii()):
        return _parse(float, value, "a number", value)
    raise unfit("a number", value)


def boolean(value: Any, fit: Fit) -> Any:
    """Convert to `bool`."""
    if type(value) is bool:
        return value
    fit.floor(LAX)
    if type(value) in (int, float) and value in (0, 1):
        return bool(value)
    lowered = value.lower() if type(value) is str else None
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise unfit("true or false", value)


def _binary(value: Any, fit: Fit) -> Any:
    if type(value) is str:
        fit.floor(STRICT)
        return _parse(str.encode, value, "text that UTF-8 can encode", value)
    raise unfit("a string", value)


def _byte_array(value: Any, fit: Fit) -> Any:
    return bytearray(_binary(value, fit))


def _complex(value: Any, fit: Fit) -> Any:
    if type(value) not in (str, int, float):
        raise unfit("a complex number", value)
    fit.floor(STRICT if type(value) is str else LAX)
    return _parse(complex, value, "a complex number", value)


def _decimal(value: Any, fit: Fit) -> Any:
    from decimal import Decimal

    if type(value) not in (str, int, float):
        raise unfit("a decimal number", value)
    fit.floor(STRICT)
    source = value
    if type(value) is float:  # 0.1 as written, 1.0 as 1
        source = int(value) if value.is_integer() and abs(value) < _MAX_EXACT else repr(value)
    result = _parse(Decimal, source, "a decimal number", value)
    if not result.is_finite():
        raise unfit("a finite number", value)
    return result


def _fraction(value: Any, fit: Fit) -> Any:
    from fractions import Fraction

    if type(value) not in (str, int, float):
        raise unfit("a fraction", value)
    fit.floor(STRICT)
    if type(value) is str and _match(r".*[eE][+-]?[0-9_]{4,}\s*", value):
        raise unfit("a fraction of reasonable size", value)
    return _parse(Fraction, value, "a fraction", value)


def _uuid(value: Any, _fit: Fit) -> Any:
    from uuid import UUID

    if type(value) is str and len(value) in _UUID_LENGTHS:
        return _parse(UUID, value, "a UUID", value)
    raise unfit("a UUID", value)


def _date(value: Any, fit: Fit) -> Any:
    from datetime import date

    fit.floor(STRICT)
    if type(value) is str and _match(_DATE, value):
        return _parse(date.fromisoformat, value, "a date", value)
    instant = _instant(value, "a date")
    if instant.hour or instant.minute or instant.second or instant.microsecond:
        raise BindingError(f"a moment, not a date: {show(value)}")
    fit.floor(LAX)
    return instant.date()


def _datetime(value: Any, fit: Fit) -> Any:
    from datetime import datetime

    if type(value) is str and _match(_DATE, value):
        fit.floor(LAX)
        return _parse(datetime.fromisoformat, value, "a date and time", value)
    fit.floor(STRICT if type(value) is str else LAX)
    return _instant(value, "a date and time")


def _instant(value: Any, expected: str) -> datetime.datetime:
    from datetime import UTC, datetime, timedelta

    if type(value) is str:
        if len(value) <= _MAX_LENGTH and _match(_INSTANT, value):
            instant: datetime = _parse(datetime.fromisoformat, _iso(value), expected, value)
            return instant
        if not _match(_TIMESTAMP, value):
            raise unfit(expected, value)
        value = float(value) if "." in value else int(value)
    if type(value) not in (int, float):
        raise unfit(expected, value)
    if abs(value) > _MAX_SECONDS:
        value = value / 1000
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise unfit(expected, value) from None


def _time(value: Any, fit: Fit) -> Any:
    from datetime import UTC, datetime, time, timedelta

    if type(value) is str and len(value) <= _MAX_LENGTH and _match(_CLOCK, value):
        fit.floor(STRICT)
        return _parse(time.fromisoformat, _iso(value), "a time", value)
    if type(value) in (int, float) and 0 <= value < 86_400:
        fit.floor(LAX)
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)).timetz()
    raise unfit("a time", value)


def _iso(text: str) -> str:
    return text.upper().replace("_", "T").replace("\N{MINUS SIGN}", "-")


def _timedelta(value: Any, fit: Fit) -> Any:
    from datetime import timedelta

    fit.floor(STRICT if type(value) is str else LAX)
    try:
        if type(value) in (int, float):
            return timedelta(seconds=value)
        if type(value) is str and 0 < len(value) <= _MAX_LENGTH:
            match = _match(_DURATION, value.upper())
            if match and (match[2] or match[3]):
                span = _sum_units(match[2], _DAYS) + _sum_units(match[3] or "", _SECONDS)
                return -span if match[1] == "-" else span
            match = _match(_DAYS_AND_CLOCK, value.lower())
            if match and (match[2] or match[3]):
                days, hours, minutes, seconds = (int(n or 0) for n in match.groups()[1:5])
                micro = int((match[6] or "0")[:6].ljust(6, "0"))
                clock = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micro)
                span = timedelta(days=days) + clock
                return -span if match[1] == "-" else span
    except (OverflowError, ValueError):
        pass  # out of range
    raise unfit("a duration", value)


_DAYS = {"Y": "365", "M": "30", "W": "7", "D": "1"}
_SECONDS = {"H": "3600", "M": "60", "S": "1"}


def _sum_units(text: str, units: dict[str, str]) -> datetime.timedelta:
    import re
    from datetime import timedelta

    total = timedelta()
    for amount, fraction, unit in re.findall(r"([0-9]+)(?:[.,]([0-9]+))?([A-Z])", text):
        size = int(units[unit])
        whole, part = int(amount) * size, float(f"0.{fraction or 0}") * size
        if units is _DAYS:
            total += timedelta(days=whole) + timedelta(days=part)
        else:
            total += timedelta(seconds=whole) + timedelta(seconds=part)
    return total


def _pattern(value: Any, _fit: Fit) -> Any:
    import re

    if type(value) is not str:
        raise unfit("a regular expression", value)
    return _parse(re.compile, value, "a regular expression", value)


def _zone(value: Any, fit: Fit) -> Any:
    from zoneinfo import ZoneInfo

    return _constructor(ZoneInfo, "a time zone", (str,))(value, fit)


def _path_like(value: Any, fit: Fit) -> Any:
    from pathlib import PurePath

    return _constructor(PurePath, "a path", (str,))(value, fit)


def _constructor(cls: Any, expected: str, accepts: tuple[type, ...]) -> Convert:

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) in accepts:
            fit.floor(STRICT if type(value) is str else LAX)
            return _parse(cls, value, expected, value)
        raise unfit(expected, value)

    return convert


def scalar(cls: type) -> Convert | None:
    """Return the conversion to a class that is recognised by name."""
    top = cls.__module__.partition(".")[0]  # pathlib is a package in later Pythons
    if top == "pathlib" and cls.__name__ in _PATHS:
        return _constructor(cls, "a path", (str,))
    if top == "ipaddress" and cls.__name__.startswith("IPv"):
        return _constructor(cls, "an IP address or network", (str, int, bool))
    return _SCALARS.get(f"{top}.{cls.__qualname__}")


_PATHS = {"Path", "PurePath", "PosixPath", "PurePosixPath", "PureWindowsPath"}
_SCALARS: dict[str, Convert] = {
    "builtins.str": text,
    "builtins.int": integer,
    "builtins.float": number,
    "builtins.bool": boolean,
    "builtins.bytes": _binary,
    "builtins.bytearray": _byte_array,
    "builtins.complex": _complex,
    "builtins.object": anything,
    "builtins.NoneType": null,
    "typing.Any": anything,
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
    "uuid.UUID": _uuid,
    "datetime.date": _date,
    "datetime.datetime": _datetime,
    "datetime.time": _time,
    "datetime.timedelta": _timedelta,
    "re.Pattern": _pattern,
    "zoneinfo.ZoneInfo": _zone,
    "os.PathLike": _path_like,
}


def _match(pattern: str, value: str) -> Any:
    import re

    return re.fullmatch(pattern, value)


def _parse(parser: Callable[[Any], Any], source: Any, expected: str, value: Any) -> Any:
    try:
        return parser(source)
    except Exception:  # re.error, InvalidOperation …: no common base class
        raise unfit(expected, value) from None
