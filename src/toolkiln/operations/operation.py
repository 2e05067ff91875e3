"""Operation: one thing that can be done to a Kiln, independent of the surface.

An operation is a name, an input, an output, a privilege and a handler. HTTP, the command line
and the fleet are adapters over operations: they turn a request into the input and the output
into a response. Who may run an operation is decided here and nowhere else. Lists come in pages,
with opaque cursors.
"""

import inspect
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

from pydantic import BeforeValidator, Field

from toolkiln.errors import InvalidCursor
from toolkiln.model.base import Value
from toolkiln.model.identity import Caller, Privilege
from toolkiln.security.sessions import LOCAL_OPERATOR

if TYPE_CHECKING:
    from toolkiln.operations.services import Services
    from toolkiln.security.sessions import SessionToken

I = TypeVar("I")  # noqa: E741 - the input
O = TypeVar("O")  # noqa: E741 - the output
T = TypeVar("T")
Routing = Literal["local", "worker"]
Report = Callable[[str, int | None, int | None], None]
"""Receives progress: the current step, and how many of how many are done, if known."""


def _ignore(_step: str, _done: int | None, _total: int | None) -> None:
    pass


class Nothing(Value):
    """The input of an operation that needs none."""


@dataclass(frozen=True)
class OperationContext:
    """For whom a handler works, and with what."""

    services: "Services"
    session: "SessionToken"
    report: Report = _ignore

    @cached_property
    def caller(self) -> Caller:
        """The caller behind the session.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        return self.services.security.caller(self.session)

    @property
    def is_admin(self) -> bool:
        """Whether the caller has ADMIN."""
        return self.session is LOCAL_OPERATOR or Privilege.ADMIN in self.caller.privileges

    async def run(self, operation: "Operation[I, O]", request: I) -> O:
        """Run another operation for the same caller, at a worker if it belongs there."""
        return await self.services.run(operation, request, self.session)

    def require(self, privilege: Privilege, act: str) -> Caller:
        """Return the caller if they have a privilege; the audit log records a denial as `act`.

        Raises:
            NotAllowed: they lack it.
        """
        return self.services.security.require(self.session, privilege, act)


@dataclass(frozen=True)
class Operation(Generic[I, O]):
    """One row of the table of operations; made by `@operation`."""

    name: str
    """Noun and verb, such as `keys.create`."""
    handle: Callable[[OperationContext, I], Any]
    """Returns the output, or a coroutine of it."""
    privilege: Privilege | None
    """What the caller needs; a handler may require more, depending on the input."""
    act: str
    """How the audit log names the attempt of a caller without the privilege."""
    read_only: bool
    """Whether it changes nothing, so that it may run twice."""
    timeout: float
    """Seconds it may take, including the way to a worker and back."""
    routing: Routing
    """Where a front of a fleet runs it: in its own process, or at a worker."""

    @cached_property
    def input(self) -> type[I]:
        """The type of the request."""
        return cast("type[I]", list(self._types.values())[1])

    @cached_property
    def output(self) -> Any:
        """The type of the result."""
        return self._types["return"]

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self.handle, include_extras=True)

    @cached_property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handle)

    async def run(
        self,
        services: "Services",
        request: I,
        session: "SessionToken",
        report: Report | None = None,
    ) -> O:
        """Check the privilege and run the handler, a synchronous one in a thread.

        Raises:
            NotAllowed: the caller lacks the privilege; the audit log has a record.
        """
        from asyncio import to_thread

        if not self.is_async:
            return await to_thread(self.run_sync, services, request, session, report)
        context = OperationContext(services, session, report or _ignore)
        if self.privilege is not None:
            await to_thread(self._check_privilege, context)
        return cast("O", await self.handle(context, request))

    def run_sync(
        self,
        services: "Services",
        request: I,
        session: "SessionToken",
        report: Report | None = None,
    ) -> O:
        """As `run`, in this thread; for synchronous handlers."""
        context = OperationContext(services, session, report or _ignore)
        self._check_privilege(context)
        return cast("O", self.handle(context, request))

    def _check_privilege(self, context: OperationContext) -> None:
        # The local operator has every privilege: `toolkiln status` does not load `security`.
        if self.privilege is not None and context.session is not LOCAL_OPERATOR:
            context.require(self.privilege, self.act)


class _Decorator(Protocol):
    @overload
    def __call__(
        self, handle: Callable[[OperationContext, I], Coroutine[Any, Any, O]]
    ) -> Operation[I, O]: ...
    @overload
    def __call__(self, handle: Callable[[OperationContext, I], O]) -> Operation[I, O]: ...


def operation(
    name: str,
    *,
    privilege: Privilege | None = None,
    act: str = "",
    read_only: bool = False,
    timeout: float = 30.0,
    routing: Routing = "local",
) -> _Decorator:
    """Turn a handler into an operation; its annotations are the input and the output."""

    def decorate(handle: Callable[[OperationContext, Any], Any]) -> Operation[Any, Any]:
        return Operation(name, handle, privilege, act or name, read_only, timeout, routing)

    return decorate


Position = tuple[float, str]
"""When an item was created, and its name."""
MOST_LISTED = 200


def _integer(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdigit()):
        raise ValueError("it is no whole number")
    return value


def _flag(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, str):
        raise ValueError("it is neither true nor false")
    return value


Count = Annotated[int, BeforeValidator(_integer)]
"""A whole number, also as the text of a query parameter."""
Flag = Annotated[bool, BeforeValidator(_flag)]
"""`true` or `false`, and nothing else that Python accepts as a boolean."""


class PageQuery(Value):
    """Selects a page of a list."""

    limit: Annotated[Count, Field(ge=1, le=MOST_LISTED)] = 50
    """Maximum number of items."""
    cursor: Annotated[str | None, Field(max_length=500)] = None
    """The `next_cursor` of the page before."""


def encode_cursor(kind: str, *position: str | int | float) -> str:
    """Return the cursor of a position in a kind of list."""
    text = json.dumps([kind, *position], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str, *types: type) -> list[Any]:
    """Return the position that a cursor names.

    Raises:
        InvalidCursor: it is none of this kind of list.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = json.loads(urlsafe_b64decode(padded))
    except (ValueError, RecursionError):
        raise InvalidCursor from None
    if not isinstance(found, list) or [type(item) for item in found] != [str, *types]:
        raise InvalidCursor
    if found[0] != kind:
        raise InvalidCursor
    return found[1:]


def page_of(
    kind: str,
    items: Sequence[T],
    position: Callable[[T], Position],
    cursor: str | None,
    limit: int,
) -> tuple[Sequence[T], str | None]:
    """Return a page of a complete list, newest first, and the cursor of the next page.

    If the item at the cursor is gone, the page starts with the next older one.
    """
    start = 0
    if cursor is not None:
        last = tuple(decode_cursor(kind, cursor, float, str))
        positions = [position(item) for item in items]
        older = (index for index, (time, _) in enumerate(positions) if time <= last[0])
        start = positions.index(last) + 1 if last in positions else next(older, len(items))
    end = start + limit
    following = encode_cursor(kind, *position(items[end - 1])) if end < len(items) else None
    return items[start:end], following
