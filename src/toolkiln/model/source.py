"""Results of reading source code: tools, findings, reports and repairs."""

from enum import StrEnum

from toolkiln.model.base import Value
from toolkiln.model.spec import SchemaHealth, ToolSpec


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"  # prevents admission
    WARNING = "warning"  # likely to confuse a model or client
    INFO = "info"


class Finding(Value):
    """Something wrong or notable in a source, with its location and a fix."""

    rule: str
    """Stable kebab-case name of the check."""
    severity: Severity
    message: str
    line: int = 1
    fix: str
    column: int | None = None
    """1-based, where a caret helps."""
    tool: str | None = None
    """The affected tool, if any."""
    path: str | None = None
    """The file."""
    overruled: bool = False
    """Whether an ignore comment overrules this error; only a person may admit such a version."""


class Reading(Value):
    """All tools and findings of one file."""

    path: str
    digest: str
    tools: tuple[ToolSpec, ...] = ()
    findings: tuple[Finding, ...] = ()
    helpers: tuple[str, ...] = ()
    """Local modules that are part of this version, relative to the file's folder."""
    sought: tuple[str, ...] = ()
    """Imported modules that do not exist in that folder: `requests`, `pkg/part`."""
    data_files: tuple[str, ...] = ()
    """Declared data files that are part of this version, relative to the file's folder."""
    file_patterns: tuple[str, ...] = ()
    """Patterns of the declared data files: `data/*.json`."""


class FileReport(Value):
    """The result of checking one file."""

    reading: Reading
    health: dict[str, SchemaHealth]
    """By tool."""

    @property
    def worst(self) -> Severity | None:
        """The highest severity of its findings."""
        found = {finding.severity for finding in self.reading.findings}
        return next((severity for severity in Severity if severity in found), None)


class Repair(Value):
    """A suggested insertion of text."""

    line: int
    column: int
    """1-based, in characters."""
    text: str
    select: tuple[int, int] | None = None
    """Range of the text for the author to fill in; null: the text is complete."""
