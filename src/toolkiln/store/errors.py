"""The one error that leaves this package, and what to do about it.

Free of SQLAlchemy: whoever only wants to catch it, or writes the audit, need not load that.
"""

from typing import ClassVar

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


class Unreachable(StoreError):
    """The server could not be reached, or went away; a later attempt may find it."""

    def __init__(self, message: str, *, sent: bool, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        """Whether the server may have run the command."""


def driver_failed(what: str, error: BaseException, secrets: tuple[str, ...] = ()) -> StoreError:
    """A StoreError with the first line of what a driver raised; `what` names the database."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "***")
    other = _CHECK_SERVER if "://" in what else _CHECK_FILE
    hint = next((hint for part, hint in _HINTS if part in text), other)
    return StoreError(f"{what} failed: {text}", hint=hint)
