"""Comparison of a schema read from source with the signature of the imported function.

The imported function has a pydantic schema for each parameter. Names, required parameters,
types, constraints and defaults are compared, because they decide whether a call succeeds;
titles, descriptions, examples, definition names and order are not. A schema without
constraints matches everything, since both sides leave open what they do not understand. The
comparison gives up on very large or deep schemas. A missed mismatch is better than a false
one, which would keep a tool from being served.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from toolkiln.model.base import JsonSchema

_DEFS = "#/$defs/"
_UNIONS = ("anyOf", "oneOf")
_CONSTRAINTS = (
    "type", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties",
)  # fmt: skip
_MEMBERS = ("items", "propertyNames", "additionalProperties")
_COMPARED = {
    *_CONSTRAINTS, *_UNIONS, *_MEMBERS, "enum", "const", "properties", "prefixItems", "required",
    "$ref",
}  # fmt: skip
_MAX_STEPS = 5_000
_MAX_DEPTH = 60
_MAX_TEXT = 80


@dataclass(frozen=True, slots=True)
class RuntimeParameter:
    """One parameter of the imported function."""

    name: str
    """The name callers use: the alias, if any."""
    required: bool
    described: JsonSchema | None = None
    """Pydantic's schema with its own definitions, if pydantic has one."""

    @property
    def has_schema(self) -> bool:
        """Whether pydantic has a schema for its type, and not only its default is known."""
        return self.described is not None and self.described.keys() != {"default"}


@dataclass(frozen=True, slots=True)
class RuntimeSignature:
    """The signature of the imported function."""

    parameters: tuple[RuntimeParameter, ...]
    takes_any: bool
    """Whether it has `**kwargs`."""
    by_hand: bool
    """Whether the author wrote the schema; then only names and required parameters must match."""


def signature_mismatches(read: JsonSchema, found: RuntimeSignature) -> list[str]:
    """Describe each mismatch between the schema read from source and the imported function."""
    properties = read.get("properties")
    return list(_mismatches(read, properties, found)) if isinstance(properties, dict) else []


def _mismatches(
    read: JsonSchema, properties: dict[str, Any], found: RuntimeSignature
) -> Iterator[str]:
    required = _required(read)
    by_name = {parameter.name: parameter for parameter in found.parameters}
    if not found.takes_any:
        for name in [name for name in properties if name not in by_name]:
            yield f"parameter {name!r}: missing in the imported function"
    for name, parameter in by_name.items():
        if name not in properties:
            if parameter.required:
                yield f"parameter {name!r}: missing in the schema, required when imported"
            elif not found.by_hand and not found.takes_any and parameter.has_schema:
                # Otherwise it may be a wrapper's `*args`, or of a type that no model can pass.
                yield f"parameter {name!r}: missing in the schema"
        elif parameter.required and name not in required:
            yield f"parameter {name!r}: optional in the schema, required when imported"
        elif found.by_hand:
            continue
        elif not parameter.required and name in required:
            yield f"parameter {name!r}: required in the schema, optional when imported"
        elif parameter.described is not None:
            comparison = _Comparison(read, parameter.described)
            difference = comparison.difference(properties[name], parameter.described)
            if difference is not None:
                yield f"parameter {name!r}{difference.path}: {difference.text}"


def _required(schema: JsonSchema) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


class _Difference(NamedTuple):
    """The first difference between two schemas."""

    read: str
    found: str
    path: str = ""

    @property
    def text(self) -> str:
        return f"{self.read} in the schema, {self.found} when imported"

    def below(self, name: str) -> "_Difference":
        return self._replace(path=f" › {name}{self.path}")


