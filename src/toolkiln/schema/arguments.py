"""Argument checker: validates and coerces the arguments of a call.

Small, well-formed arguments take `fast_check`, plus the validator for some schemas. Larger
ones are copied through JSON first. Everything else takes the slow path, which coerces and
explains. Checking never raises. Tool names are resolved elsewhere, and `providers` decodes
the arguments of strict modes beforehand.
"""

import json
from collections.abc import Callable, Mapping
from itertools import islice
from threading import Lock
from typing import Any

import msgspec
from jsonschema_rs import Draft202012Validator
from msgspec import Struct

from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.argument_problems import ArgumentProblem, Explainer, display_path, problem
from toolkiln.schema.document import (
    Flaw,
    JsonLimits,
    SchemaDocument,
    deeper_than,
    flaws,
    format_options,
    json_types,
    limit_backtracking,
    member_schema,
    plain,
    walk,
)
from toolkiln.schema.fast_check import FastCheck
from toolkiln.schema.validator_options import options_for
from toolkiln.schema.validity import invalid_points

_ALL_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_UNION_BUDGET = 30_000
"""Maximum number of values, nested ones included, validated against branches of unions."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raises ValueError also for text that is nested too deeply."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from None


class _BudgetExceeded(Exception):
    """The branches of unions used up the budget."""


def coerce(document: SchemaDocument, arguments: Any, depth: int) -> tuple[Any, list[str]]:
    """Parse strings of JSON where the schema expects another type; return a note for each."""
    notes: list[str] = []
    try:
        return _Coercer(document, depth).coerce(document.root, arguments, [], notes), notes
    except _BudgetExceeded:
        return arguments, []


class _Coercer:
    """Coerces the arguments of one call; tries branches of unions in order."""

    def __init__(self, document: SchemaDocument, depth: int) -> None:
        self._document = document
        self._depth = depth
        self._budget = _UNION_BUDGET
        self._types_by_node: dict[int, frozenset[str]] = {}

    def coerce(self, node: Any, value: Any, path: list[str | int], notes: list[str]) -> Any:
        if not isinstance(node, dict):
            return value
        if isinstance(value, str):
            value = self._parse_string(node, value, path, notes)
            if isinstance(value, str):
                return value
        if not isinstance(value, dict | list):
            return value
        for part in self._document.parts(node):
            value = self._coerce_members(part, value, path, notes)
        for keyword in ("anyOf", "oneOf"):
            for part in self._document.parts(node):
                if keyword in part:
                    value = self._coerce_union(part[keyword], value, path, notes)
        return value

    def _parse_string(
        self, node: dict[str, Any], text: str, path: list[str | int], notes: list[str]
    ) -> Any:
        types = self._types(node)
        if "string" in types:
            return text
        try:
            value = parse_json(text)
        except ValueError:
            return text
        if not types & json_types(value) or deeper_than(value, self._depth - len(path)):
            return text
        notes.append(f"{display_path(path)}: JSON text in a string was parsed")
        return value

    def _coerce_members(
        self, part: dict[str, Any], value: Any, path: list[str | int], notes: list[str]
    ) -> Any:
        if isinstance(value, dict):
            return {
                key: self.coerce(member_schema(part, key), item, [*path, key], notes)
                for key, item in value.items()
            }
        return [
            self.coerce(member_schema(part, index), item, [*path, index], notes)
            for index, item in enumerate(value)
        ]

    def _coerce_union(
        self, branches: list[Any], value: Any, path: list[str | int], notes: list[str]
    ) -> Any:
        if any(self._accepts(branch, value) for branch in branches):
            return value
        for branch in branches:
            branch_notes: list[str] = []
            candidate = self.coerce(branch, value, path, branch_notes)
            if branch_notes and self._accepts(branch, candidate):
                notes.extend(branch_notes)
                return candidate
        return value

    def _accepts(self, branch: Any, value: Any) -> bool:
        self._budget -= _size(value, self._budget)
        if self._budget < 0:
            raise _BudgetExceeded
        return self._document.accepts(branch, value)

    def _types(self, node: Any) -> frozenset[str]:
        """Return the JSON types a subschema may accept; too many rather than too few."""
        if not isinstance(node, dict):
            return frozenset() if node is False else _ALL_TYPES
        if id(node) in self._types_by_node:
            return self._types_by_node[id(node)]
        # The answer for references to itself.
        types = self._types_by_node[id(node)] = _ALL_TYPES
        if "type" in node:
            declared = node["type"]
            types = frozenset((declared,) if isinstance(declared, str) else declared)
            types |= {"integer"} if "number" in types else frozenset()
        if "const" in node:
            types &= json_types(node["const"])
        if "enum" in node:
            types &= frozenset().union(*(json_types(value) for value in node["enum"]))
        if "$ref" in node:
            types &= self._types(self._document.target(node["$ref"]))
        for child in node.get("allOf", ()):
            types &= self._types(child)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                types &= frozenset().union(*map(self._types, node[keyword]))
        self._types_by_node[id(node)] = types
        return types


def _size(value: Any, limit: int) -> int:
    # Stops a little over the limit.
    count = 1
    pending = [value]
    while pending and count <= limit:
        item = pending.pop()
        if isinstance(item, dict | list):
            count += len(item)
            pending += item.values() if isinstance(item, dict) else item
    return count


_DEFAULT_SIZES = JsonLimits()
_MAX_PROBLEMS = 50
_MAX_CACHED = 1024
_MAX_QUICK_SIZE = 1_000
"""Maximum size of arguments that are checked without a thread: members plus text chunks."""
_TEXT_CHUNK = 32
_MANY_SUBSCHEMAS = 500
_LARGE_BYTES = 10_000
_MAX_STEPS = 2_000_000
"""Maximum `SchemaDocument.steps` of a validation, during which the validator holds the GIL."""
_SCALARS = frozenset((int, float, bool, type(None)))


class Checked(Struct, frozen=True):
    """Valid arguments."""

    arguments: dict[str, Any]
    """A copy of the caller's arguments, made of plain JSON values."""
    notes: tuple[str, ...] = ()
    """The coercions that made them valid."""


