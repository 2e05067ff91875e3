"""Append-only, hash-chained audit log: append, verify, read, prune.

Each record's hash covers the previous one, and the head is sealed with a key, so edits,
insertions and removals are detected. `audit_drivers` has the databases; `security.audit` decides
what is recorded, as single printable lines.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from math import isfinite
from types import NoneType
from typing import Any

from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditFilter, AuditRecord, ChainedRecord, Verification
from toolkiln.store.audit_drivers import PostgresServer, Setup, SqliteFile, Transactions
from toolkiln.store.files import file_path

START = (0, "0" * 64)
"""Sequence number and hash before the first record."""
PRUNE = "audit.prune"
"""The act of a record that documents removed rows."""

Row = Sequence[Any]
"""Sequence number, fields of a record, hash."""

_MAX_PROBLEMS = 20
_LINES = len(AuditRecord._fields) + 2
_REMOVED = re.compile(r"removed up to (\d{1,18}):([0-9a-f]{64})")


class Chain:
    """Keyed hashes of records and heads."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=blake2b(key).digest(), digest_size=32)
        self.key_id = self._sign("key")[:16]
        """Identifies the key without revealing it."""

    def link(self, previous: str, seq: int, fields: Row) -> str:
        """Return the hash of a record that follows `previous`.

        Raises:
            TypeError: a field has the wrong type.
            ValueError: a text contains a line break or a lone surrogate.
        """
        at, duration, arguments = repr(fields[0]), repr(fields[-2]), fields[-1]
        message = "\n".join((previous, str(seq), at, *fields[1:-2], duration, arguments))
        if message.count("\n") != _LINES - 1:  # else two records could have one message
            raise ValueError("a text contains a line break")
        return self._sign(message)

    def seal(self, seq: int, link: str) -> str:
        """Return the seal of a head, which requires the key."""
        return self._sign(f"head\n{self.key_id}\n{seq}\n{link}")

    def _sign(self, message: str) -> str:
        keyed = self._keyed.copy()
        keyed.update(message.encode())
        return keyed.hexdigest()


def pruned_detail(seq: int, link: str) -> str:
    """Return the detail of a prune record: the last removed row."""
    return f"removed up to {seq}:{link}"


def pruned_row(detail: object) -> tuple[int, str] | None:
    """Return the last removed row that a prune record's detail names."""
    found = _REMOVED.fullmatch(detail) if isinstance(detail, str) else None
    return (int(found[1]), found[2]) if found else None


