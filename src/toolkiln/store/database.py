"""Database engine, transactions, clock and pruning of the store.

SQLite writers are serialised by BEGIN IMMEDIATE; the threads of a process queue for its one
connection instead of polling a lock. With WAL and `synchronous=NORMAL` a killed process loses
nothing, and a power failure at most the last transactions.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Executable,
    Select,
    String,
    Table,
    bindparam,
    cast,
    create_engine,
    delete,
    event,
    exc,
    extract,
    func,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.errors import StoreError, driver_failed
from toolkiln.model.call import OUTPUT_CHARACTERS
from toolkiln.store.files import database_file, file_path
from toolkiln.store.tables import approvals, buckets, calls, chunks, outputs, prepare, sessions


@contextmanager
def as_store_error(database: str, secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Translate database errors into StoreError that names `database`."""
    what = f"the store {database}"
    try:
        yield
    except exc.DBAPIError as error:
        # Not chained: the driver's error contains SQL, values and perhaps the URL.
        raise driver_failed(what, error.orig or error, secrets) from None
    except exc.TimeoutError:
        raise StoreError(
            f"{what} is overloaded: no connection became free in time",
            hint="make fewer calls at once",
        ) from None
    except UnicodeError:
        raise StoreError(
            f"{what} failed: its name or something in it is not valid text",
            hint="check the name; move a damaged file away",
        ) from None
    except exc.SQLAlchemyError as error:
        text = f"{what} failed: {type(error).__name__}"
        raise StoreError(text, hint="please report this") from None


_READING = "toolkiln_reading"  # execution option of read-only transactions
_BUSY_SECONDS = 15.0
# An unreachable server must not hang a call: libpq's defaults wait for minutes.
_POSTGRES_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "tcp_user_timeout": "30000",
    "application_name": "toolkiln",
}


class Database:
    """Engine, clock and transactions of one database."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        secrets: tuple[str, ...] = (),
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`name` is for messages and contains no password; `clock` replaces the database's."""
        self.engine = engine
        self.name = name
        self.secrets = secrets
        self.postgres = engine.dialect.name == "postgresql"
        """Whether this is a PostgreSQL server; otherwise an SQLite file."""
        self._clock = clock or (None if self.postgres else time.time)
        self.now: ColumnElement[float] = bindparam("now", type_=Double)
        """The time, for statements whose parameters come from `values()`."""
        if self._clock is None:
            # Not clock_timestamp(), which is volatile and would keep `prune` from using an index.
            self.now = cast(extract("epoch", func.statement_timestamp()), Double)

    @contextmanager
    def transaction(self, *, reading: bool = False) -> Iterator[Connection]:
        """Open a transaction; one that only reads takes no write lock."""
        with as_store_error(self.name, self.secrets), self.engine.connect() as connection:
            connection.execution_options(**{_READING: reading})
            with connection.begin():
                yield connection

    def read(self, statement: Executable, **parameters: Any) -> Sequence[Any]:
        """Return the rows of a query."""
        with self.transaction(reading=True) as connection:
            return connection.execute(statement, self.values(**parameters)).all()

    def read_one(self, statement: Executable, **parameters: Any) -> Any:
        """Return the only row of a query; None if it has none."""
        with self.transaction(reading=True) as connection:
            return connection.execute(statement, self.values(**parameters)).one_or_none()

    def change(self, statement: Executable, **parameters: Any) -> int:
        """Run a statement in a transaction of its own; returns how many rows it changed."""
        with self.transaction() as connection:
            return connection.execute(statement, self.values(**parameters)).rowcount

    def insert(self, table: Table) -> Any:
        """Return an INSERT that supports ON CONFLICT in the dialect of this database."""
        return (postgresql if self.postgres else sqlite).insert(table)

    def upsert(self, table: Table, **values: Any) -> Any:
        """Return an INSERT that replaces the row with the same key."""
        add = self.insert(table).values(**values) if values else self.insert(table)
        replaced = {c.name: add.excluded[c.name] for c in table.c if not c.primary_key}
        return add.on_conflict_do_update(index_elements=table.primary_key, set_=replaced)

    def lock(self, connection: Connection, table: Table) -> None:
        """Lock a table until the transaction ends: others may read but not write."""
        if self.postgres:  # SQLite has one writer
            connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")

    def values(self, **parameters: Any) -> dict[str, Any]:
        """Return the parameters of a statement, with `now` where it is one."""
        return parameters if self._clock is None else {**parameters, "now": self._clock()}

    def read_time(self, connection: Connection) -> float:
        """Return the time; on PostgreSQL by a statement, so after earlier locks were granted."""
        if self._clock is not None:
            return self._clock()
        return connection.execute(select(self.now)).scalar_one()


