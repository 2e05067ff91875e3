"""Background tasks: calls that continue after the caller stops waiting.

A task is a call in the call store, so any process can look it up or cancel it. A call without
an id chosen by its caller is stored when it becomes a task and not before: most calls end in
time and need no store.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

from toolkiln.errors import ServerBusy, ToolkilnError
from toolkiln.execution.call_events import CallObserver, EventCallback, RunningCall
from toolkiln.execution.executor import Dispatcher
from toolkiln.execution.gateway import Gateway
from toolkiln.execution.idempotency import CallResults
from toolkiln.execution.questions import QuestionChannel
from toolkiln.model.call import Call, Event, Result, Task, TaskState
from toolkiln.model.identity import Caller
from toolkiln.model.question import Question, Reply

_MAX_EVENTS, _MAX_CHARACTERS = 1_000, 200_000
"""Events of a call, and their characters, that are kept for those who follow it again."""
_MAX_ENDED = 50
"""Ended calls whose events are kept."""
MAX_CALLS_PER_USER = 500
"""Unfinished calls of one user over the network."""
_NETWORK = frozenset({"http", "mcp"})
SOFT_LIMIT = 10.0
"""Seconds after which a call may become a task."""
_POLL = 0.02

T = TypeVar("T")
Key = tuple[str | None, ...]
"""Caller and call id."""


class _TaskObserver(CallObserver):
    """Observer of a call that may become a task; `wake` is called when it waits for a person.

    It keeps the latest events.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._wake = wake
        self.call: RunningCall | None = None
        self.is_pending = False
        self.events: deque[Event] = deque()
        self._characters = 0

    @property
    def progress(self) -> str:
        return "" if self.call is None else self.call.progress

    def started(self, call: RunningCall, /) -> None:
        self.call = call

    def event(self, _: RunningCall, event: Event, /) -> None:
        self.events.append(event)
        self._characters += event.size
        while len(self.events) > _MAX_EVENTS or self._characters > _MAX_CHARACTERS:
            self._characters -= self.events.popleft().size
        if event.kind == "pending":
            self.is_pending = True
            self._wake()


class _RunningTask(NamedTuple):
    key: Key
    observer: _TaskObserver | None = None


