"""Atomic changes of a tools folder: a lock, a journal and recovery.

A change writes a tool's file and the manifest, and a process may die in between. The journal
names both before either is touched; the new file is written to a temporary name and renamed (or
the old one removed) after the manifest is replaced. The next process that opens the folder
completes or discards an interrupted change.
"""

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolkiln.catalog import manifest as manifests
from toolkiln.catalog.manifest import MANIFEST, Manifest, ManifestError, MissingManifest
from toolkiln.errors import InputError

_JOURNAL = ".toolkiln-journal.json"
_PATIENCE = 30.0
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


class _JournalEntry(NamedTuple):
    """The content of the journal, with SHA-256 digests of files."""

    file: str
    before: str | None
    """Digest of the old file; None: it did not exist."""
    after: str | None
    """Digest of the new file; None: it is removed."""
    manifest: str
    """Digest of the new manifest."""


class EditConflict(InputError):
    """A concurrent change of the same file or folder."""

    code = "conflict"


@dataclass(frozen=True)
class Installation:
    """A file to write or remove together with the manifest."""

    file: str
    data: bytes | None
    """None: remove the file."""


@contextmanager
def lock_folder(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock a folder against changes by other threads and processes.

    Raises:
        EditConflict: the lock was not released in time.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise EditConflict(
                        f"another process is changing {folder}", hint="try again later"
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def commit(folder: Path, manifest: bytes, install: Installation | None = None) -> None:
    """Replace the manifest and, atomically with it, write or remove a file.

    The caller must have the lock.

    Raises:
        OSError: writing failed; the folder is unchanged.
    """
    try:
        if install is not None:
            target = folder / install.file
            if target.is_dir():
                raise InputError(f"{target} is a folder", hint="choose another name")
            after = None if install.data is None else _sha256(install.data)
            entry = _JournalEntry(install.file, _sha256_of(target), after, _sha256(manifest))
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(folder / _JOURNAL, json.dumps(entry._asdict()).encode())
            if install.data is not None:
                _write_temporary(target, install.data)
        _replace(folder / MANIFEST, manifest)
    except BaseException:  # undo after any failure
        recover(folder)
        raise
    with suppress(OSError):  # the change is committed: the next process completes it
        recover(folder)


def needs_recovery(folder: Path) -> bool:
    """Return whether a change is in progress or was interrupted."""
    names = (folder / _JOURNAL, _temporary(folder / _JOURNAL), _temporary(folder / MANIFEST))
    return any(name.exists() for name in names)


def recover(folder: Path) -> None:
    """Complete an interrupted change if its manifest was written, or else discard it.

    The caller must have the lock. A file edited in the meantime is left alone.
    """
    journal = folder / _JOURNAL
    entry = _journal_entry(folder)
    if entry is not None:
        target = folder / entry.file
        written = _temporary(target)
        expected = entry.manifest, entry.before, entry.after
        if tuple(map(_sha256_of, (folder / MANIFEST, target, written))) == expected:
            if entry.after is None:
                target.unlink(missing_ok=True)
            else:
                written.replace(target)
        written.unlink(missing_ok=True)
    for leftover in (_temporary(folder / MANIFEST), _temporary(journal), journal):
        leftover.unlink(missing_ok=True)


def _journal_entry(folder: Path) -> _JournalEntry | None:
    try:
        entry = _JournalEntry(**json.loads((folder / _JOURNAL).read_bytes()))
        parent = (folder / entry.file).parent.resolve()
        return entry if parent.is_relative_to(folder.resolve()) else None
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):
        return None  # not ours: journals are written atomically


def _replace(file: Path, data: bytes) -> None:
    """Replace a file atomically, even across a power failure."""
    _write_temporary(file, data)
    _temporary(file).replace(file)


def _write_temporary(file: Path, data: bytes) -> None:
    part = _temporary(file)
    with part.open("wb") as handle:
        if file.exists():
            part.chmod(file.stat().st_mode & 0o777)
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _temporary(file: Path) -> Path:
    """Return the temporary name of a file; always the same, so recovery finds it."""
    # A hash, because the file's own name may have the maximum length.
    return file.with_name(f".toolkiln-{_sha256(os.fsencode(file.name))[:16]}.part")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sha256_of(file: Path) -> str | None:
    try:
        return _sha256(file.read_bytes())
    except ValueError:
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


class ManifestFile:
    """Reads and replaces the manifest of one folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._cached: tuple[str, Manifest] | None = None
        """As last read or written, with its digest."""

    def read(self) -> Manifest:
        """Return the current manifest.

        Raises:
            ManifestError: it is missing or unusable.
        """
        data = manifests.read_bytes(self._folder)
        digest = _sha256(data)
        cached = self._cached
        if cached is None or cached[0] != digest:
            # Of the same bytes: another process may replace the file at any moment.
            cached = self._cached = digest, manifests.decode(data, self._folder, self._key)
        return cached[1]

    def write(
        self,
        edit: Callable[[Manifest], Manifest],
        install: Installation | None = None,
        *,
        afresh: bool = False,
    ) -> Manifest:
        """Replace the manifest by an edited one, together with a file.

        A missing manifest counts as empty; with `afresh`, so does an unusable one.

        Raises:
            EditConflict: another process is changing the folder.
            ManifestError: the manifest is unusable.
        """
        with lock_folder(self._folder):
            recover(self._folder)
            try:
                before = self.read()
            except ManifestError as error:
                if not afresh and not isinstance(error, MissingManifest):
                    raise
                before = Manifest()
            after = edit(before)
            data = manifests.encode(after, self._key)
            commit(self._folder, data, install)
            self._cached = _sha256(data), after
        return after

    def recover(self) -> None:
        """Recover from an interrupted change, unless another process has the lock."""
        if not needs_recovery(self._folder):
            return
        try:
            with lock_folder(self._folder, patience=0):
                recover(self._folder)
        except (EditConflict, OSError):
            return  # locked or read-only: the manifest is valid in any case
