"""Checking arguments against a tool's schema, on the way to a call.

The common case, small and valid arguments, takes one pass through an encoder and a
compiled validator. Everything else takes the slow path, which explains. Arguments never
raise here, whatever they are. Names of tools are resolved elsewhere; what models send in
strict mode is decoded before (`providers`).
"""

from itertools import islice
from threading import Lock
from typing import Any

import msgspec
from jsonschema_rs import Draft202012Validator
from msgspec import Struct

from toolkiln.model import JsonSchema, ToolSpec
from toolkiln.schema.coercion import Coercion, parsed
from toolkiln.schema.document import Document
from toolkiln.schema.formats import FORMATS
from toolkiln.schema.problems import Problem, explained, place, problem
from toolkiln.schema.structure import Flaw, Sizes, deeper_than, flaws, plain
from toolkiln.schema.validity import invalid_points

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_DEFAULT_SIZES = Sizes()
_MAX_PROBLEMS = 50
_CACHED = 1024


class Checked(Struct, frozen=True):
    """Arguments that fit."""

    arguments: dict[str, Any]
    """A copy made of plain JSON values."""
    notes: tuple[str, ...] = ()
    """What was changed to make them fit."""


class Problems(Struct, frozen=True):
    """Why arguments do not fit: every reason at once."""

    problems: tuple[Problem, ...]


class ArgumentChecker:
    """The compiled form of one tool's parameters."""

    def __init__(self, parameters: JsonSchema, sizes: Sizes = _DEFAULT_SIZES) -> None:
        self._sizes = sizes
        # Text this short can break no bound: each level, item and character takes space.
        smallest = min(2 * sizes.depth, sizes.string_length, sizes.items, sizes.total_bytes)
        self._surely_small = smallest
        self._document = Document(parameters)
        self._coercion = Coercion(self._document, sizes.depth)
        self._broken = [
            Problem("", f"the tool's schema is invalid at {point.path or '/'}: {point.reason}")
            for point in invalid_points(parameters)
        ]
        schema: Any = False
        if not self._broken:
            schema = {k: v for k, v in parameters.items() if k not in ("$schema", "$id")}
        self._validator = Draft202012Validator(
            schema, validate_formats=True, formats=dict(FORMATS), offline=True
        )
        self._is_valid = self._validator.is_valid

    def check(self, arguments: object) -> Checked | Problems:
        """The arguments as they will be used, or all that is wrong with them."""
        try:
            text = _encode(arguments)
            copy = _decode(text)
            small = len(text) <= self._surely_small or self._fits(text, copy)
            # The encoder turns dates, sets and NaN into other things: then they differ.
            if small and copy == arguments and type(copy) is dict and self._is_valid(copy):
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
                text = bytes(arguments) if isinstance(arguments, bytearray) else arguments
                arguments = parsed(text) if text.strip() else {}
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
        if len(_encode(copy)) > self._sizes.total_bytes:
            return Problems((problem([], f"larger than {self._sizes.total_bytes:,} bytes"),))
        if not self._is_valid(copy):
            copy, coerced = self._coercion.apply(copy)
            notes += coerced
            found = flaws(copy, self._sizes, _MAX_PROBLEMS)
            if found:
                return _flawed(found)
        errors = islice(self._validator.iter_errors(copy), _MAX_PROBLEMS)
        problems = dict.fromkeys(explained(errors, self._document))
        if problems:
            return Problems(tuple(islice(problems, _MAX_PROBLEMS)))
        return Checked(copy, tuple(notes))


class _Checkers:
    """The checkers of recently used specs, by identity: equal digests prove nothing."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ToolSpec, ArgumentChecker]] = {}
        self._lock = Lock()
        self.get = self._known.get

    def add(self, spec: ToolSpec) -> ArgumentChecker:
        checker = ArgumentChecker(spec.parameters)
        with self._lock:
            if len(self._known) >= _CACHED:
                del self._known[next(iter(self._known))]
            self._known[id(spec)] = (spec, checker)
        return checker


_checkers = _Checkers()


def check(spec: ToolSpec, arguments: object, sizes: Sizes | None = None) -> Checked | Problems:
    """Check what a model sent for a tool; never raises.

    The compiled schema is kept for specs in use. `sizes` other than the default ones make
    a checker of their own each time; keep an `ArgumentChecker` for that.
    """
    if sizes is not None and sizes != _DEFAULT_SIZES:
        return ArgumentChecker(spec.parameters, sizes).check(arguments)
    # The entry holds the spec, so that no other object can have its id.
    entry = _checkers.get(id(spec))
    checker = entry[1] if entry is not None else _checkers.add(spec)
    return checker.check(arguments)


def _flawed(found: list[Flaw]) -> Problems:
    return Problems(tuple(Problem(path, f"{_placed(path)}: {why}") for path, why in found))


def _placed(pointer: str) -> str:
    tokens = [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:]]
    return place([int(t) if t.isascii() and t.isdigit() else t for t in tokens])
