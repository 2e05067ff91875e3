"""What a catalog says of its files: admissions, states, what is served.

How a file comes to be admitted is `catalog`'s business.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from pydantic import Field

from toolkiln.model.calls import Grant
from toolkiln.model.tools import Finding, Reading, ToolSpec
from toolkiln.model.value import Value

Sources = Mapping[str, bytes]
"""A tool's file, first, and its helper modules, by their paths below the tool's folder."""


class Admission(Value):
    """That one version of a file may be served."""

    sha256: str
    """The digest of the version: of the file and its helpers."""
    version: int
    """Its number in the file's history."""
    admitted_by: str
    admitted_at: str
    """UTC, ISO 8601."""
    since: str
    """When the file was first admitted: of two tools with one name the earlier keeps it."""
    rights: dict[str, Grant] = Field(default_factory=dict)
    """What was granted with it, by tool."""


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


@dataclass(frozen=True)
class Served:
    """One version of a file that calls may run."""

    file: str
    reading: Reading
    admission: Admission
    sources: Sources = field(repr=False)


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
        lines = sorted(f"{name} {spec.digest}" for name, spec in self.tools.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
