"""`/v1/runs` and `/v1/statistics`: the calls that run, those that ended, and how they did.

Everybody sees the calls made on their behalf; those of others, and what only the audit still
knows, take ADMIN.
"""

import time
from typing import Annotated, Literal

from pydantic import Field

from toolkiln.app import START, Place, Seen, Wanted, status_of
from toolkiln.errors import NotFound
from toolkiln.model import AuditRecord, Caller, CallError, LogLevel, Truncation, Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.auditing import Record, record_of
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.shapes import Page

_PATIENCE = 5.0
"""Seconds that a call gets to end after it was cancelled."""
_MINUTE = 60.0
_HOUR = 60

RunStatus = Literal[
    "running", "pending", "ok", "failed", "invalid", "denied", "timeout", "killed", "cancelled",
    "unavailable",
]  # fmt: skip


class RunsQuery(Page):
    """Which calls; what is left out fits any."""

    tool: Annotated[str | None, Field(max_length=200)] = None
    """A name or a glob."""
    status: list[RunStatus] = Field(default_factory=list)
    """One of these; may be repeated."""
    user: Annotated[str | None, Field(max_length=200)] = None
    """On whose behalf, as the audit says it."""


class RunItem(Value):
    """One call as a list shows it."""

    id: str
    tool: str
    status: str
    """`running`, `pending` while a person is asked, or how it ended."""
    caller: str
    """On whose behalf, as the audit says it."""
    agent: str
    surface: str
    started: float
    """Unix time."""
    duration: float | None
    """Seconds; none while it runs."""
    parent: str | None
    """The id of the call that made it."""
    isolation: str | None
    """The mode of the sandbox: A, B, C or none; nothing if it did not run or is not known."""
    code: str | None
    """Of the error, where that is known."""
    progress: str
    """The last that it reported."""


class RunList(Value):
    """A part of the calls, newest first; it may hold fewer than asked for though more follow."""

    items: tuple[RunItem, ...]
    next_cursor: str | None


class RunEvent(Value):
    """What a call told, and when."""

    at: float
    kind: str
    text: str
    level: LogLevel | None


class RunDetail(RunItem):
    """One call with everything that is known of it."""

    session: str
    """The public id of the session that it was made in."""
    digest: str
    """Of the version that ran."""
    arguments: str
    """JSON in one line, with secrets redacted, cut at 2,000 characters; empty if not known."""
    events: tuple[RunEvent, ...]
    """The last that it told."""
    events_left_out: int
    text: str | None
    """The first 50,000 characters of what it gave; none if that is not known."""
    length: int
    """Characters of all that its caller got."""
    truncation: Truncation | None
    """What its caller did not get; with a handle for those whose call it is."""
    error: CallError | None
    notes: tuple[str, ...]
    cpu: float | None
    """Seconds."""
    memory: int | None
    """Bytes at the peak."""
    approval: str | None
    """The id of the request that a person was asked with."""
    detail: str
    """What the audit says about how it went."""
    record: Record | None
    """Its place in the audit, for those with ADMIN."""
    children: tuple[RunItem, ...]
    """The calls that it made, in their order."""


class Minute(Value):
    """The calls that began within a minute and have ended."""

    at: float
    """Unix time of its beginning."""
    outcomes: dict[str, int]
    """How many ended how."""
    median: float | None
    """Seconds that half of them took at most."""
    slow: float | None
    """Seconds that 95 of 100 took at most."""


class Statistics(Value):
    """How calls went in the last hour."""

    complete_since: float
    """Unix time: what began earlier is counted in part only."""
    minutes: tuple[Minute, ...]
    """Sixty and the one that is not over, oldest first."""


async def list_runs(visit: Visit, query: RunsQuery) -> RunList:
    """Calls that fit."""
    place = START
    if query.cursor is not None:
        at, call_id, before = cursors.read("runs", query.cursor, float, str, int)
        place = Place(at, call_id, max(0, min(before, START.before)))
    wanted = Wanted(query.tool, query.user, frozenset(query.status))
    part = await visit.kiln.history.part(await _caller(visit), wanted, place, query.limit)
    following = None if part.following is None else cursors.made("runs", *part.following)
    return RunList(items=tuple(map(item, part.items)), next_cursor=following)


