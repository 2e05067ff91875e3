"""Atomic read-only folders and file locks. All functions except `file_lock` block.

Unfinished folders are named `ID.RANDOM.partial` and are next to their target, because a
read-only folder can be renamed, but not moved to another parent.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from pathlib import Path

from toolkiln.errors import EnvironmentFailed

_SUFFIX = ".partial"
FULL_DISK_HINT = "free disk space, for example with `toolkiln env prune`, and try again"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MIN_WAIT, _MAX_WAIT = 0.01, 0.2


@contextmanager
def disk_errors() -> Iterator[None]:
    """Convert OSError to EnvironmentFailed."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        problem = "the disk is full" if full else "cannot access the environments"
        where = f": {error.filename}" if error.filename else ""
        hint = FULL_DISK_HINT if full else "check the environments folder and its owner"
        raise EnvironmentFailed(f"{problem}{where}: {error.strerror}", hint=hint) from error


def make(folder: Path) -> None:
    """Create a folder and its parents, world-readable regardless of the umask."""
    if not folder.is_dir():
        make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)


def partial(target: Path) -> Path:
    """Return a new temporary name for `target`."""
    return target.with_name(f"{target.stem}.{secrets.token_hex(4)}{_SUFFIX}")


def partials(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the partial files and folders in a folder, each with the id of its target."""
    for path in folder.glob(f"*{_SUFFIX}"):
        yield path.name.partition(".")[0], path


def write(file: Path, content: str) -> None:
    """Replace a file atomically and durably."""
    temporary = partial(file)
    try:
        with temporary.open("x", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(file.parent)


def publish(temporary: Path, target: Path) -> None:
    """Make a folder read-only, sync it to disk, and rename it, replacing the target."""
    for folder, folders, files in os.walk(temporary, topdown=False):
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(folder, name)).st_mode
            # Following a link would change the mode of a host file.
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise EnvironmentFailed(
                    f"a package contains {name!r}, which is neither a file nor a folder",
                    hint="require another version of the package",
                )
        for name in files:
            _sync(os.path.join(folder, name), seal=True)
        _sync(folder, seal=True)
    remove(target)
    temporary.rename(target)
    _sync(target.parent)


def remove(path: Path) -> None:
    """Remove a file or folder, even if read-only; errors are ignored."""
    if path.is_dir():
        for folder, _, _ in os.walk(path):
            with suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def measure(top: Path, max_bytes: float = inf, max_files: float = inf) -> tuple[int, int]:
    """Count the bytes and entries in a folder; stop once a limit is exceeded."""
    size = entries = 0
    for folder, inner, names in os.walk(top):
        entries += len(inner) + len(names)
        for name in names:
            with suppress(OSError):  # moved in the meantime
                size += os.lstat(os.path.join(folder, name)).st_size
        if size > max_bytes or entries > max_files:
            break
    return size, entries


def _sync(path: str | Path, *, seal: bool = False) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if seal:
            mode = os.fstat(descriptor).st_mode
            os.fchmod(descriptor, 0o555 if mode & 0o111 else 0o444)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(file: Path, *, exclusive: bool) -> int | None:
    """Lock a file; return the descriptor that keeps the lock until closed, or None if locked."""
    with disk_errors():
        while True:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                # A lock on a file that was removed in the meantime is useless.
                if os.fstat(descriptor).st_nlink:
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:  # including cancellation
                os.close(descriptor)
                raise
            os.close(descriptor)


@asynccontextmanager
async def file_lock(file: Path, *, exclusive: bool) -> AsyncIterator[int]:
    """Wait for a file lock; yield its descriptor.

    Polls, because a thread blocked in `flock` cannot be cancelled, and could occupy the thread
    that the lock's owner needs.
    """
    wait = _MIN_WAIT
    while (descriptor := try_lock(file, exclusive=exclusive)) is None:
        await asyncio.sleep(wait)
        wait = min(2 * wait, _MAX_WAIT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
