"""Calls that outlast their caller's patience: they go on, and can be asked for by id.

A task is a remembered call whose caller has gone; the store knows how it stands, so that
any process can ask for it or have it stopped. A call without an id of its caller's is
remembered when it becomes a task and not before: most end in time, and need no store.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any, Literal, TypeVar

from toolkiln.errors import ServerBusy, ToolkilnError
from toolkiln.execution.asking import Asking
from toolkiln.execution.elsewhere import Elsewhere
from toolkiln.execution.gateway import Gateway
from toolkiln.execution.memory import Memory
from toolkiln.model import Call, Caller, Event, Question, Reply, Result, Task, TaskState

MOST_OF_A_CALLER = 500
"""Calls of one caller over the network that run, wait for a slot or wait for a person."""
_NETWORK = frozenset({"http", "mcp"})
SOFT_LIMIT = 10.0
"""Seconds after which a call may go to the background."""
_POLL = 0.02

T = TypeVar("T")
Observe = Callable[[Event], None]
Key = tuple[str | None, ...]
"""Whose a call is, and its id."""


class Tasks:
    """The calls of this process that went to the background, or may."""

    def __init__(
        self,
        gateway: Gateway,
        memory: Memory,
        soft_limit: float = SOFT_LIMIT,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`elsewhere` is where the gateway hands calls to."""
        self._gateway = gateway
        self._memory = memory
        self._elsewhere = elsewhere
        self.soft_limit = soft_limit
        """Seconds that callers of "auto" wait unless they say otherwise."""
        self._running: dict[asyncio.Task[Any], Key] = {}
        self._observers: dict[Key, list[Observe]] = {}

    async def lasting(
        self, call: Call, caller: Caller, observe: Observe, asking: Asking | None = None
    ) -> Result:
        """The result of a call that goes on if whoever awaits it is cancelled.

        With an id of its caller's, which finds the result later.
        """
        key = _key(caller, call.id)
        work = self._gateway.call(call, self._to_all(key, observe), asking)
        return await self.seen_out(work, key)

    async def seen_out(self, work: Coroutine[Any, Any, T], key: Key = ()) -> T:
        """What some work gives, which goes on if whoever awaits it is cancelled."""
        return await asyncio.shield(self._keep(asyncio.create_task(work), key))

    async def call(
        self,
        call: Call,
        caller: Caller,
        observe: Observe,
        background: Literal["auto", True],
        *,
        lasting: bool = False,
        asking: Asking | None = None,
        wait_seconds: float | None = None,
    ) -> Result | Task:
        """Return the result if the call ends within `wait_seconds`, else a task that continues.

        `wait_seconds` applies to "auto" only; None is the soft limit. A call that waits for a
        person or asks its caller becomes a task at once. Cancelled before it is a task, it
        ends, unless it is a `lasting` one.

        Raises:
            ServerBusy: the caller has too many calls that have not ended.
        """
        self._refuse_too_many(call, caller)
        key, is_late = _key(caller, call.id), background == "auto" and not call.remember
        progress, is_pending, to_all = "", False, self._to_all(key, observe)
        woken = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        def watch(event: Event) -> None:
            nonlocal progress, is_pending
            if event.kind == "progress":
                progress = event.described
            elif event.kind == "pending":
                is_pending = True
                wake()
            to_all(event)

        async def ask(questions: tuple[Question, ...]) -> Sequence[Reply]:
            assert asking is not None
            answers = asking.ask(questions)  # what cannot be asked may be said at once
            wake()
            return await answers

        made = call if is_late else call.model_copy(update={"remember": True})
        asked = None if asking is None else Asking(ask, asking.kinds)
        work = self._gateway.call(made, watch, asked)
        running = self._keep(asyncio.create_task(work), key)
        running.add_done_callback(wake)
        limit = self.soft_limit if wait_seconds is None else wait_seconds
        limit = limit if background == "auto" else 0
        # Event loops do not agree on timers that never fire.
        timer = asyncio.get_running_loop().call_later(limit, wake) if limit < inf else None
        try:
            await woken
            if is_late and not running.done():
                await self._adopt(call, caller, running, lambda: progress)
            followed = None
            while (
                not running.done() and (followed := await self._followed(caller, call.id)) is None
            ):
                await asyncio.wait([running], timeout=_POLL)
        except asyncio.CancelledError:
            if not lasting:
                running.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if running.done() or followed is None:
            return running.result()
        state: TaskState = "pending" if is_pending else "running"
        return Task(id=call.id, tool=call.tool, state=state, started=followed.started)

    def _refuse_too_many(self, call: Call, caller: Caller) -> None:
        if call.surface not in _NETWORK or len(self._running) < MOST_OF_A_CALLER:
            return
        own = {
            key for key in self._running.values() if key[:2] == (caller.platform, caller.user_id)
        }
        if len(own) >= MOST_OF_A_CALLER:
            raise ServerBusy(
                f"{MOST_OF_A_CALLER} calls of {caller.who} have not ended",
                hint="wait for some of them to end, or cancel them",
            )

    def listen(self, caller: Caller, call_id: str, observe: Observe) -> Callable[[], None] | None:
        """Have a function told of a call of this process while it runs; None: none runs here.

        It must not raise. What is returned ends it.
        """
        key = _key(caller, call_id)
        if key not in self._running.values():
            return None
        observers = self._observers.setdefault(key, [])
        observers.append(observe)

        def forget() -> None:
            observers.remove(observe)
            if not observers:
                self._observers.pop(key, None)

        return forget

    def _to_all(self, key: Key, observe: Observe) -> Observe:
        """An observer that passes on to those who listen, too."""

        def pass_on(event: Event) -> None:
            observe(event)
            for other in self._observers.get(key, ()):
                other(event)

        return pass_on

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """Stop a task, here at once, elsewhere within a second or two.

        Raises:
            InputError: there is none of this id.
        """
        task = await self._memory.cancel(caller, task_id)
        running = [one for one, key in self._running.items() if key == _key(caller, task_id)]
        if not running:
            return task
        for one in running:
            one.cancel()
        await asyncio.wait(running)
        return await self._memory.task(caller, task_id)

    async def close(self) -> None:
        """Stop what still runs."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _keep(self, running: "asyncio.Task[T]", key: Key) -> "asyncio.Task[T]":
        self._running[running] = key
        running.add_done_callback(self._running.pop)
        return running

    async def _adopt(
        self,
        call: Call,
        caller: Caller,
        running: "asyncio.Task[Result]",
        progress: Callable[[], str],
    ) -> None:
        """Have a call remembered; where that is not possible its caller has to wait."""
        try:
            if self._elsewhere is not None and await self._elsewhere.adopt(call, caller):
                return
            self._keep(
                await self._memory.adopt(call, caller, running, progress), _key(caller, call.id)
            )
        except ToolkilnError:
            await asyncio.wait([running])

    async def _followed(self, caller: Caller, call_id: str) -> Task | None:
        """What is told by its id, once that is this call, and not an earlier one that ended."""
        try:
            task = await self._memory.task(caller, call_id)
        except ToolkilnError:
            return None
        return task if task.state in ("running", "pending") else None


def _key(caller: Caller, call_id: str) -> Key:
    return caller.platform, caller.user_id, caller.agent_id, call_id
