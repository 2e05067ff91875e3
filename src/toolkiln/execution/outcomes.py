"""From what an executor saw to an honest outcome: which code, which words, what to do next.

Frames are what `runtime.running` sends; statuses are the kernel's.
"""

import errno
import signal
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from toolkiln.execution.classification import failure_in, failure_of, is_refusal
from toolkiln.execution.executor import Bounds, Invocation, Outcome
from toolkiln.model import CallError, Result, Status, ToolSpec

_MASKED = (
    "to show the text of exceptions to every caller, set show_exceptions = true in toolkiln.toml "
    "or TOOLKILN_SHOW_EXCEPTIONS=true"
)

_LIMITS = {
    "timeout": (Status.TIMEOUT, "it ran longer than {timeout:g} s", "timeout"),
    "memory": (Status.KILLED, "it used more than {memory:,} bytes of memory", "memory"),
    "cpu": (Status.KILLED, "it used more than {cpu:g} s of processor time", "cpu"),
    "processes": (Status.KILLED, "it started more than {processes} processes", "processes"),
    "disk": (Status.KILLED, "it wrote more than {disk:,} bytes of files", "disk"),
}
_CRASHES = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS,
    signal.SIGTRAP,
)  # fmt: skip


def limit_hit(limit: str, bounds: Bounds) -> tuple[Status, CallError]:
    """A limit that ended a call."""
    status, message, option = _LIMITS[limit]
    values = {name: getattr(bounds, name) for name in Bounds.__slots__}
    code = "timeout" if limit == "timeout" else f"{limit}_limit"
    hint = f"ask for less work at once; the author can raise @tool({option}=…)"
    return status, CallError(code=code, message=message.format(**values), hint=hint)


def apply_frame(outcome: Outcome, frame: Mapping[str, Any], invocation: Invocation) -> None:
    """Take over the frame that ends a call."""
    if frame["op"] in ("result", "tool_result"):
        outcome.value = frame.get("value")
        outcome.notes += [str(note) for note in frame.get("notes", ())]
        outcome.is_tool_result = frame["op"] == "tool_result"
        _classify_value(outcome)
        return
    # Without a sandbox nothing but the clock is limited: the machine itself ran out of something.
    limit = None if outcome.sandbox == "none" else _limit_of(frame)
    if limit:
        outcome.status, outcome.error = limit_hit(limit, invocation.bounds)
        return
    failure = _failure(frame, invocation.tool.spec, reveal=invocation.reveal)
    outcome.status, outcome.error = failure


def died(
    status: int, cpu: float | None, bounds: Bounds, *, out_of_memory: bool
) -> tuple[Status, CallError]:
    """A process that ended without a result, by the status that its parent saw."""
    number = status & 0x7F
    if out_of_memory:
        return limit_hit("memory", bounds)
    used_up = cpu is not None and cpu >= 0.75 * bounds.cpu  # the kernel counts in ticks
    if number == signal.SIGXCPU or (number == signal.SIGKILL and used_up):
        return limit_hit("cpu", bounds)
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        code = "crashed" if number in _CRASHES else "signalled"
        message = f"its process was ended by {name}"
    elif status:
        code, message = "exited", f"its process ended itself with status {status >> 8}"
    else:
        code, message = "no_result", "its process ended without a result"
    return Status.FAILED, CallError(code=code, message=message, hint="this is the tool's fault")


def reply(tool: str, result: Result) -> dict[str, Any]:
    """What a tool that called another one is told."""
    if result.error is None:
        return {"value": result.value}
    return {"error": f"{tool}: {result.error.message}", "retryable": result.error.retryable}


def _classify_value(outcome: Outcome) -> None:
    """What dialects say in their own way about failing; a returned refusal is no success."""
    value = outcome.value
    if outcome.is_tool_result:
        failure = None if value["ok"] else failure_of(value["stderr"], value["stdout"])
    else:
        failure = failure_in(value)
    if failure is not None:
        outcome.status, outcome.error = _said(failure.text, refused=failure.refused)


def _said(text: str, *, refused: bool, **more: Any) -> tuple[Status, CallError]:
    """A failure or a refusal in the tool's own words."""
    if refused:
        return Status.DENIED, CallError(code="refused", message=text, **more)
    return Status.FAILED, CallError(code="tool_error", message=text, **more)


def _limit_of(frame: Mapping[str, Any]) -> str | None:
    if frame.get("kind") == "memory":
        return "memory"
    if frame.get("kind") != "exception":
        return None
    number = frame.get("errno")
    if number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return "disk"
    if number == errno.ENOMEM:
        return "memory"
    if number == errno.EAGAIN and frame.get("type") == "BlockingIOError":
        return "processes"
    if frame.get("type") == "RuntimeError" and frame.get("message") == "can't start new thread":
        return "processes"
    return None


def _failure(frame: Mapping[str, Any], spec: ToolSpec, *, reveal: bool) -> tuple[Status, CallError]:
    kind, name = str(frame.get("kind")), str(frame.get("type"))
    line = frame.get("line") if isinstance(frame.get("line"), int) else None
    text = str(frame.get("message"))
    if kind == "tool_error":
        retryable = frame.get("retryable") is True
        return _said(text, refused=is_refusal(text), type=name, line=line, retryable=retryable)
    if kind == "bad_settings":
        return Status.FAILED, CallError(
            code="bad_settings",
            message=f"the settings of {spec.name} cannot be used: {text}",
            hint=f"see `toolkiln settings {spec.name}`",
        )
    if kind == "refused":
        return Status.INVALID, CallError(code="invalid_arguments", message=text)
    if kind == "exited":
        return Status.FAILED, CallError(
            code="exited", message="it ended its process", type=name, line=line
        )
    traceback = frame.get("traceback") if reveal else None
    more: dict[str, Any] = {"type": name, "line": line, "hint": None if reveal else _MASKED}
    if isinstance(traceback, str) and traceback:
        more["traceback"] = traceback
    is_loading = bool(frame.get("loading"))
    if is_loading and name in ("ModuleNotFoundError", "ImportError"):
        # Says which package is missing, and nothing of anybody's data.
        reveal, more["hint"] = True, None
    where = f" in line {line} of {PurePath(spec.path).name}" if line else ""
    told = f"{name}{where}" + (f": {text}" if reveal and text else "")
    if is_loading:
        message = f"the tool cannot be imported: {told}"
        return Status.FAILED, CallError(code="import_failed", message=message, **more)
    return Status.FAILED, CallError(code="exception", message=told, **more)
