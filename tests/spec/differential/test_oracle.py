"""The measuring instruments themselves: what normalising keeps, what the oracle answers."""

from typing import Any

import pytest

from tables import each_row

from . import normal, oracle


def test_a_property_called_title_is_no_title() -> None:
    schema = {"title": "T", "properties": {"title": {"title": "Title", "type": "string"}}}

    assert normal.normalise(schema) == {"properties": {"title": {"type": "string"}}}


def test_data_that_contains_a_title_is_left_alone() -> None:
    schema = {"default": {"title": "x"}, "examples": [{"title": 1}], "const": {"title": None}}

    assert normal.normalise(schema) == schema


def test_definitions_are_named_by_first_reference_and_unused_ones_go() -> None:
    schema = {
        "$defs": {"B": {"type": "null"}, "A": {"items": {"$ref": "#/$defs/A"}}, "C": {}},
        "properties": {"x": {"$ref": "#/$defs/A"}, "y": {"$ref": "#/$defs/B"}},
    }

    assert normal.normalise(schema) == {
        "$defs": {"D1": {"items": {"$ref": "#/$defs/D1"}}, "D2": {"type": "null"}},
        "properties": {"x": {"$ref": "#/$defs/D1"}, "y": {"$ref": "#/$defs/D2"}},
    }


def test_renamed_definitions_are_followed_by_the_discriminator() -> None:
    schema = {
        "$defs": {"A": {}},
        "oneOf": [{"$ref": "#/$defs/A"}],
        "discriminator": {"propertyName": "k", "mapping": {"a": "#/$defs/A"}},
    }

    assert normal.normalise(schema)["discriminator"]["mapping"] == {"a": "#/$defs/D1"}


@each_row(
    "one, other, equal",
    [
        ({"default": 1}, {"default": True}, False),
        ({"default": 1}, {"default": 1.0}, True),
        ({"default": "1"}, {"default": 1}, False),
        ({"required": ["a", "b"]}, {"required": ["b", "a"]}, True),
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, False),
    ],
)
def test_text_tells_json_values_apart(one: Any, other: Any, equal: bool) -> None:
    assert (normal.text(one) == normal.text(other)) is equal


def test_positional_parameters_are_asked_for_by_name() -> None:
    (expected,) = oracle.ask("def tool(a: int, /, *rest: str, b: bool = False) -> int: ...")

    assert normal.normalise(expected.parameters or {}) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "rest": {"type": "array", "items": {"type": "string"}},
            "b": {"type": "boolean", "default": False},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_refusal_is_an_answer() -> None:
    (expected,) = oracle.ask("from collections.abc import Callable\ndef tool(x: Callable): ...")

    assert expected.parameters is None
    assert "CallableSchema" in expected.refusal


def test_attribute_docstrings_are_found_without_a_file() -> None:
    (expected,) = oracle.ask(
        "from pydantic import BaseModel\n"
        "class Model(BaseModel, use_attribute_docstrings=True):\n"
        "    a: int\n"
        "    '''The a.'''\n"
        "def tool(x: Model): ...\n"
    )

    assert (expected.parameters or {})["$defs"]["Model"]["properties"]["a"]["description"]


def test_one_answer_does_not_colour_the_next() -> None:
    _, second = oracle.ask(
        "from typing import Annotated\n"
        "from pydantic import BaseModel, Field\n"
        "class Node(BaseModel):\n"
        "    children: list['Node']\n"
        "def first(x: Annotated[Node, Field(deprecated=True)]): ...\n"
        "def second(x: Node): ...\n"
    )

    assert (second.parameters or {})["properties"]["x"] == {"$ref": "#/$defs/Node"}


def test_a_module_that_does_not_run_is_refused() -> None:
    with pytest.raises(oracle.RefusedError, match="NameError"):
        oracle.ask("class Model(Missing): ...\ndef tool(): ...")


def test_a_quoted_name_means_what_this_module_says() -> None:
    source = "from typing import List\nBeta = {}\ndef tool(x: List['Beta'], /): ..."
    oracle.ask(source.format("int"))

    (expected,) = oracle.ask(source.format("str"))

    assert (expected.parameters or {})["properties"]["x"]["items"] == {"type": "string"}
