"""Untrusted file trees, which tools may change at any moment: walk, copy, empty; version folders.

Every step goes from one directory descriptor to the next: no link is followed, nothing outside
the tree is read, written or removed, and deep trees exhaust neither the stack nor descriptors.
"""

import errno
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePath

from toolkiln.errors import BackendError
from toolkiln.model.catalog import Sources
from toolkiln.model.spec import ToolSpec
from toolkiln.model.system import Exported

Identity = tuple[int, int]
"""Device and inode: identify a folder even if it is moved."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a tool may replace a file by a pipe, and opening that must not block.
_SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TARGET = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Errors when a folder was removed or replaced in the meantime."""
_FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}
"""Errors that end a copy; other errors affect only one file."""


@contextmanager
def open_tree(folder: Path, mode: int = 0o500) -> Iterator[int]:
    """Open the top folder of a tree; raises FileNotFoundError if it does not exist."""
    top = _open_folder(folder, None, mode)
    if top is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    try:
        yield top
    finally:
        os.close(top)


def _open_folder(name: str | Path, parent: int | None, needed: int = 0o500) -> int | None:
    """Open a folder without following links; None if there is no such folder.

    Restores the owner's permissions, which a tool may have removed to hide files.
    """
    try:
        handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in _REPLACED:
            return None
        raise
    try:
        itself = f"/proc/self/fd/{handle}"  # this folder, even if its name now refers to another
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & needed != needed:
            Path(itself).chmod(mode | needed)
        return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def identity(descriptor: int) -> Identity:
    """Return the identity of an open folder."""
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


def walk(top: int) -> Generator[tuple[int, list[str], os.DirEntry[str]], None, None]:
    """Yield every entry below a folder: the open parent folder, its path, and the entry.

    Entries that are moved during the walk may be missed.
    """
    here = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=top)
    names: list[str] = []
    levels: list[tuple[Identity, list[str]]] = []  # with the subfolders still to visit
    try:
        while True:
            waiting: list[str] = []
            levels.append((identity(here), waiting))
            with os.scandir(here) as entries:
                for entry in entries:
                    yield here, names, entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.name)
            below = None
            while below is None:
                while not levels[-1][1]:
                    levels.pop()
                    if not levels:
                        return
                    names.pop()
                    above = _parent(top, here, names, levels)
                    os.close(here)
                    here = above
                names.append(levels[-1][1].pop())
                below = _open_folder(names[-1], here)
                if below is None:
                    names.pop()
            os.close(here)
            here = below
    finally:
        os.close(here)


def _parent(top: int, here: int, names: list[str], levels: list[tuple[Identity, list[str]]]) -> int:
    """Return to the folder of the last level, or as close to it as still exists."""
    with suppress(FileNotFoundError, PermissionError):
        above = os.open("..", os.O_RDONLY | _FOLDER, dir_fd=here)
        if identity(above) == levels[-1][0]:
            return above
        os.close(above)
    here = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=top)
    try:
        for depth, name in enumerate(names):
            below = _open_folder(name, here)
            if below is None:
                del names[depth:], levels[depth + 1 :]
                break
            os.close(here)
            here = below
    except OSError:
        os.close(here)
        raise
    return here


def copy_tree(source: int, target: int, max_bytes: int, max_files: int) -> Exported:
    """Copy files and folders into an empty folder, without links.

    Raises:
        OSError: the target cannot be written, for example because the disk is full.
    """
    copied = seen = 0
    left_out: list[str] = []
    missing: set[str] = set()
    """Folders that could not be created."""
    with closing(walk(source)) as entries:
        for here, names, entry in entries:
            seen += 1
            if seen > max_files:
                left_out.append(f"everything after the first {max_files:,} files and folders")
                break
            parent = "/".join(names)
            path = f"{parent}/{entry.name}" if parent else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            try:
                if parent in missing:
                    if is_folder:
                        missing.add(path)
                elif is_folder:
                    os.mkdir(path, dir_fd=target)
                elif entry.is_symlink():
                    left_out.append(f"{path!r}: a symbolic link")
                elif not entry.is_file(follow_symlinks=False):
                    left_out.append(f"{path!r}: neither a file nor a folder")
                else:
                    max_bytes -= _copy_file(entry.name, here, path, target, max_bytes)
                    copied += 1
            except OSError as error:
                if error.errno in _FATAL:
                    raise
                if is_folder:
                    missing.add(path)
                content = " and its content" if is_folder else ""
                left_out.append(f"{path!r}{content}: {error.strerror}")
    return Exported(copied, tuple(left_out))


