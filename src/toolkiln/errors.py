"""The error tree. An error states what failed, where, and a hint with the next step.

    ToolkilnError
    ├── InputError           an invalid path, file, name or value
    │   ├── UnknownTool      no tool with that name; the hint suggests similar names
    │   ├── NotFound         no version, task, output, approval or key with that name
    │   ├── AdmissionRefused the version does not pass the checks
    │   ├── InvalidCursor    the cursor does not belong to the list
    │   ├── TooLate          the request is already decided or has ended
    │   ├── NotAllowed       the caller lacks a privilege
    │   ├── NoSession        the request has no valid session               (security)
    │   ├── NotAdmitted      the tool's file is not admitted                (catalog)
    │   ├── Disabled         the tool is disabled                           (catalog)
    │   ├── EmptyFolder      the folder has no tools                        (catalog)
    │   ├── ProposalQuota    the caller has too many pending proposals      (catalog)
    │   ├── ManifestError    the manifest is damaged or forged              (catalog)
    │   └── EditConflict     the file was changed in the meantime
    ├── ServerBusy           a queue, or the caller's share of it, is full
    ├── ConfigError          toolkiln.toml or a TOOLKILN_* variable is invalid
    ├── EnvironmentFailed    packages cannot be resolved or installed
    ├── EmbeddingFailed      no vectors; search falls back to words         (search)
    ├── StoreError           the database failed
    │   ├── Unreachable      the server cannot be reached
    │   ├── Malformed        Redis returned invalid data                    (fleet)
    │   └── ForeignCatalog   another catalog publishes to the same pool     (fleet)
    ├── SecretError          a secret is missing or cannot be protected     (security)
    ├── Unanswered           the caller did not answer a tool's question
    ├── AuditFailed          an act could not be recorded, so it is refused (security)
    ├── WorkerDraining       the worker accepts no more calls               (fleet)
    └── BackendError         the platform failed, not the tool
        └── NoWorker         no worker has joined the fleet                 (fleet)

A failing tool is a `model.Result`, not an exception. Each surface has its own table from
`code` to exit status or HTTP status.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import ClassVar

_MAX_NAME = 200
_MAX_COMPARED = 5_000


class ToolkilnError(Exception):
    """Base of all errors that Toolkiln raises."""

    code: ClassVar[str] = "toolkiln_error"
    """Public API; the wording of messages is not."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(ToolkilnError):
    """An invalid path, file or value."""

    code = "bad_input"


class ServerBusy(ToolkilnError):
    """Too many requests of this kind; retry later."""

    code = "busy"


class UnknownTool(InputError):
    """There is no tool with that name."""

    code = "unknown_tool"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no tool named {name!r}", hint=nearest_hint(name, known))


class NotFound(InputError):
    """Nothing with that name exists or is visible to the caller."""

    code = "not_found"


class InvalidCursor(InputError):
    """A cursor that does not belong to the list."""

    code = "invalid_request"

    def __init__(self) -> None:
        super().__init__(
            "query.cursor: the cursor does not belong to this list",
            hint="start without a cursor, then pass `next_cursor` unchanged",
        )


class AdmissionRefused(InputError):
    """A version that does not pass the checks of the admission pipeline."""

    code = "refused"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        reason: str = "refused",
        source: str = "body.source",
        findings: Iterable[tuple[int, str]] = (),
    ) -> None:
        """`findings` are lines of `source`, each with the text of what is wrong there."""
        super().__init__(message, hint=hint)
        self.reason = reason
        """The code of the error that refused it: `exists`, `conflict`, `busy` …"""
        self.source = source
        self.findings = tuple(findings)


class EditConflict(InputError):
    """A concurrent change of the same file or folder."""

    code = "conflict"


class StaleVersion(EditConflict):
    """The version that the request names is not the current one."""

    code = "outdated"


class RemovesOtherTools(EditConflict):
    """Other tools of the same file would be removed too, without consent."""

    code = "takes_others"


class TooLate(InputError):
    """The request is already decided or has ended."""

    code = "too_late"


class NotAllowed(InputError):
    """The caller lacks a privilege."""

    code = "not_allowed"


class ConfigError(ToolkilnError):
    """An invalid setting."""

    code = "bad_config"


class Unanswered(ToolkilnError):
    """A tool's question that the caller cannot be asked or did not answer."""

    code = "unanswered"


class EnvironmentFailed(ToolkilnError):
    """An environment that cannot be resolved, built or stored."""

    code = "environment_failed"


class BackendError(ToolkilnError):
    """A failure of the platform, not of the tool."""

    code = "backend_failed"


def refuse_outdated(name: str, current: str | None, wanted: str | None) -> None:
    """Raise StaleVersion if a version is wanted and another one is current."""
    if wanted is not None and current != wanted:
        state = f"is at version {current}" if current else "is not served"
        raise StaleVersion(f"{name} {state}", hint="look at the current version, then try again")


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """Suggest the names closest to `name`, if any."""
    if len(name) > _MAX_NAME:  # the time is proportional to the product of the lengths
        return None
    close = get_close_matches(name, islice(known, _MAX_COMPARED), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(item) for item in close)}?" if close else None


_HINTS = (
    ("disk is full", "free some space"),
    ("No space left", "free some space on the server"),
    ("readonly database", "make the file and its folder writable for this user"),
    ("read-only transaction", "use the primary server, not a replica"),
    ("unable to open", "make the folder writable for this user"),
    ("disk I/O error", "check the disk and its free space"),
    ("not a database", "move the file away; a new one is created"),
    ("malformed", "the file is damaged; move it away, and a new one is created"),
    ("locked", "another process has locked the database; try again"),
    ("permission denied", "allow the role to create and use tables in its schema"),
    ("authentication failed", "check user and password in the URL"),
    ("does not exist", "create it, or correct the URL"),
    ("no such table", "the file is damaged; move it away, and a new one is created"),
)
_CHECK_SERVER = "check that the server is running and the URL is correct"
_CHECK_FILE = "check the disk and the file"


class StoreError(ToolkilnError):
    """The database failed."""

    code: ClassVar[str] = "store_failed"


class Unreachable(StoreError):
    """The server cannot be reached; a retry may succeed."""

    def __init__(self, message: str, *, sent: bool, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        """Whether the server may have run the command."""


def driver_failed(database: str, error: BaseException, secrets: tuple[str, ...] = ()) -> StoreError:
    """Build a StoreError from the first line of a driver's error."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "***")
    other = _CHECK_SERVER if "://" in database else _CHECK_FILE
    hint = next((hint for part, hint in _HINTS if part in text), other)
    return StoreError(f"{database} failed: {text}", hint=hint)