class Walk:
    """Verification of a chain, row by row, that collects problems."""

    def __init__(
        self, chain: Chain, pruned: tuple[int, str] | None, expected: tuple[int, str] | None = None
    ) -> None:
        """`pruned` is the last row removed by pruning; `expected` a row that must exist."""
        self._chain = chain
        self._pruned = pruned
        self._expected = expected or START
        self._found_hash: object = None
        self._at = START
        self._first: int | None = None
        self._count = 0
        self._problems: list[str] = []
        self._omitted = 0

    def _problem(self, text: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(text)
        else:
            self._omitted += 1

    def row(self, row: Row) -> None:
        """Check the next row; after a bad one, continue from its own hash."""
        seq, *fields, link = row
        self._count += 1
        if self._first is None:
            self._first = seq
            if self._pruned and seq == self._pruned[0] + 1:
                self._at = self._pruned
        before, previous = self._at
        if seq == before + 1:
            if not self._follows(previous, seq, fields, link):
                self._problem(f"row {seq} was edited or inserted")
        elif seq <= before:
            self._problem(f"row {seq} is duplicated or precedes the first row")
        else:
            self._missing(before + 1, seq - 1)
        self._at = (seq, link)
        if seq == self._expected[0]:
            self._found_hash = link

    def _follows(self, previous: str, seq: int, fields: Row, link: object) -> bool:
        try:
            return self._chain.link(previous, seq, fields) == link
        except (TypeError, ValueError):  # not a value this code writes
            return False

    def _missing(self, first: int, last: int) -> None:
        span = f"row {first} is" if first == last else f"rows {first} to {last} are"
        self._problem(f"{span} missing")

    def end(self, heads: Sequence[Row]) -> None:
        """Compare with the heads (seq, hash, key id, seal), of which there must be one."""
        self._compare_expected()
        if len(heads) != 1:
            self._problem("the head is missing" if not heads else "there are several heads")
            return
        seq, link, key_id, seal = heads[0]
        last, last_link = self._at
        if key_id != self._chain.key_id:
            self._problem("the head was edited or sealed with another key: check audit_key")
        elif seal != self._chain.seal(seq, link):
            self._problem("the head was edited")
        elif last < seq:
            self._missing(last + 1, seq)
        elif (last, last_link) != (seq, link):
            self._problem(f"the chain does not end at row {seq} as its head states")

    def _compare_expected(self) -> None:
        (seq, link), last = self._expected, self._at[0]
        if seq > last:
            why = "newer rows were removed, or an older copy was restored"
            self._problem(f"the log ends at row {last}, before the expected row {seq}: {why}")
        elif self._found_hash is not None:
            if self._found_hash != link:
                self._problem(f"row {seq} differs from the expected one")
        elif self._pruned and seq == self._pruned[0] and link != self._pruned[1]:
            self._problem(f"row {seq}, which was pruned, differs from the expected one")

    def verification(self) -> Verification:
        """Return the findings."""
        further = [f"and {self._omitted} further problems"] if self._omitted else []
        last, link = self._at
        return Verification(
            ok=not self._problems,
            count=self._count,
            first=self._first or 0,
            last=last,
            head=link if isinstance(link, str) else "",
            problems=(*self._problems, *further),
        )


_NUMBERS = {"at": "DOUBLE PRECISION NOT NULL", "duration": "DOUBLE PRECISION"}
_FIELDS = ", ".join(f'"{name}"' for name in AuditRecord._fields)  # quoted: `user` is SQL
_TYPED = ", ".join(
    f'"{name}" {_NUMBERS.get(name, "TEXT NOT NULL")}' for name in AuditRecord._fields
)
_COLUMNS = f"seq, {_FIELDS}, hash"
_HEAD = "SELECT seq, hash, key_id, seal FROM toolkiln_audit_head"
_ROWS = f"SELECT {_COLUMNS} FROM toolkiln_audit"  # noqa: S608  # constants only
_PLACEHOLDERS = ", ".join("?" * len(_COLUMNS.split(",")))
_INSERT = f"INSERT INTO toolkiln_audit ({_COLUMNS}) VALUES ({_PLACEHOLDERS})"  # noqa: S608
_EXACT = ("user", "outcome", "act", "session", "call_id", "parent")
_PAGE = 500
_PRUNE_BATCH = 20_000  # bounds how long other writers wait


def open_audit_log(
    url_or_path: str | os.PathLike[str],
    key: bytes,
    *,
    clock: Callable[[], float] | None = None,
) -> "AuditLog":
    """Open the log in an SQLite file or behind a `postgresql://` URL; create it if missing.

    `clock` replaces the host's time.

    Raises:
        StoreError: the database cannot be opened or is not an audit log.
    """
    text, chain = os.fspath(url_or_path), Chain(key)
    path = file_path(text)
    database: Transactions
    if path is None:
        database = PostgresServer(text, "toolkiln_audit_head", _setup(chain, "BIGINT"))
    else:
        database = SqliteFile(path, _setup(chain, "INTEGER"))
    return AuditLog(database, chain, clock or time.time)


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


class AuditLog:
    """Audit log in one database. Thread-safe; any number of processes may share it."""

    def __init__(self, database: Transactions, chain: Chain, clock: Callable[[], float]) -> None:
        self._database = database
        self._chain = chain
        self._clock = clock
        self._insert = database.sql(_INSERT)

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Append records, all or none; an empty list checks that appending would work."""
        with self._database.writing() as connection:
            head = self._head(connection)
            if records:
                self._extend(connection, head, records)

    def verify(self, expected: tuple[int, str] | None = None) -> Verification:
        """Verify the whole chain; `expected` is a head noted earlier."""
        with self._database.reading() as connection:
            walk = Walk(self._chain, self._pruned(connection), expected)
            for row in self._database.rows(connection, f"{_ROWS} ORDER BY seq"):
                walk.row(row)
            walk.end(connection.execute(_HEAD).fetchall())
        return walk.verification()

    def entries(
        self, query: AuditFilter, limit: int | None = None, *, newest_first: bool = True
    ) -> Iterator[ChainedRecord]:
        """Iterate over matching records, as of the first read."""
        times = {"at >= ?": query.since, "at < ?": query.until}
        exact = {f'"{name}" = ?': getattr(query, name) for name in _EXACT}
        glob = query.tool if query.tool and set(query.tool) & set("*?[") else None
        if glob is None:
            exact["tool = ?"] = query.tool
        low, high = self._span(times)
        if query.before is not None:
            high = min(high, query.before - 1)
        # The plus disables the index on the time: rows must come in sequence order.
        conditions = {f"+{sql}": time for sql, time in times.items()} | exact
        conditions = {sql: value for sql, value in conditions.items() if value is not None}
        where = " AND ".join(["seq BETWEEN ? AND ?", *conditions])
        order = "DESC" if newest_first else "ASC"
        statement = self._database.sql(f"{_ROWS} WHERE {where} ORDER BY seq {order} LIMIT {_PAGE}")
        remaining = limit
        # Page by page, so that a slow reader does not keep a transaction open.
        while low <= high:
            with self._database.reading() as connection:
                rows = connection.execute(statement, (low, high, *conditions.values())).fetchall()
            for entry in map(self._entry, rows):
                if glob is None or fnmatchcase(entry.record.tool, glob):
                    if remaining is not None and (remaining := remaining - 1) < 0:
                        return
                    yield entry
            if len(rows) < _PAGE:
                return
            if newest_first:
                high = rows[-1][0] - 1
            else:
                low = rows[-1][0] + 1

    def prune(self, before: float, by: str) -> int:
        """Remove the records before a time and return their number.

        The newest record always stays. Each removal appends a record of the last removed row.
        """
        _, newest = self._span({})
        removed = 0
        while count := self._prune_batch(before, by, newest):
            removed += count
        return removed

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _head(self, connection: Any) -> tuple[int, str]:
        """Return the end of the chain, locked until the transaction ends."""
        heads = connection.execute(_HEAD + self._database.locking).fetchall()
        if len(heads) == 1:
            seq, link, key_id, seal = heads[0]
            if key_id != self._chain.key_id:
                hint = "set audit_key to the key it was created with, or move the log away"
                raise StoreError(f"{self._database.name} is sealed with another key", hint=hint)
            # Continuing from an edited head would seal the edit.
            if seal == self._chain.seal(seq, link):
                return seq, link
        hint = "run `toolkiln audit verify`; move the log away to start another"
        raise StoreError(f"{self._database.name} was tampered with: its head is wrong", hint=hint)

    def _extend(
        self, connection: Any, head: tuple[int, str], records: Sequence[AuditRecord]
    ) -> None:
        seq, link = head
        rows = []
        try:
            for record in records:
                # Plus zero: both databases return floats, and never -0.0.
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
            what = f"{self._database.name} cannot store a record: {error}"
            raise StoreError(what, hint="please report this") from None
        connection.execute(
            self._database.sql("UPDATE toolkiln_audit_head SET seq = ?, hash = ?, seal = ?"),
            (seq, link, self._chain.seal(seq, link)),
        )

    def _pruned(self, connection: Any) -> tuple[int, str] | None:
        # Only successful acts: any caller can leave a record of a denied one.
        prunes = "SELECT detail FROM toolkiln_audit WHERE act = ? AND outcome = 'ok'"
        statement = self._database.sql(f"{prunes} ORDER BY seq DESC LIMIT 1")
        newest = connection.execute(statement, (PRUNE,)).fetchone()
        return pruned_row(newest[0]) if newest else None

    def _span(self, times: dict[str, float | None]) -> tuple[int, int]:
        conditions = {sql: value for sql, value in times.items() if value is not None}
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        end = f"FROM toolkiln_audit {where}"
        statement = self._database.sql(f"SELECT (SELECT min(seq) {end}), (SELECT max(seq) {end})")
        with self._database.reading() as connection:
            first, last = connection.execute(statement, (*conditions.values(),) * 2).fetchone()
        return (first, last) if first is not None else (0, -1)

    def _entry(self, row: Row) -> ChainedRecord:
        seq, *fields, link = row
        record = AuditRecord(*fields)
        texts = (*record[1:-2], record.arguments, link)
        numbers = (record.at, record.duration)
        if all(type(text) is str for text in texts):
            if all(type(number) in {float, NoneType} for number in numbers):
                return ChainedRecord(seq, record, link)
        hint = "run `toolkiln audit verify`"
        raise StoreError(f"{self._database.name} was tampered with: see row {seq}", hint=hint)

    def _prune_batch(self, before: float, by: str, newest: int) -> int:
        with self._database.writing() as connection:
            head = self._head(connection)
            ends = "SELECT min(seq), (SELECT min(seq) FROM toolkiln_audit WHERE at >= ?)"
            ends = self._database.sql(f"{ends} FROM toolkiln_audit")
            oldest, kept = connection.execute(ends, (before,)).fetchone()
            if oldest is None:
                return 0
            end = min(newest, newest if kept is None else kept, oldest + _PRUNE_BATCH)
            walk = Walk(self._chain, self._pruned(connection))
            statement = f"{_ROWS} WHERE seq < ? ORDER BY seq"
            for row in self._database.rows(connection, statement, end):
                walk.row(row)
            found = walk.verification()
            if not found.ok:  # an edited time must not remove a recent record
                hint = "run `toolkiln audit verify`"
                what = f"{self._database.name} was tampered with and is not pruned"
                raise StoreError(f"{what}: {found.problems[0]}", hint=hint)
            if found.count:
                delete = self._database.sql("DELETE FROM toolkiln_audit WHERE seq <= ?")
                connection.execute(delete, (found.last,))
                detail = pruned_detail(found.last, found.head)
                record = AuditRecord(self._clock(), PRUNE, "ok", user=by, detail=detail)
                self._extend(connection, head, [record])
            return found.count
