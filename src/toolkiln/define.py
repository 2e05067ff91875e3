"""API for tool authors: decorators, base classes, `Context`, `ToolError`.

It needs only the standard library, so tool files can be imported anywhere, for example in a
unit test. The decorators only mark what they decorate: Toolkiln reads them from the source
and never relies on running them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

INFO = 20
"""As in `logging`, which is too slow to import in every sandbox."""


class OutputKind(StrEnum):
    """The meaning of a result for the model; decides how much of it is shown."""

    KNOWLEDGE = "knowledge"
    FILE = "file"
    FILE_VIEW = "file_view"
    EXECUTION_RESULT = "execution_result"
    ERROR = "error"
    STATUS = "status"


class ToolError(Exception):
    """Raised by a tool to report an error to the model in its own words."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class ToolDenied(ToolError):
    """Raised by a tool to report that the caller may not do what they asked for."""


class NotAnswered(ToolError):
    """Raised by `Context.ask` if the caller cannot be asked or gave no valid answer."""


class Question(Generic[A]):
    """A question to the caller: a `Form`, a `Sample` or `Roots`."""


@dataclass(frozen=True)
class Filled:
    """A person's response to a `Form`; true if they filled it in."""

    action: Literal["accept", "decline", "cancel"]
    """`decline`: they refused. `cancel`: they closed the form."""
    values: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.action == "accept"

    def __getitem__(self, name: str) -> Any:
        """Return a field of an accepted form; use `values.get` for optional fields.

        Raises:
            NotAnswered: the form was not accepted.
        """
        if not self:
            raise NotAnswered(f"the form was not filled in: the answer was {self.action}")
        return self.values[name]


@dataclass(frozen=True)
class Form(Question[Filled]):
    """A form for the person behind the caller. Never use it to ask for passwords or keys."""

    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Field name to `str`, `int`, `float`, `bool`, or the JSON Schema of a string, number,
    boolean, choice or multiple choice; nothing nested."""
    required: Sequence[str] | None = None
    """By default, the fields without a default."""
    name: str = ""
    """Name of the question for clients."""


@dataclass(frozen=True)
class Sampled:
    """The response of the caller's model."""

    text: str
    model: str = ""
    stop_reason: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Sample(Question[Sampled]):
    """A prompt or conversation for the caller's model."""

    prompt: str | Sequence[tuple[Literal["user", "assistant"], str]]
    """A prompt, or a conversation as pairs of role and text."""
    system: str = ""
    max_tokens: int = 1_000
    name: str = ""


@dataclass(frozen=True)
class Root:
    """A working folder of the caller: `file:///home/ada/project`."""

    uri: str
    name: str = ""


@dataclass(frozen=True)
class Roots(Question[tuple[Root, ...]]):
    """A request for the caller's working folders; the sandbox cannot access them."""

    name: str = ""


@dataclass
class ToolResult:
    """The return value of `BaseTool.execute`."""

    ok: bool
    stdout: str = ""
    stderr: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        sign, stdout, stderr = "✓" if self.ok else "✗", len(self.stdout), len(self.stderr)
        return f"ToolResult({sign}, stdout_len={stdout}, stderr_len={stderr})"


