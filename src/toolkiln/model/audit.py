"""Audit log records and filters."""

from typing import NamedTuple, Self

from toolkiln.model.base import Value


class AuditRecord(NamedTuple):
    """One audit record: a call or an administrative act."""

    at: float
    """Unix time."""
    act: str
    """`call`, or the administrative act: `admit`, `approve`, `key.create` …"""
    outcome: str
    """`ok`, `denied`, `failed`, `exception` …; `started` when a call begins."""
    user: str = ""
    agent: str = ""
    session: str = ""
    surface: str = ""
    tool: str = ""
    digest: str = ""
    call_id: str = ""
    parent: str = ""
    detail: str = ""
    duration: float | None = None
    """Seconds."""
    arguments: str = ""
    """JSON, for privileged calls only: unresolved references, redacted secrets, truncated."""


class ChainedRecord(NamedTuple):
    """A record with its position in the hash chain."""

    seq: int
    record: AuditRecord
    hash: str
    """Covers the record, its position and all earlier records."""


class AuditEntry(Value):
    """One record of a call or of an administrative act, with its position in the chain."""

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
    """Covers the record, its position and everything before it."""

    @classmethod
    def of(cls, chained: ChainedRecord) -> Self:
        """Return the entry of a record."""
        return cls(seq=chained.seq, hash=chained.hash, **chained.record._asdict())


class AuditFilter(Value):
    """Filter of audit records; None matches anything."""

    user: str | None = None
    tool: str | None = None
    """A name or a glob."""
    outcome: str | None = None
    act: str | None = None
    session: str | None = None
    call_id: str | None = None
    parent: str | None = None
    since: float | None = None
    until: float | None = None
    """Exclusive upper bound."""
    before: int | None = None
    """Exclusive upper bound of the sequence number."""


class Verification(Value):
    """Result of verifying the hash chain."""

    ok: bool
    count: int
    first: int
    """Sequence number of the first record; 0 if the log is empty."""
    last: int
    head: str
    """Hash of the last record; store `last:head` elsewhere to detect restored old copies."""
    problems: tuple[str, ...] = ()
    """The first problems found, one sentence each."""
