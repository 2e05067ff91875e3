"""What tool authors import: decorators, base classes, `Context`, `ToolError`.

Standard library only, so that a tool file can be imported anywhere, also in a test of
its own. The decorators mark and return what they decorate, nothing else: Toolkiln reads
them from the source and never needs them to have run.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, get_overloads, overload

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

INFO = 20
"""As in `logging`, which every sandbox would pay for."""


class OutputKind(StrEnum):
    """What a result is to the model; decides how much of it is shown."""

    KNOWLEDGE = "knowledge"
    FILE = "file"
    FILE_VIEW = "file_view"
    EXECUTION_RESULT = "execution_result"
    ERROR = "error"
    STATUS = "status"


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong, in its own words."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class NotAnswered(ToolError):
    """Raised by `Context.ask` if the caller cannot be asked, or gave no answer that fits."""


class Question(Generic[A]):
    """Something to ask the caller: a `Form`, a `Sample` or `Roots`."""


@dataclass(frozen=True)
class Filled:
    """What a person did with a `Form`; true if they filled it in."""

    action: Literal["accept", "decline", "cancel"]
    """`decline`: they said no. `cancel`: they closed it."""
    values: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.action == "accept"

    def __getitem__(self, name: str) -> Any:
        """A field, if they filled the form in; `values.get` where it may have been left empty.

        Raises:
            NotAnswered: they did not.
        """
        if not self:
            raise NotAnswered(f"the form was not filled in: the answer was {self.action}")
        return self.values[name]


@dataclass(frozen=True)
class Form(Question[Filled]):
    """Fields for the caller's person to fill in. Never ask for passwords or keys with it."""

    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """By name: `str`, `int`, `float`, `bool`, or the JSON Schema of a text, a number, a
    boolean, a choice or several choices; nothing nested."""
    required: Sequence[str] | None = None
    """By default the fields that have no default."""
    name: str = ""
    """What clients are told that the question is called."""


@dataclass(frozen=True)
class Sampled:
    """What the caller's model said."""

    text: str
    model: str = ""
    stop_reason: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Sample(Question[Sampled]):
    """Something for the caller's model to go on with."""

    prompt: str | Sequence[tuple[Literal["user", "assistant"], str]]
    """A prompt, or a conversation: who said what."""
    system: str = ""
    max_tokens: int = 1_000
    name: str = ""


@dataclass(frozen=True)
class Root:
    """A folder of the caller's: `file:///home/ada/project`."""

    uri: str
    name: str = ""


@dataclass(frozen=True)
class Roots(Question[tuple[Root, ...]]):
    """Which folders the caller works in; a sandbox sees none of them."""

    name: str = ""