async def get_run(visit: Visit) -> RunDetail:
    """One call."""
    caller, history = await _caller(visit), visit.kiln.history
    seen = await history.find(caller, visit.path["id"])
    if seen is None:
        raise _unknown(visit.path["id"])
    children = tuple(map(item, await history.nested(caller, seen)))
    record, run, given = seen.record, seen.run, seen.given
    return RunDetail(
        **item(seen).model_dump(),
        session=record.session,
        digest=record.digest,
        arguments=run.arguments if run is not None else record.arguments,
        events=tuple(RunEvent(**told._asdict()) for told in (run.told if run is not None else ())),
        events_left_out=run.left_out if run is not None else 0,
        text=given.text,
        length=given.length,
        truncation=_truncation(given.truncation, record, caller),
        error=given.error,
        notes=given.notes,
        cpu=given.timing.cpu,
        memory=given.timing.memory,
        approval=run.approval if run is not None else None,
        detail=record.detail,
        record=record_of(seen.entry) if seen.entry is not None else None,
        children=children,
    )


async def cancel_run(visit: Visit) -> RunItem:
    """Stop a call."""
    caller, history = await _caller(visit), visit.kiln.history
    name = visit.path["id"]
    running = history.running(caller, name)
    if not running:
        if await history.find(caller, name) is None:
            raise _unknown(name)
        raise Refused("too_late", "the call has ended, or runs in another process")
    for run in running:
        await run.stop(caller.who, _PATIENCE)
    return item(Seen(running[0].record, running[0]))


async def get_statistics(visit: Visit) -> Statistics:
    """How calls went."""
    now = time.time()
    first = now // _MINUTE * _MINUTE - _HOUR * _MINUTE
    records, since = await visit.kiln.history.ended_since(await _caller(visit), first)
    minutes: list[list[AuditRecord]] = [[] for _ in range(_HOUR + 1)]
    for record in records:
        if first <= record.at <= now:
            minutes[int((record.at - first) // _MINUTE)].append(record)
    told = tuple(_minute(first + at * _MINUTE, some) for at, some in enumerate(minutes))
    return Statistics(complete_since=since, minutes=told)


def item(seen: Seen) -> RunItem:
    """A call as a list shows it."""
    record, given = seen.record, seen.given
    return RunItem(
        id=record.call_id,
        tool=record.tool,
        status=seen.status,
        caller=record.user,
        agent=record.agent,
        surface=record.surface,
        started=record.at,
        duration=record.duration,
        parent=record.parent or None,
        isolation=given.isolation or None,
        code=given.error.code if given.error is not None else None,
        progress=seen.run.progress if seen.run is not None else "",
    )


async def _caller(visit: Visit) -> Caller:
    """Who asks, with the privileges of this moment."""
    return await visit.kiln.guarding.guard.caller(visit.session)


def _unknown(call_id: str) -> NotFound:
    return NotFound(f"there is no run {call_id[:100]!r}", hint="GET /v1/runs lists them")


def _truncation(found: Truncation | None, record: AuditRecord, caller: Caller) -> Truncation | None:
    """What was cut; only whose output it is can use the handle."""
    is_own = (record.user, record.agent) == (caller.who, caller.agent_id or "")
    return found if found is None or is_own else found.model_copy(update={"handle": None})


def _minute(at: float, records: list[AuditRecord]) -> Minute:
    outcomes: dict[str, int] = {}
    for record in records:
        status = status_of(record)
        outcomes[status] = outcomes.get(status, 0) + 1
    took = sorted(record.duration for record in records if record.duration is not None)
    if not took:
        return Minute(at=at, outcomes=outcomes, median=None, slow=None)
    return Minute(
        at=at,
        outcomes=outcomes,
        median=took[(len(took) - 1) // 2],
        slow=took[min(len(took) - 1, len(took) * 95 // 100)],
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/runs",
        name="list_runs",
        summary="List calls that run and calls that ended, newest first",
        description="Those made on the caller's behalf; with ADMIN all, and further back.",
        handle=list_runs,
        group="runs",
        query=RunsQuery,
        answers={200: RunList},
    ),
    Operation(
        method="GET",
        path="/v1/runs/{id}",
        name="get_run",
        summary="Get a call: its arguments without secrets, what it told and gave, its record",
        handle=get_run,
        group="runs",
        answers={200: RunDetail},
    ),
    Operation(
        method="POST",
        path="/v1/runs/{id}/cancel",
        name="cancel_run",
        summary="Stop a call that runs in this process",
        description="Whoever made it gets a result with the status `cancelled`. The calls that it "
        "made are stopped with it. A call that does not end within seconds is told as it stands.",
        handle=cancel_run,
        group="runs",
        answers={200: RunItem},
        problems=(409,),
        idempotent_by_key=True,
    ),
    Operation(
        method="GET",
        path="/v1/statistics",
        name="get_statistics",
        summary="Get how calls went in the last hour, by the minute",
        description="Of the calls that `/v1/runs` lists; of those that ended.",
        handle=get_statistics,
        group="runs",
        answers={200: Statistics},
    ),
)
