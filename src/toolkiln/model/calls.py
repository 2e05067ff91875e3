"""A call and what became of it. Outcomes are data: a failing tool is an answer.

Nothing here decides or runs anything; `execution.gateway` does.
"""

import os
from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field

from toolkiln.model.value import Value


class Status(StrEnum):
    """How a call ended."""

    OK = "ok"
    FAILED = "failed"  # the tool said no, raised, or died
    INVALID = "invalid"  # the arguments or the tool's name were wrong; nothing ran
    DENIED = "denied"  # we said no, or the tool itself refused
    TIMEOUT = "timeout"  # the wall clock ran out
    KILLED = "killed"  # it hit another limit
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"  # the platform could not run it


class Call(Value):
    """One request to run a tool."""

    tool: str
    arguments: Any = None
    id: str = Field(default_factory=lambda: os.urandom(16).hex(), max_length=200)
    remember: bool = False
    """Whether the id is an idempotency key: a repeated one returns the first Result."""
    session: str | None = None
    """The token of the caller's session: all that a request says of who makes it."""
    digest: str | None = None
    """The version to run; None means the current one."""
    timeout: float | None = None
    """Seconds that the caller is ready to wait; the tool's own limit holds too."""
    surface: str = "python"
    """What the request came through; for the audit."""
    parent: str | None = None
    """The call that made this one."""
    depth: int = 0


class Grant(Value):
    """What an operator allows a tool; it still has to ask for it."""

    network: tuple[str, ...] = ()
    """Hosts, as in `@tool(network=…)`; `*.example.org` covers names below it."""
    workspace: Literal["read", "write"] | None = None
    sandbox: bool = True
    """False: a tool that declares `sandbox=False` may run without one."""
    secrets: tuple[str, ...] = ()
    """Names that it may be handed: those it requires, and `secret:NAME` in its arguments."""


class CallError(Value):
    """Why a call did not end in OK."""

    code: str
    """Stable: `tool_error`, `exception`, `memory_limit` …; docs/calling.md lists them."""
    message: str
    """For the model."""
    type: str | None = None
    """The name of the exception, if one was raised."""
    line: int | None = None
    """Where in the tool's own file."""
    hint: str | None = None
    retryable: bool = False
    retry_after: float | None = None
    """Seconds to wait before another try, where that is known."""
    traceback: str | None = None
    """Of an exception, within the tool's own files; for callers who can read the source."""


LogLevel = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS: tuple[tuple[int, LogLevel], ...] = (
    *((50, "critical"), (40, "error"), (30, "warning"), (20, "info")),
)


def log_level(number: float) -> LogLevel:
    """The level that a number of `logging`'s stands for."""
    return next((level for least, level in _LEVELS if number >= least), "debug")


class Event(Value):
    """What a running call tells before it ends."""

    kind: Literal["progress", "log", "stdout", "stderr", "pending"]
    """`pending`: a person has to approve the call; the text is the id of the approval."""
    text: str
    done: float | None = None
    total: float | None = None
    level: LogLevel | None = None
    """Of a log line."""

    @property
    def described(self) -> str:
        """Progress in words."""
        share = f"{self.done:g}" if self.done is not None else ""
        share += f" of {self.total:g}" if self.total is not None else ""
        return f"{self.text} ({share})" if self.text and share else self.text or share


def unobserved(event: Event) -> None:
    """An observer for calls that nobody watches."""


class SentFile(Value):
    """A file that a tool handed to the caller."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    name: str
    data: bytes


class Truncation(Value):
    """What a text left out."""

    shown: int
    """Characters."""
    total: int
    handle: str | None = None
    """For `read_output`; None if the rest could not be kept."""


class Timing(Value):
    """When and how long, in seconds."""

    started: float = 0.0
    """Unix time."""
    duration: float = 0.0
    cpu: float | None = None
    memory: int | None = None
    """Bytes at the peak, where the executor knows."""


class Result(Value):
    """How a call ended and what it gave."""

    call_id: str
    tool: str
    digest: str | None = None
    status: Status
    value: Any = None
    """What the tool returned, as plain JSON."""
    text: str = ""
    """What the model reads."""
    stdout: str = ""
    stderr: str = ""
    error: CallError | None = None
    notes: tuple[str, ...] = ()
    """What was changed or lost on the way in and out."""
    files: tuple[SentFile, ...] = ()
    messages: tuple[Any, ...] = ()
    injected_tools: tuple[str, ...] = ()
    truncation: Truncation | None = None
    sandbox: str = ""
    """The mode that it ran in: A, B, C or none; empty if nothing ran."""
    dev: bool = False
    """Whether `dev` served the version without an admission."""
    timing: Timing = Timing()

    @property
    def is_open(self) -> bool:
        """Whether the same call may well end otherwise when it is made again, under its id too."""
        again = self.error is not None and self.error.retryable and not self.sandbox
        return self.status is Status.UNAVAILABLE or again


TaskState = Literal["running", "pending", "done", "lost"]


class Task(Value):
    """A call that goes on in the background."""

    id: str
    """The id of its call."""
    tool: str
    state: TaskState
    """`pending`: it waits for a person's approval.
    `lost`: the process that ran it died before there was a result."""
    result: Result | None = None
    progress: str = ""
    """The last thing that the tool reported."""
    started: float = 0.0
    """Unix time."""
