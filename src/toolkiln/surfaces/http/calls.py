"""`/v1/tools/{name}/call` and `/v1/calls`: running tools, and what is remembered of it.

Whatever came to the gateway is answered with its Result and 200, however the tool ended. The
exceptions are few, and the same for all: a tool that the caller may not know of (404), a
session that ended (401), calls that come too fast (429), and a key that stands for another
call (422).
"""

import asyncio
from math import ceil
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field

from toolkiln.app import CallOptions, OutputPage, errands
from toolkiln.model import Call, Result, Status, Task, Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.shapes import LONGEST_TEXT, Body, Count, Name, Page, Query
from toolkiln.surfaces.http.streams import OF_CALLS, Observe, of_call, wants_events

SURFACE = "http"
_MOST_CALLS = 100
_MOST_REMEMBERED = 1_000
_LONGEST_WAIT = 60.0
_ABSENT = ("unknown_tool", "not_admitted", "disabled")

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Provider = Literal[
    "openai",
    "openai-strict",
    "openai-responses",
    "openai-responses-strict",
    "anthropic",
    "anthropic-strict",
    "gemini",
    "mcp",
]


class CallBody(Body):
    """How a tool is called."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """What it takes, by the names of its parameters."""
    digest: Annotated[str | None, Field(max_length=64)] = None
    """The version that must run; another one is refused."""
    timeout: Seconds | None = None
    """Seconds to wait at most; the tool's own limit holds too."""
    background: Literal["auto"] | bool = False
    """True: answered at once with a task; `auto`: if it takes longer than ten seconds."""
    prompt: Annotated[str | None, Field(max_length=LONGEST_TEXT)] = None
    """What the tool is to answer; search learns from it, if the operator agreed."""
    provider: Provider | None = None
    """The arguments are as a model of this provider sent them for its form of the tool."""


class OneOfMany(Body):
    """One call of a batch."""

    tool: Name
    arguments: dict[str, Any] = Field(default_factory=dict)
    digest: Annotated[str | None, Field(max_length=64)] = None
    timeout: Seconds | None = None


class CallsBody(Body):
    """Calls to be made in their order; neighbours that may run together do."""

    calls: Annotated[list[OneOfMany], Field(min_length=1, max_length=_MOST_CALLS)]


class Results(Value):
    """One result for each call, in their order."""

    results: tuple[Result, ...]


class CallList(Value):
    """A part of the calls that are remembered, newest first, without their results."""

    items: tuple[Task, ...]
    next_cursor: str | None


class WaitQuery(Query):
    """How long to wait for a call."""

    wait: Annotated[float, Field(ge=0, le=_LONGEST_WAIT, allow_inf_nan=False)] = 0
    """Seconds to wait for its end; then it is told how it stands."""


class PageQuery(Query):
    """Which part of a text; all counts are characters."""

    offset: Annotated[Count, Field(ge=0, le=1 << 40)] = 0
    limit: Annotated[Count, Field(ge=1, le=100_000)] = 20_000


async def call_tool(visit: Visit, body: CallBody) -> BaseModel | Answer:
    """Run a tool."""
    name, kiln, key = visit.path["name"], visit.kiln, visit.headers.get("idempotency-key")
    arguments = body.arguments
    if body.provider is not None:
        standing = await kiln.tend(errands.Look(name=name), visit.session)
        provider, sent = body.provider, arguments
        arguments = await asyncio.to_thread(
            lambda: kiln.compiled(standing.spec, provider).decode(sent)
        )

    options: CallOptions = {
        "session": visit.session,
        "surface": SURFACE,
        "call_id": key,
        "lasting": key is not None,
        "digest": body.digest,
        "timeout": body.timeout,
        "prompt": body.prompt,
    }

    async def run(observe: Observe | None = None) -> Result | Task:
        if observe is not None:
            options["observe"] = observe
        return await kiln.call(name, arguments, background=body.background, **options)

    # What the caller may not know of is called all the same, for the record of it.
    if wants_events(visit) and kiln.engine.discretion.is_seen(name, visit.caller):
        return of_call(run)
    ended = await run()
    return answered(_told(visit, ended) if isinstance(ended, Result) else ended)


def answered(ended: Result | Task) -> BaseModel | Answer:
    """The answer to a call.

    Raises:
        Refused: it is none that a client should take for the end of a call.
    """
    if isinstance(ended, Task):
        return Answer(ended, 202, {"location": f"/v1/calls/{quote(ended.id, safe='')}"})
    if ended.error is not None:
        _refuse(ended)
    return ended


def _refuse(result: Result) -> None:
    error = result.error
    assert error is not None
    if result.status is Status.INVALID and error.code in (*_ABSENT, "manifest_unusable"):
        raise Refused(error.code, error.message, hint=error.hint)
    if result.status is Status.INVALID and error.code == "conflict":
        raise Refused("key_reused", error.message, hint=error.hint)
    if error.code == "no_session" and not result.sandbox:
        headers = {"www-authenticate": "Bearer"}
        raise Refused("no_session", error.message, hint=error.hint, headers=headers)
    if error.code == "rate_limited" and not result.sandbox:
        headers = {"retry-after": str(ceil(error.retry_after or 1))}
        raise Refused("rate_limited", error.message, hint=error.hint, headers=headers)


def _told(visit: Visit, result: Result) -> Result:
    """A result without what the caller may not know."""
    return visit.kiln.engine.discretion.told(result, visit.caller)


