"""The OpenAPI 3.1 description of the API, generated from its routes.

`_problems` adds the errors that every route can have (authentication, limits). The endpoints
outside `/v1` (health, metrics, this description, `/docs`) are in `_SYSTEM_PATHS`.
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

from toolkiln.surfaces.http.adapter import Route
from toolkiln.surfaces.http.responses import ProblemDetails

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"
_REFERENCE = "#/components/schemas/"
_KEY = "key"

_DESCRIPTION = """\
Tools that language models can be trusted with: find, call, write and oversee them.

JSON is in snake case, times are Unix seconds, lists are `{"items": […], "next_cursor": …}`
with null on the last page. Errors are problems (RFC 9457) with a stable `code`. A failing tool
is not an error: the response has status 200, and `status` in the result says how the call ended.
"""
_KEY_DESCRIPTION = """\
An API key (`tk_…`, created by `toolkiln keys create`) or a session token.\
"""
_OPTIONAL_KEY = " Requests from this machine do not need one: without it they act for the\
 account that runs the server."

_PROBLEM_DESCRIPTIONS = {
    400: "The JSON, a header, the query or the path is malformed.",
    401: "The credential is missing or not valid.",
    403: "The caller lacks a privilege, or the Host or Origin is not accepted.",
    404: "It does not exist, or the caller may not see it.",
    406: "The client accepts none of the available media types.",
    408: "The request was not received in time.",
    409: "It conflicts with the current state, or with a request with the same key.",
    412: "The current version is not the one that the request names.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "The request is well-formed, but a value is not valid.",
    429: "Too many requests; `Retry-After` says when to try again.",
    431: "The headers are too large.",
    500: "An internal error; the server's log has details.",
    503: "The server is starting, shutting down, busy, or a component is unavailable.",
}
"""The descriptions of problems by status."""


def describe(
    routes: Sequence[Route], *, version: str, is_local: bool, url: str = "/"
) -> dict[str, Any]:
    """Return the description of these routes.

    With `is_local` the API key is optional; `url` is the URL of the API for clients.
    """
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        item = paths.setdefault(route.path, {})
        item[route.method.lower()] = _operation(route, schemas)
    groups = dict.fromkeys(route.group for route in routes)
    key = {
        "type": "http",
        "scheme": "bearer",
        "description": _KEY_DESCRIPTION + _OPTIONAL_KEY * is_local,
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolkiln",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": group} for group in (*groups, _SERVER)],
        "security": [{_KEY: []}, *([{}] if is_local else [])],
        "paths": paths | _SYSTEM_PATHS,
        "components": {
            "schemas": schemas.components,
            "responses": {
                str(status): _problem(status, text, schemas.response(ProblemDetails))
                for status, text in _PROBLEM_DESCRIPTIONS.items()
            },
            "securitySchemes": {_KEY: key},
        },
    }


class _Schemas:
    """The schemas of all models of some routes, under unique names."""

    def __init__(self, routes: Sequence[Route]) -> None:
        models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
            (ProblemDetails, "serialization"): None
        }
        for route in routes:
            models |= dict.fromkeys(_models(route))
        self._references, definitions = models_json_schema(
            list(models), ref_template=_REFERENCE + "{model}", schema_generator=_Generator
        )
        schemas: dict[str, Any] = definitions.get("$defs", {})
        self._queries: dict[type[BaseModel], dict[str, Any]] = {}
        for model in {route.query for route in routes} - {None}:
            assert model is not None
            self._queries[model] = schemas[self._name(model)]
        # Queries are described as parameters, not as components.
        queries = {self._name(model) for model in self._queries}
        self.components = {name: schemas[name] for name in sorted(schemas) if name not in queries}

    def request(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the reference to the schema of a request body."""
        return self._references[model, "validation"]

    def response(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the reference to the schema of a response."""
        return self._references[model, "serialization"]

    def query(self, model: type[BaseModel]) -> Iterator[dict[str, Any]]:
        """Yield the query parameters of a model's fields."""
        schema = self._queries[model]
        for name, field in schema.get("properties", {}).items():
            value = _without_null(field)
            parameter: dict[str, Any] = {"name": name, "in": "query"}
            if "description" in value:
                parameter["description"] = value.pop("description")
            if name in schema.get("required", ()):
                parameter["required"] = True
            yield parameter | {"schema": value}

    def _name(self, model: type[BaseModel]) -> str:
        reference: str = self._references[model, "validation"]["$ref"]
        return reference.removeprefix(_REFERENCE)


class _Generator(GenerateJsonSchema):
    """Marks all fields of responses as required, and describes fields by their docstrings."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        generated = super().model_schema(schema)
        texts = _field_docstrings(schema["cls"])
        for name, field in generated.get("properties", {}).items():
            if name in texts and "description" not in field:
                field["description"] = texts[name]
        return generated

    def field_is_required(self, field: Any, total: bool) -> bool:
        return self.mode == "serialization" or super().field_is_required(field, total)


@cache
def _field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a model and its base classes."""
    docstrings: dict[str, str] = {}
    for base in reversed(getattr(model, "__described_by__", model).__mro__):
        if base is BaseModel or not issubclass(base, BaseModel):
            continue
        try:
            (node,) = ast.parse(dedent(getsource(base))).body
        except (OSError, SyntaxError):  # the source is not available
            continue
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(docstring))),
                ):
                    docstrings[name] = cleandoc(docstring)
    return docstrings


