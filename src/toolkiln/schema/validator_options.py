"""Validator options: regular expression engines for `pattern`, Python checks for `format`.

Patterns run on an engine that is linear in time. Look-around and back-references need one
that backtracks; it gives up early and only matches short strings, because the validator
holds the GIL while it matches.

Formats follow pydantic and `fromisoformat`, not RFC 3339: a time zone and the `T` are
optional. A format missing here is either built into the validator or an annotation that
never fails ("path", "binary", "password").
"""

import base64
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, RegexOptions, ValidationError

_COMPILED_BYTES = 1 << 20
LINEAR = RegexOptions(size_limit=_COMPILED_BYTES, dfa_size_limit=_COMPILED_BYTES)
BACKTRACKING = FancyRegexOptions(
    backtrack_limit=1_000, size_limit=_COMPILED_BYTES, dfa_size_limit=_COMPILED_BYTES
)
MAX_BACKTRACKED_LENGTH = 1_000
"""Maximum length, in characters, of a string that the backtracking engine matches."""

PatternOptions = RegexOptions | FancyRegexOptions


@lru_cache(maxsize=4096)
def engine_of(pattern: str) -> PatternOptions | None:
    """Return the engine for a pattern, linear if possible; None if the pattern is invalid."""
    for options in (LINEAR, BACKTRACKING):
        try:
            Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
        except (ValidationError, ValueError):
            continue
        return options
    return None


def options_for(schema: Any) -> PatternOptions:
    """Return the engine for all patterns of a schema."""
    return BACKTRACKING if any(map(backtracks, _patterns(schema))) else LINEAR


def backtracks(pattern: object) -> bool:
    """Return whether a pattern needs the backtracking engine."""
    return isinstance(pattern, str) and engine_of(pattern) is not LINEAR


def _patterns(schema: Any) -> Iterator[Any]:
    # May also yield values that only look like patterns; they do no harm.
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if "pattern" in node:
                yield node["pattern"]
            keys = node.get("patternProperties")
            yield from keys if isinstance(keys, dict) else ()
            pending += node.values()
        elif isinstance(node, list):
            pending += node


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
    # `fromisoformat` alone would also accept "20240101".
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
"""Format name to check."""
