"""Redaction of arguments for audit records, and single-line rendering of untrusted text.

Values under keys that look like names of secrets are redacted at any depth. Redaction goes by
names; `masking` removes the known values of secrets. The cost is bounded by the size of the
output, not of the arguments.
"""

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any

REDACTED = "[redacted]"

_ELLIPSIS = "…"
_CUT = "…[+{} chars{}]"
_MAX_COUNTED = 10_000
_MAX_DEPTH = 40
_MAX_JSON_TEXT = 100_000
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_SECRET_WORDS = {
    "auth", "cvc", "cvv", "creds", "jwt", "otp", "pass", "pat", "pin", "pins", "pwd", "session",
    "sessions", "sid", "signature", "ssn", "totp",
}  # fmt: skip
_SECRET_STEMS = re.compile(
    r"passw|passphrase|passcode|secret|token|credential|authori[sz]ation|cookie|bearer|"
    r"(?:api|private|access|signing|encryption|master|shared|ssh|gpg|pgp)key|sessionid"
)
_NAME_KEYS = tuple(
    form
    for name in ("name", "key", "field", "header", "param", "parameter", "variable", "label", "id")
    for form in (name, name.title(), name.upper())
)
_REFERENCE = re.compile(r"secret:[A-Za-z0-9_.@-]{1,100}")
# The value after the name of a secret, in prose, headers, query strings and command lines.
_QUOTED = r"""\\?"(?:[^"\\]|\\[^"])*(?:\\?"|\\?$)|'[^']*(?:'|$)"""
_ASSIGNED = re.compile(
    r"((?:passw|passphrase|passcode|pwd|secret|token|credential|authori[sz]ation|cookie|session|"
    r"(?:api|private|access)[ _-]?key)"
    r"""[\w.-]{0,40}\\?["']?\s{0,4}[:=]\s{0,4})"""
    rf"""({_QUOTED}|(?:(?:bearer|basic|digest)\s)?[^\s"'&,;}}\]]+)""",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(bearer|basic)\s{1,4}(?!secret:)[\w.~+/=-]{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"(://[^\s/:@]{0,200}:)[^\s/@]{1,500}@")


def line(text: str, limit: int) -> str:
    """Return text as one printable line of at most `limit` characters.

    If it is cut, it ends in `…[+N chars]`, unless the limit leaves no room for that.
    """
    return _line(text, limit, 0, "")


def _line(text: str, limit: int, more: int, at_least: str) -> str:
    """Return text, which lacks `more` characters, as one line."""
    total = len(text) + more
    if total <= limit and text.isprintable():
        return text
    head = text[:limit]
    shown = [c if c.isprintable() else c.encode("unicode_escape").decode() for c in head]
    ends = list(accumulate(map(len, shown)))
    if total <= limit and ends[-1] <= limit:
        return "".join(shown)
    kept = 0
    for _ in range(2):  # with fewer characters to count, the mark may be shorter
        room = limit - len(_CUT.format(total - kept, at_least))
        if room < 0:
            return "".join(shown)[: limit - 1] + _ELLIPSIS
        kept = bisect_right(ends, room)
    return "".join(shown[:kept]) + _CUT.format(total - kept, at_least)


@lru_cache(maxsize=1024)
def looks_secret(key: str) -> bool:
    """Return whether a key looks like the name of a secret."""
    if not key.isascii():
        key = unicodedata.normalize("NFKC", key)
    words = [word.casefold() for word in _WORD.findall(key)]
    return not _SECRET_WORDS.isdisjoint(words) or bool(_SECRET_STEMS.search("".join(words)))


def redacted_arguments(arguments: Any, *, limit: int = 2000) -> str:
    """Return arguments as one line of JSON without secrets, cut like a `line`."""
    writer, at_least = _Writer(limit), ""
    try:
        writer.value(arguments, 0)
    except _Full:
        at_least = " or more"
    return _line("".join(writer.parts), limit, writer.more, at_least)


class _Full(Exception):
    """The values that were left out are too many to count."""


class _Writer:
    """Writes redacted JSON up to a size limit, and counts the rest."""

    def __init__(self, limit: int) -> None:
        self.parts: list[str] = []
        self.more = 0
        """Characters that were left out."""
        self._limit = limit
        self._room = limit
        self._left = _MAX_COUNTED
        """Values that may be counted beyond the limit."""

    def value(self, value: Any, depth: int) -> None:
        """Write one value, redacted."""
        if self._room < 0:
            self._left -= 1
            if self._left < 0:
                raise _Full
        if isinstance(value, str):
            self._text(value, depth)
        elif value is None or isinstance(value, bool | float):
            self._put(json.dumps(value))
        elif isinstance(value, int):
            short = value.bit_length() <= 256  # Python refuses to format over 4,300 digits
            self._put(str(value) if short else f'"[an integer of {value.bit_length()} bits]"')
        elif depth >= _MAX_DEPTH:
            self._put('"[deeper than is shown]"')
        elif isinstance(value, Mapping):
            self._mapping(value, depth)
        elif isinstance(value, list | tuple):
            self._list(value, depth)
        else:
            self._put(json.dumps(f"[a value of type {type(value).__name__[:50]}]"))

    def _put(self, text: str) -> None:
        if self._room < 0:
            self.more += len(text)
            return
        self.parts.append(text)
        self._room -= len(text)

    def _text(self, text: str, depth: int) -> None:
        if self._room < 0:
            self.more += len(text) + 2
            return
        shown = self._inner_json(text, depth)
        if shown is None:
            shown = _inner_text(text[: self._limit + 1000])
            self.more += max(0, len(text) - self._limit - 1000)
        self.more += max(0, len(shown) - self._room - 1)
        self._put(encode_basestring(shown[: self._room + 1]))

    def _mapping(self, mapping: Mapping[Any, Any], depth: int) -> None:
        name_key = _name_key(mapping)
        self._put("{")
        for number, (key, value) in enumerate(mapping.items()):
            name = key[: self._limit + 1] if isinstance(key, str) else type(key).__name__
            self.more += len(key) - len(name) if isinstance(key, str) else 0
            self._put((", " if number else "") + encode_basestring(name) + ": ")
            if (name_key is not None and key != name_key) or looks_secret(name):
                self._secret(value)
            else:
                self.value(value, depth + 1)
        self._put("}")

    def _list(self, items: list[Any] | tuple[Any, ...], depth: int) -> None:
        is_pair = len(items) == 2 and _names_a_secret(items[0])  # a header and its value
        self._put("[")
        for number, item in enumerate(items):
            self._put(", " if number else "")
            if is_pair and number:
                self._secret(item)
            else:
                self.value(item, depth + 1)
        self._put("]")

    def _inner_json(self, text: str, depth: int) -> str | None:
        """Return JSON text redacted; None if the text is not JSON."""
        if not text[:50].lstrip().startswith(("{", "[", '"')):
            return None
        if len(text) > _MAX_JSON_TEXT:
            return f"[a text of {len(text)} characters that begins like JSON]"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        writer = _Writer(self._limit)
        with suppress(_Full):
            writer.value(value, depth + 1)
        self.more += writer.more
        return "".join(writer.parts)

    def _secret(self, value: Any) -> None:
        """Redact a value, but keep a reference to a secret."""
        is_reference = isinstance(value, str) and _REFERENCE.fullmatch(value)
        self._put(json.dumps(value if is_reference else REDACTED))


def _name_key(mapping: Mapping[Any, Any]) -> str | None:
    """Return the key whose value names a secret, as in {"name": "password", "value": …}."""
    for key in _NAME_KEYS:
        if key in mapping and _names_a_secret(mapping[key]):
            return key
    return None


def _names_a_secret(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 64 and looks_secret(value)


def _inner_text(text: str) -> str:
    """Redact prose, a command, a header or a URL."""
    if ":" in text or "=" in text:  # otherwise the slowest pattern cannot match
        text = _ASSIGNED.sub(_redact_value, text)
    text = _USERINFO.sub(rf"\1{REDACTED}@", text)
    return _SCHEME.sub(rf"\1 {REDACTED}", text)


def _redact_value(found: re.Match[str]) -> str:
    texts = (found[0], found[2].strip("\\\"'"))
    return found[0] if any(map(_REFERENCE.fullmatch, texts)) else f"{found[1]}{REDACTED}"
