"""The shape of a type: its JSON Schema, and what pydantic would build for it.

The kind is needed because the same constraint is written differently, or not at all,
depending on the validator that it meets. The rules follow pydantic's, oddities included:
equality with its schemas is what is tested.
"""

from collections.abc import Iterable
from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations.values import jsonable


class Unresolved(Exception):
    """A type whose schema cannot be known statically."""

    def __init__(self, name: str, reason: str = "it comes from elsewhere") -> None:
        super().__init__(name)
        self.name = name
        self.reason = reason


class Omitted(Exception):
    """A type that asks not to be seen in a schema."""


class Shape:
    """A kind of validator with the schema it publishes."""

    __slots__ = ("inner", "kind", "schema")

    def __init__(self, kind: str, schema: JsonSchema, inner: "Shape | None" = None) -> None:
        self.kind = kind
        self.schema = schema
        """Of a nullable shape only what is written beside its `anyOf`."""
        self.inner = inner
        """What may be null, of a nullable shape."""

    def render(self) -> JsonSchema:
        """The JSON Schema, to be owned by the caller."""
        if self.inner is None:
            return self.schema
        inner = self.inner.render()
        rendered = NULL if inner == NULL else any_of([inner, NULL])
        return {**rendered, **self.schema}


NULL: JsonSchema = {"type": "null"}


def nullable(shape: Shape) -> Shape:
    """The shape that also takes null."""
    plain = shape.kind == "nullable" and not shape.schema
    return shape if plain else Shape("nullable", {}, shape)


def any_of(members: Iterable[JsonSchema]) -> JsonSchema:
    """One of several schemas: nested alternatives flattened, duplicates dropped."""
    distinct: dict[str, JsonSchema] = {}
    for member in members:
        for item in member["anyOf"] if len(member) == 1 and "anyOf" in member else [member]:
            distinct.setdefault(repr(item), item)  # unlike equality, tells 0 from False
    flat = list(distinct.values())
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def array(items: JsonSchema, kind: str = "list", *, unique: bool = False) -> Shape:
    """A list-like shape."""
    schema: JsonSchema = {"type": "array", "items": items}
    if unique:
        schema["uniqueItems"] = True
    return Shape(kind, schema)


def mapping(keys: JsonSchema, values: JsonSchema, kind: str = "dict") -> Shape:
    """A dict-like shape."""
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
    return Shape(kind, schema)


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
"""What each kind takes directly, and the keyword it becomes; empty where it is not written."""

_TRANSPARENT = {"strict", "strip_whitespace", "to_lower", "to_upper", "union_mode",
                "coerce_numbers_to_str", "ascii_only", "allow_inf_nan", "fail_fast"}  # fmt: skip
CONSTRAINTS = {*_NUMERIC, *_LENGTH, "pattern", "max_digits", "decimal_places", *_TRANSPARENT}


def constrain(shape: Shape, constraint: str, value: Any, *, serialized: bool) -> Shape:
    """The shape with one constraint more, the way pydantic publishes it."""
    if value is None or constraint in _TRANSPARENT:
        return shape
    if shape.inner is not None:
        inner = constrain(shape.inner, constraint, value, serialized=serialized)
        return Shape(shape.kind, shape.schema, inner)
    if shape.kind in ("decimal", "fraction"):
        return _numeric_or_text(shape, constraint, value, serialized=serialized)
    keyword = _KEYWORDS.get(shape.kind, {}).get(constraint)
    if keyword is not None:
        written = {keyword: jsonable(value)} if keyword else {}
        return Shape(shape.kind, {**shape.schema, **written})
    if constraint == "pattern":
        # A second validator in a chain: what is read is published, or what is written.
        text = {"type": "string", "pattern": value}
        return Shape("chain", text if serialized else shape.schema)
    kind = shape.kind.removeprefix("after ")
    if constraint in _LENGTH:
        keyword = (_ITEMS if kind in ("list", "sequence") else _TEXT)[constraint]
    else:
        keyword = constraint
    return Shape(f"after {kind}", {**shape.schema, keyword: jsonable(value)})


def _numeric_or_text(shape: Shape, constraint: str, value: Any, *, serialized: bool) -> Shape:
    keyword = _NUMERIC.get(constraint)
    if constraint in ("max_digits", "decimal_places") and shape.kind == "decimal":
        return shape
    if keyword is None or (shape.kind == "fraction" and constraint == "multiple_of"):
        return constrain(Shape("after", shape.schema), constraint, value, serialized=serialized)
    if serialized:
        return shape
    number, text = shape.schema["anyOf"]
    number = {**number, keyword: float(value)}
    return Shape(shape.kind, {**shape.schema, "anyOf": [number, text]})
