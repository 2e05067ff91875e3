"""The description, made from operations that are only there for it."""

import json
from enum import StrEnum
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from pydantic import BaseModel, Field
from starlette.responses import Response

from toolkiln.model.base import Value
from toolkiln.surfaces.http.adapter import HttpRequest, Route
from toolkiln.surfaces.http.openapi import describe
from toolkiln.surfaces.http.routes import ROUTES


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Search(Value):
    words: str = Field(description="What is looked for.", min_length=1)
    colour: Colour | None = None
    """Which ones."""
    limit: int = Field(default=20, ge=1, le=100)
    tags: tuple[str, ...] = ()


class Nested(Value):
    next: "Nested | None" = None
    colour: Colour = Colour.RED


class Thing(Value):
    name: str
    count: int = 0
    inside: Nested = Nested()


class Step(Value):
    done: float


async def nothing(visit: HttpRequest, *given: BaseModel) -> Response:
    return Response()


FIND = Route(
    method="GET",
    path="/v1/things",
    name="find_things",
    summary="Find things",
    handle=nothing,
    group="things",
    query=Search,
    responses={200: Thing},
)
MAKE = Route(
    method="PUT",
    path="/v1/shelves/{shelf}/things/{name}",
    name="put_thing",
    summary="Put a thing on a shelf",
    description="Whether it is there or not.",
    handle=nothing,
    group="things",
    body=Thing,
    responses={201: Thing, 204: None},
    events={"step": Step},
    problems=(412,),
    idempotent_by_key=True,
    examples={"a ball": {"name": "ball", "count": 3}},
)


def described(*operations: Route, is_local: bool = True) -> dict[str, Any]:
    return describe(operations, version="1.2.3", is_local=is_local)


def find() -> dict[str, Any]:
    found: dict[str, Any] = described(FIND)["paths"]["/v1/things"]["get"]
    return found


def make() -> dict[str, Any]:
    path = "/v1/shelves/{shelf}/things/{name}"
    found: dict[str, Any] = described(MAKE)["paths"][path]["put"]
    return found


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


def test_the_description_is_valid_by_the_meta_schema() -> None:
    document = described(FIND, MAKE)

    schemathesis.openapi.from_dict(document).validate()

    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


def test_every_reference_leads_somewhere() -> None:
    document = described(FIND, MAKE)

    found = references(document)

    assert found
    assert all(resolved(document, reference) for reference in found)


def test_every_reference_of_the_api_leads_somewhere() -> None:
    document = described(*ROUTES)

    schemathesis.openapi.from_dict(document).validate()

    assert all(resolved(document, reference) for reference in references(document))


def test_the_same_operations_make_the_same_text() -> None:
    first, second = (json.dumps(described(FIND, MAKE)) for _ in range(2))

    assert first == second


def test_operations_of_one_path_stand_together() -> None:
    both = described(FIND, Route(**{**vars(FIND), "method": "POST", "name": "post_thing"}))

    assert {"get", "post"} == set(both["paths"]["/v1/things"])


def test_fields_of_the_query_are_parameters() -> None:
    words, colour, limit, tags = find()["parameters"]

    assert words == {
        "name": "words",
        "in": "query",
        "description": "What is looked for.",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }
    assert colour["schema"] == {"$ref": "#/components/schemas/Colour"}
    assert "required" not in colour
    assert limit["schema"] == {"type": "integer", "default": 20, "minimum": 1, "maximum": 100}
    assert tags["schema"]["type"] == "array"


def test_the_query_itself_is_no_component() -> None:
    assert "Search" not in described(FIND)["components"]["schemas"]


def test_parts_of_the_path_and_the_key_are_parameters() -> None:
    found = {item["name"]: item for item in make()["parameters"]}

    assert {name: item["in"] for name, item in found.items()} == {
        "shelf": "path",
        "name": "path",
        "Idempotency-Key": "header",
    }
    assert found["shelf"]["required"]
    assert "required" not in found["Idempotency-Key"]


def test_bodies_have_their_schema_and_examples() -> None:
    body = make()["requestBody"]

    assert body["required"]
    assert body["content"]["application/json"]["examples"] == {
        "a ball": {"value": {"name": "ball", "count": 3}}
    }


def test_what_is_sent_and_what_is_got_may_differ() -> None:
    found = described(MAKE)["components"]["schemas"]

    assert found["Thing-Input"]["required"] == ["name"]
    assert found["Thing-Output"]["required"] == ["name", "count", "inside"]


def test_an_answer_without_a_body_has_no_content() -> None:
    assert "content" not in make()["responses"]["204"]


def test_events_are_described_beside_the_usual_answer() -> None:
    usual = make()["responses"]["201"]

    assert set(usual["content"]) == {"application/json", "text/event-stream"}
    assert usual["content"]["text/event-stream"]["x-events"] == {
        "step": {"$ref": "#/components/schemas/Step"}
    }
    assert "`step`" in usual["description"]


def test_problems_are_those_that_can_occur() -> None:
    assert {"401", "403", "422", "500"} <= set(find()["responses"])
    assert not {"412", "413", "415"} & set(find()["responses"])
    assert {"409", "412", "413", "415"} <= set(make()["responses"])


def test_all_problems_are_of_one_shape() -> None:
    document = described(FIND, MAKE)

    for reference in references([find()["responses"], make()["responses"]]):
        if "/responses/" in reference:
            content = resolved(document, reference)["content"]
            assert content == {
                "application/problem+json": {
                    "schema": {"$ref": "#/components/schemas/ProblemDetails"}
                }
            }


@pytest.mark.parametrize("is_local", [True, False])
def test_a_key_is_needed_but_from_this_machine(is_local: bool) -> None:
    document = described(FIND, is_local=is_local)

    assert ({} in document["security"]) is is_local
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def test_fields_are_described_by_the_texts_below_them() -> None:
    (_, colour, *_) = find()["parameters"]
    problem = described(FIND)["components"]["schemas"]["ProblemDetails"]

    assert colour["description"] == "Which ones."
    assert problem["properties"]["code"]["description"] == "Stable."