class TaskService:
    """The calls of this process that are tasks, or may become one."""

    def __init__(
        self,
        gateway: Gateway,
        results: CallResults,
        soft_limit: float = SOFT_LIMIT,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """`dispatcher` is that of the gateway."""
        self._gateway = gateway
        self._results = results
        self._dispatcher = dispatcher
        self.soft_limit = soft_limit
        """Default of `wait_seconds`."""
        self._running: dict[asyncio.Task[Any], _RunningTask] = {}
        self._ended: dict[Key, deque[Event]] = {}

    async def call_detached(
        self,
        call: Call,
        caller: Caller,
        observers: tuple[CallObserver, ...] = (),
        channel: QuestionChannel | None = None,
    ) -> Result:
        """Run a call that continues if the awaiting task is cancelled; its id finds the result."""
        observer = _TaskObserver()
        work = self._gateway.call(call, (observer, *observers), channel)
        entry = _RunningTask(_key(caller, call.id), observer)
        return await asyncio.shield(self._keep(asyncio.create_task(work), entry))

    async def run_detached(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that continues if the awaiting task is cancelled."""
        return await asyncio.shield(self._keep(asyncio.create_task(work), _RunningTask(())))

    async def call(
        self,
        call: Call,
        caller: Caller,
        background: Literal["auto", True],
        observers: tuple[CallObserver, ...] = (),
        *,
        detached: bool = False,
        channel: QuestionChannel | None = None,
        wait_seconds: float | None = None,
    ) -> Result | Task:
        """Return the result if the call ends within `wait_seconds`, else a task that continues.

        `wait_seconds` applies to "auto" only; None is the soft limit. A call that waits for a
        person or asks its caller becomes a task at once. Cancelling this coroutine before that
        cancels the call, unless it is `detached`.

        Raises:
            ServerBusy: the user has too many unfinished calls.
        """
        self._refuse_too_many(call, caller)
        key, is_late = _key(caller, call.id), background == "auto" and not call.remember
        woken = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        observer = _TaskObserver(wake)

        async def ask(questions: tuple[Question, ...]) -> Sequence[Reply]:
            assert channel is not None
            answers = channel.ask(questions)  # may raise at once
            wake()
            return await answers

        stored = call if is_late else call.model_copy(update={"remember": True})
        own_channel = None if channel is None else QuestionChannel(ask, channel.kinds)
        work = self._gateway.call(stored, (observer, *observers), own_channel)
        running = self._keep(asyncio.create_task(work), _RunningTask(key, observer))
        running.add_done_callback(wake)
        limit = self.soft_limit if wait_seconds is None else wait_seconds
        limit = limit if background == "auto" else 0
        # Event loops do not agree on timers that never fire.
        timer = asyncio.get_running_loop().call_later(limit, wake) if limit < inf else None
        try:
            await woken
            if is_late and not running.done():
                await self._adopt(call, caller, running, lambda: observer.progress)
            task = None
            while not running.done() and (task := await self._unfinished(caller, call.id)) is None:
                await asyncio.wait([running], timeout=_POLL)
        except asyncio.CancelledError:
            if not detached:
                running.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if running.done() or task is None:
            return running.result()
        state: TaskState = "pending" if observer.is_pending else "running"
        return Task(id=call.id, tool=call.tool, state=state, started=task.started)

    def _refuse_too_many(self, call: Call, caller: Caller) -> None:
        if call.surface not in _NETWORK or len(self._running) < MAX_CALLS_PER_USER:
            return
        user = caller.platform, caller.user_id
        own = {entry.key for entry in self._running.values() if entry.key[:2] == user}
        if len(own) >= MAX_CALLS_PER_USER:
            raise ServerBusy(
                f"{caller.who} has {MAX_CALLS_PER_USER} unfinished calls",
                hint="wait for some to end, or cancel them",
            )

    def subscribe(
        self, caller: Caller, call_id: str, observe: Callable[[Event], None], after: int | None
    ) -> Callable[[], None] | None:
        """Subscribe to a call of this process; returns a function that unsubscribes.

        With a number in `after`, the events after that one come first, as far as they are kept.
        None: the caller has no such call here.
        """
        key = _key(caller, call_id)
        running = [entry.observer for entry in self._running.values() if entry.key == key]
        if not running and (after is None or key not in self._ended):
            return None
        tasks = [task for task in running if task is not None]
        if after is not None:
            kept = [task.events for task in tasks] or [self._ended.get(key, deque())]
            for event in tuple(chain.from_iterable(kept)):
                if event.number > after:
                    observe(event)
        callback, calls = EventCallback(observe), [task.call for task in tasks if task.call]
        ends = [self._gateway.events.subscribe(callback, call=call) for call in calls]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """Cancel a task: of this process at once, of others within two seconds."""
        task = await self._results.cancel(caller, task_id)
        key = _key(caller, task_id)
        running = [task for task, entry in self._running.items() if entry.key == key]
        if not running:
            return task
        for work in running:
            work.cancel()
        await asyncio.wait(running)
        return await self._results.task(caller, task_id)

    async def close(self) -> None:
        """Cancel all running calls."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _keep(self, running: "asyncio.Task[T]", entry: _RunningTask) -> "asyncio.Task[T]":
        self._running[running] = entry

        def end(_: object) -> None:
            del self._running[running]
            if entry.observer is not None and entry.observer.events:
                self._ended.pop(entry.key, None)
                self._ended[entry.key] = entry.observer.events
                if len(self._ended) > _MAX_ENDED:
                    del self._ended[next(iter(self._ended))]

        running.add_done_callback(end)
        return running

    async def _adopt(
        self,
        call: Call,
        caller: Caller,
        running: "asyncio.Task[Result]",
        progress: Callable[[], str],
    ) -> None:
        """Store a running call; if that fails, the caller has to wait for its end."""
        try:
            if self._dispatcher is not None and await self._dispatcher.adopt(call, caller):
                return
            adopted = await self._results.adopt(call, caller, running, progress)
            self._keep(adopted, _RunningTask(_key(caller, call.id)))
        except ToolkilnError:
            await asyncio.wait([running])

    async def _unfinished(self, caller: Caller, call_id: str) -> Task | None:
        """Return the stored task; None if it is missing, or an earlier call of this id."""
        try:
            task = await self._results.task(caller, call_id)
        except ToolkilnError:
            return None
        return task if task.state in ("running", "pending") else None


def _key(caller: Caller, call_id: str) -> Key:
    return caller.platform, caller.user_id, caller.agent_id, call_id
