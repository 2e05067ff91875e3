"""Calls that outlast their caller's patience: they go on, and can be asked for by id.

A task is a remembered call whose caller has gone; the store knows how it stands, so that
any process can ask for it or have it stopped.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from toolkiln.execution.gateway import Gateway
from toolkiln.execution.memory import Memory
from toolkiln.model import Call, Caller, Event, Result, Task

SOFT_LIMIT = 10.0
"""Seconds after which a call may go to the background."""


class Tasks:
    """The calls of this process that went to the background."""

    def __init__(self, gateway: Gateway, memory: Memory, soft_limit: float = SOFT_LIMIT) -> None:
        self._gateway = gateway
        self._memory = memory
        self._soft_limit = soft_limit
        self._running: dict[str, asyncio.Task[Result]] = {}

    async def call(
        self,
        call: Call,
        observe: Callable[[Event], None],
        background: Literal["auto", True],
    ) -> Result | Task:
        """The result, if it comes in time, else a task that goes on."""
        running = asyncio.create_task(
            self._gateway.call(call.model_copy(update={"remember": True}), observe)
        )
        self._running[call.id] = running
        running.add_done_callback(lambda _: self._running.pop(call.id, None))
        patience = self._soft_limit if background == "auto" else 0
        try:
            done, _ = await asyncio.wait([running], timeout=patience)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if done:
            return running.result()
        return Task(id=call.id, tool=call.tool, state="running")

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """Stop a task, here at once, elsewhere within a second or two.

        Raises:
            InputError: there is none of this id.
        """
        task = await self._memory.cancel(caller, task_id)
        running = self._running.get(task_id)
        if running is None:
            return task
        running.cancel()
        await asyncio.wait([running])
        return await self._memory.task(caller, task_id)

    async def close(self) -> None:
        """Stop what still runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
