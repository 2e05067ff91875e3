"""Shapes: the JSON Schema of a type with the kind of validator pydantic would use.

The kind matters because pydantic publishes the same constraint differently, or not at all,
for different validators. The rules reproduce pydantic's schemas exactly, oddities included.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from toolkiln.model.base import JsonSchema
from toolkiln.spec.annotations.evaluator import jsonable


class Unresolved(Exception):
    """The schema of a type cannot be determined statically."""

    def __init__(
        self,
        name: str,
        reason: str = "it is not defined in this folder",
        *,
        is_unpassable: bool = False,
    ) -> None:
        super().__init__(name)
        self.name = name
        self.reason = reason
        self.is_unpassable = is_unpassable
        """Whether it is known that no JSON value is of this type."""


class Omitted(Exception):
    """A type is excluded from schemas, such as `SkipJsonSchema`."""


class TypeShape:
    """A kind of validator with its schema."""

    __slots__ = ("inner", "kind", "schema")

    def __init__(self, kind: str, schema: JsonSchema, inner: "TypeShape | None" = None) -> None:
        self.kind = kind
        self.schema = schema
        """For a nullable shape, only the keywords beside its `anyOf`."""
        self.inner = inner
        """The non-null shape of a nullable shape."""

    def render(self) -> JsonSchema:
        """Return the JSON Schema; the caller may change it."""
        if self.inner is None:
            return self.schema
        inner = self.inner.render()
        rendered = NULL if inner == NULL else any_of([inner, NULL])
        return {**rendered, **self.schema}


NULL: JsonSchema = {"type": "null"}


def nullable(shape: TypeShape) -> TypeShape:
    """Return a shape that also accepts null."""
    is_plain = shape.kind == "nullable" and not shape.schema
    return shape if is_plain else TypeShape("nullable", {}, shape)


def any_of(members: Iterable[JsonSchema]) -> JsonSchema:
    """Combine schemas with `anyOf`; nested ones are flattened, duplicates dropped."""
    distinct: dict[str, JsonSchema] = {}
    for member in members:
        for item in member["anyOf"] if len(member) == 1 and "anyOf" in member else [member]:
            distinct.setdefault(repr(item), item)  # unlike ==, distinguishes 0 and False
    flat = list(distinct.values())
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def array(items: JsonSchema, kind: str = "list") -> TypeShape:
    """Return the shape of a list-like type."""
    schema: JsonSchema = {"type": "array", "items": items}
    if kind in ("set", "frozenset"):
        schema["uniqueItems"] = True
    return TypeShape(kind, schema)


def mapping(keys: JsonSchema, values: JsonSchema, kind: str = "dict") -> TypeShape:
    """Return the shape of a dict-like type."""
    keys, values = dict(keys), dict(values)
    pattern = None if "$ref" in keys else keys.pop("pattern", None)
    values.pop("title", None)
    schema: JsonSchema = {"type": "object"}
    if pattern is not None:
        schema["patternProperties"] = {pattern: values}
    else:
        schema["additionalProperties"] = values or True
    if "$ref" in keys or (keys.get("type") == "string" and len(keys) > 1):
        keys.pop("type", None)
        schema["propertyNames"] = keys
    return TypeShape(kind, schema)


_NUMERIC = {
    "multiple_of": "multipleOf",
    "le": "maximum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "gt": "exclusiveMinimum",
}
_LENGTH = {"min_length", "max_length"}
_TEXT = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_ITEMS = {"min_length": "minItems", "max_length": "maxItems"}
_PROPERTIES = {"min_length": "minProperties", "max_length": "maxProperties"}
_UNWRITTEN = dict.fromkeys(["le", "ge", "lt", "gt"], "")

_KEYWORDS: dict[str, dict[str, str]] = {
    "int": _NUMERIC,
    "float": _NUMERIC,
    "str": _TEXT,
    "bytes": {"min_length": "minLength", "max_length": "maxLength"},
    "url": {"max_length": "maxLength"},
    **dict.fromkeys(["list", "deque", "tuple", "set", "frozenset", "generator"], _ITEMS),
    **dict.fromkeys(["dict", "ordered-dict", "counter"], _PROPERTIES),
    **dict.fromkeys(("date", "time", "datetime"), _UNWRITTEN),
    "timedelta": {**_UNWRITTEN, "multiple_of": ""},
}
"""Constraints that each kind applies itself, with their keywords; "" if not published."""

_UNPUBLISHED = {"strict", "strip_whitespace", "to_lower", "to_upper", "union_mode",
                "coerce_numbers_to_str", "ascii_only", "allow_inf_nan", "fail_fast"}  # fmt: skip
CONSTRAINTS = {*_NUMERIC, *_LENGTH, "pattern", "max_digits", "decimal_places", *_UNPUBLISHED}


def constrain(shape: TypeShape, constraint: str, value: Any, *, serialized: bool) -> TypeShape:
    """Add a constraint to a shape as pydantic publishes it."""
    if value is None or constraint in _UNPUBLISHED:
        return shape
    if shape.inner is not None:
        inner = constrain(shape.inner, constraint, value, serialized=serialized)
        return TypeShape(shape.kind, shape.schema, inner)
    if shape.kind in ("decimal", "fraction"):
        return _numeric_or_text(shape, constraint, value, serialized=serialized)
    keyword = _KEYWORDS.get(shape.kind, {}).get(constraint)
    if keyword is not None:
        written = {keyword: jsonable(value)} if keyword else {}
        return TypeShape(shape.kind, {**shape.schema, **written})
    if constraint == "pattern":
        # A second validator in a chain: pydantic publishes its input or its output.
        text = {"type": "string", "pattern": value}
        return TypeShape("chain", text if serialized else shape.schema)
    kind = shape.kind.removeprefix("after ")
    if constraint in _LENGTH:
        keyword = (_ITEMS if kind in ("list", "sequence") else _TEXT)[constraint]
    else:
        keyword = constraint
    return TypeShape(f"after {kind}", {**shape.schema, keyword: jsonable(value)})


def _numeric_or_text(
    shape: TypeShape, constraint: str, value: Any, *, serialized: bool
) -> TypeShape:
    keyword = _NUMERIC.get(constraint)
    if constraint in ("max_digits", "decimal_places") and shape.kind == "decimal":
        return shape
    if keyword is None or (shape.kind == "fraction" and constraint == "multiple_of"):
        return constrain(TypeShape("after", shape.schema), constraint, value, serialized=serialized)
    if serialized:
        return shape
    number, text = shape.schema["anyOf"]
    number = {**number, keyword: float(value)}
    return TypeShape(shape.kind, {**shape.schema, "anyOf": [number, text]})


_PREFIX = "#/$defs/"


class Definitions:
    """Definitions available for the `$defs` of schemas, by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, JsonSchema] = {}
        self.properties: dict[str, dict[str, str]] = {}
        """Property names by class and field."""
        self.aliases: dict[str, TypeShape] = {}
        """Shapes of the definitions that are type aliases."""
        self._names: dict[Hashable, str] = {}

    def define(
        self, key: Hashable, name: str, kind: str, build: Callable[[], JsonSchema]
    ) -> TypeShape:
        """Return a reference to the definition of `key`, building it on first use."""
        if key not in self._names:
            unique = self._unique(re.sub(r"[^a-zA-Z0-9.\-_]", "_", name))
            self._names[key] = unique
            self.schemas[unique] = {}
            try:
                self.schemas[unique] = build()
            except (Unresolved, Omitted):
                del self._names[key], self.schemas[unique]
                raise
        return TypeShape(kind, {"$ref": _PREFIX + self._names[key]})

    def name(self, key: Hashable) -> str:
        """Return the name of a definition, which may still be under construction."""
        return self._names[key]

    def attach(self, schema: JsonSchema) -> JsonSchema:
        """Add the definitions that a schema refers to."""
        return _attached(schema, self._reached(schema)) if self.schemas else schema

    def as_root(self, schema: JsonSchema) -> JsonSchema:
        """Add definitions to a schema; replace a mere reference with its definition."""
        reached = self._reached(schema)
        if len(schema) == 1 and "$ref" in schema:
            name = target(schema)
            if name not in references(list(reached.values())):
                return _attached(dict(reached.pop(name)), reached)
        return _attached(schema, reached)

    def _reached(self, schema: JsonSchema) -> dict[str, JsonSchema]:
        reached: dict[str, JsonSchema] = {}
        pending = list(references(schema))
        while pending:
            name = pending.pop()
            if name not in reached:
                reached[name] = self.schemas[name]
                pending += references(reached[name])
        for name in [n for n in reached if n in self.aliases and set(reached[n]) == {"$ref"}]:
            # An alias that is the only reference to a class replaces that class.
            aliased = target(reached[name])
            everywhere = [*references(schema), *references(list(reached.values()))]
            is_recursive = name == aliased or name in references(reached[aliased])
            if everywhere.count(aliased) == 1 and not is_recursive and aliased != "JsonValue":
                reached[name] = reached.pop(aliased)
        return reached

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self.schemas:
            candidate, number = f"{name}_{number}", number + 1
        return candidate


