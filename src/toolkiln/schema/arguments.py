"""Checking arguments against a tool's schema, on the way to a call.

The common case, small arguments that look as expected, is one copy (`shape`), and for some
schemas a run of the validator; what is larger is encoded first. Everything else takes the
slow path, which explains. Arguments never raise here, whatever they are. Names of tools are
resolved elsewhere; what models send in strict mode is decoded before (`providers`).
"""

from collections.abc import Callable
from itertools import islice
from threading import Lock
from typing import Any

import msgspec
from jsonschema_rs import Draft202012Validator
from msgspec import Struct

from toolkiln.model import JsonSchema, ToolSpec
from toolkiln.schema.coercion import coerced, parsed
from toolkiln.schema.document import Document, bounded, format_options, walk
from toolkiln.schema.patterns import options_for
from toolkiln.schema.problems import Explainer, Problem, place, problem
from toolkiln.schema.shape import Shape
from toolkiln.schema.structure import Flaw, Sizes, deeper_than, flaws, plain
from toolkiln.schema.validity import invalid_points

_DEFAULT_SIZES = Sizes()
_MAX_PROBLEMS = 50
_CACHED = 1024
_FEW_PARTS = 1_000
"""Members and pieces of text of arguments that are checked without a thread."""
_LONG_TEXT = 32
_MANY_SUBSCHEMAS = 500
_LARGE_BYTES = 10_000
_MOST_STEPS = 2_000_000
"""Steps of a validation, by `Document.steps`: the validator holds the interpreter's lock."""
_SCALARS = frozenset((int, float, bool, type(None)))


class Checked(Struct, frozen=True):
    """Arguments that fit."""

    arguments: dict[str, Any]
    """A copy of what was sent, of plain JSON values."""
    notes: tuple[str, ...] = ()
    """What was changed to make them fit."""


class Problems(Struct, frozen=True):
    """Why arguments do not fit: every reason at once."""

    problems: tuple[Problem, ...]


class ArgumentChecker:
    """The compiled form of one tool's parameters."""

    def __init__(self, parameters: JsonSchema, sizes: Sizes = _DEFAULT_SIZES) -> None:
        self._sizes = sizes
        self._broken = [
            Problem("", f"the tool's schema is invalid at {point.path or '/'}: {point.reason}")
            for point in invalid_points(parameters)
        ]
        if not self._broken:
            parameters = bounded(parameters)
        self._document = Document(parameters)
        self._explainer = Explainer(self._document)
        self._is_wide = sum(1 for _ in walk(self._document.root)) > _MANY_SUBSCHEMAS
        schema: JsonSchema = {"not": {}}
        if not self._broken:
            schema = {k: v for k, v in parameters.items() if k not in ("$schema", "$id")}
        self._validator = Draft202012Validator(
            schema, pattern_options=options_for(schema), offline=True, **format_options(schema)
        )
        self.check = self._compile(Shape(Document(schema), sizes))
        """The arguments as they will be used, or all that is wrong with them."""

    def _compile(self, shape: Shape) -> Callable[[object], Checked | Problems]:
        """The check as one closure: on the common path, every look-up and call counts."""
        shaped, exact = shape.copy, shape.exact
        is_valid, recheck = self._validator.is_valid, self._recheck

        def check(arguments: object) -> Checked | Problems:
            try:
                copy = shaped(arguments)
                if exact or is_valid(copy):
                    return Checked(copy)
            except ValueError:
                pass  # of another shape
            return recheck(arguments)

        return check

    def _recheck(self, arguments: object) -> Checked | Problems:
        """What the shape did not fit: large arguments, unforeseen ones, and wrong ones."""
        try:
            text = msgspec.json.encode(arguments)
            copy = msgspec.json.decode(text)
            # The encoder turns dates, sets and NaN into other things: then they differ.
            if (
                type(copy) is dict
                and self._fits(text, copy)
                and not self._is_expensive(text, copy)
                and copy == arguments
                and self._validator.is_valid(copy)
            ):
                return Checked(copy)
        except (ValueError, TypeError, RecursionError, OverflowError):
            pass  # not JSON; the slow path says where
        return self._explain(arguments)

    def _fits(self, text: bytes, copy: Any) -> bool:
        sizes = self._sizes
        if len(text) > min(sizes.string_length, sizes.items, sizes.total_bytes):
            return len(text) <= sizes.total_bytes and not flaws(copy, sizes, 1)
        brackets = text.count(b"[") + text.count(b"{")
        return brackets <= sizes.depth or not deeper_than(copy, sizes.depth)

    def _is_expensive(self, text: bytes, copy: Any) -> bool:
        if not self._is_wide or len(text) <= _LARGE_BYTES:
            return False
        return self._document.steps(self._document.root, copy, _MOST_STEPS) > _MOST_STEPS

    def _explain(self, arguments: Any) -> Checked | Problems:
        if self._broken:
            return Problems(tuple(self._broken))
        notes: list[str] = []
        if isinstance(arguments, str | bytes | bytearray):
            size = len(arguments)
            if size > self._sizes.total_bytes:
                what = f"larger than {self._sizes.total_bytes:,} bytes"
                return Problems((problem([], what),))
            try:
                sent = plain(arguments) if isinstance(arguments, str) else bytes(arguments)
                arguments = parsed(sent) if sent.strip() else {}
            except ValueError as error:
                return Problems((problem([], f"not valid JSON: {error}"),))
            notes.append("arguments: JSON text was parsed" if size else "arguments: none were sent")
        found = flaws(arguments, self._sizes, _MAX_PROBLEMS)
        if found:
            return _flawed(found)
        if not isinstance(arguments, dict):
            return Problems((problem([], "not a JSON object with the tool's parameters"),))
        copy = plain(arguments)
        if copy != arguments:
            notes.append("arguments: Python tuples were taken as arrays")
        text = msgspec.json.encode(copy)
        if len(text) > self._sizes.total_bytes:
            return Problems((problem([], f"larger than {self._sizes.total_bytes:,} bytes"),))
        if self._is_expensive(text, copy):
            return Problems((problem([], "too many values for the alternatives of the schema"),))
        if not self._validator.is_valid(copy):
            copy, parsed_places = coerced(self._document, copy, self._sizes.depth)
            notes += parsed_places
            found = flaws(copy, self._sizes, _MAX_PROBLEMS)
            if found:
                return _flawed(found)
        if self._validator.is_valid(copy):
            return Checked(copy, tuple(notes))
        explanations = islice(self._explainer.problems(copy), 2 * _MAX_PROBLEMS)
        problems = list(dict.fromkeys(explanations))
        if len(problems) > _MAX_PROBLEMS:
            more = problem([], f"there are more problems than these {_MAX_PROBLEMS}")
            problems = [*problems[:_MAX_PROBLEMS], more]
        return Problems(tuple(problems))


