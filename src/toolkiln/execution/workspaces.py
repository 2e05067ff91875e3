"""Session folders: what tools that declare a workspace share and keep between calls.

    ROOT/NAME-HASH/session   the name of the session
    ROOT/NAME-HASH/files/    what the sandbox sees of all this
    ROOT/.new-RANDOM/        what is being put together
    ROOT/.gone-RANDOM/       what was cleared and is not removed yet

Whatever lies in `files` was made by tools and is touched through `trees` only. Mounting
is done elsewhere. Everything but `over_quota` blocks.

A quota is kept by looking again and again: what a tool writes between two looks, or into
a file that it has removed and holds open, is seen late or not at all.
"""

import asyncio
import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolkiln.errors import BackendError, InputError, nearest_hint
from toolkiln.execution.executor import Workspace
from toolkiln.execution.trees import (
    Exported,
    Identity,
    copy_tree,
    empty,
    identity,
    opened,
    walk,
)

_GONE = ".gone-"
_NEW = ".new-"
_FORGOTTEN = 60.0
"""Seconds after which nobody is still putting a folder together."""
_OPENINGS = 100
_REMOVALS = 5
_CLEARED = "its workspace was cleared while it ran"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a folder holds."""

    bytes: int
    """For each entry its size or what it takes on the disk, whichever is more: neither a
    file with holes nor space that is merely reserved goes uncounted. A file with several
    names counts several times."""
    files: int
    """Entries of every kind, folders and links too."""
    changed: float
    """Unix time of the last change, as the kernel saw it; tools cannot forge it."""


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """One session's folder, for people."""

    session: str
    bytes: int
    files: int
    changed: float


