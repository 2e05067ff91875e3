"""Whether a schema that was read from source fits the function that was imported.

The imported function is described parameter by parameter, each with pydantic's schema of its
own. Held against each other is what decides whether a call succeeds: names, what is required,
types, constraints, defaults. Titles, descriptions, examples, the names of definitions and any
order are not. A schema without constraints agrees with everything: the reader leaves open what
it cannot follow, and pydantic what it does not know. Where both are too large or too deep to
be walked through, no difference is found. A difference that is missed costs less than one
that is not there, because a finding keeps a tool from being served.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from toolkiln.model import JsonSchema

_DEFS = "#/$defs/"
_CHOICES = ("anyOf", "oneOf")
_PLAIN = (
    "type", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties",
)  # fmt: skip
_WITHIN = ("items", "propertyNames", "additionalProperties")
_MEANING = {
    *_PLAIN, *_CHOICES, *_WITHIN, "enum", "const", "properties", "prefixItems", "required",
    "$ref",
}  # fmt: skip
_MOST_STEPS = 5_000
_DEEPEST = 60
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class RuntimeParameter:
    """One parameter as the imported function has it."""

    name: str
    """As callers write it: an alias, where there is one."""
    required: bool
    described: JsonSchema | None = None
    """Pydantic's schema of it, with its own definitions; None where there is none."""


@dataclass(frozen=True, slots=True)
class RuntimeSignature:
    """What the imported function takes."""

    parameters: tuple[RuntimeParameter, ...]
    takes_any: bool
    """Whether it takes arguments of any name."""
    by_hand: bool
    """Whether the author wrote the schema: then only names and needs have to fit."""


def disagreements(read: JsonSchema, found: RuntimeSignature) -> list[str]:
    """Where they do not fit each other, in words; each names the parameter."""
    properties = read.get("properties")
    if not isinstance(properties, dict):
        return []
    return list(_disagreements(read, properties, found))


def _disagreements(
    read: JsonSchema, properties: dict[str, Any], found: RuntimeSignature
) -> Iterator[str]:
    needed = _required(read)
    by_name = {parameter.name: parameter for parameter in found.parameters}
    if not found.takes_any:
        for name in [name for name in properties if name not in by_name]:
            yield f"parameter {name!r}: the imported function does not take it"
    for name, parameter in by_name.items():
        if name not in properties:
            if parameter.required:
                yield f"parameter {name!r}: the imported function needs it, the schema has none"
            elif not found.by_hand and not found.takes_any:  # else it may be a wrapper's `*args`
                yield f"parameter {name!r}: the imported function takes it, the schema has none"
        elif parameter.required and name not in needed:
            yield f"parameter {name!r}: optional in the schema, required when imported"
        elif found.by_hand:
            continue
        elif not parameter.required and name in needed:
            yield f"parameter {name!r}: required in the schema, optional when imported"
        elif parameter.described is not None:
            comparison = _Comparison(read, parameter.described)
            difference = comparison.difference(properties[name], parameter.described)
            if difference is not None:
                yield f"parameter {name!r}{difference.where}: {difference.told}"


def _required(schema: JsonSchema) -> set[str]:
    given = schema.get("required")
    return {name for name in given if isinstance(name, str)} if isinstance(given, list) else set()


class _Difference(NamedTuple):
    """The first place where two schemas part."""

    read: str
    found: str
    where: str = ""

    @property
    def told(self) -> str:
        return f"{self.read} in the schema, {self.found} when imported"

    def below(self, where: str) -> "_Difference":
        return self._replace(where=f" › {where}{self.where}")


