"""Files, versions and admissions of a catalog, and snapshots of its served tools."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, NamedTuple

from pydantic import Field

from toolkiln.errors import InputError
from toolkiln.model.base import Value
from toolkiln.model.call import Grant
from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import ToolSpec

Sources = Mapping[str, bytes]
"""Relative path to content: the tool's file first, then helper modules and data files."""


class Overruled(Value):
    """An error that a person overruled when admitting a version."""

    rule: str
    file: str
    """Relative to the tool's folder."""
    line: int
    by: str


class Admission(Value):
    """The decision that a version of a file may be served."""

    sha256: str
    """Digest of the version: the file, its helper modules and data files."""
    version: int
    """Number in the file's history."""
    admitted_by: str
    admitted_at: str
    """UTC, ISO 8601."""
    since: str
    """First admission of the file; if two tools share a name, the earlier one keeps it."""
    rights: dict[str, Grant] = Field(default_factory=dict)
    """Grants by tool; without effect unless `is_reviewed`, but kept for the next review."""
    overruled: tuple[Overruled, ...] = ()
    """Errors of this version that a person overruled."""
    reviewed: bool | None = None
    """Whether a person decided, rather than a writer with WRITE_TOOLS; null if not recorded."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Tools of the version that are not served, with the reason."""

    @property
    def is_reviewed(self) -> bool:
        """Whether a caller with ADMIN admitted this version; only then grants and settings apply.

        Entries of earlier releases count as reviewed unless they name `dev` or an agent.
        """
        return self.reviewed is not False and not self.is_unconfirmed

    @property
    def is_unconfirmed(self) -> bool:
        """Whether `dev` or an agent admitted it in a release that did not require a person."""
        by = self.admitted_by
        return self.reviewed is None and (by in ("dev", "an agent") or by.startswith("mcp:"))


class DecisionRecord(Value):
    """A rejected or proposed version of a file."""

    sha256: str
    by: str
    at: str


class FileState(StrEnum):
    """State of a file on disk compared with its admission."""

    ADMITTED = "admitted"
    CHANGED = "changed"  # the admitted version is still served
    NEW = "new"  # no decision yet
    PROPOSED = "proposed"  # written by an agent, waiting for admission
    REJECTED = "rejected"
    MISSING = "missing"  # admitted but deleted: not served


