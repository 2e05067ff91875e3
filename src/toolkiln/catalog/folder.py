"""The files of a tools folder on disk, and a cache of their readings.

The folder knows which files to reload when a path changes: the cost depends on the change, not
on the size of the folder. `catalog` decides what is served.
"""

import gc
import hashlib
import json
import os
import sqlite3
import stat
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from toolkiln.catalog.files import is_tool_path, read_file, sources, tool_files
from toolkiln.errors import InputError
from toolkiln.model.catalog import FileVersion, ReadHead, Sources
from toolkiln.model.source import Reading
from toolkiln.model.spec import Dialect
from toolkiln.spec import data_files
from toolkiln.spec.local_imports import version_digest
from toolkiln.spec.requirements import listed_packages

_PACKAGE = Path(__file__).parents[1]
_READ_ATTEMPTS = 5
_DATABASE_TIMEOUT = 1.0
_MAX_STALE = 1000
_MANY_OBJECTS = 20_000
"""New objects above which the garbage collector should not visit them one by one."""


class _CachedReading(NamedTuple):
    file: str
    sha256: str
    head: str
    reading: bytes


def read_version(file: Path, packages: Set[str] = frozenset()) -> FileVersion:
    """Read a file with its bytes; retries if it changes meanwhile."""
    for _ in range(_READ_ATTEMPTS):
        reading = read_file(file, packages)
        if not reading.tools:
            return FileVersion(reading, {})
        with suppress(InputError):  # it changed between the two reads
            return FileVersion(reading, sources(reading))
    return FileVersion(reading.model_copy(update={"tools": ()}), {})


def read_sources(sources: Sources, file: Path, packages: Set[str] = frozenset()) -> Reading:
    """Read an archived version from its bytes."""
    with TemporaryDirectory() as folder:
        for name, data in sources.items():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        reading = read_file(Path(folder, file.name), packages)
    tools = tuple(spec.model_copy(update={"path": str(file)}) for spec in reading.tools)
    findings = tuple(
        finding.model_copy(
            update={"path": finding.path and finding.path.replace(folder, str(file.parent))}
        )
        for finding in reading.findings
    )
    return reading.model_copy(update={"path": str(file), "tools": tools, "findings": findings})


class Cache:
    """A cache of the readings of one folder in a SQLite file; disabled without a path."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._packages: Set[str] = frozenset()

    def read_all(
        self, files: Iterable[str], packages: Set[str] = frozenset()
    ) -> dict[str, FileVersion]:
        """Read files, from the cache if their bytes and the folder's packages are unchanged."""
        self._packages = packages
        found: dict[str, FileVersion] = {}
        fresh: dict[str, FileVersion] = {}
        folders = _Folders()
        cached = self._load()
        for file in files:
            entry = cached.get(file)
            read = entry and _still_valid(file, entry, folders, packages)
            if not read:
                read = fresh[file] = read_version(Path(file), packages)
            found[file] = read
        stale = cached.keys() - found.keys()
        self._save(fresh, stale if len(stale) > len(found) + _MAX_STALE else ())
        return found

    def _load(self) -> Mapping[str, _CachedReading]:
        if self._file is None:
            return {}
        try:
            if not self._file.exists():
                return {}
            with closing(sqlite3.connect(self._file, timeout=_DATABASE_TIMEOUT)) as database:
                if database.execute("PRAGMA user_version").fetchone()[0] != self._version:
                    return {}
                rows = database.execute("SELECT file, sha256, head, reading FROM readings")
                return {row[0]: _CachedReading._make(row) for row in rows}
        except (sqlite3.Error, OSError):
            return {}

    def _save(self, fresh: Mapping[str, FileVersion], stale: Iterable[str]) -> None:
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
            with (
                closing(sqlite3.connect(self._file, timeout=_DATABASE_TIMEOUT)) as database,
                database,
            ):
                database.execute("PRAGMA synchronous = OFF")
                if database.execute("PRAGMA user_version").fetchone()[0] != self._version:
                    database.execute("DROP TABLE IF EXISTS readings")
                    database.execute(f"PRAGMA user_version = {self._version}")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS readings "
                    "(file TEXT PRIMARY KEY, sha256 TEXT, head TEXT, reading BLOB) WITHOUT ROWID"
                )
                database.executemany(
                    "DELETE FROM readings WHERE file = ?", [(file,) for file in stale]
                )
                database.executemany("REPLACE INTO readings VALUES (?, ?, ?, ?)", rows)
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):  # damaged, not busy or full
                with suppress(OSError):
                    self._file.unlink()
        except OSError:
            return  # a read-only folder has no cache

    @property
    def _version(self) -> int:
        """A number that changes with the reading code and what readings depend on."""
        listed = " ".join(sorted(self._packages)).encode()
        return zlib.crc32(listed, _code_version()) & 0x7FFFFFFF


