"""Server-sent events, and the responses to calls, which may be a stream of them.

A client that reads slowly does not slow a call down: events that do not fit are dropped and
counted. `/v1/events` has the changes of everything in one stream, because a browser opens few
connections to a server.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from math import ceil
from typing import Annotated
from urllib.parse import quote

from pydantic import BaseModel, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolkiln.errors import ToolkilnError
from toolkiln.execution.run_log import RunRecord
from toolkiln.model.base import Value
from toolkiln.model.call import Event, Result, Status, Task
from toolkiln.model.identity import Caller
from toolkiln.operations import calls, runs, sources
from toolkiln.security.sessions import NoSession
from toolkiln.surfaces.http.adapter import HttpRequest, Query, wait_for_disconnect
from toolkiln.surfaces.http.responses import (
    HttpProblem,
    JsonResponse,
    ProblemDetails,
    refusal,
    to_json,
)

_SURFACE = "http"
_ABSENT = ("unknown_tool", "not_admitted", "disabled", "manifest_unusable")
_MOST_BUFFERED = 1_000
"""Events that wait for a slow client."""
_MOST_CHARACTERS = 4_000_000
"""Characters of events that wait, approximately."""
_EVENT_ID = re.compile(r"[0-9]{1,15}")
_RUN_INTERVAL = 0.2
"""Seconds for which changes of runs are collected."""
_KEEP_ALIVE_SECONDS = 15.0
"""Idle time after which a stream sends a comment."""
_POLL_SECONDS = 1.0
"""Seconds between looks at pending approvals, which another process may have changed."""

Observe = Callable[[Event], None]
Events = AsyncGenerator[tuple[str, BaseModel], None]


class EventStream(Response):
    """Server-sent events, each with its name."""

    def __init__(self, events: Events) -> None:
        self.status_code = 200
        self.init_headers({"content-type": "text/event-stream", "cache-control": "no-store"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more or the client disconnects."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            stream = asyncio.create_task(self._send(send))
            disconnect = asyncio.create_task(wait_for_disconnect(receive))
            try:
                await asyncio.wait((stream, disconnect), return_when=asyncio.FIRST_COMPLETED)
            finally:
                disconnect.cancel()
                is_complete = stream.done()
                stream.cancel()
                # Wait until the generator has released its resources.
                await asyncio.wait((stream,))
            if is_complete:
                stream.result()
        await self._events.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        event: asyncio.Future[tuple[str, BaseModel]] | None = None
        try:
            while True:
                event = event or asyncio.ensure_future(anext(self._events))
                await asyncio.wait((event,), timeout=_KEEP_ALIVE_SECONDS)
                chunk = b": still here\n\n"
                if event.done():
                    try:
                        name, value = event.result()
                    except StopAsyncIteration:
                        return
                    event = None
                    chunk = b"event: %s\ndata: %s\n\n" % (name.encode(), to_json(value))
                    if isinstance(value, Event) and value.number:
                        chunk = b"id: %d\n%s" % (value.number, chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            if event is not None and not event.done():
                event.cancel()
                await asyncio.wait((event,))


class LostEvents(Value):
    """Events that the client did not read in time."""

    count: int


CALL_EVENTS: Mapping[str, type[BaseModel]] = {
    "progress": Event,
    "log": Event,
    "stdout": Event,
    "stderr": Event,
    "pending": Event,
    "message": Event,
    "file": Event,
    "injected": Event,
    "lost": LostEvents,
    "result": Result,
    "task": Task,
    "problem": ProblemDetails,
}
"""The last event is `result`, `task` if the call continues in the background, or `problem`."""


class CatalogState(Value):
    """The first event: changes follow."""

    tools: int
    """Number of tools that the caller may run."""


class ToolsChanged(Value):
    """Tools that changed for the caller, because of files, settings or rules."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    """With another version."""
    removed: tuple[str, ...]


class ApprovalsWaiting(Value):
    """The calls that wait for the caller's decision have changed."""

    pending: int
    """Their number."""


CHANGE_EVENTS: Mapping[str, type[BaseModel]] = {
    "ready": CatalogState,
    "catalog": ToolsChanged,
    "run": runs.RunSummary,
    "lost": LostEvents,
    "approvals": ApprovalsWaiting,
}


class FollowQuery(Query):
    """How long to follow."""

    seconds: Annotated[float | None, Field(ge=0, le=86_400, allow_inf_nan=False)] = None
    """Seconds after which the stream ends; by default it does not end by itself."""


