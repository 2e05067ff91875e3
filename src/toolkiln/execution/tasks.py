"""Calls that outlast their caller's patience: they go on, and can be asked for by id.

A task is a remembered call whose caller has gone; the store knows how it stands, so that
any process can ask for it or have it stopped.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from toolkiln.errors import ToolkilnError
from toolkiln.execution.gateway import Gateway
from toolkiln.execution.memory import Memory
from toolkiln.model import Call, Caller, Event, Result, Task, TaskState

SOFT_LIMIT = 10.0
"""Seconds after which a call may go to the background."""
_POLL = 0.02


class Tasks:
    """The calls of this process that went to the background."""

    def __init__(self, gateway: Gateway, memory: Memory, soft_limit: float = SOFT_LIMIT) -> None:
        self._gateway = gateway
        self._memory = memory
        self._soft_limit = soft_limit
        self._running: dict[asyncio.Task[Result], tuple[str | None, ...]] = {}
        """With whose they are, and their ids."""

    async def call(
        self,
        call: Call,
        caller: Caller,
        observe: Callable[[Event], None],
        background: Literal["auto", True],
    ) -> Result | Task:
        """The result, if it comes in time, else a task that goes on.

        A call that waits for a person is not waited for.
        """
        pending = asyncio.Event()

        def watch(event: Event) -> None:
            if event.kind == "pending":
                pending.set()
            observe(event)

        running = asyncio.create_task(
            self._gateway.call(call.model_copy(update={"remember": True}), watch)
        )
        self._running[running] = _key(caller, call.id)
        running.add_done_callback(self._running.pop)
        patience = self._soft_limit if background == "auto" else 0
        try:
            asked = asyncio.ensure_future(pending.wait())
            await asyncio.wait(
                [running, asked], timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            asked.cancel()
            while not running.done() and not await self._is_known(caller, call.id):
                await asyncio.wait([running], timeout=_POLL)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if running.done():
            return running.result()
        state: TaskState = "pending" if pending.is_set() else "running"
        return Task(id=call.id, tool=call.tool, state=state)

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

    async def _is_known(self, caller: Caller, call_id: str) -> bool:
        """Whether others can ask for a call by its id."""
        try:
            await self._memory.task(caller, call_id)
        except ToolkilnError:
            return False
        return True


def _key(caller: Caller, call_id: str) -> tuple[str | None, ...]:
    return caller.platform, caller.user_id, caller.agent_id, call_id
