"""Masking: removes the values of secrets from everything that leaves a call.

A mask finds a value verbatim and as encoded in JSON, URLs, HTML, `repr`, hexadecimal and
base64, and replaces it by `[secret:NAME]`. It protects against accidents, not against a
malicious tool, which can for example reverse a value. The first half of this module decodes
escapes while tracking positions; the second half finds and replaces values.
"""

import html
import json
import re
from array import array
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, quote_plus

from toolkiln.errors import ToolkilnError

_HEX = rb"[0-9A-Fa-f]"
_SLASHES = rb"\\\\{0,63}"
"""Each level of JSON doubles them. Bounded, because a stream buffers unfinished escapes; the
first byte is fixed to make searches fast."""
_PERCENT = rb"%(?:25){0,16}"
_MAX_TOKEN = 400
"""Length of the longest unfinished token."""
_HEAD = 9
_ENTITIES = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}


def _encode_code_point(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass") if code < 0x110000 else b"?"


def _percent(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match["code"].decode())


def _entity(match: re.Match[bytes]) -> bytes:
    if name := match["name"]:
        return _ENTITIES[name]
    return _encode_code_point(int(match["decimal"]) if match["decimal"] else int(match["hex"], 16))


def _escape(match: re.Match[bytes]) -> bytes:
    if char := match["char"]:
        return _LETTERS.get(char, char)
    if code := match["code"]:
        return _encode_code_point(int(code[1:], 16))
    if high := match["high"]:
        return _encode_code_point(
            0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(match["low"], 16) & 0x3FF)
        )
    return b""


def _escape_of_bytes(match: re.Match[bytes]) -> bytes:
    code = match["code"]
    return bytes.fromhex(code[1:].decode()) if code and code[:1] == b"x" else _escape(match)


class Decoder(NamedTuple):
    """Decodes one kind of escape."""

    marker: bytes
    """Data without this contains no escapes of this kind."""
    token: bytes
    """Pattern of an escape."""
    decode: Callable[[re.Match[bytes]], bytes]
    unfinished: bytes
    """Pattern of the beginning of an escape."""
    head: re.Pattern[bytes]
    """Pattern of the beginning of a value that could complete an unfinished escape."""

    def protecting(self, head: bytes) -> "Decoder":
        """Return a decoder whose tokens never extend into `head`."""
        token = b"(?P<before>%s)(?=%s)|%s" % (self.unfinished, _exactly(head), self.token)

        def decode(found: re.Match[bytes]) -> bytes:
            before: bytes | None = found["before"]
            return re.sub(self.token, self.decode, before) if before else self.decode(found)

        return self._replace(token=token, decode=decode)

    def reaches_into(self, head: bytes, data: bytes) -> bool:
        """Return whether `head` occurs in `data` where a token would consume part of it."""
        if not head or head not in data or self.marker not in data:
            return False
        return bool(re.search(b"(?:%s)%s" % (self.unfinished, _exactly(head)), data))


def _exactly(head: bytes) -> bytes:
    """Return a pattern for a head; one below the maximum length ends at a word boundary."""
    return re.escape(head) + (b"" if len(head) == _HEAD else b"(?![0-9A-Za-z])")


