"""Imports of foreign files: what each one needs, what differs for it, and where it went."""

from typing import Literal

from toolkiln.model.base import Value
from toolkiln.model.source import Finding

ImportOutcome = Literal["copied", "replaced", "unchanged", "refused", "skipped"]
"""`skipped`: a file of a folder that declares no tool."""


class Difference(Value):
    """Something that a file finds different in the sandbox, and why."""

    file: str | None = None
    """The helper module that it is in; null: the file itself."""
    line: int
    message: str
    tools: tuple[str, ...] = ()
    """The tools whose calls fail if they get there, as far as the file shows it."""


class PackageUse(Value):
    """A package that a file imports."""

    module: str
    """As imported."""
    line: int
    requirement: str | None
    """As in `httpx>=0.27`; null: the distribution that provides the module is not known."""
    is_listed: bool
    """Whether the file or the tools folder lists it, so that calls have it."""


class ImportedFile(Value):
    """A foreign file: what works of it, what differs, and whether it was copied."""

    source: str
    """The path of the original, which is never changed."""
    file: str | None = None
    """Relative to the tools folder; null: it was not copied."""
    outcome: ImportOutcome
    reason: str = ""
    """Why it was not copied."""
    framework: str | None = None
    """For people; null: plain Python."""
    tools: tuple[str, ...] = ()
    """The tools that it declares."""
    companions: tuple[str, ...] = ()
    """The helper modules and data files that belong to it, relative to the tools folder."""
    differences: tuple[Difference, ...] = ()
    packages: tuple[PackageUse, ...] = ()
    findings: tuple[Finding, ...] = ()


class ImportReport(Value):
    """The files that were found, and what became of them."""

    files: tuple[ImportedFile, ...]
    notes: tuple[str, ...] = ()
    """Requirements files that cannot be used, and why."""
    dry_run: bool
    """Whether nothing was written."""
