"""Admission of versions: drafts, decisions and results."""

from dataclasses import dataclass
from enum import StrEnum

from toolkiln.model.base import Value
from toolkiln.model.catalog import Action


@dataclass(frozen=True)
class AdmissionDecision:
    """A decision to admit a version."""

    by: str
    grant: bool = False
    """Whether to grant the requested permissions."""
    note: str = ""
    action: Action = "admit"
    unsandboxed: bool = False
    """Whether the decider may admit unsandboxed tools."""
    reviewed: bool = True
    """Whether a caller with ADMIN decides; otherwise the writer does, and the version gets no
    grants or settings."""


class Stage(StrEnum):
    """Stages of the admission pipeline, in order."""

    NAME = "name"  # choose the file
    SYNTAX = "syntax"
    READ = "read"  # tools and schemas
    FINDINGS = "findings"  # check against the policy
    PROBE = "probe"  # import, compare signatures and run examples in the sandbox
    DOCS = "docs"
    WRITE = "write"  # file and manifest, atomically
    SNAPSHOT = "snapshot"  # make it callable
    SEARCH = "search"


class StageOutcome(Value):
    """Result of one stage."""

    stage: Stage
    ok: bool
    message: str = ""


@dataclass(frozen=True)
class ToolDraft:
    """A tool file to add."""

    code: str | bytes
    name: str
    description: str = ""
    overwrite: bool = False
    base: str | None = None
    """Digest of the version to replace; the draft is rejected if another one is current."""
    folder: str = ""
    """Path below the tools folder, with forward slashes."""
    tool: str | None = None
    """The tool that the author means to write, if they named one."""


class FindingSummary(Value):
    """A short form of a finding, for models."""

    line: int
    rule: str
    message: str
    fix: str


class AdmissionResult(Value):
    """Result of submitting a draft."""

    success: bool
    filename: str = ""
    filepath: str = ""
    functions_registered: tuple[str, ...] = ()
    reload_success: bool = False
    embedding_success: bool = False
    docs_generated: bool = False
    error: str = ""
    code: str = ""
    """Reason of a failure: `refused` for findings, `exists`, or an error code."""
    validation_errors: tuple[FindingSummary, ...] = ()
    warnings: tuple[FindingSummary, ...] = ()
    stages: tuple[StageOutcome, ...] = ()
    digest: str = ""
    version: int | None = None
    proposed: bool = False
    """Whether it is a proposal that a person has to admit."""
