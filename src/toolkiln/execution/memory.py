"""What outlives a call: results by id, outputs to page through, tasks in the background.

The store, or Redis where that is set, opens when it is first needed, because most calls
need none. A call with an id of its caller's runs once: whoever asks again, in this process
or another, waits for the first result. The claim on an id is a lease that is renewed while
the call runs, so that a call whose process was killed can be made again.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from toolkiln.errors import NotFound, ToolkilnError
from toolkiln.model import Call, Caller, CallError, Result, Status, Task, ToolSpec

if TYPE_CHECKING:
    from toolkiln.execution.call_book import CallBook
    from toolkiln.store import Claimed, OutputPage

T = TypeVar("T")
_LEASE = 20.0
_BEAT = 1.0
"""Seconds between looks whether somebody wants the call cancelled."""
_FIRST_POLL, _LONGEST_POLL = 0.02, 1.0


class Memory:
    """The store or Redis, asked from the event loop."""

    def __init__(self, open_book: Callable[[], "CallBook"]) -> None:
        self._open = open_book
        self._book: CallBook | None = None
        self._opening = asyncio.Lock()
        self._owner = f"{os.uname().nodename}:{os.getpid()}"

    async def once(
        self,
        call: Call,
        caller: Caller,
        what: tuple[ToolSpec, dict[str, Any]],
        run: Callable[[], Awaitable[Result]],
        progress: Callable[[], str],
    ) -> Result:
        """The first result of this id, or the one that `run` gives now.

        `what` runs, and with which arguments, makes two calls the same. `progress` tells
        what the tool reported last, for those who ask meanwhile.
        """
        from toolkiln.store import Claimed, Conflict, Done

        fingerprint = _fingerprint(*what)
        asked = {"caller": caller, "fingerprint": fingerprint, "owner": self._owner}
        deadline = time.monotonic() + (inf if call.timeout is None else call.timeout)
        poll = _FIRST_POLL
        try:
            while True:
                claim = await self._ask("claim", call, **asked, lease_seconds=_LEASE)
                if isinstance(claim, Claimed):
                    running = asyncio.ensure_future(run())
                    return await self._see_out(call, claim, running, progress)
                if isinstance(claim, Done):
                    return claim.result
                if isinstance(claim, Conflict):
                    return _ended(call, Status.INVALID, _CONFLICT)
                left = deadline - time.monotonic()
                if left <= 0:
                    return _ended(call, *_STILL_RUNNING)
                await asyncio.sleep(min(poll, left))
                poll = min(poll * 2, _LONGEST_POLL)
        except ToolkilnError as error:
            failure = CallError(
                code=error.code, message=error.message, hint=error.hint, retryable=True
            )
            return _ended(call, Status.UNAVAILABLE, failure)

    async def adopt(
        self,
        call: Call,
        caller: Caller,
        running: "asyncio.Future[Result]",
        progress: Callable[[], str],
    ) -> "asyncio.Task[Result]":
        """Remember a call that already runs, under an id that only this process knows of.

        Raises:
            StoreError: it cannot be remembered.
        """
        claim = await self._ask(
            "claim", call, caller=caller, fingerprint="", owner=self._owner, lease_seconds=_LEASE
        )
        return asyncio.create_task(self._see_out(call, claim, running, progress))

    async def _see_out(
        self,
        call: Call,
        claim: "Claimed",
        running: "asyncio.Future[Result]",
        progress: Callable[[], str],
    ) -> Result:
        """Wait for a call and record how it ended: somebody may have been told its id."""
        try:
            result = await self._watch(call, claim, running, progress)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
            with suppress(ToolkilnError):  # else the lease runs out by itself
                await asyncio.shield(self._ask("finish", claim, _ended(call, *_CANCELLED)))
            raise
        if claim.attempt > 1:
            note = "an earlier run of this call was cut off; the tool may have run in part"
            result = result.model_copy(update={"notes": (*result.notes, note)})
        try:
            recorded = await self._ask("release" if result.is_open else "finish", claim, result)
            why = "another process has taken this call over"
        except ToolkilnError as error:
            recorded, why = False, error.message
        if recorded:
            return result
        note = f"the result was not recorded: {why}"
        return result.model_copy(update={"notes": (*result.notes, note)})

    async def _watch(
        self,
        call: Call,
        claim: "Claimed",
        running: "asyncio.Future[Result]",
        progress: Callable[[], str],
    ) -> Result:
        """Wait for the result; renew the lease, and stop if somebody asks for it."""
        from toolkiln.store import Lease

        told = ""
        while True:
            done, _ = await asyncio.wait([running], timeout=_BEAT)
            if done:
                return running.result()
            try:
                if progress() != told:
                    told = progress()
                    await self._ask("set_progress", claim, told)
                lease = await self._ask("renew", claim, _LEASE)
            except ToolkilnError:
                continue  # the call is worth more than its record; the store may come back
            if lease is not Lease.HELD:
                running.cancel()
                await asyncio.wait([running])
                return _ended(call, *(_CANCELLED if lease is Lease.CANCEL else _TAKEN_OVER))

    async def keep(self, caller: Caller, text: str) -> tuple[str | None, tuple[str, ...]]:
        """A handle to page through a text, or why there is none."""
        try:
            return await self._ask("keep_output", caller, text), ()
        except ToolkilnError as error:
            return None, (f"the rest of the output could not be kept: {error.message}",)

    async def read_output(
        self, caller: Caller, handle: str, offset: int, limit: int
    ) -> "OutputPage":
        """A page of a text that was kept.

        Raises:
            NotFound: there is none under this handle.
            StoreError: the store cannot be read.
        """
        page: OutputPage = await self._ask("read_output", caller, handle, offset, limit)
        return page

    async def task(self, caller: Caller, task_id: str) -> Task:
        """What became of a call in the background.

        Raises:
            NotFound: there is none of this id.
        """
        found: Task | None = await self._ask("task", caller, task_id)
        if found is None:
            raise NotFound(
                f"there is no task {task_id!r}",
                hint="finished tasks are kept for an hour; `toolkiln task list` shows them",
            )
        return found

    async def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """The calls that are remembered for a caller, newest first; at most 1,000."""
        found: list[Task] = await self._ask("tasks", caller, limit)
        return found

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """Ask whoever runs a task to stop it.

        Raises:
            NotFound: there is none of this id.
        """
        await self._ask("request_cancel", caller, task_id)
        return await self.task(caller, task_id)

    async def finished(self, caller: Caller, task_id: str, timeout: float | None) -> Task:
        """The task once it has ended, or as it is when the time is up.

        Raises:
            NotFound: there is none of this id.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = _FIRST_POLL
        while True:
            task = await self.task(caller, task_id)
            if task.state not in ("running", "pending"):
                return task
            left = _LONGEST_POLL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return task
            await asyncio.sleep(min(poll, left))
            poll = min(poll * 2, _LONGEST_POLL)

    async def _ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self._book is None:
            async with self._opening:
                if self._book is None:
                    self._book = await asyncio.to_thread(self._open)
        return await asyncio.to_thread(getattr(self._book, method), *arguments, **named)


_CONFLICT = CallError(
    code="conflict",
    message="this call id belongs to a call with another tool, version or arguments",
    hint="use a fresh id for a different call",
)
_TAKEN_OVER = (
    Status.UNAVAILABLE,
    CallError(code="taken_over", message="another process has taken this call over"),
)
_STILL_RUNNING = (
    Status.TIMEOUT,
    CallError(
        code="timeout",
        message="the first call with this id is still running",
        hint="ask again with the same id",
        retryable=True,
    ),
)
_CANCELLED = (Status.CANCELLED, CallError(code="cancelled", message="the call was cancelled"))


def _fingerprint(spec: ToolSpec, arguments: dict[str, Any]) -> str:
    told = [spec.name, spec.digest, arguments]
    text = json.dumps(told, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _ended(call: Call, status: Status, error: CallError) -> Result:
    return Result(
        call_id=call.id, tool=call.tool, status=status, error=error, text=f"error: {error.message}"
    )
