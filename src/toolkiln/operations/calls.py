"""Call operations: run tools, look up background calls, and read outputs.

A call returns its Result, however the tool ended. A call that continues in the background is
a Task, which only its caller can look up by id.

The calls in a model's message each get a reply: a model's mistake becomes one too, so that the
model can correct it, and only a program's mistake is raised. A provider's call id is used for
the reply only: other conversations may have the same one.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.model.base import Page, Value
from toolkiln.model.call import Call, Event, OutputPage, Result, Status, Task
from toolkiln.model.identity import Caller
from toolkiln.model.spec import ToolSpec
from toolkiln.operations.library import compiled, named, refuse_other_roles
from toolkiln.operations.operation import Count, OperationContext, PageQuery, operation, page_of
from toolkiln.schema.providers import Provider, compile_tool
from toolkiln.schema.providers.compilers import extend_request
from toolkiln.schema.providers.messages import Message, MessageFormat, ToolCall, ToolReply, read
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken

if TYPE_CHECKING:
    from toolkiln.operations.engine import CallOptions
    from toolkiln.operations.services import Services

_MOST_CALLS = 100
_MOST_LISTED = 1_000
_LONGEST_PROMPT = 100_000
_LONGEST_WAIT = 60.0
_POLL_SECONDS = 1.0
"""Seconds between looks at a call that runs in another process."""
_UNENDED = ("running", "pending")

Seconds = Annotated[float, Field(gt=0, le=86_400)]
ToolName = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str | None, Field(max_length=64)]
Observe = Callable[[Event], None]


class NoOutput(InputError):
    """A call that has not ended has no output."""

    code = "conflict"


class CallTool(Value, strict=True):
    """The arguments and options of a call."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    """By the names of the tool's parameters."""
    digest: Digest = None
    """The version that must run; another one is refused."""
    timeout: Seconds | None = None
    """Maximum seconds to wait; the tool's own limit applies too."""
    background: Literal["auto"] | bool = False
    """True: returns a task at once; `auto`: if the call takes longer than ten seconds."""
    prompt: Annotated[str | None, Field(max_length=_LONGEST_PROMPT)] = None
    """The prompt that the tool answers; search learns from it, if the operator enabled that."""
    request: dict[str, Any] = Field(default_factory=dict)
    """What the caller says about the call, for the tool; at most 16,384 bytes, unverified."""
    provider: Provider | None = None
    """The arguments are in the form that a model of this provider sends."""


@dataclass(frozen=True)
class CreateCall:
    """A call of a tool."""

    tool: str
    request: CallTool
    surface: str
    call_id: str | None = None
    """Makes the call run once, and continue if the caller stops waiting."""
    observe: Observe | None = None
    """Gets the events of the call."""


class BatchCall(Value, strict=True):
    """One call of a batch."""

    tool: ToolName
    arguments: dict[str, Any] = Field(default_factory=dict)
    digest: Digest = None
    timeout: Seconds | None = None
    request: dict[str, Any] = Field(default_factory=dict)
    """What the caller says about the call, for the tool; at most 16,384 bytes, unverified."""


class CallMany(Value, strict=True):
    """Calls to run in order; adjacent ones of parallel-safe tools run together."""

    calls: Annotated[list[BatchCall], Field(min_length=1, max_length=_MOST_CALLS)]


@dataclass(frozen=True)
class CreateCalls:
    """A batch of calls."""

    request: CallMany
    surface: str
    call_id: str | None = None
    """Gives the calls the ids ID.0, ID.1 and so on; they continue if the caller goes away."""


class BatchResults(Value):
    """One result for each call, in order."""

    results: tuple[Result, ...]


class CallRef(Value):
    """Names a call."""

    id: str


class GetCall(CallRef):
    """Names a call, and how long to wait for it."""

    wait: Annotated[float, Field(ge=0, le=_LONGEST_WAIT, allow_inf_nan=False)] = 0
    """Seconds to wait for its end; then its current state is returned."""


class AwaitCall(CallRef):
    """Names a call to wait for."""

    timeout: float | None = None
    """Maximum seconds to wait; by default until it ends."""


class TextRange(Value):
    """A range of characters."""

    offset: Annotated[Count, Field(ge=0, le=1 << 40)] = 0
    limit: Annotated[Count, Field(ge=1, le=100_000)] = 20_000


class GetCallOutput(TextRange):
    """A range of the output of a call."""

    id: str


class GetOutput(TextRange):
    """A range of a truncated output."""

    handle: str


@operation("calls.create")
async def create_call(context: OperationContext, request: CreateCall) -> Result | Task:
    """Run a tool. A tool that rules hide from the caller is reported as unknown."""
    services, call, arguments = context.services, request.request, request.request.arguments
    if call.provider is not None:
        arguments = await asyncio.to_thread(
            _decode, services, request.tool, call.provider, arguments
        )
    options: CallOptions = {
        "session": context.session,
        "surface": request.surface,
        "called": request.tool,
        "call_id": request.call_id,
        "detached": request.call_id is not None,
        "digest": call.digest,
        "timeout": call.timeout,
        "prompt": call.prompt,
        "request": call.request,
    }
    if request.observe is not None:
        options["observe"] = request.observe
    return await services.call(request.tool, arguments, call.background, options)