class _Comparison:
    """One walk through two schemas side by side, of bounded length."""

    def __init__(self, read: JsonSchema, found: JsonSchema) -> None:
        self._read = _definitions(read)
        self._found = _definitions(found)
        self._assumed: set[tuple[str, str]] = set()
        """Pairs of definitions that are being compared, or were."""
        self._texts: dict[int, str] = {}
        """What lists and objects come to: definitions are met again and again."""
        self._steps = 0

    def difference(self, read: Any, found: Any, depth: int = 0) -> _Difference | None:
        """Where they part; None if nowhere."""
        self._steps += 1
        if self._steps > _MOST_STEPS or depth > _DEEPEST or read is True or found in (True, None):
            return None
        if not isinstance(read, dict) or not isinstance(found, dict):
            return None if read == found else _Difference(_short(read), _short(found))
        if parted := self._defaults(read, found):
            return parted
        if "$ref" in read and "$ref" in found:
            pair = str(read["$ref"]), str(found["$ref"])
            if pair in self._assumed:
                return None
            self._assumed.add(pair)
        read, found = _resolved(read, self._read), _resolved(found, self._found)
        if _is_open(read) or _is_open(found):
            return None
        if self._values(read) != self._values(found):
            return _Difference(_short(read), _short(found))
        for keyword in _PLAIN:
            if _canonical(read.get(keyword)) != _canonical(found.get(keyword)):
                return _of_keyword(keyword, read, found)
        return self._inside(read, found, depth + 1)

    def _inside(self, read: JsonSchema, found: JsonSchema, depth: int) -> _Difference | None:
        for keyword in _WITHIN:
            one, other = read.get(keyword, True), found.get(keyword, True)
            if parted := self.difference(one, other, depth):
                return parted.below(keyword)
        for keyword in _CHOICES:
            if not self._is_same_choice(read.get(keyword), found.get(keyword), depth):
                return _Difference(_short(read), _short(found))
        firsts, others = read.get("prefixItems", []), found.get("prefixItems", [])
        if not isinstance(firsts, list) or not isinstance(others, list):
            return None
        if len(firsts) != len(others):
            return _Difference(f"{len(firsts)} items", f"{len(others)} items")
        for index, (one, other) in enumerate(zip(firsts, others, strict=True)):
            if parted := self.difference(one, other, depth):
                return parted.below(f"item {index}")
        return self._properties(read, found, depth)

    def _properties(self, read: JsonSchema, found: JsonSchema, depth: int) -> _Difference | None:
        ones, others = read.get("properties", {}), found.get("properties", {})
        if not isinstance(ones, dict) or not isinstance(others, dict):
            return None
        for name in sorted(ones.keys() ^ others.keys()):
            told = ("there", "missing") if name in ones else ("missing", "there")
            return _Difference(*told).below(name)
        for name in sorted(_required(read) ^ _required(found)):
            told = ("required", "optional")
            return _Difference(*(told if name in _required(read) else told[::-1])).below(name)
        for name in ones:
            if parted := self.difference(ones[name], others[name], depth):
                return parted.below(name)
        return None

    def _is_same_choice(self, read: Any, found: Any, depth: int) -> bool:
        """Whether each member has its match; `typing` may have put them into another order."""
        if not isinstance(read, list) or not isinstance(found, list):
            return type(read) is type(found)
        if len(read) != len(found):
            return False
        rest = dict.fromkeys(range(len(found)))
        for index, one in enumerate(read):
            # The likeliest first: the order is nearly always the same.
            candidates = chain((index,) if index in rest else (), rest)
            match = (at for at in candidates if self.difference(one, found[at], depth) is None)
            if (at := next(match, None)) is None:
                return False
            del rest[at]
        return True

    def _defaults(self, read: JsonSchema, found: JsonSchema) -> _Difference | None:
        """Where only one side has a default, the other could not know it or not write it down."""
        if "default" not in read or "default" not in found:
            return None
        if self._canonical(read["default"]) == self._canonical(found["default"]):
            return None
        return _of_keyword("default", read, found)

    def _values(self, schema: JsonSchema) -> str | None:
        """The values that `const` or `enum` allows."""
        if "const" in schema:
            return f"[{self._canonical(schema['const'])}]"
        return self._canonical(schema["enum"]) if "enum" in schema else None

    def _canonical(self, value: Any) -> str:
        if not isinstance(value, list | dict):
            return _canonical(value)
        if id(value) not in self._texts:
            self._texts[id(value)] = _canonical(value)
        return self._texts[id(value)]


def _definitions(schema: JsonSchema) -> dict[str, Any]:
    definitions = schema.get("$defs")
    return definitions if isinstance(definitions, dict) else {}


def _resolved(schema: JsonSchema, definitions: dict[str, Any]) -> JsonSchema:
    """What of a schema is compared, with what it refers to in place of the reference."""
    meant: JsonSchema = {}
    for _ in range(_DEEPEST):
        meant = {key: schema[key] for key in _MEANING if key in schema} | meant
        pointer = meant.pop("$ref", None)
        if pointer is None:
            return meant
        name = str(pointer).removeprefix(_DEFS).replace("~1", "/").replace("~0", "~")
        target = definitions.get(name)
        if not isinstance(target, dict):
            break
        schema = target
    return {}


def _is_open(schema: JsonSchema) -> bool:
    """Whether it allows anything, as a whole or as one of its choices."""
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
    """One text for equal values; lists, which may be sets, by what is in them."""
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{key!r}:{_canonical(value[key])}' for key in value))}}}"
    if isinstance(value, list):
        return f"[{','.join(sorted(set(map(_canonical, value))))}]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _short(schema: Any) -> str:
    """A schema in a few words."""
    if not isinstance(schema, dict):
        return _text(schema)
    for keyword in _CHOICES:
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
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