class _Checkers:
    """The checks of recently used specs, by identity: equal digests prove nothing."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[object], Checked | Problems], ToolSpec]] = {}
        self._lock = Lock()
        self.find = self._known.get

    def add(self, spec: ToolSpec) -> Callable[[object], Checked | Problems]:
        """Keep a check; the entry holds the spec, so that no other object can get its id."""
        made = ArgumentChecker(spec.parameters).check
        with self._lock:
            if len(self._known) >= _CACHED:
                del self._known[next(iter(self._known))]
            self._known[id(spec)] = (made, spec)
        return made


_checkers = _Checkers()
_find = _checkers.find


def is_quick(spec: ToolSpec, arguments: object) -> bool:
    """Whether a check is over in a moment: the schema is compiled and the arguments are small."""
    if _find(id(spec)) is None:
        return False
    size = 0
    pending = [arguments]
    while pending:
        item = pending.pop()
        kind = item.__class__
        if kind is dict:
            size += len(item)  # type: ignore[arg-type]
            if size <= _FEW_PARTS:
                pending += item.values()  # type: ignore[attr-defined]
        elif kind is list or kind is tuple:
            size += len(item)  # type: ignore[arg-type]
            if size <= _FEW_PARTS:
                pending += item  # type: ignore[arg-type]
        elif kind is str:
            size += len(item) // _LONG_TEXT  # type: ignore[arg-type]
        elif kind not in _SCALARS:
            return False
        if size > _FEW_PARTS:
            return False
    return True


def check(spec: ToolSpec, arguments: object, sizes: Sizes | None = None) -> Checked | Problems:
    """Check what a model sent for a tool; never raises.

    The compiled schema is kept for specs in use. With `sizes` it is compiled each time;
    keep an `ArgumentChecker` for that.
    """
    if sizes is not None:
        return ArgumentChecker(spec.parameters, sizes).check(arguments)
    entry = _find(id(spec))
    if entry is None:
        return _checkers.add(spec)(arguments)
    return entry[0](arguments)


def _flawed(found: list[Flaw]) -> Problems:
    return Problems(tuple(Problem(path, f"{_placed(path)}: {why}") for path, why in found))


def _placed(pointer: str) -> str:
    tokens = [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:]]
    return place([int(t) if t.isascii() and t.isdigit() else t for t in tokens])
