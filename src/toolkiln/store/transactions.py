"""Transactions of the audit's ledger on plain drivers: an SQLite file, or PostgreSQL.

Both give connections with `execute` and `cursor`, and turn what drivers raise into
StoreError. SQLAlchemy is loaded for PostgreSQL only: a short command that leaves one audit
record behind should not wait for it.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from toolkiln.store.errors import StoreError, driver_failed
from toolkiln.store.files import database_file

Setup = list[tuple[str, tuple[Any, ...]]]
"""Statements and their parameters, to be run once."""

_BUSY_SECONDS = 5.0


class Transactions(Protocol):
    """Where a ledger is kept."""

    name: str
    locking: str
    """What to add to a SELECT whose rows nobody else shall change until the end."""

    def sql(self, statement: str) -> str:
        """A statement with `?` for parameters, as the driver wants it."""
        ...

    def writing(self) -> AbstractContextManager[Any]:
        """A context with a connection: all that is done with it, or nothing."""
        ...

    def reading(self) -> AbstractContextManager[Any]:
        """A context with a connection that sees one state of things and holds up nobody."""
        ...

    def rows(self, connection: Any, statement: str, *parameters: object) -> Iterator[Any]:
        """Rows one after the other, however many there are."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class SqliteFile:
    """An SQLite file with a write-ahead log; the threads of a process share one writer."""

    locking = ""  # a writer is alone anyway

    def __init__(self, text: str, setup: Setup) -> None:
        """`setup`: the statements that fill a database which does not exist yet."""

        def fill(file: Path) -> None:
            with self._as_store_error(), closing(_connected(file)) as connection:
                connection.execute("BEGIN")
                for statement, parameters in setup:
                    connection.execute(statement, parameters)
                connection.execute("COMMIT")

        self.name = f"the audit log {text!r}"
        self._file = database_file(text, fill, what="audit log")
        self._lock = threading.Lock()
        with self._as_store_error():
            self._writer = _connected(self._file)
            self._identity = self._seen()

    def sql(self, statement: str) -> str:
        """As it is."""
        return statement

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One writer at a time, over all processes."""
        with self._lock, self._as_store_error():
            if self._seen() != self._identity:  # SQLite would write on, to a file without a name
                raise StoreError(
                    f"{self.name} was removed or replaced while it was in use",
                    hint="put it back, or go on with another",
                )
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """On a connection of its own."""
        with self._as_store_error(), closing(_connected(self._file)) as connection:
            connection.execute("BEGIN")
            yield connection

    def rows(
        self, connection: sqlite3.Connection, statement: str, *parameters: object
    ) -> Iterator[Any]:
        """The cursor itself."""
        return iter(connection.execute(statement, parameters))

    def close(self) -> None:
        """Close the writer."""
        with self._lock, suppress(sqlite3.Error):
            self._writer.close()

    def _seen(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise driver_failed(self.name, error) from None


def _connected(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode=rw",  # never an empty file where there was none
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    # Text that somebody wrote past us may be no text at all: it has to be found, not raise.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA journal_size_limit=16777216")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


class PostgresServer:
    """A PostgreSQL database, through the pool that the store uses too."""

    locking = " FOR UPDATE"

    def __init__(self, url: str, table: str, setup: Setup) -> None:
        """`setup`: the statements to run where `table` does not exist yet."""
        from toolkiln.store.database import open_database  # SQLAlchemy is slow to load

        self._database = open_database(url)
        self.name = f"the audit log in {self._database.name}"
        try:
            with self.writing() as connection:
                lock = int.from_bytes(b"tk-audit")
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
                found = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
                for statement, parameters in setup if found[0] is None else ():
                    connection.execute(self.sql(statement), parameters)
        except StoreError:
            self.close()
            raise

    def sql(self, statement: str) -> str:
        """With the placeholders of psycopg."""
        return statement.replace("?", "%s")

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Writers queue for the row of the head, which they lock when they read it."""
        from toolkiln.store.faults import as_store_error

        driver: Any = self._database.engine.dialect.dbapi
        try:
            with (
                as_store_error(self._database.name, self._database.secrets),
                closing(self._database.engine.raw_connection()) as pooled,
                pooled.driver_connection.transaction(),  # type: ignore[union-attr]
            ):
                yield pooled.driver_connection
        except driver.Error as error:
            raise driver_failed(self.name, error, self._database.secrets) from None

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """One snapshot for all statements."""
        with self.writing() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    def rows(self, connection: Any, statement: str, *parameters: object) -> Iterator[Any]:
        """From a cursor on the server: the client never holds all of them."""
        with connection.cursor(name="toolkiln_audit") as cursor:
            yield from cursor.execute(self.sql(statement), parameters)

    def close(self) -> None:
        """Close the pool."""
        self._database.engine.dispose()
