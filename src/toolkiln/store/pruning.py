"""Removes what is no longer kept, a bounded part at a time, so that nobody waits for it.

What expired counts as gone before it is removed: every reader sees to that itself.
"""

import threading
import time
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    Table,
    bindparam,
    delete,
    func,
    select,
)

from toolkiln.store.clock import StoreClock
from toolkiln.store.database import Database
from toolkiln.store.schema import approvals, buckets, calls, chunks, outputs, sessions
from toolkiln.store.values import OUTPUT_CHARACTERS

# So much at once that pruning keeps up, so little that nobody waits for it.
_ROWS = 500
_OUTPUTS = 20
_SECONDS = 60.0

_HANDLES = bindparam("the_handles", type_=String, expanding=True)


class Pruner:
    """One for each store; whoever adds rows asks it to work when that is due."""

    def __init__(self, database: Database, clock: StoreClock) -> None:
        self._database = database
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()
        self._rows = []
        for table in (calls, sessions, buckets, approvals):
            (key,) = table.primary_key
            self._rows.append(delete(table).where(key.in_(_expired(table, clock.now, _ROWS))))
        self._old_outputs = _expired(outputs, clock.now, _OUTPUTS)
        self._surplus_outputs = _surplus(clock.now)
        self._chunks = delete(chunks).where(chunks.c.handle.in_(_HANDLES))
        self._outputs = delete(outputs).where(outputs.c.handle.in_(_HANDLES))

    def when_due(self) -> None:
        """Prunes once a minute. To be asked before work is done: it may fail."""
        with self._lock:
            due = time.monotonic() >= self._next
            if due:
                self._next = time.monotonic() + _SECONDS
        if due:
            self.prune()

    def prune(self) -> None:
        """Removes some of what is no longer kept; a long backlog takes several goes."""
        with self._database.transaction() as connection:
            now = self._clock.values()
            for statement in self._rows:
                connection.execute(statement, now)
            self._remove_outputs(connection, self._old_outputs, now)

    def prune_outputs(self, connection: Connection, scope: str, newest: str) -> None:
        """Remove a caller's oldest outputs beyond what is kept for one; never the newest."""
        which = {"the_scope": scope, "the_newest": newest, **self._clock.values()}
        self._remove_outputs(connection, self._surplus_outputs, which)

    def _remove_outputs(
        self, connection: Connection, chosen: Select[Any], which: dict[str, Any]
    ) -> None:
        handles = connection.scalars(chosen, which).all()
        if handles:
            connection.execute(self._chunks, {"the_handles": handles})
            connection.execute(self._outputs, {"the_handles": handles})


def _expired(table: Table, now: ColumnElement[float], at_most: int) -> Select[Any]:
    (key,) = table.primary_key
    # Skipping what another process is pruning: two of them must not wait for each other.
    chosen = select(key).where(table.c.kept_until <= now).limit(at_most)
    return chosen.with_for_update(skip_locked=True)


def _surplus(now: ColumnElement[float]) -> Select[Any]:
    row = outputs.c
    sums = func.sum(row.total).over(order_by=(row.kept_until.desc(), row.handle))
    own = select(row.handle, sums.label("sum"))
    own = own.where(row.scope == bindparam("the_scope", type_=String), row.kept_until > now)
    kept = own.subquery()
    surplus = select(kept.c.handle).where(kept.c.sum > OUTPUT_CHARACTERS)
    newest = bindparam("the_newest", type_=String)
    chosen = select(row.handle).where(row.handle.in_(surplus), row.handle != newest).limit(_ROWS)
    return chosen.with_for_update(skip_locked=True)
