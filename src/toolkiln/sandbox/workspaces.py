"""Workspaces: the folders of sessions, which tools with a workspace share between calls.

    ROOT/NAME-HASH/session   the name of the session
    ROOT/NAME-HASH/files/    mounted into the sandbox
    ROOT/.new-RANDOM/        being created
    ROOT/.gone-RANDOM/       cleared and not yet removed

Tools create the content of `files`; this module accesses it only through `trees`. All functions
except `over_quota` block.

Quotas are enforced by polling: data that a tool writes between two checks, or into an unlinked
open file, is noticed late or never.
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
from toolkiln.model.system import Exported, WorkspaceInfo
from toolkiln.sandbox.trees import Identity, copy_tree, identity, open_tree, remove_tree, walk

_GONE = ".gone-"
_NEW = ".new-"
_ABANDONED_SECONDS = 60.0
"""Age after which a folder is no longer being created."""
_OPEN_ATTEMPTS = 100
_REMOVE_ATTEMPTS = 5
_CLEARED = "the workspace was cleared during the call"


@dataclass(frozen=True, slots=True)
class WorkspaceUsage:
    """The disk usage of a workspace."""

    bytes: int
    """The sum of each entry's size or allocated space, whichever is larger, so both sparse files
    and preallocated space count. Hard links count several times."""
    files: int
    """Entries of every kind, including folders and links."""
    changed: float
    """Unix time of the last change (ctime), which tools cannot forge."""


class Workspaces:
    """The workspaces of all sessions in one folder.

    `owner` is the uid and gid of the sandbox if it differs from this process's.
    """

    def __init__(self, root: Path, *, max_bytes: int, max_files: int, owner: int | None) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._owner = owner

    def open(self, session: str, *, writable: bool) -> Workspace:
        """Return the workspace of a session, creating it if necessary; any text names a session.

        A workspace that already exceeds the quota may stay or shrink, but not grow: its limits
        are its current usage.

        Raises:
            BackendError: the workspace cannot be created or measured.
        """
        folder = self._root / _safe_name(session)
        with _disk_errors():
            self._root.mkdir(parents=True, exist_ok=True)
            self._make_private(self._root)
            for _ in range(_OPEN_ATTEMPTS):
                with suppress(FileNotFoundError):
                    return self._open_existing(folder, writable=writable)
                if self._create(folder, session):
                    limits = self._max_bytes, self._max_files
                    return Workspace(folder / "files", writable, *limits)
        raise BackendError(f"the workspace of {session!r} is being cleared repeatedly")

    def list(self) -> list[WorkspaceInfo]:
        """Return all workspaces, sorted by session."""
        workspaces = []
        with _disk_errors():
            for session, folder in self._sessions():
                with suppress(FileNotFoundError):
                    used = usage(folder / "files")
                    workspaces.append(WorkspaceInfo(session, used.bytes, used.files, used.changed))
        return sorted(workspaces, key=lambda info: info.session)

    def export(self, session: str, target: Path) -> Exported:
        """Copy the files and folders of a session, without links and up to the quota.

        Raises:
            InputError: the session has no workspace, or the target is not a new or empty folder.
            BackendError: the workspace cannot be read.
        """
        files = self._existing(session) / "files"
        with _disk_errors():
            try:
                with open_tree(files) as source, self._new_folder(target) as folder:
                    return copy_tree(source, folder, self._max_bytes, self._max_files)
            except FileNotFoundError:
                raise self._unknown(session) from None

    def clear(self, session: str) -> None:
        """Remove the workspace of a session; its next call starts with an empty one.

        Raises:
            InputError: the session has no workspace.
            BackendError: some files could not be removed; the next `clear` tries again.
        """
        folder = self._existing(session)
        gone = self._root / f"{_GONE}{secrets.token_hex(8)}"
        with _disk_errors():
            try:
                folder.rename(gone)  # atomic: from now on it is not listed
            except FileNotFoundError:
                raise self._unknown(session) from None
        _remove(gone)
        with suppress(BackendError, FileNotFoundError):  # another process may do the same
            self._remove_leftovers()

    def _open_existing(self, folder: Path, *, writable: bool) -> Workspace:
        files = folder / "files"
        with open_tree(files) as top:
            info = os.fstat(top)
            if stat.S_IMODE(info.st_mode) != 0o700:
                os.fchmod(top, 0o700)
            if self._owner is not None and info.st_uid != self._owner:
                os.fchown(top, self._owner, self._owner)
            used = _measure(top) if writable else WorkspaceUsage(0, 0, 0.0)
        max_bytes, max_files = max(self._max_bytes, used.bytes), max(self._max_files, used.files)
        return Workspace(files, writable, max_bytes, max_files)

    def _create(self, folder: Path, session: str) -> bool:
        """Create a workspace atomically; False if another process was faster."""
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
        """Close a folder to other users; the sandbox user may enter, but not list it."""
        info = folder.stat()
        if self._owner is not None and info.st_gid != self._owner:
            os.chown(folder, -1, self._owner)
        mode = 0o700 if self._owner is None else 0o710
        if stat.S_IMODE(info.st_mode) != mode:
            folder.chmod(mode)

    def _remove_leftovers(self) -> None:
        for left in self._root.glob(f"{_GONE}*"):
            _remove(left)
        for left in self._root.glob(f"{_NEW}*"):
            if left.stat().st_ctime < time.time() - _ABANDONED_SECONDS:
                _remove(left)

    def _sessions(self) -> Iterator[tuple[str, Path]]:
        if self._root.is_dir():
            for folder in self._root.iterdir():
                # Without this file the folder is incomplete, being cleared, or not a workspace.
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
        return InputError(f"session {session!r} has no workspace", hint=hint)

    @contextmanager
    def _new_folder(self, target: Path) -> Iterator[int]:
        hint = "choose a folder that does not exist yet"
        if target.resolve().is_relative_to(self._root.resolve()):
            raise InputError(f"{str(target)!r} is inside the workspaces folder", hint=hint)
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


def usage(
    folder: Path, *, max_bytes: int | None = None, max_files: int | None = None
) -> WorkspaceUsage:
    """Measure a workspace; counting stops once a limit is exceeded.

    Raises:
        OSError: the folder or one of its subfolders cannot be opened.
    """
    with open_tree(folder) as top:
        return _measure(top, max_bytes, max_files)


async def over_quota(workspace: Workspace, interval: float = 0.1) -> str:
    """Watch a workspace until it exceeds its quota; return a message.

    Also returns if the workspace was cleared or became unreadable, because later writes would
    go uncounted. Never returns for a read-only workspace. Cancel to stop watching.

    Raises:
        BackendError: the workspace cannot be measured.
    """
    if not workspace.writable:
        await asyncio.Event().wait()
    watched: Identity | None = None
    while True:
        began = time.monotonic()
        watched, excess = await asyncio.to_thread(_check, workspace, watched)
        if excess:
            return excess
        # At most a fifth of a CPU, also for large workspaces.
        await asyncio.sleep(max(interval, 4 * (time.monotonic() - began)))


def exceeded(workspace: Workspace) -> str:
    """Return a message if a workspace exceeds its quota, else an empty text.

    Raises:
        BackendError: the workspace cannot be measured.
    """
    return _check(workspace, None)[1]


def _check(workspace: Workspace, watched: Identity | None) -> tuple[Identity | None, str]:
    max_bytes, max_files = workspace.max_bytes, workspace.max_files
    try:
        with open_tree(workspace.folder) as top:
            current = identity(top)
            if watched not in (None, current):
                return watched, _CLEARED
            used = _measure(top, max_bytes, max_files)
    except FileNotFoundError:
        return watched, _CLEARED
    except PermissionError:
        return watched, "the tool made a folder of its workspace unreadable"
    except OSError as error:
        raise BackendError(f"cannot measure the workspace: {error.strerror}") from error
    if used.bytes > max_bytes:
        return current, f"the workspace contains more than {max_bytes:,} bytes"
    if used.files > max_files:
        return current, f"the workspace contains more than {max_files:,} files and folders"
    return current, ""


def _measure(
    top: int, max_bytes: int | None = None, max_files: int | None = None
) -> WorkspaceUsage:
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
    return WorkspaceUsage(size, files, changed)


def _remove(gone: Path) -> None:
    with _disk_errors("cannot remove a cleared workspace"):
        for attempt in range(1, _REMOVE_ATTEMPTS + 1):
            try:
                _remove_once(gone)
                return
            except OSError:  # a running call or another `clear` changes it too
                if not gone.exists():
                    return
                if attempt == _REMOVE_ATTEMPTS:
                    raise


def _remove_once(gone: Path) -> None:
    files = gone / "files"
    if files.exists():
        remove_tree(files)
    for rest in gone.iterdir():
        rest.unlink()
    gone.rmdir()


def _safe_name(session: str) -> str:
    """Return a unique folder name, also on case-insensitive file systems."""
    readable = re.sub(r"[^a-z0-9]+", "-", session[:40].lower()).strip("-")
    digest = hashlib.sha256(_encoded(session)).hexdigest()[:32]
    return f"{readable}-{digest}" if readable else digest


def _encoded(session: str) -> bytes:
    return session.encode("utf-8", "surrogatepass")


@contextmanager
def _disk_errors(problem: str = "cannot access the workspaces") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise BackendError(
            f"{problem}{where}: {error.strerror}", hint="check the workspaces folder"
        ) from error
