import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from properties import examples
from tables import each_row
from toolkiln.errors import InputError
from toolkiln.model.spec import Hints
from toolkiln.schema.providers import PROVIDERS, compile_tool
from toolkiln.schema.providers.codec import equal
from toolkiln.schema.providers.mcp import inlined, wraps_result
from toolkiln.schema.providers.profile import Compiled
from toolkiln.spec.reader import read

from .fragments import VALUES, fragments
from .rules import as_json_schema, schema_of, violations
from .shapes import JSON, Shape, parameters
from .specs import params, spec

NODE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
    },
    "required": ["value"],
}


def strict(schema: Any, *, optional: bool = False) -> Compiled:
    root = {**params(() if optional else ("x",), x=schema), "$defs": {"Node": NODE}}
    return compile_tool(spec(root), "openai-strict")


def wire(compiled: Compiled) -> dict[str, Any]:
    found: dict[str, Any] = compiled.payload["function"]["parameters"]["properties"]["x"]
    return found


def test_openai_takes_the_schema_as_it_is() -> None:
    root = params(("to",), to={"type": "string", "minLength": 3}, n={"type": "integer"})

    compiled = compile_tool(spec(root), "openai")

    assert compiled.payload == {
        "type": "function",
        "function": {"name": "convert", "description": "Convert money.", "parameters": root},
    }
    assert not compiled.losses
    assert not compiled.errors


def test_the_responses_interface_has_side_by_side_what_completions_nest() -> None:
    root = params(("a",), a={"type": "integer"})

    loose = compile_tool(spec(root), "openai-responses").payload
    strict = compile_tool(spec(root), "openai-responses-strict").payload

    function = compile_tool(spec(root), "openai").payload["function"]
    assert loose == {"type": "function", **function, "strict": False}
    function = compile_tool(spec(root), "openai-strict").payload["function"]
    assert strict == {"type": "function", **function}
    assert strict["strict"] is True


def test_openai_strict_demands_every_property_and_decodes_null_to_absence() -> None:
    root = params(
        ("to",),
        to={"type": "string", "minLength": 3, "description": "Currency."},
        rates={"type": "object", "additionalProperties": {"type": "number"}},
        places={"type": "integer", "default": 2},
    )

    compiled = compile_tool(spec(root), "openai-strict")

    parameters = params(
        ("to", "rates", "places"),
        to={"type": "string", "description": "Currency. (at least 3 characters)"},
        rates={
            "type": ["array", "null"],
            "items": params(("key", "value"), key={"type": "string"}, value={"type": "number"}),
            "description": "A mapping, as a list of keys with their values (null to leave it out)",
        },
        places={"type": ["integer", "null"], "description": "Default: 2 (null for the default)"},
    )
    named = {"name": "convert", "description": "Convert money."}
    assert compiled.payload == {
        "type": "function",
        "function": {**named, "parameters": parameters, "strict": True},
    }
    (loss,) = compiled.losses
    assert (loss.path, loss.keyword) == ("/properties/to", "minLength")
    assert loss.reason == (
        "openai-strict does not support 'minLength'; the description says: at least 3 characters"
    )
    sent = {"to": "EUR", "rates": [{"key": "USD", "value": 1.1}], "places": None}
    assert compiled.decode(sent) == {"to": "EUR", "rates": {"USD": 1.1}}


def test_anthropic_strict_keeps_optional_properties_and_states_bounds_in_words() -> None:
    root = params(
        ("to",),
        to={"type": "array", "items": {"type": "string"}, "maxItems": 5},
        n={"type": "integer", "minimum": 1, "default": 2},
    )

    compiled = compile_tool(spec(root), "anthropic-strict")

    assert compiled.payload == {
        "name": "convert",
        "description": "Convert money.",
        "input_schema": params(
            ("to",),
            to={
                "type": "array",
                "items": {"type": "string"},
                "description": "At most 5 items",
            },
            n={"type": "integer", "description": "At least 1; default: 2"},
        ),
        "strict": True,
    }
    assert [(loss.path, loss.keyword) for loss in compiled.losses] == [
        ("/properties/to", "maxItems"),
        ("/properties/n", "minimum"),
    ]


