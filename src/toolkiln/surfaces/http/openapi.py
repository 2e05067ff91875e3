"""The OpenAPI 3.1 description of the API, made from its operations; it decides nothing.

What an operation declares is taken as it is. What every one has besides (who asks, limits,
errors of the frame) is said here, once, in `_problems`. What is not under `/v1` (health,
metrics, this description, the page that shows it) is in `_BESIDE`.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from toolkiln.surfaces.http.operations import Operation
from toolkiln.surfaces.http.problems import Problem

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"
_REFERENCE = "#/components/schemas/"
_KEY = "key"

_ABOUT = """\
Tools that language models can be trusted with: find, call, write and oversee them.

JSON is in snake case, times are Unix seconds, lists are `{"items": […], "next_cursor": …}`
with null on the last page. What is wrong with a request is told as a problem (RFC 9457)
whose `code` is stable. A tool that fails is no such problem: the call is answered with 200,
and `status` in the result says how it ended.
"""
_WITH_KEY = """\
An API key (`tk_…`, made by `toolkiln keys create`) or the token of a session.\
"""
_MAYBE_KEY = " From this machine none is needed: whoever shows nothing acts for the account\
 that runs the server."

_MEANINGS = {
    400: "The request cannot be read: its JSON, a header or its path.",
    401: "Nobody is known by the credentials, or they are missing.",
    403: "The caller has no right to this, or the Host or Origin is a foreign one.",
    404: "There is no such thing, or the caller may not see it.",
    406: "None of the media types that the client accepts can be had.",
    408: "The request was not received in time.",
    409: "It contradicts what is there, or another request with the same key is under way.",
    412: "What is there is another version than the one that the request names.",
    413: "The body is too large.",
    415: "The body is not of a media type that is understood.",
    422: "The request can be read, but a value in it cannot be used.",
    429: "Too much at once; `Retry-After` says when to try again.",
    431: "The headers are too large.",
    500: "The server has a fault; its log says which.",
    503: "Not at present: the server is starting, stopping or lacks something that it needs.",
}
"""What a problem of each status means."""


def describe(
    operations: Sequence[Operation], *, version: str, is_local: bool, url: str = "/"
) -> dict[str, Any]:
    """The description of these operations, the same for the same ones.

    With `is_local` a key may be left out; `url` is where the API is, seen by a client.
    """
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, {})
        item[operation.method.lower()] = _operation(operation, schemas)
    groups = dict.fromkeys(operation.group for operation in operations)
    key = {"type": "http", "scheme": "bearer", "description": _WITH_KEY + _MAYBE_KEY * is_local}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolkiln",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": group} for group in (*groups, _SERVER)],
        "security": [{_KEY: []}, *([{}] if is_local else [])],
        "paths": paths | _BESIDE,
        "components": {
            "schemas": schemas.components,
            "responses": {
                str(status): _problem(status, meaning, schemas.got(Problem))
                for status, meaning in _MEANINGS.items()
            },
            "securitySchemes": {_KEY: key},
        },
    }


class _Schemas:
    """The schemas of all models of some operations, under names that do not collide."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        used: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
            (Problem, "serialization"): None
        }
        for operation in operations:
            used |= dict.fromkeys(_models(operation))
        self._references, definitions = models_json_schema(
            list(used), ref_template=_REFERENCE + "{model}", schema_generator=_Generator
        )
        found: dict[str, Any] = definitions.get("$defs", {})
        self._queries: dict[type[BaseModel], dict[str, Any]] = {}
        for model in {operation.query for operation in operations} - {None}:
            assert model is not None
            self._queries[model] = found[self._name(model)]
        # The parameters of a query are no value that anybody sends or gets.
        hidden = {self._name(model) for model in self._queries}
        self.components = {name: found[name] for name in sorted(found) if name not in hidden}

    def sent(self, model: type[BaseModel]) -> dict[str, Any]:
        """Of what a client sends."""
        return self._references[model, "validation"]

    def got(self, model: type[BaseModel]) -> dict[str, Any]:
        """Of what a client gets."""
        return self._references[model, "serialization"]

    def query(self, model: type[BaseModel]) -> Iterator[dict[str, Any]]:
        """The parameters that its fields are."""
        schema = self._queries[model]
        for name, field in schema.get("properties", {}).items():
            value = _without_null(field)
            found: dict[str, Any] = {"name": name, "in": "query"}
            if "description" in value:
                found["description"] = value.pop("description")
            if name in schema.get("required", ()):
                found["required"] = True
            yield found | {"schema": value}

    def _name(self, model: type[BaseModel]) -> str:
        reference: str = self._references[model, "validation"]["$ref"]
        return reference.removeprefix(_REFERENCE)


class _Generator(GenerateJsonSchema):
    """Answers have all their fields: what is not set is said to be so.

    Fields are described by the texts below them in the source, as everywhere in Toolkiln.
    """

    def model_schema(self, schema: Any) -> dict[str, Any]:
        found = super().model_schema(schema)
        texts = _texts(schema["cls"])
        for name, part in found.get("properties", {}).items():
            if name in texts and "description" not in part:
                part["description"] = texts[name]
        return found

    def field_is_required(self, field: Any, total: bool) -> bool:
        return self.mode == "serialization" or super().field_is_required(field, total)


