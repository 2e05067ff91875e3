"""Single JSON values → numbers, dates, durations, paths and the like, as pydantic reads them.

Types are known by name, so that none has to be imported here: a tool that annotates with
`Decimal` has imported it. Each function returns the value, notes in `fit` how far it had to
bend it, and raises `BindingError` where it cannot. Containers and classes are `conversion`'s.
"""

from __future__ import annotations

from toolkiln.runtime.binding_fit import EXACT, LAX, STRICT, BindingError, Fit, shown, unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable
    from typing import Any

    Convert = Callable[[Any, Fit], Any]

_TRUE = {"1", "on", "t", "true", "y", "yes"}
_FALSE = {"0", "off", "f", "false", "n", "no"}
_LONGEST = 128  # characters of a date, a time or a duration
_MILLISECONDS = 20_000_000_000
"""Timestamps beyond this are milliseconds."""
_INTEGER = r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*"
_TIMESTAMP = r"[+-]?[0-9]{1,20}(?:\.[0-9]{1,9})?"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = _DATE + r"[Tt _][0-9]{2}.*"
_CLOCK = r"[0-9]{2}:[0-9]{2}.*"
_DURATION = (
    r"([+-]?)P(?=.)((?:[0-9]+(?:[.,][0-9]+)?[YMWD])*)(?:T((?:[0-9]+(?:[.,][0-9]+)?[HMS])*))?"
)
_DAYS_AND_CLOCK = (
    r"([+-]?)(?:([0-9]+) ?d(?:ays?)?(?:,? ?(?=[0-9])|$))?"
    r"(?:([0-9]{1,9}):([0-5][0-9])(?::([0-5][0-9])(?:[.,]([0-9]+))?)?)?"
)
_UUID_LENGTHS = (32, 36, 38, 45)  # bare, with hyphens, in braces, as a URN
_FURTHEST = 2**63
_DIGITS = 1e16  # below this a float has every digit that it is printed with


def anything(value: Any, fit: Fit) -> Any:
    """`Any`: better than bending the value to another member of a union."""
    fit.floor(STRICT)
    return value


def opaque(value: Any, fit: Fit) -> Any:
    """A class that no value can be turned into here; the tool gets what was sent."""
    fit.floor(LAX)
    return value


def text(value: Any, fit: Fit) -> Any:
    """`str`: in JSON, text may stand for something that it fits better."""
    if type(value) is str:
        fit.floor(EXACT if fit.is_key else STRICT)
        return value
    raise unfit("a string", value)


def null(value: Any, _fit: Fit) -> Any:
    """`None`."""
    if value is None:
        return value
    raise unfit("null", value)


def integer(value: Any, fit: Fit) -> Any:
    """`int`; JSON Schema takes 1.0 for one, and keys of objects are always text."""
    kind = type(value)
    if kind is int:
        return value
    fit.floor(LAX)
    if kind is bool or (kind is float and value.is_integer() and abs(value) < _FURTHEST):
        return int(value)
    if kind is str:
        matched = _matched(_INTEGER, value)
        if matched:
            return _made(int, matched[1], "an integer", value)
    raise unfit("an integer", value)


def number(value: Any, fit: Fit) -> Any:
    """`float`."""
    kind = type(value)
    if kind is float:
        return value
    fit.floor(STRICT if kind is int else LAX)
    if kind in (int, bool) or (kind is str and value.isascii()):
        return _made(float, value, "a number", value)
    raise unfit("a number", value)


def boolean(value: Any, fit: Fit) -> Any:
    """`bool`."""
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
        return _made(str.encode, value, "text that UTF-8 can encode", value)
    raise unfit("a string", value)


def _byte_array(value: Any, fit: Fit) -> Any:
    return bytearray(_binary(value, fit))


def _complex(value: Any, fit: Fit) -> Any:
    if type(value) not in (str, int, float):
        raise unfit("a complex number", value)
    fit.floor(STRICT if type(value) is str else LAX)
    return _made(complex, value, "a complex number", value)


def _decimal(value: Any, fit: Fit) -> Any:
    from decimal import Decimal

    if type(value) not in (str, int, float):
        raise unfit("a decimal number", value)
    fit.floor(STRICT)
    source = value
    if type(value) is float:  # 0.1 as it was written, 1.0 as 1
        source = int(value) if value.is_integer() and abs(value) < _DIGITS else repr(value)
    made = _made(Decimal, source, "a decimal number", value)
    if not made.is_finite():
        raise unfit("a finite number", value)
    return made


def _fraction(value: Any, fit: Fit) -> Any:
    from fractions import Fraction

    if type(value) not in (str, int, float):
        raise unfit("a fraction", value)
    fit.floor(STRICT)
    if type(value) is str and _matched(r".*[eE][+-]?[0-9_]{4,}\s*", value):
        raise unfit("a fraction of reasonable size", value)
    return _made(Fraction, value, "a fraction", value)


def _uuid(value: Any, _fit: Fit) -> Any:
    from uuid import UUID

    if type(value) is str and len(value) in _UUID_LENGTHS:
        return _made(UUID, value, "a UUID", value)
    raise unfit("a UUID", value)