def open_database(
    url_or_path: str | os.PathLike[str], clock: Callable[[], float] | None = None
) -> Database:
    """Open a database, and create the file and its tables if they are missing."""
    text = os.fspath(url_or_path)
    path, scheme = file_path(text), text.partition("://")[0]
    if path is not None:
        file = database_file(path, _create_tables)
        database = Database(_sqlite_engine(file), str(file), (), clock)
    elif scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        database = _postgres(text, clock)
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


def _create_tables(file: Path) -> None:
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
        connection.isolation_level = None  # the listener below begins transactions, not the driver
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA journal_size_limit=16777216")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _postgres(text: str, clock: Callable[[], float] | None) -> Database:
    invalid_url = StoreError(
        "the store's PostgreSQL URL cannot be read",
        hint="write postgresql://user:password@host:port/database, "
        "with special characters in the password percent-encoded (@ is %40)",
    )
    if text.partition("?")[0].count("@") > 1 or not text.isprintable():
        raise invalid_url  # part of the password would be parsed, and shown, as the host
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
        raise invalid_url from None  # their messages quote the URL
    password = url.query.get("password", ())
    secrets = (url.password, *((password,) if isinstance(password, str) else password))
    location = f"{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"
    return Database(engine, f"postgresql://{location}", tuple(str(s) for s in secrets if s), clock)


# Large enough to keep up, small enough not to delay other writers.
_ROW_BATCH = 500
_OUTPUT_BATCH = 20
_PRUNE_SECONDS = 60.0

_HANDLES = bindparam("the_handles", type_=String, expanding=True)


class Pruner:
    """Bounded removal of expired rows; writers trigger it once a minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = 0.0
        self._lock = threading.Lock()
        self._rows = []
        for table in (calls, sessions, buckets, approvals):
            (key,) = table.primary_key
            self._rows.append(
                delete(table).where(key.in_(_expired(table, database.now, _ROW_BATCH)))
            )
        self._old_outputs = _expired(outputs, database.now, _OUTPUT_BATCH)
        self._surplus_outputs = _surplus(database.now)
        self._chunks = delete(chunks).where(chunks.c.handle.in_(_HANDLES))
        self._outputs = delete(outputs).where(outputs.c.handle.in_(_HANDLES))

    def when_due(self) -> None:
        """Prune if a minute has passed. Call it before other work: it may fail."""
        with self._lock:
            due = time.monotonic() >= self._next
            if due:
                self._next = time.monotonic() + _PRUNE_SECONDS
        if due:
            self.prune()

    def prune(self) -> None:
        """Remove a batch of expired rows; a long backlog takes several calls."""
        with self._database.transaction() as connection:
            now = self._database.values()
            for statement in self._rows:
                connection.execute(statement, now)
            self._remove_outputs(connection, self._old_outputs, now)

    def prune_outputs(self, connection: Connection, scope: str, newest: str) -> None:
        """Remove a caller's oldest outputs beyond the limit, but never `newest`."""
        parameters = self._database.values(the_scope=scope, the_newest=newest)
        self._remove_outputs(connection, self._surplus_outputs, parameters)

    def _remove_outputs(
        self, connection: Connection, query: Select[Any], parameters: dict[str, Any]
    ) -> None:
        handles = connection.scalars(query, parameters).all()
        if handles:
            connection.execute(self._chunks, {"the_handles": handles})
            connection.execute(self._outputs, {"the_handles": handles})


def _expired(table: Table, now: ColumnElement[float], limit: int) -> Select[Any]:
    (key,) = table.primary_key
    # Skip rows that another process is pruning, to avoid waiting for each other.
    query = select(key).where(table.c.kept_until <= now).limit(limit)
    return query.with_for_update(skip_locked=True)


def _surplus(now: ColumnElement[float]) -> Select[Any]:
    row = outputs.c
    sums = func.sum(row.total).over(order_by=(row.kept_until.desc(), row.handle))
    outputs_of_caller = select(row.handle, sums.label("sum"))
    outputs_of_caller = outputs_of_caller.where(
        row.scope == bindparam("the_scope", type_=String), row.kept_until > now
    )
    totals = outputs_of_caller.subquery()
    surplus = select(totals.c.handle).where(totals.c.sum > OUTPUT_CHARACTERS)
    newest = bindparam("the_newest", type_=String)
    query = (
        select(row.handle).where(row.handle.in_(surplus), row.handle != newest).limit(_ROW_BATCH)
    )
    return query.with_for_update(skip_locked=True)