def test_gemini_gets_the_openapi_subset_with_names_it_accepts() -> None:
    root = params(
        ("user-id",),
        **{
            "user-id": {"const": 7},
            "level": {"enum": [1, 2, None]},
            "size": {"type": "integer", "exclusiveMinimum": 0},
            "when": {"type": ["string", "null"], "format": "date"},
        },
    )

    compiled = compile_tool(spec(root), "gemini")

    assert compiled.payload == {
        "name": "convert",
        "description": "Convert money.",
        "parameters": {
            "type": "object",
            "properties": {
                "user_id": {"type": "string", "enum": ["7"]},
                "level": {"type": "string", "enum": ["1", "2"], "nullable": True},
                "size": {"type": "integer", "minimum": 1},
                "when": {"type": "string", "description": "Format: date", "nullable": True},
            },
            "required": ["user_id"],
        },
    }
    assert compiled.decode({"user_id": "7", "level": "2"}) == {"user-id": 7, "level": 2}


def test_gemini_declares_no_parameters_for_a_tool_without_any() -> None:
    assert "parameters" not in compile_tool(spec(params()), "gemini").payload


def test_mcp_lists_hints_and_wraps_results_that_are_no_objects() -> None:
    returns = {"type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "null"}}}
    tool = spec(params(), returns=returns, hints=Hints(read_only=True, open_world=False))

    compiled = compile_tool(tool, "mcp")

    assert compiled.payload == {
        "name": "convert",
        "title": "Convert",
        "description": "Convert money.",
        "inputSchema": params(),
        "outputSchema": {
            "type": "object",
            "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
            "required": ["result"],
            "$defs": {"N": {"type": "null"}},
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    assert wraps_result(returns)


def test_mcp_passes_object_results_on() -> None:
    returns = {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}

    payload = compile_tool(spec(params(), returns=returns), "mcp").payload

    assert payload["outputSchema"] == {**returns, "type": "object"}
    assert not wraps_result(returns)


def test_mcp_moves_references_along_with_a_wrapped_result() -> None:
    returns = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}

    payload = compile_tool(spec(params(), returns=returns), "mcp").payload

    inner = payload["outputSchema"]["properties"]["result"]
    assert inner["items"]["anyOf"][1] == {"$ref": "#/properties/result"}


PAIR = params(("key", "value"), key={"type": "string"}, value={"type": "integer"})
MAPPING_OR_PAIRS = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "array", "items": PAIR},
    ]
}
CAT_OR_DOG = {
    "oneOf": [
        params(("kind", "tags"), kind={"const": "cat"}, tags={"type": "object"}),
        params(("kind", "tags"), kind={"const": "dog"}, tags={"type": "string"}),
    ],
    "discriminator": {"propertyName": "kind"},
}
ONE_OF_EACH = {"prefixItems": [{"type": "string"}, {"type": "integer"}]}
BESIDE_NULL = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
OTHER_DEFAULT = {"type": ["integer", "null"], "default": 3}