def _attached(schema: JsonSchema, reached: dict[str, JsonSchema]) -> JsonSchema:
    if reached:
        schema["$defs"] = {name: reached[name] for name in sorted(reached)}
    return schema


def target(schema: JsonSchema) -> str:
    """Return the name of the definition that a schema refers to."""
    return str(schema.get("$ref", "")).removeprefix(_PREFIX)


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to, with repetitions."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_PREFIX)
        for value in schema.values():
            if value.__class__ in (dict, list):
                yield from references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from references(item)


def discriminated(shape: TypeShape, field: str | None, definitions: Definitions) -> TypeShape:
    """Return a union as `oneOf`, with a mapping of tags if a field is the discriminator."""
    if shape.inner is not None:
        inner = discriminated(shape.inner, field, definitions)
        return TypeShape("nullable", shape.schema, inner)
    rendered = dict(shape.render())
    members = rendered.pop("anyOf", None)
    if members is None:
        members, rendered = [rendered], {}
    if field is None:
        return TypeShape("tagged-union", {**rendered, "oneOf": members})
    choices: list[JsonSchema] = []
    mapping: dict[str, Any] = {}
    property_name = field
    for member in _flattened(members, field):
        for name in _definitions(member):
            property_name = definitions.properties.get(name, {}).get(field, field)
            properties = definitions.schemas.get(name, {}).get("properties", {})
            for tag in _tags(properties.get(property_name, {}), definitions.schemas):
                mapping[tag] = member.get("$ref", member)
        if member not in choices:
            choices.append(member)
    schema = {
        **rendered,
        "oneOf": choices,
        "discriminator": {"propertyName": property_name, "mapping": mapping},
    }
    return TypeShape("tagged-union", schema)


def _flattened(members: list[JsonSchema], field: str) -> list[JsonSchema]:
    """Flatten inner unions with the same discriminator."""
    flat: list[JsonSchema] = []
    for member in members:
        is_same = member.get("discriminator", {}).get("propertyName") == field
        flat += member["oneOf"] if is_same else [member]
    return flat


def _definitions(member: JsonSchema) -> list[str]:
    if "$ref" in member:
        return [target(member)]
    return [name for inner in member.get("oneOf", []) for name in _definitions(inner)]


def _tags(schema: JsonSchema, definitions: dict[str, JsonSchema]) -> list[str]:
    if "$ref" in schema:
        schema = definitions.get(target(schema), {})
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return [_tag(value) for value in values]


def _tag(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
