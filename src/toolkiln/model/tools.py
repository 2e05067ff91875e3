"""What was read and what was found: tools, their files, findings and health.

Free of behaviour beyond assembling their own text. How they come about is `spec`'s
business, what is done with their schemas `schema`'s.
"""

import re
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from toolkiln.model.value import Value

JsonSchema = dict[str, Any]
"""A JSON Schema 2020-12 document."""


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"  # the tool cannot be served like this
    WARNING = "warning"  # a model or a client will trip over it
    INFO = "info"  # worth knowing


class Finding(Value):
    """One thing that is wrong or worth knowing, where it is and what to do about it."""

    rule: str
    """Stable kebab-case name of the check."""
    severity: Severity
    message: str
    line: int = 1
    fix: str
    column: int | None = None
    """1-based, where a caret helps."""
    tool: str | None = None
    """The tool it concerns, if it concerns one."""
    path: str | None = None
    """The file it is in."""
    overruled: bool = False
    """Whether it is an error that an ignore comment overrules; only a person may admit it."""


class Dialect(StrEnum):
    """The way a tool was written down."""

    FUNCTION = "function"
    DECORATED = "decorated"
    CONSTANTS = "constants"
    TOOLKIT = "toolkit"
    BASE_TOOL = "base_tool"
    OPEN_WEBUI = "open_webui"


class Role(StrEnum):
    """What a function is to those who use it."""

    TOOL = "tool"  # a model calls it
    PROMPT = "prompt"  # a person chooses it, and a model reads what it returns
    RESOURCE = "resource"  # a client reads it by its address


class Capability(StrEnum):
    """What source code can touch beyond its arguments."""

    NETWORK = "network"
    FILES = "files"
    SUBPROCESS = "subprocess"
    ENVIRONMENT = "environment"
    NATIVE = "native"  # ctypes, cffi
    DYNAMIC_CODE = "dynamic_code"  # eval, exec, compile, unpickling
    DYNAMIC_IMPORT = "dynamic_import"
    INTROSPECTION = "introspection"  # walks over dunder attributes and frames


class Toolkit(Value):
    """The group that the methods of one class form."""

    name: str
    display_name: str
    description: str
    icon: str | None = None
    color: str | None = None
    weight: int = 100
    is_core: bool = False
    visible: bool = False
    instance: Literal["call", "template"] = "call"
    """How long an instance of the class serves: one call, or all calls of a worker."""


class Hints(Value):
    """What a tool says of its effects; None means that it does not say."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Limits(Value):
    """The bounds a tool asks for; None means the operator's default."""

    timeout: float | None = None
    """Seconds of wall clock."""
    memory: int | None = None
    """Bytes."""
    cpu: float | None = None
    """Seconds of processor time."""
    processes: int | None = None
    disk: int | None = None
    """Bytes of files."""
    return_char_limit: int = 50_000


class Rights(Value):
    """What a tool asks to be granted; nothing here is granted by being asked for."""

    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    workspace: Literal["read", "write"] | None = None
    sandbox: bool = True
    needs_approval: bool = False
    """Always, or, with `approval_function`, for some arguments."""
    approval_function: str | None = None
    """What tells by the arguments whether a person is asked: `is_risky`, `Shell.needs_permission`;
    a function or method of the same file, as in `ToolSpec.entry`."""


class Section(Value):
    """A titled part of a docstring, such as **When to use**."""

    title: str
    body: str


class ParameterDoc(Value):
    """What the docstring says of one parameter."""

    name: str
    text: str


class RaisesDoc(Value):
    """What the docstring says of one exception."""

    type: str
    text: str


class Documentation(Value):
    """The long form of a tool's docstring: for people, and for models on demand."""

    text: str = ""
    """Short and long description, without sections."""
    sections: tuple[Section, ...] = ()
    parameters: tuple[ParameterDoc, ...] = ()
    returns: str = ""
    raises: tuple[RaisesDoc, ...] = ()
    examples: str = ""


