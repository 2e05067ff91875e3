"""Random schemas of the kinds that pydantic and people write, each with values it accepts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        *("a", "b", "c", "kind", "key", "value", "item_0", "option_1", "arguments", "items"),
        *("a-b", "a_b", "$ref", "$x", "1st", "ünï", "with space", "additional_properties", ""),
        *("type", "properties", "default", "const", "x" * 70, "~/", "more_items"),
    ]
)


@dataclass(frozen=True)
class Shape:
    """A schema and a strategy for values that it accepts."""

    schema: dict[str, Any]
    values: st.SearchStrategy[Any]


Maker = Callable[[st.DrawFn, int, dict[str, Any]], Shape]


def _string(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    low = draw(st.integers(0, 3))
    return draw(
        st.sampled_from(
            [
                Shape({"type": "string"}, st.text(max_size=5)),
                Shape(
                    {"type": "string", "minLength": low, "maxLength": low + 2},
                    st.text(min_size=low, max_size=low + 2),
                ),
                Shape({"type": "string", "format": "date"}, st.dates().map(str)),
                Shape({"type": "string", "format": "uri"}, st.just("https://example.com/")),
                Shape({"type": "string", "pattern": "^[a-c]+$"}, st.text("abc", min_size=1)),
                Shape({"type": "string", "pattern": "^(?=a)"}, st.just("abc")),
                Shape({"type": "string", "description": "Some text."}, st.text(max_size=2)),
            ]
        )
    )


def _number(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    return draw(
        st.sampled_from(
            [
                Shape({"type": "integer"}, st.integers(-(2**70), 2**70)),
                Shape({"type": "integer", "minimum": 1, "maximum": 9}, st.integers(1, 9)),
                Shape({"type": "integer", "exclusiveMinimum": 0}, st.integers(1, 99)),
                Shape(
                    {"type": "integer", "multipleOf": 5}, st.integers(-9, 9).map(lambda n: n * 5)
                ),
                Shape({"type": "number"}, st.floats(-1e9, 1e9) | st.integers(-9, 9)),
                Shape({"type": "number", "exclusiveMaximum": 1.5}, st.floats(-9, 1)),
                Shape({"type": "boolean"}, st.booleans()),
                Shape({"type": ["integer", "null"], "minimum": 0}, st.none() | st.integers(0, 5)),
                Shape(
                    {"type": ["string", "array"], "maxLength": 2, "items": {"type": "boolean"}},
                    st.text(max_size=2) | st.lists(st.booleans(), max_size=2),
                ),
            ]
        )
    )


def _enum(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    values: list[Any] = draw(
        st.sampled_from(
            [
                *(["EUR", "USD"], [1, 2, 3], ["1", 1], ["a", None], [1, None], [None], [True]),
                *([True, False, "true"], [1.5, 2], [{"a": 1}, [1]], ["x", {"a": []}, None]),
            ]
        )
    )
    if len(values) == 1 or draw(st.booleans()):
        value = values[0]
        return Shape({"const": value}, st.just(value))
    typed: dict[str, Any] = {"type": "string"} if values == ["EUR", "USD"] else {}
    return Shape({"enum": values, **typed}, st.sampled_from(values))


def _anything(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    return draw(
        st.sampled_from(
            [
                Shape({}, JSON),
                Shape({"type": "object"}, st.dictionaries(st.text(), JSON, max_size=3)),
                Shape(
                    {"type": "object", "additionalProperties": True},
                    st.dictionaries(st.text(), JSON, max_size=3),
                ),
                Shape({"type": "array", "items": {}}, st.lists(JSON, max_size=3)),
                Shape({"not": {"type": "string"}}, st.integers()),
                Shape({"type": "string", "not": {"const": "x"}}, st.text("ab", max_size=3)),
            ]
        )
    )


def _list(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    inner = shape(draw, depth - 1, defs)
    low = draw(st.integers(0, 2))
    bounds = draw(st.sampled_from([{}, {"minItems": low}, {"minItems": low, "maxItems": low + 2}]))
    schema = {"type": "array", "items": inner.schema, **bounds}
    return Shape(
        schema, st.lists(inner.values, min_size=bounds.get("minItems", 0), max_size=low + 2)
    )


def _set(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    return Shape(schema, st.lists(st.text(max_size=3), unique=True, max_size=3))


def _tuple(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    parts = [shape(draw, depth - 1, defs) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        parts = [parts[0]] * len(parts)
    size = len(parts)
    least = draw(st.integers(0, size))
    schema: dict[str, Any] = {"type": "array", "prefixItems": [part.schema for part in parts]}
    fixed = st.tuples(*(part.values for part in parts)).map(list)
    style = draw(st.sampled_from(["fixed", "short", "more", "open"]))
    if style == "fixed":
        return Shape({**schema, "minItems": size, "maxItems": size}, fixed)
    cut = st.builds(lambda items, n: items[:n], fixed, st.integers(least, size))
    if style == "short":
        return Shape({**schema, "minItems": least, "maxItems": size}, cut)
    rest = shape(draw, depth - 1, defs) if style == "more" else Shape({}, JSON)
    if style == "more":
        schema["items"] = rest.schema
    longer = st.builds(lambda a, b: a + b, fixed, st.lists(rest.values, max_size=2))
    return Shape({**schema, "minItems": least}, cut | longer)


def _dict(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    inner = shape(draw, depth - 1, defs)
    keys: Any
    schema: Any
    schema, keys = draw(
        st.sampled_from(
            [
                ({"additionalProperties": inner.schema}, st.text(max_size=4)),
                ({"additionalProperties": inner.schema, "maxProperties": 3}, st.text(max_size=4)),
                (
                    {
                        "additionalProperties": inner.schema,
                        "propertyNames": {"enum": ["x", "key", "value"]},
                    },
                    st.sampled_from(["x", "key", "value"]),
                ),
                (
                    {"additionalProperties": inner.schema, "propertyNames": {"maxLength": 2}},
                    st.text(max_size=2),
                ),
                ({"patternProperties": {"^[ab]+$": inner.schema}}, st.text("ab", min_size=1)),
            ]
        )
    )
    return Shape({"type": "object", **schema}, st.dictionaries(keys, inner.values, max_size=3))


def _optional(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    inner = shape(draw, depth - 1, defs)
    return Shape({"anyOf": [inner.schema, {"type": "null"}]}, inner.values | st.none())


def _union(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    parts = [shape(draw, depth - 1, defs) for _ in range(draw(st.integers(2, 3)))]
    return Shape(
        {"anyOf": [part.schema for part in parts]}, st.one_of(*(part.values for part in parts))
    )


def members(draw: st.DrawFn, depth: int, defs: dict[str, Any], tag: str | None = None) -> Shape:
    """An object with properties of every kind of optionality."""
    required: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    null_defaults: set[str] = set()
    if tag is not None:
        properties["kind"] = {"const": tag, "type": "string"}
        required["kind"] = st.just(tag)
    for name in draw(st.lists(NAMES, unique=True, max_size=4)):
        if name in properties:
            continue
        part = shape(draw, depth - 1, defs)
        how = draw(st.sampled_from(["required", "optional", "default", "null"]))
        schema = dict(part.schema)
        if how == "required":
            required[name] = part.values
        else:
            optional[name] = part.values
        if how == "default":
            schema["default"] = draw(st.sampled_from([0, "x", [], {}]))
        if how == "null":
            schema = {"anyOf": [schema, {"type": "null"}], "default": None}
            null_defaults.add(name)
        properties[name] = schema
    object_schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        object_schema["required"] = list(required)

    def normal(value: dict[str, Any]) -> dict[str, Any]:
        # An explicit null and absence are the same where null is the default.
        return {k: v for k, v in value.items() if not (k in null_defaults and v is None)}

    values = st.fixed_dictionaries(required, optional=optional).map(normal)
    style = draw(st.sampled_from(["silent", "closed", "closed", "open", "typed"]))
    if style == "closed":
        object_schema["additionalProperties"] = False
    if style in ("open", "typed"):
        rest = shape(draw, depth - 1, defs) if style == "typed" else Shape({}, JSON)
        object_schema["additionalProperties"] = rest.schema if style == "typed" else True
        known = frozenset(properties)
        keys = (st.text(max_size=3) | NAMES).filter(lambda key: key not in known)
        others = st.dictionaries(keys, rest.values, max_size=2)
        values = st.builds(lambda a, b: {**a, **b}, values, others)
    return Shape(object_schema, values)


def _tagged_union(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    parts = [members(draw, depth - 1, defs, tag) for tag in ("cat", "dog")]
    kinds = [part.schema for part in parts]
    values = st.one_of(*(part.values for part in parts))
    return Shape({"oneOf": kinds, "discriminator": {"propertyName": "kind"}}, values)


def _reference(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    name = f"Model{len(defs)}"
    defs[name] = {}
    inner = shape(draw, depth - 1, defs)
    defs[name] = inner.schema
    site: Any = draw(
        st.sampled_from(
            [
                {"$ref": f"#/$defs/{name}"},
                {"$ref": f"#/$defs/{name}", "description": "A thing."},
                {"allOf": [{"$ref": f"#/$defs/{name}"}], "description": "A thing."},
            ]
        )
    )
    return Shape(site, inner.values)


def _again(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    """A second use of a definition, or of a place that is none."""
    first = _reference(draw, depth, defs)
    defs["Spare"] = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}}
    spare = Shape({"$ref": "#/$defs/Spare/properties/x"}, st.integers(1, 5))
    second = draw(st.sampled_from([first, spare]))
    schema = {
        "type": "object",
        "properties": {"p": first.schema, "q": second.schema},
        "additionalProperties": False,
    }
    values = st.fixed_dictionaries({}, optional={"p": first.values, "q": second.values})
    return Shape(schema, values)


def _overlapping(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    """Alternatives that share values, with constraints beside them."""
    inner = shape(draw, depth - 1, defs)
    mapping = {"type": "object", "additionalProperties": inner.schema}
    pairs = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"key": {"type": "string"}, "value": inner.schema},
            "required": ["key", "value"],
            "additionalProperties": False,
        },
    }
    pair = st.fixed_dictionaries({"key": st.text(max_size=2), "value": inner.values})
    sided = {
        "type": "object",
        "properties": {"a": inner.schema, "b": {"type": "boolean"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    sided_values = st.fixed_dictionaries({"a": inner.values}, optional={"b": st.booleans()})
    shapes: list[Shape] = [
        Shape(mapping, st.dictionaries(st.text(max_size=2), inner.values, max_size=2)),
        Shape(pairs, st.lists(pair, max_size=2)),
        Shape(sided, sided_values | st.fixed_dictionaries({"b": st.booleans()})),
        Shape({"type": "string"}, st.text(max_size=4) | st.just("null") | st.just("{}")),
        Shape({"type": "number"}, st.integers(0, 3)),
        Shape({"type": "integer"}, st.integers(0, 3)),
        inner,
    ]
    chosen = draw(st.lists(st.sampled_from(shapes), min_size=2, max_size=4))
    keyword = draw(st.sampled_from(["anyOf", "anyOf", "oneOf"]))
    return Shape(
        {keyword: [part.schema for part in chosen]}, st.one_of(*(part.values for part in chosen))
    )


def _recursive(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    name = f"Node{len(defs)}"
    defs[name] = {}
    ref: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
    payload = shape(draw, depth - 1, defs)
    kind = draw(st.sampled_from(["next", "children", "mapping", "json", "missing", "nullable"]))
    values: st.SearchStrategy[Any]
    if kind == "json":
        leaf: list[Any] = [{"type": "string"}, {"type": "integer"}, {"type": "null"}]
        array = {"type": "array", "items": ref}
        mapping = {"type": "object", "additionalProperties": ref}
        defs[name] = {"anyOf": [*leaf, array, mapping]}
        values = st.recursive(
            st.text(max_size=2) | st.integers(-9, 9) | st.none(),
            lambda v: st.lists(v, max_size=2) | st.dictionaries(st.text(max_size=2), v, max_size=2),
            max_leaves=4,
        )
        return Shape(ref, values)
    kinds: dict[str, dict[str, Any]] = {
        "next": {"anyOf": [ref, {"type": "null"}], "default": None},
        "children": {"type": "array", "items": ref},
        "mapping": {"type": "object", "additionalProperties": ref},
        "missing": ref,
        "nullable": {"anyOf": [ref, {"type": "null"}]},
    }
    inside = kinds[kind]
    defs[name] = {
        "type": "object",
        "properties": {"v": payload.schema, "n": inside},
        "required": ["v"],
    }
    base = st.fixed_dictionaries({"v": payload.values})

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        below = {
            "next": inner,
            "children": st.lists(inner, max_size=2),
            "mapping": st.dictionaries(st.text(max_size=2), inner, max_size=2),
            "missing": inner,
            "nullable": inner | st.none(),
        }[kind]
        return st.fixed_dictionaries({"v": payload.values}, optional={"n": below})

    once = grow(base)
    return Shape(ref, base | once | grow(once))


def _intersection(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    left = Shape({"type": "object", "properties": {"a": {"type": "integer"}}}, st.none())
    right = shape(draw, depth - 1, defs)
    schema = {
        "allOf": [
            left.schema,
            {"type": "object", "properties": {"b": right.schema}, "required": ["b"]},
        ]
    }
    values = st.fixed_dictionaries({"b": right.values}, optional={"a": st.integers(0, 3)})
    return Shape(schema, values)


_LEAVES: list[Maker] = [_string, _number, _enum, _anything, _set]
_NESTED: list[Maker] = [
    *(_list, _tuple, _dict, _optional, _union, _tagged_union, members),
    *(_reference, _recursive, _intersection, _again, _overlapping),
]


def shape(draw: st.DrawFn, depth: int, defs: dict[str, Any]) -> Shape:
    """Any shape, at most `depth` levels deep."""
    makers = [*_LEAVES, *_NESTED, *_NESTED] if depth > 0 else _LEAVES
    maker: Maker = draw(st.sampled_from(makers))
    return maker(draw, depth, defs)


@st.composite
def parameters(draw: st.DrawFn) -> Shape:
    """A tool's parameters: mostly plain objects, at times something odd at the root."""
    defs: dict[str, Any] = {}
    makers: list[Maker] = [*[members] * 6, _dict, _tagged_union, _intersection]
    maker: Maker = draw(st.sampled_from(makers))
    found = maker(draw, 3, defs)
    if draw(st.integers(0, 9)) == 0:
        defs["Root"] = found.schema
        return Shape({"$ref": "#/$defs/Root", "$defs": defs}, found.values)
    return Shape({**found.schema, **({"$defs": defs} if defs else {})}, found.values)