async def call_many(visit: Visit, body: CallsBody) -> Results:
    """Run several calls."""
    key = visit.headers.get("idempotency-key")
    calls = [
        Call(
            tool=one.tool,
            arguments=one.arguments,
            digest=one.digest,
            timeout=one.timeout,
            session=visit.session,
            surface=SURFACE,
        )
        for one in body.calls
    ]
    if key is not None:
        calls = [
            call.model_copy(update={"id": f"{key}.{at}", "remember": True})
            for at, call in enumerate(calls)
        ]
    results = await visit.kiln.engine.call_many(calls, lasting=key is not None)
    told = [_told(visit, result) for result in results]
    return Results(
        results=tuple(
            # As for a tool that does not exist: the version that was asked for.
            one if one is result else one.model_copy(update={"digest": call.digest})
            for call, result, one in zip(calls, results, told, strict=True)
        )
    )


async def list_calls(visit: Visit, query: Page) -> CallList:
    """The calls that are remembered for the caller."""
    found = await visit.kiln.tasks(visit.session, _MOST_REMEMBERED)
    items, following = cursors.part(
        "calls", found, lambda one: (one.started, one.id), query.cursor, query.limit
    )
    return CallList(items=tuple(items), next_cursor=following)


async def get_call(visit: Visit, query: WaitQuery) -> Task:
    """How a call stands, with its result if it has ended."""
    if not query.wait:
        return await visit.kiln.check_task(visit.path["id"], visit.session)
    return await visit.kiln.await_task(visit.path["id"], visit.session, timeout=query.wait)


async def cancel_call(visit: Visit) -> Task:
    """Stop a call."""
    return await visit.kiln.cancel_task(visit.path["id"], visit.session)


async def get_call_output(visit: Visit, query: PageQuery) -> OutputPage:
    """A part of all that a call gave, also of what its result left out."""
    task = await visit.kiln.check_task(visit.path["id"], visit.session)
    if task.result is None:
        hint = f"wait for it with GET /v1/calls/{task.id}?wait=60"
        raise Refused("conflict", f"the call is {task.state} and has no output", hint=hint)
    cut = task.result.truncation
    if cut is not None and cut.handle is not None:
        return await _output(visit, cut.handle, query)
    text = task.result.text
    start = min(query.offset, len(text))
    end = min(start + query.limit, len(text))
    following = end if end < len(text) else None
    return OutputPage(text=text[start:end], offset=start, total=len(text), next_offset=following)


async def get_output(visit: Visit, query: PageQuery) -> OutputPage:
    """A part of an output that was cut."""
    return await _output(visit, visit.path["handle"], query)


async def _output(visit: Visit, handle: str, query: PageQuery) -> OutputPage:
    kiln, session = visit.kiln, visit.session
    return await kiln.read_output(handle, session, offset=query.offset, limit=query.limit)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/tools/{name}/call",
        name="call_tool",
        summary="Call a tool",
        description=(
            "Answered with 200 however the tool ends; `status` tells. With `Accept: "
            "text/event-stream` its events come as they happen, and the result last. A client "
            "that goes away stops the call, unless it is in the background or has an "
            "`Idempotency-Key`: that is the id of the call then, and finds its result for an hour."
        ),
        handle=call_tool,
        group="calls",
        body=CallBody,
        answers={200: Result, 202: Task},
        events=OF_CALLS,
        idempotent_by_key="handled",
        examples={"double": {"arguments": {"number": 21}}},
    ),
    Operation(
        method="POST",
        path="/v1/calls",
        name="call_many",
        summary="Make several calls",
        description=(
            "In their order; neighbours whose tools say that they may run in parallel run "
            "together. Each has its result, also one whose tool is unknown. With an "
            "`Idempotency-Key` the calls have the ids KEY.0, KEY.1 and so on."
        ),
        handle=call_many,
        group="calls",
        body=CallsBody,
        answers={200: Results},
        idempotent_by_key="handled",
        examples={"two": {"calls": [{"tool": "double", "arguments": {"number": 1}}] * 2}},
    ),
    Operation(
        method="GET",
        path="/v1/calls",
        name="list_calls",
        summary="List the calls that are remembered, newest first",
        description="Those with an `Idempotency-Key` or in the background, for an hour.",
        handle=list_calls,
        group="calls",
        query=Page,
        answers={200: CallList},
    ),
    Operation(
        method="GET",
        path="/v1/calls/{id}",
        name="get_call",
        summary="Get how a call stands, or wait for its end",
        handle=get_call,
        group="calls",
        query=WaitQuery,
        answers={200: Task},
    ),
    Operation(
        method="POST",
        path="/v1/calls/{id}/cancel",
        name="cancel_call",
        summary="Stop a call",
        description="One that runs on another server stops within a second or two.",
        handle=cancel_call,
        group="calls",
        answers={200: Task},
        idempotent_by_key=True,
    ),
    Operation(
        method="GET",
        path="/v1/calls/{id}/output",
        name="get_call_output",
        summary="Get a part of all that a call gave",
        handle=get_call_output,
        group="calls",
        query=PageQuery,
        answers={200: OutputPage},
        problems=(409,),
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{handle}",
        name="get_output",
        summary="Get a part of an output that was cut",
        description="`truncation.handle` of a result is its handle.",
        handle=get_output,
        group="calls",
        query=PageQuery,
        answers={200: OutputPage},
    ),
)