async def call_tool(request: HttpRequest, body: calls.CallTool) -> Result | Response:
    """Run a tool, and respond with its result, a task or a stream."""
    tool, key = request.path["name"], request.headers.get("idempotency-key")

    async def run(observe: Observe | None = None) -> Result | Task:
        call = calls.CreateCall(tool, body, _SURFACE, key, observe)
        return await request.run(calls.create_call, call)

    # A hidden tool is called all the same, for the audit record.
    if _accepts_events(request) and request.kiln.engine.visibility.is_seen(tool, request.caller):
        return _stream(run)
    return _respond(await run())


async def call_many(request: HttpRequest, body: calls.CallMany) -> calls.BatchResults:
    """Run a batch of calls."""
    key = request.headers.get("idempotency-key")
    return await request.run(calls.create_calls, calls.CreateCalls(body, _SURFACE, key))


async def run_source(request: HttpRequest, body: sources.RunSource) -> Result | Response:
    """Run a tool of a source once."""
    run = await request.kiln.services.prepare_source(
        sources.SourceCall(
            **{name: getattr(body, name) for name in type(body).model_fields},
            call_id=request.headers.get("idempotency-key"),
            surface=_SURFACE,
            session=request.session,
        ),
    )
    if _accepts_events(request):
        return _stream(run)
    result = await run(None)
    error = result.error
    if error is not None and result.status is Status.DENIED and error.code == "not_allowed":
        raise HttpProblem(error.code, error.message, hint=error.hint)  # there is nothing to hide
    return _respond(result)


async def follow_call(request: HttpRequest) -> EventStream:
    """Stream the events of a call from now on or after the last received, and its end."""
    tasks, last = request.kiln.tasks, request.headers.get("last-event-id", "")
    task = await tasks.get(request.path["id"], request.session)
    after = int(last) if _EVENT_ID.fullmatch(last) else None
    return _stream(lambda observe: tasks.follow(task, request.session, observe, after), after)


async def follow_catalog(request: HttpRequest, query: FollowQuery) -> EventStream:
    """Stream what changes for the caller."""
    return EventStream(_changes(request, query.seconds))


def _accepts_events(request: HttpRequest) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


def _respond(outcome: Result | Task) -> Result | Response:
    """Return the response to a call; raises HttpProblem for one that was not accepted."""
    if isinstance(outcome, Task):
        location = f"/v1/calls/{quote(outcome.id, safe='')}"
        return JsonResponse(outcome, 202, {"location": location})
    if outcome.error is not None:
        _raise_problem(outcome)
    return outcome


def _raise_problem(result: Result) -> None:
    error = result.error
    assert error is not None
    if result.status is Status.INVALID and error.code in _ABSENT:
        raise HttpProblem(error.code, error.message, hint=error.hint)
    if result.status is Status.INVALID and error.code == "conflict":
        raise HttpProblem("key_reused", error.message, hint=error.hint)
    if error.code == "no_session" and not result.sandbox:
        headers = {"www-authenticate": "Bearer"}
        raise HttpProblem("no_session", error.message, hint=error.hint, headers=headers)
    if error.code == "rate_limited" and not result.sandbox:
        headers = {"retry-after": str(ceil(error.retry_after or 1))}
        raise HttpProblem("rate_limited", error.message, hint=error.hint, headers=headers)


def _stream(
    start: Callable[[Observe], Awaitable[Result | Task]], after: int | None = None
) -> EventStream:
    """Return a stream of a call's events and its end; a client that leaves stops the call.

    `after` is the number of the last event that the client has.
    """
    return EventStream(_call_events(start, after))


async def _call_events(
    start: Callable[[Observe], Awaitable[Result | Task]], after: int | None
) -> Events:
    buffer: deque[Event] = deque()
    wake, lost, characters, number = asyncio.Event(), 0, 0, after

    def observe(event: Event) -> None:
        nonlocal lost, characters, number
        if number is not None and event.number:
            lost += max(0, event.number - number - 1)  # no longer kept
        number = event.number or number
        if len(buffer) >= _MOST_BUFFERED or (buffer and characters > _MOST_CHARACTERS):
            lost += 1
        else:
            buffer.append(event)
            characters += event.size
        wake.set()

    running = asyncio.ensure_future(start(observe))
    running.add_done_callback(lambda _: wake.set())
    try:
        is_over = False
        while not is_over:
            await wake.wait()
            wake.clear()
            is_over = running.done()
            while buffer:
                event = buffer.popleft()
                characters -= event.size
                yield event.kind, event
            if lost:
                count, lost = lost, 0
                yield "lost", LostEvents(count=count)
        yield _last_event(running)
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))