@dataclass
class Context:
    """Access to the caller of a running call; declare a parameter of this type to get it.

    Created in a unit test, it records everything the tool sends.
    """

    user_id: str | None = None
    agent_id: str | None = None
    agent_state: dict[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The secrets that `requires_secrets` names."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The fields of the tool's settings class, including defaults."""
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """In unit tests: the tools that `call` can call."""
    workdir: Path = field(default_factory=Path)
    sent_files: list[Path] = field(default_factory=list)
    sent_messages: list[Any] = field(default_factory=list)
    injected_tools: list[str] = field(default_factory=list)
    progress: list[tuple[float, float | None, str]] = field(default_factory=list)
    platform: str | None = None
    """Namespace of the user id: `discord`, `slack` …"""
    guild_id: str | None = None
    channel_id: str | None = None
    answers: list[Any] = field(default_factory=list)
    """In unit tests: the answers that `ask` returns, in order."""
    asked: list[Question[Any]] = field(default_factory=list)
    request: Mapping[str, Any] = field(default_factory=dict)
    """What the caller says about this call; it is not verified."""

    def report_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report the progress of the call to the caller."""
        self.progress.append((done, total, message))

    def log(self, message: str, level: int = INFO) -> None:
        """Write a line to the caller's log, with a level of `logging`."""
        import logging

        logging.getLogger("toolkiln.tool").log(level, "%s", message)

    def send_file(self, path: str | Path) -> None:
        """Send a file in the working directory to the caller."""
        self.sent_files.append(Path(path))

    def send_message(self, message: Any) -> None:
        """Send a rich message to the caller."""
        self.sent_messages.append(message)

    def inject_tools(self, *names: str) -> None:
        """Offer more tools to the agent for the rest of its conversation."""
        self.injected_tools.extend(names)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call another tool on the caller's behalf and return its value.

        Raises:
            ToolError: the tool does not exist, or its call failed.
        """
        if tool not in self.tools:
            raise ToolError(f"{tool}: there is no tool with this name")
        return self.tools[tool](**arguments)

    def can_ask(self, kind: type[Question[Any]], /) -> bool:
        """Return whether the caller supports this kind of question."""
        return bool(self.answers)

    @overload
    def ask(self, question: Question[A], /) -> A: ...
    @overload
    def ask(self, first: Question[A], second: Question[B], /) -> tuple[A, B]: ...
    @overload
    def ask(
        self, first: Question[A], second: Question[B], third: Question[C], /
    ) -> tuple[A, B, C]: ...
    @overload
    def ask(self, *questions: Question[Any]) -> Any: ...
    def ask(self, *questions: Question[Any]) -> Any:
        """Ask the caller and wait for the answer; several questions are asked together.

        Waiting does not count towards the tool's timeout.

        Raises:
            NotAnswered: the caller does not support the question or gave no valid answer.
        """
        self.asked += questions
        if len(self.answers) < len(questions):
            raise NotAnswered("the caller cannot be asked: the context has no answers left")
        answers = tuple(self.answers.pop(0) for _ in questions)
        return answers[0] if len(answers) == 1 else answers


class FunctionOptions(TypedDict, total=False):
    """Options of `@prompt` and `@resource`, with the same meaning as in `@tool`."""

    name: str | None
    description: str | None
    display_name: str | None
    icon: str | None
    visible: bool
    """By default true."""
    timeout: float | None
    memory: int | str | None
    cpu: float | None
    processes: int | None
    disk: int | str | None
    network: Sequence[str]
    requires_secrets: Sequence[str]
    capabilities: Sequence[str]
    workspace: Literal["read", "write"] | None
    sandbox: bool
    """By default true."""
    isolation: Literal["template", "call"]
    """By default `template`."""
    pinned: bool
    needs_approval: bool | Callable[[dict[str, Any]], bool]
    requirements: Sequence[str]
    files: Sequence[str]
    settings: type | None


class ToolOptions(FunctionOptions, total=False):
    """Options of `@tool`."""

    color: str | None
    weight: int
    """By default 100."""
    is_core: bool
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    parallel: bool
    output_kind: OutputKind | str | None
    return_char_limit: int
    """By default 50,000."""
    usages: Sequence[str]
    parameters: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    """Any JSON about the tool, for programs; shown in the catalog."""
    enable_parallel_execution: bool
    """Letta's name of `parallel`."""
    pip_requirements: Sequence[Any]
    """Letta's name of `requirements`, also with items like `{"name": …, "version": …}`."""


_MARK = "__toolkiln_tool__"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**declared: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Mark a function as a tool: `@tool`, or `@tool(...)` with options."""
    return _mark_function("tool", function, declared, ToolOptions)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(**declared: Unpack[FunctionOptions]) -> Callable[[F], F]: ...
def prompt(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Mark a function as a prompt, which returns text or a list of messages."""
    return _mark_function("prompt", function, declared, FunctionOptions)


def resource(
    uri: str, /, *, mime_type: str | None = None, **declared: Unpack[FunctionOptions]
) -> Callable[[F], F]:
    """Mark a function as a resource, which returns the content of a URI.

    A URI with `{name}` is a template; `name` must be a parameter of the function.
    """
    _reject_unknown("resource", declared, FunctionOptions)
    return _marker(_MARK, {"uri": uri, "mime_type": mime_type, **declared})


def tool_metadata(
    display_name: str | None = None,
    description: str | None = None,
    icon: str | None = None,
    color: str | None = None,
    is_core: bool = False,
    weight: int = 100,
    visible: bool = False,
    usage_guide: str | None = None,
    instance: Literal["call", "template"] = "call",
) -> Callable[[T], T]:
    """Describe a toolkit class; with `instance="template"`, one instance serves many calls."""
    return _marker("__toolkiln_toolkit__", locals())


def method_metadata(
    display_name: str | None = None,
    description: str | None = None,
    is_core: bool = False,
    visible: bool = True,
) -> Callable[[T], T]:
    """Describe one method of a toolkit class and make it a tool."""
    return _marker("__toolkiln_method__", locals())


def openapi_schema(schema: Mapping[str, Any]) -> Callable[[T], T]:
    """Give a toolkit method a custom schema and make it a tool."""
    return _marker("__toolkiln_schema__", dict(schema))


class BaseTool(ABC):
    """Base class of a tool: set `name` and `description`, and implement `execute`.

    The attributes may be properties as well.
    """

    name: Any = ""
    description: Any = ""
    parameters: Any = None
    output_semantic_type: Any = OutputKind.STATUS
    stdout_semantic_type: Any = cached_property(lambda self: self.output_semantic_type)
    stderr_semantic_type: Any = OutputKind.ERROR

    @abstractmethod
    def execute(self, args: dict[str, Any]) -> ToolResult:
        """Run the tool with arguments that are valid for the schema."""

    def validate_args(self, args: dict[str, Any]) -> tuple[bool, str]:
        """Check what a schema cannot express; return whether to run, else a reason."""
        return True, ""

    def needs_permission(self, args: dict[str, Any]) -> bool:
        """Return whether a person must approve this call.

        It runs on a separate instance before `validate_args`, without network, files or
        secrets. Any result but False means yes, including an exception.
        """
        return False

    def get_detailed_description(self) -> str:
        """Return the documentation of the class and of `execute` as Markdown for a model.

        It equals `toolkiln show TOOL --as docs`.
        """
        from toolkiln.docstrings.description import class_docstring, describe

        docstring = class_docstring(type(self).__doc__, type(self).execute.__doc__)
        properties = self.parameters.get("properties", {}) if self.parameters else {}
        description = self.description or docstring.text or f"{type(self).__name__} functionality"
        return describe(docstring, description, properties)


def _mark_function(
    decorator: str, function: Callable[..., Any] | None, declared: dict[str, Any], options: type
) -> Any:
    _reject_unknown(decorator, declared, options)
    marker = _marker(_MARK, declared)
    return marker if function is None else marker(function)


def _reject_unknown(decorator: str, declared: Mapping[str, Any], options: type) -> None:
    unknown = declared.keys() - options.__annotations__
    if unknown:
        raise TypeError(f"{decorator}() got an unexpected keyword argument {min(unknown)!r}")


def _marker(attribute: str, declared: dict[str, Any]) -> Callable[[T], T]:
    def mark(decorated: T) -> T:
        setattr(decorated, attribute, declared)
        return decorated

    return mark
