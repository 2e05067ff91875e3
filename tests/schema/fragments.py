"""Odd schemas: any combination of keywords."""

from typing import Any

from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 6) | st.sampled_from(["a", "b", "", "1", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "key", "value", "item_0"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "null", "boolean"])


def _with_type(node: dict[str, Any]) -> dict[str, Any]:
    # A schema with properties or items and no type is read as an object or an array.
    implied = {"properties": "object", "items": "array", "prefixItems": "array"}
    kind = next((kind for keyword, kind in implied.items() if keyword in node), None)
    return node if kind is None else {"type": kind, **node}


def _fragment(draw: st.DrawFn, depth: int) -> Any:
    leaf: Any = draw(st.sampled_from([{}, True, False, None, None, None]))
    if leaf is not None:
        return leaf
    if depth == 0:
        return {"type": draw(_TYPES)}
    keywords = draw(st.lists(st.sampled_from(_KEYWORDS), min_size=1, max_size=4, unique=True))
    return _with_type({keyword: _operand(draw, keyword, depth - 1) for keyword in keywords})


def _operand(draw: st.DrawFn, keyword: str, depth: int) -> Any:
    if keyword in _PLAIN:
        return draw(_PLAIN[keyword])
    if keyword in _LISTS:
        return [_fragment(draw, depth) for _ in range(draw(st.integers(1, 2)))]
    if keyword in _MAPS:
        names = draw(st.lists(st.sampled_from(_MAPS[keyword]), max_size=2, unique=True))
        return {name: _fragment(draw, depth) for name in names}
    return _fragment(draw, depth)


_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "type": _TYPES | st.lists(_TYPES, min_size=1, max_size=3, unique=True),
    "required": st.lists(st.sampled_from(["a", "b"]), max_size=1),
    "minProperties": st.integers(0, 1),
    "dependentRequired": st.just({"a": ["b"]}),
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(2, 3),
    "uniqueItems": st.booleans(),
    "enum": st.lists(VALUES, min_size=1, max_size=3),
    "const": VALUES,
    "$ref": st.sampled_from(["#/$defs/A", "#/$defs/B", "#"]),
    "minLength": st.integers(0, 1),
    "minimum": st.integers(0, 2),
    "default": VALUES.filter(lambda value: value is not None),
}
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = {
    "properties": ["a", "b", "key"],
    "patternProperties": ["^a", "b$"],
    "dependentSchemas": ["a"],
}
_SINGLES = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "contains"),
    *("not", "if", "then"),
)
_KEYWORDS = [*_PLAIN, *_LISTS, *_MAPS, *_SINGLES]


@st.composite
def fragments(draw: st.DrawFn) -> Any:
    """Any subschema, three levels deep at most."""
    return _fragment(draw, 3)
