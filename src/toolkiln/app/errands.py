"""What people ask to be done about the tools of a catalog, and what they are told then.

Values only: `caretaking` does it where the files are, `delegating` has a worker do it.
"""

from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field

from toolkiln.app.authoring import Authored
from toolkiln.app.rights import InheritedRights
from toolkiln.catalog import RightsAsked
from toolkiln.model import FileState, Finding, Grant, JsonSchema, ToolSpec, Value

_READING, _GLANCING = 15.0, 5.0
A = TypeVar("A")
Match = tuple[str, ...] | None
"""The digests of the versions that an errand may be about, `*` for any; None: nobody says."""


class Standing(Value):
    """How a tool stands; what is null is known of tools of files only."""

    spec: ToolSpec
    enabled: bool = True
    """Whether it is offered."""
    file: str | None = None
    """Relative to the tools' folder."""
    version: int | None = None
    """Its number in the history of its file; a front of a fleet knows none without asking."""
    dev: bool = False
    """Whether `dev` serves it without an admission."""
    granted: Grant | None = None
    reviewed: bool = True
    """Whether a person with ADMIN admitted the version; others have no grants and no settings."""


class KeptVersion(Value):
    """One version of a tool's file."""

    version: int
    """Its number in the file's history; 0 if `dev` serves it without an admission."""
    digest: str
    action: str
    """`admit` or `rollback`; `dev` if it was not admitted, or by an earlier Toolkiln."""
    by: str
    at: str
    """UTC, ISO 8601."""
    tools: tuple[str, ...]
    """The tools that it declares."""
    note: str
    served: bool
    """Whether it is the one that calls run."""


class VersionDetails(KeptVersion):
    """A version with its source."""

    sources: dict[str, str]
    """The file, first, its helper modules and its data files, by name."""
    diff: str | None
    """What changed since the version that was asked for."""


class RemovedTool(Value):
    """What was removed; `rollback` to its version brings it back."""

    tools: tuple[str, ...]
    file: str
    digest: str
    version: int


class Written(Value):
    """What became of a tool that was written by its name."""

    authored: Authored
    is_new: bool
    """Whether there was none of that name."""


class ProposedFile(Value):
    """A file that waits, as it is on disk, against the version that is served."""

    file: str
    """Below the tools' folder."""
    state: FileState
    """`proposed` by a tool or the API; `new` or `changed` by who can write files."""
    names: tuple[str, ...]
    """The tools that it declares."""
    digest: str
    """Of the file and its helper modules: what an answer is about."""
    base: str | None
    """The digest of the version that is served: what it was compared with."""
    source: str
    base_source: str | None
    """Of the version that is served."""
    diff: str
    """Over the file and its helper modules; characters that do not show are spelt out."""
    by: str | None
    """Who proposed it, if that is known."""
    at: float | None
    findings: tuple[Finding, ...]
    """Those that the version served does not have, and all that are overruled; one of severity
    `error` refuses it."""
    rights: tuple[RightsAsked, ...]
    """What it asks for beyond the version served."""
    grants: tuple[RightsAsked, ...]
    """All that it asks for: what `grant` grants."""
    inherits: tuple[InheritedRights, ...] = ()
    """The grants and settings that it has once it is admitted, without `grant`."""
    base_reviewed: bool | None = None
    """Whether a person reviewed the served version; if not, `diff` and `rights` compare with
    nothing. None: no version is served."""


class ToolSettings(Value):
    """The settings of a tool, for the operator or one user."""

    tool: str
    user: str | None
    """Null: the operator's."""
    parameters: JsonSchema
    """JSON Schema of the values."""
    values: dict[str, Any]
    """What is set; a secret is there as `(secret, set)`."""
    missing: str | None
    """What keeps the tool from running, in words."""


class Errand(Value, Generic[A]):
    """Something to be done for the holder of a session; `A` is what they are told."""

    kind: ClassVar[str]
    """Names it where it travels."""
    answer: ClassVar[Any]
    """`A`, to be read back."""
    is_reading: ClassVar[bool] = False
    """Whether it changes nothing, so that it may as well be done twice."""
    seconds: ClassVar[float] = 30.0
    """How long it may take, on the way to a worker and back too."""

    name: str = ""
    """The tool or toolkit that it is about; empty: all of the catalog."""


class Look(Errand[Standing]):
    """See how a tool stands; one that is switched off takes ADMIN."""

    kind = "look"
    answer = Standing
    is_reading = True
    seconds = _READING


class ListDisabled(Errand[tuple[ToolSpec, ...]]):
    """List the tools that are admitted and switched off; takes ADMIN."""

    kind = "list-disabled"
    answer = tuple[ToolSpec, ...]
    is_reading = True
    seconds = _GLANCING


