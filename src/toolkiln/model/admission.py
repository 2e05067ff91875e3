"""Admission of versions: drafts, decisions and results."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, field_validator

from toolkiln.model.base import JsonSchema, Value
from toolkiln.model.catalog import Action

_REQUIREMENT = r"^[^\\\x00-\x1f\x7f]{1,500}$"
"""No line breaks and escapes: requirements are written into sources."""


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


class PipRequirement(Value):
    """A package that a tool requires."""

    name: Annotated[str, Field(pattern=_REQUIREMENT)]
    version: Annotated[str, Field(pattern=_REQUIREMENT)] | None = None

    @property
    def text(self) -> str:
        """The requirement as in a list of requirements."""
        text = self.name if self.version is None else f"{self.name}=={self.version}"
        return text.replace('"', "'")


class SourceOptions(Value):
    """Options that become part of a source, under Letta's names."""

    json_schema: JsonSchema | None = None
    """The schema of its one tool: of the parameters, or a function with `parameters`."""
    pip_requirements: list[PipRequirement] = Field(default_factory=list, max_length=200)
    """Packages: text such as `httpx>=0.27`, or name and version."""
    enable_parallel_execution: bool | None = None
    """Whether its tools may run concurrently with other calls of a batch."""
    return_char_limit: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Maximum characters of a result that a model gets."""

    @field_validator("pip_requirements", mode="before")
    @classmethod
    def _as_requirements(cls, items: Any) -> Any:
        if not isinstance(items, list | tuple):
            return items
        return [{"name": item} if isinstance(item, str) else item for item in items]


_NO_OPTIONS = SourceOptions()


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
    options: SourceOptions = _NO_OPTIONS


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
