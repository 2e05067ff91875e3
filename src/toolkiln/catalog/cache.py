"""Readings kept on disk, so that files that have not changed need not be read anew.

An entry holds for the exact bytes of a file, its helpers and its data files, as long as none of
the modules that were looked for in its folder appears, and its patterns mean the same data files.
It is a cache: it may be lost, damaged or out of reach at any time, and reading goes on without it.
"""

import gc
import hashlib
import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from toolkiln.catalog.files import read_file, sources
from toolkiln.errors import InputError
from toolkiln.model import Read, ReadHead, Reading, Sources
from toolkiln.spec import data_files, version_digest

_PACKAGE = Path(__file__).parents[1]
_TRIES = 5
_PATIENCE = 1.0
_MOST_STALE = 1000
_MANY = 20_000
"""Objects that the collector had better not look at one by one."""


class _Kept(NamedTuple):
    file: str
    sha256: str
    head: str
    reading: bytes


def read_version(file: Path) -> Read:
    """What a file says, with its bytes; somebody may be writing to it meanwhile."""
    for _ in range(_TRIES):
        reading = read_file(file)
        if not reading.tools:
            return Read(reading, {})
        with suppress(InputError):  # it changed between the two looks at it
            return Read(reading, sources(reading))
    return Read(reading.model_copy(update={"tools": ()}), {})


def read_sources(sources: Sources, file: Path) -> Reading:
    """What an earlier version of a file said, by its bytes: nobody else's word is taken for it."""
    with TemporaryDirectory() as folder:
        for name, data in sources.items():
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        reading = read_file(Path(folder, file.name))
    tools = tuple(spec.model_copy(update={"path": str(file)}) for spec in reading.tools)
    findings = tuple(
        finding.model_copy(
            update={"path": finding.path and finding.path.replace(folder, str(file.parent))}
        )
        for finding in reading.findings
    )
    return reading.model_copy(update={"path": str(file), "tools": tools, "findings": findings})


class Cache:
    """The readings of one folder, in one SQLite file; without a path nothing is kept."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def read_all(self, files: Iterable[str]) -> dict[str, Read]:
        """What each file says, from the cache where its bytes are the same."""
        found: dict[str, Read] = {}
        fresh: dict[str, Read] = {}
        folders = _Folders()
        kept = self._load()
        for file in files:
            known = kept.get(file)
            read = known and _still_valid(file, known, folders)
            if not read:
                read = fresh[file] = read_version(Path(file))
            found[file] = read
        stale = kept.keys() - found.keys()
        self._save(fresh, stale if len(stale) > len(found) + _MOST_STALE else ())
        return found

    def _load(self) -> Mapping[str, _Kept]:
        if self._file is None:
            return {}
        try:
            if not self._file.exists():
                return {}
            with closing(sqlite3.connect(self._file, timeout=_PATIENCE)) as database:
                if database.execute("PRAGMA user_version").fetchone()[0] != _code_version():
                    return {}
                rows = database.execute("SELECT file, sha256, head, reading FROM readings")
                return {row[0]: _Kept._make(row) for row in rows}
        except (sqlite3.Error, OSError):
            return {}

    def _save(self, fresh: Mapping[str, Read], stale: Iterable[str]) -> None:
        if self._file is None or not fresh:
            return
        rows = [
            (
                file,
                hashlib.sha256(next(iter(read.sources.values()))).hexdigest(),
                json.dumps(read.head),
                read.reading.model_dump_json(exclude_defaults=True).encode(),
            )
            for file, read in fresh.items()
            if read.sources
        ]
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._file, timeout=_PATIENCE)) as database, database:
                database.execute("PRAGMA synchronous = OFF")
                if database.execute("PRAGMA user_version").fetchone()[0] != _code_version():
                    database.execute("DROP TABLE IF EXISTS readings")
                    database.execute(f"PRAGMA user_version = {_code_version()}")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS readings "
                    "(file TEXT PRIMARY KEY, sha256 TEXT, head TEXT, reading BLOB) WITHOUT ROWID"
                )
                database.executemany(
                    "DELETE FROM readings WHERE file = ?", [(file,) for file in stale]
                )
                database.executemany("REPLACE INTO readings VALUES (?, ?, ?, ?)", rows)
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):  # damaged, not just busy or full
                with suppress(OSError):
                    self._file.unlink()
        except OSError:
            return  # a folder that cannot be written has no cache


class _Folders:
    """What lies in folders, each looked at once."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def has_module(self, stem: str) -> bool:
        folder, _, name = stem.rpartition("/")
        names = self._names.get(folder)
        if names is None:
            try:
                names = {entry.name for entry in os.scandir(folder or ".")}
            except OSError:
                names = set()
            self._names[folder] = names
        return name in names or f"{name}.py" in names


def _still_valid(file: str, kept: _Kept, folders: _Folders) -> Read | None:
    folder, slash, own_name = file.rpartition("/")  # pathlib would take as long as the rest
    beside = folder + slash
    try:
        own = _bytes(file)
        if hashlib.sha256(own).hexdigest() != kept.sha256:
            return None
        head = ReadHead._make(map(_whole, json.loads(kept.head)))
        others = {name: _bytes(beside + name) for name in (*head.helpers, *head.data_files)}
        if head.file_patterns and not _are_same_data(folder, head):
            return None
    except (OSError, ValueError, TypeError):
        return None
    if any(folders.has_module(beside + stem) for stem in head.sought):
        return None
    if others and version_digest(own, others) != head.digest:
        return None
    sources = {own_name: own, **others}
    return Read.packed(head, sources, partial(_unpacked, kept.reading, sources, file))


def _are_same_data(folder: str, head: ReadHead) -> bool:
    """Whether the patterns of a version mean the data files that it has."""
    try:
        found = {n for p in head.file_patterns for n in data_files.names(folder or ".", p)}
    except data_files.UnusableFile:
        return False
    return found == set(head.data_files)


def _whole(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part


def _unpacked(packed: bytes, sources: Sources, file: str) -> Reading:
    try:
        return Reading.model_validate_json(packed)
    except ValueError:  # damaged: the bytes themselves say the same
        return read_sources(sources, Path(file))


def _bytes(file: str) -> bytes:
    """As `Path(file).read_bytes()`, in half the time."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a pipe
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


@contextmanager
def without_collector() -> Iterator[None]:
    """Many thousand objects arrive to stay: the collector would look at each a dozen times.

    In the end they join the old objects without a look, by being frozen for an instant.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # What others froze is to stay so; to ask takes as long as they have frozen much.
            if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _code_version() -> int:
    """Changes with the code that reads files and the Python that parses them."""
    parts = [sys.version]
    for layer in ("spec", "model", "catalog", "looks"):
        for file in sorted((_PACKAGE / layer).rglob("*.py")):
            status = file.stat()
            parts.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    return zlib.crc32("\n".join(parts).encode()) & 0x7FFFFFFF
