"""Archive of tool file versions, and the prompts that tools answered.

A version is a row of history, numbered per catalog and file. Its content (sources and reading)
is stored once per digest and file. The archive trusts digests: readers of sources compare
`spec.version_digest` with the version's, which also detects tampering. `catalog` decides what is
admitted and served.

Writers are serialised, on PostgreSQL by a lock, so version numbers are consecutive. Methods block
and are thread-safe; all raise StoreError when the database fails.
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

from toolkiln.errors import StoreError
from toolkiln.model.catalog import Arrival, Version, VersionContent
from toolkiln.model.source import Reading
from toolkiln.store.codec import hash_of, read_reading, read_sources, write_reading, write_sources
from toolkiln.store.database import Database
from toolkiln.store.tables import AnyText, contents, declarations, usages, versions

USAGES_OF_A_TOOL = 50
"""How many usages of one tool are kept."""

_KEY_BATCH = 500  # SQLite limits the parameters of a statement

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


class VersionArchive:
    """Versions and usages by catalog name."""

    def __init__(self, database: Database) -> None:
        self._database = database
        content = database.insert(contents)
        new = content.excluded
        # Sources with one digest are equal, so this repairs damage; the reading may come from
        # another version of Toolkiln.
        self._save_content = content.on_conflict_do_update(
            index_elements=[contents.c.key],
            set_={"reading": new.reading, "sources": new.sources},
            where=or_(contents.c.reading != new.reading, contents.c.sources != new.sources),
        )
        self._declare = database.insert(declarations).on_conflict_do_nothing()

    def add(self, catalog: str, content: VersionContent, arrival: Arrival) -> Version:
        """Store a content and add a version to the history of its file, atomically.

        Returns the newest version instead if it has the same digest and action.
        """
        return self.add_many(catalog, [content], arrival)[0]

    def add_many(
        self, catalog: str, files: Iterable[VersionContent], arrival: Arrival
    ) -> list[Version]:
        """Add versions of several files in one transaction."""
        # Before the transaction, because other writers wait for it.
        keyed = [(hash_of([catalog, content.file]), content) for content in files]
        content_rows = [_content_row(content) for _, content in keyed]
        result: list[Version] = []
        added: list[tuple[str, Version]] = []
        with self._writing(versions) as connection:
            newest = _newest(connection, [key for key, _ in keyed])
            for key, content in keyed:
                last = newest.get(key)
                version = _next_version(last, content, arrival)
                if version is not last:
                    newest[key] = version
                    added.append((key, version))
                result.append(version)
            declared = [
                {"tool": hash_of([catalog, tool]), "key": key}
                for key, version in added
                for tool in version.tools
            ]
            for statement, rows in (
                (self._save_content, content_rows),
                (_ADD_VERSION, [_version_row(key, version) for key, version in added]),
                (self._declare, declared),
            ):
                if rows:
                    connection.execute(statement, rows)
        return result

    def add_content(self, content: VersionContent) -> None:
        """Store the content of a proposal, which is not part of the history."""
        with self._writing(versions) as connection:
            connection.execute(self._save_content, [_content_row(content)])

    def sources(self, digest: str, file: str) -> dict[str, bytes] | None:
        """Return the files of a version, the tool's own first; None if it is unknown.

        Damage raises StoreError; to detect tampering, compare `spec.version_digest`.
        """
        data = self._content(_SOURCES, digest, file)
        return None if data is None else read_sources(data)

    def reading(self, digest: str, file: str) -> Reading | None:
        """Return the reading stored with a version.

        None if the version is unknown or its reading has other fields; then read its sources again.
        """
        data = self._content(_READING, digest, file)
        return None if data is None else read_reading(data)

    def history(self, catalog: str, file: str) -> list[Version]:
        """Return all versions of a file, newest first."""
        with self._database.transaction(reading=True) as connection:
            return _history(connection, [hash_of([catalog, file])])

    def history_of_tool(self, catalog: str, tool: str) -> list[Version]:
        """Return all versions of any file that declare this tool, newest first."""
        with self._database.transaction(reading=True) as connection:
            # Without statistics, PostgreSQL would scan the whole table for a join.
            parameters = {"the_key": hash_of([catalog, tool])}
            history = _history(connection, connection.scalars(_DECLARING, parameters).all())
        return [version for version in history if tool in version.tools]

    def add_usage(self, catalog: str, tool: str, prompt: str, at: str) -> None:
        """Record a prompt that a tool answered; the 50 newest distinct ones are kept.

        `at` is UTC, ISO 8601, ending in Z.
        """
        key = {"the_key": hash_of([catalog, tool])}
        row = {"catalog": hash_of([catalog]), "key": key["the_key"], "tool": tool}
        with self._writing(usages) as connection:
            connection.execute(_SAME_USAGE, {**key, "the_prompt": prompt})
            connection.execute(_ADD_USAGE, {**row, "prompt": prompt, "at": at})
            connection.execute(_OLD_USAGES, key)

    def usages(self, catalog: str) -> dict[str, tuple[str, ...]]:
        """Return the recorded prompts by tool, newest first."""
        prompts_by_tool: dict[str, list[str]] = {}
        for tool, prompt in self._database.read(_USAGES, the_catalog=hash_of([catalog])):
            prompts_by_tool.setdefault(tool, []).append(prompt)
        return {tool: tuple(prompts) for tool, prompts in prompts_by_tool.items()}

    def clear_usages(self, catalog: str, tool: str | None = None) -> None:
        """Delete the recorded prompts of a tool, or of all tools of the catalog."""
        with self._writing(usages) as connection:
            if tool is None:
                connection.execute(_CLEAR_CATALOG, {"the_catalog": hash_of([catalog])})
            else:
                connection.execute(_CLEAR_TOOL, {"the_key": hash_of([catalog, tool])})

    def _content(self, statement: Select[Any], digest: str, file: str) -> bytes | None:
        row = self._database.read_one(statement, the_key=hash_of([digest, file]))
        return None if row is None else row[0]

    @contextmanager
    def _writing(self, table: Table) -> Iterator[Connection]:
        with self._database.transaction() as connection:
            self._database.lock(connection, table)
            yield connection


def _history(connection: Connection, keys: Sequence[str]) -> list[Version]:
    return [_version(row) for row in connection.execute(_HISTORY, {"the_keys": keys})]


def _newest(connection: Connection, keys: list[str]) -> dict[str, Version]:
    newest: dict[str, Version] = {}
    for start in range(0, len(keys), _KEY_BATCH):
        batch = {"the_keys": keys[start : start + _KEY_BATCH]}
        newest |= {row.key: _version(row) for row in connection.execute(_NEWEST, batch)}
    return newest


def _content_row(content: VersionContent) -> dict[str, Any]:
    return {
        "key": hash_of([content.reading.digest, content.file]),
        "reading": write_reading(content.reading),
        "sources": write_sources(content.sources),
    }


def _next_version(last: Version | None, content: VersionContent, arrival: Arrival) -> Version:
    digest = content.reading.digest
    tools = tuple(t.name for t in content.reading.tools if t.name not in content.refused)
    if last and (last.digest, last.action, last.tools) == (digest, arrival.action, tools):
        return last
    return Version(
        file=content.file,
        number=last.number + 1 if last else 1,
        digest=digest,
        tools=tools,
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
        raise StoreError("a row of the version history cannot be read", hint=hint) from error