@dataclass
class ToolResult:
    """What `BaseTool.execute` returns."""

    ok: bool
    stdout: str = ""
    stderr: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class Context:
    """The caller's side of a running call; declare a parameter of this type to get it.

    Made by hand in a test, it records what the tool sent out.
    """

    user_id: str | None = None
    agent_id: str | None = None
    agent_state: dict[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What `requires_secrets` names, by name."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The fields of the tool's settings class, with its defaults."""
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """What `call` reaches when the context was made by hand."""
    workdir: Path = field(default_factory=Path)
    sent_files: list[Path] = field(default_factory=list)
    sent_messages: list[Any] = field(default_factory=list)
    injected_tools: list[str] = field(default_factory=list)
    progress: list[tuple[float, float | None, str]] = field(default_factory=list)
    platform: str | None = None
    """Where the user id means something: `discord`, `slack` …"""
    guild_id: str | None = None
    channel_id: str | None = None
    answers: list[Any] = field(default_factory=list)
    """What `ask` gives, in order, when the context was made by hand."""
    asked: list[Question[Any]] = field(default_factory=list)

    def report_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the caller how far the call is."""
        self.progress.append((done, total, message))

    def log(self, message: str, level: int = INFO) -> None:
        """Write a line to the caller's log; levels are those of `logging`."""
        import logging

        logging.getLogger("toolkiln.tool").log(level, "%s", message)

    def send_file(self, path: str | Path) -> None:
        """Hand a file of the work folder to the caller."""
        self.sent_files.append(Path(path))

    def send_message(self, message: Any) -> None:
        """Hand a rich message to the caller."""
        self.sent_messages.append(message)

    def inject_tools(self, *names: str) -> None:
        """Offer further tools to the agent for the rest of its conversation."""
        self.injected_tools.extend(names)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call another tool on the caller's behalf, and give what it returned.

        Raises:
            ToolError: there is no such tool, or its call did not end well.
        """
        if tool not in self.tools:
            raise ToolError(f"{tool}: there is no tool of this name")
        return self.tools[tool](**arguments)

    def can_ask(self, kind: type[Question[Any]], /) -> bool:
        """Whether the caller can be asked such a question."""
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

        The tool's own time does not run meanwhile.

        Raises:
            NotAnswered: the caller cannot be asked that, or gave no answer that fits.
        """
        self.asked += questions
        if len(self.answers) < len(questions):
            raise NotAnswered("the caller cannot be asked: the context has no answers left")
        given = tuple(self.answers.pop(0) for _ in questions)
        return given[0] if len(given) == 1 else given


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    display_name: str | None = None,
    icon: str | None = None,
    color: str | None = None,
    weight: int = 100,
    is_core: bool = False,
    visible: bool = True,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    parallel: bool = False,
    output_kind: OutputKind | str | None = None,
    return_char_limit: int = 50_000,
    timeout: float | None = None,
    memory: int | str | None = None,
    cpu: float | None = None,
    processes: int | None = None,
    disk: int | str | None = None,
    network: Sequence[str] = (),
    requires_secrets: Sequence[str] = (),
    capabilities: Sequence[str] = (),
    workspace: Literal["read", "write"] | None = None,
    sandbox: bool = True,
    isolation: Literal["template", "call"] = "template",
    pinned: bool = False,
    needs_approval: bool | Callable[[dict[str, Any]], bool] = False,
    requirements: Sequence[str] = (),
    files: Sequence[str] = (),
    settings: type | None = None,
    usages: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
) -> Callable[[F], F]: ...
def tool(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Mark a function as a tool: `@tool`, or `@tool(...)` with what it declares."""
    _refuse_unknown("tool", declared, _OPTIONS)
    if function is not None:
        return _marked(function, _MARK, declared)
    return _marker(_MARK, declared)


_MARK = "__toolkiln_tool__"
_OPTIONS = frozenset(get_overloads(tool)[1].__annotations__) - {"return"}


class FunctionOptions(TypedDict, total=False):
    """What a prompt or a resource may declare; each means what it means to `@tool`."""

    name: str | None
    description: str | None
    display_name: str | None
    icon: str | None
    visible: bool
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
    isolation: Literal["template", "call"]
    pinned: bool
    needs_approval: bool | Callable[[dict[str, Any]], bool]
    requirements: Sequence[str]
    files: Sequence[str]
    settings: type | None


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(**declared: Unpack[FunctionOptions]) -> Callable[[F], F]: ...
def prompt(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Mark a function as a prompt: it returns text, or a list of messages."""
    _refuse_unknown("prompt", declared, FunctionOptions.__annotations__.keys())
    if function is not None:
        return _marked(function, _MARK, declared)
    return _marker(_MARK, declared)


def resource(
    uri: str, /, *, mime_type: str | None = None, **declared: Unpack[FunctionOptions]
) -> Callable[[F], F]:
    """Mark a function as a resource: it returns what can be read at an address.

    With `{name}` in it the address is a template, and `name` a parameter of the function.
    """
    options: dict[str, Any] = {**declared}
    _refuse_unknown("resource", options, FunctionOptions.__annotations__.keys())
    return _marker(_MARK, {"uri": uri, "mime_type": mime_type, **options})


def tool_metadata(
    display_name: str | None = None,
    description: str | None = None,
    icon: str | None = None,
    color: str | None = None,
    is_core: bool = False,
    weight: int = 100,
    visible: bool = False,
    instance: Literal["call", "template"] = "call",
) -> Callable[[T], T]:
    """Describe a toolkit class; with `instance="template"` one object serves many calls."""
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
    """Give a toolkit method a schema written by hand and make it a tool."""
    return _marker("__toolkiln_schema__", dict(schema))


class BaseTool:
    """A tool as a class: subclass it, set `name` and `description`, write `execute`.

    The attributes may be properties as well.
    """

    name: Any = ""
    description: Any = ""
    parameters: Any = None
    output_semantic_type: Any = OutputKind.EXECUTION_RESULT
    stdout_semantic_type: Any = OutputKind.EXECUTION_RESULT
    stderr_semantic_type: Any = OutputKind.ERROR

    def execute(self, args: dict[str, Any]) -> ToolResult:
        """Do the work with arguments that were checked against the schema."""
        raise NotImplementedError(f"{type(self).__name__} has no execute()")

    def validate_args(self, args: dict[str, Any]) -> tuple[bool, str]:
        """Check what a schema cannot say: whether to go on, else why not."""
        return True, ""

    def needs_permission(self, args: dict[str, Any]) -> bool:
        """Whether a person must approve this call.

        Asked on an object of its own before `validate_args`, without network, files or
        secrets; anything but False, also an error, means yes.
        """
        return False

    def get_detailed_description(self) -> str:
        """The long form of the description, for people and for models on demand."""
        return (type(self).__doc__ or self.description or "").strip()


def _refuse_unknown(mark: str, declared: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = declared.keys() - set(known)
    if unknown:
        raise TypeError(f"{mark}() got an unexpected keyword argument {min(unknown)!r}")


def _marker(attribute: str, declared: dict[str, Any]) -> Callable[[T], T]:
    return lambda decorated: _marked(decorated, attribute, declared)


def _marked(decorated: T, attribute: str, declared: dict[str, Any]) -> T:
    setattr(decorated, attribute, declared)
    return decorated