@each_row(
    "schema, value, sent",
    [
        (BESIDE_NULL, {}, {"x": None}),
        (BESIDE_NULL, {"x": 5}, {"x": 5}),
        # Null that differs from the default differs from absence.
        (OTHER_DEFAULT, {}, {"x": None}),
        (OTHER_DEFAULT, {"x": None}, {"x": {"value": None}}),
        (OTHER_DEFAULT, {"x": 5}, {"x": {"value": 5}}),
        # Free-form values travel as JSON text.
        ({"description": "Whatever."}, {"x": {"a": [1]}}, {"x": '{"a": [1]}'}),
        (
            {"type": "array", "minItems": 2, "maxItems": 2, **ONE_OF_EACH},
            {"x": ["a", 1]},
            {"x": {"item_0": "a", "item_1": 1}},
        ),
        # Alternatives that look alike on the wire are tagged, models of a union are not.
        (MAPPING_OR_PAIRS, {"x": {}}, {"x": {"option_1": []}}),
        (MAPPING_OR_PAIRS, {"x": []}, {"x": {"option_2": []}}),
        (CAT_OR_DOG, {"x": {"kind": "cat", "tags": {}}}, {"x": {"kind": "cat", "tags": "{}"}}),
        (CAT_OR_DOG, {"x": {"kind": "dog", "tags": "{}"}}, {"x": {"kind": "dog", "tags": "{}"}}),
    ],
)
def test_values_travel_in_a_form_that_strict_mode_can_express(
    schema: dict[str, Any], value: dict[str, Any], sent: dict[str, Any]
) -> None:
    compiled = strict(schema, optional="default" in schema)

    assert compiled.encode(value) == sent
    assert compiled.decode(sent) == value


def test_free_form_values_are_a_loss_and_other_text_stays_text() -> None:
    compiled = strict({"description": "Whatever."})

    assert wire(compiled)["type"] == "string"
    assert compiled.decode({"x": "not json"}) == {"x": "not json"}
    assert compiled.losses[0].path == "/properties/x"


def test_tuples_of_one_kind_stay_arrays() -> None:
    prefix = [{"type": "number"}] * 2
    compiled = strict({"type": "array", "prefixItems": prefix, "minItems": 2, "maxItems": 2})

    items = {"items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    assert wire(compiled) == {"type": "array", **items}


def test_recursion_stays_in_openai_strict_and_becomes_text_in_anthropic_strict() -> None:
    root = {**params(("x",), x={"$ref": "#/$defs/Node"}), "$defs": {"Node": NODE}}
    value = {"x": {"value": 1, "next": {"value": 2}}}

    openai = compile_tool(spec(root), "openai-strict")
    anthropic = compile_tool(spec(root), "anthropic-strict")

    assert wire(openai) == {"$ref": "#/$defs/Node"}
    assert not openai.losses
    assert [loss.keyword for loss in anthropic.losses] == ["$ref"]
    assert anthropic.encode(value) == {"x": {"value": 1, "next": '{"value": 2}'}}
    assert anthropic.decode(anthropic.encode(value)) == value


def test_references_with_a_description_are_wrapped() -> None:
    ref = {"$ref": "#/$defs/Node", "description": "The first node."}
    compiled = strict(ref)

    expected = {"anyOf": [{"$ref": "#/$defs/Node"}], "description": "The first node."}
    assert wire(compiled) == expected


def test_a_union_at_the_root_goes_into_an_envelope() -> None:
    root = {"anyOf": [params(("a",), a={"type": "integer"}), params(("b",), b={"type": "string"})]}

    for provider in PROVIDERS:
        compiled = compile_tool(spec(root), provider)

        assert schema_of(compiled.payload, provider)["type"] == "object"
        assert compiled.decode(compiled.encode({"b": "x"})) == {"b": "x"}


def test_all_of_is_merged() -> None:
    base = {"type": "object", "properties": {"a": {"type": "number", "minimum": 1}}}
    more = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
    compiled = strict({"allOf": [base, more]})

    assert wire(compiled)["properties"]["a"] == {"type": "integer", "minimum": 1}
    assert compiled.losses == ()


def test_undeclared_properties_survive_the_round_trip() -> None:
    compiled = strict({"type": "object", "properties": {"a": {"type": "integer"}}})

    assert compiled.decode(compiled.encode({"x": {"b": 1}})) == {"x": {"b": 1}}


def test_exceeding_the_limits_sends_the_tool_without_strict() -> None:
    many = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(25)}}

    compiled = compile_tool(spec(many), "anthropic-strict")

    assert "strict" not in compiled.payload
    assert compiled.payload["input_schema"] == many
    assert compiled.losses[0].keyword == "strict"
    assert "25 optional properties" in compiled.losses[0].reason


