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
from toolkiln.model import Call, Caller, Event, Result, Task

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
        observe: Callable[[Event], None],
        background: Literal["auto", True],
    ) -> Result | Task:
        """The result, if it comes in time, else a task that goes on."""
        running = asyncio.create_task(
            self._gateway.call(call.model_copy(update={"remember": True}), observe)
        )
        self._running[running] = _key(call.caller, call.id)
        running.add_done_callback(self._running.pop)
        patience = self._soft_limit if background == "auto" else 0
        try:
            done, _ = await asyncio.wait([running], timeout=patience)
            while not done and not await self._is_known(call):
                done, _ = await asyncio.wait([running], timeout=_POLL)
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

    async def _is_known(self, call: Call) -> bool:
        """Whether others can ask for a call by its id."""
        try:
            await self._memory.task(call.caller, call.id)
        except ToolkilnError:
            return False
        return True


def _key(caller: Caller, call_id: str) -> tuple[str | None, ...]:
    return caller.user_id, caller.agent_id, call_id
