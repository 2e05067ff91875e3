"""SQLite database files: private, and created atomically."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from toolkiln.errors import StoreError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")


def file_path(text: str) -> str | None:
    """Return the file path of a path or an `sqlite://` URL; None for another URL."""
    scheme = _URL.match(text)
    if scheme is None:
        return text
    return text.removeprefix("sqlite://").removeprefix("/") if scheme[1] == "sqlite" else None


def database_file(text: str, fill: Callable[[Path], None], *, what: str = "store") -> Path:
    """Return the absolute path of a writable database; `fill` creates a missing one."""
    try:
        # Absolute, so that SQLite treats no name (":memory:", "file:…") specially.
        file = Path(text).expanduser().resolve()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not text or (file.exists() and not file.is_file()):
            hint = "give the path of a file"
            raise StoreError(f"a {what} cannot be opened at {text!r}: not a file", hint=hint)
        if not file.exists():
            _create(file, fill)
        if not os.access(file, os.W_OK):  # SQLite would silently open it read-only
            hint = "make the file writable by this user"
            raise StoreError(f"the {what} {text!r} is not writable", hint=hint)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "choose a file in a folder writable by this user"
        raise StoreError(f"the {what} {text!r} cannot be created: {reason}", hint=hint) from None
    return file


def _create(file: Path, fill: Callable[[Path], None]) -> None:
    """Create a complete database, mode 0600, under its name atomically.

    Other processes must not see it half-created: two that switch a new file to WAL get
    "database is locked" regardless of their timeout.
    """
    log = Path(f"{file}-wal")
    if log.exists() and not file.exists():  # SQLite would replay it onto the new file
        hint = f"restore the file, or move {log.name} away as well"
        raise StoreError(f"{str(file)!r} is missing, but its write-ahead log exists", hint=hint)
    temporary = file.with_name(f".{file.name[:100]}.{os.urandom(8).hex()}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        fill(temporary)
        with suppress(FileExistsError):  # another process created it first
            os.link(temporary, file)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{temporary}{suffix}").unlink(missing_ok=True)
