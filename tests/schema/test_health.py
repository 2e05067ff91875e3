from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from properties import examples
from tables import each_row
from toolkiln.model.spec import HealthLevel, SchemaHealth
from toolkiln.schema.providers.compilers import health

from .shapes import JSON, Shape, parameters
from .specs import params

STRICT = HealthLevel.STRICT_COMPLIANT
LOOSE = HealthLevel.NON_STRICT_ONLY
INVALID = HealthLevel.INVALID
NODE = {
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "required": ["children"],
    "additionalProperties": False,
}


@each_row(
    "schema",
    [
        {"type": "integer", "default": 3},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
        {"type": "string", "minLength": 3, "format": "uri"},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "string"}, {}], "maxItems": 1, "minItems": 1},
        {"$ref": "#/$defs/Node"},
        {"enum": ["a", 1, None]},
        {"allOf": [{"$ref": "#/$defs/Node"}], "description": "A tree."},
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}},
    ],
)
def test_a_schema_that_strict_mode_can_express_is_compliant(schema: dict[str, Any]) -> None:
    found = health({**params(x=schema), "$defs": {"Node": NODE}})

    assert found == SchemaHealth(level=STRICT)


@each_row(
    "schema, path, word",
    [
        ({}, "/properties/x", "any type"),
        (True, "/properties/x", "any value"),
        ({"type": "object"}, "/properties/x", "any properties"),
        ({"type": "object", "additionalProperties": True}, "/properties/x", "any properties"),
        ({"type": "array"}, "/properties/x/items", "any value"),
        ({"type": "string", "not": {"const": "x"}}, "/properties/x", "'not'"),
        (
            {"type": "object", "patternProperties": {"^a": {}, "^b": {}}},
            "/properties/x",
            "'patternProperties'",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "if": {"required": ["a"]}},
            "/properties/x",
            "'if'",
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}},
            "/properties/x",
            "'contains'",
        ),
    ],
)
def test_a_part_that_strict_mode_cannot_enforce_is_reported(
    schema: Any, path: str, word: str
) -> None:
    found = health(params(x=schema))

    assert found.level is LOOSE
    assert path in [point.path for point in found.points]
    assert any(word in point.reason for point in found.points)


def test_sizes_beyond_strict_mode_are_not_compliant() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        deep = {"type": "array", "items": deep}
    many = {"enum": [f"value {n}" for n in range(1001)]}

    assert [p.reason for p in health(params(x=deep)).points] == [
        "it has 12 levels of nesting, strict mode allows 10"
    ]
    assert "1,001 enum values" in health(params(("x",), x=many)).points[0].reason


@each_row(
    "parameters, path, word",
    [
        ([], "", "not a JSON object"),
        (None, "", "not a JSON object"),
        ({}, "", "not declared"),
        ({"type": "array"}, "", "'array'"),
        ({"type": "foo"}, "/type", "seven JSON types"),
        (params(x={"minLength": -1}), "/properties/x/minLength", "2020-12"),
        (params(x=5), "/properties/x", "2020-12"),
        (params(x={"type": "array", "items": [{}]}), "/properties/x/items", "2020-12"),
        (params(x={"$ref": "#/$defs/No"}), "/properties/x", "has no target"),
        (params(x={"$ref": "http://a/b"}), "/properties/x", "is external"),
        (params(x={"$ref": "#anchor"}), "/properties/x", "JSON pointer"),
        (params(x={"default": {}, "$ref": "#/properties/x/default"}), "/properties/x", "a schema"),
        (params(x={"$ref": "#/properties/x"}), "/properties/x", "circular"),
        (params(x={"anyOf": [{"$ref": "#/properties/x"}]}), "/properties/x", "circular"),
        (params(("y",), x={}), "/required", "'y' is required"),
        (params(x={"pattern": "("}), "/properties/x/pattern", "regular expression"),
        (params(x={"patternProperties": {"[": {}}}), "/properties/x/patternProperties", "regular"),
        (params(x={"enum": []}), "/properties/x/enum", "empty"),
        (params(x={"minimum": 2, "maximum": 1}), "/properties/x", "greater"),
        (params(x={"default": float("nan")}), "/properties/x/default", "not a JSON number"),
        ({"type": "object", 1: 2}, "", "not a string"),
        (params(x={"default": {1, 2}}), "/properties/x/default", "Python set"),
    ],
)
def test_what_cannot_describe_arguments_is_invalid(parameters: Any, path: str, word: str) -> None:
    found = health(parameters)

    assert found.level is INVALID
    assert path in [point.path for point in found.points]
    assert any(word in point.reason for point in found.points)


def test_all_points_are_reported_at_once() -> None:
    found = health(params(("y", "z"), a={"pattern": "("}, b={"$ref": "#/$defs/No"}))

    assert len(found.points) == 4


def _nested(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {}
    for _ in range(levels):
        node = {"type": "object", "properties": {"a": node}}
    return node


def _circular() -> dict[str, Any]:
    node = params()
    node["properties"]["x"] = node
    return node


@each_row(
    "parameters",
    [
        _nested(10_000),
        _circular(),
        {"type": "object", "properties": {f"p{n}": {} for n in range(30_000)}},
        {"$ref": "#"},
        {"type": "object", "allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {
            "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
            | {"d40": {"type": "object"}},
            "$ref": "#/$defs/d0",
        },
        {
            "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)}
            | {"d3000": {"type": "object"}},
            "$ref": "#/$defs/d0",
        },
        {
            "$defs": {
                f"d{n}": params(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
                for n in range(500)
            }
            | {"d500": {"type": "object"}},
            "$ref": "#/$defs/d0",
        },
        {"type": "object", "properties": 5, "required": "x", "$defs": []},
        {"type": "object", "$schema": "http://example.com/fetch-me"},
        {"type": "object", "$id": "http://example.com/a", "$ref": "other"},
    ],
)
def test_hostile_schemas_are_rated_without_an_exception(parameters: dict[str, Any]) -> None:
    found = health(parameters)

    assert found.level is STRICT or found.points


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "$ref", "$defs", "anyOf", "allOf", "oneOf", "not", "enum"),
        *("required", "additionalProperties", "prefixItems", "const", "pattern", "if", "then"),
        *("patternProperties", "minItems", "maxItems", "minimum", "default", "propertyNames"),
        *("dependentSchemas", "unevaluatedProperties", "format", "contains", "$dynamicRef", "$id"),
    ]
)
FRAGMENTS = st.recursive(
    JSON | st.sampled_from(["object", "array", "string", "#", "#/$defs/a", "#/properties/a"]),
    lambda inner: (
        st.dictionaries(KEYWORDS | st.sampled_from(["a", "b"]), inner, max_size=5)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)


@examples(600, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYWORDS, FRAGMENTS, max_size=6))
def test_health_never_raises(schema: dict[str, Any]) -> None:
    found = health(schema)

    assert (found.level is STRICT) == (not found.points)


@examples(150, suppress_health_check=list(HealthCheck))
@given(parameters())
def test_schemas_of_real_tools_are_never_invalid(shape: Shape) -> None:
    assert health(shape.schema).level is not INVALID
