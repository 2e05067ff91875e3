"""Tables of the store and their schema version."""

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    func,
    insert,
    inspect,
    select,
    update,
)

from toolkiln.errors import StoreError

VERSION = 4
_UPGRADABLE = [[1], [2], [3]]


class AnyText(TypeDecorator[str]):
    """Any Python string, including lone surrogates and NUL, which PostgreSQL's text rejects."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """Encode as UTF-8 that allows surrogates."""
        return None if value is None else value.encode("utf-8", "surrogatepass")

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Decode."""
        if not isinstance(value, bytes | None):  # SQLite stores any type in any column
            raise UnicodeError("not encoded text")
        return None if value is None else value.decode("utf-8", "surrogatepass")


_TABLES = MetaData()

schema = Table("toolkiln_schema", _TABLES, Column("version", Integer, nullable=False))

calls = Table(
    "toolkiln_calls",
    _TABLES,
    Column("key", String(64), primary_key=True),  # hash of the caller's identity and the id
    Column("scope", String(64), nullable=False),  # hash of the caller's identity
    Column("call_id", AnyText, nullable=False),
    Column("tool", AnyText, nullable=False),
    Column("fingerprint", AnyText, nullable=False),
    Column("owner", AnyText, nullable=False),
    Column("token", String(32), nullable=False),  # empty: ended, and the id can be claimed again
    Column("attempt", Integer, nullable=False),
    Column("started", Double, nullable=False),
    Column("leased_until", Double, nullable=False),
    Column("kept_until", Double, nullable=False),  # expired afterwards
    Column("cancel", Boolean, nullable=False),
    Column("progress", AnyText, nullable=False),
    # ASCII JSON, null while running; last, because SQLite reads a row from the front.
    Column("result", Text),
    Index("toolkiln_calls_of_a_caller", "scope", "started"),
    Index("toolkiln_calls_to_forget", "kept_until"),
)

outputs = Table(
    "toolkiln_outputs",
    _TABLES,
    Column("handle", String(64), primary_key=True),
    Column("scope", String(64), nullable=False),
    Column("total", Integer, nullable=False),
    Column("kept_until", Double, nullable=False),
    Index("toolkiln_outputs_to_forget", "kept_until"),
)