class ListProposed(Errand[tuple[ToolSpec, ...]]):
    """List the tools of versions that wait for a person to admit them; takes ADMIN."""

    kind = "list-proposed"
    answer = tuple[ToolSpec, ...]
    is_reading = True
    seconds = _GLANCING


class Author(Errand[Authored]):
    """Write a file of tools, as `Draft` says; its name is the file's. Takes WRITE_TOOLS."""

    kind = "author"
    answer = Authored
    seconds = 330.0

    code: str
    description: str = ""
    overwrite: bool = False
    base: str | None = None
    folder: str = ""


class Write(Errand[Written]):
    """Write a tool by its name, wherever its file lies; takes WRITE_TOOLS."""

    kind = "write"
    answer = Written
    seconds = 330.0

    source: str
    description: str = ""
    only_new: bool = False
    """Whether nothing that is there may be replaced."""
    match: Match = None


class Patch(Errand[Standing]):
    """Offer a tool or cease to, or grant what it asks for; takes ADMIN."""

    kind = "patch"
    answer = Standing

    enabled: bool | None = None
    granted: Literal[True] | None = None
    match: Match = None


class SwitchToolkit(Errand[dict[str, bool]]):
    """Offer a toolkit or some of its methods, or cease to; which tools are offered then."""

    kind = "switch-toolkit"
    answer = dict[str, bool]

    enabled: bool = True
    methods: dict[str, bool] = Field(default_factory=dict)
    """By method or tool; those not named are offered."""


class Remove(Errand[RemovedTool]):
    """Take a tool's file out of the catalog and off the disk; takes ADMIN."""

    kind = "remove"
    answer = RemovedTool

    with_others: bool = False
    """Whether other tools of the same file may go with it."""
    match: Match = None


class ListVersions(Errand[tuple[KeptVersion, ...]]):
    """The admitted versions of a tool's file, newest first."""

    kind = "list-versions"
    answer = tuple[KeptVersion, ...]
    is_reading = True
    seconds = _READING


class ShowVersion(Errand[VersionDetails]):
    """One version with its source; takes WRITE_TOOLS.

    A version that `dev` serves without an admission is named by its whole digest.
    """

    kind = "show-version"
    answer = VersionDetails
    is_reading = True
    seconds = _READING

    version: str
    """Its number, or how its digest begins."""
    since: str | None = None
    """Another version, to show what changed."""


class RollBack(Errand[KeptVersion]):
    """Serve an earlier version again; takes ADMIN."""

    kind = "roll-back"
    answer = KeptVersion

    version: str
    """Its number, or how its digest begins."""
    discard: bool = False
    """Whether changes on disk may go that nobody admitted."""
    match: Match = None


class ShowSettings(Errand[ToolSettings]):
    """What a tool is handed with its calls; of others than oneself it takes ADMIN."""

    kind = "show-settings"
    answer = ToolSettings
    is_reading = True
    seconds = _READING

    user: str = ""
    """Whose; empty: the operator's."""


class SetTool(Errand[ToolSettings]):
    """Set what a tool is handed with its calls; for others than oneself it takes ADMIN."""

    kind = "set-tool"
    answer = ToolSettings

    values: dict[str, Any]
    unset: tuple[str, ...] = ()
    """The names of values to be forgotten."""
    user: str = ""
    """Whose; empty: the operator's."""


class ListWaiting(Errand[tuple[str, ...]]):
    """The files that wait for a person to admit them; takes ADMIN."""

    kind = "list-waiting"
    answer = tuple[str, ...]
    is_reading = True
    seconds = _READING

    only_proposed: bool = False
    """Without those that are new or changed on disk, which takes no look at the whole folder."""


class ShowWaiting(Errand[tuple[ProposedFile, ...]]):
    """All about some of those files, without such as wait no longer; takes ADMIN."""

    kind = "show-waiting"
    answer = tuple[ProposedFile, ...]
    is_reading = True
    seconds = _READING

    files: tuple[str, ...]


class Admit(Errand[Authored]):
    """Let a file be served exactly as it was looked at; takes ADMIN."""

    kind = "admit"
    answer = Authored
    seconds = 330.0

    file: str
    digest: str
    base: str | None
    """The version that was served, by its digest."""
    grant: bool = False
    """Whether all that its tools ask for is granted with it."""
    reason: str = ""


class Reject(Errand[bool]):
    """Decide that a file is not to be served as it was looked at; whether an earlier one is."""

    kind = "reject"
    answer = bool

    file: str
    digest: str
    base: str | None
    """The version that was served, by its digest."""
    reason: str = ""


ERRANDS: dict[str, type[Errand[Any]]] = {
    errand.kind: errand
    for errand in (
        Look, ListDisabled, ListProposed, Author, Write, Patch, SwitchToolkit, Remove, ListVersions,
        ShowVersion, RollBack, ShowSettings, SetTool, ListWaiting, ShowWaiting, Admit, Reject,
    )
}  # fmt: skip
"""All of them, by their kinds."""
