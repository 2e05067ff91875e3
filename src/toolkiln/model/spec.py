"""Tool specs: the result of reading one tool from source, and the health of its schema."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from toolkiln.docstrings.description import describe
from toolkiln.docstrings.parser import Docstring
from toolkiln.model.base import JsonSchema, Value


class Dialect(StrEnum):
    """The way a tool is declared in source."""

    FUNCTION = "function"
    DECORATED = "decorated"
    CONSTANTS = "constants"
    TOOLKIT = "toolkit"
    BASE_TOOL = "base_tool"
    OPEN_WEBUI = "open_webui"


class Role(StrEnum):
    """How clients use a function."""

    TOOL = "tool"  # called by a model
    PROMPT = "prompt"  # chosen by a person; a model reads its result
    RESOURCE = "resource"  # read by a client by URI


class Capability(StrEnum):
    """What source code uses beyond its arguments."""

    NETWORK = "network"
    FILES = "files"
    SUBPROCESS = "subprocess"
    ENVIRONMENT = "environment"
    NATIVE = "native"  # ctypes, cffi
    DYNAMIC_CODE = "dynamic_code"  # eval, exec, compile, unpickling
    DYNAMIC_IMPORT = "dynamic_import"
    INTROSPECTION = "introspection"  # dunder attributes and frames


class Toolkit(Value):
    """A group of tools: the methods of one class."""

    name: str
    display_name: str
    description: str
    icon: str | None = None
    color: str | None = None
    weight: int = 100
    is_core: bool = False
    visible: bool = False
    usage_guide: str = ""
    """How to use its tools together, for a model that has chosen one."""
    instance: Literal["call", "template"] = "call"
    """Lifetime of an instance of the class: one call, or all calls of a process."""


class Hints(Value):
    """Effects that a tool declares; null if undeclared."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Limits(Value):
    """Limits that a tool requests; null for the operator's default."""

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


OUTPUT_CHARACTERS = {
    "knowledge": 60_000,
    "file": 60_000,
    "file_view": 60_000,
    "execution_result": 8_000,
    "error": 8_000,
    "status": 2_000,
}
"""How much a model reads of an output, by its kind."""


class Permissions(Value):
    """Permissions that a tool requests; the operator has to grant them."""

    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    workspace: Literal["read", "write"] | None = None
    sandbox: bool = True
    needs_approval: bool = False
    """Whether calls need approval; with `approval_function`, only some do."""
    approval_function: str | None = None
    """Function or method of the same file that decides from the arguments whether a call needs
    approval: `is_risky`, `Shell.needs_permission`."""


class DocstringSection(Value):
    """A titled part of a docstring, such as **When to use**."""

    title: str
    body: str


class ParameterDoc(Value):
    """Documentation of one parameter."""

    name: str
    text: str


class RaisesDoc(Value):
    """Documentation of one exception."""

    type: str
    text: str


class Documentation(Value):
    """A tool's full docstring, for people and for models on demand."""

    text: str = ""
    """Short and long description, without sections."""
    sections: tuple[DocstringSection, ...] = ()
    parameters: tuple[ParameterDoc, ...] = ()
    returns: str = ""
    raises: tuple[RaisesDoc, ...] = ()
    examples: str = ""
    module: tuple[DocstringSection, ...] = ()
    """The docstring of the file, and its public functions that are no tools; for people."""

    @classmethod
    def of(cls, docstring: Docstring) -> "Documentation":
        """Create the documentation from a parsed docstring."""
        return cls(
            text=docstring.text,
            sections=tuple([DocstringSection(title=t, body=b) for t, b in docstring.sections]),
            parameters=tuple([ParameterDoc(name=n, text=t) for n, t in docstring.parameters]),
            returns=docstring.returns,
            raises=tuple([RaisesDoc(type=n, text=t) for n, t in docstring.raises]),
            examples=docstring.examples,
        )

    def docstring(self) -> Docstring:
        """Return the parts as those of a docstring."""
        return Docstring(
            text=self.text,
            sections=tuple((section.title, section.body) for section in self.sections),
            parameters=tuple((parameter.name, parameter.text) for parameter in self.parameters),
            returns=self.returns,
            raises=tuple((error.type, error.text) for error in self.raises),
            examples=self.examples,
        )


