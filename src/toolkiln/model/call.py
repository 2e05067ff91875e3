"""Calls, events, results and tasks. A failing tool is a result, not an exception."""

import json
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field

from toolkiln.model.base import Value


class Status(StrEnum):
    """How a call ended."""

    OK = "ok"
    FAILED = "failed"  # the tool reported an error, raised, or its process died
    INVALID = "invalid"  # invalid arguments or unknown tool; nothing ran
    DENIED = "denied"  # denied by policy or by the tool
    TIMEOUT = "timeout"
    KILLED = "killed"  # exceeded another limit
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"  # the platform could not run it


class Call(Value):
    """One request to run a tool."""

    tool: str
    arguments: Any = None
    id: str = Field(default_factory=lambda: os.urandom(16).hex(), max_length=200)
    remember: bool = False
    """Whether the id is an idempotency key: repeated calls return the first Result."""
    session: str | None = None
    """Token of the caller's session, the only proof of identity."""
    digest: str | None = None
    """Version to run; null for the current one."""
    timeout: float | None = None
    """Seconds the caller is willing to wait; the tool's own limit applies too."""
    request: dict[str, Any] = Field(default_factory=dict)
    """What the caller says about the call, for the tool: unverified, and no basis of decisions."""
    surface: str = "python"
    """Where the call came from, for the audit log."""
    parent: str | None = None
    """Id of the call that made this one."""
    depth: int = 0


class Grant(Value):
    """Permissions an operator grants to a tool; the tool must also request them."""

    network: tuple[str, ...] = ()
    """Hosts, as in `@tool(network=…)`; `*.example.org` covers its subdomains."""
    workspace: Literal["read", "write"] | None = None
    sandbox: bool = True
    """If false, a tool that declares `sandbox=False` may run unsandboxed."""
    secrets: tuple[str, ...] = ()
    """Secrets it may receive, as declared secrets or as `secret:NAME` in its arguments."""


class CallError(Value):
    """Why a call did not end with OK."""

    code: str
    """Stable code: `tool_error`, `exception`, `memory_limit` …; see docs/calling.md."""
    message: str
    """Message for the model."""
    type: str | None = None
    """Name of the exception, if one was raised."""
    line: int | None = None
    """Line in the tool's file."""
    hint: str | None = None
    retryable: bool = False
    retry_after: float | None = None
    """Seconds to wait before retrying, if known."""
    traceback: str | None = None
    """Traceback within the tool's own files, for callers who may read the source."""


LogLevel = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS: tuple[tuple[int, LogLevel], ...] = (
    *((50, "critical"), (40, "error"), (30, "warning"), (20, "info")),
)


def log_level(number: float) -> LogLevel:
    """Convert a numeric level of `logging`."""
    return next((level for minimum, level in _LEVELS if number >= minimum), "debug")


class Event(Value):
    """An event of a running call."""

    kind: Literal["progress", "log", "stdout", "stderr", "pending", "message", "file", "injected"]
    """`pending`: the call waits for approval; the text is the id of the approval. `file`: the
    text is its name. `injected`: the text is the name of a tool."""
    text: str = ""
    done: float | None = None
    total: float | None = None
    level: LogLevel | None = None
    """Level of a log line."""
    value: Any = None
    """A message, or null if it is large; the media type and the size of a file."""
    index: int | None = None
    """Position in `messages`, `files` or `injected_tools` of the Result."""
    number: int = 0
    """Position among all events of the call, from 1."""

    @property
    def size(self) -> int:
        """Characters to store, approximately."""
        return len(self.text) + (len(self.described) if self.kind == "message" else 0)

    @property
    def described(self) -> str:
        """The event in words."""
        if self.kind == "message":
            return self.text or json.dumps(self.value, ensure_ascii=False)
        if self.kind == "file":
            return f"{self.text} ({self.value['type']}, {self.value['size']:,} bytes)"
        share = f"{self.done:g}" if self.done is not None else ""
        share += f" of {self.total:g}" if self.total is not None else ""
        return f"{self.text} ({share})" if self.text and share else self.text or share


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of a call, and when it happened."""

    # Not a Value: thousands are in memory while a server runs.
    __pydantic_config__ = ConfigDict(extra="forbid")

    at: float
    kind: str
    text: str
    level: LogLevel | None


class SentFile(Value):
    """A file that a tool sent to its caller."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    name: str
    data: bytes


class Truncation(Value):
    """How much of a text was truncated."""

    shown: int
    """Characters."""
    total: int
    handle: str | None = None
    """Handle for `read_output`; null if the rest could not be stored."""


class Timing(Value):
    """Start, duration and resource usage of a call."""

    started: float = 0.0
    """Unix time."""
    duration: float = 0.0
    cpu: float | None = None
    """Processor time in seconds; null if it is unknown."""
    memory: int | None = None
    """Peak resident memory in bytes; null if it is unknown."""


class Result(Value):
    """How a call ended, with its value and output."""

    call_id: str
    tool: str
    digest: str | None = None
    status: Status
    value: Any = None
    """The tool's return value as plain JSON."""
    text: str = ""
    """Text for the model."""
    stdout: str = ""
    stderr: str = ""
    error: CallError | None = None
    notes: tuple[str, ...] = ()
    """Changes to the arguments and losses in the output."""
    files: tuple[SentFile, ...] = ()
    messages: tuple[Any, ...] = ()
    injected_tools: tuple[str, ...] = ()
    agent_state: dict[str, Any] | None = None
    """The state of the agent after the call, if the tool changed it: for the caller to keep."""
    truncation: Truncation | None = None
    sandbox: str = ""
    """Sandbox mode: A, B, C or none; empty if nothing ran."""
    dev: bool = False
    """Whether the version was served by `dev`, without admission."""
    timing: Timing = Timing()

    @property
    def is_open(self) -> bool:
        """Whether the call may be retried with the same id."""
        may_retry = self.error is not None and self.error.retryable and not self.sandbox
        return self.status is Status.UNAVAILABLE or may_retry


TaskState = Literal["running", "pending", "done", "lost"]


class Task(Value):
    """A call that continues in the background."""

    id: str
    """The id of its call."""
    tool: str
    state: TaskState
    """`pending`: waiting for approval. `lost`: its process died before there was a result."""
    result: Result | None = None
    progress: str = ""
    """The latest progress."""
    started: float = 0.0
    """Unix time."""


KEEP_SECONDS = 3600.0
"""How long results, outputs and records of lost calls are stored."""
OUTPUT_CHARACTERS = 50_000_000
"""Maximum characters of stored outputs for one caller; the oldest are deleted first."""


class Claimed(Value):
    """The claim succeeded; this value is needed to renew, finish or release it."""

    key: str
    token: str
    """Random for each claim, so that a previous owner cannot finish the call."""
    attempt: int
    """Above 1, an earlier owner died and the tool may have run partially."""


class Done(Value):
    """The call has already ended."""

    result: Result


class Busy(Value):
    """Another owner is running the call."""

    owner: str
    remaining: float
    """Seconds until the lease expires, unless it is renewed."""


class IdConflict(Value):
    """The id belongs to a call with other arguments, another tool or another version."""


Claim = Claimed | Done | Busy | IdConflict


class Lease(StrEnum):
    """State of a lease when it is renewed."""

    HELD = "held"
    CANCEL = "cancel"  # still held, but the call should be cancelled
    LOST = "lost"  # expired, released, or taken over


class OutputPage(Value):
    """Part of a stored output; all counts are characters."""

    text: str
    offset: int
    total: int
    next_offset: int | None
    """Start of the next page; null on the last one."""
