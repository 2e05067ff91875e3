"""Renderings undone: data as it was before JSON, a URL, HTML or Python's `repr` wrote it.

A `View` is data with such renderings taken back and the way from each place in it to where
that stood originally. It need not be what a decoder would give: levels of escaping
collapse into one, so that a value looks the same however often it was rendered. What is
sought in a view, and what comes in its place, is `masking`'s business.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

_HEX = rb"[0-9A-Fa-f]"
_SLASHES = rb"\\\\{0,63}"
"""Each level of JSON doubles them. Bounded, as is whatever a stream holds back; and a search
is quick only if the first byte is fixed."""
_PERCENT = rb"%(?:25){0,16}"
_WINDOW = 400
"""No unfinished token is longer."""
_HEAD = 9
_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}


def _utf8(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass") if code < 0x110000 else b"?"


def _percent(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match["code"].decode())


def _entity(match: re.Match[bytes]) -> bytes:
    if name := match["name"]:
        return _NAMED[name]
    return _utf8(int(match["decimal"]) if match["decimal"] else int(match["hex"], 16))


def _escape(match: re.Match[bytes]) -> bytes:
    if char := match["char"]:
        return _LETTERS.get(char, char)
    if code := match["code"]:
        return _utf8(int(code[1:], 16))
    if high := match["high"]:
        return _utf8(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(match["low"], 16) & 0x3FF))
    return b""


def _escape_of_bytes(match: re.Match[bytes]) -> bytes:
    code = match["code"]
    return bytes.fromhex(code[1:].decode()) if code and code[:1] == b"x" else _escape(match)


class Step(NamedTuple):
    """How one kind of rendering is taken back."""

    mark: bytes
    """Where this is not, nothing is to be done."""
    token: bytes
    meaning: Callable[[re.Match[bytes]], bytes]
    unfinished: bytes
    """What could become a token if more followed."""
    head: re.Pattern[bytes]
    """How a value begins whose beginning could be the end of such a token."""

    def guarding(self, head: bytes) -> "Step":
        """The same, but no token reaches into `head`."""
        token = b"(?P<before>%s)(?=%s)|%s" % (self.unfinished, _exactly(head), self.token)

        def meaning(found: re.Match[bytes]) -> bytes:
            before: bytes | None = found["before"]
            return re.sub(self.token, self.meaning, before) if before else self.meaning(found)

        return self._replace(token=token, meaning=meaning)

    def reaches_into(self, head: bytes, data: bytes) -> bool:
        """Whether `head` stands in `data` where a token would swallow some of it."""
        if not head or head not in data or self.mark not in data:
            return False
        return bool(re.search(b"(?:%s)%s" % (self.unfinished, _exactly(head)), data))


def _exactly(head: bytes) -> bytes:
    """A pattern for a head; one that is shorter than it might be ends where letters do."""
    return re.escape(head) + (b"" if len(head) == _HEAD else b"(?![0-9A-Za-z])")


PERCENT = Step(
    mark=b"%",
    token=b"%s(?P<code>%s{2})" % (_PERCENT, _HEX),
    meaning=_percent,
    unfinished=b"%s%s?" % (_PERCENT, _HEX),
    head=re.compile(rb"[0-9A-Za-z]{0,%d}" % _HEAD),
)
ENTITY = Step(
    mark=b"&",
    token=rb"&(?:amp;){0,8}(?:(?P<name>amp|lt|gt|quot|apos)|#(?P<decimal>[0-9]{1,7})"
    rb"|#[xX](?P<hex>%s{1,6}));" % _HEX,
    meaning=_entity,
    unfinished=rb"&(?:amp;){0,8}[#0-9A-Za-z]{0,9}",
    head=re.compile(rb"[#;0-9A-Za-z]{0,%d}" % _HEAD),
)
ESCAPE = Step(
    mark=b"\\",
    token=rb"%(s)s(?:u(?P<high>[dD][89abAB]%(h)s{2})%(s)su(?P<low>[dD][c-fC-F]%(h)s{2})"
    rb"|(?P<code>u%(h)s{4}|x%(h)s{2}|U%(h)s{8})|(?P<char>[^\\])|)" % {b"s": _SLASHES, b"h": _HEX},
    meaning=_escape,
    unfinished=rb"%(s)s(?:u[dD][89abAB]%(h)s{2}(?:%(s)s(?:u%(h)s{0,3})?)?|u%(h)s{0,3}|x%(h)s?"
    rb"|U%(h)s{0,7}|)" % {b"s": _SLASHES, b"h": _HEX},
    head=re.compile(rb"[0-9A-Za-z]{0,%d}" % _HEAD),
)
"""JSON's and Python's, of text."""
ESCAPE_OF_BYTES = ESCAPE._replace(meaning=_escape_of_bytes)
"""The same where `\\xe9` is a byte."""
WRAPPING = Step(
    mark=b"",
    token=rb"[\r\n\t ]+",
    meaning=lambda _: b"",
    unfinished=rb"",
    head=re.compile(rb""),
)
"""White space between the lines of base64."""
_HIGH_BYTE = re.compile(rb"\\x[89A-Fa-f]")


class View:
    """Data, and where each part of it came from."""

    __slots__ = ("_edits", "_step", "_under", "data", "settled")

    def __init__(self, data: bytes, under: "View | None" = None, step: Step | None = None) -> None:
        self.data = data
        self.settled = len(data)
        """Up to where, in the original data, more data would change nothing here."""
        self._under = under
        self._step = step
        self._edits: _Edits | None = None

    def undone(self, step: Step, *, growing: bool = False) -> "View":
        """This with one kind of rendering taken back; `growing`: without an unfinished end."""
        under = self
        if step.mark not in self.data:
            return self
        if growing and step.unfinished:
            start = max(0, len(self.data) - _WINDOW)
            open_end = re.compile(b"(?:%s)\\Z" % step.unfinished).search(self.data, start)
            if open_end:
                under = View(self.data[: open_end.start()], self._under, self._step)
                under.settled = min(self.settled, self.origin(0, open_end.start())[1])
        view = View(re.sub(step.token, step.meaning, under.data), under, step)
        view.settled = under.settled
        return view

    def alike(self, data: bytes) -> "View":
        """Other data of the same length, byte for byte from the same places."""
        view = View(data, self._under, self._step)
        view._edits = self._edits
        return view

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where the part from `start` to `end` stood in the original data."""
        if start >= end:
            return (0, 0) if end == 0 else (self.origin(end - 1, end)[1],) * 2
        if self._under is None or self._step is None:
            return start, end
        if self._edits is None:
            self._edits = _Edits(self._under.data, self._step)
        return self._under.origin(self._edits.place(start)[0], self._edits.place(end - 1)[1])


