"""Audit operations: read, verify and prune the audit log."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from toolkiln.model.audit import AuditEntry, AuditFilter, Verification
from toolkiln.model.base import Page, Value
from toolkiln.model.identity import Privilege
from toolkiln.operations.operation import (
    OperationContext,
    PageQuery,
    decode_cursor,
    encode_cursor,
    operation,
)

_MOST_SEQ = 1 << 62
Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class AuditQuery(PageQuery):
    """Selects records of the audit log; a field that is left out matches any record."""

    user: str | None = None
    tool: str | None = None
    """A name or a glob."""
    outcome: str | None = None
    """Such as `ok`, `denied`, `failed`."""
    act: str | None = None
    """Such as `call`, `admit`, `approve`."""
    session: str | None = None
    """The trace_id of a session."""
    since: Time | None = None
    """Unix time."""
    until: Time | None = None
    """Unix time, exclusive."""


class VerifyAudit(Value):
    """An earlier state to compare the audit log with."""

    head: Annotated[str | None, Field(pattern=r"^[0-9]{1,18}:[0-9a-f]{64}$")] = None
    """`last:head` of an earlier verification."""


class ReadAudit(Value):
    """Selects records to read one after the other."""

    filter: AuditFilter
    newest: int | None = None
    """Read this many, newest first; by default all, oldest first."""


class PruneAudit(Value):
    """Selects records by age."""

    days: Annotated[float, Field(ge=0, le=36_500)]
    """Age of the oldest records that stay."""


@operation("audit.list", privilege=Privilege.ADMIN, read_only=True)
def list_records(context: OperationContext, request: AuditQuery) -> Page[AuditEntry]:
    """Return matching records, newest first."""
    before = None
    if request.cursor is not None:
        (seq,) = decode_cursor("audit", request.cursor, int)
        before = max(0, min(seq, _MOST_SEQ))
    matching = AuditFilter(**request.model_dump(exclude={"limit", "cursor"}), before=before)
    found = list(context.services.security.audit.entries(matching, request.limit + 1))
    records, following = found[: request.limit], None
    if len(found) > request.limit:
        following = encode_cursor("audit", records[-1].seq)
    return Page(items=tuple(map(AuditEntry.of, records)), next_cursor=following)


@operation("audit.read", privilege=Privilege.ADMIN, act="audit.list", read_only=True)
def read_records(context: OperationContext, request: ReadAudit) -> Iterator[AuditEntry]:
    """Return matching records as they are read, any number of them."""
    audit = context.services.security.audit
    if request.newest is None:
        return map(AuditEntry.of, audit.export(request.filter))
    return map(AuditEntry.of, audit.entries(request.filter, request.newest))


@operation("audit.verify", privilege=Privilege.ADMIN, read_only=True)
def verify_audit(context: OperationContext, request: VerifyAudit) -> Verification:
    """Verify the hash chain of the whole log."""
    expected = None
    if request.head is not None:
        seq, _, head = request.head.partition(":")
        expected = int(seq), head
    return context.services.security.audit.verify(expected)


@operation("audit.prune", privilege=Privilege.ADMIN)
def prune_audit(context: OperationContext, request: PruneAudit) -> int:
    """Delete old records and return how many; the rest can still be verified."""
    return context.services.security.audit.prune(request.days, context.session)