class ToolSpec(Value):
    """Everything that static reading learned about one tool."""

    name: str
    description: str
    """The text a model reads when it chooses a tool."""
    parameters: JsonSchema
    """JSON Schema 2020-12 of the arguments, always an object."""
    returns: JsonSchema | None = None
    """JSON Schema of the serialised result; null if unknown."""
    documentation: Documentation = Documentation()
    role: Role = Role.TOOL
    uri: str | None = None
    """URI of a resource, or a URI template: `notes://{year}/{name}`."""
    mime_type: str | None = None
    """Declared content type of a resource."""

    dialect: Dialect
    entry: str
    """Function or method to run: `convert`, `Files.delete`, `Shell.execute`."""
    injected: dict[str, str] = Field(default_factory=dict)
    """Parameters that the runtime fills in, hidden from models, with the injected kind."""
    whole_arguments: str | None = None
    """Parameter that receives all arguments as one dict: `args`, or `**kwargs`; `*` for the
    first parameter."""
    is_async: bool = False
    parallel: bool = False
    """Whether it may run concurrently with other calls of the same batch."""
    isolation: Literal["template", "call"] = "template"
    pinned: bool = False
    """Whether it runs in a sandbox on the caller's machine, never on a fleet worker."""
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
    rights: Permissions = Permissions()
    uses: tuple[Capability, ...] = ()
    """Capabilities that the source uses, declared or not."""
    requirements: tuple[str, ...] = ()
    settings: dict[str, JsonSchema] = Field(default_factory=dict)
    """Schemas of the settings of the operator (`operator`) and of each user (`user`)."""
    usages: tuple[str, ...] = ()
    """Example prompts for this tool, for search."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Any JSON about the tool, for programs."""

    digest: str
    """SHA-256 of the file, its local helper modules and data files."""
    path: str
    line: int

    @property
    def id(self) -> str:
        """Name and version: the same wherever these bytes are served."""
        return f"{self.name}@{self.digest[:12]}"

    @property
    def cannot_be_disabled(self) -> bool:
        """Whether the tool or its toolkit is a core one."""
        return self.is_core or (self.toolkit is not None and self.toolkit.is_core)

    @property
    def is_shown(self) -> bool:
        """Whether listings for people include it; hidden tools can still be called."""
        kit = self.toolkit
        return self.is_core or (self.visible and (kit is None or kit.visible or kit.is_core))

    def output_characters(self, kind: str | None) -> int:
        """Return how many characters of an output of this kind a model reads."""
        own = self.limits.return_char_limit
        if own != Limits.model_fields["return_char_limit"].default or kind is None:
            return own  # a limit set by the author takes precedence over that of the kind
        return OUTPUT_CHARACTERS.get(kind, own)

    def detailed_description(self) -> str:
        """Render the documentation as Markdown, for a model that has chosen the tool."""
        properties = self.parameters.get("properties", {})
        text = describe(self.documentation.docstring(), self.description, properties)
        guide = self.toolkit.usage_guide if self.toolkit else ""
        return f"{text}\n\n**Usage guide**\n{guide}" if guide else text


BUILTIN_NAMES = frozenset(
    {"check_task", "await_task", "cancel_task", "read_output", "write_python_tool",
     "search_tools", "describe_tool", "call_tool", "rag_search"}
)  # fmt: skip
"""Names of the built-in tools, listed to avoid reading the file that declares them."""


class HealthLevel(StrEnum):
    """Whether strict mode can enforce a tool's schema."""

    STRICT_COMPLIANT = "STRICT_COMPLIANT"
    NON_STRICT_ONLY = "NON_STRICT_ONLY"
    INVALID = "INVALID"


class HealthPoint(Value):
    """One part of a schema that prevents a better level."""

    level: HealthLevel
    path: str
    """JSON pointer into the parameters."""
    reason: str


class SchemaHealth(Value):
    """Health of a tool's schema, with the reasons."""

    level: HealthLevel
    points: tuple[HealthPoint, ...] = ()
