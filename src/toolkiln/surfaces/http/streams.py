"""Server-sent events: what a call tells while it runs. What else changes `following` tells.

A client that reads slowly does not slow a call down: what does not fit is counted and told.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from pydantic import BaseModel

from toolkiln.errors import ToolkilnError
from toolkiln.model import Event, Result, Task, Value
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.problems import Problem, refusal

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
)