class Problems(Struct, frozen=True):
    """Invalid arguments, with all reasons at once."""

    problems: tuple[ArgumentProblem, ...]


class ArgumentChecker:
    """Checks arguments against the compiled parameters of one tool."""

    def __init__(self, parameters: JsonSchema, sizes: JsonLimits = _DEFAULT_SIZES) -> None:
        self._sizes = sizes
        self._schema_problems = [
            ArgumentProblem(
                "", f"the tool's schema is invalid at {point.path or '/'}: {point.reason}"
            )
            for point in invalid_points(parameters)
        ]
        if not self._schema_problems:
            parameters = limit_backtracking(parameters)
        self._document = SchemaDocument(parameters)
        self._explainer = Explainer(self._document)
        self._is_wide = sum(1 for _ in walk(self._document.root)) > _MANY_SUBSCHEMAS
        schema: JsonSchema = {"not": {}}
        if not self._schema_problems:
            schema = {k: v for k, v in parameters.items() if k not in ("$schema", "$id")}
        self._validator = Draft202012Validator(
            schema, pattern_options=options_for(schema), offline=True, **format_options(schema)
        )
        self.check = self._compile(FastCheck(SchemaDocument(schema), sizes))
        """Return the arguments to call the tool with, or all problems."""

    def _compile(self, fast_check: FastCheck) -> Callable[[object], Checked | Problems]:
        # One closure, because each attribute look-up and call counts on this path.
        fast_copy, is_exact = fast_check.copy, fast_check.is_exact
        is_valid, recheck = self._validator.is_valid, self._recheck

        def check(arguments: object) -> Checked | Problems:
            try:
                copy = fast_copy(arguments)
                if is_exact or is_valid(copy):
                    return Checked(copy)
            except ValueError:
                pass
            return recheck(arguments)

        return check

    def _recheck(self, arguments: object) -> Checked | Problems:
        try:
            text = msgspec.json.encode(arguments)
            copy = msgspec.json.decode(text)
            # The encoder converts dates, sets and NaN: then the copy is not equal.
            if (
                type(copy) is dict
                and self._fits(text, copy)
                and not self._is_expensive(text, copy)
                and copy == arguments
                and self._validator.is_valid(copy)
            ):
                return Checked(copy)
        except (ValueError, TypeError, RecursionError, OverflowError):
            pass  # not JSON; `_explain` locates the reason
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
        return self._document.steps(self._document.root, copy, _MAX_STEPS) > _MAX_STEPS

    def _explain(self, arguments: Any) -> Checked | Problems:
        if self._schema_problems:
            return Problems(tuple(self._schema_problems))
        notes: list[str] = []
        if isinstance(arguments, str | bytes | bytearray):
            size = len(arguments)
            if size > self._sizes.total_bytes:
                reason = f"larger than {self._sizes.total_bytes:,} bytes"
                return Problems((problem([], reason),))
            try:
                text = plain(arguments) if isinstance(arguments, str) else bytes(arguments)
                arguments = parse_json(text) if text.strip() else {}
            except ValueError as error:
                return Problems((problem([], f"not valid JSON: {error}"),))
            notes.append("arguments: JSON text was parsed" if size else "arguments: none were sent")
        if found := flaws(arguments, self._sizes, _MAX_PROBLEMS):
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
            copy, coercions = coerce(self._document, copy, self._sizes.depth)
            notes += coercions
            if found := flaws(copy, self._sizes, _MAX_PROBLEMS):
                return _flawed(found)
        if self._validator.is_valid(copy):
            return Checked(copy, tuple(notes))
        explanations = islice(self._explainer.problems(copy), 2 * _MAX_PROBLEMS)
        problems = list(dict.fromkeys(explanations))
        if len(problems) > _MAX_PROBLEMS:
            more = problem([], f"only the first {_MAX_PROBLEMS} problems are listed")
            problems = [*problems[:_MAX_PROBLEMS], more]
        return Problems(tuple(problems))