class _Comparison:
    """A comparison of two schemas with a limited number of steps."""

    def __init__(self, read: JsonSchema, found: JsonSchema) -> None:
        self._read_definitions = _definitions(read)
        self._found_definitions = _definitions(found)
        self._compared_refs: set[tuple[str, str]] = set()
        self._canonical_texts: dict[int, str] = {}
        self._steps = 0

    def difference(self, read: Any, found: Any, depth: int = 0) -> _Difference | None:
        self._steps += 1
        if self._steps > _MAX_STEPS or depth > _MAX_DEPTH or read is True or found in (True, None):
            return None
        if not isinstance(read, dict) or not isinstance(found, dict):
            return None if read == found else _Difference(_short(read), _short(found))
        if difference := self._defaults(read, found):
            return difference
        if "$ref" in read and "$ref" in found:
            pair = str(read["$ref"]), str(found["$ref"])
            if pair in self._compared_refs:
                return None
            self._compared_refs.add(pair)
        read = _resolved(read, self._read_definitions)
        found = _resolved(found, self._found_definitions)
        if _is_open(read) or _is_open(found):
            return None
        if self._values(read) != self._values(found):
            return _Difference(_short(read), _short(found))
        for keyword in _CONSTRAINTS:
            if _canonical(read.get(keyword)) != _canonical(found.get(keyword)):
                return _of_keyword(keyword, read, found)
        return self._members(read, found, depth + 1)

    def _members(self, read: JsonSchema, found: JsonSchema, depth: int) -> _Difference | None:
        for keyword in _MEMBERS:
            ours, theirs = read.get(keyword, True), found.get(keyword, True)
            if difference := self.difference(ours, theirs, depth):
                return difference.below(keyword)
        for keyword in _UNIONS:
            if not self._is_same_union(read.get(keyword), found.get(keyword), depth):
                return _Difference(_short(read), _short(found))
        ours, theirs = read.get("prefixItems", []), found.get("prefixItems", [])
        if not isinstance(ours, list) or not isinstance(theirs, list):
            return None
        if len(ours) != len(theirs):
            return _Difference(f"{len(ours)} items", f"{len(theirs)} items")
        for index, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True)):
            if difference := self.difference(our_item, their_item, depth):
                return difference.below(f"item {index}")
        return self._properties(read, found, depth)

    def _properties(self, read: JsonSchema, found: JsonSchema, depth: int) -> _Difference | None:
        ours, theirs = read.get("properties", {}), found.get("properties", {})
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            return None
        for name in sorted(ours.keys() ^ theirs.keys()):
            sides = ("present", "missing") if name in ours else ("missing", "present")
            return _Difference(*sides).below(name)
        for name in sorted(_required(read) ^ _required(found)):
            sides = ("required", "optional")
            return _Difference(*(sides if name in _required(read) else sides[::-1])).below(name)
        for name in ours:
            if difference := self.difference(ours[name], theirs[name], depth):
                return difference.below(name)
        return None

    def _is_same_union(self, read: Any, found: Any, depth: int) -> bool:
        # `typing` may have reordered the branches.
        if not isinstance(read, list) or not isinstance(found, list):
            return type(read) is type(found)
        if len(read) != len(found):
            return False
        rest = dict.fromkeys(range(len(found)))
        for index, ours in enumerate(read):
            # The same position first: the order rarely differs.
            candidates = chain((index,) if index in rest else (), rest)
            match = (at for at in candidates if self.difference(ours, found[at], depth) is None)
            if (at := next(match, None)) is None:
                return False
            del rest[at]
        return True

    def _defaults(self, read: JsonSchema, found: JsonSchema) -> _Difference | None:
        # A default on one side only may be unknown or not expressible on the other.
        if "default" not in read or "default" not in found:
            return None
        if self._canonical(read["default"]) == self._canonical(found["default"]):
            return None
        return _of_keyword("default", read, found)

    def _values(self, schema: JsonSchema) -> str | None:
        if "const" in schema:
            return f"[{self._canonical(schema['const'])}]"
        return self._canonical(schema["enum"]) if "enum" in schema else None

    def _canonical(self, value: Any) -> str:
        if not isinstance(value, list | dict):
            return _canonical(value)
        if id(value) not in self._canonical_texts:
            self._canonical_texts[id(value)] = _canonical(value)
        return self._canonical_texts[id(value)]


def _definitions(schema: JsonSchema) -> dict[str, Any]:
    definitions = schema.get("$defs")
    return definitions if isinstance(definitions, dict) else {}


def _resolved(schema: JsonSchema, definitions: dict[str, Any]) -> JsonSchema:
    """Return the compared keywords of a schema, with its reference resolved."""
    resolved: JsonSchema = {}
    for _ in range(_MAX_DEPTH):
        resolved = {key: schema[key] for key in _COMPARED if key in schema} | resolved
        pointer = resolved.pop("$ref", None)
        if pointer is None:
            return resolved
        name = str(pointer).removeprefix(_DEFS).replace("~1", "/").replace("~0", "~")
        target = definitions.get(name)
        if not isinstance(target, dict):
            break
        schema = target
    return {}


def _is_open(schema: JsonSchema) -> bool:
    choices = schema.get("anyOf")
    return not schema or (isinstance(choices, list) and any(c == {} for c in choices))


def _of_keyword(keyword: str, read: JsonSchema, found: JsonSchema) -> _Difference:
    if keyword == "type":
        return _Difference(_short(read), _short(found))
    sides = [
        f"{keyword} {_text(side[keyword])}" if keyword in side else f"no {keyword}"
        for side in (read, found)
    ]
    return _Difference(*sides)


def _canonical(value: Any) -> str:
    # Lists are compared like sets.
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{key!r}:{_canonical(value[key])}' for key in value))}}}"
    if isinstance(value, list):
        return f"[{','.join(sorted(set(map(_canonical, value))))}]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _short(schema: Any) -> str:
    if not isinstance(schema, dict):
        return _text(schema)
    for keyword in _UNIONS:
        if isinstance(schema.get(keyword), list):
            return _cut(" or ".join(_short(choice) for choice in schema[keyword][:10]))
    if "const" in schema:
        return _text(schema["const"])
    if isinstance(schema.get("enum"), list):
        return _cut("one of " + ", ".join(map(_text, schema["enum"][:10])))
    if "$ref" in schema:
        return _cut(str(schema["$ref"]).removeprefix(_DEFS))
    return _cut(str(schema.get("type", "anything")))


def _text(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
