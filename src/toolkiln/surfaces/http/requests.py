"""What a request says, checked: its query and its body, and whether its client is still there."""

import asyncio
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any, Self, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.types import Receive, Scope

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import ToolkilnError
from toolkiln.surfaces.http.access import IS_LOCAL
from toolkiln.surfaces.http.problems import Fault, Refused, misfit

_SOON = 0.05
"""Seconds after which it is worth a task to notice that a client has gone."""
_SESSION = "toolkiln.session"
"""Where the gate notes the session that it found for a request."""
_MOST_PARAMETERS = 200
DEEPEST = 200
"""Arrays and objects within each other that the parser takes, a few more or less."""


class ClientGone(Exception):
    """Whoever asked does not wait for an answer."""


def checked_query(model: type[BaseModel], query: bytes) -> BaseModel:
    """The parameters of a query; lists are repeated ones.

    Raises:
        Refused: they do not fit.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:
        raise Refused("bad_request", "the query cannot be read") from None
    given: dict[str, Any] = {}
    lists = _lists(model)
    for name, value in pairs:
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            fault = Fault(place=f"query.{name}", message="it is given twice")
            raise Refused("invalid_request", f"{fault.place}: {fault.message}", errors=(fault,))
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise misfit("query", error) from None


def checked_body(model: type[BaseModel], body: bytes, content_type: str) -> BaseModel:
    """A JSON body; nothing at all is an object without fields.

    Raises:
        Refused: it is no JSON, or does not fit.
    """
    given: Any = {}
    if body:
        kind = content_type.partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(
                "unsupported_media_type",
                "the body is not declared as JSON",
                hint="send `Content-Type: application/json`",
            )
        try:
            given = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            if "recursion" in str(error):
                raise Refused("bad_json", f"the body is nested more than {DEEPEST} deep") from None
            raise Refused("bad_json", f"the body is not JSON: {error}") from None
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise misfit("body", error) from None


def takes_gzip(accepted: str) -> bool:
    """Whether a client that sent this `Accept-Encoding` takes an answer compressed by gzip."""
    for choice in accepted.lower().split(","):
        name, _, weight = choice.partition(";")
        if name.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(?:\.0*)?\s*", weight)
    return False


async def read_body(receive: Receive) -> bytes:
    """The whole body; the gate bounds its size and time.

    Raises:
        ClientGone: the client went while it was sending.
    """
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def _credential(scope: Scope) -> str | None:
    shown = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    if shown is None:
        return None
    kind, _, text = shown.decode("latin-1").partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


async def caller_of(kiln: Kiln, entrance: Entrance, scope: Scope) -> str:
    """Whom a request counts for: its caller, or where it came from if nobody is known."""
    if _credential(scope) is not None:
        guard = kiln.guarding.guard
        with suppress(ToolkilnError):  # whoever answers the request reports it
            session = await session_of(entrance, scope)
            caller = guard.known_caller(session) or await guard.caller(session)
            scope[_SESSION] = session
            return f"caller {caller.who}"
    return address_of(scope)


def address_of(scope: Scope) -> str:
    """Where a request came from."""
    return f"address {(scope.get('client') or ('',))[0]}"


async def session_of(entrance: Entrance, scope: Scope) -> str:
    """The session of a request.

    Raises:
        NoSession: its credential is missing or opens no session.
        StoreError: that cannot be looked up.
    """
    if _SESSION in scope:
        return str(scope[_SESSION])
    credential, is_local = _credential(scope), bool(scope.get(IS_LOCAL))
    known = entrance.known_session(credential, is_local=is_local)
    if known is not None:
        return known
    return await asyncio.to_thread(entrance.session, credential, is_local=is_local)


async def until_gone(receive: Receive) -> None:
    """Returns when the client has gone; what else it sends is dropped."""
    with suppress(Refused):  # more than it may send: that is no sign of life either
        while (await receive())["type"] != "http.disconnect":
            pass


class Presence:
    """Cancels what runs within it once the client has gone, and ends in ClientGone then."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._is_gone = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        # Most operations are over before a task would pay.
        self._timer = asyncio.get_running_loop().call_later(_SOON, self._watch)
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
        if self._is_gone:
            if kind is None:  # it ended in the same moment, and the cancellation is still to come
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if self._task.uncancel() == 0 or kind is not asyncio.CancelledError:
                raise ClientGone

    def _watch(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        await until_gone(self._receive)
        self._is_gone = True
        self._task.cancel()


@cache
def _lists(model: type[BaseModel]) -> Collection[str]:
    """The parameters that may be repeated."""
    found: Mapping[str, Any] = model.model_fields
    return {field.alias or name for name, field in found.items() if _is_list(field.annotation)}


def _is_list(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (list, tuple, set, frozenset):
        return True
    return origin is not None and any(_is_list(inner) for inner in get_args(annotation))