def _models(route: Route) -> Iterator[tuple[type[BaseModel], JsonSchemaMode]]:
    for request in (route.query, route.body):
        if request is not None:
            yield request, "validation"
    for response in (*route.responses.values(), *route.events.values()):
        if response is not None:
            yield response, "serialization"


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter: instead of null, it is omitted."""
    parameter = {key: value for key, value in schema.items() if key != "title"}
    if parameter.get("default", ...) is None:
        del parameter["default"]
    choices = parameter.pop("anyOf", None)
    if choices is not None:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        parameter = {**(rest[0] if len(rest) == 1 else {"anyOf": rest}), **parameter}
    return parameter


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.group],
        "summary": route.summary,
    }
    if route.description:
        operation["description"] = route.description
    if parameters := list(_parameters(route, schemas)):
        operation["parameters"] = parameters
    if route.body is not None:
        content: dict[str, Any] = {"schema": schemas.request(route.body)}
        if route.examples:
            content["examples"] = {name: {"value": value} for name, value in route.examples.items()}
        # An empty body is an empty object.
        is_required = any(field.is_required() for field in route.body.model_fields.values())
        operation["requestBody"] = {"required": is_required, "content": {JSON: content}}
    responses = {
        str(status): _response(route, status, model, schemas)
        for status, model in route.responses.items()
    }
    problems = {
        str(status): {"$ref": f"#/components/responses/{status}"} for status in _problems(route)
    }
    return operation | {"responses": responses | problems}


def _parameters(route: Route, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    for part in route.path.split("/"):
        if part.startswith("{"):
            text = {"type": "string", "minLength": 1}
            yield {"name": part.strip("{}"), "in": "path", "required": True, "schema": text}
    if route.query is not None:
        yield from schemas.query(route.query)
    yield from (_PRECONDITIONS[name] for name in route.preconditions)
    if route.idempotent_by_key:
        yield _IDEMPOTENCY_KEY


_PRECONDITIONS = {
    "If-Match": {
        "name": "If-Match",
        "in": "header",
        "description": "The `ETag` of the expected version; otherwise the request fails.",
        "schema": {"type": "string", "minLength": 1},
    },
    "If-None-Match": {
        "name": "If-None-Match",
        "in": "header",
        "description": "`*`: create only, do not replace.",
        "schema": {"const": "*"},
    },
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Chosen by the client. A repeated request gets the first response.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 180, "pattern": "^[!-~]+$"},
}


def _response(
    route: Route, status: int, model: type[BaseModel] | None, schemas: _Schemas
) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    content: dict[str, Any] = {}
    if model is not None:
        content[JSON] = {"schema": schemas.response(model)}
    if route.events and status == next(iter(route.responses)):
        names = ", ".join(f"`{name}`" for name in route.events)
        response["description"] += f"; as server-sent events: {names}"
        content[EVENTS] = {
            # OpenAPI 3.1 cannot describe the events of a stream.
            "x-events": {name: schemas.response(event) for name, event in route.events.items()},
        }
    return response | ({"content": content} if content else {})


def _problems(route: Route) -> list[int]:
    """Return all error statuses of a route."""
    statuses = {400, 401, 403, 404, 408, 429, 431, 500, 503, *route.problems}
    if route.query is not None or route.body is not None:
        statuses.add(422)
    if route.body is not None:
        statuses |= {413, 415}
    if route.idempotent_by_key:
        statuses |= {409, 422}
    if route.preconditions:
        statuses.add(412)
    return sorted(statuses - set(route.responses))


def _problem(status: int, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": description,
        "content": {PROBLEM: {"schema": schema}},
    }
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 0}}}
    return response


def _system_path(
    name: str, summary: str, media_type: str, schema: dict[str, Any], *, is_public: bool = True
) -> dict[str, Any]:
    problems = (400, 403, 431, 503) if is_public else (400, 401, 403, 431, 503)
    content = {media_type: {"schema": schema}}
    operation: dict[str, Any] = {
        "operationId": name,
        "tags": [_SERVER],
        "summary": summary,
        "responses": {
            "200": {"description": "OK", "content": content},
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in problems},
        },
    }
    if schema is _READINESS:
        operation["responses"]["503"] = {"description": "Not ready.", "content": content}
    return {"get": operation | ({"security": []} if is_public else {})}


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
            "description": "By component: `ok` or an error code.",
            "additionalProperties": _TEXT,
        },
    },
}
_SYSTEM_PATHS = {
    "/healthz": _system_path("health", "Check that the server responds", JSON, _HEALTH),
    "/readyz": _system_path("readiness", "Check that the server can run calls", JSON, _READINESS),
    "/metrics": _system_path(
        "metrics", "Get Prometheus metrics", "text/plain", _TEXT, is_public=False
    ),
    "/openapi.json": _system_path("description", "Get this description", JSON, {"type": "object"}),
    "/docs": _system_path("page", "Open a page to browse and try the API", "text/html", _TEXT),
}
