"""String formats as Python tools understand them, for the validator's `format` keyword.

RFC 3339 wants a time zone and a `T`; pydantic and `fromisoformat` do not, and tools are
written with those. Formats that are not listed here are either the validator's own or
annotations that never fail ("path", "binary", "password", ...).
"""

import base64
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from types import MappingProxyType
from uuid import UUID

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DURATION = re.compile(
    r"[-+]?P(?=.)(\d+([.,]\d+)?Y)?(\d+([.,]\d+)?M)?(\d+([.,]\d+)?W)?(\d+([.,]\d+)?D)?"
    r"(T(?=.)(\d+([.,]\d+)?H)?(\d+([.,]\d+)?M)?(\d+([.,]\d+)?S)?)?",
    re.IGNORECASE,
)
_CLOCK_DURATION = re.compile(
    r"[-+]?(\d+\s*(d|days?)?,?\s*)?\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?", re.IGNORECASE
)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", re.DOTALL)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")


def _accepts(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, OverflowError, RecursionError, re.error):
            return False
        return True

    return check


def _is_date_time(text: str) -> bool:
    # The calendar date is spelled out so that "20240101" does not pass for a moment.
    return bool(_DATE.match(text)) and _accepts(datetime.fromisoformat)(_upper(text))


def _is_date(text: str) -> bool:
    if _DATE.fullmatch(text):
        return _accepts(date.fromisoformat)(text)
    return _is_date_time(text) and datetime.fromisoformat(_upper(text)).time() == time()


def _is_time(text: str) -> bool:
    return ":" in text and _accepts(time.fromisoformat)(_upper(text))


def _upper(text: str) -> str:
    return text.upper().replace("_", " ") if len(text) < 64 else ""


def _is_duration(text: str) -> bool:
    return len(text) < 128 and bool(_DURATION.fullmatch(text) or _CLOCK_DURATION.fullmatch(text))


def _is_email(text: str) -> bool:
    return len(text) <= 320 and bool(_EMAIL.fullmatch(text))


def _is_uri(text: str) -> bool:
    return bool(_URI.fullmatch(text.strip(" ")))


FORMATS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "date-time": _is_date_time,
        "date": _is_date,
        "time": _is_time,
        "duration": _is_duration,
        "uuid": _accepts(UUID),
        **{f"uuid{version}": _accepts(UUID) for version in range(1, 9)},
        "email": _is_email,
        "idn-email": _is_email,
        "uri": _is_uri,
        "iri": _is_uri,
        "multi-host-uri": _is_uri,
        "ipv4": _accepts(ipaddress.IPv4Address),
        "ipv6": _accepts(ipaddress.IPv6Address),
        "ipvanyaddress": _accepts(ipaddress.ip_address),
        "ipv4network": _accepts(ipaddress.IPv4Network),
        "ipv6network": _accepts(ipaddress.IPv6Network),
        "ipvanynetwork": _accepts(ipaddress.ip_network),
        "ipv4interface": _accepts(ipaddress.IPv4Interface),
        "ipv6interface": _accepts(ipaddress.IPv6Interface),
        "ipvanyinterface": _accepts(ipaddress.ip_interface),
        "regex": _accepts(re.compile),
        "byte": _accepts(lambda text: base64.b64decode(text, validate=True)),
    }
)
"""What each format accepts."""
