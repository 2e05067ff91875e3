"""The store: claims, results, tasks and kept outputs over one database.

A call is claimed under a lease; whoever holds the claim's token may renew, finish or
release it. A lease that ran out does not end a claim by itself, it only lets the next
claimant take over: a late owner that nobody replaced may still finish. The caller's
identity is part of every key. Methods block and are thread-safe; all raise StoreError
when the database fails. Who waits for what, and when, is `execution`'s business.

`archive`, `sessions`, `keys`, `buckets`, `tool_settings` and `approvals` keep the rest in
the same database.
"""

import os
import secrets
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from toolkiln.model import Call, Caller, Result, Task
from toolkiln.store.approvals import Approvals
from toolkiln.store.archive import Archive
from toolkiln.store.buckets import Buckets
from toolkiln.store.clock import StoreClock
from toolkiln.store.database import Database, open_database
from toolkiln.store.guarding import Keys, Sessions
from toolkiln.store.pages import no_output, page_bounds
from toolkiln.store.pruning import Pruner
from toolkiln.store.records import key_of, read_result, scope_of, write_result
from toolkiln.store.settings import ToolSettings
from toolkiln.store.statements import CHUNK, Statements
from toolkiln.store.values import (
    KEEP_SECONDS,
    Busy,
    Claim,
    Claimed,
    Conflict,
    Done,
    Lease,
    OutputPage,
)

_PROGRESS_CHARACTERS = 2_000
_MOST_TASKS = 1_000


def open_store(
    url_or_path: str | os.PathLike[str], *, clock: Callable[[], float] | None = None
) -> "Store":
    """The store in an SQLite file or behind a `postgresql://` URL, created on first use.

    `clock` replaces the store's own time.

    Raises:
        StoreError: the database cannot be reached, created, written or understood.
    """
    return Store(open_database(url_or_path), clock)


