"""The files that SQLite databases live in: private, and never to be seen half-made."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from toolkiln.store.errors import StoreError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")


def file_path(text: str) -> str | None:
    """The path that a path or an `sqlite://` URL means; None: another URL."""
    scheme = _URL.match(text)
    if scheme is None:
        return text
    return text.removeprefix("sqlite://").removeprefix("/") if scheme[1] == "sqlite" else None


def database_file(text: str, fill: Callable[[Path], None], *, what: str = "store") -> Path:
    """The absolute path of a database that can be written; `fill` makes one that is missing.

    Raises:
        StoreError: it is no file, or may not be created or written.
    """
    try:
        # Absolute: no name (":memory:", "file:…") shall mean anything else to SQLite.
        file = Path(text).expanduser().resolve()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not text or (file.exists() and not file.is_file()):
            hint = "give the path of a file"
            raise StoreError(f"a {what} cannot be opened at {text!r}: not a file", hint=hint)
        if not file.exists():
            _create(file, fill)
        if not os.access(file, os.W_OK):  # SQLite would open it for reading, and say nothing
            hint = "make the file writable for this user"
            raise StoreError(f"the {what} {text!r} may not be written", hint=hint)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "choose a file in a folder that this user may write"
        raise StoreError(f"the {what} {text!r} cannot be created: {reason}", hint=hint) from None
    return file


def _create(file: Path, fill: Callable[[Path], None]) -> None:
    """A complete database, 0600, appears under its name at once or not at all.

    Made in place it could be seen half-made: two processes that both switch a new file to
    its write-ahead log get "database is locked" whatever their timeout.
    """
    log = Path(f"{file}-wal")
    if log.exists() and not file.exists():  # SQLite would replay it onto a file it is not of
        hint = f"put the file back, or move {log.name} away as well"
        raise StoreError(f"{str(file)!r} is gone, but its write-ahead log is not", hint=hint)
    unfinished = file.with_name(f".{file.name[:100]}.{os.urandom(8).hex()}")
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        fill(unfinished)
        with suppress(FileExistsError):  # another process was faster: its file serves as well
            os.link(unfinished, file)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{unfinished}{suffix}").unlink(missing_ok=True)