def test_definitions_that_unfold_without_end_do_not_hang_any_compiler() -> None:
    defs: dict[str, Any] = {
        f"d{n}": params(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
        for n in range(60)
    }
    root = {**params(x={"$ref": "#/$defs/d0"}), "$defs": {**defs, "d60": {"type": "string"}}}

    for provider in PROVIDERS:
        compiled = compile_tool(spec(root), provider)

        assert len(json.dumps(compiled.payload)) < 500_000
        assert compiled.losses or provider in ("openai", "openai-responses", "anthropic", "mcp")


@each_row("provider", PROVIDERS)
def test_names_that_a_provider_refuses_are_errors(provider: str) -> None:
    assert compile_tool(spec(params(), name="ünï code"), provider).errors
    assert compile_tool(spec(params(), name="x" * 129), provider).errors
    assert compile_tool(spec(params(), name="x\n"), provider).errors


@each_row("provider", PROVIDERS)
def test_an_invalid_schema_is_an_error_and_not_an_exception(provider: str) -> None:
    compiled = compile_tool(spec(params(x={"$ref": "#/$defs/No"})), provider)

    assert compiled.errors == (
        "invalid schema at /properties/x: the reference '#/$defs/No' has no target",
    )
    assert compiled.decode({"a": 1}) == {"a": 1}


def test_a_long_description_is_cut_and_reported() -> None:
    compiled = compile_tool(spec(params(), description="x" * 2000), "openai")

    assert len(compiled.payload["function"]["description"]) == 1024
    assert compiled.losses[0].keyword == "description"


def test_an_unknown_provider_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        compile_tool(spec(params()), "open-ai")

    assert caught.value.hint == "did you mean 'openai' or 'openai-strict'?"


@examples(150, suppress_health_check=list(HealthCheck))
@given(shape=parameters(), sent=st.dictionaries(st.text(max_size=3), JSON), data=st.data())
def test_decoding_what_a_model_made_up_never_raises(
    shape: Shape, sent: dict[str, Any], data: st.DataObject
) -> None:
    provider = data.draw(st.sampled_from(PROVIDERS))
    compiled = compile_tool(spec(shape.schema), provider)
    properties = schema_of(compiled.payload, provider).get("properties", {})
    named = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(properties, JSON)))

    assert isinstance(compiled.decode({**sent, **named}), dict)


def test_decoding_deep_or_odd_arguments_leaves_them_alone() -> None:
    compiled = strict({"anyOf": [{"type": "object", "additionalProperties": {}}, {"type": "null"}]})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    circular: dict[str, Any] = {}
    circular["x"] = [circular, circular]

    for sent in ({"x": deep}, circular, {"x": {1, 2}}, {"x": "\ud800"}):
        assert compiled.decode(sent) is not None


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


