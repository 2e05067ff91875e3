"""Run log: the running calls of this process and the last that ended.

It is kept in memory and bounded while a server runs; older calls and those of other processes
are in the audit. A run has what the audit records, with arguments redacted in the same way,
the events of the call and the beginning of its result. `operations.runs` decides who may see
which run, and continues with the audit.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import NamedTuple

from toolkiln.execution.call_events import CallEvents, CallObserver, RunningCall
from toolkiln.execution.outcomes import mask_error
from toolkiln.model.audit import AuditRecord
from toolkiln.model.call import CallError, Event, Result, RunEvent, Timing, Truncation
from toolkiln.model.identity import Caller
from toolkiln.security.audit import sanitized
from toolkiln.security.redaction import redacted_arguments

MAX_ENDED = 1_000
_MAX_EVENTS = 200
_MAX_EVENT_TEXT = 2_000
_MAX_EVENTS_TEXT = 20_000
"""Characters of all events of a run together."""
_MAX_RESULT_TEXT = 50_000
_MAX_CHANGES = 1_000

Identify = Callable[[str | None, bool], Caller | None]
"""Returns the cached caller of a session; the flag says whether the call is nested."""


class RunResult(NamedTuple):
    """The logged part of a result."""

    text: str | None = None
    """Its beginning."""
    length: int = 0
    """Characters of the whole text."""
    error: CallError | None = None
    truncation: Truncation | None = None
    isolation: str = ""
    timing: Timing = Timing()
    notes: tuple[str, ...] = ()


NO_RESULT = RunResult()


class RunRecord:
    """One call in the log."""

    __slots__ = (
        "_call", "_ended", "_record", "_size", "approval", "arguments", "dropped_events", "events",
        "progress", "result", "started",
    )  # fmt: skip

    def __init__(self, call: RunningCall) -> None:
        self._call: RunningCall | None = call
        self._record: AuditRecord | None = None
        self._ended: asyncio.Event | None = None
        self._size = 0
        self.started = call.at
        self.arguments = call.mask.text(redacted_arguments(call.mask.value(call.call.arguments)))
        """Redacted JSON, cut."""
        self.events: deque[RunEvent] | tuple[RunEvent, ...] = ()  # most calls have no events
        self.dropped_events = 0
        """Events that were dropped."""
        self.progress = ""
        self.approval: str | None = None
        """Id of the approval that the call waited for."""
        self.result = NO_RESULT
        """Empty, too, if the task of the call was cancelled."""

    @property
    def record(self) -> AuditRecord:
        """The audit record."""
        if self._record is not None:
            return sanitized(self._record)
        assert self._call is not None
        return sanitized(self._call.audit_record())

    @property
    def is_running(self) -> bool:
        """Whether the call has not ended."""
        return self._call is not None

    @property
    def status(self) -> str:
        """`running`, `pending` while it waits for an approval, or how it ended."""
        if self._call is not None:
            return "pending" if self._call.is_waiting else "running"
        return status_of(self.record)

    async def stop(self, by: str, timeout: float) -> None:
        """Cancel the call on behalf of a user, and wait this many seconds for its end."""
        if self._call is None:
            return
        self._call.cancel(by)
        self._ended = self._ended or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()

    def end(self, call: RunningCall, result: Result | None) -> None:
        """Keep the audit record and the beginning of the result."""
        self._call, self._record = None, call.final_record
        if result is not None:
            masked, error = partial(call.mask.text, cut=True), result.error
            if error is not None and call.mask:
                error = mask_error(error, call.mask)
            text = masked(result.text)
            self.result = RunResult(
                text[:_MAX_RESULT_TEXT], len(text), error, result.truncation, result.sandbox,
                result.timing, tuple(map(masked, result.notes)) if result.notes else (),
            )  # fmt: skip
        if self._ended is not None:
            self._ended.set()

    def add(self, event: Event) -> None:
        """Keep an event, and drop the oldest ones if there are too many."""
        text = event.described[:_MAX_EVENT_TEXT]
        run_event = RunEvent(time.time(), event.kind, text, event.level)
        if not isinstance(self.events, deque):
            self.events = deque()
        events = self.events
        if event.kind == "progress":
            self.progress = run_event.text
            if events and events[-1].kind == "progress":  # else it would push out everything else
                self._size -= len(events.pop().text)
        elif event.kind == "pending":
            self.approval = event.text
        events.append(run_event)
        self._size += len(run_event.text)
        while len(events) > _MAX_EVENTS or self._size > _MAX_EVENTS_TEXT:
            self._size -= len(events.popleft().text)
            self.dropped_events += 1


class RunChanges:
    """Runs that changed since a follower last took them; a bounded number."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._runs: dict[RunRecord, None] = {}
        self._dropped = 0

    def add(self, run: RunRecord) -> None:
        """Add a run that changed."""
        self._runs[run] = None
        if len(self._runs) > _MAX_CHANGES:
            del self._runs[next(iter(self._runs))]
            self._dropped += 1
        self._notify()

    def take(self) -> tuple[list[RunRecord], int]:
        """Return and clear the runs in order of change, and how many earlier ones were dropped."""
        taken = list(self._runs), self._dropped
        self._runs.clear()
        self._dropped = 0
        return taken


