"""Serialisation of a tool's return value to strict JSON; it always produces a result.

Runs in the tool's process, so every object may be hostile. This module handles sizes, depth,
cycles and notes; `json_form` converts single values. Nothing is pickled. Any exception that an
object raises while it is read, including `SystemExit` and `KeyboardInterrupt`, counts as a
failure of that object; a signal that arrives at that moment is swallowed with it. `MemoryError`
in this module propagates.
"""

from __future__ import annotations

from sys import get_int_max_str_digits

from toolkiln.runtime.json_form import (
    ArrayContent,
    Failed,
    Noted,
    ObjectContent,
    as_repr,
    attempt,
    conversion_for,
    is_well_formed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_NOTES = 20

_OVERHEAD = 4  # characters per value besides its text: comma, quotes, brackets
_MIN_FAST_INT, _MAX_FAST_INT = 1 - (1 << 30), (1 << 30) - 1  # single-digit integers in CPython
_FLOAT = 14  # assumed additional characters of a float
_MIN_FLOAT, _MAX_FLOAT = -1.7976931348623157e308, 1.7976931348623157e308
_MAX_DIGITS = 4300  # Python's default limit, which applies on the host
_ALWAYS_ALLOWED_DIGITS = 640  # the lowest limit that Python accepts
_MAX_CONVERSIONS = 20  # in a row for one value: a model, its root, an enum in it …
_MAX_TYPES = 1_000  # a tool can create any number of classes
_MAX_JOINED_KEY = 10_000
_END = object()


class SerialiseLimits:
    """Maximum nesting depth and approximate size in characters of JSON."""

    __slots__ = ("characters", "depth")

    def __init__(self, depth: int = 100, characters: int = 8_000_000) -> None:
        self.depth = depth
        self.characters = characters


DEFAULT = SerialiseLimits()


class JsonResult:
    """A strict JSON value, with notes about changes that were necessary."""

    __slots__ = ("notes", "value")

    def __init__(self, value: Any, notes: tuple[str, ...]) -> None:
        self.value = value
        self.notes = notes


def to_json(value: object, *, limits: SerialiseLimits = DEFAULT) -> JsonResult:
    """Convert a value to JSON: the same object if it is JSON already, else a copy with notes."""
    try:
        if _remaining((value,), limits.characters - _OVERHEAD, limits.depth) >= 0:
            return JsonResult(value, ())
    except RuntimeError:  # another thread changed a dict, or the stack is nearly exhausted
        pass
    walk = _Walk(limits)
    return JsonResult(walk.convert(value), walk.notes())


def _remaining(values: Any, left: int, depth: int) -> int:
    """Return how many of the `left` characters remain; negative if a value needs the walk.

    Only exact types pass, so no code of the tool runs here. Cycles end at the depth.
    """
    for value in values:
        kind = type(value)
        if kind is str:
            if not (value.isascii() or is_well_formed(value)):
                return -1
            left -= len(value)
        elif kind is int:
            if not _MIN_FAST_INT <= value <= _MAX_FAST_INT:
                digits = _digits(value)
                if digits > _ALWAYS_ALLOWED_DIGITS and digits > _digit_limit():
                    return -1
                left -= digits
        elif kind is dict:
            left -= 2 * _OVERHEAD * len(value)
            if depth <= 0 or left < 0:
                return -1
            for key in value:
                if type(key) is not str or not (key.isascii() or is_well_formed(key)):
                    return -1
                left -= len(key)
            left = _remaining(value.values(), left, depth - 1)
        elif kind is list:
            left -= _OVERHEAD * len(value)
            if depth <= 0 or left < 0:
                return -1
            left = _remaining(value, left, depth - 1)
        elif value is not None and kind is not bool:
            if kind is not float or not _MIN_FLOAT <= value <= _MAX_FLOAT:
                return -1
            left -= _FLOAT
    return left


def _digits(number: int) -> int:
    return number.bit_length() * 30103 // 100000 + 1


def _digit_limit() -> int:
    return min(_MAX_DIGITS, get_int_max_str_digits() or _MAX_DIGITS)


class _Frame:
    __slots__ = ("count", "length", "output", "position", "source", "steps")

    def __init__(self, source: object, content: ArrayContent | ObjectContent) -> None:
        self.source = source  # keeps its id unique
        self.steps = content.steps
        self.length = content.length
        self.output: list[Any] | dict[str, Any] = [] if type(content) is ArrayContent else {}
        self.count = 0
        self.position: str | int | None = None


class _Walk:
    """One pass over a value; iterative, so deep values do not exhaust the stack."""

    def __init__(self, limits: SerialiseLimits) -> None:
        self._limits = limits
        self._left = limits.characters
        self._frames: list[_Frame] = []
        self._open: set[int] = set()
        self._conversions: dict[int, tuple[type, Callable[..., object], object]] = {}
        self._notes: dict[str, list[Any]] = {}
        self._unlisted = 0

    def convert(self, root: object) -> object:
        result = self._enter(root)
        while self._frames:
            frame = self._frames[-1]
            step: Any = attempt(next, frame.steps, _END)
            if step is _END or type(step) is Failed:
                if type(step) is Failed:
                    frame.position = None
                    self._note(f"reading failed with {step.reason}; the items before it were sent")
                self._frames.pop()
                self._open.discard(id(frame.source))
            elif not self._add(frame, step):
                self._note_cut()
                break
        return result

    def _add(self, frame: _Frame, step: Any) -> bool:
        """Convert the next item of a container; False if the size limit is reached."""
        if self._left <= 0:
            return False
        if type(frame.output) is list:
            frame.position = frame.count
            frame.output.append(self._enter(step))
        else:
            frame.position = None  # notes about a key refer to its object
            key = step[0]
            name = key if type(key) is str else self._key_text(key)
            name = name if name.isascii() else self._text(name)
            self._left -= len(name) + _OVERHEAD
            if self._left <= 0:
                return False
            if name in frame.output:
                self._note("several keys have the same text; the last one was sent")
            frame.position = name
            frame.output[name] = self._enter(step[1])  # type: ignore[call-overload]
        frame.count += 1
        return True

    def _note_cut(self) -> None:
        missing = sum((f.length or f.count) - f.count for f in self._frames)
        counted = f"{missing:,}" if all(f.length is not None for f in self._frames) else "more"
        if counted == "more" and missing > 1:
            counted = f"at least {missing:,}"
        note = (
            f"the result is larger than {self._limits.characters:,} characters; "
            f"{counted} values from here on were omitted"
        )
        self._notes[note] = [self._path(), 1]  # regardless of the maximum number of notes

    def _enter(self, value: object) -> Any:
        """Return a JSON scalar, or the list or dict that a new frame will fill."""
        depth = len(self._frames)
        try:  # checks whole records of a list, but not each level of a deep value again
            below = self._limits.depth - depth if 0 < depth <= 3 else 0
            left = _remaining((value,), self._left - _OVERHEAD, below)
        except RuntimeError:  # as in `to_json`
            left = -1
        if left >= 0:
            self._left = left
            return value
        simple = self._simplify(value)
        if type(simple) is ArrayContent or type(simple) is ObjectContent:
            self._left -= _OVERHEAD
            if id(value) in self._open:
                return self._note("contains itself; sent as null")
            if depth >= self._limits.depth:
                return self._note(f"nested deeper than {self._limits.depth}; sent as null")
            frame = _Frame(value, simple)
            self._frames.append(frame)
            self._open.add(id(value))
            return frame.output
        if type(simple) is float and not _MIN_FLOAT <= simple <= _MAX_FLOAT:
            simple = self._note(f"{simple!r} is not JSON; sent as null")
        elif type(simple) is str:
            simple = self._text(simple)
            room = max(self._left - _OVERHEAD, 0)
            if len(simple) > room:
                self._note(f"a text of {len(simple):,} characters was truncated to {room:,}")
                simple = simple[:room]
            self._left -= len(simple)
        elif type(simple) is int:
            self._left -= _digits(simple)
        self._left -= _OVERHEAD
        return simple

    def _simplify(self, value: Any) -> Any:
        """Convert to a scalar, `ArrayContent` or `ObjectContent`; text and floats unchecked."""
        for turn in range(_MAX_CONVERSIONS):
            kind = type(value)
            if kind is str or kind is float or kind is bool or value is None:
                return value
            if kind is ArrayContent or kind is ObjectContent:
                return value
            if kind is int:
                if _digits(value) <= _digit_limit():
                    return value
                self._note("an integer with too many digits for JSON; sent as hexadecimal text")
                return hex(value)
            if kind is Noted:
                self._note(value.note)
                value = value.value
            elif kind is Failed:
                return self._note(f"could not be read ({value.reason}); sent as null")
            else:
                cached = self._conversions.get(id(kind)) or (kind, *conversion_for(kind))
                if len(self._conversions) < _MAX_TYPES:
                    self._conversions[id(kind)] = cached  # keeps the type, so its id stays unique
                converted = attempt(cached[1], value, cached[2])
                last = turn >= _MAX_CONVERSIONS - 3
                value = as_repr(value) if last or type(converted) is Failed else converted
        return None

    def _key_text(self, key: object, nested: int = 0) -> str:
        """Convert a key to text as pydantic does."""
        simple = self._simplify(key)
        if type(simple) is str:
            return simple
        if type(simple) is bool:
            return "true" if simple else "false"
        if type(simple) is ArrayContent and nested < 5:
            parts: list[str] = []
            room = _MAX_JOINED_KEY
            while room > 0:
                part = attempt(next, simple.steps, _END)
                if part is _END or type(part) is Failed:
                    return ",".join(parts)
                parts.append(self._key_text(part, nested + 1))
                room -= len(parts[-1]) + 1
        if type(simple) is ArrayContent or type(simple) is ObjectContent:
            return str(self._simplify(as_repr(key)))
        return repr(simple)

    def _text(self, text: str) -> str:
        if text.isascii() or is_well_formed(text):
            return text
        self._note("lone surrogates are not valid Unicode; each was sent as U+FFFD")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _note(self, change: str) -> Any:
        """Count a change and record its first position; returns None, for values sent as null."""
        note = self._notes.get(change)
        if note:
            note[1] += 1
        elif len(self._notes) < MAX_NOTES:
            self._notes[change] = [self._path(), 1]
        else:
            self._unlisted += 1

    def _path(self) -> str:
        steps = [_step(frame.position) for frame in self._frames if frame.position is not None]
        if len(steps) > 12:
            steps[6:-6] = ["…"]
        return "$" + "".join(steps)

    def notes(self) -> tuple[str, ...]:
        notes = [
            f"{path}: {change}" + (f" (and {times - 1:,} more)" if times > 1 else "")
            for change, (path, times) in self._notes.items()
        ]
        return (*notes, f"and {self._unlisted:,} more changes") if self._unlisted else (*notes,)


def _step(position: str | int) -> str:
    if type(position) is int:
        return f"[{position}]"
    name = str(position) if len(str(position)) <= 40 else f"{str(position)[:40]}…"
    return f".{name}" if name.isidentifier() else f"[{name!r}]"