PERCENT = Decoder(
    marker=b"%",
    token=b"%s(?P<code>%s{2})" % (_PERCENT, _HEX),
    decode=_percent,
    unfinished=b"%s%s?" % (_PERCENT, _HEX),
    head=re.compile(rb"[0-9A-Za-z]{0,%d}" % _HEAD),
)
ENTITY = Decoder(
    marker=b"&",
    token=rb"&(?:amp;){0,8}(?:(?P<name>amp|lt|gt|quot|apos)|#(?P<decimal>[0-9]{1,7})"
    rb"|#[xX](?P<hex>%s{1,6}));" % _HEX,
    decode=_entity,
    unfinished=rb"&(?:amp;){0,8}[#0-9A-Za-z]{0,9}",
    head=re.compile(rb"[#;0-9A-Za-z]{0,%d}" % _HEAD),
)
ESCAPE = Decoder(
    marker=b"\\",
    token=rb"%(s)s(?:u(?P<high>[dD][89abAB]%(h)s{2})%(s)su(?P<low>[dD][c-fC-F]%(h)s{2})"
    rb"|(?P<code>u%(h)s{4}|x%(h)s{2}|U%(h)s{8})|(?P<char>[^\\])|)" % {b"s": _SLASHES, b"h": _HEX},
    decode=_escape,
    unfinished=rb"%(s)s(?:u[dD][89abAB]%(h)s{2}(?:%(s)s(?:u%(h)s{0,3})?)?|u%(h)s{0,3}|x%(h)s?"
    rb"|U%(h)s{0,7}|)" % {b"s": _SLASHES, b"h": _HEX},
    head=re.compile(rb"[0-9A-Za-z]{0,%d}" % _HEAD),
)
"""Escapes of JSON and of Python strings."""
ESCAPE_OF_BYTES = ESCAPE._replace(decode=_escape_of_bytes)
"""Escapes of Python bytes, where `\\xe9` is a byte."""
WRAPPING = Decoder(
    marker=b"",
    token=rb"[\r\n\t ]+",
    decode=lambda _: b"",
    unfinished=rb"",
    head=re.compile(rb""),
)
"""White space between lines of base64."""
_HIGH_BYTE = re.compile(rb"\\x[89A-Fa-f]")


