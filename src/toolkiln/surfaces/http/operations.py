"""What an operation of the HTTP API is, and what its handler gets; no operation is here.

A handler gets a `Visit` and, where the operation declares them, the checked query and body.
It returns a value for the first answer that it declares, or an `Answer` to say more. What is
wrong with a request it raises, as any `ToolkilnError`; `problems` makes the answer of that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from toolkiln.app import Kiln
from toolkiln.model import Caller

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class Visit:
    """One request of somebody who is known."""

    kiln: Kiln
    session: str
    """The token of whoever asks: what calls and administrative acts are made with."""
    caller: Caller
    """Who that is at this moment; for what a handler shows, not for what it decides."""
    path: Mapping[str, str] = field(default_factory=dict)
    """The variable parts of the path, by name."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in lower case."""


@dataclass(frozen=True)
class Answer:
    """What a handler says beyond a value: another status, headers, or a stream of events."""

    value: BaseModel | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    events: AsyncIterator[tuple[str, BaseModel]] | None = None
    """Server-sent events, each with its name; the value is not used then."""


@dataclass(frozen=True)
class Operation:
    """One method of one path, with all that is said about it in the description."""

    method: Method
    path: str
    """As in `/v1/tools/{name}`; `{name}` is one part of the path, never empty."""
    name: str
    """The operationId, in snake case."""
    summary: str
    handle: Callable[..., Awaitable[BaseModel | Answer]]
    group: str
    """The tag that it is listed under."""
    answers: Mapping[int, type[BaseModel] | None]
    """By status, the usual one first; None: without a body."""
    query: type[BaseModel] | None = None
    """Each field is a parameter; lists are repeated parameters."""
    body: type[BaseModel] | None = None
    events: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    """The server-sent events that it may answer with, by name, if the client accepts them."""
    problems: tuple[int, ...] = ()
    """Statuses of errors that are its own, besides those that every operation can have."""
    preconditions: tuple[str, ...] = ()
    """The headers by which a client says what it expects to find: `If-Match` …"""
    idempotent_by_key: bool | Literal["handled"] = False
    """Whether an `Idempotency-Key` makes it run once; `handled`: its handler sees to that."""
    is_large: bool = False
    """Whether its answer is worth a thread, and compressing for clients that accept that."""
    description: str = ""
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Bodies that work, by a name."""
