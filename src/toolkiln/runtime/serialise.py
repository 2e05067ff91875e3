"""What a tool returned, as strict JSON values: always an answer, whatever it returned.

Runs beside the tool, so every object may be hostile. This is the walk: sizes, depth, cycles,
notes. What a value of some other type becomes is `foreign`'s business; what the outcome means
is decided outside. Nothing is pickled. Whatever an object raises while it is asked for its
content, `SystemExit` and `KeyboardInterrupt` too, counts as the object's own failure; a signal
that arrives in such a moment cannot be told apart and is swallowed. `MemoryError` in the walk
itself is let through.
"""

from __future__ import annotations

from sys import get_int_max_str_digits

from toolkiln.runtime.foreign import (
    Failed,
    Items,
    Noted,
    Pairs,
    attempt,
    conversion,
    described,
    well_formed,
)

TYPE_CHECKING = False  # `typing` is slow to import, and this starts with every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_NOTES = 20

_EACH = 4  # characters that a value costs beside its text: a comma, quotes, brackets
_LOWEST, _HIGHEST = 1 - (1 << 30), (1 << 30) - 1  # integers that Python compares fastest
_FLOAT = 14  # more characters for a float; its real length is not looked at
_SMALLEST, _LARGEST = -1.7976931348623157e308, 1.7976931348623157e308
_DIGITS = 4300  # what Python on the other side reads, whatever the tool set here
_FEW = 640  # Python never refuses to write these
_CONVERSIONS = 20  # in a row for one value: a model, its root, an enum in it …
_MOST_TYPES = 1_000  # a tool can make classes without end
_LONGEST_JOINED_KEY = 10_000
_END = object()


class Sizes:
    """How deep a value may nest, and how many characters of JSON it may come to, roughly."""

    __slots__ = ("characters", "depth")

    def __init__(self, depth: int = 100, characters: int = 8_000_000) -> None:
        self.depth = depth
        self.characters = characters


DEFAULT = Sizes()


class Plain:
    """A strict JSON value, and what had to be changed to make it one."""

    __slots__ = ("notes", "value")

    def __init__(self, value: Any, notes: tuple[str, ...]) -> None:
        self.value = value
        self.notes = notes


def plain(value: object, *, sizes: Sizes = DEFAULT) -> Plain:
    """The value as JSON: the same object if it is JSON already, else a copy with notes."""
    try:
        if _left((value,), sizes.characters - _EACH, sizes.depth) >= 0:
            return Plain(value, ())
    except RuntimeError:  # another thread changed a dict, or the caller is deep in its stack
        pass
    walk = _Walk(sizes)
    return Plain(walk.through(value), walk.notes())


def _left(values: Any, left: int, depth: int) -> int:
    """What is left of so many characters after these; negative if one needs the walk.

    Only exact types pass, so none of the tool's code runs here. Cycles end at the depth.
    """
    for value in values:
        kind = type(value)
        if kind is str:
            if not (value.isascii() or well_formed(value)):
                return -1
            left -= len(value)
        elif kind is int:
            if not _LOWEST <= value <= _HIGHEST:
                digits = _digits(value)
                if digits > _FEW and digits > _most_digits():
                    return -1
                left -= digits
        elif kind is dict:
            left -= 2 * _EACH * len(value)
            if depth <= 0 or left < 0:
                return -1
            for key in value:
                if type(key) is not str or not (key.isascii() or well_formed(key)):
                    return -1
                left -= len(key)
            left = _left(value.values(), left, depth - 1)
        elif kind is list:
            left -= _EACH * len(value)
            if depth <= 0 or left < 0:
                return -1
            left = _left(value, left, depth - 1)
        elif value is not None and kind is not bool:
            if kind is not float or not _SMALLEST <= value <= _LARGEST:
                return -1
            left -= _FLOAT
    return left


def _digits(number: int) -> int:
    return number.bit_length() * 30103 // 100000 + 1


def _most_digits() -> int:
    return min(_DIGITS, get_int_max_str_digits() or _DIGITS)


class _Frame:
    """A container that is being read: where it comes from, how far it is, what it became."""

    __slots__ = ("at", "length", "out", "source", "steps", "taken")

    def __init__(self, source: object, content: Items | Pairs) -> None:
        self.source = source  # held, so that its id stays its own
        self.steps = content.steps
        self.length = content.length
        self.out: list[Any] | dict[str, Any] = [] if type(content) is Items else {}
        self.taken = 0
        self.at: str | int | None = None


