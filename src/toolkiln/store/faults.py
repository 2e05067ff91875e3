"""What can go wrong with a database, as the one error that leaves this package.

Messages carry the database's own first line and a hint; never a URL, a password or SQL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from sqlalchemy import exc

from toolkiln.errors import ToolkilnError

_HINTS = (
    ("disk is full", "free some space"),
    ("No space left", "free some space on the server"),
    ("readonly database", "make the file and its folder writable for this user"),
    ("read-only transaction", "use the primary server, not a replica"),
    ("unable to open", "make the folder writable for this user"),
    ("disk I/O error", "check the disk and its free space"),
    ("not a database", "move the file away: a fresh one is made in its place"),
    ("malformed", "the file is damaged; move it away: a fresh one is made in its place"),
    ("locked", "another process holds the database; try again"),
    ("permission denied", "grant the role the right to create and use tables in its schema"),
    ("authentication failed", "check user and password in the URL"),
    ("does not exist", "create it, or correct the URL"),
    ("no such table", "the file is damaged; move it away: a fresh one is made in its place"),
)
_CHECK_SERVER = "is the server running, and is the URL right?"
_CHECK_FILE = "check the disk and the file"


class StoreError(ToolkilnError):
    """The database behind the store cannot be used."""

    code: ClassVar[str] = "store_failed"


@contextmanager
def as_store_error(database: str, secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Turns whatever the database raises into a StoreError that names `database`."""
    try:
        yield
    except exc.DBAPIError as error:
        text = str(error.orig).strip().partition("\n")[0] or type(error.orig).__name__
        for secret in secrets:
            text = text.replace(secret, "***")
        other = _CHECK_SERVER if "://" in database else _CHECK_FILE
        hint = next((hint for part, hint in _HINTS if part in text), other)
        # Not chained: the foreign error carries SQL, values and perhaps the URL.
        raise StoreError(f"the store {database} failed: {text}", hint=hint) from None
    except exc.TimeoutError:
        raise StoreError(
            f"the store {database} is overloaded: no connection became free in time",
            hint="make fewer calls at once",
        ) from None
    except UnicodeError:
        raise StoreError(
            f"the store {database} failed: its name or something in it is not valid text",
            hint="check its name; if it is damaged, move it away",
        ) from None
    except exc.SQLAlchemyError as error:
        text = f"the store {database} failed: {type(error).__name__}"
        raise StoreError(text, hint="please report this") from None
