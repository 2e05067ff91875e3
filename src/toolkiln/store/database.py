"""From a path or URL to an engine: files, pragmas, URLs. Knows nothing of calls.

SQLite writers are serialised by BEGIN IMMEDIATE; threads of one process queue for its
one connection instead of polling a lock. `synchronous=NORMAL` with a write-ahead log: a
killed process loses nothing, a power failure may lose the last moments but no more.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url

from toolkiln.store.errors import StoreError
from toolkiln.store.faults import as_store_error
from toolkiln.store.files import database_file, file_path
from toolkiln.store.schema import prepare

_READING = "toolkiln_reading"  # execution option of transactions that only read
_BUSY_SECONDS = 15.0
# A server that is gone must not hang a call: libpq's own defaults wait for minutes.
_POSTGRES_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "tcp_user_timeout": "30000",
    "application_name": "toolkiln",
}


@dataclass(frozen=True)
class Database:
    """An engine, and how to speak of it without giving a password away."""

    engine: Engine
    name: str
    secrets: tuple[str, ...] = ()

    @property
    def postgres(self) -> bool:
        """Whether it is a PostgreSQL server; else it is an SQLite file."""
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def transaction(self, *, reading: bool = False) -> Iterator[Connection]:
        """All that is done with the connection, or nothing; one that only reads needs no lock.

        Raises:
            StoreError: the database failed.
        """
        with as_store_error(self.name, self.secrets), self.engine.connect() as connection:
            connection.execution_options(**{_READING: reading})
            with connection.begin():
                yield connection


def open_database(url_or_path: str | os.PathLike[str]) -> Database:
    """The database with its tables in place, created where there is none.

    Raises:
        StoreError: it cannot be reached, created, written or understood.
    """
    text = os.fspath(url_or_path)
    path, scheme = file_path(text), text.partition("://")[0]
    if path is not None:
        database = _sqlite(path)
    elif scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        database = _postgres(text)
    else:
        hint = "give a file path or a postgresql:// URL"
        raise StoreError(f"a store cannot be opened at {scheme}://", hint=hint)
    try:
        with database.transaction() as connection:
            prepare(connection)
    except StoreError:
        database.engine.dispose()
        raise
    return database


def _sqlite(text: str) -> Database:
    file = database_file(text, _fill)
    return Database(_sqlite_engine(file), str(file))


def _fill(file: Path) -> None:
    engine = _sqlite_engine(file)
    try:
        with as_store_error(str(file)), engine.begin() as connection:
            prepare(connection)
    finally:
        engine.dispose()


def _sqlite_engine(file: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(file)),
        connect_args={"timeout": _BUSY_SECONDS},
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, record: Any) -> None:  # noqa: ARG001
        connection.isolation_level = None  # transactions begin below, not in the driver
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA journal_size_limit=16777216")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _postgres(text: str) -> Database:
    unusable = StoreError(
        "the store's PostgreSQL URL cannot be read",
        hint="write postgresql://user:password@host:port/database, "
        "with special characters in the password percent-encoded (@ is %40)",
    )
    if text.partition("?")[0].count("@") > 1 or not text.isprintable():
        raise unusable  # else the rest of a password would be taken for the host, and shown
    try:
        url = make_url("postgresql+psycopg://" + text.partition("://")[2])
        defaults = {k: v for k, v in _POSTGRES_DEFAULTS.items() if k not in url.query}
        url = url.update_query_dict(defaults)
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except ImportError:
        raise StoreError(
            "PostgreSQL needs psycopg, which is not installed",
            hint="pip install 'toolkiln[postgres]'",
        ) from None
    except (exc.ArgumentError, ValueError, TypeError):
        raise unusable from None  # their texts quote the URL
    asked = url.query.get("password", ())
    secrets = (url.password, *((asked,) if isinstance(asked, str) else asked))
    place = f"{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"
    return Database(engine, f"postgresql://{place}", tuple(str(s) for s in secrets if s))
