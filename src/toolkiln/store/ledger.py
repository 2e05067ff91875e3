"""The audit's ledger: records that are appended, chained, verified, read and, when old, pruned.

Nothing is ever changed in it. `chain` says how records hang together and what tampering
looks like, `transactions` where they are kept. What is recorded, and when, is decided by
`execution.audit`; texts come from there as single printable lines.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from math import isfinite
from types import NoneType
from typing import Any

from toolkiln.model import AuditEntry, AuditRecord
from toolkiln.store.chain import PRUNE, START, Chain, Row, Walk, pruned_detail, vouched_for
from toolkiln.store.errors import StoreError
from toolkiln.store.files import file_path
from toolkiln.store.transactions import PostgresServer, Setup, SqliteFile, Transactions
from toolkiln.store.values import AuditFilter, Verification

_NUMBERS = {"at": "DOUBLE PRECISION NOT NULL", "duration": "DOUBLE PRECISION"}
_FIELDS = ", ".join(f'"{name}"' for name in AuditRecord._fields)  # quoted: `user` is SQL
_TYPED = ", ".join(
    f'"{name}" {_NUMBERS.get(name, "TEXT NOT NULL")}' for name in AuditRecord._fields
)
_COLUMNS = f"seq, {_FIELDS}, hash"
_HEAD = "SELECT seq, hash, key_id, seal FROM toolkiln_audit_head"
_ROWS = f"SELECT {_COLUMNS} FROM toolkiln_audit"  # noqa: S608  # all of it is written here
_MARKS = ", ".join("?" * len(_COLUMNS.split(",")))
_INSERT = f"INSERT INTO toolkiln_audit ({_COLUMNS}) VALUES ({_MARKS})"  # noqa: S608
_EXACT = ("user", "outcome", "act", "session", "call_id", "parent")
_PAGE = 500
_PRUNED_AT_ONCE = 20_000  # so that writers never wait long


def open_ledger(
    url_or_path: str | os.PathLike[str],
    key: bytes,
    *,
    clock: Callable[[], float] | None = None,
) -> "Ledger":
    """The ledger in an SQLite file or behind a `postgresql://` URL, begun on first use.

    `clock` replaces the host's time.

    Raises:
        StoreError: the database cannot be reached, created, written or understood.
    """
    text, chain = os.fspath(url_or_path), Chain(key)
    path = file_path(text)
    place: Transactions
    if path is None:
        place = PostgresServer(text, "toolkiln_audit_head", _setup(chain, "BIGINT"))
    else:
        place = SqliteFile(path, _setup(chain, "INTEGER"))
    return Ledger(place, chain, clock or time.time)


def _setup(chain: Chain, integer: str) -> Setup:
    seq, link = START
    record = f"seq {integer} PRIMARY KEY, {_TYPED}, hash TEXT NOT NULL"
    head = f"seq {integer} NOT NULL, hash TEXT NOT NULL, key_id TEXT NOT NULL, seal TEXT NOT NULL"
    return [
        (f"CREATE TABLE toolkiln_audit ({record})", ()),
        ("CREATE INDEX toolkiln_audit_at ON toolkiln_audit (at)", ()),
        (f"CREATE TABLE toolkiln_audit_head ({head})", ()),
        (
            "INSERT INTO toolkiln_audit_head (seq, hash, key_id, seal) VALUES (?, ?, ?, ?)",
            (seq, link, chain.key_id, chain.seal(seq, link)),
        ),
    ]


class Ledger:
    """Append-only; thread-safe; any number of processes may use one at once."""

    def __init__(self, place: Transactions, chain: Chain, clock: Callable[[], float]) -> None:
        self._place = place
        self._chain = chain
        self._clock = clock
        self._insert = place.sql(_INSERT)

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Adds records at the end of the chain: all of them, or none.

        To append nothing tells whether something could be appended.

        Raises:
            StoreError: they could not be written, or the ledger was begun with another key.
        """
        with self._place.writing() as connection:
            head = self._head(connection)
            if records:
                self._extend(connection, head, records)

    def verify(self, expected: tuple[int, str] | None = None) -> Verification:
        """Walks along the whole chain; `expected` is a head that was noted earlier.

        Raises:
            StoreError: the database failed, or is too damaged to be read.
        """
        with self._place.reading() as connection:
            walk = Walk(self._chain, self._vouched(connection), expected)
            for row in self._place.rows(connection, f"{_ROWS} ORDER BY seq"):
                walk.row(row)
            walk.end(connection.execute(_HEAD).fetchall())
        return walk.verification()

    def entries(
        self, wanted: AuditFilter, limit: int | None = None, *, newest_first: bool = True
    ) -> Iterator[AuditEntry]:
        """The records that fit, of those that are there when the first is asked for.

        Raises:
            StoreError: the database failed, or a row is not as a ledger writes it.
        """
        times = {"at >= ?": wanted.since, "at < ?": wanted.until}
        exact = {f'"{name}" = ?': getattr(wanted, name) for name in _EXACT}
        glob = wanted.tool if wanted.tool and set(wanted.tool) & set("*?[") else None
        if glob is None:
            exact["tool = ?"] = wanted.tool
        low, high = self._span(times)
        if wanted.before is not None:
            high = min(high, wanted.before - 1)
        # With a plus no index on the time is used: rows are to come in their order.
        given = {f"+{sql}": time for sql, time in times.items()} | exact
        given = {sql: value for sql, value in given.items() if value is not None}
        where = " AND ".join(["seq BETWEEN ? AND ?", *given])
        order = "DESC" if newest_first else "ASC"
        statement = self._place.sql(f"{_ROWS} WHERE {where} ORDER BY seq {order} LIMIT {_PAGE}")
        left = limit
        # Page by page: between two of them nothing is held, however slow the reader is.
        while low <= high:
            with self._place.reading() as connection:
                rows = connection.execute(statement, (low, high, *given.values())).fetchall()
            for entry in map(self._entry, rows):
                if glob is None or fnmatchcase(entry.record.tool, glob):
                    if left is not None and (left := left - 1) < 0:
                        return
                    yield entry
            if len(rows) < _PAGE:
                return
            if newest_first:
                high = rows[-1][0] - 1
            else:
                low = rows[-1][0] + 1

    def prune(self, before: float, by: str) -> int:
        """Removes the oldest records, up to the first that is not `before`; says how many.

        The newest stays in any case. Each removal leaves a record behind which vouches for it.

        Raises:
            StoreError: the database failed, or the rows in question were tampered with.
        """
        _, newest = self._span({})
        removed = 0
        while some := self._prune_some(before, by, newest):
            removed += some
        return removed

    def close(self) -> None:
        """Lets go of the database."""
        self._place.close()

    def _head(self, connection: Any) -> tuple[int, str]:
        """Where the chain ends; whoever reads it here is the only writer until they are done."""
        heads = connection.execute(_HEAD + self._place.locking).fetchall()
        if len(heads) == 1:
            seq, link, key_id, seal = heads[0]
            if key_id != self._chain.key_id:
                hint = "set audit_key to the key that it was begun with, or move the log away"
                raise StoreError(f"{self._place.name} is sealed with another key", hint=hint)
            # Going on from a head that somebody edited would seal what they did.
            if seal == self._chain.seal(seq, link):
                return seq, link
        hint = "look into it with `toolkiln audit verify`; move it away to begin another"
        raise StoreError(f"{self._place.name} was tampered with: its head is wrong", hint=hint)

    def _extend(
        self, connection: Any, head: tuple[int, str], records: Sequence[AuditRecord]
    ) -> None:
        seq, link = head
        rows = []
        try:
            for record in records:
                # Plus zero: as both databases give them back, never -0.0 or an int.
                at, duration = record.at + 0.0, record.duration
                duration = None if duration is None else duration + 0.0
                if not (isfinite(at) and (duration is None or isfinite(duration))):
                    raise ValueError("a time is not finite")
                seq += 1
                fields = (at, *record[1:-2], duration, record.arguments)
                link = self._chain.link(link, seq, fields)
                rows.append((seq, *fields, link))
            connection.cursor().executemany(self._insert, rows)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"{self._place.name} cannot keep a record: {error}"
            raise StoreError(what, hint="please report this") from None
        connection.execute(
            self._place.sql("UPDATE toolkiln_audit_head SET seq = ?, hash = ?, seal = ?"),
            (seq, link, self._chain.seal(seq, link)),
        )

    def _vouched(self, connection: Any) -> tuple[int, str] | None:
        """The last row that was pruned; the record that says so is verified like any other."""
        # Only what was done: anybody can leave a record of having been denied it.
        done = "SELECT detail FROM toolkiln_audit WHERE act = ? AND outcome = 'ok'"
        statement = self._place.sql(f"{done} ORDER BY seq DESC LIMIT 1")
        newest = connection.execute(statement, (PRUNE,)).fetchone()
        return vouched_for(newest[0]) if newest else None

    def _span(self, times: dict[str, float | None]) -> tuple[int, int]:
        """The first and the last row of a period."""
        given = {sql: value for sql, value in times.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        end = f"FROM toolkiln_audit {where}"
        statement = self._place.sql(f"SELECT (SELECT min(seq) {end}), (SELECT max(seq) {end})")
        with self._place.reading() as connection:
            first, last = connection.execute(statement, (*given.values(),) * 2).fetchone()
        return (first, last) if first is not None else (0, -1)

    def _entry(self, row: Row) -> AuditEntry:
        seq, *fields, link = row
        record = AuditRecord(*fields)
        texts = (*record[1:-2], record.arguments, link)
        numbers = (record.at, record.duration)
        if all(type(text) is str for text in texts):
            if all(type(number) in {float, NoneType} for number in numbers):
                return AuditEntry(seq, record, link)
        hint = "look into it with `toolkiln audit verify`"
        raise StoreError(f"{self._place.name} was tampered with: see row {seq}", hint=hint)

    def _prune_some(self, before: float, by: str, newest: int) -> int:
        with self._place.writing() as connection:
            head = self._head(connection)
            ends = "SELECT min(seq), (SELECT min(seq) FROM toolkiln_audit WHERE at >= ?)"
            ends = self._place.sql(f"{ends} FROM toolkiln_audit")
            oldest, kept = connection.execute(ends, (before,)).fetchone()
            if oldest is None:
                return 0
            end = min(newest, newest if kept is None else kept, oldest + _PRUNED_AT_ONCE)
            walk = Walk(self._chain, self._vouched(connection))
            statement = f"{_ROWS} WHERE seq < ? ORDER BY seq"
            for row in self._place.rows(connection, statement, end):
                walk.row(row)
            found = walk.verification()
            if not found.ok:  # a time that was edited must not get rid of a recent record
                hint = "look into it with `toolkiln audit verify`"
                what = f"{self._place.name} was tampered with, and is not pruned"
                raise StoreError(f"{what}: {found.problems[0]}", hint=hint)
            if found.count:
                delete = self._place.sql("DELETE FROM toolkiln_audit WHERE seq <= ?")
                connection.execute(delete, (found.last,))
                detail = pruned_detail(found.last, found.head)
                record = AuditRecord(self._clock(), PRUNE, "ok", user=by, detail=detail)
                self._extend(connection, head, [record])
            return found.count
