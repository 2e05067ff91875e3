"""SQLite and PostgreSQL drivers of the audit log.

Both provide connections with `execute` and `cursor`, and raise StoreError for driver errors.
SQLAlchemy is loaded for PostgreSQL only, so that a short command which writes one audit record
does not wait for it.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from toolkiln.errors import StoreError, driver_failed
from toolkiln.store.files import database_file

Setup = list[tuple[str, tuple[Any, ...]]]
"""Statements and their parameters, run once to create the tables."""

_BUSY_SECONDS = 5.0


class Transactions(Protocol):
    """Database that an audit log is stored in."""

    name: str
    locking: str
    """Suffix of a SELECT that locks its rows until the transaction ends."""

    def sql(self, statement: str) -> str:
        """Return a statement with `?` placeholders in the syntax of the driver."""
        ...

    def writing(self) -> AbstractContextManager[Any]:
        """Open a read-write transaction, committed at the end of the block."""
        ...

    def reading(self) -> AbstractContextManager[Any]:
        """Open a read-only transaction with one snapshot, which blocks no writer."""
        ...

    def rows(self, connection: Any, statement: str, *parameters: object) -> Iterator[Any]:
        """Iterate over the rows of a query without loading all of them."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class SqliteFile:
    """SQLite file in WAL mode; the threads of a process share one writer."""

    locking = ""  # BEGIN IMMEDIATE already excludes other writers

    def __init__(self, text: str, setup: Setup) -> None:
        """Open the file; `setup` is run to create a missing database."""

        def fill(file: Path) -> None:
            with self._as_store_error(), closing(_connect(file)) as connection:
                connection.execute("BEGIN")
                for statement, parameters in setup:
                    connection.execute(statement, parameters)
                connection.execute("COMMIT")

        self.name = f"the audit log {text!r}"
        self._file = database_file(text, fill, what="audit log")
        self._lock = threading.Lock()
        with self._as_store_error():
            self._writer = _connect(self._file)
            self._identity = self._inode()

    def sql(self, statement: str) -> str:
        return statement

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction; one writer at a time across all processes."""
        with self._lock, self._as_store_error():
            if self._inode() != self._identity:  # SQLite would go on writing to the unlinked file
                raise StoreError(
                    f"{self.name} was removed or replaced while it was in use",
                    hint="restore the file, or configure another one",
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
        """Open a read transaction on a separate connection."""
        with self._as_store_error(), closing(_connect(self._file)) as connection:
            connection.execute("BEGIN")
            yield connection

    def rows(
        self, connection: sqlite3.Connection, statement: str, *parameters: object
    ) -> Iterator[Any]:
        return iter(connection.execute(statement, parameters))

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._writer.close()

    def _inode(self) -> tuple[int, int] | None:
        try:
            result = self._file.stat()
        except OSError:
            return None
        return result.st_dev, result.st_ino

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise driver_failed(self.name, error) from None


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode=rw",  # does not create a missing file
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    # Decoding must not raise: `verify` reports text that another program wrote.
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
    """PostgreSQL database, through the connection pool of the store."""

    locking = " FOR UPDATE"

    def __init__(self, url: str, table: str, setup: Setup) -> None:
        """Connect; `setup` is run if `table` does not exist."""
        from toolkiln.store.database import open_database  # SQLAlchemy is slow to load

        self._database = open_database(url)
        self.name = f"the audit log in {self._database.name}"
        try:
            with self.writing() as connection:
                lock = int.from_bytes(b"tk-audit")
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
                result = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
                for statement, parameters in setup if result[0] is None else ():
                    connection.execute(self.sql(statement), parameters)
        except StoreError:
            self.close()
            raise

    def sql(self, statement: str) -> str:
        return statement.replace("?", "%s")

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Open a transaction; writers queue for the head row, which they lock."""
        from toolkiln.store.database import as_store_error

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
        """Open a repeatable-read, read-only transaction."""
        with self.writing() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    def rows(self, connection: Any, statement: str, *parameters: object) -> Iterator[Any]:
        """Iterate with a server-side cursor."""
        with connection.cursor(name="toolkiln_audit") as cursor:
            yield from cursor.execute(self.sql(statement), parameters)

    def close(self) -> None:
        self._database.engine.dispose()
