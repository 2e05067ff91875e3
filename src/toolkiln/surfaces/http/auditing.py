"""`/v1/audit`: what was recorded, and whether it is still as it was written."""

import asyncio
from typing import Annotated

from pydantic import Field

from toolkiln.app import AuditFilter, Verification
from toolkiln.model import AuditEntry, Privilege, Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Page, Query

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class AuditQuery(Page):
    """Which records; what is left out fits any."""

    user: str | None = None
    tool: str | None = None
    """A name or a glob."""
    outcome: str | None = None
    """Such as `ok`, `denied`, `failed`."""
    act: str | None = None
    """Such as `call`, `admit`, `approve`."""
    session: str | None = None
    """The public id of a session."""
    since: Moment | None = None
    """Unix time."""
    until: Moment | None = None
    """Unix time: the first moment that is too late."""


class Record(Value):
    """One record of a call or of an administrative act."""

    seq: int
    at: float
    act: str
    outcome: str
    user: str
    agent: str
    session: str
    surface: str
    tool: str
    digest: str
    call_id: str
    parent: str
    detail: str
    duration: float | None
    arguments: str
    """JSON, of privileged calls only, with secrets redacted."""
    hash: str
    """Covers the record, its place and everything before it."""


class RecordList(Value):
    """A part of the records, newest first."""

    items: tuple[Record, ...]
    next_cursor: str | None


class VerifyQuery(Query):
    """What is known of the records from elsewhere."""

    head: Annotated[str | None, Field(pattern=r"^[0-9]{1,18}:[0-9a-f]{64}$")] = None
    """`last:head` of an earlier verification."""


async def list_records(visit: Visit, query: AuditQuery) -> RecordList:
    """Records that fit."""

    def listed() -> RecordList:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "audit.list")
        before = None
        if query.cursor is not None:
            (before,) = cursors.read("audit", query.cursor, int)
        wanted = AuditFilter(
            **query.model_dump(exclude={"limit", "cursor"}),
            before=None if before is None else max(0, min(before, 1 << 62)),
        )
        found = list(visit.kiln.guarding.audit.entries(wanted, query.limit + 1))
        following = None
        if len(found) > query.limit:
            following = cursors.made("audit", found[query.limit - 1].seq)
        return RecordList(items=tuple(map(record_of, found[: query.limit])), next_cursor=following)

    return await asyncio.to_thread(listed)


async def verify(visit: Visit, query: VerifyQuery) -> Verification:
    """Whether every record is where it was put and says what it said."""

    def verified() -> Verification:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "audit.verify")
        expected = None
        if query.head is not None:
            seq, _, link = query.head.partition(":")
            expected = int(seq), link
        return visit.kiln.guarding.audit.verify(expected)

    return await asyncio.to_thread(verified)


def record_of(entry: AuditEntry) -> Record:
    """A record as it is told."""
    return Record(seq=entry.seq, hash=entry.hash, **entry.record._asdict())


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/audit",
        name="list_records",
        summary="List what was recorded, newest first",
        description="Takes the privilege ADMIN.",
        handle=list_records,
        group="audit",
        query=AuditQuery,
        answers={200: RecordList},
    ),
    Operation(
        method="GET",
        path="/v1/audit/verify",
        name="verify_audit",
        summary="Tell whether records were edited, removed or put elsewhere",
        description="Takes the privilege ADMIN, and time: it reads the whole log.",
        handle=verify,
        group="audit",
        query=VerifyQuery,
        answers={200: Verification},
    ),
)
