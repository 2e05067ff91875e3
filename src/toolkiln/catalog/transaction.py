"""Changing a folder of tools all or nothing: one writer at a time, a journal, recovery.

A tool's file and the manifest are two files, and a process may die between them. So the
file is written beside its place and moved there after the manifest is, or removed then; the
journal names both before either is touched, and whoever opens the folder next brings that to
its end or throws it away. What is written, and whether it may be, is not decided here.
"""

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolkiln.catalog.manifest import FILE_NAME
from toolkiln.errors import InputError

_JOURNAL = ".toolkiln-journal.json"
_PATIENCE = 30.0
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


class _Entry(NamedTuple):
    """What the journal says; contents by their SHA-256."""

    file: str
    before: str | None
    """What the file held, if it was there."""
    after: str | None
    """What it will hold; None: it is to be removed."""
    manifest: str
    """What the manifest holds once the change has happened."""


class Conflict(InputError):
    """Somebody else changed the same file meanwhile."""

    code = "conflict"


@dataclass(frozen=True)
class Installation:
    """A file to be written, or removed, together with the manifest that lists it, or does not."""

    file: str
    data: bytes | None
    """None: the file is removed."""


@contextmanager
def writing(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Be the only one who changes a folder, of all threads and processes.

    Raises:
        Conflict: somebody else did not come to an end in time.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise Conflict(
                        f"somebody else is changing {folder}", hint="try again in a moment"
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def commit(folder: Path, manifest: bytes, install: Installation | None = None) -> None:
    """Replace the manifest, and with it perhaps one file: both or neither.

    Only for who holds the folder.

    Raises:
        OSError: they cannot be written; the folder is as it was.
    """
    try:
        if install is not None:
            target = folder / install.file
            if target.is_dir():
                raise InputError(f"{target} is a folder", hint="choose another name")
            after = None if install.data is None else _sha256(install.data)
            entry = _Entry(install.file, _sha256_of(target), after, _sha256(manifest))
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(folder / _JOURNAL, json.dumps(entry._asdict()).encode())
            if install.data is not None:
                _write_beside(target, install.data)
        _replace(folder / FILE_NAME, manifest)
    except BaseException:  # whatever it was, the folder must be as it was
        recover(folder)
        raise
    with suppress(OSError):  # it has happened, and whoever comes next brings it to its end
        recover(folder)


def needs_recovery(folder: Path) -> bool:
    """Whether somebody died here in the middle of a change, or is in the middle of one."""
    names = (folder / _JOURNAL, _beside(folder / _JOURNAL), _beside(folder / FILE_NAME))
    return any(name.exists() for name in names)


def recover(folder: Path) -> None:
    """Bring a change to its end: it has happened if the manifest is that of the journal.

    Only for who holds the folder. A file that somebody edited meanwhile is left alone.
    """
    journal = folder / _JOURNAL
    entry = _journal_entry(folder)
    if entry is not None:
        target = folder / entry.file
        written = _beside(target)
        expected = entry.manifest, entry.before, entry.after
        if tuple(map(_sha256_of, (folder / FILE_NAME, target, written))) == expected:
            if entry.after is None:
                target.unlink(missing_ok=True)
            else:
                written.replace(target)
        written.unlink(missing_ok=True)
    for leftover in (_beside(folder / FILE_NAME), _beside(journal), journal):
        leftover.unlink(missing_ok=True)


def _journal_entry(folder: Path) -> _Entry | None:
    try:
        entry = _Entry(**json.loads((folder / _JOURNAL).read_bytes()))
        parent = (folder / entry.file).parent.resolve()
        return entry if parent.is_relative_to(folder.resolve()) else None
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):
        return None  # ours is written whole: somebody else put this there


def _replace(file: Path, data: bytes) -> None:
    """Write beside a file, then rename: nobody ever sees half of it, also after a power cut."""
    _write_beside(file, data)
    _beside(file).replace(file)


def _write_beside(file: Path, data: bytes) -> None:
    part = _beside(file)
    with part.open("wb") as handle:
        if file.exists():
            part.chmod(file.stat().st_mode & 0o777)
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _beside(file: Path) -> Path:
    """Where a file is written before it appears; always the same, for recovery to find."""
    # Not the file's own name, which may be as long as names can be.
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