def _decode(
    services: "Services", tool: str, provider: Provider, arguments: dict[str, Any]
) -> dict[str, Any]:
    try:
        spec = services.registry.spec(tool)
    except InputError:  # the gateway refuses the call, and records it
        return arguments
    decoded: dict[str, Any] = compile_tool(spec, provider).decode(arguments)
    return decoded


@operation("calls.create_many")
async def create_calls(context: OperationContext, request: CreateCalls) -> BatchResults:
    """Run calls in order; each has a result, also if its tool is unknown."""
    services, key = context.services, request.call_id
    calls = [
        Call(
            tool=one.tool,
            arguments=one.arguments,
            digest=one.digest,
            timeout=one.timeout,
            request=one.request,
            session=services.security.token(context.session),
            surface=request.surface,
        )
        for one in request.request.calls
    ]
    if key is not None:
        calls = [
            call.model_copy(update={"id": f"{key}.{index}", "remember": True})
            for index, call in enumerate(calls)
        ]
    results = await services.engine.call_many(calls, detached=key is not None)
    caller = await services.caller(context.session)
    return BatchResults(
        results=tuple(
            _filtered(services, call, result, caller)
            for call, result in zip(calls, results, strict=True)
        )
    )


def _filtered(services: "Services", call: Call, result: Result, caller: Caller) -> Result:
    filtered = services.engine.visibility.filter_result(result, caller)
    # As for an unknown tool: the digest is that of the request.
    is_same = filtered is result
    return result if is_same else filtered.model_copy(update={"digest": call.digest})


@operation("calls.list", read_only=True)
async def list_calls(context: OperationContext, request: PageQuery) -> Page[Task]:
    """Return the caller's stored calls, newest first, without their results."""
    tasks = await context.services.tasks.list(context.session, _MOST_LISTED)
    items, cursor = page_of(
        "calls", tasks, lambda task: (task.started, task.id), request.cursor, request.limit
    )
    return Page(items=tuple(items), next_cursor=cursor)


@operation("calls.get", read_only=True)
async def get_call(context: OperationContext, request: GetCall) -> Task:
    """Return a call, with its result if it has ended."""
    tasks = context.services.tasks
    if not request.wait:
        return await tasks.get(request.id, context.session)
    return await tasks.wait(request.id, context.session, timeout=request.wait)


@operation("calls.wait", read_only=True)
async def await_call(context: OperationContext, request: AwaitCall) -> Task:
    """Return a call when it has ended, or its current state when the time is up."""
    tasks = context.services.tasks
    return await tasks.wait(request.id, context.session, timeout=request.timeout)


@operation("calls.cancel")
async def cancel_call(context: OperationContext, request: CallRef) -> Task:
    """Stop a call."""
    return await context.services.tasks.cancel(request.id, context.session)


@operation("calls.output", read_only=True)
async def get_call_output(context: OperationContext, request: GetCallOutput) -> OutputPage:
    """Return a page of the complete output of a call."""
    task = await context.services.tasks.get(request.id, context.session)
    if task.result is None:
        hint = f"wait for it with GET /v1/calls/{task.id}?wait=60"
        raise NoOutput(f"the call is {task.state} and has no output", hint=hint)
    cut = task.result.truncation
    if cut is not None and cut.handle is not None:
        return await _output(context, cut.handle, request)
    text = task.result.text
    start = min(request.offset, len(text))
    end = min(start + request.limit, len(text))
    following = end if end < len(text) else None
    return OutputPage(text=text[start:end], offset=start, total=len(text), next_offset=following)


@operation("outputs.get", read_only=True)
async def get_output(context: OperationContext, request: GetOutput) -> OutputPage:
    """Return a page of a truncated output."""
    return await _output(context, request.handle, request)


async def _output(context: OperationContext, handle: str, part: TextRange) -> OutputPage:
    return await context.services.tasks.read_output(
        handle, context.session, offset=part.offset, limit=part.limit
    )