class _Edits:
    """What a step did to data: found again when somebody asks, as few do."""

    def __init__(self, data: bytes, step: Step) -> None:
        self._at, self._until, self._from, self._to = (array("q") for _ in range(4))
        shift = 0
        for found in re.finditer(step.token, data):
            size = len(step.meaning(found))
            self._at.append(found.start() + shift)
            self._until.append(found.start() + shift + size)
            self._from.append(found.start())
            self._to.append(found.end())
            shift += size - (found.end() - found.start())

    def place(self, position: int) -> tuple[int, int]:
        """The part of the earlier data that the byte at `position` stands for."""
        edit = bisect_right(self._at, position) - 1
        if edit < 0:
            return position, position + 1
        if position < self._until[edit]:
            return self._from[edit], self._to[edit]
        start = position - self._until[edit] + self._to[edit]
        return start, start + 1


Heads = tuple[bytes, bytes, bytes]
"""How a value begins before each of the three steps."""


def views(data: bytes, heads: tuple[Heads, ...] = (), *, growing: bool = False) -> Iterator[View]:
    """The data itself, and what it says once its renderings are undone.

    Text before a value may seem to be the beginning of an escape that ends in the value:
    where that happens to one of `heads`, there is a view in which it does not.
    """
    raw = View(data)
    yield raw
    if not any(step.mark in data for step in (PERCENT, ENTITY, ESCAPE)):
        return
    decoded = raw.undone(PERCENT, growing=growing)
    plain = decoded.undone(ENTITY, growing=growing)
    before = ((PERCENT, raw), (ENTITY, decoded), (ESCAPE, plain))
    swallowed = [
        own
        for own in dict.fromkeys(heads)
        if any(s.reaches_into(h, v.data) for (s, v), h in zip(before, own, strict=True))
    ]
    for escape in (ESCAPE, ESCAPE_OF_BYTES) if _HIGH_BYTE.search(plain.data) else (ESCAPE,):
        yield plain.undone(escape, growing=growing)
        for own in swallowed:
            view = raw
            for step, head in zip((PERCENT, ENTITY, escape), own, strict=True):
                view = view.undone(step.guarding(head) if head else step, growing=growing)
            yield view


def read(value: bytes) -> tuple[bytes, Heads]:
    """What a view shows where `value` stood, but for an end that could go on; and its heads."""
    view, heads = View(value), []
    for step in (PERCENT, ENTITY, ESCAPE):
        found = step.head.match(view.data)
        heads.append(found[0] if found else b"")
        view = view.undone(step, growing=True)
    return view.data, (heads[0], heads[1], heads[2])