class DecodedView:
    """Decoded data that maps positions back to the original data."""

    __slots__ = ("_decoder", "_edits", "_source", "data", "settled")

    def __init__(
        self, data: bytes, source: "DecodedView | None" = None, decoder: Decoder | None = None
    ) -> None:
        self.data = data
        self.settled = len(data)
        """Position in the original data up to which more data would not change this view."""
        self._source = source
        self._decoder = decoder
        self._edits: _Edits | None = None

    def decoded(self, decoder: Decoder, *, growing: bool = False) -> "DecodedView":
        """Decode one kind of escape; with `growing`, drop an unfinished escape at the end."""
        source = self
        if decoder.marker not in self.data:
            return self
        if growing and decoder.unfinished:
            start = max(0, len(self.data) - _MAX_TOKEN)
            open_end = re.compile(b"(?:%s)\\Z" % decoder.unfinished).search(self.data, start)
            if open_end:
                source = DecodedView(self.data[: open_end.start()], self._source, self._decoder)
                source.settled = min(self.settled, self.origin(0, open_end.start())[1])
        view = DecodedView(re.sub(decoder.token, decoder.decode, source.data), source, decoder)
        view.settled = source.settled
        return view

    def with_data(self, data: bytes) -> "DecodedView":
        """Return a view of other data with the same positions."""
        view = DecodedView(data, self._source, self._decoder)
        view._edits = self._edits
        return view

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the range in the original data of the part from `start` to `end`."""
        if start >= end:
            return (0, 0) if end == 0 else (self.origin(end - 1, end)[1],) * 2
        if self._source is None or self._decoder is None:
            return start, end
        if self._edits is None:
            self._edits = _Edits(self._source.data, self._decoder)
        return self._source.origin(self._edits.origin(start)[0], self._edits.origin(end - 1)[1])


class _Edits:
    """The replacements of a decoder, computed only when a position is needed."""

    def __init__(self, data: bytes, decoder: Decoder) -> None:
        self._at, self._until, self._from, self._to = (array("q") for _ in range(4))
        shift = 0
        for found in re.finditer(decoder.token, data):
            size = len(decoder.decode(found))
            self._at.append(found.start() + shift)
            self._until.append(found.start() + shift + size)
            self._from.append(found.start())
            self._to.append(found.end())
            shift += size - (found.end() - found.start())

    def origin(self, position: int) -> tuple[int, int]:
        """Return the range in the undecoded data of the byte at `position`."""
        edit = bisect_right(self._at, position) - 1
        if edit < 0:
            return position, position + 1
        if position < self._until[edit]:
            return self._from[edit], self._to[edit]
        start = position - self._until[edit] + self._to[edit]
        return start, start + 1


Heads = tuple[bytes, bytes, bytes]
"""The beginnings of a value before each of the three decoders."""


def views(
    data: bytes, heads: tuple[Heads, ...] = (), *, growing: bool = False
) -> Iterator[DecodedView]:
    """Yield the data itself and its decoded views.

    Text before a value may look like the beginning of an escape that ends in the value. Where
    that happens to one of `heads`, an additional view keeps the value intact.
    """
    raw = DecodedView(data)
    yield raw
    if not any(decoder.marker in data for decoder in (PERCENT, ENTITY, ESCAPE)):
        return
    decoded = raw.decoded(PERCENT, growing=growing)
    plain = decoded.decoded(ENTITY, growing=growing)
    before = ((PERCENT, raw), (ENTITY, decoded), (ESCAPE, plain))
    affected = [
        value_heads
        for value_heads in dict.fromkeys(heads)
        if any(
            decoder.reaches_into(head, view.data)
            for (decoder, view), head in zip(before, value_heads, strict=True)
        )
    ]
    for escape in (ESCAPE, ESCAPE_OF_BYTES) if _HIGH_BYTE.search(plain.data) else (ESCAPE,):
        yield plain.decoded(escape, growing=growing)
        for value_heads in affected:
            view = raw
            for decoder, head in zip((PERCENT, ENTITY, escape), value_heads, strict=True):
                protected = decoder.protecting(head) if head else decoder
                view = view.decoded(protected, growing=growing)
            yield view


def decode_value(value: bytes) -> tuple[bytes, Heads]:
    """Decode a value as views do, without an unfinished end; also return its heads."""
    view, heads = DecodedView(value), []
    for decoder in (PERCENT, ENTITY, ESCAPE):
        found = decoder.head.match(view.data)
        heads.append(found[0] if found else b"")
        view = view.decoded(decoder, growing=True)
    return view.data, (heads[0], heads[1], heads[2])


MIN_LENGTH = 4
"""Characters: shorter values would be found in any text. Also the minimum length of a fragment
before a cut."""
_MAX_BUFFER = 65_536
"""Bytes a stream buffers, in addition to room for escaped values."""
_DOTS = b"..."
_ELLIPSIS = "…".encode()
_GAP = re.compile(rb"\.{3,}|%s" % _ELLIPSIS)
"""The omission in a shortened value."""
_URLSAFE = bytes.maketrans(b"-_", b"+/")
_WHITESPACE = b"\r\n\t "


class SecretError(ToolkilnError):
    """A secret that is missing, unreadable or too short to be masked."""

    code = "secret_unusable"


class _MaskedSpan(NamedTuple):
    start: int
    end: int
    label: bytes


class _Matches(NamedTuple):
    """The occurrences of secrets in data."""

    complete: list[_MaskedSpan]
    partial: list[_MaskedSpan]
    """Beginnings of values at the end of the data."""
    size: int
    """Length of the data."""
    settled: int
    """Position after which an escape may be unfinished."""


class _Secret:
    """A secret value and the forms to search for."""

    def __init__(self, name: str, value: str) -> None:
        if len(value) < MIN_LENGTH:
            raise SecretError(
                f"the secret {name} is too short to be masked",
                hint=f"its value must have at least {MIN_LENGTH} characters",
            )
        label = f"[secret:{name}]"
        self.name = name
        self.value = value
        self.label = _utf8("***" if value in label else label)

    @cached_property
    def decoded(self) -> tuple[bytes, Heads]:
        """The value as views show it, and its beginnings."""
        return decode_value(_utf8(self.value))

    @cached_property
    def forms(self) -> tuple[bytes, ...]:
        """The byte strings that a view contains in place of the value."""
        raw = _utf8(self.value)
        decoded = self.decoded[0]
        forms = [raw, raw.hex().encode(), raw.hex().upper().encode()]
        if len(decoded) >= MIN_LENGTH:
            forms.append(decoded)
        else:  # the value is nearly all escapes: search for each of its encodings
            encodings = {self.value}
            for _ in range(3):
                encodings.update(*(_encodings(text) for text in tuple(encodings)))
            forms += map(_utf8, encodings)
        return tuple(dict.fromkeys(form.replace(b"+", b" ") for form in forms))

    @cached_property
    def cores(self) -> tuple[bytes, ...]:
        """The base64 characters that depend on the value only, for each of three alignments."""
        cores = []
        for raw in map(_utf8, _encodings(self.value)):
            for before in range(3):
                coded = b64encode(bytes(before) + raw + bytes(3))
                cores.append(coded[(8 * before + 5) // 6 : 8 * (before + len(raw)) // 6])
        return tuple(dict.fromkeys(cores))

    @cached_property
    def shortest(self) -> int:
        """The length of the shortest form."""
        return min(map(len, self.forms + self.cores))


class Mask:
    """Replaces the values of some secrets by their names; false if there are no secrets."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets` maps names to values.

        Raises:
            SecretError: a value is too short to be masked.
        """
        self._secrets = tuple(map(_Secret, secrets, secrets.values()))

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"Mask({', '.join(secret.name for secret in self._secrets)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} contains secrets and must not be pickled")

    def joined(self, other: "Mask") -> "Mask":
        """Return a mask for the secrets of both."""
        both = {(item.name, item.value): item for item in self._secrets + other._secrets}
        mask = Mask({})
        mask._secrets = tuple(both.values())
        return mask

    def text(self, text: str, *, cut: bool = False) -> str:
        """Mask text; `cut`: it was truncated, perhaps within a value."""
        if not self._secrets:
            return text
        data = _utf8(text)
        masked = self.data(data, cut=cut)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """Mask bytes, which may be UTF-8 text."""
        if not cut and all(len(data) < secret.shortest for secret in self._secrets):
            if not _has_gap(data):
                return data
        matches = self._find(data, MIN_LENGTH if cut else 0)
        spans = _merged(matches.complete + matches.partial)
        return _replaced(data, spans) if spans else data

    def value(self, value: Any) -> Any:
        """Mask a JSON value: its strings, its keys, and numbers that contain a secret."""
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

    def _find(self, data: bytes, min_partial: int) -> _Matches:
        """Find values and, unless 0, beginnings of at least `min_partial` bytes at the end."""
        matches = _Matches([], [], len(data), len(data))
        settled = len(data)
        heads = tuple(secret.decoded[1] for secret in self._secrets)
        for view in views(data, heads, growing=min_partial > 0):
            settled = min(settled, view.settled)
            spaced = view.with_data(view.data.replace(b"+", b" "))  # as in URLs
            unwrapped = DecodedView(view.data.translate(_URLSAFE, _WHITESPACE), view, WRAPPING)
            has_gap = _has_gap(view.data)
            for secret in self._secrets:
                for form in secret.forms:
                    _find_form(spaced, form, secret.label, matches, min_partial)
                    if has_gap:
                        _find_shortened(spaced, form, secret.label, matches)
                for core in secret.cores:
                    _find_form(unwrapped, core, secret.label, matches, min_partial)
                    if has_gap:
                        _find_shortened(unwrapped, core, secret.label, matches)
        return matches._replace(settled=settled)


class MaskedStream:
    """Masks text that arrives in chunks, which may be split anywhere."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._buffer = b""
        longest = max((len(secret.value) for secret in mask._secrets), default=0)
        self._max_buffer = _MAX_BUFFER + 16 * longest

    def __repr__(self) -> str:
        return f"MaskedStream({self._mask!r})"

    def feed(self, text: str) -> str:
        """Add a chunk. Returns the masked text that is complete so far."""
        if not self._mask:
            return text
        data = self._buffer + _utf8(text)
        matches = self._mask._find(data, 1)
        spans = _merged(matches.complete)
        end = min([matches.settled, *(span.start for span in matches.partial)])
        for span in reversed(spans):
            # Where two secrets overlap, the second may continue.
            end = min(end, span.start) if span.end > end else end
        if len(data) - end > self._max_buffer:
            spans, end = _merged(matches.complete + matches.partial), len(data)
        self._buffer = data[end:]
        masked = _replaced(data[:end], [span for span in spans if span.end <= end])
        return masked.decode("utf-8", "surrogatepass")

    def end(self, *, cut: bool = False) -> str:
        """Return the rest; `cut`: the text was truncated here."""
        data, self._buffer = self._buffer, b""
        return self._mask.data(data, cut=cut).decode("utf-8", "surrogatepass")