class RunLog(CallObserver):
    """The running calls of one Kiln and the last that ended, all in one event loop."""

    def __init__(self, identify: Identify) -> None:
        self._identify = identify
        self._running: dict[RunningCall, RunRecord] = {}
        self._ended: dict[str, deque[RunRecord]] = {}
        """By user, the oldest first."""
        self._count = 0
        """Number of ended runs."""
        self._followers: tuple[RunChanges, ...] = ()
        self.kept_since = time.time()
        """All calls that started later are in the log."""

    def subscribe_to(self, events: CallEvents) -> Callable[[], None]:
        """Log calls from here on; returns a function that unsubscribes."""
        self.kept_since = time.time()
        return events.subscribe(self, passive=True)

    def started(self, call: RunningCall, /) -> None:
        """Add a call."""
        if call.caller is None:
            call.caller = self._identify(call.call.session, call.call.depth > 0)
        run = self._running[call] = RunRecord(call)
        self._changed(run)

    def event(self, call: RunningCall, event: Event, /) -> None:
        """Add an event of a call."""
        run = self._running[call]
        run.add(event)
        self._changed(run)

    def ended(self, call: RunningCall, result: Result | None, /) -> None:
        """Keep an ended call; if there are too many, drop the oldest of the user with the most."""
        run = self._running.pop(call)
        run.end(call, result)
        assert call.final_record is not None
        self._ended.setdefault(call.final_record.user, deque()).append(run)
        self._count += 1
        if self._count > MAX_ENDED:
            user = max(self._ended, key=lambda user: len(self._ended[user]))
            oldest = self._ended[user].popleft()
            if not self._ended[user]:
                del self._ended[user]
            self._count -= 1
            self.kept_since = max(self.kept_since, oldest.started)
        self._changed(run)

    @contextmanager
    def follow(self, notify: Callable[[], None]) -> Iterator[RunChanges]:
        """Collect changes within the block; `notify` is called with each and must not block."""
        changes = RunChanges(notify)
        self._followers = (*self._followers, changes)
        try:
            yield changes
        finally:
            self._followers = tuple(other for other in self._followers if other is not changes)

    @property
    def all(self) -> list[RunRecord]:
        """Running and ended calls, in no order."""
        return [*self._running.values(), *chain.from_iterable(self._ended.values())]

    def _changed(self, run: RunRecord) -> None:
        for follower in self._followers:
            follower.add(run)


def status_of(record: AuditRecord) -> str:
    """Return how a call ended, in terms of `Status`."""
    return "failed" if record.outcome == "exception" else record.outcome


def run_key(record: AuditRecord) -> tuple[float, str]:
    """Return what identifies a run: callers choose call ids, and may repeat them."""
    return record.at, record.call_id
