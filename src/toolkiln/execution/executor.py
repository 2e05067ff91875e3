"""The executor protocol: the boundary between deciding to run a call and running it.

An executor receives a call that has been validated and allowed. It knows nothing of
catalogs, permissions and audit; `gateway` owns those. To stop a call, cancel it. `inline` and
`sandbox` have the implementations; one contract suite runs over both
(tests/execution/test_contract.py).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from mimetypes import guess_type
from pathlib import Path
from typing import Any, Protocol

from toolkiln.execution.call_events import RunningCall
from toolkiln.execution.questions import CANNOT_ASK, CallQuestions, CallTimer, QuestionChannel
from toolkiln.model.call import Call, CallError, Event, Result, SentFile, Status
from toolkiln.model.identity import Caller
from toolkiln.model.network import HostRules
from toolkiln.model.spec import Limits, ToolSpec
from toolkiln.model.tool import ResolvedTool

_NO_CALLER, _NO_NETWORK = Caller(), HostRules()
_MAX_EVENT_BYTES = 64_000
"""Size of a message above which its event leaves it to the Result."""

ReportStage = Callable[[str, int | None, int | None], None]
"""Gets a stage of an installation and, if known, how many packages of how many passed it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Resource limits of one call."""

    timeout: float = 30.0
    memory: int = 512 << 20
    cpu: float = 30.0
    processes: int = 32
    disk: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder of a session, with what one call may do there."""

    folder: Path
    writable: bool
    max_bytes: int
    max_files: int


@dataclass(slots=True)
class Invocation:
    """An allowed call with everything an executor needs."""

    tool: ResolvedTool
    arguments: dict[str, Any]
    caller: Caller = _NO_CALLER
    bounds: Bounds = Bounds()
    site: Path | None = None
    """Folder with the packages of the tool's environment."""
    network: HostRules = _NO_NETWORK
    """Hosts that the tool declares and the operator grants."""
    workspace: Workspace | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of the secrets that the tool requires, by name."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    user_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    request: Mapping[str, Any] = field(default_factory=dict)
    """What the caller says about the call."""
    nested: Callable[[str, Any], Awaitable[Result]] | None = None
    questions: CallQuestions | None = None
    """Puts questions to the caller; None: the caller cannot be asked."""
    timer: CallTimer | None = None
    """Counts down the timeout, if questions may pause it."""
    is_nested: bool = False
    """Whether another tool made this call and waits for it."""
    reveal: bool = False
    """Whether the caller may see the text and the traceback of exceptions."""
    emit: Callable[[Event], None] = lambda _: None
    is_over: bool = False
    """Whether the run has ended, so that what the tool still sends is dropped."""

    async def reply_to_call(self, tool: str, arguments: Any) -> dict[str, Any]:
        """Run a nested call, and return the reply for the tool that made it."""
        if self.nested is None:
            return {"error": "tools cannot call other tools here"}
        result = await self.nested(tool, arguments)
        if result.error is None:
            return {"value": result.value}
        return {
            "error": f"{tool}: {result.error.message}",
            "retryable": result.error.retryable,
            "denied": result.status is Status.DENIED,
        }

    async def reply_to_questions(self, questions: Any) -> dict[str, Any]:
        """Ask the caller, and return the reply for the tool."""
        return CANNOT_ASK if self.questions is None else await self.questions.reply(questions)


@dataclass(slots=True)
class ExecutionOutcome:
    """How a run ended, before it becomes a Result."""

    status: Status = Status.OK
    value: Any = None
    error: CallError | None = None
    stdout: str = ""
    stderr: str = ""
    is_cut: bool = False
    """Whether output was dropped at the end of a stream."""
    is_tool_result: bool = False
    """Whether the value is that of a `ToolResult`."""
    notes: list[str] = field(default_factory=list)
    files: list[SentFile] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    injected_tools: list[str] = field(default_factory=list)
    agent_state: dict[str, Any] | None = None
    """As changed by the tool."""
    cpu: float | None = None
    memory: int | None = None
    sandbox: str = ""

    def add_message(self, message: Any, size: int, emit: Callable[[Event], None]) -> None:
        """Add a message of about this many bytes, and report it."""
        fields: dict[str, Any] = {"value": message}
        if size > _MAX_EVENT_BYTES:
            fields = {"text": f"a message of {size:,} bytes"}
        emit(Event(kind="message", index=len(self.messages), **fields))
        self.messages.append(message)

    def add_file(self, name: str, data: bytes, emit: Callable[[Event], None]) -> None:
        """Add a file, and report it without its content."""
        kind = guess_type(name)[0] or "application/octet-stream"
        value = {"type": kind, "size": len(data)}
        emit(Event(kind="file", text=name, value=value, index=len(self.files)))
        self.files.append(SentFile(name=name, data=data))

    def add_tool(self, name: str, emit: Callable[[Event], None]) -> None:
        """Add an injected tool, and report it."""
        emit(Event(kind="injected", text=name, index=len(self.injected_tools)))
        self.injected_tools.append(name)


