"""Globs over names of tools and toolkits: `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`; case counts.

A glob is taken apart at its stars and never becomes one regular expression: names may be
long, and no glob may make them slow to match. Who may be matched against what, and which
globs also fit names that merely look like theirs, is for `rules` and `rates` to say.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from unicodedata import normalize

_PARTS = re.compile(
    r"(\*)|(\?|\[(?:!.|[^!])[^\]]*\])|((?:[^*?\[]|\[(?!(?:!.|[^!])[^\]]*\]))+)", re.DOTALL
)
"""A star; one character of any or of some; text, with brackets that nothing closes."""


def folded(name: str) -> str:
    """What a name looks like: the same for `Delete-File` and `delete_file`."""
    if not name.isascii():
        name = normalize("NFKC", normalize("NFKC", name).casefold())
    return name.lower().replace("-", "_")


class Glob:
    """One glob; for names as they are, or, if `loose`, for names that were `folded`."""

    __slots__ = ("_is_whole", "_pieces", "_width", "end", "literal", "start")

    def __init__(self, text: str, *, loose: bool = False) -> None:
        pieces = _pieces(text, loose=loose)
        first, last = pieces[0], pieces[-1]
        self.literal = first.start if len(pieces) == 1 and first.pattern is None else None
        """The only name that fits, if there is but one."""
        self.start, self.end = first.start, last.end
        """What all names that fit begin and end with."""
        self._width = sum(piece.width for piece in pieces)
        self._is_whole = len(pieces) == 1
        is_told_by_ends = len(pieces) == 2 and first.pattern is None and last.pattern is None
        self._pieces = () if is_told_by_ends else tuple(pieces)

    def fits(self, name: str) -> bool:
        """Whether it fits a name, all of it."""
        if self.literal is not None:
            return name == self.literal
        if (
            len(name) < self._width
            or not name.startswith(self.start)
            or not name.endswith(self.end)
        ):
            return False
        if self._is_whole:
            return len(name) == self._width and self._pieces[0].stands_at(name, 0)
        return not self._pieces or self._stars_fit(name)

    def _stars_fit(self, name: str) -> bool:
        """Between stars, the leftmost place where a piece fits is as good as any other."""
        first, *middle, last = self._pieces
        at, stop = first.width, len(name) - last.width
        if not first.stands_at(name, 0) or not last.stands_at(name, stop):
            return False
        for piece in middle:
            at = piece.end_within(name, at, stop)
            if at < 0:
                return False
        return True


class Globs:
    """Several globs, of which one has to fit."""

    __slots__ = ("_globs", "_loose", "_loose_names", "_names", "globs")

    def __init__(self, texts: Iterable[str], *, loose: bool = False) -> None:
        """With `loose` they also fit names that look like one that they fit."""
        self.globs = tuple(
            (Glob(text), Glob(text, loose=True) if loose else None) for text in texts
        )
        """Each as it stands and, if they are loose, for folded names."""
        plain = [glob for glob, _ in self.globs]
        looser = [glob for _, glob in self.globs if glob is not None]
        self._names, self._globs = _parted(plain)
        self._loose_names, self._loose = _parted(looser)

    def fits(self, name: str, looks: str) -> bool:
        """Whether one of them fits a name, which looks like this when folded."""
        if name in self._names or looks in self._loose_names:
            return True
        for glob in self._globs:
            if glob.fits(name):
                return True
        return any(glob.fits(looks) for glob in self._loose) if self._loose else False


class _Piece(NamedTuple):
    """What stands between two stars: it fits texts of one length only."""

    start: str
    end: str
    width: int
    pattern: re.Pattern[str] | None
    """None: it is literal, and its start is all of it."""

    def stands_at(self, name: str, at: int) -> bool:
        """Whether it fits at a place of a name."""
        if self.pattern is None:
            return name.startswith(self.start, at)
        return self.pattern.match(name, at) is not None

    def end_within(self, name: str, at: int, stop: int) -> int:
        """Where it ends that comes first within a part of a name; -1 if it does not come."""
        if self.pattern is None:
            found = name.find(self.start, at, stop)
            return found if found < 0 else found + self.width
        match = self.pattern.search(name, at, stop)
        return match.end() if match else -1


def _parted(globs: list[Glob]) -> tuple[frozenset[str], tuple[Glob, ...]]:
    names = frozenset(glob.literal for glob in globs if glob.literal is not None)
    return names, tuple(glob for glob in globs if glob.literal is None)


def _pieces(text: str, *, loose: bool) -> list[_Piece]:
    parts: list[list[tuple[str, str]]] = [[]]
    for star, one, literal in _PARTS.findall(text):
        if star:
            parts.append([])
        else:
            parts[-1].append((one, folded(literal) if loose else literal))
    return [_piece(some, loose=loose) for some in parts]


def _piece(parts: list[tuple[str, str]], *, loose: bool) -> _Piece:
    pattern = None
    if any(one for one, _ in parts):
        sources = [_choice(one, loose=loose) if one else re.escape(text) for one, text in parts]
        pattern = re.compile("".join(sources), re.DOTALL)
    start, end = (parts[0][1], parts[-1][1]) if parts else ("", "")
    return _Piece(start, end, sum(1 if one else len(text) for one, text in parts), pattern)


def _choice(one: str, *, loose: bool) -> str:
    """The pattern of one character: any, or one of those in brackets."""
    if one == "?":
        return "."
    is_negated = one[1] == "!"
    ranges = [(a, b) for a, b in _ranges(one[1 + is_negated : -1]) if a <= b]
    if not ranges:
        return "." if is_negated else "(?!)"
    listed = "".join(f"\\U{ord(a):08x}-\\U{ord(b):08x}" for a, b in ranges)
    pattern = f"[{'^' * is_negated}{listed}]"
    if not loose:
        return pattern
    has_dash = re.fullmatch(pattern, "-") is not None
    return f"(?:(?i:{pattern}){'|_' * has_dash})"


def _ranges(chars: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(chars):
        is_range = chars[at + 1 : at + 2] == "-" and at + 2 < len(chars)
        yield chars[at], chars[at + 2] if is_range else chars[at]
        at += 3 if is_range else 1