class _CheckerCache:
    """Cache of compiled checks by the spec's identity; equal digests prove nothing."""

    def __init__(self) -> None:
        self._checks: dict[int, tuple[Callable[[object], Checked | Problems], ToolSpec]] = {}
        self._lock = Lock()
        self.find = self._checks.get

    def add(self, spec: ToolSpec) -> Callable[[object], Checked | Problems]:
        """Compile and cache a check, with its spec: no other object can reuse the id."""
        compiled = ArgumentChecker(spec.parameters).check
        with self._lock:
            if len(self._checks) >= _MAX_CACHED:
                del self._checks[next(iter(self._checks))]
            self._checks[id(spec)] = (compiled, spec)
        return compiled


_cache = _CheckerCache()
_find = _cache.find


def is_quick(spec: ToolSpec, arguments: object) -> bool:
    """Return whether a check is fast: the schema is compiled and the arguments are small."""
    if _find(id(spec)) is None:
        return False
    size = 0
    pending = [arguments]
    while pending:
        item = pending.pop()
        kind = item.__class__
        if kind is dict:
            size += len(item)  # type: ignore[arg-type]
            if size <= _MAX_QUICK_SIZE:
                pending += item.values()  # type: ignore[attr-defined]
        elif kind is list or kind is tuple:
            size += len(item)  # type: ignore[arg-type]
            if size <= _MAX_QUICK_SIZE:
                pending += item  # type: ignore[arg-type]
        elif kind is str:
            size += len(item) // _TEXT_CHUNK  # type: ignore[arg-type]
        elif kind not in _SCALARS:
            return False
        if size > _MAX_QUICK_SIZE:
            return False
    return True


def parse_texts(spec: ToolSpec, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments given as texts: as JSON where that fits the schema, else as text."""
    properties = spec.parameters.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    arguments = {name: _parse_text(text, fields.get(name)) for name, text in texts.items()}
    for misfit in getattr(check(spec, arguments), "problems", ()):
        name = misfit.path.partition("/")[2].partition("/")[0]
        name = name.replace("~1", "/").replace("~0", "~")
        if name in texts:  # it does not fit as JSON
            arguments[name] = texts[name]
    return arguments


def _parse_text(text: str, schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def check(spec: ToolSpec, arguments: object, sizes: JsonLimits | None = None) -> Checked | Problems:
    """Check a caller's arguments for a tool; never raises.

    The compiled schema is cached, but not with `sizes`: keep an `ArgumentChecker` for that.
    """
    if sizes is not None:
        return ArgumentChecker(spec.parameters, sizes).check(arguments)
    entry = _find(id(spec))
    if entry is None:
        return _cache.add(spec)(arguments)
    return entry[0](arguments)


def _flawed(found: list[Flaw]) -> Problems:
    return Problems(
        tuple(
            ArgumentProblem(path, f"{_display_pointer(path)}: {reason}") for path, reason in found
        )
    )


def _display_pointer(pointer: str) -> str:
    tokens = [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:]]
    return display_path([int(t) if t.isascii() and t.isdigit() else t for t in tokens])
