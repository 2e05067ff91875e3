"""What a catalog says of its files: admissions, states, what is served.

How a file comes to be admitted is `catalog`'s business.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from pydantic import Field

from toolkiln.model.calls import Grant
from toolkiln.model.tools import Finding, Reading, ToolSpec
from toolkiln.model.value import Value

Sources = Mapping[str, bytes]
"""A tool's file, first, its helper modules and data files, by their paths below its folder."""


class Overruled(Value):
    """An error that a person overruled when they admitted a version."""

    rule: str
    file: str
    """Relative to the tool's folder."""
    line: int
    by: str


class Admission(Value):
    """That one version of a file may be served."""

    sha256: str
    """The digest of the version: of the file, its helpers and its data files."""
    version: int
    """Its number in the file's history."""
    admitted_by: str
    admitted_at: str
    """UTC, ISO 8601."""
    since: str
    """When the file was first admitted: of two tools with one name the earlier keeps it."""
    rights: dict[str, Grant] = Field(default_factory=dict)
    """What was granted, by tool. Without effect unless `is_reviewed`: kept for the next review."""
    overruled: tuple[Overruled, ...] = ()
    """The errors of this version that a person overruled."""
    reviewed: bool | None = None
    """Whether a person decided; False: a writer with WRITE_TOOLS did. None: not recorded."""

    @property
    def is_reviewed(self) -> bool:
        """Whether a caller with ADMIN admitted this version: only then grants and settings apply.

        Entries of earlier releases count as reviewed unless they name `dev` or an agent.
        """
        return self.reviewed is not False and not self.is_unconfirmed

    @property
    def is_unconfirmed(self) -> bool:
        """Whether `toolkiln dev` or an agent admitted it, before that needed a person."""
        by = self.admitted_by
        return self.reviewed is None and (by in ("dev", "an agent") or by.startswith("mcp:"))


class Refusal(Value):
    """That one version of a file was looked at and not admitted, or waits for that."""

    sha256: str
    by: str
    at: str


class FileState(StrEnum):
    """How a file on disk stands to what was admitted."""

    ADMITTED = "admitted"  # served as it is
    CHANGED = "changed"  # the admitted version is served on
    NEW = "new"  # nobody has decided about it
    PROPOSED = "proposed"  # an agent wrote it, and a person has to admit it
    REJECTED = "rejected"  # a person has looked at it and said no
    MISSING = "missing"  # admitted, but no longer there: not served


class FileStatus(Value):
    """One file of the catalog, as a person looks after it."""

    file: str
    """Relative to the tools' folder."""
    state: FileState
    tools: tuple[str, ...] = ()
    admission: Admission | None = None
    findings: tuple[Finding, ...] = ()
    proposed_by: str | None = None
    """Who wrote it, if it is a proposal."""

    @property
    def is_unreviewed(self) -> bool:
        """Whether the served version has no grants and no settings until a person admits it."""
        return self.admission is not None and not self.admission.is_reviewed

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it is served, and a person still has to confirm or reject that."""
        return self.admission is not None and self.admission.is_unconfirmed


class Read:
    """A version of a file: its bytes, and what they say, which is unpacked when first asked for.

    Most of ten thousand tools are never looked at between two starts.
    """

    __slots__ = (
        "_packed", "_reading", "data_files", "digest", "file_patterns", "helpers", "names",
        "sought", "sources",
    )  # fmt: skip

    def __init__(self, reading: Reading, sources: Sources) -> None:
        """`sources` are empty if the file declares no tool."""
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
    def packed(cls, head: "ReadHead", sources: Sources, reading: Callable[[], Reading]) -> "Read":
        """One of which only the head is known so far."""
        read = cls.__new__(cls)
        read.digest, read.names, read.helpers, read.sought = head[:4]
        read.data_files, read.file_patterns = head[4:]
        read.sources, read._reading, read._packed = sources, None, reading
        return read

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Read):
            return NotImplemented
        return self.reading == other.reading and self.sources == other.sources

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def head(self) -> "ReadHead":
        """What is needed of a version to serve it, before anybody calls it."""
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
        """What the version says."""
        reading = self._reading
        if reading is None:
            assert self._packed is not None
            reading = self._reading = self._packed()
        return reading

    def tool(self, name: str) -> ToolSpec:
        """One of its tools."""
        return next(spec for spec in self.reading.tools if spec.name == name)


class ReadHead(NamedTuple):
    """The identity of a version: which tools it has, and which files it depends on."""

    digest: str
    names: tuple[str, ...]
    helpers: tuple[str, ...]
    sought: tuple[str, ...]
    data_files: tuple[str, ...]
    file_patterns: tuple[str, ...]


@dataclass(frozen=True)
class Served:
    """One version of a file that calls may run."""

    file: str
    read: Read
    admission: Admission | None = None
    """None: `dev` serves the version without an admission."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """What its tools were granted, by name."""
    is_reviewed: bool = True
    """Whether the operator's grants and settings apply to it: see `Admission.is_reviewed`."""

    @classmethod
    def admitted(cls, file: str, read: Read, admission: Admission) -> "Served":
        """An admitted version, with its grants if a person reviewed it."""
        is_reviewed = admission.is_reviewed
        return cls(file, read, admission, admission.rights if is_reviewed else {}, is_reviewed)

    @property
    def dev(self) -> bool:
        """Whether the version is served without an admission."""
        return self.admission is None

    @property
    def version(self) -> int | None:
        """Its number in the file's history; None if it has none."""
        return self.admission.version or None if self.admission else None

    @property
    def reading(self) -> Reading:
        """What the version says."""
        return self.read.reading

    @property
    def sources(self) -> Sources:
        """Its bytes."""
        return self.read.sources


class Tools(Mapping[str, ToolSpec]):
    """Tools by name, each unpacked when it is first asked for."""

    def __init__(self, served: Mapping[str, Served]) -> None:
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
    """What is served at one moment; a reload makes the next one."""

    number: int
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    """Enabled tools by name."""
    served: Mapping[str, Served] = field(default_factory=dict)
    """By tool, disabled ones too."""
    findings: tuple[Finding, ...] = ()
    """What only shows between files: names that are taken."""

    @cached_property
    def digest(self) -> str:
        """Names this content, whatever its number."""
        lines = sorted(f"{name} {self.served[name].read.digest}" for name in self.tools)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