class Tasks:
    """Background calls and truncated outputs of a Kiln, each visible to its caller only."""

    def __init__(self, services: "Services") -> None:
        self._services = services

    async def get(self, task_id: str, session: SessionToken = LOCAL_OPERATOR) -> Task:
        """Return a task by the id that its call returned.

        Raises:
            InputError: the caller has none with this id.
        """
        return await self._services.engine.results.task(
            await self._services.caller(session), task_id
        )

    async def wait(
        self, task_id: str, session: SessionToken = LOCAL_OPERATOR, *, timeout: float | None = None
    ) -> Task:
        """Return a task when it has ended, or its current state when the time is up."""
        results = self._services.engine.results
        return await results.wait(await self._services.caller(session), task_id, timeout)

    async def follow(
        self, task: Task, session: SessionToken, observe: Observe, after: int | None = None
    ) -> Task:
        """Return a task when it has ended; until then `observe` gets its events.

        With `after` these are all after the event of that number, otherwise those from now on.
        The task of another process has its progress as only event.
        """
        service = self._services.engine.tasks
        unsubscribe = service.subscribe(
            await self._services.caller(session), task.id, observe, after
        )
        if unsubscribe is not None:
            try:
                return await self.wait(task.id, session)
            finally:
                unsubscribe()
        progress = ""
        while task.state in _UNENDED:
            if task.progress != progress:
                progress = task.progress
                observe(Event(kind="progress", text=progress))
            task = await self.wait(task.id, session, timeout=_POLL_SECONDS)
        return task

    async def cancel(self, task_id: str, session: SessionToken = LOCAL_OPERATOR) -> Task:
        """Stop a task."""
        return await self._services.engine.tasks.cancel(
            await self._services.caller(session), task_id
        )

    async def list(self, session: SessionToken = LOCAL_OPERATOR, limit: int = 50) -> list[Task]:
        """Return a caller's tasks, newest first; at most 1,000.

        Anonymous callers get none, because they are many people; each finds a task by its id.
        """
        caller = await self._services.caller(session)
        return (
            [] if caller.is_anonymous else await self._services.engine.results.tasks(caller, limit)
        )

    async def read_output(
        self,
        handle: str,
        session: SessionToken = LOCAL_OPERATOR,
        *,
        offset: int = 0,
        limit: int = 20_000,
    ) -> OutputPage:
        """Return a page of a truncated output.

        Raises:
            InputError: the caller has none with this handle.
        """
        caller = await self._services.caller(session)
        return await self._services.engine.results.read_output(caller, handle, offset, limit)


async def handle_message(
    services: "Services",
    message: object,
    provider: str | None,
    session: "SessionToken",
    tools: list[Any] | None = None,
    request: dict[str, Any] | None = None,
) -> list[Message]:
    """Return the messages to append to a conversation; none if the model called nothing.

    Tools that a call injects are added to `tools`, unless the caller may not run them.

    Raises:
        InputError: the form is unknown, or not that of the provider.
    """
    wire, tool_calls = read(message)
    provider = _provider(wire, provider)
    faults = [_fault(services, wire, item) for item in tool_calls]
    pairs = list(zip(tool_calls, faults, strict=True))
    calls = [_decoded_call(services, item, provider) for item, fault in pairs if fault is None]
    ran = await _run_calls(services, calls, session, request or {}) if calls else []
    if tools is not None:
        names = dict.fromkeys(name for result in ran for name in result.injected_tools)
        specs = await asyncio.to_thread(_offered, services, names, session)
        extend_request(tools, provider, compiled(specs, provider))
    results = iter(ran)
    return wire.messages([_reply(item, fault or next(results)) for item, fault in pairs])


def _offered(services: "Services", names: Iterable[str], session: "SessionToken") -> list[ToolSpec]:
    found: list[ToolSpec] = []
    for name in names:
        with suppress(ToolkilnError):  # there is none that the caller may run
            found += named(services, [name], session)
    return found


async def _run_calls(
    services: "Services", calls: list[Call], session: "SessionToken", request: dict[str, Any]
) -> list[Result]:
    token = services.security.token(session)
    update = {"session": token, "surface": services.surface, "request": request}
    return await services.engine.gateway.call_many(
        [call.model_copy(update=update) for call in calls]
    )


def _provider(wire: MessageFormat, provider: str | None) -> str:
    if provider is not None and provider not in wire.providers:
        raise InputError(
            f"this is a message of {wire.name}, which does not match the provider {provider!r}",
            hint=f"use one of {', '.join(wire.providers)}",
        )
    return provider or wire.providers[0]


def _fault(services: "Services", wire: MessageFormat, call: ToolCall) -> str | None:
    """Return why a call cannot be made, for the model."""
    if not isinstance(call.tool, str):
        return "error: the call names no tool\nhint: call one of the tools by its name"
    if wire.needs_ids and not (isinstance(call.id, str) and call.id):
        return "error: the call has no id and was not run\nhint: send it again with an id"
    try:
        refuse_other_roles(services, call.tool)
    except UnknownTool as error:
        return f"error: {error.message}"
    return None


def _decoded_call(services: "Services", call: ToolCall, provider: str) -> Call:
    """Return a call with decoded arguments; the gateway validates it."""
    assert isinstance(call.tool, str)
    arguments = _parsed(call.arguments)
    if isinstance(arguments, dict):
        with suppress(InputError):  # the tool is unknown or not served
            arguments = compile_tool(services.registry.spec(call.tool), provider).decode(arguments)
    return Call(tool=call.tool, arguments=arguments)


def _parsed(arguments: object) -> Any:
    """Return parsed JSON text; other text stays, and the gateway refuses it."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _reply(call: ToolCall, outcome: Result | str) -> ToolReply:
    if isinstance(outcome, str):
        return ToolReply(call, outcome, is_error=True)
    return ToolReply(call, outcome.text, outcome.status is not Status.OK)
