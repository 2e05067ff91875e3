"""The description of the API is valid; the snapshots show all that it says."""

import json
from typing import Any

import jsonschema_rs
import schemathesis

from tables import each_row
from toolkiln.surfaces.http.openapi import describe
from toolkiln.surfaces.http.routes import ROUTES


def described(*, is_local: bool = True) -> dict[str, Any]:
    return describe(ROUTES, version="1.2.3", is_local=is_local)


def resolved(document: dict[str, Any], reference: str) -> Any:
    found: Any = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [item for held in value.values() for item in references(held)]
    return [item for held in value for item in references(held)] if isinstance(value, list) else []


def test_the_description_is_valid_and_its_references_lead_somewhere() -> None:
    document = described()

    schemathesis.openapi.from_dict(document).validate()

    found = references(document)
    assert found
    assert all(resolved(document, reference) for reference in found)
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


def test_the_same_operations_make_the_same_text() -> None:
    first, second = (json.dumps(described()) for _ in range(2))

    assert first == second


def test_the_query_of_an_operation_is_no_component() -> None:
    components = described()["components"]["schemas"].keys()

    assert not components & {route.query.__name__ for route in ROUTES if route.query}


@each_row("is_local", [True, False])
def test_a_key_is_optional_only_on_this_machine(is_local: bool) -> None:
    document = described(is_local=is_local)

    assert ({} in document["security"]) is is_local
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
