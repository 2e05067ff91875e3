"""The files of a tools folder as they are on disk, each by its path below the folder.

It knows which files have to be read again when a path changes, so that looking after a
large folder costs no more than looking after a small one. What is served is not its
business.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from toolkiln.catalog.cache import Cache, read_version
from toolkiln.catalog.files import is_tool_path, tool_files
from toolkiln.errors import InputError
from toolkiln.model import Dialect, Read
from toolkiln.spec import data_files

_Dependents = dict[Path, set[str]]


class Disk:
    """What the files of one folder, or one file, say."""

    def __init__(self, place: Path, cache: Cache) -> None:
        self.place = place
        self._is_folder = not place.is_file()
        self.root = place if self._is_folder else place.parent
        self._prefix = "" if str(self.root) == "." else f"{self.root}/"
        """What pathlib puts before a key; it takes its time with ten thousand."""
        self._cache = cache
        self.reads: dict[str, Read] = {}
        self._known: dict[str, Read] = {}
        """As `reads`, with files that only help others."""
        self._dependents: _Dependents = {}
        """Which files to read again when a helper or data file changes or appears."""
        self._declaring: _Dependents = {}
        """Which files have patterns for data files that start from a folder."""

    def key(self, file: Path) -> str:
        """A file's name in the catalog.

        Raises:
            InputError: it does not lie in the tools' folder.
        """
        try:
            # A link in the folder is a file of the folder, wherever it leads.
            file = file.parent.resolve() / file.name
            return file.relative_to(self.root.resolve()).as_posix()
        except ValueError:
            raise InputError(
                f"{file} is not in the tools' folder {self.root}",
                hint="name the folder it belongs to with --tools",
            ) from None

    def read(self, key: str) -> Read | None:
        """What one file says at this moment; None if it is not there."""
        file = self.root / key
        try:
            is_there = file.is_file()
        except OSError:  # it lies in a folder that may not be entered: reading says so
            is_there = True
        return read_version(file) if is_there else None

    def users(self, key: str) -> set[str]:
        """The files, of those that were looked at, that help themselves with one."""
        users = self._dependents.get(self.root / key, ())
        return {user for user in users if self.root / key in self._helpers(user, self._known[user])}

    def declaring(self, path: Path) -> set[str]:
        """The files, of those that were looked at, that have a pattern for this path."""
        if not self._declaring:
            return set()
        found: set[str] = set()
        for parent in path.parents:
            for key in self._declaring.get(parent, ()):
                folder = (self.root / key).parent
                name = path.relative_to(folder).as_posix()
                if any(data_files.matches(p, name) for p in self._known[key].file_patterns):
                    found.add(key)
        return found

    def depends_on(self, path: Path) -> bool:
        """Whether a file that was looked at has, or would have, something of this path."""
        return bool(self._dependents.get(path)) or bool(self.declaring(path))

    def everything(self) -> dict[str, Read]:
        """What all files say, but for those that only help others.

        Raises:
            InputError: the place does not exist, or holds no Python file.
        """
        return self._without_helpers(*self._read_all())

    def folders(self) -> set[Path]:
        """Where tools and their helpers may lie."""
        if self._is_folder:
            return set(folders_below(self.root))
        beside = {path.parent for path in self._dependents}
        data = {below for folder in self._declaring for below in folders_below(folder)}
        return {folder for folder in (self.root, *beside, *data) if folder.is_dir()}

    def load(self, keys: Iterable[str] | None) -> None:
        """Read these files, or all there are, forgetting what was known."""
        if keys is None:
            self._known, self._dependents = self._read_all()
            self._declaring = self._index_patterns(self._known)
            self.reads = self._without_helpers(self._known, self._dependents)
        else:
            files = {self._prefix + key: key for key in keys if self.is_ours(key)}
            found = self._cache.read_all(filter(os.path.isfile, files))
            self._known = {files[file]: read for file, read in found.items()}
            self._dependents = self._index(self._known)
            self._declaring = self._index_patterns(self._known)
            self.reads = dict(self._known)

    def look_again(self, paths: Iterable[Path], wanted: Container[str] | None) -> set[str]:
        """Read what changed with these paths, of the files wanted or, if None, of all.

        Returns the files that may say something else.
        """
        keys: set[str] = set()
        for path in paths:
            keys |= self._affected(path)
        for key in list(keys):
            is_wanted = self.is_ours(key) and (wanted is None or key in wanted)
            keys |= self._replace(key, self.read(key) if is_wanted else None)
        for key in keys:
            read = self._known.get(key)
            if read is None or (wanted is None and self._only_helps(key, read, self._dependents)):
                self.reads.pop(key, None)
            else:
                self.reads[key] = read
        return keys

    def _read_all(self) -> tuple[dict[str, Read], _Dependents]:
        found = self._cache.read_all(map(str, tool_files([self.place])))
        reads = {file.removeprefix(self._prefix): read for file, read in found.items()}
        return reads, self._index(reads)

    def _replace(self, key: str, read: Read | None) -> set[str]:
        """Know this of a file; the files that it helps itself with no longer, or from now on."""
        old = self._known.pop(key, None)
        for path in self._neighbours(key, old):
            self._dependents[path].discard(key)
        for path in self._neighbours(key, read):
            self._dependents.setdefault(path, set()).add(key)
        for folder in self._bases(key, old):
            self._declaring[folder].discard(key)
        for folder in self._bases(key, read):
            self._declaring.setdefault(folder, set()).add(key)
        if read is not None:
            self._known[key] = read
        changed = self._helpers(key, old) ^ self._helpers(key, read)
        return {path.relative_to(self.root).as_posix() for path in changed}

    def _affected(self, path: Path) -> set[str]:
        try:
            key = path.relative_to(self.root).as_posix()
        except ValueError:
            return set()
        keys = set(self._dependents.get(path, ())) | self.declaring(path)
        if path.suffix == ".py" and not is_folder(path):
            # It may be a module that was sought, or make its folder a package that was.
            for sought in (path.with_suffix(""), path.parent):
                keys |= self._dependents.get(sought, set())
            return {key, *keys}
        prefix = "" if key == "." else f"{key}/"
        keys |= {known for known in self._known if known.startswith(prefix)}
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
        self, reads: Mapping[str, Read], dependents: _Dependents
    ) -> dict[str, Read]:
        return {
            key: read for key, read in reads.items() if not self._only_helps(key, read, dependents)
        }

    def _only_helps(self, key: str, read: Read, dependents: _Dependents) -> bool:
        """Whether others import a file that does not declare tools of its own on purpose."""
        users = dependents.get(self.root / key)
        if not users or any(spec.dialect is not Dialect.FUNCTION for spec in read.reading.tools):
            return False
        # Of two files that import each other neither is just the other's helper.
        own = self._helpers(key, read)
        return any(self.root / user not in own for user in users)

    def is_ours(self, key: str) -> bool:
        """Whether a file of the folder is one to read: a catalog of one file has no others."""
        return is_tool_path(key) if self._is_folder else self.place == self.root / key

    def _index(self, reads: Mapping[str, Read]) -> _Dependents:
        dependents: _Dependents = defaultdict(set)
        for key, read in reads.items():
            for path in self._neighbours(key, read):
                dependents[path].add(key)
        return dependents

    def _index_patterns(self, reads: Mapping[str, Read]) -> _Dependents:
        declaring: _Dependents = defaultdict(set)
        for key, read in reads.items():
            if read.file_patterns:
                for folder in self._bases(key, read):
                    declaring[folder].add(key)
        return declaring

    def _neighbours(self, key: str, read: Read | None) -> set[Path]:
        """What a file depends on: helpers and data files, those that are not there too."""
        if read is None or not (read.helpers or read.sought or read.file_patterns):
            return set()
        folder = (self.root / key).parent
        plain = (pattern for pattern in read.file_patterns if not data_files.is_wild(pattern))
        return {folder / name for name in (*read.helpers, *read.sought, *read.data_files, *plain)}

    def _bases(self, key: str, read: Read | None) -> set[Path]:
        """The folders that the patterns of a file start from."""
        patterns = read.file_patterns if read else ()
        folder = (self.root / key).parent
        return {folder / data_files.base(p) for p in patterns if data_files.is_wild(p)}

    def _helpers(self, key: str, read: Read | None) -> set[Path]:
        folder = (self.root / key).parent
        return {folder / name for name in read.helpers} if read else set()


def folders_below(folder: Path) -> Iterator[Path]:
    """A folder and those below it that modules may lie in; links are not followed."""
    return (folder for folder, _ in _walk(folder))


def may_hold_modules(name: str) -> bool:
    """Whether tools, their helpers or data files may lie in a folder of this name."""
    return not name.startswith(".") and name not in data_files.SKIPPED_FOLDERS


def is_folder(path: Path) -> bool:
    """Whether there is a folder, and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = filter(may_hold_modules, folders)
        yield Path(parent), names