class ToolSpec(Value):
    """What static reading learned about one tool."""

    name: str
    description: str
    """The only prose a model reads when it chooses a tool."""
    parameters: JsonSchema
    """JSON Schema 2020-12 of the arguments, always an object."""
    returns: JsonSchema | None = None
    """JSON Schema of the serialised result; None if the source does not say."""
    documentation: Documentation = Documentation()
    role: Role = Role.TOOL
    uri: str | None = None
    """The address of a resource, or a template: `notes://{year}/{name}`."""
    mime_type: str | None = None
    """What a resource says its content is."""

    dialect: Dialect
    entry: str
    """The function or method to run: `convert`, `Files.delete`, `Shell.execute`."""
    injected: dict[str, str] = Field(default_factory=dict)
    """Parameters that the runtime fills in and no model sees, with what they get."""
    whole_arguments: str | None = None
    """The parameter that takes all arguments as one dict: `args`, or `**kwargs`; `*` is the
    first, whatever its name."""
    is_async: bool = False
    parallel: bool = False
    """May run beside other calls of the same batch."""
    isolation: Literal["template", "call"] = "template"
    pinned: bool = False
    """Runs where its caller is, in a sandbox there, and not at a worker of a fleet."""
    output_kind: (
        Literal["knowledge", "file", "file_view", "execution_result", "error", "status"] | None
    ) = None
    stdout_kind: str | None = None
    stderr_kind: str | None = None

    display_name: str
    icon: str | None = None
    color: str | None = None
    weight: int = 100
    is_core: bool = False
    visible: bool = True
    toolkit: Toolkit | None = None

    hints: Hints = Hints()
    limits: Limits = Limits()
    rights: Rights = Rights()
    uses: tuple[Capability, ...] = ()
    """What the source was seen to touch, declared or not."""
    requirements: tuple[str, ...] = ()
    settings: dict[str, JsonSchema] = Field(default_factory=dict)
    """Schemas of the values an operator (`operator`) or a user (`user`) sets once."""
    usages: tuple[str, ...] = ()
    """Prompts that this tool answers, for search."""

    digest: str
    """SHA-256 of the file, its local helper modules and data files; valid for these bytes only."""
    path: str
    line: int

    @property
    def cannot_be_disabled(self) -> bool:
        """Whether it, or the toolkit it belongs to, is a core one."""
        return self.is_core or (self.toolkit is not None and self.toolkit.is_core)

    @property
    def is_shown(self) -> bool:
        """Whether people see it in a listing; hidden tools work all the same."""
        return self.visible and (self.toolkit is None or self.toolkit.visible)

    def detailed_description(self) -> str:
        """The long form as Markdown, for a model that has chosen the tool."""
        return detailed_description(self.documentation, self.description)


class Reading(Value):
    """All that one file says."""

    path: str
    digest: str
    tools: tuple[ToolSpec, ...] = ()
    findings: tuple[Finding, ...] = ()
    helpers: tuple[str, ...] = ()
    """Local modules that are part of this version, relative to the file's folder."""
    sought: tuple[str, ...] = ()
    """Modules that were looked for in that folder and are not there: `requests`, `pkg/part`."""
    data_files: tuple[str, ...] = ()
    """Declared data files that are part of this version, relative to the file's folder."""
    file_patterns: tuple[str, ...] = ()
    """What declares them: `data/*.json`."""


class HealthLevel(StrEnum):
    """Whether models can be held to a tool's schema."""

    STRICT_COMPLIANT = "STRICT_COMPLIANT"
    NON_STRICT_ONLY = "NON_STRICT_ONLY"
    INVALID = "INVALID"


class HealthPoint(Value):
    """One place in a schema that keeps it from the level above."""

    level: HealthLevel
    path: str
    """JSON pointer into the parameters."""
    reason: str


class Health(Value):
    """A tool's level, with the reason for each point."""

    level: HealthLevel
    points: tuple[HealthPoint, ...] = ()


# In order of precedence: "Important differences" is about differences, "Usage notes" about usage.
_DIFFERENCES = re.compile(
    r"\b(?:differences?|when not to use|do not use|not for|vs|versus|compared|comparison)\b"
)
_USAGES = re.compile(
    r"\b(?:when to use|use cases?|use (?:this |it )?(?:tool )?(?:when|for)|usage)\b"
)
_WARNINGS = re.compile(r"\b(?:important|warnings?|caution|danger|attention)\b")
_NOTES = re.compile(r"\bnotes?\b")


def detailed_description(documentation: Documentation, fallback: str) -> str:
    """The documentation as Markdown: at most one section of each kind, in a fixed order."""
    first: dict[re.Pattern[str], Section] = {}
    for section in documentation.sections:
        title = section.title.casefold()
        kinds = (_DIFFERENCES, _USAGES, _WARNINGS, _NOTES)
        kind = next((kind for kind in kinds if kind.search(title)), None)
        if kind:
            first.setdefault(kind, section)
    warning = first.get(_WARNINGS) or first.get(_NOTES)
    chosen = (warning, first.get(_USAGES), first.get(_DIFFERENCES))
    parts = [documentation.text or fallback]
    parts += [f"**{section.title}**\n{section.body}" for section in chosen if section]
    if documentation.parameters:
        lines = ["**Parameters**"]
        for item in documentation.parameters:
            text = item.text.replace("\n", "\n  ")
            lines.append(f"- {item.name}: {text}" if text else f"- {item.name}")
        parts.append("\n".join(lines))
    if examples := documentation.examples:
        # `>>>` would be three nested quotations.
        fenced = examples if "```" in examples else f"```\n{examples}\n```"
        parts.append(f"**Examples**\n{fenced}")
    return "\n\n".join(part for part in parts if part)