chunks = Table(
    "toolkiln_output_chunks",
    _TABLES,
    Column("handle", String(64), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("text", AnyText, nullable=False),
)


versions = Table(
    "toolkiln_versions",
    _TABLES,
    Column("id", Integer, primary_key=True),  # in insertion order, across all files
    Column("key", String(64), nullable=False),  # hash of catalog and file
    Column("number", Integer, nullable=False),
    Column("file", AnyText, nullable=False),
    Column("digest", AnyText, nullable=False),
    Column("action", AnyText, nullable=False),
    Column("by", AnyText, nullable=False),
    Column("at", AnyText, nullable=False),
    Column("tools", AnyText, nullable=False),  # a JSON array of names
    Column("note", AnyText, nullable=False),
    Index("toolkiln_versions_of_a_file", "key", "number", unique=True),
)

contents = Table(
    "toolkiln_contents",
    _TABLES,
    Column("key", String(64), primary_key=True),  # hash of digest and file
    Column("reading", LargeBinary, nullable=False),
    Column("sources", LargeBinary, nullable=False),
)

declarations = Table(
    "toolkiln_declarations",
    _TABLES,
    Column("tool", String(64), primary_key=True),  # hash of catalog and tool
    Column("key", String(64), primary_key=True),  # of a file that declares or declared it
)

usages = Table(
    "toolkiln_usages",
    _TABLES,
    Column("id", Integer, primary_key=True),
    Column("catalog", String(64), nullable=False),  # hash
    Column("key", String(64), nullable=False),  # hash of catalog and tool
    Column("tool", AnyText, nullable=False),
    Column("prompt", AnyText, nullable=False),
    Column("at", AnyText, nullable=False),
    Index("toolkiln_usages_of_a_catalog", "catalog"),
    Index("toolkiln_usages_of_a_tool", "key"),
)

sessions = Table(
    "toolkiln_sessions",
    _TABLES,
    Column("token", String(64), primary_key=True),  # hash
    Column("trace_id", AnyText, nullable=False),
    Column("key_id", AnyText),
    Column("caller", AnyText, nullable=False),  # JSON
    Column("created", Double, nullable=False),
    Column("granted", Double, nullable=False),  # seconds, at creation or the last renewal
    Column("expires", Double, nullable=False),
    Column("kept_until", Double, nullable=False),
    Index("toolkiln_sessions_of_a_key", "key_id"),
    Index("toolkiln_sessions_by_age", "created"),
    Index("toolkiln_sessions_to_forget", "kept_until"),
)

keys = Table(
    "toolkiln_keys",
    _TABLES,
    Column("id", AnyText, primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("name_key", String(64), nullable=False),  # hash of the name
    Column("name", AnyText, nullable=False),
    Column("caller", AnyText, nullable=False),  # JSON
    Column("created", Double, nullable=False),
    Column("created_by", AnyText, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
    Column("last_used", Double),
)
Index(
    "toolkiln_keys_by_name",
    keys.c.name_key,
    unique=True,
    sqlite_where=keys.c.revoked.is_(None),
    postgresql_where=keys.c.revoked.is_(None),
)

buckets = Table(
    "toolkiln_buckets",
    _TABLES,
    Column("key", String(64), primary_key=True),  # hash of the name
    Column("level", Double, nullable=False),  # tokens at time `at`
    Column("at", Double, nullable=False),
    Column("kept_until", Double, nullable=False),  # full by then, like a missing bucket
    Index("toolkiln_buckets_to_forget", "kept_until"),
)

settings = Table(
    "toolkiln_settings",
    _TABLES,
    Column("key", String(64), primary_key=True),  # hash of tool and user
    Column("tool", AnyText, nullable=False),
    Column("user", AnyText, nullable=False),
    Column("content", AnyText, nullable=False),  # JSON
)

approvals = Table(
    "toolkiln_approvals",
    _TABLES,
    Column("id", String(12), primary_key=True),
    Column("call_key", String(64), nullable=False),  # as `calls.key`
    Column("fingerprint", AnyText, nullable=False),
    Column("session_key", String(64)),  # hashes of the keys a verdict may be remembered by
    Column("arguments_key", String(64)),
    Column("remember_key", String(64)),  # the one that the verdict chose
    Column("remembered_until", Double),
    Column("kept_until", Double, nullable=False),
    Column("tool", AnyText, nullable=False),
    Column("digest", AnyText, nullable=False),
    Column("user", AnyText, nullable=False),
    Column("session", AnyText, nullable=False),
    Column("call_id", AnyText, nullable=False),
    Column("why", AnyText, nullable=False),
    Column("approve_own", Boolean, nullable=False),
    Column("own_forbidden", Boolean),  # the rule has approve_own = false; since version 4
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("state", String(16), nullable=False),  # an expired request is still `pending` here
    Column("decided_by", AnyText, nullable=False),
    Column("decided", Double),
    Column("reason", AnyText, nullable=False),
    Column("remember", String(16)),
    Column("arguments", AnyText, nullable=False),  # JSON
    Column("edited", AnyText),  # JSON
    Index("toolkiln_approvals_of_a_call", "call_key"),
    Index("toolkiln_approvals_remembered", "remember_key"),
    Index("toolkiln_approvals_by_age", "created"),
    Index("toolkiln_approvals_to_forget", "kept_until"),
)


def prepare(connection: Connection) -> None:
    """Create missing tables and columns; safe when several processes do so at once.

    Each schema version only adds to the previous one, so one step upgrades any of them.
    """
    exists = inspect(connection).has_table(schema.name)
    if not exists or _versions(connection) in _UPGRADABLE:
        if connection.dialect.name == "postgresql":
            # Concurrent CREATE TABLE IF NOT EXISTS can still fail.
            lock = int.from_bytes(b"toolkiln")
            connection.execute(select(func.pg_advisory_xact_lock(lock)))
        _TABLES.create_all(connection)
        columns = {column["name"] for column in inspect(connection).get_columns(approvals.name)}
        if "own_forbidden" not in columns:
            connection.exec_driver_sql(
                f"ALTER TABLE {approvals.name} ADD COLUMN own_forbidden BOOLEAN"
            )
        if not _versions(connection):
            connection.execute(insert(schema).values(version=VERSION))
        connection.execute(update(schema).where(schema.c.version < VERSION).values(version=VERSION))
    current = _versions(connection)
    if current != [VERSION]:
        shown = ", ".join(map(str, current)) or "none"
        raise StoreError(
            f"the store has schema {shown}, this Toolkiln supports {VERSION}",
            hint="use the version of Toolkiln that wrote it, or a newer one",
        )


def _versions(connection: Connection) -> list[int]:
    return list(connection.scalars(select(schema.c.version)))