def _copy_file(name: str, here: int, path: str, target: int, room: int) -> int:
    """Copy the current size of a file and return it; later appends are ignored."""
    source = os.open(name, _SOURCE, dir_fd=here)
    try:
        info = os.fstat(source)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.ESTALE, "replaced by something that is not a file")
        if info.st_size > room:
            raise OSError(errno.EFBIG, "exceeds the quota")
        mode = 0o777 if info.st_mode & stat.S_IXUSR else 0o666
        copy = os.open(path, _TARGET, mode, dir_fd=target)
        try:
            left = info.st_size
            while left and (sent := os.sendfile(copy, source, None, left)):
                left -= sent
        except OSError:
            os.unlink(path, dir_fd=target)
            raise
        finally:
            os.close(copy)
    finally:
        os.close(source)
    return info.st_size - left


def _empty(top: int) -> None:
    """Remove the content of a folder; each subfolder is moved to the top before."""
    waiting = os.listdir(top)
    while waiting:
        name = waiting.pop()
        folder = None if _unlink(name, top) else _open_folder(name, top, 0o700)
        if folder is None:
            continue
        try:
            for inner in os.listdir(folder):
                if not _unlink(inner, folder):
                    waiting.append(_move_to_top(inner, folder, top))
        finally:
            os.close(folder)
        with suppress(OSError):  # if a tool added something, removing the parent fails
            os.rmdir(name, dir_fd=top)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a tool filled, regardless of depth and permissions."""
    with open_tree(folder, 0o700) as top:
        _empty(top)
    folder.rmdir()


def _unlink(name: str, folder: int) -> bool:
    """Remove a file; False if it is a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return False
    return True


def _move_to_top(name: str, folder: int, top: int) -> str:
    """Move a folder to the top under a new name, unless it has disappeared."""
    new_name = secrets.token_hex(8)
    inner = _open_folder(name, folder, 0o700)  # moving a folder requires write permission on it
    if inner is not None:
        os.close(inner)
        with suppress(FileNotFoundError):
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    return new_name


class Versions:
    """Folders with the files of tool versions, to mount into sandboxes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: set[Path] = set()

    def folder(self, spec: ToolSpec, sources: Callable[[], Sources]) -> Path:
        """Return the folder of a version; write its files if they are missing.

        Raises:
            BackendError: the files cannot be written.
        """
        # Includes the name: two files may have the same content.
        name = hashlib.sha256(PurePath(spec.path).name.encode()).hexdigest()[:8]
        target = self._folder / f"{spec.digest}-{name}"
        if target in self._written or target.is_dir():
            self._written.add(target)
            return target
        try:
            # Sandboxes started by root read versions as another user, who cannot list them.
            self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            _write(target, sources())
        except OSError as error:
            raise BackendError(
                f"cannot write {target}: {error.strerror}",
                hint="set TOOLKILN_STATE to a writable folder",
            ) from error
        self._written.add(target)
        return target


def _write(target: Path, sources: Sources) -> None:
    """Write to a temporary folder, then rename it, so a version appears complete."""
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    try:
        for name, data in sources.items():
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o444)
        for folder, _, _ in os.walk(partial):
            Path(folder).chmod(0o755)  # the sandbox may read it as another user
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