def call_context(invocation: Invocation) -> dict[str, Any]:
    """Return what a tool learns about its caller, with secrets and settings for this call."""
    caller = invocation.caller
    return {
        "user_id": caller.user_id,
        "platform": caller.platform,
        "guild_id": caller.guild_id,
        "channel_id": caller.channel_id,
        "agent_id": caller.agent_id,
        "agent_state": caller.agent_state,
        "request": dict(invocation.request),
        "asks": tuple(invocation.questions.kinds) if invocation.questions else (),
        "secrets": dict(invocation.secrets),
        "settings": dict(invocation.settings),
        "user_settings": dict(invocation.user_settings),
    }


class Executor(Protocol):
    """Runs one call to completion."""

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        """Run the call. Raises BackendError if the platform fails, never for the tool."""

    async def close(self) -> None:
        """End all processes and threads."""


class InstalledEnvironment(Protocol):
    """Packages that a tool may import."""

    @property
    def site(self) -> Path:
        """Folder of the packages."""


class EnvironmentProvider(Protocol):
    """Installs the packages that tools require."""

    def use(
        self, requirements: Iterable[str], report: ReportStage = ..., /
    ) -> AbstractAsyncContextManager[InstalledEnvironment | None]:
        """Build the environment if needed, and keep it while the context lasts.

        None if there are no requirements. Raises InputError or EnvironmentFailed.
        """


class WorkspaceProvider(Protocol):
    """Opens the folders of sessions."""

    def open(self, session: str, *, writable: bool) -> Workspace:
        """Return the folder of a session, created if needed."""


MAXIMA = Bounds(timeout=600.0, memory=4 << 30, cpu=600.0, processes=256, disk=1 << 30)
"""Upper limits of all tools, unless the operator sets others."""
_DEFAULTS = Bounds()


def bounds_of(limits: Limits, maxima: Bounds, caller_timeout: float | None) -> Bounds:
    """Return the limits of a call: those that the tool declares, capped by the maxima."""
    declared = limits.timeout or _DEFAULTS.timeout  # no declared limit is 0
    timeout = min(declared, maxima.timeout)
    if caller_timeout is not None:
        timeout = min(timeout, caller_timeout)
    return Bounds(
        timeout=timeout,
        memory=min(limits.memory or _DEFAULTS.memory, maxima.memory),
        cpu=min(limits.cpu or declared, maxima.cpu),
        processes=min(limits.processes or _DEFAULTS.processes, maxima.processes),
        disk=min(limits.disk or _DEFAULTS.disk, maxima.disk),
    )


class Dispatcher(Protocol):
    """Sends calls to other processes."""

    def spec(self, call: Call) -> ToolSpec | None:
        """Return the tool of a call that another process runs; None: it runs in this process."""

    async def call(
        self,
        call: RunningCall,
        spec: ToolSpec,
        channel: QuestionChannel | None,
    ) -> Result | None:
        """Run the call in another process; None: it cannot be sent, and the gateway refuses it."""

    async def adopt(self, call: Call, caller: Caller) -> bool:
        """Store a call that is already sent; False if it runs in this process.

        Raises ToolkilnError if it cannot be stored.
        """

    async def ready(self) -> None:
        """Raise ToolkilnError if calls cannot be sent."""

    def detach(self) -> None:
        """Let calls that are stored continue after `close`."""

    async def close(self) -> None:
        """Close all connections."""
