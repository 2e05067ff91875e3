"""Schemas in words."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.docs.blocks import Paragraph, blocks_markdown
from toolkiln.docs.pages import page
from toolkiln.docs.schema_text import SchemaWords

from .rendering import params, spec

_KEYS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "allOf", "oneOf", "enum", "const", "$ref"),
        *("$defs", "required", "description", "default", "additionalProperties", "examples"),
        *("prefixItems", "patternProperties", "minimum", "pattern", "not", "deprecated"),
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=15,
)


def phrase(schema: Any) -> str:
    return blocks_markdown((Paragraph(tuple(SchemaWords({}).phrase(schema))),))


def described(schema: dict[str, Any]) -> str:
    words = SchemaWords(schema)
    return blocks_markdown((*words.members(schema), *words.types()))


@each_row(
    "schema, expected",
    [
        ({}, "any value"),
        (True, "any value"),
        (False, "nothing"),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"const": 1}, "always `1`"),
        ({"enum": ["a", 1, None]}, 'one of `"a"`, `1`, `null`'),
        ({"enum": []}, "one of nothing"),
        (
            {"type": "integer", "minimum": 1, "exclusiveMaximum": 10, "multipleOf": 2},
            "integer; at least 1; less than 10; a multiple of 2",
        ),
        (
            {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a`|b$"},
            "string; matching the regular expression ``^a`|b$``; at least 1 characters; "
            "at most 5 characters",
        ),
        ({"type": "string", "format": "date"}, "string; in the format `date`"),
        (
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "integer (at least 1) or null",
        ),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, None),
        ({"type": "array"}, "array"),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "array of (string or null)",
        ),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "array of string or null",
        ),
        (
            {"type": "array", "uniqueItems": True, "minItems": 2, "maxItems": 3},
            "array; at least 2 items; at most 3 items; without duplicates",
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            "array of: string, integer",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            "object with any keys, each number",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
            "object; no other entries",
        ),
        ({"type": "string", "deprecated": True}, "string; deprecated"),
        ({"type": "string", "examples": ["x", "y"]}, 'string; for example `"x"`, `"y"`'),
        ({"type": "string", "not": {"const": "x"}}, 'string; nothing that fits `{"const": "x"}`'),
        ({"$ref": "#/nowhere"}, "`#/nowhere`"),
        ({"$ref": "http://example.org/x"}, "`http://example.org/x`"),
    ],
)
def test_kinds_and_constraints_become_words(schema: Any, expected: str | None) -> None:
    assert phrase(schema) == (expected or "string and any value (at least 2 characters)")


def test_every_alternative_is_described_in_its_place() -> None:
    schema = params(
        "shape",
        shape={
            "description": "What it looks like.",
            "oneOf": [
                {"type": "object", "properties": {"r": {"type": "number"}}, "required": ["r"]},
                {"type": "array", "items": {"type": "object", "properties": {"x": {}}}},
                {"type": "string", "description": "By name."},
            ],
        },
    )

    assert described(schema) == "\n".join(
        [
            "- `shape` (object or array of object or string; required): What it looks like.",
            "",
            "  - alternative 1:",
            "",
            "    - `r` (number; required)",
            "  - alternative 2:",
            "",
            "    - each item:",
            "",
            "      - `x` (any value; optional)",
            "  - alternative 3:",
            "",
            "    By name.",
        ]
    )


def test_keys_by_pattern_and_other_entries_are_described() -> None:
    entry = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": entry}

    assert described(schema) == (
        "- keys like `^x-` (string)\n- each entry:\n\n  - `n` (integer; optional)"
    )


def test_a_type_is_described_once_however_often_it_is_named() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {
        **params(a={"$ref": "#/$defs/Node"}, b={"$ref": "#/$defs/Node"}),
        "$defs": {"Node": node, "Unused": {"type": "string"}},
    }

    found = described(schema)

    assert found.count("- `Node` (object)") == 1
    assert "Unused" not in found


def test_types_of_one_name_are_kept_apart_and_escapes_are_followed() -> None:
    inner = {"$defs": {"T": {"const": 2}}, "$ref": "#/properties/b/$defs/T"}
    named = {"T": {"const": 1}, "a/b c": {"const": 3}}
    properties = params(a={"$ref": "#/$defs/T"}, b=inner, c={"$ref": "#/$defs/a~1b%20c"})

    found = described({**properties, "$defs": named})

    assert "- `T` (always `1`)" in found
    assert "- `#/properties/b/$defs/T` (always `2`)" in found
    assert "- `a/b c` (always `3`)" in found


def test_a_web_of_types_is_described_in_the_size_of_its_source() -> None:
    names = [f"T{number}" for number in range(60)]
    definitions = {
        name: {"properties": {key: {"$ref": f"#/$defs/{later}"} for key in "ab"}}
        for name, later in zip(names, [*names[1:], names[0]], strict=True)
    }

    found = described({**params(x={"$ref": "#/$defs/T0"}), "$defs": definitions})

    assert found.count("\n") < 400


def test_depth_and_length_are_bounded_and_the_page_says_so() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"in": deep}}
    arrays: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        arrays = {"type": "array", "items": arrays}

    assert "further levels, as in the schema" in described(params(x=deep))
    assert "a value of further depth" in phrase(arrays)
    assert " and 150 more" in phrase({"enum": list(range(200))})
    assert " and 150 more" in phrase({"anyOf": [{"const": n} for n in range(200)]})
    assert "characters more)" in phrase({"const": "x" * 5_000})


def test_a_default_counts_more_than_being_required_and_open_parameters_are_called_open() -> None:
    schema = params("a", a={"type": "string", "default": "x"}, b={"type": "string"})
    del schema["additionalProperties"]

    assert described(schema) == '- `a` (string; default `"x"`)\n- `b` (string; optional)'
    assert "Additional arguments are accepted." in page(spec(parameters=schema))


@given(st.dictionaries(_KEYS, _JSON, max_size=5))
def test_any_json_is_described_without_failing(schema: dict[str, Any]) -> None:
    assert page(spec(parameters=schema, returns=schema))
