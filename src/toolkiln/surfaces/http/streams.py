"""Server-sent events: what a call tells while it runs, and what changes in the catalog.

A client that reads slowly does not slow a call down: what does not fit is counted and told.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Annotated

from pydantic import BaseModel, Field

from toolkiln.app import NoSession
from toolkiln.errors import ToolkilnError
from toolkiln.model import Event, Result, Task, Value
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.problems import Problem, refusal
from toolkiln.surfaces.http.shapes import Query

_MOST_WAITING = 1_000
_POLL = 1.0
"""Seconds between looks at a call that runs in another process."""

Observe = Callable[[Event], None]
Events = AsyncIterator[tuple[str, BaseModel]]


class Lost(Value):
    """Events that the client did not take in time."""

    count: int


OF_CALLS: Mapping[str, type[BaseModel]] = {
    "progress": Event,
    "log": Event,
    "stdout": Event,
    "stderr": Event,
    "pending": Event,
    "lost": Lost,
    "result": Result,
    "task": Task,
    "problem": Problem,
}
"""The last one is `result`, `task` for a call that goes on without, or `problem`."""


def wants_events(visit: Visit) -> bool:
    """Whether a client takes a stream of events as the answer."""
    return "text/event-stream" in visit.headers.get("accept", "")


def of_call(start: Callable[[Observe], Awaitable[Result | Task]]) -> Answer:
    """A call as it is told: events as they come, and what it ends in.

    Who stops listening stops the call, as far as that can be stopped.
    """
    return Answer(events=_told(start))


async def _told(start: Callable[[Observe], Awaitable[Result | Task]]) -> Events:
    waiting: deque[Event] = deque()
    came, lost = asyncio.Event(), 0

    def observe(event: Event) -> None:
        nonlocal lost
        if len(waiting) >= _MOST_WAITING:
            lost += 1
        else:
            waiting.append(event)
        came.set()

    running = asyncio.ensure_future(start(observe))
    running.add_done_callback(lambda _: came.set())
    try:
        is_over = False
        while not is_over:
            await came.wait()
            came.clear()
            is_over = running.done()
            while waiting:
                event = waiting.popleft()
                yield event.kind, event
            if lost:
                count, lost = lost, 0
                yield "lost", Lost(count=count)
        yield _end(running)
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))


def _end(running: "asyncio.Future[Result | Task]") -> tuple[str, BaseModel]:
    try:
        ended = running.result()
    except ToolkilnError as error:  # the answer has begun: its status can say nothing any more
        return "problem", refusal(error).problem
    return ("task" if isinstance(ended, Task) else "result"), ended


async def follow_call(visit: Visit) -> Answer:
    """What a call tells from here on, and how it ended."""
    name, kiln = visit.path["id"], visit.kiln
    task = await kiln.check_task(name, visit.session)

    async def followed(observe: Observe) -> Task:
        forget = kiln.engine.tasks.listen(visit.caller, name, observe)
        try:
            if forget is not None:
                return await kiln.await_task(name, visit.session)
            return await _watched(visit, task, observe)
        finally:
            if forget is not None:
                forget()

    return of_call(followed)


async def _watched(visit: Visit, task: Task, observe: Observe) -> Task:
    """A call of another process, of which the store knows the last progress."""
    told = ""
    while task.state in ("running", "pending"):
        if task.progress != told:
            told = task.progress
            observe(Event(kind="progress", text=told))
        task = await visit.kiln.await_task(task.id, visit.session, timeout=_POLL)
    return task


class CatalogState(Value):
    """That changes are told from here on."""

    tools: int
    """How many the caller may run."""


class CatalogChange(Value):
    """What is different for the caller: files, switches or rules have changed."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    """With another version."""
    removed: tuple[str, ...]


class FollowQuery(Query):
    """How long to follow."""

    seconds: Annotated[float | None, Field(ge=0, le=86_400, allow_inf_nan=False)] = None
    """After how many the stream ends; without, it does not end by itself."""


async def follow_catalog(visit: Visit, query: FollowQuery) -> Answer:
    """What changes among the tools that the caller may run."""
    return Answer(events=_changes(visit, query.seconds))


async def _changes(visit: Visit, seconds: float | None) -> Events:
    clock = asyncio.get_running_loop().time
    end = None if seconds is None else clock() + seconds
    async with aclosing(visit.kiln.changes.stream()) as changes:
        # Listening has to begin before the first look, or what comes between would be missed.
        following = asyncio.ensure_future(anext(changes))
        try:
            before = await _visible(visit)
            yield "ready", CatalogState(tools=len(before))
            while True:
                left = None if end is None else max(0.0, end - clock())
                if not (await asyncio.wait((following,), timeout=left))[0]:
                    return
                await following
                following = asyncio.ensure_future(anext(changes))
                after = await _visible(visit)
                if after != before:
                    yield "catalog", _difference(before, after)
                before = after
        except NoSession:
            return  # it ended or expired, and whoever held it is told nothing more
        finally:
            following.cancel()
            await asyncio.wait((following,))


async def _visible(visit: Visit) -> dict[str, str]:
    """The digest of each tool, prompt or resource that the caller may run, by name."""

    def seen() -> dict[str, str]:
        try:
            found = visit.kiln.visible(visit.session, None)
        except NoSession:
            raise
        except ToolkilnError:  # nothing is served at present
            return {}
        return {name: spec.digest for name, spec in found.items()}

    return await asyncio.to_thread(seen)


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> CatalogChange:
    both = before.keys() & after.keys()
    return CatalogChange(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in both if before[name] != after[name])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/calls/{id}/events",
        name="follow_call",
        summary="Follow a call: its events from here on, and how it ended",
        description="Always a stream. A call of another server tells its progress only.",
        handle=follow_call,
        group="calls",
        answers={200: None},
        events=OF_CALLS,
    ),
    Operation(
        method="GET",
        path="/v1/events",
        name="follow_catalog",
        summary="Follow what changes among the tools that the caller may run",
        description="Always a stream, which begins with `ready`.",
        handle=follow_catalog,
        group="tools",
        query=FollowQuery,
        answers={200: None},
        events={"ready": CatalogState, "catalog": CatalogChange},
    ),
)
