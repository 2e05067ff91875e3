"""Masks: what takes the values of secrets out of whatever leaves a call.

A mask finds a value as it is and as JSON, URLs, HTML, `repr`, hexadecimal and base64 write
it, and puts `[secret:NAME]` there. It guards against accidents: a tool that means to give
a secret away can (it may write it backwards). `renderings` undoes what has been written
around a value; which values a call was given, `secrets` knows.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, quote_plus

from toolkiln.errors import ToolkilnError
from toolkiln.execution.renderings import WRAPPING, Heads, View, read, views

SHORTEST = 4
"""Characters. Less would be found in any text; a beginning at a cut counts from here too."""
_HELD = 65_536
"""Bytes that a stream holds back at most, besides the room that escaped values take."""
_DOTS = b"..."
_ELLIPSIS = "…".encode()
_GAP = re.compile(rb"\.{3,}|%s" % _ELLIPSIS)
"""What stands for the rest of a value that somebody showed in few characters."""
_URLSAFE = bytes.maketrans(b"-_", b"+/")
_WHITE = b"\r\n\t "


class SecretError(ToolkilnError):
    """A secret that is missing, cannot be read, or cannot be kept secret."""

    code = "secret_unusable"


class _Span(NamedTuple):
    start: int
    end: int
    label: bytes


class _Found(NamedTuple):
    """What there is of secrets in some data."""

    whole: list[_Span]
    begun: list[_Span]
    """Beginnings of occurrences at the end of the data."""
    size: int
    """Of the data."""
    settled: int
    """Behind this place an escape may be unfinished."""


class _Secret:
    """A value, and the forms that it is looked for in."""

    def __init__(self, name: str, value: str) -> None:
        if len(value) < SHORTEST:
            raise SecretError(
                f"the secret {name} is too short to be kept out of results",
                hint=f"its value must have at least {SHORTEST} characters",
            )
        label = f"[secret:{name}]"
        self.name = name
        self.value = value
        self.label = _utf8("***" if value in label else label)

    @cached_property
    def _read(self) -> tuple[bytes, Heads]:
        return read(_utf8(self.value))

    @property
    def heads(self) -> Heads:
        """How it begins, for `views`."""
        return self._read[1]

    @cached_property
    def forms(self) -> tuple[bytes, ...]:
        """What a view holds wherever the value stood."""
        raw = _utf8(self.value)
        seen = self._read[0]
        forms = [raw, raw.hex().encode(), raw.hex().upper().encode()]
        if len(seen) >= SHORTEST:
            forms.append(seen)
        else:  # little but escapes: each way to render it is a form of its own
            ways = {self.value}
            for _ in range(3):
                ways.update(*(_rendered(way) for way in tuple(ways)))
            forms += map(_utf8, ways)
        return tuple(dict.fromkeys(_spaced(form) for form in forms))

    @cached_property
    def cores(self) -> tuple[bytes, ...]:
        """The base64 characters that the value alone decides, at each of three places."""
        cores = []
        for raw in map(_utf8, _rendered(self.value)):
            for before in range(3):
                coded = b64encode(bytes(before) + raw + bytes(3))
                cores.append(coded[(8 * before + 5) // 6 : 8 * (before + len(raw)) // 6])
        return tuple(dict.fromkeys(cores))

    @cached_property
    def shortest(self) -> int:
        """The length of its shortest form, which no rendering makes shorter."""
        return min(map(len, self.forms + self.cores))


class Mask:
    """Finds the values of some secrets and puts their names there; false if there are none."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """Names and values.

        Raises:
            SecretError: a value is too short to be masked.
        """
        self._secrets = tuple(_Secret(name, value) for name, value in secrets.items())

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"Mask({', '.join(secret.name for secret in self._secrets)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} holds secrets: it is not to be pickled")

    def joined(self, other: "Mask") -> "Mask":
        """A mask for the secrets of both."""
        both = {(item.name, item.value): item for item in self._secrets + other._secrets}
        mask = Mask({})
        mask._secrets = tuple(both.values())
        return mask

    def text(self, text: str, *, cut: bool = False) -> str:
        """The text without values; `cut`: it was cut at its end, perhaps within a value."""
        if not self._secrets:
            return text
        data = _utf8(text)
        masked = self.data(data, cut=cut)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """The same of bytes, which may be text in UTF-8."""
        if not cut and all(len(data) < secret.shortest for secret in self._secrets):
            if not _has_gap(data):
                return data
        found = self._find(data, SHORTEST if cut else 0)
        spans = _merged(found.whole + found.begun)
        return _replaced(data, spans) if spans else data

    def value(self, value: Any) -> Any:
        """The same of a JSON value: its strings, keys, and the numbers that hold a secret."""
        if not self._secrets:
            return value
        numeric = any(set(secret.value) <= set("0123456789.eE+-") for secret in self._secrets)

        def leaf(item: Any) -> Any:
            if isinstance(item, str):
                return self.text(item)
            if numeric and isinstance(item, int | float) and not isinstance(item, bool):
                written = json.dumps(item)
                masked = self.text(written)
                return item if masked is written else masked
            return item

        return rebuilt(value, leaf, self.text)

    def stream(self) -> "MaskedStream":
        """For text that comes in pieces."""
        return MaskedStream(self)

    def _find(self, data: bytes, least: int) -> _Found:
        """Occurrences, and beginnings of `least` bytes at the end unless that is 0."""
        found = _Found([], [], len(data), len(data))
        settled = len(data)
        heads = tuple(secret.heads for secret in self._secrets)
        for view in views(data, heads, growing=least > 0):
            settled = min(settled, view.settled)
            spaced = view.alike(_spaced(view.data))
            unwrapped = View(view.data.translate(_URLSAFE, _WHITE), view, WRAPPING)
            has_gap = _has_gap(view.data)
            for secret in self._secrets:
                for form in secret.forms:
                    _look(spaced, form, secret.label, found, least)
                    if has_gap:
                        _look_at_gaps(spaced, form, secret.label, found)
                for core in secret.cores:
                    _look(unwrapped, core, secret.label, found, least)
                    if has_gap:
                        _look_at_gaps(unwrapped, core, secret.label, found)
        return found._replace(settled=settled)


class MaskedStream:
    """Masks text that comes in pieces, which may be split anywhere."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""
        longest = max((len(secret.value) for secret in mask._secrets), default=0)
        self._room = _HELD + 16 * longest

    def __repr__(self) -> str:
        return f"MaskedStream({self._mask!r})"

    def feed(self, text: str) -> str:
        """What can be let out once `text` has come."""
        if not self._mask:
            return text
        data = self._held + _utf8(text)
        found = self._mask._find(data, 1)
        spans = _merged(found.whole)
        out = min([found.settled, *(span.start for span in found.begun)])
        for span in reversed(spans):
            # Where two secrets overlap, the second may go on.
            out = min(out, span.start) if span.end > out else out
        if len(data) - out > self._room:
            spans, out = _merged(found.whole + found.begun), len(data)
        self._held = data[out:]
        masked = _replaced(data[:out], [span for span in spans if span.end <= out])
        return masked.decode("utf-8", "surrogatepass")

    def end(self, *, cut: bool = False) -> str:
        """The rest; `cut`: something came after it that was thrown away."""
        data, self._held = self._held, b""
        return self._mask.data(data, cut=cut).decode("utf-8", "surrogatepass")


def rebuilt(value: Any, leaf: Callable[[Any], Any], key: Callable[[str], str]) -> Any:
    """A JSON value with other leaves and keys, at any depth; what stays equal stays the same."""
    # A container is visited a second time once all that is in it has been done.
    results: list[Any] = []
    todo: list[tuple[Any, bool]] = [(value, False)]
    while todo:
        item, done = todo.pop()
        if not isinstance(item, dict | list | tuple):
            results.append(leaf(item))
        elif not done:
            todo.append((item, True))
            parts = item.values() if isinstance(item, dict) else item
            todo.extend((part, False) for part in reversed(list(parts)))
        else:
            parts = results[len(results) - len(item) :]
            del results[len(results) - len(item) :]
            results.append(_refilled(item, parts, key))
    return results[0]


def _refilled(item: Any, parts: list[Any], key: Callable[[str], str]) -> Any:
    if isinstance(item, dict):
        keys = [key(name) if isinstance(name, str) else name for name in item]
        old = [*item, *item.values()]
        same = all(a is b for a, b in zip(old, [*keys, *parts], strict=True))
        return item if same else dict(zip(keys, parts, strict=True))
    if all(a is b for a, b in zip(item, parts, strict=True)):
        return item
    return parts if isinstance(item, list) else tuple(parts)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _spaced(data: bytes) -> bytes:
    """In a URL, a plus sign may be a space."""
    return data.replace(b"+", b" ")


def _rendered(value: str) -> tuple[str, ...]:
    forms = (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),
        quote(value, errors="surrogatepass"),
        quote(value, safe="", errors="surrogatepass"),
        quote_plus(value, errors="surrogatepass"),
        html.escape(value),
        repr(value)[1:-1],
        ascii(value)[1:-1],
        repr(_utf8(value))[2:-1],
    )
    return tuple(dict.fromkeys(forms))


def _look(view: View, form: bytes, label: bytes, found: _Found, least: int) -> None:
    """Add where `form` is in a view, and, of `least` bytes or more, where its end begins it."""
    start = behind = 0
    while (start := view.data.find(form, behind)) >= 0:
        behind = start + len(form)
        found.whole.append(_Span(*view.origin(start, behind), label))
    if not least:
        return
    ends = [len(view.data)]
    if view.data.endswith(b"."):  # which may become a gap
        ends.append(len(view.data.rstrip(b".")))
    for end in ends:
        if (start := _begun(view.data, form, behind, end, least)) >= 0:
            found.begun.append(_Span(view.origin(start, end)[0], found.size, label))


def _look_at_gaps(view: View, form: bytes, label: bytes, found: _Found) -> None:
    """Add where `form` was shortened: its beginning before a gap, its end behind one."""
    data = view.data
    if form[:SHORTEST] not in data and form[-SHORTEST:] not in data:
        return
    for gap in _GAP.finditer(data):
        before, behind = gap.span()
        if (start := _begun(data, form, 0, before, SHORTEST)) >= 0:
            found.whole.append(_Span(*view.origin(start, before), label))
        if size := _ended(data, form, behind):
            found.whole.append(_Span(*view.origin(behind, behind + size), label))


def _has_gap(data: bytes) -> bool:
    return _DOTS in data or _ELLIPSIS in data


def _begun(data: bytes, form: bytes, start: int, end: int, least: int) -> int:
    """From where up to `end` there is a beginning of a form, but not all of it; -1: nowhere."""
    start = max(start, end - len(form) + 1)
    while (start := data.find(form[:least], start, end)) >= 0:
        if form.startswith(data[start:end]):
            return start
        start += 1
    return -1


def _ended(data: bytes, form: bytes, start: int) -> int:
    """How much of the end of a form, but not all of it, there is at a place."""
    head, at = data[start : start + SHORTEST], 1
    while len(head) == SHORTEST and (at := form.find(head, at)) >= 0:
        if data.startswith(form[at:], start):
            return len(form) - at
        at += 1
    return 0


def _merged(spans: list[_Span]) -> list[_Span]:
    """In order, with those that overlap made one, of the name of the first."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _replaced(data: bytes, spans: list[_Span]) -> bytes:
    parts, done = [], 0
    for span in spans:
        parts += [data[done : span.start], span.label]
        done = span.end
    return b"".join([*parts, data[done:]])
