"""Store of calls: claims, results, tasks and outputs in one database.

A call is claimed under a lease; the claim's token is required to renew, finish or release it. An
expired lease does not end the claim, but lets another process take it over; until then a late
owner may still finish. Every key includes the caller's identity. Methods block and are
thread-safe; all raise StoreError when the database fails. `execution` decides who waits.

`archive`, `sessions`, `keys`, `buckets`, `tool_settings` and `approvals` share the database.
"""

import os
import secrets
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    Double,
    Integer,
    String,
    and_,
    bindparam,
    case,
    exists,
    insert,
    or_,
    select,
    update,
)

from toolkiln.model.call import (
    KEEP_SECONDS,
    Busy,
    Call,
    Claim,
    Claimed,
    Done,
    IdConflict,
    Lease,
    OutputPage,
    Result,
    Task,
)
from toolkiln.model.identity import Caller
from toolkiln.store.approvals import SqlApprovals, is_pending
from toolkiln.store.codec import (
    check_page_bounds,
    key_of,
    output_not_found,
    read_result,
    scope_of,
    write_result,
)
from toolkiln.store.database import Database, Pruner, open_database
from toolkiln.store.security_stores import SqlApiKeys, SqlBuckets, SqlSessions, SqlToolSettings
from toolkiln.store.tables import AnyText, approvals, calls, chunks, outputs
from toolkiln.store.version_archive import VersionArchive

CHUNK = 65_536
"""Characters of an output in one row."""

_KEY = bindparam("the_key", type_=String)
_TOKEN = bindparam("the_token", type_=String)
_SCOPE = bindparam("the_scope", type_=String)
_HANDLE = bindparam("the_handle", type_=String)
_SECONDS = bindparam("seconds", type_=Double)
_LOST_SECONDS = bindparam("lost_seconds", type_=Double)
"""How long a call with an expired lease is kept."""


class Statements:
    """Statements for one database."""

    def __init__(self, database: Database) -> None:
        now = database.now
        is_held = and_(calls.c.key == _KEY, calls.c.token == _TOKEN, calls.c.result.is_(None))
        is_running = and_(calls.c.key == _KEY, calls.c.result.is_(None), calls.c.leased_until > now)
        lease = {"leased_until": now + _SECONDS, "kept_until": now + _SECONDS + _LOST_SECONDS}

        add = database.insert(calls).values(
            started=now, attempt=1, cancel=False, progress="", result=None, **lease
        )
        is_lost = and_(calls.c.result.is_(None), calls.c.leased_until <= now)
        is_expired = calls.c.kept_until <= now
        is_free = or_(is_expired, calls.c.token == "")
        new_values = {c.name: add.excluded[c.name] for c in calls.c if not c.primary_key}
        attempt = case((is_free, 1), else_=calls.c.attempt + 1)
        is_same = calls.c.fingerprint == add.excluded.fingerprint
        self.claim = add.on_conflict_do_update(
            index_elements=[calls.c.key],
            set_={**new_values, "attempt": attempt},
            where=or_(is_free, and_(is_lost, is_same)),
        ).returning(calls.c.attempt)
        self.claimed = select(
            calls.c.fingerprint,
            calls.c.owner,
            calls.c.result,
            (calls.c.leased_until - now).label("remaining"),
        ).where(calls.c.key == _KEY)
        self.renew = update(calls).where(is_held).values(lease).returning(calls.c.cancel)
        end = {"result": bindparam("the_result"), "kept_until": now + _SECONDS}
        self.finish = update(calls).where(is_held).values(end)
        self.release = update(calls).where(is_held).values(**end, token="")
        self.set_progress = (
            update(calls).where(is_held).values(progress=bindparam("text", type_=AnyText))
        )
        self.cancel = update(calls).where(is_running).values(cancel=True)

        has_pending_approval = exists().where(approvals.c.call_key == calls.c.key, is_pending(now))
        state = case(
            (calls.c.result.is_not(None), "done"),
            (and_(calls.c.leased_until > now, has_pending_approval), "pending"),
            (calls.c.leased_until > now, "running"),
            else_="lost",
        ).label("state")
        columns = calls.c.call_id, calls.c.tool, calls.c.progress, calls.c.started, state
        rows = select(*columns).where(calls.c.kept_until > now)
        self.task = rows.add_columns(calls.c.result).where(calls.c.key == _KEY)
        self.tasks = (
            rows.where(calls.c.scope == _SCOPE)
            .order_by(calls.c.started.desc(), calls.c.key)
            .limit(bindparam("at_most", type_=Integer))
        )

        self.save_output = insert(outputs).values(kept_until=now + _SECONDS)
        self.keep_chunks = insert(chunks)
        self.output = select(outputs.c.total).where(
            outputs.c.handle == _HANDLE, outputs.c.scope == _SCOPE, outputs.c.kept_until > now
        )
        self.chunks = (
            select(chunks.c.text)
            .where(
                chunks.c.handle == _HANDLE,
                chunks.c.number >= bindparam("first", type_=Integer),
                chunks.c.number <= bindparam("last", type_=Integer),
            )
            .order_by(chunks.c.number)
        )


