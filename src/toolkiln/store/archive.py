"""The archive: every version that a catalog let in, for good, and the usages of its tools.

A version is a row of history, numbered for each catalog and file, and a content (sources
and reading) that is kept once for each digest and file, whoever keeps it. It trusts
digests: whoever takes sources out compares `spec.version_digest` with the version's, which
also tells tampering. What is admitted and what is served is `catalog`'s business.

Writers take turns, on SQLite by nature and on PostgreSQL by a lock, so numbers have no
gaps and no doubles. Methods block and are thread-safe; all raise StoreError when the
database fails.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    String,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.model import Reading, Version
from toolkiln.store.database import Database
from toolkiln.store.errors import StoreError
from toolkiln.store.records import (
    hash_of,
    read_reading,
    read_sources,
    write_reading,
    write_sources,
)
from toolkiln.store.schema import AnyText, contents, declarations, usages, versions
from toolkiln.store.values import Arrival, Content

USAGES_OF_A_TOOL = 50
"""How many usages of one tool are kept; the newest."""

_KEYS_AT_ONCE = 500  # SQLite bounds the parameters of a statement

_KEY = bindparam("the_key", type_=String)
_KEYS = bindparam("the_keys", type_=String, expanding=True)
_CATALOG = bindparam("the_catalog", type_=String)

_ADD_VERSION = insert(versions)
_HISTORY = select(versions).where(versions.c.key.in_(_KEYS)).order_by(versions.c.id.desc())
_DECLARING = select(declarations.c.key).where(declarations.c.tool == _KEY)
_LAST = (
    select(versions.c.key, func.max(versions.c.number).label("number"))
    .where(versions.c.key.in_(_KEYS))
    .group_by(versions.c.key)
    .subquery()
)
_NEWEST = select(versions).join(
    _LAST, and_(_LAST.c.key == versions.c.key, _LAST.c.number == versions.c.number)
)
_SOURCES = select(contents.c.sources).where(contents.c.key == _KEY)
_READING = select(contents.c.reading).where(contents.c.key == _KEY)

_USAGES = (
    select(usages.c.tool, usages.c.prompt)
    .where(usages.c.catalog == _CATALOG)
    .order_by(usages.c.at.desc(), usages.c.id.desc())
)
_ADD_USAGE = insert(usages)
_SAME_USAGE = delete(usages).where(
    usages.c.key == _KEY, usages.c.prompt == bindparam("the_prompt", type_=AnyText)
)
_OLD_USAGES = delete(usages).where(
    usages.c.id.in_(
        select(usages.c.id)
        .where(usages.c.key == _KEY)
        .order_by(usages.c.at.desc(), usages.c.id.desc())
        .offset(USAGES_OF_A_TOOL)
    )
)
_CLEAR_TOOL = delete(usages).where(usages.c.key == _KEY)
_CLEAR_CATALOG = delete(usages).where(usages.c.catalog == _CATALOG)


class Archive:
    """Durable state of catalogs. A catalog is told apart from others by its name."""

    def __init__(self, database: Database) -> None:
        self._database = database
        dialect = postgresql if database.postgres else sqlite
        content = dialect.insert(contents)
        fresh = content.excluded
        # The bytes of a digest cannot differ: this mends damage. Its reading can, if
        # another Toolkiln read it.
        self._keep_content = content.on_conflict_do_update(
            index_elements=[contents.c.key],
            set_={"reading": fresh.reading, "sources": fresh.sources},
            where=or_(contents.c.reading != fresh.reading, contents.c.sources != fresh.sources),
        )
        self._declare = dialect.insert(declarations).on_conflict_do_nothing()

    def keep(self, catalog: str, content: Content, arrival: Arrival) -> Version:
        """Keeps a content and adds a version of its file to the history, or neither.

        If the newest version has this digest and came by the same action, that one is
        returned and none is added.
        """
        return self.keep_many(catalog, [content], arrival)[0]

    def keep_many(self, catalog: str, files: Iterable[Content], arrival: Arrival) -> list[Version]:
        """The same for many files: all of them in one transaction, or none."""
        # Before the transaction, since other writers wait for its end.
        keyed = [(hash_of([catalog, content.file]), content) for content in files]
        packed = [_content_row(content) for _, content in keyed]
        kept: list[Version] = []
        added: list[tuple[str, Version]] = []
        with self._writing(versions) as connection:
            newest = _newest(connection, [key for key, _ in keyed])
            for key, content in keyed:
                last = newest.get(key)
                version = _next_version(last, content, arrival)
                if version is not last:
                    newest[key] = version
                    added.append((key, version))
                kept.append(version)
            declared = [
                {"tool": hash_of([catalog, tool]), "key": key}
                for key, version in added
                for tool in version.tools
            ]
            for statement, rows in (
                (self._keep_content, packed),
                (_ADD_VERSION, [_version_row(key, version) for key, version in added]),
                (self._declare, declared),
            ):
                if rows:
                    connection.execute(statement, rows)
        return kept

    def keep_content(self, content: Content) -> None:
        """Keeps a content that is in no history: that of a proposal."""
        with self._writing(versions) as connection:
            connection.execute(self._keep_content, [_content_row(content)])

    def sources(self, digest: str, file: str) -> dict[str, bytes] | None:
        """The files of a version, the tool's own first; None if it is not kept.

        Damage is noticed, tampering is not: compare their `spec.version_digest`.
        """
        data = self._content(_SOURCES, digest, file)
        return None if data is None else read_sources(data)

    def reading(self, digest: str, file: str) -> Reading | None:
        """What was read from a version when it was last kept.

        None: it is not kept, or by a Toolkiln whose readings have other fields; then read
        its sources again.
        """
        data = self._content(_READING, digest, file)
        return None if data is None else read_reading(data)

    def history(self, catalog: str, file: str) -> list[Version]:
        """All versions of a file, the newest first."""
        with self._database.transaction(reading=True) as connection:
            return _history(connection, [hash_of([catalog, file])])

    def history_of_tool(self, catalog: str, tool: str) -> list[Version]:
        """All versions of any file that declare this tool, the newest first."""
        with self._database.transaction(reading=True) as connection:
            # Not a join, for which PostgreSQL reads the whole table until it has statistics.
            which = {"the_key": hash_of([catalog, tool])}
            found = _history(connection, connection.scalars(_DECLARING, which).all())
        return [version for version in found if tool in version.tools]

    def add_usage(self, catalog: str, tool: str, prompt: str, at: str) -> None:
        """Notes a prompt that a tool answered; the 50 newest different ones are kept.

        `at` is UTC, ISO 8601, ending in Z.
        """
        key = {"the_key": hash_of([catalog, tool])}
        row = {"catalog": hash_of([catalog]), "key": key["the_key"], "tool": tool}
        with self._writing(usages) as connection:
            connection.execute(_SAME_USAGE, {**key, "the_prompt": prompt})
            connection.execute(_ADD_USAGE, {**row, "prompt": prompt, "at": at})
            connection.execute(_OLD_USAGES, key)

    def usages(self, catalog: str) -> dict[str, tuple[str, ...]]:
        """The noted prompts of each tool that has some, the newest first."""
        found: dict[str, list[str]] = {}
        with self._database.transaction(reading=True) as connection:
            for tool, prompt in connection.execute(_USAGES, {"the_catalog": hash_of([catalog])}):
                found.setdefault(tool, []).append(prompt)
        return {tool: tuple(prompts) for tool, prompts in found.items()}

    def clear_usages(self, catalog: str, tool: str | None = None) -> None:
        """Forgets the noted prompts of a tool, or of all tools of the catalog."""
        with self._writing(usages) as connection:
            if tool is None:
                connection.execute(_CLEAR_CATALOG, {"the_catalog": hash_of([catalog])})
            else:
                connection.execute(_CLEAR_TOOL, {"the_key": hash_of([catalog, tool])})

    def _content(self, statement: Select[Any], digest: str, file: str) -> bytes | None:
        with self._database.transaction(reading=True) as connection:
            data: bytes | None = connection.scalar(statement, {"the_key": hash_of([digest, file])})
        return data

    @contextmanager
    def _writing(self, table: Table) -> Iterator[Connection]:
        with self._database.transaction() as connection:
            if self._database.postgres:  # others may read, but nobody else may write
                connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")
            yield connection


def _history(connection: Connection, keys: Sequence[str]) -> list[Version]:
    return [_version(row) for row in connection.execute(_HISTORY, {"the_keys": keys})]


def _newest(connection: Connection, keys: list[str]) -> dict[str, Version]:
    newest: dict[str, Version] = {}
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = {"the_keys": keys[start : start + _KEYS_AT_ONCE]}
        newest |= {row.key: _version(row) for row in connection.execute(_NEWEST, some)}
    return newest


def _content_row(content: Content) -> dict[str, Any]:
    return {
        "key": hash_of([content.reading.digest, content.file]),
        "reading": write_reading(content.reading),
        "sources": write_sources(content.sources),
    }


def _next_version(last: Version | None, content: Content, arrival: Arrival) -> Version:
    digest = content.reading.digest
    if last and (last.digest, last.action) == (digest, arrival.action):
        return last
    return Version(
        file=content.file,
        number=last.number + 1 if last else 1,
        digest=digest,
        tools=tuple(tool.name for tool in content.reading.tools),
        **{**dict(arrival), "note": "; ".join(filter(None, (arrival.note, content.note)))},
    )


def _version_row(key: str, version: Version) -> dict[str, Any]:
    return {**dict(version), "key": key, "tools": json.dumps(version.tools, ensure_ascii=False)}


def _version(row: Any) -> Version:
    try:
        fields = {name: getattr(row, name) for name in Version.model_fields}
        return Version.model_validate({**fields, "tools": json.loads(row.tools)})
    except ValueError as error:
        hint = "the store is damaged; restore it from a backup"
        raise StoreError("a row of the history cannot be read", hint=hint) from error
