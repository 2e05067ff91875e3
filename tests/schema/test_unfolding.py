"""Schemas for readers who drop half of them."""

from toolkiln.schema.providers.unfolding import unfolded

NAME = {"type": "string", "minLength": 2, "description": "A name."}


def test_references_are_replaced_by_what_they_mean() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Name", "description": "Whose."}},
        "$defs": {"Name": NAME},
    }

    found = unfolded(schema)

    assert "$defs" not in found
    assert found["properties"]["a"] == {
        "type": "string",
        "minLength": 2,
        "description": "Whose. (at least 2 characters)",
    }


def test_recursive_references_stay_with_their_definitions() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Node"}}}

    found = unfolded({**schema, "$defs": {"Node": node}})

    assert found["$defs"] == {"Node": node}
    assert found["properties"]["a"]["properties"]["next"] == {"$ref": "#/$defs/Node"}


def test_bounds_of_a_value_that_may_be_null_are_said_as_well() -> None:
    age = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None}

    found = unfolded({"type": "object", "properties": {"age": age}})

    assert found["properties"]["age"] == {**age, "description": "At least 0"}


def test_what_a_description_says_already_is_not_repeated() -> None:
    count = {"type": "integer", "maximum": 9, "description": "How many, at most 9."}

    found = unfolded({"type": "object", "properties": {"count": count}})

    assert found["properties"]["count"] == count