class _Folders:
    """The names in folders, each listed once."""

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


def _still_valid(
    file: str, cached: _CachedReading, folders: _Folders, packages: Set[str]
) -> FileVersion | None:
    folder, slash, own_name = file.rpartition("/")  # pathlib would double the time
    beside = folder + slash
    try:
        own = _bytes(file)
        if hashlib.sha256(own).hexdigest() != cached.sha256:
            return None
        head = ReadHead._make(map(_whole, json.loads(cached.head)))
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
    return FileVersion.packed(
        head, sources, partial(_unpacked, cached.reading, sources, file, packages)
    )


def _are_same_data(folder: str, head: ReadHead) -> bool:
    """Return whether the patterns of a version still match the same data files."""
    try:
        found = {n for p in head.file_patterns for n in data_files.names(folder or ".", p)}
    except data_files.UnusableFile:
        return False
    return found == set(head.data_files)


def _whole(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part


def _unpacked(packed: bytes, sources: Sources, file: str, packages: Set[str]) -> Reading:
    try:
        return Reading.model_validate_json(packed)
    except ValueError:  # damaged: read the sources again
        return read_sources(sources, Path(file), packages)


def _bytes(file: str) -> bytes:
    """Read a file in half the time of `Path.read_bytes`."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a pipe
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector while many long-lived objects are created.

    At the end, freezing and unfreezing moves them to the oldest generation without a scan.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # Objects frozen by others must stay frozen; counting them is slow if they are many.
            if gc.get_count()[0] > _MANY_OBJECTS and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _code_version() -> int:
    """Return a number that changes with the reading code and the Python version."""
    parts = [sys.version]
    for pattern in ("spec/**/*.py", "model/**/*.py", "catalog/**/*.py", "appearance.py"):
        for file in sorted(_PACKAGE.glob(pattern)):
            status = file.stat()
            parts.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    return zlib.crc32("\n".join(parts).encode()) & 0x7FFFFFFF


_Dependents = dict[Path, set[str]]


class ToolFolder:
    """The files of one folder, or a single file, and their current versions."""

    def __init__(self, place: Path, cache: Cache) -> None:
        self.place = place
        self._is_folder = not place.is_file()
        self.root = place if self._is_folder else place.parent
        self._prefix = "" if str(self.root) == "." else f"{self.root}/"
        """Prefix of a key in a path; pathlib would be slow for ten thousand files."""
        self._cache = cache
        self.reads: dict[str, FileVersion] = {}
        self._loaded: dict[str, FileVersion] = {}
        """As `reads`, including files that are only helper modules."""
        self._dependents: _Dependents = {}
        """The files to reload when a helper or data file changes or appears."""
        self._declaring: _Dependents = {}
        """The files with data file patterns, by the folder the patterns start from."""

    def key(self, file: Path) -> str:
        """Return the name of a file in the catalog: its path relative to the folder.

        Raises:
            InputError: it is not in the tools folder.
        """
        try:
            # A link in the folder belongs to the folder; do not resolve its target.
            file = file.parent.resolve() / file.name
            return file.relative_to(self.root.resolve()).as_posix()
        except ValueError:
            raise InputError(
                f"{file} is not in the tools folder {self.root}",
                hint="select its folder with --tools",
            ) from None

    @property
    def packages(self) -> frozenset[str]:
        """Packages that the folder's `requirements.txt` lists for all its tools."""
        return listed_packages(self.root)

    def read(self, key: str) -> FileVersion | None:
        """Read one file; None if it does not exist."""
        file = self.root / key
        try:
            is_there = file.is_file()
        except OSError:  # its folder is not accessible: reading it reports that
            is_there = True
        return read_version(file, self.packages) if is_there else None

    def users(self, key: str) -> set[str]:
        """Return the loaded files that import this one."""
        users = self._dependents.get(self.root / key, ())
        return {
            user for user in users if self.root / key in self._helpers(user, self._loaded[user])
        }

    def declaring(self, path: Path) -> set[str]:
        """Return the loaded files with a data file pattern that matches this path."""
        if not self._declaring:
            return set()
        found: set[str] = set()
        for parent in path.parents:
            for key in self._declaring.get(parent, ()):
                folder = (self.root / key).parent
                name = path.relative_to(folder).as_posix()
                if any(data_files.matches(p, name) for p in self._loaded[key].file_patterns):
                    found.add(key)
        return found

    def depends_on(self, path: Path) -> bool:
        """Return whether a loaded file imports or includes this path, or would if it existed."""
        return bool(self._dependents.get(path)) or bool(self.declaring(path))

    def everything(self) -> dict[str, FileVersion]:
        """Read all files, except those that are only helper modules.

        Raises:
            InputError: the path does not exist, or contains no Python file.
        """
        return self._without_helpers(*self._read_all())

    def folders(self) -> set[Path]:
        """Return the folders that may contain tools, helpers and data files."""
        if self._is_folder:
            return set(folders_below(self.root))
        beside = {path.parent for path in self._dependents}
        data = {below for folder in self._declaring for below in folders_below(folder)}
        return {folder for folder in (self.root, *beside, *data) if folder.is_dir()}

    def load(self, keys: Iterable[str] | None) -> None:
        """Load these files, or all, and forget the rest."""
        if keys is None:
            self._loaded, self._dependents = self._read_all()
            self.reads = self._without_helpers(self._loaded, self._dependents)
        else:
            files = {self._prefix + key: key for key in keys if self.includes(key)}
            found = self._cache.read_all(filter(os.path.isfile, files), self.packages)
            self._loaded = {files[file]: read for file, read in found.items()}
            self._dependents = _index(self._loaded, self._neighbours)
            self.reads = dict(self._loaded)
        self._declaring = _index(self._loaded, self._bases)

    def reload(self, paths: Iterable[Path], files: Container[str] | None) -> set[str]:
        """Reload the files affected by changes of these paths, out of `files` or all.

        Returns the files that may have changed.
        """
        keys: set[str] = set()
        for path in paths:
            keys |= self._affected(path)
        for key in list(keys):
            is_loaded = self.includes(key) and (files is None or key in files)
            keys |= self._replace(key, self.read(key) if is_loaded else None)
        for key in keys:
            read = self._loaded.get(key)
            if read is None or (files is None and self._is_helper(key, read, self._dependents)):
                self.reads.pop(key, None)
            else:
                self.reads[key] = read
        return keys

    def _read_all(self) -> tuple[dict[str, FileVersion], _Dependents]:
        found = self._cache.read_all(map(str, tool_files([self.place])), self.packages)
        reads = {file.removeprefix(self._prefix): read for file, read in found.items()}
        return reads, _index(reads, self._neighbours)

    def _replace(self, key: str, read: FileVersion | None) -> set[str]:
        """Set the version of a file. Returns helpers that it started or stopped importing."""
        old = self._loaded.pop(key, None)
        for path in self._neighbours(key, old):
            self._dependents[path].discard(key)
        for path in self._neighbours(key, read):
            self._dependents.setdefault(path, set()).add(key)
        for folder in self._bases(key, old):
            self._declaring[folder].discard(key)
        for folder in self._bases(key, read):
            self._declaring.setdefault(folder, set()).add(key)
        if read is not None:
            self._loaded[key] = read
        changed = self._helpers(key, old) ^ self._helpers(key, read)
        return {path.relative_to(self.root).as_posix() for path in changed}

    def _affected(self, path: Path) -> set[str]:
        try:
            key = path.relative_to(self.root).as_posix()
        except ValueError:
            return set()
        keys = set(self._dependents.get(path, ())) | self.declaring(path)
        if path.suffix == ".py" and not is_folder(path):
            # It may be a missing module that a file imports, or make its folder one.
            for sought in (path.with_suffix(""), path.parent):
                keys |= self._dependents.get(sought, set())
            return {key, *keys}
        prefix = "" if key == "." else f"{key}/"
        keys |= {loaded for loaded in self._loaded if loaded.startswith(prefix)}
        for neighbour, users in self._dependents.items():
            if str(neighbour).startswith(f"{path}/"):
                keys |= users
        for folder, users in self._declaring.items():
            if (
                folder == path
                or path in folder.parents
                or (folder in path.parents and path.is_dir())
            ):
                keys |= users
        if not path.is_symlink():
            for folder, names in _walk(path):
                below = folder.relative_to(self.root)
                keys |= {(below / name).as_posix() for name in names if name.endswith(".py")}
        return keys

    def _without_helpers(
        self, reads: Mapping[str, FileVersion], dependents: _Dependents
    ) -> dict[str, FileVersion]:
        return {
            key: read for key, read in reads.items() if not self._is_helper(key, read, dependents)
        }

    def _is_helper(self, key: str, read: FileVersion, dependents: _Dependents) -> bool:
        """Return whether a file is imported by others and declares no tool explicitly."""
        users = dependents.get(self.root / key)
        if not users or any(spec.dialect is not Dialect.FUNCTION for spec in read.reading.tools):
            return False
        # Two files that import each other are not helpers of each other.
        own = self._helpers(key, read)
        return any(self.root / user not in own for user in users)

    def includes(self, key: str) -> bool:
        """Return whether a file belongs to the catalog; a catalog of one file has no others."""
        return is_tool_path(key) if self._is_folder else self.place == self.root / key

    def _neighbours(self, key: str, read: FileVersion | None) -> set[Path]:
        """Return the helpers and data files of a file, including missing ones."""
        if read is None or not (read.helpers or read.sought or read.file_patterns):
            return set()
        folder = (self.root / key).parent
        plain = (pattern for pattern in read.file_patterns if not data_files.is_wild(pattern))
        return {folder / name for name in (*read.helpers, *read.sought, *read.data_files, *plain)}

    def _bases(self, key: str, read: FileVersion | None) -> set[Path]:
        """Return the folders that the patterns of a file start from."""
        if read is None or not read.file_patterns:
            return set()
        folder = (self.root / key).parent
        return {folder / data_files.base(p) for p in read.file_patterns if data_files.is_wild(p)}

    def _helpers(self, key: str, read: FileVersion | None) -> set[Path]:
        folder = (self.root / key).parent
        return {folder / name for name in read.helpers} if read else set()


def _index(
    reads: Mapping[str, FileVersion], paths: Callable[[str, FileVersion], set[Path]]
) -> _Dependents:
    found: _Dependents = defaultdict(set)
    for key, read in reads.items():
        for path in paths(key, read):
            found[path].add(key)
    return found


def folders_below(folder: Path) -> Iterator[Path]:
    """Yield a folder and its subfolders that may contain modules; does not follow links."""
    return (folder for folder, _ in _walk(folder))


def may_contain_modules(name: str) -> bool:
    """Return whether a folder of this name may contain tools, helpers or data files."""
    return not name.startswith(".") and name not in data_files.SKIPPED_FOLDERS


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder and not a link."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = filter(may_contain_modules, folders)
        yield Path(parent), names