@cache
def _texts(model: type[BaseModel]) -> dict[str, str]:
    """What is written below the fields of a model, its bases' first."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind is BaseModel or not issubclass(kind, BaseModel):
            continue
        try:
            (node,) = ast.parse(dedent(getsource(kind))).body
        except (OSError, SyntaxError):  # without its source it is described without them
            continue
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    found[name] = cleandoc(said)
    return found


def _models(operation: Operation) -> Iterator[tuple[type[BaseModel], JsonSchemaMode]]:
    for sent in (operation.query, operation.body):
        if sent is not None:
            yield sent, "validation"
    for got in (*operation.answers.values(), *operation.events.values()):
        if got is not None:
            yield got, "serialization"


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Null cannot be said in a query: a parameter that may be null may be left out."""
    kept = {key: value for key, value in schema.items() if key != "title"}
    if kept.get("default", ...) is None:
        del kept["default"]
    choices = kept.pop("anyOf", None)
    if choices is not None:
        left = [choice for choice in choices if choice != {"type": "null"}]
        kept = {**left[0], **kept} if len(left) == 1 else {"anyOf": left, **kept}
    return kept


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
    }
    if operation.description:
        found["description"] = operation.description
    if parameters := list(_parameters(operation, schemas)):
        found["parameters"] = parameters
    if operation.body is not None:
        content: dict[str, Any] = {"schema": schemas.sent(operation.body)}
        if operation.examples:
            content["examples"] = {
                name: {"value": value} for name, value in operation.examples.items()
            }
        # Nothing at all is an object without fields.
        is_needed = any(field.is_required() for field in operation.body.model_fields.values())
        found["requestBody"] = {"required": is_needed, "content": {JSON: content}}
    answers = {
        str(status): _answer(operation, status, model, schemas)
        for status, model in operation.answers.items()
    }
    problems = {
        str(status): {"$ref": f"#/components/responses/{status}"} for status in _problems(operation)
    }
    return found | {"responses": answers | problems}


def _parameters(operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    for part in operation.path.split("/"):
        if part.startswith("{"):
            text = {"type": "string", "minLength": 1}
            yield {"name": part.strip("{}"), "in": "path", "required": True, "schema": text}
    if operation.query is not None:
        yield from schemas.query(operation.query)
    yield from (_PRECONDITIONS[name] for name in operation.preconditions)
    if operation.idempotent_by_key:
        yield _IDEMPOTENCY_KEY


_PRECONDITIONS = {
    "If-Match": {
        "name": "If-Match",
        "in": "header",
        "description": "The `ETag` of the version that this is about; another one is left alone.",
        "schema": {"type": "string", "minLength": 1},
    },
    "If-None-Match": {
        "name": "If-None-Match",
        "in": "header",
        "description": "`*`: nothing that is there is replaced.",
        "schema": {"const": "*"},
    },
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Made up by the client. A second request with it gets the first one's answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 180, "pattern": "^[!-~]+$"},
}


def _answer(
    operation: Operation, status: int, model: type[BaseModel] | None, schemas: _Schemas
) -> dict[str, Any]:
    found: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    content: dict[str, Any] = {}
    if model is not None:
        content[JSON] = {"schema": schemas.got(model)}
    if operation.events and status == next(iter(operation.answers)):
        names = ", ".join(f"`{name}`" for name in operation.events)
        found["description"] += f"; as server-sent events: {names}"
        content[EVENTS] = {
            # OpenAPI 3.1 has no word for what is in a stream.
            "x-events": {name: schemas.got(event) for name, event in operation.events.items()},
        }
    return found | ({"content": content} if content else {})


def _problems(operation: Operation) -> list[int]:
    """Every status of an error that can occur."""
    found = {400, 401, 403, 404, 408, 429, 431, 500, 503, *operation.problems}
    if operation.query is not None or operation.body is not None:
        found.add(422)
    if operation.body is not None:
        found |= {413, 415}
    if operation.idempotent_by_key:
        found |= {409, 422}
    if operation.preconditions:
        found.add(412)
    return sorted(found - set(operation.answers))


def _problem(status: int, meaning: str, schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": meaning,
        "content": {PROBLEM: {"schema": schema}},
    }
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        found["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 0}}}
    return found


def _read(
    name: str, summary: str, kind: str, schema: dict[str, Any], *, is_open: bool = True
) -> dict[str, Any]:
    """What is only read, and is none of the operations."""
    problems = (400, 403, 431, 503) if is_open else (400, 401, 403, 431, 503)
    content = {kind: {"schema": schema}}
    found: dict[str, Any] = {
        "operationId": name,
        "tags": [_SERVER],
        "summary": summary,
        "responses": {
            "200": {"description": "OK", "content": content},
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in problems},
        },
    }
    if schema is _READINESS:
        found["responses"]["503"] = {"description": "Not at present.", "content": content}
    return {"get": found | ({"security": []} if is_open else {})}


_SERVER = "server"
_TEXT = {"type": "string"}
_HEALTH = {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}}
_READINESS = {
    "type": "object",
    "required": ["ready", "checks"],
    "properties": {
        "ready": {"type": "boolean"},
        "checks": {
            "type": "object",
            "description": "By part: `ok`, or the code of what is wrong.",
            "additionalProperties": _TEXT,
        },
    },
}
_BESIDE = {
    "/healthz": _read("health", "Whether the server answers", JSON, _HEALTH),
    "/readyz": _read("readiness", "Whether calls would be run", JSON, _READINESS),
    "/metrics": _read("metrics", "Metrics for Prometheus", "text/plain", _TEXT, is_open=False),
    "/openapi.json": _read("description", "This description", JSON, {"type": "object"}),
    "/docs": _read("page", "A page that shows it, to try operations", "text/html", _TEXT),
}