def _date(value: Any, fit: Fit) -> Any:
    from datetime import date

    fit.floor(STRICT)
    if type(value) is str and _matched(_DATE, value):
        return _made(date.fromisoformat, value, "a date", value)
    moment = _moment(value, "a date")
    if moment.hour or moment.minute or moment.second or moment.microsecond:
        raise BindingError(f"a moment, not a date: {shown(value)}")
    fit.floor(LAX)
    return moment.date()


def _datetime(value: Any, fit: Fit) -> Any:
    from datetime import datetime

    if type(value) is str and _matched(_DATE, value):
        fit.floor(LAX)
        return _made(datetime.fromisoformat, value, "a date and time", value)
    fit.floor(STRICT if type(value) is str else LAX)
    return _moment(value, "a date and time")


def _moment(value: Any, what: str) -> datetime.datetime:
    from datetime import UTC, datetime, timedelta

    if type(value) is str:
        if len(value) <= _LONGEST and _matched(_MOMENT, value):
            moment: datetime = _made(datetime.fromisoformat, _iso(value), what, value)
            return moment
        if not _matched(_TIMESTAMP, value):
            raise unfit(what, value)
        value = float(value) if "." in value else int(value)
    if type(value) not in (int, float):
        raise unfit(what, value)
    if abs(value) > _MILLISECONDS:
        value = value / 1000
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise unfit(what, value) from None


def _time(value: Any, fit: Fit) -> Any:
    from datetime import UTC, datetime, time, timedelta

    if type(value) is str and len(value) <= _LONGEST and _matched(_CLOCK, value):
        fit.floor(STRICT)
        return _made(time.fromisoformat, _iso(value), "a time", value)
    if type(value) in (int, float) and 0 <= value < 86_400:
        fit.floor(LAX)
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)).timetz()
    raise unfit("a time", value)


def _iso(written: str) -> str:
    return written.upper().replace("_", "T").replace("\N{MINUS SIGN}", "-")


def _timedelta(value: Any, fit: Fit) -> Any:
    from datetime import timedelta

    fit.floor(STRICT if type(value) is str else LAX)
    try:
        if type(value) in (int, float):
            return timedelta(seconds=value)
        if type(value) is str and 0 < len(value) <= _LONGEST:
            matched = _matched(_DURATION, value.upper())
            if matched and (matched[2] or matched[3]):
                span = _parts(matched[2], _DAYS) + _parts(matched[3] or "", _SECONDS)
                return -span if matched[1] == "-" else span
            matched = _matched(_DAYS_AND_CLOCK, value.lower())
            if matched and (matched[2] or matched[3]):
                days, hours, minutes, seconds = (int(n or 0) for n in matched.groups()[1:5])
                micro = int((matched[6] or "0")[:6].ljust(6, "0"))
                clock = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micro)
                span = timedelta(days=days) + clock
                return -span if matched[1] == "-" else span
    except (OverflowError, ValueError):
        pass  # too long a time for Python
    raise unfit("a duration", value)


_DAYS = {"Y": "365", "M": "30", "W": "7", "D": "1"}
_SECONDS = {"H": "3600", "M": "60", "S": "1"}


def _parts(written: str, units: dict[str, str]) -> datetime.timedelta:
    import re
    from datetime import timedelta

    total = timedelta()
    for amount, fraction, unit in re.findall(r"([0-9]+)(?:[.,]([0-9]+))?([A-Z])", written):
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
    return _made(re.compile, value, "a regular expression", value)


def _zone(value: Any, fit: Fit) -> Any:
    from zoneinfo import ZoneInfo

    if type(value) is not str:
        raise unfit("a time zone", value)
    fit.floor(STRICT)
    return _made(ZoneInfo, value, "a time zone", value)


def _path_like(value: Any, fit: Fit) -> Any:
    from pathlib import PurePath

    return constructed(PurePath, "a path", (str,))(value, fit)


def constructed(cls: Any, what: str, accepts: tuple[type, ...]) -> Convert:
    """A class that makes itself from one plain value."""

    def convert(value: Any, fit: Fit) -> Any:
        if type(value) in accepts:
            fit.floor(STRICT if type(value) is str else LAX)
            return _made(cls, value, what, value)
        raise unfit(what, value)

    return convert


def scalar(cls: type) -> Convert | None:
    """How a value becomes one of this class, if the class is known by name."""
    top = cls.__module__.partition(".")[0]  # pathlib is a package in later Pythons
    if top == "pathlib" and cls.__name__ in _PATHS:
        return constructed(cls, "a path", (str,))
    if top == "ipaddress" and cls.__name__.startswith("IPv"):
        return constructed(cls, "an IP address or network", (str, int, bool))
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


def _matched(pattern: str, value: str) -> Any:
    import re

    return re.fullmatch(pattern, value)


def _made(make: Callable[[Any], Any], source: Any, what: str, value: Any) -> Any:
    """The result of a parser of the standard library, whatever way it has of refusing."""
    try:
        return make(source)
    except Exception:  # re.error, InvalidOperation …: no common root
        raise unfit(what, value) from None
