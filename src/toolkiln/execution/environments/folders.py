"""Folders that appear whole and read-only, or not at all; everything here blocks.

What is not finished carries the name `ID.RANDOM.partial`, beside where it will be: a
directory that nobody may write to can be renamed, but not moved to another parent.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkiln.errors import EnvironmentFailed

_SUFFIX = ".partial"
FULL_DISK_HINT = "free some space, for example with `toolkiln env prune`, and try again"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn what the file system refuses into the error that surfaces know."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        what = "the disk is full" if full else "environments cannot be kept"
        where = f": {error.filename}" if error.filename else ""
        hint = FULL_DISK_HINT if full else "check the folder of the environments and its owner"
        raise EnvironmentFailed(f"{what}{where}: {error.strerror}", hint=hint) from error


def make(folder: Path) -> None:
    """Create a folder and those above it, for all to read whatever the umask says."""
    if not folder.is_dir():
        make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)


def partial(whole: Path) -> Path:
    """A free name for what is going to be `whole`."""
    return whole.with_name(f"{whole.stem}.{secrets.token_hex(4)}{_SUFFIX}")


def partials(folder: Path) -> Iterator[tuple[str, Path]]:
    """What was begun in a folder and not finished, with the id of what it was going to be."""
    for path in folder.glob(f"*{_SUFFIX}"):
        yield path.name.partition(".")[0], path


def write(file: Path, content: str) -> None:
    """Replace a file by one that is on the disk and whole."""
    unfinished = partial(file)
    try:
        with unfinished.open("x", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync(file.parent)


def publish(unfinished: Path, whole: Path) -> None:
    """Make a folder read-only, put it on the disk, and give it its name instead of what has it."""
    for folder, folders, files in os.walk(unfinished, topdown=False):
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(folder, name)).st_mode  # noqa: PTH118 - thousands of files
            # Following a link would change the mode of a file of the host.
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise EnvironmentFailed(
                    f"a package brought {name!r}, which is neither a file nor a folder",
                    hint="require another version of it",
                )
        for name in files:
            _sync(os.path.join(folder, name), seal=True)  # noqa: PTH118 - thousands of files
        _sync(folder, seal=True)
    remove(whole)
    unfinished.rename(whole)
    _sync(whole.parent)


def remove(path: Path) -> None:
    """Remove a file or a folder, read-only ones too; what cannot go is left for the next time."""
    if path.is_dir():
        for folder, _, _ in os.walk(path):
            with suppress(OSError):
                os.chmod(folder, 0o700)  # noqa: PTH101 - the walk gives strings
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def size(path: Path) -> int:
    """The bytes of all files below a folder."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total


def _sync(path: str | Path, *, seal: bool = False) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if seal:
            mode = os.fstat(descriptor).st_mode
            os.fchmod(descriptor, 0o555 if mode & 0o111 else 0o444)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
