"""What is remembered of calls: tasks in the background, outputs that were cut, runs.

Each belongs to its caller. What keeps them is `execution.memory`, what runs them the
engine.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from toolkiln.app.opened import part
from toolkiln.app.own import OWN, SessionToken
from toolkiln.model import Caller, Task

if TYPE_CHECKING:
    from toolkiln.app.awaited import Awaited
    from toolkiln.app.engine import Engine
    from toolkiln.app.guarding import Guarding
    from toolkiln.app.history import History
    from toolkiln.app.runs import Runs
    from toolkiln.store import OutputPage


class Remembered(ABC):
    """What calls leave, for whoever made them."""

    @property
    @abstractmethod
    def engine(self) -> "Engine":
        """What calls need."""

    @property
    @abstractmethod
    def guarding(self) -> "Guarding":
        """Who may run what."""

    @part
    def runs(self) -> "Runs":
        """The calls that run, and the last that ended, while somebody serves."""
        from toolkiln.app.runs import Runs

        def identify(token: str | None, nested: bool) -> Caller | None:
            return self.guarding.guard.known_identity(token, running=nested)

        return Runs(identify)

    @part
    def history(self) -> "History":
        """The runs, and what the audit knows of earlier ones, for those who may look at them."""
        from toolkiln.app.history import History

        return History(self.runs, self.guarding.audit, self.engine.discretion)

    @part
    def awaited(self) -> "Awaited":
        """The calls that wait for a person."""
        from toolkiln.app.awaited import Awaited

        return Awaited(self.guarding.approvals)

    async def check_task(self, task_id: str, session: SessionToken = OWN) -> Task:
        """How a call in the background stands.

        Raises:
            InputError: there is none of this id.
        """
        return await self.engine.memory.task(await self._caller(session), task_id)

    async def await_task(
        self, task_id: str, session: SessionToken = OWN, *, timeout: float | None = None
    ) -> Task:
        """The task when it has ended, or as it is when the time is up."""
        return await self.engine.memory.finished(await self._caller(session), task_id, timeout)

    async def cancel_task(self, task_id: str, session: SessionToken = OWN) -> Task:
        """Stop a call in the background."""
        return await self.engine.tasks.cancel(await self._caller(session), task_id)

    async def tasks(self, session: SessionToken = OWN, limit: int = 50) -> list[Task]:
        """List the calls that are remembered for a caller, newest first; at most 1,000.

        Empty for anonymous callers: they are many people. Each finds a task by its id.
        """
        caller = await self._caller(session)
        return [] if caller.is_anonymous else await self.engine.memory.tasks(caller, limit)

    async def read_output(
        self, handle: str, session: SessionToken = OWN, *, offset: int = 0, limit: int = 20_000
    ) -> "OutputPage":
        """A page of an output that was cut.

        Raises:
            InputError: there is none under this handle.
        """
        caller = await self._caller(session)
        return await self.engine.memory.read_output(caller, handle, offset, limit)

    async def _caller(self, session: SessionToken) -> Caller:
        return await self.guarding.guard.caller(self.guarding.token(session))