class _Walk:
    """One pass over a value. Iterative: no depth of the value is a depth of our stack."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._left = sizes.characters
        self._frames: list[_Frame] = []
        self._open: set[int] = set()
        self._conversions: dict[int, tuple[type, Callable[..., object], object]] = {}
        self._noted: dict[str, list[Any]] = {}
        self._unlisted = 0

    def through(self, root: object) -> object:
        result = self._enter(root)
        while self._frames:
            frame = self._frames[-1]
            step: Any = attempt(next, frame.steps, _END)
            if step is _END or type(step) is Failed:
                if type(step) is Failed:
                    frame.at = None
                    self._note(f"reading on failed with {step.reason}; what came before was sent")
                self._frames.pop()
                self._open.discard(id(frame.source))
            elif not self._take(frame, step):
                self._stop()
                break
        return result

    def _take(self, frame: _Frame, step: Any) -> bool:
        """Put the next step of a container into what it becomes; False if there is no room."""
        if self._left <= 0:
            return False
        if type(frame.out) is list:
            frame.at = frame.taken
            frame.out.append(self._enter(step))
        else:
            frame.at = None  # what is said about a key is said of its object
            key = step[0]
            name = key if type(key) is str else self._name(key)
            name = name if name.isascii() else self._text(name)
            self._left -= len(name) + _EACH
            if self._left <= 0:
                return False
            if name in frame.out:
                self._note("keys that are the same as text; the last one was sent")
            frame.at = name
            frame.out[name] = self._enter(step[1])  # type: ignore[call-overload]
        frame.taken += 1
        return True

    def _stop(self) -> None:
        missing = sum((f.length or f.taken) - f.taken for f in self._frames)
        counted = f"{missing:,}" if all(f.length is not None for f in self._frames) else "more"
        if counted == "more" and missing > 1:
            counted = f"at least {missing:,}"
        said = (
            f"the result is larger than {self._sizes.characters:,} characters; "
            f"from here on {counted} values were left out"
        )
        self._noted[said] = [self._place(), 1]  # however many notes there are: this one matters

    def _enter(self, value: object) -> Any:
        """A JSON scalar, or the list or dict that a new frame is going to fill."""
        depth = len(self._frames)
        try:  # whole records of a list, but not every level of a deep value over and over
            below = self._sizes.depth - depth if 0 < depth <= 3 else 0
            left = _left((value,), self._left - _EACH, below)
        except RuntimeError:  # as in `plain`
            left = -1
        if left >= 0:
            self._left = left
            return value
        simple = self._simple(value)
        if type(simple) is Items or type(simple) is Pairs:
            self._left -= _EACH
            if id(value) in self._open:
                return self._note("contains itself; sent as null")
            if depth >= self._sizes.depth:
                return self._note(f"nested deeper than {self._sizes.depth}; sent as null")
            frame = _Frame(value, simple)
            self._frames.append(frame)
            self._open.add(id(value))
            return frame.out
        if type(simple) is float and not _SMALLEST <= simple <= _LARGEST:
            simple = self._note(f"{simple!r} is not JSON; sent as null")
        elif type(simple) is str:
            simple = self._text(simple)
            room = max(self._left - _EACH, 0)
            if len(simple) > room:
                self._note(f"a text of {len(simple):,} characters was cut to {room:,}")
                simple = simple[:room]
            self._left -= len(simple)
        elif type(simple) is int:
            self._left -= _digits(simple)
        self._left -= _EACH
        return simple

    def _simple(self, value: Any) -> Any:
        """An exact scalar, `Items` or `Pairs`; text and floats are not looked at yet."""
        for turn in range(_CONVERSIONS):
            kind = type(value)
            if kind is str or kind is float or kind is bool or value is None:
                return value
            if kind is Items or kind is Pairs:
                return value
            if kind is int:
                if _digits(value) <= _most_digits():
                    return value
                self._note("an integer with too many digits for JSON; sent as hexadecimal text")
                return hex(value)
            if kind is Noted:
                self._note(value.note)
                value = value.value
            elif kind is Failed:
                return self._note(f"could not be read ({value.reason}); sent as null")
            else:
                known = self._conversions.get(id(kind)) or (kind, *conversion(kind))
                if len(self._conversions) < _MOST_TYPES:
                    self._conversions[id(kind)] = known  # holds the type, so its id stays its own
                converted = attempt(known[1], value, known[2])
                last = turn >= _CONVERSIONS - 3
                value = described(value) if last or type(converted) is Failed else converted
        return None

    def _name(self, key: object, nested: int = 0) -> str:
        """A key as text, as pydantic writes it."""
        simple = self._simple(key)
        if type(simple) is str:
            return simple
        if type(simple) is bool:
            return "true" if simple else "false"
        if type(simple) is Items and nested < 5:
            parts: list[str] = []
            room = _LONGEST_JOINED_KEY
            while room > 0:
                part = attempt(next, simple.steps, _END)
                if part is _END or type(part) is Failed:
                    return ",".join(parts)
                parts.append(self._name(part, nested + 1))
                room -= len(parts[-1]) + 1
        if type(simple) is Items or type(simple) is Pairs:
            return str(self._simple(described(key)))
        return repr(simple)

    def _text(self, text: str) -> str:
        if text.isascii() or well_formed(text):
            return text
        self._note("lone surrogates are not Unicode text; each was sent as U+FFFD")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _note(self, change: str) -> Any:
        """Say it once, with the first place; None, for where the value is null."""
        known = self._noted.get(change)
        if known:
            known[1] += 1
        elif len(self._noted) < MOST_NOTES:
            self._noted[change] = [self._place(), 1]
        else:
            self._unlisted += 1

    def _place(self) -> str:
        steps = [_step(frame.at) for frame in self._frames if frame.at is not None]
        if len(steps) > 12:
            steps[6:-6] = ["…"]
        return "$" + "".join(steps)

    def notes(self) -> tuple[str, ...]:
        said = [
            f"{place}: {change}" + (f" (and {times - 1:,} more)" if times > 1 else "")
            for change, (place, times) in self._noted.items()
        ]
        return (*said, f"and {self._unlisted:,} more changes") if self._unlisted else (*said,)


def _step(at: str | int) -> str:
    if type(at) is int:
        return f"[{at}]"
    name = str(at) if len(str(at)) <= 40 else f"{str(at)[:40]}…"
    return f".{name}" if name.isidentifier() else f"[{name!r}]"
