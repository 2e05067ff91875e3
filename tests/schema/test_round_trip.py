from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from properties import examples
from toolkiln.schema.providers import PROVIDERS, compile_tool
from toolkiln.schema.providers.codec import equal

from .fragments import VALUES, fragments
from .rules import as_json_schema, schema_of, violations
from .shapes import Shape, parameters
from .specs import params, spec


@pytest.mark.parametrize("provider", PROVIDERS)
@examples(300, suppress_health_check=list(HealthCheck))
@given(shape=parameters(), data=st.data())
def test_decoding_undoes_encoding_and_the_payload_keeps_the_rules(
    provider: str, shape: Shape, data: st.DataObject
) -> None:
    accepts = jsonschema_rs.Draft202012Validator(shape.schema, offline=True)
    compiled = compile_tool(spec(shape.schema), provider)
    sent_schema = as_json_schema(schema_of(compiled.payload, provider), provider)
    validator = jsonschema_rs.Draft202012Validator(sent_schema, offline=True)

    assert not compiled.errors
    assert violations(compiled.payload, provider) == []
    for _ in range(3):
        value: dict[str, Any] = data.draw(shape.values)
        assume(accepts.is_valid(value))
        encoded = compiled.encode(value)
        decoded = compiled.decode(encoded)
        assert equal(decoded, value), encoded
        assert validator.is_valid(encoded), (encoded, sent_schema)


@pytest.mark.parametrize("provider", PROVIDERS)
@examples(150, suppress_health_check=list(HealthCheck))
@given(
    nodes=st.tuples(fragments(), fragments(), fragments()), required=st.booleans(), data=st.data()
)
def test_whatever_is_written_as_a_schema_is_compiled_and_decoded_back(
    provider: str, nodes: tuple[Any, Any, Any], required: bool, data: st.DataObject
) -> None:
    names = ("x",) if required else ()
    root = {**params(names, x=nodes[0]), "$defs": {"A": nodes[1], "B": nodes[2]}}
    compiled = compile_tool(spec(root), provider)
    assume(not compiled.errors)
    accepts = jsonschema_rs.Draft202012Validator(root, offline=True)
    sent_schema = as_json_schema(schema_of(compiled.payload, provider), provider)
    validator = jsonschema_rs.Draft202012Validator(sent_schema, offline=True)

    assert violations(compiled.payload, provider) == []
    for value in ({}, *({"x": item} for item in data.draw(st.lists(VALUES, max_size=6)))):
        if accepts.is_valid(value):
            encoded = compiled.encode(value)
            # Properties that an object does not declare pass through, but are not described.
            assert equal(compiled.decode(encoded), value) or not validator.is_valid(encoded)