class Workspaces:
    """The folders of all sessions below one folder.

    `owner` is whom the sandbox runs as if that is not ourselves: its user and group id.
    """

    def __init__(self, root: Path, *, max_bytes: int, max_files: int, owner: int | None) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._owner = owner

    def open(self, session: str, *, writable: bool) -> Workspace:
        """The folder of a session, made if there is none; any text is a session.

        What is over the quota already may stay or shrink, but not grow: its limits are what
        it holds at this moment, before the call that asks for it can write.

        Raises:
            BackendError: it cannot be made or measured.
        """
        folder = self._root / _safe_name(session)
        with _disk_errors():
            self._root.mkdir(parents=True, exist_ok=True)
            self._make_private(self._root)
            for _ in range(_OPENINGS):
                with suppress(FileNotFoundError):
                    return self._opened(folder, writable=writable)
                if self._make(folder, session):
                    limits = self._max_bytes, self._max_files
                    return Workspace(folder / "files", writable, *limits)
        raise BackendError(f"the workspace of {session!r} is being cleared again and again")

    def list(self) -> list[WorkspaceInfo]:
        """All workspaces, by session.

        Raises:
            BackendError: they cannot be read.
        """
        found = []
        with _disk_errors():
            for session, folder in self._sessions():
                with suppress(FileNotFoundError):
                    used = usage(folder / "files")
                    found.append(WorkspaceInfo(session, used.bytes, used.files, used.changed))
        return sorted(found, key=lambda info: info.session)

    def export(self, session: str, target: Path) -> Exported:
        """Copy the files and folders of a session to where there is nothing yet.

        Links are neither followed nor copied; not more is copied than the quota allows.

        Raises:
            InputError: there is no such session, or the target cannot be written to.
            BackendError: the workspace cannot be read.
        """
        files = self._existing(session) / "files"
        with _disk_errors():
            try:
                with opened(files) as source, self._new_folder(target) as empty_one:
                    return copy_tree(source, empty_one, self._max_bytes, self._max_files)
            except FileNotFoundError:
                raise self._unknown(session) from None

    def clear(self, session: str) -> None:
        """Remove the folder of a session; its next call starts with an empty one.

        Raises:
            InputError: there is no such session.
            BackendError: not everything could be removed; the next `clear` tries again.
        """
        folder = self._existing(session)
        gone = self._root / f"{_GONE}{secrets.token_hex(8)}"
        with _disk_errors():
            try:
                folder.rename(gone)  # all at once: whatever happens next, it is not listed
            except FileNotFoundError:
                raise self._unknown(session) from None
        _remove(gone)
        with suppress(BackendError, FileNotFoundError):  # another one may be at it as well
            self._remove_leftovers()

    def _opened(self, folder: Path, *, writable: bool) -> Workspace:
        files = folder / "files"
        with opened(files) as top:
            info = os.fstat(top)
            if stat.S_IMODE(info.st_mode) != 0o700:
                os.fchmod(top, 0o700)
            if self._owner is not None and info.st_uid != self._owner:
                os.fchown(top, self._owner, self._owner)
            used = _measured(top) if writable else Usage(0, 0, 0.0)
        max_bytes, max_files = max(self._max_bytes, used.bytes), max(self._max_files, used.files)
        return Workspace(files, writable, max_bytes, max_files)

    def _make(self, folder: Path, session: str) -> bool:
        """Put a folder together aside, so that it appears whole or not at all.

        False if somebody else was faster.
        """
        new = self._root / f"{_NEW}{secrets.token_hex(8)}"
        new.mkdir(0o700)
        self._make_private(new)
        with (new / "session").open("xb") as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.write(_encoded(session))
            stream.flush()
            os.fsync(stream.fileno())
        (new / "files").mkdir(0o700)
        if self._owner is not None:
            os.chown(new / "files", self._owner, self._owner)
        try:
            new.rename(folder)
        except OSError as error:
            _remove(new)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def _make_private(self, folder: Path) -> None:
        """Close a folder to other accounts; the sandbox's may pass through, but not list it."""
        found = folder.stat()
        if self._owner is not None and found.st_gid != self._owner:
            os.chown(folder, -1, self._owner)
        mode = 0o700 if self._owner is None else 0o710
        if stat.S_IMODE(found.st_mode) != mode:
            folder.chmod(mode)

    def _remove_leftovers(self) -> None:
        """What was left by those who were killed."""
        for left in self._root.glob(f"{_GONE}*"):
            _remove(left)
        for left in self._root.glob(f"{_NEW}*"):
            if left.stat().st_ctime < time.time() - _FORGOTTEN:
                _remove(left)

    def _sessions(self) -> Iterator[tuple[str, Path]]:
        if self._root.is_dir():
            for folder in self._root.iterdir():
                # Without this file it is half made, half cleared, or none of ours.
                with suppress(FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
                    name = (folder / "session").read_bytes().decode("utf-8", "surrogatepass")
                    if folder.name == _safe_name(name):
                        yield name, folder

    def _existing(self, session: str) -> Path:
        folder = self._root / _safe_name(session)
        if not folder.is_dir():
            raise self._unknown(session)
        return folder

    def _unknown(self, session: str) -> InputError:
        names = [name for name, _ in self._sessions()]
        hint = nearest_hint(session, names)
        return InputError(f"there is no workspace of a session {session!r}", hint=hint)

    @contextmanager
    def _new_folder(self, target: Path) -> Iterator[int]:
        hint = "name a folder that does not exist yet"
        if target.resolve().is_relative_to(self._root.resolve()):
            raise InputError(f"{str(target)!r} is among the workspaces themselves", hint=hint)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if any(target.iterdir()):
                raise InputError(f"{str(target)!r} is not empty", hint=hint)
            descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InputError(
                f"the export to {str(target)!r} failed: {error.strerror}", hint=hint
            ) from error


def usage(folder: Path, *, max_bytes: int | None = None, max_files: int | None = None) -> Usage:
    """What a folder holds; counting stops as soon as it is more than one of the limits.

    Raises:
        OSError: it is not there, or a folder in it cannot be opened.
    """
    with opened(folder) as top:
        return _measured(top, max_bytes, max_files)


async def over_quota(workspace: Workspace, interval: float = 0.1) -> str:
    """Watch a folder until it holds more than it may; the sentence says of what.

    Returns as well if the folder is cleared or cannot be looked into any more, because
    what is written then would go uncounted. A folder that cannot be written to needs no
    watching. To stop watching, cancel it.

    Raises:
        BackendError: the folder cannot be measured.
    """
    if not workspace.writable:
        await asyncio.Event().wait()
    watched: Identity | None = None
    while True:
        began = time.monotonic()
        watched, excess = await asyncio.to_thread(_look, workspace, watched)
        if excess:
            return excess
        # A large folder takes a fifth of a processor at most.
        await asyncio.sleep(max(interval, 4 * (time.monotonic() - began)))


def exceeded(workspace: Workspace) -> str:
    """What a folder holds more of than it may; empty if nothing.

    Raises:
        BackendError: the folder cannot be measured.
    """
    return _look(workspace, None)[1]


def _look(workspace: Workspace, watched: Identity | None) -> tuple[Identity | None, str]:
    most_bytes, most_files = workspace.max_bytes, workspace.max_files
    try:
        with opened(workspace.folder) as top:
            seen = identity(top)
            if watched not in (None, seen):
                return watched, _CLEARED
            used = _measured(top, most_bytes, most_files)
    except FileNotFoundError:
        return watched, _CLEARED
    except PermissionError:
        return watched, "it closed a folder of its workspace to its owner"
    except OSError as error:
        raise BackendError(f"the workspace cannot be measured: {error.strerror}") from error
    if used.bytes > most_bytes:
        return seen, f"its workspace holds more than {most_bytes:,} bytes"
    if used.files > most_files:
        return seen, f"its workspace holds more than {most_files:,} files and folders"
    return seen, ""


def _measured(top: int, max_bytes: int | None = None, max_files: int | None = None) -> Usage:
    size = files = 0
    changed = os.fstat(top).st_ctime
    with closing(walk(top)) as entries:
        for _, _, entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            files += 1
            size += max(info.st_size, info.st_blocks * 512)
            changed = max(changed, info.st_ctime)
            if (max_bytes is not None and size > max_bytes) or (
                max_files is not None and files > max_files
            ):
                break
    return Usage(size, files, changed)


def _remove(gone: Path) -> None:
    with _disk_errors("a cleared workspace is not removed yet"):
        for attempt in range(1, _REMOVALS + 1):
            try:
                _remove_once(gone)
                return
            except OSError:  # a call that still runs, or another `clear`, is at it as well
                if not gone.exists():
                    return
                if attempt == _REMOVALS:
                    raise


def _remove_once(gone: Path) -> None:
    files = gone / "files"
    if files.exists():
        with opened(files, 0o700) as top:
            empty(top)
        files.rmdir()
    for rest in gone.iterdir():
        rest.unlink()
    gone.rmdir()


def _safe_name(session: str) -> str:
    """A name for a folder: no two sessions share one, also where case does not count."""
    readable = re.sub(r"[^a-z0-9]+", "-", session[:40].lower()).strip("-")
    digest = hashlib.sha256(_encoded(session)).hexdigest()[:32]
    return f"{readable}-{digest}" if readable else digest


def _encoded(session: str) -> bytes:
    return session.encode("utf-8", "surrogatepass")


@contextmanager
def _disk_errors(what: str = "workspaces cannot be kept") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise BackendError(
            f"{what}{where}: {error.strerror}", hint="check the folder of the workspaces"
        ) from error
