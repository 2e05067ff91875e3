"""Results by call id, tasks and outputs that outlive their call.

The store (or Redis, if configured) opens on first use, because most calls need none. A call
with an id chosen by its caller runs once: repeated calls, in any process, wait for the first
result. The claim on an id is a lease that is renewed while the call runs, so the call of a
killed process can run again.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from toolkiln.errors import NotFound, ToolkilnError
from toolkiln.model.call import Call, CallError, Result, Status, Task
from toolkiln.model.identity import Caller
from toolkiln.model.spec import ToolSpec

if TYPE_CHECKING:
    from toolkiln.model.call import Claim, Claimed, Lease, OutputPage


class CallStore(Protocol):
    """Storage of claims, results, tasks and outputs, separate for each caller."""

    def claim(
        self, call: Call, *, caller: Caller, fingerprint: str, owner: str, lease_seconds: float
    ) -> "Claim":
        """Claim a call id; of concurrent claims one succeeds."""
        ...

    def renew(self, claim: "Claimed", lease_seconds: float) -> "Lease":
        """Extend a claim; returns whether it is held, to be cancelled or lost."""
        ...

    def finish(self, claim: "Claimed", result: Result) -> bool:
        """Store the result of a call; False if the claim was lost."""
        ...

    def release(self, claim: "Claimed", result: Result) -> bool:
        """Store the result and free the id for another run; False if the claim was lost."""
        ...

    def set_progress(self, claim: "Claimed", text: str) -> bool:
        """Store the latest progress of a call."""
        ...

    def request_cancel(self, caller: Caller, call_id: str) -> bool:
        """Request the cancellation of a running call; False if it is not running."""
        ...

    def task(self, caller: Caller, call_id: str) -> Task | None:
        """Return a call as a task."""
        ...

    def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """Return a caller's calls without results, newest first."""
        ...

    def save_output(self, caller: Caller, text: str) -> str:
        """Store a text for paging and return its handle."""
        ...

    def read_output(self, caller: Caller, handle: str, offset: int, limit: int) -> "OutputPage":
        """Return a page of a stored text."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


T = TypeVar("T")
_LEASE_SECONDS = 20.0
_HEARTBEAT = 1.0
"""Seconds between renewals, which also show requests to cancel."""
_FIRST_POLL, _LONGEST_POLL = 0.02, 1.0


class CallResults:
    """Asynchronous access to the call store; one result per call id."""

    def __init__(self, open_store: Callable[[], "CallStore"]) -> None:
        self._open = open_store
        self._store: CallStore | None = None
        self._opening = asyncio.Lock()
        self._owner = f"{os.uname().nodename}:{os.getpid()}"

    async def once(
        self,
        call: Call,
        caller: Caller,
        work: tuple[ToolSpec, dict[str, Any]],
        run: Callable[[], Awaitable[Result]],
        progress: Callable[[], str],
    ) -> Result:
        """Return the first result of a call id, or run the call.

        Two calls are the same if `work`, tool and arguments, is. `progress` returns the latest
        progress of the tool.
        """
        from toolkiln.model.call import Claimed, Done, IdConflict

        fingerprint = _fingerprint(*work)
        identity = {"caller": caller, "fingerprint": fingerprint, "owner": self._owner}
        deadline = time.monotonic() + (inf if call.timeout is None else call.timeout)
        poll = _FIRST_POLL
        try:
            while True:
                claim = await self._run("claim", call, **identity, lease_seconds=_LEASE_SECONDS)
                if isinstance(claim, Claimed):
                    running = asyncio.ensure_future(run())
                    return await self._complete(call, claim, running, progress)
                if isinstance(claim, Done):
                    return claim.result
                if isinstance(claim, IdConflict):
                    return _refused(call, Status.INVALID, _CONFLICT)
                left = deadline - time.monotonic()
                if left <= 0:
                    return _refused(call, *_STILL_RUNNING)
                await asyncio.sleep(min(poll, left))
                poll = min(poll * 2, _LONGEST_POLL)
        except ToolkilnError as error:
            failure = CallError(
                code=error.code, message=error.message, hint=error.hint, retryable=True
            )
            return _refused(call, Status.UNAVAILABLE, failure)

    async def adopt(
        self,
        call: Call,
        caller: Caller,
        running: "asyncio.Future[Result]",
        progress: Callable[[], str],
    ) -> "asyncio.Task[Result]":
        """Store a call that already runs, under an id generated by this process.

        Raises:
            StoreError: the store failed.
        """
        claim = await self._run(
            "claim",
            call,
            caller=caller,
            fingerprint="",
            owner=self._owner,
            lease_seconds=_LEASE_SECONDS,
        )
        return asyncio.create_task(self._complete(call, claim, running, progress))

    async def _complete(
        self,
        call: Call,
        claim: "Claimed",
        running: "asyncio.Future[Result]",
        progress: Callable[[], str],
    ) -> Result:
        """Wait for a call and store its result."""
        try:
            result = await self._wait(call, claim, running, progress)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
            with suppress(ToolkilnError):  # then the lease expires
                await asyncio.shield(self._run("finish", claim, _refused(call, *_CANCELLED)))
            raise
        if claim.attempt > 1:
            note = "an earlier run of this call was interrupted; the tool may have run in part"
            result = result.model_copy(update={"notes": (*result.notes, note)})
        try:
            is_stored = await self._run("release" if result.is_open else "finish", claim, result)
            reason = "another process has taken this call over"
        except ToolkilnError as error:
            is_stored, reason = False, error.message
        if is_stored:
            return result
        note = f"the result was not stored: {reason}"
        return result.model_copy(update={"notes": (*result.notes, note)})

    async def _wait(
        self,
        call: Call,
        claim: "Claimed",
        running: "asyncio.Future[Result]",
        progress: Callable[[], str],
    ) -> Result:
        """Wait for the result, renew the lease, and cancel the call on request."""
        from toolkiln.model.call import Lease

        stored = ""
        while True:
            done, _ = await asyncio.wait([running], timeout=_HEARTBEAT)
            if done:
                return running.result()
            try:
                if (latest := progress()) != stored:
                    stored = latest
                    await self._run("set_progress", claim, stored)
                lease = await self._run("renew", claim, _LEASE_SECONDS)
            except ToolkilnError:
                continue  # the store may come back; the call goes on
            if lease is not Lease.HELD:
                running.cancel()
                await asyncio.wait([running])
                return _refused(call, *(_CANCELLED if lease is Lease.CANCEL else _TAKEN_OVER))

    async def save_output(self, caller: Caller, text: str) -> tuple[str | None, tuple[str, ...]]:
        """Store a text for paging; returns its handle, or a note why there is none."""
        try:
            return await self._run("save_output", caller, text), ()
        except ToolkilnError as error:
            return None, (f"the full output could not be stored: {error.message}",)

    async def read_output(
        self, caller: Caller, handle: str, offset: int, limit: int
    ) -> "OutputPage":
        """Return a page of a stored output.

        Raises:
            NotFound: the handle is unknown.
        """
        page: OutputPage = await self._run("read_output", caller, handle, offset, limit)
        return page

    async def task(self, caller: Caller, task_id: str) -> Task:
        """Return a task.

        Raises:
            NotFound: the id is unknown.
        """
        task: Task | None = await self._run("task", caller, task_id)
        if task is None:
            raise NotFound(
                f"there is no task {task_id!r}",
                hint="finished tasks are kept for an hour; `toolkiln task list` shows them",
            )
        return task

    async def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """Return a caller's tasks, newest first; at most 1,000."""
        tasks: list[Task] = await self._run("tasks", caller, limit)
        return tasks

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """Request the cancellation of a task.

        Raises:
            NotFound: the id is unknown.
        """
        await self._run("request_cancel", caller, task_id)
        return await self.task(caller, task_id)

    async def wait(self, caller: Caller, task_id: str, timeout: float | None) -> Task:
        """Return a task when it has ended, or its state when the timeout expires.

        Raises:
            NotFound: the id is unknown.
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

    async def _run(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self._store is None:
            async with self._opening:
                if self._store is None:
                    self._store = await asyncio.to_thread(self._open)
        return await asyncio.to_thread(getattr(self._store, method), *arguments, **named)


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
        hint="repeat the call with the same id",
        retryable=True,
    ),
)
_CANCELLED = (Status.CANCELLED, CallError(code="cancelled", message="the call was cancelled"))


def _fingerprint(spec: ToolSpec, arguments: dict[str, Any]) -> str:
    work = [spec.name, spec.digest, arguments]
    text = json.dumps(work, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _refused(call: Call, status: Status, error: CallError) -> Result:
    return Result(
        call_id=call.id, tool=call.tool, status=status, error=error, text=f"error: {error.message}"
    )