@each_row(
    "schema, described",
    [
        (
            {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
            {"description": "At least 0"},
        ),
        # What the description says already is not repeated, and a condition is no constraint.
        ({"type": "integer", "maximum": 9, "description": "How many, at most 9."}, {}),
        ({"type": "string", "if": {"maxLength": 5}, "then": {"minLength": 2}}, {}),
    ],
)
def test_the_description_states_the_bounds_of_a_value(
    schema: dict[str, Any], described: dict[str, str]
) -> None:
    found = inlined({"type": "object", "properties": {"x": schema}})

    assert found["properties"]["x"] == {**schema, **described}


def test_constraints_are_described_wherever_a_value_has_them() -> None:
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


def checked(root: Any, provider: str) -> tuple[Compiled, jsonschema_rs.Draft202012Validator]:
    """A tool compiled, and what accepts its arguments on the wire."""
    compiled = compile_tool(spec(root), provider)
    sent_schema = as_json_schema(schema_of(compiled.payload, provider), provider)
    return compiled, jsonschema_rs.Draft202012Validator(sent_schema, offline=True)


PATCH = """
from pydantic import BaseModel, Field

class Patch(BaseModel):
    name: str | None = None
    size: int | None = Field(None, ge=1, description="How large.")
    pair: tuple[int, str] | None = Field(None, description="Both.")
    tags: dict[str, int] | None = Field(None, description="Tags.")

def update(patch: Patch, limit: int | None = Field(10, le=9, description="How many.")): ...
"""


GIVEN: tuple[dict[str, Any], ...] = (
    {}, {"name": None}, {"size": None, "name": "x"}, {"tags": {}, "pair": None},
)  # fmt: skip


@each_row(
    "provider, given",
    [
        (provider, given)
        for provider in ("openai-strict", "anthropic-strict", "gemini")
        for given in GIVEN
    ],
)
def test_models_see_which_fields_are_null_and_descriptions_keep_what_is_encoded(
    provider: str, given: dict[str, Any]
) -> None:
    (tool,) = read(PATCH, "<memory>").tools
    compiled = compile_tool(tool, provider)
    texts = set(descriptions(compiled.payload))

    decoded = compiled.decode(json.loads(json.dumps(compiled.encode({"patch": given}))))

    assert decoded == {"patch": given}
    if provider == "anthropic-strict":
        assert {"How large. At least 1", "How many. At most 9 (default: 10)"} <= texts
    if provider != "gemini":
        assert any(text.startswith("Both. A tuple, as an object") for text in texts)
    assert any(text.startswith("Tags. A mapping, as a list") for text in texts)


def unsaid(compiled: Compiled) -> list[str]:
    """The constraints that a description should state and none does."""
    texts = "\0".join(descriptions(compiled.payload)).casefold()
    said = (loss.reason.partition("the description says: ")[2] for loss in compiled.losses)
    return [note for note in said if note.casefold() not in texts]


def descriptions(node: Any) -> Iterator[str]:
    if isinstance(node, list | dict):
        for item in node.values() if isinstance(node, dict) else node:
            yield from descriptions(item)
        if isinstance(node, dict) and isinstance(node.get("description"), str):
            yield node["description"]


@examples(300, suppress_health_check=list(HealthCheck))
@given(shape=parameters(), data=st.data())
def test_decoding_undoes_encoding_and_the_payload_keeps_the_rules(
    shape: Shape, data: st.DataObject
) -> None:
    accepts = jsonschema_rs.Draft202012Validator(shape.schema, offline=True)
    values: list[dict[str, Any]] = [data.draw(shape.values) for _ in range(3)]
    assume(all(map(accepts.is_valid, values)))

    for provider in PROVIDERS:
        compiled, validator = checked(shape.schema, provider)

        assert not compiled.errors
        assert violations(compiled.payload, provider) == []
        assert unsaid(compiled) == [], provider
        for value in values:
            encoded = compiled.encode(value)
            assert equal(compiled.decode(encoded), value), (provider, encoded)
            assert validator.is_valid(encoded), (provider, encoded)


@examples(150, suppress_health_check=list(HealthCheck))
@given(
    nodes=st.tuples(fragments(), fragments(), fragments()), required=st.booleans(), data=st.data()
)
def test_whatever_is_written_as_a_schema_is_compiled_and_decoded_back(
    nodes: tuple[Any, Any, Any], required: bool, data: st.DataObject
) -> None:
    names = ("x",) if required else ()
    root = {**params(names, x=nodes[0]), "$defs": {"A": nodes[1], "B": nodes[2]}}
    assume(not compile_tool(spec(root), "openai").errors)
    accepts = jsonschema_rs.Draft202012Validator(root, offline=True)
    values = ({}, *({"x": item} for item in data.draw(st.lists(VALUES, max_size=6))))

    for provider in PROVIDERS:
        compiled, validator = checked(root, provider)

        assert compiled.errors == ()
        assert violations(compiled.payload, provider) == []
        for value in filter(accepts.is_valid, values):
            encoded = compiled.encode(value)
            # Properties that an object does not declare pass through, but are not described.
            assert equal(compiled.decode(encoded), value) or not validator.is_valid(encoded)
