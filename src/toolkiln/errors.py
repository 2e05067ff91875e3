"""The one error tree. An error says what is wrong, where, and what to do next.

    ToolkilnError
    ├── InputError         what the caller handed over cannot be used (a path, a file, a name)
    │   ├── UnknownTool    no tool of that name; the hint carries the nearest ones
    │   ├── NotFound       no version, task, output, approval or key of that name
    │   ├── TooLate        a request that was answered, or waits no longer
    │   ├── NoSession      nobody is known to have made a request            (execution)
    │   ├── NotAllowed     somebody tried what they have no right to
    │   ├── NotAdmitted    the tool is on disk, but nobody has admitted it   (app.offer)
    │   ├── Disabled       the tool is switched off                          (app.offer)
    │   ├── ManifestError  nothing is served: no manifest can be trusted     (catalog)
    │   └── Conflict       somebody else changed the same file meanwhile     (catalog)
    │       ├── Outdated     the version that was looked at is served no longer
    │       └── TakesOthers  other tools of the same file would go too
    ├── ServerBusy         a bounded queue or a caller's share of it is full
    ├── ConfigError        toolkiln.toml or a TOOLKILN_* variable is wrong
    ├── EnvironmentFailed  the packages that a tool requires cannot be resolved or installed
    ├── EmbeddingFailed    vectors cannot be had; search goes on by words    (search)
    ├── StoreError         the database behind the store cannot be used      (store)
    │   ├── Unreachable    Redis could not be reached, or went away          (store)
    │   └── Malformed      bytes from Redis are not what they should be      (fleet)
    ├── SecretError        a secret is missing, or cannot be read or kept secret (execution)
    ├── Unanswered         a tool's question cannot be put to its caller, or has no answer
    ├── AuditFailed        what cannot be recorded must not happen           (execution)
    └── BackendError       the platform cannot run tools: no sandbox, or it broke down
        └── NoWorker       no worker has ever joined the fleet               (app.published)

A failing tool is not here: it is an answer (`model.Result`), not an exception. Each
surface owns its table from `code` to exit status or HTTP status.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import ClassVar

_LONGEST_NAME = 200
_MOST_COMPARED = 5_000


class ToolkilnError(Exception):
    """Anything Toolkiln itself refuses or fails to do."""

    code: ClassVar[str] = "toolkiln_error"
    """Public API; the wording of messages is not."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(ToolkilnError):
    """A path, file or value that cannot be used as it is."""

    code = "bad_input"


class ServerBusy(ToolkilnError):
    """There is no room for another request of this kind; try again in a moment."""

    code = "busy"


class UnknownTool(InputError):
    """No tool of that name exists."""

    code = "unknown_tool"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no tool named {name!r}", hint=nearest_hint(name, known))


class NotFound(InputError):
    """There is nothing of that name that the caller may know of."""

    code = "not_found"


class TooLate(InputError):
    """It was decided, or has ended, before."""

    code = "too_late"


class NotAllowed(InputError):
    """Somebody tried what they have no right to."""

    code = "not_allowed"


class ConfigError(ToolkilnError):
    """A setting that cannot be used."""

    code = "bad_config"


class Unanswered(ToolkilnError):
    """A question of a tool's that cannot be asked, or was not answered."""

    code = "unanswered"


class EnvironmentFailed(ToolkilnError):
    """An environment of packages that cannot be resolved, built or kept."""

    code = "environment_failed"


class BackendError(ToolkilnError):
    """The platform, not the tool, failed."""

    code = "backend_failed"


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    """A question with the names closest to `name`, if any is close."""
    if len(name) > _LONGEST_NAME:  # comparing takes the product of the lengths
        return None
    close = get_close_matches(name, islice(known, _MOST_COMPARED), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(item) for item in close)}?" if close else None
