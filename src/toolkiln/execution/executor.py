"""The executor protocol: the boundary between deciding to run a call and running it.

An executor receives a call that has been validated and allowed. It is deliberately
ignorant of catalogs, permissions and what is kept; `gateway` owns those. To stop a call,
cancel it. `inline` and `sandbox` hold the implementations; one contract suite runs over
both (tests/execution/test_contract.py).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from toolkiln.execution.asking import Asker
from toolkiln.execution.clock import Clock
from toolkiln.execution.network import HostRules
from toolkiln.model import (
    Caller,
    CallError,
    Event,
    Grant,
    Result,
    SentFile,
    Sources,
    Status,
    ToolSpec,
)

_NO_GRANT, _NOBODY, _NO_NETWORK = Grant(), Caller(), HostRules()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one call may use: the tool's wishes under the operator's maxima."""

    timeout: float = 30.0
    memory: int = 512 << 20
    cpu: float = 30.0
    processes: int = 32
    disk: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Workspace:
    """The session's folder, as far as a call may use it."""

    folder: Path
    writable: bool
    max_bytes: int
    max_files: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """A tool that may be called, and where its code comes from."""

    spec: ToolSpec
    sources: Callable[[], Sources]
    grant: Grant = _NO_GRANT
    function: Callable[..., Any] | None = None
    """The code itself, if this process trusts it: then it runs here."""
    dev: bool = False
    """Whether `dev` serves it without an admission."""
    is_source: bool = False
    """Whether its caller sent the source with the call."""
    is_reviewed: bool = True
    """Whether a person admitted this version; others have no grants and no settings."""


@dataclass(slots=True)
class Invocation:
    """A call that may run, with everything it runs with."""

    tool: Admitted
    arguments: dict[str, Any]
    caller: Caller = _NOBODY
    bounds: Bounds = Bounds()
    site: Path | None = None
    """The packages of the tool's environment."""
    network: HostRules = _NO_NETWORK
    """Hosts that are declared and granted."""
    workspace: Workspace | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the tool requires, by name; for this call alone."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    user_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    nested: Callable[[str, Any], Awaitable[Result]] | None = None
    asker: Asker | None = None
    """What the tool's questions go through; None: its caller cannot be asked."""
    clock: Clock | None = None
    """What counts the time, if others have to stop it."""
    is_nested: bool = False
    """Whether another call waits for this one."""
    reveal: bool = False
    """Whether the caller may see the text and the traceback of exceptions."""
    observe: Callable[[Event], None] = lambda _: None


@dataclass(slots=True)
class Outcome:
    """How running ended, before anything is made of it for the model."""

    status: Status = Status.OK
    value: Any = None
    error: CallError | None = None
    stdout: str = ""
    stderr: str = ""
    is_cut: bool = False
    """Whether a stream goes on where it ends here."""
    is_tool_result: bool = False
    """Whether the value is a `ToolResult`: its streams, its meta."""
    notes: list[str] = field(default_factory=list)
    files: list[SentFile] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    injected_tools: list[str] = field(default_factory=list)
    cpu: float | None = None
    memory: int | None = None
    sandbox: str = ""


def told(invocation: Invocation) -> dict[str, Any]:
    """What a call learns of its caller, and with it the values that are for this call alone."""
    caller = invocation.caller
    return {
        "user_id": caller.user_id,
        "platform": caller.platform,
        "guild_id": caller.guild_id,
        "channel_id": caller.channel_id,
        "agent_id": caller.agent_id,
        "agent_state": caller.agent_state,
        "asks": tuple(invocation.asker.kinds) if invocation.asker else (),
        "secrets": dict(invocation.secrets),
        "settings": dict(invocation.settings),
        "user_settings": dict(invocation.user_settings),
    }


class Executor(Protocol):
    """Runs one call to completion."""

    async def run(self, invocation: Invocation) -> Outcome:
        """Raises BackendError when the platform failed; a failing tool gives an Outcome."""
        ...

    async def close(self) -> None:
        """End everything that was kept warm."""
        ...
