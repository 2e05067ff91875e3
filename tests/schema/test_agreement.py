"""Schemas as read against functions as imported: what counts as a difference, and what does not."""

from typing import Any

from tables import each_row
from toolkiln.schema.signature_match import RuntimeParameter, RuntimeSignature, signature_mismatches

Schema = dict[str, Any]

NODE: Schema = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
            "required": ["name"],
        }
    }
}


def mismatches(read: Schema, imported: Schema | None, *, more: Schema | None = None) -> list[str]:
    """Compare one parameter as read and as imported."""
    whole = {"type": "object", "properties": {"x": read}, "required": ["x"], **(more or {})}
    parameter = RuntimeParameter(name="x", required=True, described=imported)
    return signature_mismatches(whole, signature(parameter))


def signature(
    *parameters: RuntimeParameter, takes_any: bool = False, by_hand: bool = False
) -> RuntimeSignature:
    return RuntimeSignature(parameters=parameters, takes_any=takes_any, by_hand=by_hand)


@each_row(
    "read, imported",
    [
        ({"type": "string", "title": "X"}, {"type": "string", "description": "An x."}),
        ({}, {"type": "string"}),
        ({"description": "An x."}, {"type": "string"}),
        ({"type": "string"}, {}),
        ({"type": "string"}, None),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"anyOf": [{"type": "string"}, {}]}, {"type": "integer"}),
        ({"type": "number", "default": 1}, {"type": "number", "default": 1.0}),
        ({"type": "number"}, {"type": "number", "default": 1.0}),
        ({"type": "number", "default": 1}, {"type": "number"}),
        ({"type": "array", "default": ["b", "a"]}, {"type": "array", "default": ["a", "b"]}),
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}),
        ({"const": "a"}, {"enum": ["a"]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        ({"type": "string"}, {"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}),
        ({"type": "string"}, {"$ref": "#/$defs/Nowhere"}),
        ({"type": "object"}, {"type": "object", "additionalProperties": True}),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": None}),
    ],
)
def test_equivalent_schemas_have_no_mismatch(read: Schema, imported: Schema | None) -> None:
    assert mismatches(read, imported) == []


@each_row(
    "read, imported, difference",
    [
        ({"type": "string"}, {"type": "integer"}, ": string in the schema, integer when imported"),
        ({"default": 1}, {"default": True}, ": default 1 in the schema, default true when"),
        ({"default": None}, {"default": 0}, ": default null in the schema, default 0 when"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ': one of "a" in the schema, one of "a", "b"'),
        ({"const": 1}, {"const": True}, ": 1 in the schema, true when imported"),
        (
            {"type": "integer", "minimum": 1},
            {"type": "integer"},
            ": minimum 1 in the schema, no minimum when imported",
        ),
        (
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "number"}},
            " › items: string in the schema, number when imported",
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"type": "string"},
            ": string or null in the schema, string when imported",
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "string"}]},
            ": string or null in the schema, string or string when imported",
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}]},
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}]},
            ": 1 items in the schema, 2 items when imported",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {}}},
            " › a: required in the schema, optional when imported",
        ),
        (
            {"type": "object", "properties": {"a": {}}},
            {"type": "object", "properties": {"a": {}, "b": {}}},
            " › b: missing in the schema, present when imported",
        ),
    ],
)
def test_what_a_call_would_trip_over_is_told_in_a_few_words(
    read: Schema, imported: Schema, difference: str
) -> None:
    (message,) = mismatches(read, imported)

    assert message.startswith(f"parameter 'x'{difference}")


def test_recursive_definitions_are_followed_under_any_name() -> None:
    other = {"$defs": {"some__Node": _renamed(NODE["$defs"]["Node"], "some__Node")}}

    assert (
        mismatches({"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/some__Node", **other}, more=NODE)
        == []
    )


def test_a_difference_inside_a_recursive_definition_is_found() -> None:
    node = _renamed(NODE["$defs"]["Node"], "N")
    node["properties"]["name"] = {"type": "integer"}

    (message,) = mismatches(
        {"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/N", "$defs": {"N": node}}, more=NODE
    )

    assert message.startswith("parameter 'x' › name: string in the schema, integer")


def _renamed(node: Schema, name: str) -> Schema:
    following = {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}
    return {**node, "properties": {**node["properties"], "next": following}}


# Names and needs


def test_names_and_required_parameters_are_reported_one_by_one() -> None:
    read = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]}
    found = signature(
        RuntimeParameter(name="b", required=False),
        RuntimeParameter(name="c", required=True),
        RuntimeParameter(name="d", required=True),
        RuntimeParameter(name="e", required=False, described={"type": "integer"}),
        RuntimeParameter(name="no_model_can_pass_it", required=False, described={"default": None}),
    )

    assert signature_mismatches(read, found) == [
        "parameter 'a': missing in the imported function",
        "parameter 'b': required in the schema, optional when imported",
        "parameter 'c': optional in the schema, required when imported",
        "parameter 'd': missing in the schema, required when imported",
        "parameter 'e': missing in the schema",
    ]


def test_a_schema_by_hand_may_ask_for_more_and_show_less() -> None:
    read = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    found = signature(
        RuntimeParameter(name="a", required=False, described={"type": "integer"}),
        RuntimeParameter(name="b", required=False),
        by_hand=True,
    )

    assert signature_mismatches(read, found) == []


def test_a_schema_by_hand_must_have_what_the_function_needs() -> None:
    read = {"type": "object", "properties": {"a": {}, "z": {}}}
    found = signature(
        RuntimeParameter(name="a", required=True),
        RuntimeParameter(name="b", required=True),
        by_hand=True,
    )

    assert len(signature_mismatches(read, found)) == 3


def test_a_function_that_takes_any_name_takes_those_that_were_read() -> None:
    read = {"type": "object", "properties": {"a": {}}, "required": ["a"]}

    assert signature_mismatches(read, signature(takes_any=True)) == []


# Hostile schemas


def chain(length: int, end: Schema) -> Schema:
    """Definitions that each lead to the next."""
    links = {
        f"D{n}": {"type": "array", "items": {"$ref": f"#/$defs/D{n + 1}"}} for n in range(length)
    }
    return {"$ref": "#/$defs/D0", "$defs": {**links, f"D{length}": end}}


def test_definitions_without_end_are_given_up_on() -> None:
    read = chain(5_000, {"type": "string"})

    assert mismatches({"$ref": "#/$defs/D0"}, chain(5_000, {"type": "null"}), more=read) == []


def test_references_in_a_circle_are_given_up_on() -> None:
    circle = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}

    assert mismatches({"type": "string"}, {"$ref": "#/$defs/A", **circle}) == []


def test_the_comparison_gives_up_on_choices_that_multiply() -> None:
    def nested(depth: int, end: str) -> Schema:
        if depth == 0:
            return {"type": end}
        inner = nested(depth - 1, end)
        return {"anyOf": [{"type": "array", "items": inner} for _ in range(3)]}

    assert mismatches(nested(9, "string"), nested(9, "null")) == []


@each_row("odd", [1, "x", [], {"a": 1}, None, True])
@each_row(
    "keyword",
    ["type", "enum", "anyOf", "items", "properties", "required", "prefixItems", "$ref", "$defs"],
)
def test_keywords_of_any_form_raise_nothing(keyword: str, odd: Any) -> None:
    read = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

    mismatches(read, {**read, keyword: odd})
    mismatches({**read, keyword: odd}, read)