def rebuilt(value: Any, leaf: Callable[[Any], Any], key: Callable[[str], str]) -> Any:
    """Map the leaves and keys of a JSON value at any depth; unchanged parts are shared."""
    # A container is visited a second time when all its items are done.
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


def _encodings(value: str) -> tuple[str, ...]:
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


def _find_form(
    view: DecodedView, form: bytes, label: bytes, matches: _Matches, min_partial: int
) -> None:
    """Add the occurrences of `form`, and a beginning of it at the end of the data."""
    start = after = 0
    while (start := view.data.find(form, after)) >= 0:
        after = start + len(form)
        matches.complete.append(_MaskedSpan(*view.origin(start, after), label))
    if not min_partial:
        return
    ends = [len(view.data)]
    if view.data.endswith(b"."):  # perhaps the beginning of a gap
        ends.append(len(view.data.rstrip(b".")))
    for end in ends:
        if (start := _find_beginning(view.data, form, after, end, min_partial)) >= 0:
            matches.partial.append(_MaskedSpan(view.origin(start, end)[0], matches.size, label))


def _find_shortened(view: DecodedView, form: bytes, label: bytes, matches: _Matches) -> None:
    """Add shortened occurrences: a beginning of `form` before a gap, an end after one."""
    data = view.data
    if form[:MIN_LENGTH] not in data and form[-MIN_LENGTH:] not in data:
        return
    for gap in _GAP.finditer(data):
        before, after = gap.span()
        if (start := _find_beginning(data, form, 0, before, MIN_LENGTH)) >= 0:
            matches.complete.append(_MaskedSpan(*view.origin(start, before), label))
        if size := _ending_length(data, form, after):
            matches.complete.append(_MaskedSpan(*view.origin(after, after + size), label))


def _has_gap(data: bytes) -> bool:
    return _DOTS in data or _ELLIPSIS in data


def _find_beginning(data: bytes, form: bytes, start: int, end: int, min_length: int) -> int:
    """Return where an incomplete beginning of a form that extends to `end` starts, or -1."""
    start = max(start, end - len(form) + 1)
    while (start := data.find(form[:min_length], start, end)) >= 0:
        if form.startswith(data[start:end]):
            return start
        start += 1
    return -1


def _ending_length(data: bytes, form: bytes, start: int) -> int:
    """Return the length of an incomplete ending of a form at `start`, or 0."""
    head, at = data[start : start + MIN_LENGTH], 1
    while len(head) == MIN_LENGTH and (at := form.find(head, at)) >= 0:
        if data.startswith(form[at:], start):
            return len(form) - at
        at += 1
    return 0


def _merged(spans: list[_MaskedSpan]) -> list[_MaskedSpan]:
    """Sort spans and merge overlapping ones under the label of the first."""
    merged: list[_MaskedSpan] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _replaced(data: bytes, spans: list[_MaskedSpan]) -> bytes:
    parts, done = [], 0
    for span in spans:
        parts += [data[done : span.start], span.label]
        done = span.end
    return b"".join([*parts, data[done:]])
