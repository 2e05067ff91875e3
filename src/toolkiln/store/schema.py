"""The tables, and their version. What is written to them is `store`'s business."""

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

from toolkiln.store.faults import StoreError

VERSION = 2


class AnyText(TypeDecorator[str]):
    """Any Python string, also NUL, which PostgreSQL's text refuses, and lone surrogates."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """To UTF-8 that tolerates surrogates."""
        return None if value is None else value.encode("utf-8", "surrogatepass")

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """And back."""
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
    Column("token", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started", Double, nullable=False),
    Column("leased_until", Double, nullable=False),
    Column("kept_until", Double, nullable=False),  # then the row counts as gone
    Column("cancel", Boolean, nullable=False),
    Column("progress", AnyText, nullable=False),
    # ASCII JSON, null while running; last, since SQLite reads a row from the front.
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
    Column("id", Integer, primary_key=True),  # in the order of arrival, over all files
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
    Column("key", String(64), primary_key=True),  # of a file that ever declared it
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


def prepare(connection: Connection) -> None:
    """Creates the tables that are missing; several processes may do so at once.

    Version 2 only added tables to version 1, so one step makes either of them complete.

    Raises:
        StoreError: the tables are of a version that this code does not know.
    """
    known = inspect(connection).has_table(schema.name)
    if not known or _found(connection) == [1]:
        if connection.dialect.name == "postgresql":
            # CREATE TABLE IF NOT EXISTS can still fail when two run it at once.
            lock = int.from_bytes(b"toolkiln")
            connection.execute(select(func.pg_advisory_xact_lock(lock)))
        _TABLES.create_all(connection)
        if not _found(connection):
            connection.execute(insert(schema).values(version=VERSION))
        connection.execute(update(schema).where(schema.c.version == 1).values(version=VERSION))
    found = _found(connection)
    if found != [VERSION]:
        shown = ", ".join(map(str, found)) or "none"
        raise StoreError(
            f"the store has schema {shown}, this Toolkiln knows {VERSION}",
            hint="use the Toolkiln that wrote it, or a newer one",
        )


def _found(connection: Connection) -> list[int]:
    return list(connection.scalars(select(schema.c.version)))