class Store:
    """Durable state of the gateway, and in `archive` of catalogs."""

    def __init__(self, database: Database, clock: Callable[[], float] | None) -> None:
        self._database = database
        self.archive = Archive(database)
        """What catalogs keep in the same database."""
        self._clock = StoreClock(database, clock)
        self._pruner = Pruner(database, self._clock)
        self._statements = Statements(self._clock.now, postgres=database.postgres)
        common = database, self._clock, self._pruner
        self.sessions = Sessions(*common)
        """Who may make calls for a while."""
        self.keys = Keys(database, self._clock)
        """What makes sessions over a network."""
        self.buckets = Buckets(*common)
        """How often things may still happen."""
        self.tool_settings = ToolSettings(database)
        """What operators and users set for tools."""
        self.approvals = Approvals(*common)
        """Calls that wait for a person, and what was said."""

    def claim(
        self, call: Call, *, caller: Caller, fingerprint: str, owner: str, lease_seconds: float
    ) -> Claim:
        """Asks to run a call: of all who ask for one id at once, one is told `Claimed`.

        `fingerprint` stands for all that makes two calls the same; `owner` is shown to those
        who have to wait.
        """
        self._pruner.when_due()
        key, token = key_of(caller, call.id), uuid4().hex
        new = {
            "key": key,
            "scope": scope_of(caller),
            "call_id": call.id,
            "tool": call.tool,
            "fingerprint": fingerprint,
            "owner": owner,
            "token": token,
            "seconds": lease_seconds,
            "lost_seconds": KEEP_SECONDS,
            **self._clock.values(),
        }
        with self._database.transaction() as connection:
            attempt = connection.scalar(self._statements.claim, new)
            if attempt is not None:
                return Claimed(key=key, token=token, attempt=attempt)
            # The refused insert has locked the row, on PostgreSQL too: it is still there.
            known = {"the_key": key, **self._clock.values()}
            row = connection.execute(self._statements.claimed, known).one()
        if row.fingerprint != fingerprint:
            return Conflict()
        if row.result is not None:
            return Done(result=read_result(row.result))
        return Busy(owner=row.owner, remaining=max(0.0, row.remaining))

    def renew(self, claim: Claimed, lease_seconds: float) -> Lease:
        """Extends the lease from now on; says whether to go on, to stop, or that it is lost."""
        lease = {"seconds": lease_seconds, "lost_seconds": KEEP_SECONDS, **self._clock.values()}
        with self._database.transaction() as connection:
            cancel = connection.scalar(self._statements.renew, {**_held(claim), **lease})
        if cancel is None:
            return Lease.LOST
        return Lease.CANCEL if cancel else Lease.HELD

    def finish(self, claim: Claimed, result: Result, keep_seconds: float = KEEP_SECONDS) -> bool:
        """Records how the call ended. Only the first result of the current owner counts.

        False: it ended before, was released, or another took over; `task` and `claim` tell.
        """
        return self._ended(self._statements.finish, claim, result, keep_seconds)

    def release(self, claim: Claimed, result: Result) -> bool:
        """Records how the call ended and gives the id free again, since nothing ran.

        The result is there for those who were told the id, until somebody claims it anew.
        False if the claim was lost.
        """
        return self._ended(self._statements.release, claim, result, KEEP_SECONDS)

    def set_progress(self, claim: Claimed, text: str) -> bool:
        """Notes the last thing that the tool reported, cut to 2,000 characters."""
        said = {"text": text[:_PROGRESS_CHARACTERS]}
        return self._changed(self._statements.set_progress, {**_held(claim), **said})

    def request_cancel(self, caller: Caller, call_id: str) -> bool:
        """Asks the owner of a running call to stop it; False if it is not running."""
        which = {"the_key": key_of(caller, call_id), **self._clock.values()}
        return self._changed(self._statements.cancel, which)

    def task(self, caller: Caller, call_id: str) -> Task | None:
        """What became of a call of this caller; None if there is none, or none any more."""
        which = {"the_key": key_of(caller, call_id), **self._clock.values()}
        with self._database.transaction(reading=True) as connection:
            row = connection.execute(self._statements.task, which).one_or_none()
        if row is None:
            return None
        return _task(row, None if row.result is None else read_result(row.result))

    def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """The caller's calls, the newest first, without their results; at most 1,000."""
        at_most = max(0, min(limit, _MOST_TASKS))
        which = {"the_scope": scope_of(caller), "at_most": at_most, **self._clock.values()}
        with self._database.transaction(reading=True) as connection:
            return [_task(row, None) for row in connection.execute(self._statements.tasks, which)]

    def keep_output(self, caller: Caller, text: str, keep_seconds: float = KEEP_SECONDS) -> str:
        """Keeps a text for paging; the handle cannot be guessed and serves this caller only.

        The caller's oldest outputs go when there are more than `OUTPUT_CHARACTERS`.
        """
        handle = secrets.token_hex(16)
        scope = scope_of(caller)
        head = {"handle": handle, "scope": scope, "total": len(text)}
        parts = [
            {"handle": handle, "number": start // CHUNK, "text": text[start : start + CHUNK]}
            for start in range(0, len(text), CHUNK)
        ]
        with self._database.transaction() as connection:
            kept = {**head, "seconds": keep_seconds, **self._clock.values()}
            connection.execute(self._statements.keep_output, kept)
            if parts:
                connection.execute(self._statements.keep_chunks, parts)
            self._pruner.prune_outputs(connection, scope, handle)
        return handle

    def read_output(self, caller: Caller, handle: str, offset: int, limit: int) -> OutputPage:
        """A page of a kept text; an offset behind the end gives an empty one.

        Raises:
            NotFound: the handle is unknown, expired or another caller's.
            InputError: there is no such page.
        """
        page_bounds(offset, limit)
        # A handle is hexadecimal; PostgreSQL would fail on a NUL in what a model sends.
        known = {"the_handle": handle if handle.isalnum() and handle.isascii() else ""}
        mine = {**known, "the_scope": scope_of(caller), **self._clock.values()}
        with self._database.transaction(reading=True) as connection:
            total = connection.scalar(self._statements.output, mine)
            if total is None:
                raise no_output()
            start = min(offset, total)
            end = min(start + limit, total)
            first = start // CHUNK
            span = {**known, "first": first, "last": (end - 1) // CHUNK}
            text = "".join(connection.scalars(self._statements.chunks, span))
        text = text[start - first * CHUNK : end - first * CHUNK]
        if len(text) != end - start:
            raise no_output()  # it expired and was pruned between the two statements
        next_offset = end if end < total else None
        return OutputPage(text=text, offset=start, total=total, next_offset=next_offset)

    def prune(self) -> None:
        """Removes some of what is no longer kept; whoever adds something does so once a minute.

        It is bounded, so a long backlog takes several goes.
        """
        self._pruner.prune()

    def close(self) -> None:
        """Closes the connections."""
        self._database.engine.dispose()

    def _ended(self, statement: Any, claim: Claimed, result: Result, keep_seconds: float) -> bool:
        ended = {
            "the_result": write_result(result),
            "seconds": keep_seconds,
            **self._clock.values(),
        }
        return self._changed(statement, {**_held(claim), **ended})

    def _changed(self, statement: Any, values: dict[str, Any]) -> bool:
        with self._database.transaction() as connection:
            return connection.execute(statement, values).rowcount > 0


def _held(claim: Claimed) -> dict[str, str]:
    return {"the_key": claim.key, "the_token": claim.token}


def _task(row: Any, result: Result | None) -> Task:
    said = {"progress": row.progress, "result": result, "started": row.started}
    return Task(id=row.call_id, tool=row.tool, state=row.state, **said)