def _last_event(running: "asyncio.Future[Result | Task]") -> tuple[str, BaseModel]:
    try:
        outcome = running.result()
    except ToolkilnError as error:  # the status of the response was sent already
        return "problem", refusal(error).problem
    return ("task" if isinstance(outcome, Task) else "result"), outcome


async def _changes(request: HttpRequest, seconds: float | None) -> Events:
    loop, services = asyncio.get_running_loop(), request.kiln.services
    end = None if seconds is None else loop.time() + seconds
    watch = _ChangeWatch(request)
    # Subscribed before the first look, or changes in between would be missed.
    unsubscribe = services.changes.listen(lambda _: watch.catalog_changed())
    try:
        with services.runs.follow(watch.run_changed) as run_changes:
            before = await _visible_tools(request)
            yield "ready", CatalogState(tools=len(before))
            while await watch.wait(end):
                if watch.take_catalog_change():
                    after = await _visible_tools(request)
                    if after != before:
                        yield "catalog", _difference(before, after)
                    before = after
                if (caller := await _current_caller(request)) is None:
                    continue
                changed, lost = run_changes.take()
                for run in watch.changed_runs(caller, changed):
                    yield "run", run
                if lost:
                    yield "lost", LostEvents(count=lost)
                if (pending := await watch.changed_approvals(caller)) is not None:
                    yield "approvals", ApprovalsWaiting(pending=pending)
    except NoSession:
        return  # it ended or expired: the stream ends with it
    finally:
        unsubscribe()
        watch.close()


class _ChangeWatch:
    """What one client has been sent, and what may have changed since."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_catalog_changed = False
        self._pending: dict[RunRecord, str] = {}
        """The status, as sent, of runs that wait for a person: its change is not notified."""
        self._approvals: frozenset[str] = frozenset()

    def catalog_changed(self) -> None:
        self._is_catalog_changed = True
        self._wake.set()

    def run_changed(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_RUN_INTERVAL, self._wake.set)

    async def wait(self, end: float | None) -> bool:
        """Wait until something may have changed; False when the stream is to end."""
        left = _POLL_SECONDS if end is None else min(_POLL_SECONDS, end - self._loop.time())
        try:
            async with asyncio.timeout(max(0.0, left)):
                await self._wake.wait()
        except TimeoutError:
            if end is not None and self._loop.time() >= end:
                return False
        self._wake.clear()
        self.close()
        return True

    def take_catalog_change(self) -> bool:
        """Return whether tools may have changed since the last time."""
        is_changed, self._is_catalog_changed = self._is_catalog_changed, False
        return is_changed

    def changed_runs(self, caller: Caller, changed: Sequence[RunRecord]) -> list[runs.RunSummary]:
        """Return the runs that the caller may see and that differ from what was sent."""
        may_see = self._request.kiln.services.history.may_see(caller)
        answered = [run for run, status in self._pending.items() if run.status != status]
        summaries = []
        for run in dict.fromkeys((*changed, *answered)):
            self._pending.pop(run, None)
            item = runs.HistoryItem(run.record, run)
            if may_see(item.record):
                summaries.append(item.summary())
                if run.approval is not None and run.is_running:
                    self._pending[run] = item.status
        return summaries

    async def changed_approvals(self, caller: Caller) -> int | None:
        """Return how many calls wait for the caller's decision; None if they are the same."""
        kiln = self._request.kiln
        try:
            is_local = kiln.security.is_local_person(self._request.session)
            found = await kiln.services.pending_approvals.by(caller, is_local=is_local)
        except ToolkilnError:  # without the store there are no decisions either
            return None
        if found == self._approvals:
            return None
        self._approvals = found
        return len(found)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _current_caller(request: HttpRequest) -> Caller | None:
    """Return the caller with their current privileges; None while the store is unavailable."""
    try:
        return await request.kiln.security.guard.caller(request.session)
    except NoSession:
        raise
    except ToolkilnError:
        return None


async def _visible_tools(request: HttpRequest) -> dict[str, str]:
    """Return the digest of each tool, prompt or resource that the caller may run, by name."""

    def visible() -> dict[str, str]:
        try:
            found = request.kiln.specs(request.session, None)
        except NoSession:
            raise
        except ToolkilnError:  # nothing is served at present
            return {}
        return {name: spec.digest for name, spec in found.items()}

    return await asyncio.to_thread(visible)


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> ToolsChanged:
    both = before.keys() & after.keys()
    return ToolsChanged(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in both if before[name] != after[name])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )
