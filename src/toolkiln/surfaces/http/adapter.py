"""The adapter between HTTP and operations: routes, parsed requests, preconditions.

A handler gets an `HttpRequest` and, if its route declares them, the validated query and body.
It returns a value, which is sent with the first status that the route declares, or a
`Response`. It raises any `ToolkilnError`; `responses` turns it into a problem.
"""

import asyncio
import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Mapping,
)
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    create_model,
)
from pydantic_core import from_json
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope

from toolkiln.errors import ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.base import Value
from toolkiln.model.identity import Caller
from toolkiln.operations import tools
from toolkiln.operations.operation import Operation
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.responses import Fault, HttpProblem, JsonResponse, validation_problem

I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class HttpRequest:
    """An authenticated request."""

    kiln: Kiln
    session: str
    """The session token that calls and operations run with."""
    caller: Caller
    """For display only: operations decide what the caller may do."""
    path: Mapping[str, str] = field(default_factory=dict)
    """The variable parts of the path, by name."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""

    async def run(self, operation: Operation[I, O], request: I) -> O:
        """Run an operation for the caller."""
        return await self.kiln.run_operation(operation, request, self.session)


@dataclass(frozen=True)
class Route:
    """One method of one path, with its texts in the OpenAPI description."""

    method: Method
    path: str
    """Such as `/v1/tools/{name}`; `{name}` matches one non-empty segment."""
    name: str
    """The operationId, in snake case."""
    summary: str
    handle: Callable[..., Awaitable[BaseModel | Response]]
    responses: Mapping[int, type[BaseModel] | None]
    """Models by status, the default one first; None: no body."""
    group: str = ""
    """The OpenAPI tag."""
    query: type[BaseModel] | None = None
    """Each field is a parameter; a list is a repeated parameter."""
    body: type[BaseModel] | None = None
    events: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    """The server-sent events by name, for clients that accept them."""
    problems: tuple[int, ...] = ()
    """Error statuses beyond those of every route."""
    preconditions: tuple[str, ...] = ()
    """The conditional headers that the route supports: `If-Match` …"""
    idempotent_by_key: bool | Literal["handled"] = False
    """Whether the route supports `Idempotency-Key`; `handled`: the handler implements it."""
    is_large: bool = False
    """Whether to serialise the response in a thread, and to compress it."""
    description: str = ""
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Valid bodies by name."""


def route(
    method: Method,
    path: str,
    operation: Operation[Any, Any],
    *,
    name: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    etag: Callable[[Any], str] | None = None,
    respond: Callable[[Any], Response] | None = None,
    preconditions: tuple[str, ...] = (),
    in_query: Collection[str] | None = None,
    omit: Collection[str] = (),
    **texts: Any,
) -> Route:
    """Return the route of an operation.

    Variable parts of the path and preconditions are fields of the operation's input (`match`
    for `If-Match`, `only_new` for `If-None-Match`); the other fields are the query of a GET or
    DELETE, and the body of other methods, except those named by `in_query`. Clients cannot set
    the fields named by `omit`. `etag` returns the digest that the response names; `respond`
    builds a response whose status or headers depend on the result. Operations that are not
    read-only support `Idempotency-Key`.
    """
    in_path = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    rest = operation.input.model_fields.keys() - in_path - {*omit}
    rest -= {_PRECONDITION_FIELDS[header] for header in preconditions}
    if in_query is None:
        in_query = rest if method in _METHODS_WITHOUT_BODY else ()
    query = _part(operation.input, rest & {*in_query}, Query)
    body = _part(operation.input, rest - {*in_query}, Body)

    async def handle(context: HttpRequest, *parts: BaseModel) -> BaseModel | Response:
        fields: dict[str, Any] = {key: context.path[key] for key in in_path}
        if "If-Match" in preconditions:
            fields["match"] = _if_match(context)
        if "If-None-Match" in preconditions:
            fields["only_new"] = _is_create_only(context)
        for part in parts:
            fields |= {key: getattr(part, key) for key in type(part).model_fields}
        result: BaseModel = await context.run(operation, operation.input(**fields))
        if respond is not None:
            return respond(result)
        if etag is not None:
            return JsonResponse(result, status, {"etag": tag(etag(result))})
        return JsonResponse(result, status, headers) if headers else result

    needs = f"Requires the privilege {operation.privilege}." if operation.privilege else ""
    return Route(
        method=method,
        path=path,
        name=name or operation.handle.__name__,
        handle=handle,
        query=query,
        body=body,
        preconditions=preconditions,
        idempotent_by_key=not operation.read_only,
        **{"responses": {status: operation.output}, "description": needs, **texts},
    )


_METHODS_WITHOUT_BODY = ("GET", "DELETE")
_PRECONDITION_FIELDS = {"If-Match": "match", "If-None-Match": "only_new"}


def _part(
    model: type[BaseModel], names: Collection[str], base: type[BaseModel]
) -> type[BaseModel] | None:
    """Return a model of some fields of another model; None if there are none."""
    fields: Any = {
        name: (info.annotation, info) for name, info in model.model_fields.items() if name in names
    }
    if not fields:
        return None
    part = create_model(model.__name__, __base__=base, __doc__=model.__doc__, **fields)
    part.__described_by__ = model  # type: ignore[attr-defined] # has the docstrings of the fields
    return part


IS_LOCAL = "toolkiln.is_local"
"""Key in the ASGI scope: whether the request came from this machine."""

_WATCH_AFTER_SECONDS = 0.05
"""When a request gets a task that watches for a disconnect."""
_SESSION = "toolkiln.session"
"""Key in the ASGI scope: the session that the middleware found for the request."""
_MAX_PARAMETERS = 200
_MAX_DEPTH = 200
"""Approximate nesting limit of the JSON parser."""


def parse_query(model: type[BaseModel], query: bytes) -> BaseModel:
    """Return the parameters of a query string; a list is a repeated parameter.

    Raises:
        HttpProblem: the parameters are not valid.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_PARAMETERS,
        )
    except ValueError:
        raise HttpProblem("bad_request", "the query string cannot be decoded") from None
    values: dict[str, Any] = {}
    lists = _list_fields(model)
    for name, value in pairs:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            fault = Fault(place=f"query.{name}", message="must not be repeated")
            raise HttpProblem("invalid_request", f"{fault.place}: {fault.message}", errors=(fault,))
        else:
            values[name] = value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise validation_problem("query", error) from None


def parse_body(model: type[BaseModel], body: bytes, content_type: str) -> BaseModel:
    """Return a JSON body; an empty body is an empty object.

    Raises:
        HttpProblem: the body is not JSON, or not valid.
    """
    value: Any = {}
    if body:
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HttpProblem(
                "unsupported_media_type",
                "the body must be application/json",
                hint="send `Content-Type: application/json`",
            )
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            if "recursion" in str(error):
                raise HttpProblem(
                    "bad_json", f"the body has more than {_MAX_DEPTH} levels of nesting"
                ) from None
            raise HttpProblem("bad_json", f"the body is not JSON: {error}") from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise validation_problem("body", error) from None


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an `Accept-Encoding` header allows gzip."""
    for coding in accept_encoding.lower().split(","):
        name, _, weight = coding.partition(";")
        if name.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(?:\.0*)?\s*", weight)
    return False


def _credential(scope: Scope) -> str | None:
    header = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    if header is None:
        return None
    scheme, _, credential = header.decode("latin-1").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


async def caller_key(kiln: Kiln, authenticator: Authenticator, scope: Scope) -> str:
    """Return the key for limits per caller: the caller, or the address if there is none."""
    if _credential(scope) is not None:
        guard = kiln.security.guard
        with suppress(ToolkilnError):  # the endpoint reports it
            session = await session_of(authenticator, scope)
            caller = guard.known_caller(session) or await guard.caller(session)
            scope[_SESSION] = session
            return f"caller {caller.who}"
    return address_key(scope)


def address_key(scope: Scope) -> str:
    """Return the key for limits per address."""
    return f"address {(scope.get('client') or ('',))[0]}"


async def session_of(authenticator: Authenticator, scope: Scope) -> str:
    """Return the session of a request.

    Raises:
        NoSession: the credential is missing or not valid.
        StoreError: the store failed.
    """
    if _SESSION in scope:
        return str(scope[_SESSION])
    credential, is_local = _credential(scope), bool(scope.get(IS_LOCAL))
    session = authenticator.known_session(credential, is_local=is_local)
    if session is not None:
        return session
    return await asyncio.to_thread(authenticator.session, credential, is_local=is_local)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects; discard what it sends."""
    while (await receive())["type"] != "http.disconnect":
        pass


class DisconnectGuard:
    """Cancels its block when the client disconnects, and then raises `ClientDisconnect`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._is_disconnected = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        # Most operations end before a task would pay off.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_WATCH_AFTER_SECONDS, self._watch)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_disconnected:
            if kind is None:  # the block ended at the same time; the cancellation is still to come
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if self._task.uncancel() == 0 or kind is not asyncio.CancelledError:
                raise ClientDisconnect

    def _watch(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        await wait_for_disconnect(self._receive)
        self._is_disconnected = True
        self._task.cancel()


@cache
def _list_fields(model: type[BaseModel]) -> Collection[str]:
    fields: Mapping[str, Any] = model.model_fields
    return {field.alias or name for name, field in fields.items() if _is_list(field.annotation)}


def _is_list(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (list, tuple, set, frozenset):
        return True
    return origin is not None and any(_is_list(inner) for inner in get_args(annotation))


def tag(digest: str) -> str:
    """Return the ETag of a digest."""
    return f'"{digest}"'


def _if_match(request: HttpRequest) -> tools.Match:
    """Return the digests that a request may replace, from `If-Match`."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    if not header.strip():
        raise HttpProblem("bad_request", "If-Match is empty")
    tags = [tag.strip() for tag in header.split(",")]
    # Other forms of tags match nothing.
    return tuple(tag if tag == "*" else tag[1:-1] for tag in tags if _is_tag(tag))


def _is_tag(text: str) -> bool:
    return text == "*" or (len(text) > 1 and text[0] == text[-1] == '"' and text != '"*"')


def _is_create_only(request: HttpRequest) -> bool:
    """Return whether a request may not replace anything, from `If-None-Match`."""
    header = request.headers.get("if-none-match")
    if header is not None and header.strip() != "*":
        raise HttpProblem("bad_request", "If-None-Match of a PUT must be `*`")
    return header is not None


class Body(Value):
    """The base of request bodies."""

    model_config = ConfigDict(strict=True)


class Query(Value):
    """The base of query parameters."""