class FileStatus(Value):
    """State of one file of the catalog."""

    file: str
    """Relative to the tools folder."""
    state: FileState
    tools: tuple[str, ...] = ()
    admission: Admission | None = None
    findings: tuple[Finding, ...] = ()
    proposed_by: str | None = None
    """Author of the proposal, if it is one."""

    @property
    def is_unreviewed(self) -> bool:
        """Whether the served version gets no grants or settings until a person admits it."""
        return self.admission is not None and not self.admission.is_reviewed

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it is served, but a person still has to confirm it."""
        return self.admission is not None and self.admission.is_unconfirmed


class FileVersion:
    """A version of a file: its bytes and its reading, which is decoded on first use.

    Most tools of a large catalog are never used between two starts.
    """

    __slots__ = (
        "_packed", "_reading", "data_files", "digest", "file_patterns", "helpers", "names",
        "sought", "sources",
    )  # fmt: skip

    def __init__(self, reading: Reading, sources: Sources) -> None:
        """Create a version; `sources` is empty if the file declares no tool."""
        self.digest = reading.digest
        self.names = tuple(spec.name for spec in reading.tools)
        self.helpers = reading.helpers
        self.sought = reading.sought
        self.data_files = reading.data_files
        self.file_patterns = reading.file_patterns
        self.sources = sources
        self._reading: Reading | None = reading
        self._packed: Callable[[], Reading] | None = None

    @classmethod
    def packed(
        cls, head: "ReadHead", sources: Sources, reading: Callable[[], Reading]
    ) -> "FileVersion":
        """Create a version whose reading is decoded later."""
        version = cls.__new__(cls)
        version.digest, version.names, version.helpers, version.sought = head[:4]
        version.data_files, version.file_patterns = head[4:]
        version.sources, version._reading, version._packed = sources, None, reading
        return version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileVersion):
            return NotImplemented
        return self.reading == other.reading and self.sources == other.sources

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def head(self) -> "ReadHead":
        """The part needed to serve the version before its first call."""
        return ReadHead(
            self.digest,
            self.names,
            self.helpers,
            self.sought,
            self.data_files,
            self.file_patterns,
        )

    @property
    def reading(self) -> Reading:
        """Tools and findings of the version."""
        reading = self._reading
        if reading is None:
            assert self._packed is not None
            reading = self._reading = self._packed()
        return reading

    def tool(self, name: str) -> ToolSpec:
        """Return one of its tools."""
        return next(spec for spec in self.reading.tools if spec.name == name)


class ReadHead(NamedTuple):
    """Identity of a version: its tools and the files it depends on."""

    digest: str
    names: tuple[str, ...]
    helpers: tuple[str, ...]
    sought: tuple[str, ...]
    data_files: tuple[str, ...]
    file_patterns: tuple[str, ...]


@dataclass(frozen=True)
class ServedVersion:
    """A version of a file that is served."""

    file: str
    read: FileVersion
    admission: Admission | None = None
    """None if `dev` serves the version without admission."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """Grants by tool."""
    is_reviewed: bool = True
    """Whether the operator's grants and settings apply; see `Admission.is_reviewed`."""

    @classmethod
    def admitted(cls, file: str, read: FileVersion, admission: Admission) -> "ServedVersion":
        """Create an admitted version, with its grants if it was reviewed."""
        is_reviewed = admission.is_reviewed
        return cls(file, read, admission, admission.rights if is_reviewed else {}, is_reviewed)

    @property
    def dev(self) -> bool:
        """Whether the version is served without admission."""
        return self.admission is None

    @property
    def version(self) -> int | None:
        """Number in the file's history, if it has one."""
        return self.admission.version or None if self.admission else None

    @property
    def refused(self) -> Mapping[str, str]:
        """Tools of the version that are not served, with the reason."""
        return self.admission.refused if self.admission else {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that the version may serve."""
        return tuple(name for name in self.read.names if name not in self.refused)

    @property
    def reading(self) -> Reading:
        """Tools and findings of the version."""
        return self.read.reading

    @property
    def sources(self) -> Sources:
        """Content of its files."""
        return self.read.sources


class Tools(Mapping[str, ToolSpec]):
    """Tools by name, each decoded on first use."""

    def __init__(self, served: Mapping[str, ServedVersion]) -> None:
        self._served = served

    def __getitem__(self, name: str) -> ToolSpec:
        return self._served[name].read.tool(name)

    def __contains__(self, name: object) -> bool:
        return name in self._served

    def __iter__(self) -> Iterator[str]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)


@dataclass(frozen=True)
class Snapshot:
    """The served tools at one point in time; a reload creates the next snapshot."""

    number: int
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    """Enabled tools by name."""
    served: Mapping[str, ServedVersion] = field(default_factory=dict)
    """Versions by tool, including disabled tools."""
    findings: tuple[Finding, ...] = ()
    """Why tools of served files are not served: duplicate names, failing examples."""

    @cached_property
    def digest(self) -> str:
        """Hash of the served tools, independent of the snapshot's number."""
        lines = sorted(f"{name} {self.served[name].read.digest}" for name in self.tools)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class CatalogChange:
    """A change of a catalog."""

    snapshot: Snapshot
    added: tuple[str, ...] = ()
    """Names of tools."""
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    refused: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Files with errors, and their findings; an earlier version is still served."""
    seconds: float = 0.0
    """Duration of the reload, without the debounce."""
    error: InputError | None = None
    """Why nothing is served: the manifest is unusable, or the folder does not exist."""


Action = Literal["admit", "rollback", "dev"]
"""How a version was admitted. `dev` occurs only in histories of earlier releases."""


class Version(Value):
    """One entry in the history of a tool's file."""

    file: str
    """Path relative to the tools folder, with forward slashes."""
    number: int
    """1, 2, 3 … for each catalog and file."""
    digest: str
    """SHA-256 of the file, its local helper modules and its data files."""
    action: Action
    by: str
    at: str
    """UTC, ISO 8601, ending in Z."""
    tools: tuple[str, ...]
    """Names of the tools it declares, without those that were refused."""
    note: str = ""


class VersionContent(Value):
    """A tool's file to archive, with its reading."""

    file: str
    """Path relative to the tools folder, with forward slashes."""
    reading: Reading
    sources: Sources
    note: str = ""
    """Note in the history of this file, in addition to the note of the arrival."""
    refused: frozenset[str] = frozenset()
    """Tools that are not served."""


class Arrival(Value):
    """How, by whom and when versions were added to a catalog."""

    action: Action
    by: str
    at: str
    """UTC, ISO 8601, ending in Z."""
    note: str = ""
