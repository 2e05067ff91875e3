"""Trees of files that others made and change at any moment: walk, copy and remove them.

A tree is reached from descriptor to descriptor: no link is followed, nothing outside of
it is read, written or removed, and its depth costs neither stack nor descriptors. Whose
trees they are, and how large they may be, `workspaces` knows.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

Identity = tuple[int, int]
"""Device and number: the same as long as the folder exists, wherever it is moved."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe that took the place of a file must not wait for a writer.
_SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TARGET = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""What opening a folder gives if there is another thing, or nothing, by now."""
_FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}
"""What ends a copy; anything else concerns one file."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export copied, and what not."""

    files: int
    left_out: tuple[str, ...]
    """Each with its path and the reason; fit to be printed."""


@contextmanager
def opened(folder: Path, rights: int = 0o500) -> Iterator[int]:
    """The top of a tree as a descriptor.

    Raises:
        FileNotFoundError: it is not there.
    """
    top = _open_folder(folder, None, rights)
    if top is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    try:
        yield top
    finally:
        os.close(top)


def _open_folder(name: str | Path, parent: int | None, rights: int = 0o500) -> int | None:
    """Open a folder, not through a link, or None if there is no folder of that name.

    Its owner gets rights back that a tool took away: nothing can be hidden by that.
    """
    try:
        handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in _REPLACED:
            return None
        raise
    try:
        itself = f"/proc/self/fd/{handle}"  # this very folder, whatever has its name now
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & rights != rights:
            Path(itself).chmod(mode | rights)
        return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def identity(descriptor: int) -> Identity:
    """Which folder a descriptor is open on."""
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


def walk(top: int) -> Generator[tuple[int, list[str], os.DirEntry[str]], None, None]:
    """Every entry below a folder, with the open folder it is in and the names down to that.

    What is moved meanwhile may be missed.
    """
    here = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=top)
    names: list[str] = []
    levels: list[tuple[Identity, list[str]]] = []  # with the folders still to be seen
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
                    above = _above(top, here, names, levels)
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


def _above(top: int, here: int, names: list[str], levels: list[tuple[Identity, list[str]]]) -> int:
    """Back to the folder of the last level, or, if it is not there any more, as far as it goes."""
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
    """Copy files and folders into an empty folder; links are neither followed nor copied.

    Raises:
        OSError: the target takes no more.
    """
    copied = seen = 0
    left_out: list[str] = []
    missing: set[str] = set()
    """Folders that could not be made."""
    with closing(walk(source)) as entries:
        for here, names, entry in entries:
            seen += 1
            if seen > max_files:
                left_out.append(f"whatever comes after the first {max_files:,} files and folders")
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
                also = ", and what is in it" if is_folder else ""
                left_out.append(f"{path!r}{also}: {error.strerror}")
    return Exported(copied, tuple(left_out))


def _copy_file(name: str, here: int, path: str, target: int, room: int) -> int:
    """The number of bytes that were copied; what is appended meanwhile is not."""
    source = os.open(name, _SOURCE, dir_fd=here)
    try:
        info = os.fstat(source)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.ESTALE, "it was replaced by something that is not a file")
        if info.st_size > room:
            raise OSError(errno.EFBIG, "it does not fit into the quota")
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


def empty(top: int) -> None:
    """Remove what is in a folder: each folder inside is moved to the top, then removed."""
    waiting = os.listdir(top)
    while waiting:
        name = waiting.pop()
        folder = None if _unlinked(name, top) else _open_folder(name, top, 0o700)
        if folder is None:
            continue
        try:
            for inner in os.listdir(folder):  # noqa: PTH208 - a descriptor
                if not _unlinked(inner, folder):
                    waiting.append(_lifted(inner, folder, top))
        finally:
            os.close(folder)
        with suppress(OSError):  # if somebody put something in, the folder above says so
            os.rmdir(name, dir_fd=top)


def _unlinked(name: str, folder: int) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return False
    return True


def _lifted(name: str, folder: int, top: int) -> str:
    """The name at the top that a folder got there; it may be gone, which is as well."""
    lifted = secrets.token_hex(8)
    inner = _open_folder(name, folder, 0o700)  # a folder that is closed cannot be moved
    if inner is not None:
        os.close(inner)
        with suppress(FileNotFoundError):
            os.rename(name, lifted, src_dir_fd=folder, dst_dir_fd=top)
    return lifted
