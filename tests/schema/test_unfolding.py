"""Schemas for readers who drop half of them."""

from toolkiln.schema.providers.mcp import inlined

NAME = {"type": "string", "minLength": 2, "description": "A name."}


def test_references_are_replaced_by_what_they_mean() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Name", "description": "Whose."}},
        "$defs": {"Name": NAME},
    }

    found = inlined(schema)

    assert "$defs" not in found
    assert found["properties"]["a"] == {
        "type": "string",
        "minLength": 2,
        "description": "Whose. (at least 2 characters)",
    }


def test_recursive_references_stay_with_their_definitions() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Node"}}}

    found = inlined({**schema, "$defs": {"Node": node}})

    assert found["$defs"] == {"Node": node}
    assert found["properties"]["a"]["properties"]["next"] == {"$ref": "#/$defs/Node"}


def test_bounds_of_a_value_that_may_be_null_are_said_as_well() -> None:
    age = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None}

    found = inlined({"type": "object", "properties": {"age": age}})

    assert found["properties"]["age"] == {**age, "description": "At least 0"}


def test_what_a_description_says_already_is_not_repeated() -> None:
    count = {"type": "integer", "maximum": 9, "description": "How many, at most 9."}

    found = inlined({"type": "object", "properties": {"count": count}})

    assert found["properties"]["count"] == count


def test_constraints_are_said_wherever_a_value_has_them() -> None:
    word = {"type": "string", "maxLength": 5}
    node = {"type": "object", "properties": {"name": word, "next": {"$ref": "#/$defs/Node"}}}
    schema = {
        "type": "object",
        "properties": {
            "first": {"$ref": "#/$defs/Node"},
            "by_name": {"type": "object", "additionalProperties": {"items": word}},
            "either": {"anyOf": [word, {"type": "integer", "minimum": 1}]},
            "perhaps": {"anyOf": [{"properties": {"name": word}}, {"type": "null"}]},
        },
        "$defs": {"Node": node},
    }

    found = inlined(schema)

    said = {**word, "description": "At most 5 characters"}
    properties = found["properties"]
    assert found["$defs"]["Node"]["properties"]["name"] == said
    assert properties["by_name"]["additionalProperties"]["items"] == said
    assert properties["either"]["anyOf"][0] == said
    assert properties["either"]["anyOf"][1]["description"] == "At least 1"
    assert properties["perhaps"]["anyOf"][0]["properties"]["name"] == said


def test_what_a_value_must_not_be_is_not_said_of_it() -> None:
    value = {"type": "string", "if": {"maxLength": 5}, "then": {"minLength": 2}}

    found = inlined({"type": "object", "properties": {"value": value}})

    assert found["properties"]["value"] == value
