"""Run operations: current and past calls, from the run log and the audit log.

Callers see the calls made on their behalf; an agent sees only its own. With ADMIN callers see
all calls, and earlier ones: the audit log has the calls that left the run log or ran in other
processes. A refused call of a tool that rules hide from its caller is not listed for them.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from toolkiln.errors import NotFound, TooLate
from toolkiln.execution.run_log import NO_RESULT, RunLog, RunRecord, RunResult, run_key, status_of
from toolkiln.model.audit import AuditEntry, AuditFilter, AuditRecord, ChainedRecord
from toolkiln.model.base import Page, Value
from toolkiln.model.call import CallError, RunEvent, Truncation
from toolkiln.model.identity import Caller, Privilege
from toolkiln.operations.engine import ToolVisibility
from toolkiln.operations.operation import (
    Nothing,
    OperationContext,
    PageQuery,
    decode_cursor,
    encode_cursor,
    operation,
)
from toolkiln.security.audit import AuditReader

_MOST_READ = 5_000
"""AuditReader records that one request reads at most."""
_SKEW = 60.0
"""Seconds by which the clocks of processes may differ."""
_STOP_TIMEOUT = 5.0
"""Seconds that a call has to end after it was cancelled."""
_MINUTE = 60.0
_HOUR = 60
_REFUSED = ("denied", "invalid")
_UNENDED = frozenset(("running", "pending"))
_ACT, _STARTED = "call", "started"

RunStatus = Literal[
    "running", "pending", "ok", "failed", "invalid", "denied", "timeout", "killed", "cancelled",
    "unavailable",
]  # fmt: skip


class RunQuery(PageQuery):
    """Selects calls; a filter that is left out matches all."""

    tool: Annotated[str | None, Field(max_length=200)] = None
    """A name or a glob."""
    status: list[RunStatus] = Field(default_factory=list)
    """Any of these; may be repeated."""
    user: Annotated[str | None, Field(max_length=200)] = None
    """The user, as in the audit log."""


class RunRef(Value):
    """Names a run."""

    id: str


class RunSummary(Value):
    """One call in a list."""

    id: str
    tool: str
    status: str
    """`running`, `pending` while the call waits for a person, or the status of its result."""
    caller: str
    """The user, as in the audit log."""
    agent: str
    surface: str
    started: float
    """Unix time."""
    duration: float | None
    """Seconds; null while it runs."""
    parent: str | None
    """The id of the call that made it."""
    isolation: str | None
    """The mode of the sandbox: A, B, C or none; null if it did not run or is not known."""
    code: str | None
    """The code of the error, if known."""
    progress: str
    """The last progress that it reported."""


class Run(RunSummary):
    """One call with its arguments, events and result."""

    session: str
    """The public id of its session."""
    digest: str
    """The version that ran."""
    arguments: str
    """JSON in one line, with secrets redacted, cut at 2,000 characters; empty if not known."""
    events: tuple[RunEvent, ...]
    """The latest events."""
    events_left_out: int
    text: str | None
    """The first 50,000 characters of the result; null if not known."""
    length: int
    """Characters of the whole text that the caller got."""
    truncation: Truncation | None
    """What the caller did not get; only the caller of the run gets the handle."""
    error: CallError | None
    notes: tuple[str, ...]
    cpu: float | None
    """Seconds."""
    memory: int | None
    """Peak in bytes."""
    approval: str | None
    """The id of the approval that it waited for."""
    detail: str
    """The detail of its audit record."""
    record: AuditEntry | None
    """Its audit record, for callers with ADMIN."""
    children: tuple[RunSummary, ...]
    """The calls that it made, in order."""


class Minute(Value):
    """The ended calls that started within a minute."""

    at: float
    """Unix time of its start."""
    outcomes: dict[str, int]
    """Number of calls by status."""
    median: float | None
    """Median duration in seconds."""
    slow: float | None
    """95th percentile of the duration in seconds."""


class Statistics(Value):
    """The calls of the last hour, by the minute."""

    complete_since: float
    """Unix time: earlier calls are counted in part only."""
    minutes: tuple[Minute, ...]
    """Sixty complete minutes and the current one, oldest first."""


class HistoryItem(NamedTuple):
    """One call: in the run log, or in the audit log only."""

    record: AuditRecord
    run: RunRecord | None = None
    entry: ChainedRecord | None = None

    @property
    def status(self) -> str:
        """`running`, `pending`, or the status of its result."""
        return self.run.status if self.run is not None else status_of(self.record)

    @property
    def result(self) -> RunResult:
        """What is known of its result."""
        return self.run.result if self.run is not None else NO_RESULT

    def matches(self, query: RunQuery) -> bool:
        """Return whether a query selects this call."""
        return (
            (query.user is None or self.record.user == query.user)
            and (query.tool is None or fnmatchcase(self.record.tool, query.tool))
            and (not query.status or self.status in query.status)
        )

    def summary(self) -> RunSummary:
        """Return the call as an item of a list."""
        record, error = self.record, self.result.error
        return RunSummary(
            id=record.call_id,
            tool=record.tool,
            status=self.status,
            caller=record.user,
            agent=record.agent,
            surface=record.surface,
            started=record.at,
            duration=record.duration,
            parent=record.parent or None,
            isolation=self.result.isolation or None,
            code=error.code if error is not None else None,
            progress=self.run.progress if self.run is not None else "",
        )


class RunCursor(NamedTuple):
    """A position in a list of calls."""

    at: float
    call_id: str
    """The last call of the run log."""
    before: int
    """The last record of the audit log."""


START = RunCursor(1e12, "", 1 << 62)


class RunPage(NamedTuple):
    """A page of a list, newest first, and the position of the next one."""

    items: list[HistoryItem]
    next: RunCursor | None


class History:
    """The calls that a Kiln knows of."""

    def __init__(self, runs: RunLog, audit: AuditReader, visibility: ToolVisibility) -> None:
        self._runs = runs
        self._audit = audit
        self._visibility = visibility

    def may_see(self, caller: Caller) -> Callable[[AuditRecord], bool]:
        """Return which calls a caller may see."""
        if Privilege.ADMIN in caller.privileges:
            return lambda _: True

        if caller.is_anonymous:  # many people, who must not see each other's calls
            return lambda _: False

        def is_own(record: AuditRecord) -> bool:
            if record.user != caller.who or (
                caller.agent_id is not None and record.agent != caller.agent_id
            ):
                return False
            if not record.user and record.session != caller.session:
                return False
            # The response to a call of a hidden tool was that the tool is unknown.
            is_refused = record.outcome in _REFUSED
            return not is_refused or self._visibility.is_seen(record.tool, caller)

        return is_own

    async def page(
        self, caller: Caller, query: RunQuery, position: RunCursor, limit: int
    ) -> RunPage:
        """Return the next calls of a list, newest first; perhaps fewer than there could be."""
        logged = self._logged(caller)
        includes_ended = not query.status or not _UNENDED.issuperset(query.status)
        if Privilege.ADMIN not in caller.privileges or not includes_ended:
            return _merge(_LoggedRuns(logged, query, position), None, limit)
        known = {_identity(item.record) for item in logged}

        def merge() -> RunPage:
            criteria = AuditFilter(
                act=_ACT, user=query.user, tool=query.tool, before=position.before
            )
            entries = self._audit.entries(criteria, _MOST_READ)
            audited = _AuditedRuns(entries, known, query, position.before)
            return _merge(_LoggedRuns(logged, query, position), audited, limit)

        return await asyncio.to_thread(merge)

    async def find(self, caller: Caller, call_id: str) -> HistoryItem | None:
        """Return the newest call with an id."""
        found = [item for item in self._logged(caller) if item.record.call_id == call_id]
        is_admin = Privilege.ADMIN in caller.privileges
        if found:
            return await asyncio.to_thread(self._with_entry, found[0]) if is_admin else found[0]
        if not is_admin:
            return None
        criteria = AuditFilter(act=_ACT, call_id=call_id)
        entry = await asyncio.to_thread(lambda: next(self._audit.entries(criteria, 1), None))
        return None if entry is None else HistoryItem(entry.record, entry=entry)

    def running(self, caller: Caller, call_id: str) -> list[RunRecord]:
        """Return the current runs with an id, of one user, then the runs that they made."""
        logged = [i for i in reversed(self._logged(caller)) if i.run and i.run.is_running]
        newest = next((item for item in reversed(logged) if item.record.call_id == call_id), None)
        if newest is None:
            return []
        ids, found = {call_id}, []
        for item in logged:  # oldest first: a call is older than the calls that it makes
            record = item.record
            is_same_user = (record.user, record.agent) == (newest.record.user, newest.record.agent)
            if item.run and is_same_user and not ids.isdisjoint((record.call_id, record.parent)):
                ids.add(record.call_id)
                found.append(item.run)
        return found

    async def children(self, caller: Caller, item: HistoryItem) -> list[HistoryItem]:
        """Return the calls that a call made, in order."""
        record = item.record
        found = [one for one in self._logged(caller) if one.record.parent == record.call_id]
        if Privilege.ADMIN in caller.privileges and record.duration is not None:
            known = {_identity(one.record) for one in found}
            since, until = record.at - _SKEW, record.at + record.duration + _SKEW
            criteria = AuditFilter(act=_ACT, parent=record.call_id, since=since, until=until)
            entries = await asyncio.to_thread(lambda: [*self._audit.entries(criteria, _MOST_READ)])
            found += [*_AuditedRuns(iter(entries), known, RunQuery(), 0)]
        return sorted(found, key=lambda one: run_key(one.record))

    async def ended_since(self, caller: Caller, since: float) -> tuple[list[AuditRecord], float]:
        """Return the ended calls that started since then, and from when on they are complete."""
        logged = [item for item in self._logged(caller) if item.record.at >= since]
        ended = [item.record for item in logged if item.record.outcome != _STARTED]
        if Privilege.ADMIN not in caller.privileges:
            return ended, max(since, self._runs.kept_since)
        known = {_identity(record) for record in ended}
        criteria = AuditFilter(act=_ACT, since=since)
        entries = await asyncio.to_thread(lambda: [*self._audit.entries(criteria, _MOST_READ)])
        ended += [item.record for item in _AuditedRuns(iter(entries), known, RunQuery(), 0)]
        is_complete = len(entries) < _MOST_READ
        return ended, since if is_complete else entries[-1].record.at

    def _logged(self, caller: Caller) -> list[HistoryItem]:
        """Return the calls of the run log that a caller may see, newest first."""
        may_see = self.may_see(caller)
        logged = [HistoryItem(run.record, run) for run in self._runs.all]
        visible = [item for item in logged if may_see(item.record)]
        return sorted(visible, key=lambda item: run_key(item.record), reverse=True)

    def _with_entry(self, item: HistoryItem) -> HistoryItem:
        at, call_id = run_key(item.record)
        user = item.record.user
        criteria = AuditFilter(act=_ACT, call_id=call_id, user=user, since=at - _SKEW)
        entries = [*self._audit.entries(criteria, _MOST_READ)]
        exact = [entry for entry in entries if entry.record.at == at]
        return item._replace(entry=next(iter(exact or entries), None))


class _LoggedRuns:
    """The calls of the run log after a position."""

    def __init__(self, logged: Sequence[HistoryItem], query: RunQuery, position: RunCursor) -> None:
        self.position = position[:2]
        self._rest = iter(
            [i for i in logged if run_key(i.record) < self.position and i.matches(query)]
        )
        self.head = next(self._rest, None)

    def pop(self) -> HistoryItem:
        """Remove the head and return it."""
        item, self.head = self.head, next(self._rest, None)
        assert item is not None
        self.position = run_key(item.record)
        return item


class _AuditedRuns:
    """Ended calls of the audit log that are not in the run log, after a position."""

    def __init__(
        self,
        entries: Iterator[ChainedRecord],
        known: set[tuple[str, str]],
        query: RunQuery,
        before: int,
    ) -> None:
        self._entries, self._known, self._query = entries, known, query
        self.read = 0
        self.before = before
        """The last record that was passed."""
        self.head = self._next()

    def __iter__(self) -> Iterator[HistoryItem]:
        while self.head is not None:
            yield self.pop()

    def pop(self) -> HistoryItem:
        """Remove the head and return it."""
        item = self.head
        assert item is not None
        assert item.entry is not None
        self.before = item.entry.seq
        self.head = self._next()
        return item

    def _next(self) -> HistoryItem | None:
        for entry in self._entries:
            self.read += 1
            item = HistoryItem(entry.record, entry=entry)
            has_ended = entry.record.outcome != _STARTED
            if has_ended and _identity(entry.record) not in self._known:
                if item.matches(self._query):
                    return item
            self.before = entry.seq
        return None


def _merge(logged: _LoggedRuns, audited: _AuditedRuns | None, limit: int) -> RunPage:
    """Merge by time; the audit log is in the order of ends, which is close enough."""
    items: list[HistoryItem] = []
    while len(items) < limit:
        old = audited.head if audited is not None else None
        if logged.head is None and old is None:
            break
        if (
            audited is None
            or old is None
            or (logged.head and logged.head.record.at >= old.record.at)
        ):
            items.append(logged.pop())
        else:
            items.append(audited.pop())
    position = RunCursor(*logged.position, audited.before if audited is not None else 0)
    is_more = logged.head is not None or (
        audited is not None and (audited.head is not None or audited.read >= _MOST_READ)
    )
    return RunPage(items, position if is_more else None)


def _identity(record: AuditRecord) -> tuple[str, str]:
    """Return what the same call has in the records of all processes: clocks differ."""
    return record.call_id, record.user


@operation("runs.list", read_only=True)
async def list_runs(context: OperationContext, request: RunQuery) -> Page[RunSummary]:
    """Return calls, newest first; a page may have fewer than the limit though more follow."""
    position = START
    if request.cursor is not None:
        at, call_id, before = decode_cursor("runs", request.cursor, float, str, int)
        position = RunCursor(at, call_id, max(0, min(before, START.before)))
    caller, history = await _caller_and_history(context)
    page = await history.page(caller, request, position, request.limit)
    cursor = None if page.next is None else encode_cursor("runs", *page.next)
    return Page(items=tuple(item.summary() for item in page.items), next_cursor=cursor)


@operation("runs.get", read_only=True)
async def get_run(context: OperationContext, request: RunRef) -> Run:
    """Return a call with its arguments, events and result."""
    caller, history = await _caller_and_history(context)
    item = await history.find(caller, request.id)
    if item is None:
        raise _unknown(request.id)
    children = await history.children(caller, item)
    record, run, result = item.record, item.run, item.result
    return Run(
        **item.summary().model_dump(),
        session=record.session,
        digest=record.digest,
        arguments=run.arguments if run is not None else record.arguments,
        events=tuple(run.events) if run is not None else (),
        events_left_out=run.dropped_events if run is not None else 0,
        text=result.text,
        length=result.length,
        truncation=_truncation(result.truncation, record, caller),
        error=result.error,
        notes=result.notes,
        cpu=result.timing.cpu,
        memory=result.timing.memory,
        approval=run.approval if run is not None else None,
        detail=record.detail,
        record=AuditEntry.of(item.entry) if item.entry is not None else None,
        children=tuple(child.summary() for child in children),
    )


@operation("runs.cancel")
async def cancel_run(context: OperationContext, request: RunRef) -> RunSummary:
    """Stop a call that runs in this process, and the calls that it made."""
    caller, history = await _caller_and_history(context)
    running = history.running(caller, request.id)
    if not running:
        if await history.find(caller, request.id) is None:
            raise _unknown(request.id)
        raise TooLate("the call has ended, or runs in another process")
    for run in running:
        await run.stop(caller.who, _STOP_TIMEOUT)
    return HistoryItem(running[0].record, running[0]).summary()


@operation("runs.statistics", read_only=True)
async def get_statistics(context: OperationContext, _: Nothing) -> Statistics:
    """Return the number and duration of the last hour's calls, by the minute."""
    now = time.time()
    first = now // _MINUTE * _MINUTE - _HOUR * _MINUTE
    caller, history = await _caller_and_history(context)
    records, since = await history.ended_since(caller, first)
    minutes: list[list[AuditRecord]] = [[] for _ in range(_HOUR + 1)]
    for record in records:
        if first <= record.at <= now:
            minutes[int((record.at - first) // _MINUTE)].append(record)
    return Statistics(
        complete_since=since,
        minutes=tuple(_minute(first + i * _MINUTE, some) for i, some in enumerate(minutes)),
    )


async def _caller_and_history(context: OperationContext) -> tuple[Caller, History]:
    services = context.services
    return await services.caller(context.session), services.history


def _unknown(call_id: str) -> NotFound:
    return NotFound(f"there is no run {call_id[:100]!r}", hint="GET /v1/runs lists them")


def _truncation(found: Truncation | None, record: AuditRecord, caller: Caller) -> Truncation | None:
    """Return what was cut; only the caller of the run can use the handle."""
    is_own = (record.user, record.agent) == (caller.who, caller.agent_id or "")
    return found if found is None or is_own else found.model_copy(update={"handle": None})


def _minute(at: float, records: list[AuditRecord]) -> Minute:
    outcomes: dict[str, int] = {}
    for record in records:
        status = status_of(record)
        outcomes[status] = outcomes.get(status, 0) + 1
    durations = sorted(record.duration for record in records if record.duration is not None)
    if not durations:
        return Minute(at=at, outcomes=outcomes, median=None, slow=None)
    return Minute(
        at=at,
        outcomes=outcomes,
        median=durations[(len(durations) - 1) // 2],
        slow=durations[min(len(durations) - 1, len(durations) * 95 // 100)],
    )