_PROGRESS_CHARACTERS = 2_000
_MAX_TASKS = 1_000


def open_store(
    url_or_path: str | os.PathLike[str], *, clock: Callable[[], float] | None = None
) -> "Store":
    """Open the store in an SQLite file or behind a `postgresql://` URL; create it if missing.

    `clock` replaces the store's time.

    Raises:
        StoreError: the database cannot be opened, written or has an unknown schema.
    """
    return Store(open_database(url_or_path, clock))


class Store:
    """Calls of one database, with the other stores that share it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.archive = VersionArchive(database)
        self._pruner = Pruner(database)
        self._statements = Statements(database)
        self.sessions = SqlSessions(database, self._pruner)
        self.keys = SqlApiKeys(database)
        self.buckets = SqlBuckets(database, self._pruner)
        self.tool_settings = SqlToolSettings(database)
        self.approvals = SqlApprovals(database, self._pruner)

    def claim(
        self, call: Call, *, caller: Caller, fingerprint: str, owner: str, lease_seconds: float
    ) -> Claim:
        """Claim a call; of several concurrent claims of one id, one gets `Claimed`.

        `fingerprint` identifies equal calls; `owner` is shown to callers that have to wait.
        """
        self._pruner.when_due()
        key, token = key_of(caller, call.id), uuid4().hex
        values = {
            "key": key,
            "scope": scope_of(caller),
            "call_id": call.id,
            "tool": call.tool,
            "fingerprint": fingerprint,
            "owner": owner,
            "token": token,
            "seconds": lease_seconds,
            "lost_seconds": KEEP_SECONDS,
            **self._database.values(),
        }
        with self._database.transaction() as connection:
            attempt = connection.scalar(self._statements.claim, values)
            if attempt is not None:
                return Claimed(key=key, token=token, attempt=attempt)
            # The refused insert has locked the row, also on PostgreSQL, so it still exists.
            parameters = self._database.values(the_key=key)
            row = connection.execute(self._statements.claimed, parameters).one()
        if row.fingerprint != fingerprint:
            return IdConflict()
        if row.result is not None:
            return Done(result=read_result(row.result))
        return Busy(owner=row.owner, remaining=max(0.0, row.remaining))

    def renew(self, claim: Claimed, lease_seconds: float) -> Lease:
        """Extend the lease from now; returns whether to continue, cancel or stop as lost."""
        lease = self._database.values(seconds=lease_seconds, lost_seconds=KEEP_SECONDS)
        with self._database.transaction() as connection:
            cancel = connection.scalar(self._statements.renew, {**_token(claim), **lease})
        if cancel is None:
            return Lease.LOST
        return Lease.CANCEL if cancel else Lease.HELD

    def finish(self, claim: Claimed, result: Result, keep_seconds: float = KEEP_SECONDS) -> bool:
        """Store the result. Only the first result of the current owner counts.

        False if the call already ended, was released or taken over; `task` and `claim` say which.
        """
        return self._end(self._statements.finish, claim, result, keep_seconds)

    def release(self, claim: Claimed, result: Result) -> bool:
        """Store the result and free the id, because nothing ran.

        The result stays readable until the id is claimed again. False if the claim was lost.
        """
        return self._end(self._statements.release, claim, result, KEEP_SECONDS)

    def set_progress(self, claim: Claimed, text: str) -> bool:
        """Store the tool's latest progress report, cut to 2,000 characters."""
        parameters = {**_token(claim), "text": text[:_PROGRESS_CHARACTERS]}
        return self._database.change(self._statements.set_progress, **parameters) > 0

    def request_cancel(self, caller: Caller, call_id: str) -> bool:
        """Ask the owner of a running call to cancel it; False if it is not running."""
        key = key_of(caller, call_id)
        return self._database.change(self._statements.cancel, the_key=key) > 0

    def task(self, caller: Caller, call_id: str) -> Task | None:
        """Return the state of a call of this caller; None if it is unknown or expired."""
        row = self._database.read_one(self._statements.task, the_key=key_of(caller, call_id))
        if row is None:
            return None
        return _task(row, None if row.result is None else read_result(row.result))

    def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """Return the caller's calls without results, newest first, at most 1,000."""
        limit = max(0, min(limit, _MAX_TASKS))
        rows = self._database.read(
            self._statements.tasks, the_scope=scope_of(caller), at_most=limit
        )
        return [_task(row, None) for row in rows]

    def save_output(self, caller: Caller, text: str, keep_seconds: float = KEEP_SECONDS) -> str:
        """Store a text for paging; returns an unguessable handle, valid for this caller.

        The caller's oldest outputs beyond `OUTPUT_CHARACTERS` are removed.
        """
        handle = secrets.token_hex(16)
        scope = scope_of(caller)
        row = {"handle": handle, "scope": scope, "total": len(text)}
        chunks = [
            {"handle": handle, "number": start // CHUNK, "text": text[start : start + CHUNK]}
            for start in range(0, len(text), CHUNK)
        ]
        with self._database.transaction() as connection:
            values = self._database.values(**row, seconds=keep_seconds)
            connection.execute(self._statements.save_output, values)
            if chunks:
                connection.execute(self._statements.keep_chunks, chunks)
            self._pruner.prune_outputs(connection, scope, handle)
        return handle

    def read_output(self, caller: Caller, handle: str, offset: int, limit: int) -> OutputPage:
        """Return a page of an output; an offset beyond the end gives an empty page.

        Raises:
            NotFound: the handle is unknown, expired or another caller's.
            InputError: no page has these bounds.
        """
        check_page_bounds(offset, limit)
        # Handles are hexadecimal; a model may send a NUL, on which PostgreSQL fails.
        by_handle = {"the_handle": handle if handle.isalnum() and handle.isascii() else ""}
        parameters = self._database.values(**by_handle, the_scope=scope_of(caller))
        with self._database.transaction(reading=True) as connection:
            total = connection.scalar(self._statements.output, parameters)
            if total is None:
                raise output_not_found()
            start = min(offset, total)
            end = min(start + limit, total)
            first = start // CHUNK
            span = {**by_handle, "first": first, "last": (end - 1) // CHUNK}
            text = "".join(connection.scalars(self._statements.chunks, span))
        text = text[start - first * CHUNK : end - first * CHUNK]
        if len(text) != end - start:
            raise output_not_found()  # it expired and was pruned between the two statements
        next_offset = end if end < total else None
        return OutputPage(text=text, offset=start, total=total, next_offset=next_offset)

    def prune(self) -> None:
        """Remove a batch of expired rows; adding rows does so once a minute."""
        self._pruner.prune()

    def close(self) -> None:
        """Close the connections."""
        self._database.engine.dispose()

    def _end(self, statement: Any, claim: Claimed, result: Result, keep_seconds: float) -> bool:
        values = {**_token(claim), "the_result": write_result(result), "seconds": keep_seconds}
        return self._database.change(statement, **values) > 0


def _token(claim: Claimed) -> dict[str, str]:
    return {"the_key": claim.key, "the_token": claim.token}


def _task(row: Any, result: Result | None) -> Task:
    return Task(
        id=row.call_id,
        tool=row.tool,
        state=row.state,
        progress=row.progress,
        result=result,
        started=row.started,
    )
