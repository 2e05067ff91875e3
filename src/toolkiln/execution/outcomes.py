"""Outcomes: what the end of a run means, as a status and an error with a hint.

`runtime.call` sends the frames; exit statuses come from the kernel. `output` has the text for
the model.
"""

import errno
import signal
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.execution.classification import failure_in, reported_failure
from toolkiln.execution.executor import Bounds, ExecutionOutcome, Invocation
from toolkiln.execution.refusals import is_refusal
from toolkiln.model.call import Call, CallError, Result, Status, Timing
from toolkiln.model.spec import ToolSpec
from toolkiln.model.tool import ResolvedTool
from toolkiln.schema.arguments import Problems
from toolkiln.security.masking import Mask

_MASKED = (
    "to show the text of exceptions to every caller, set show_exceptions = true in toolkiln.toml "
    "or TOOLKILN_SHOW_EXCEPTIONS=true"
)

_LIMITS = {
    "timeout": "it ran longer than {:g} s",
    "memory": "it used more than {:,} bytes of memory",
    "cpu": "it used more than {:g} s of processor time",
    "processes": "it started more than {} processes",
    "disk": "it wrote more than {:,} bytes of files",
}
_CRASHES = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS,
    signal.SIGTRAP,
)  # fmt: skip


def limit_error(limit: str, bounds: Bounds) -> tuple[Status, CallError]:
    """Return the status and error of a call that exceeded a limit."""
    message = _LIMITS[limit].format(getattr(bounds, limit))
    hint = f"request less work at once; the author can raise @tool({limit}=…)"
    if limit == "timeout":
        return Status.TIMEOUT, CallError(code=limit, message=message, hint=hint)
    return Status.KILLED, CallError(code=f"{limit}_limit", message=message, hint=hint)


def apply_frame(
    outcome: ExecutionOutcome, frame: Mapping[str, Any], invocation: Invocation
) -> None:
    """Apply the last frame of a call."""
    if frame["op"] in ("result", "tool_result"):
        outcome.value = frame.get("value")
        outcome.notes += [str(note) for note in frame.get("notes", ())]
        outcome.agent_state = frame.get("agent_state")
        outcome.is_tool_result = frame["op"] == "tool_result"
        _classify_value(outcome, frame.get("ok"))
        return
    # Without a sandbox only time is limited: the machine itself ran out of the resource.
    limit = None if outcome.sandbox == "none" else _limit_of(frame)
    if limit:
        outcome.status, outcome.error = limit_error(limit, invocation.bounds)
        return
    failure = _failure(frame, invocation.tool.spec, reveal=invocation.reveal)
    outcome.status, outcome.error = failure


def exit_error(
    status: int, cpu: float | None, bounds: Bounds, *, out_of_memory: bool
) -> tuple[Status, CallError]:
    """Return the status and error of a process that ended without a result."""
    number = status & 0x7F
    if out_of_memory:
        return limit_error("memory", bounds)
    used_up = cpu is not None and cpu >= 0.75 * bounds.cpu  # the kernel counts in ticks
    if number == signal.SIGXCPU or (number == signal.SIGKILL and used_up):
        return limit_error("cpu", bounds)
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        code = "crashed" if number in _CRASHES else "signalled"
        message = f"its process was killed by {name}"
    elif status:
        code, message = "exited", f"its process exited with status {status >> 8}"
    else:
        code, message = "no_result", "its process ended without a result"
    return Status.FAILED, CallError(code=code, message=message, hint="this is a fault of the tool")


def _classify_value(outcome: ExecutionOutcome, is_ok: bool | None) -> None:
    """Set the status from a returned value: each dialect has its own way to report failures."""
    value = outcome.value
    if outcome.is_tool_result:
        failure = None if value["ok"] else reported_failure(value["stderr"] or value["stdout"])
    elif is_ok is not None:  # the tool says it beside the value
        failure = None if is_ok else reported_failure(value if isinstance(value, str) else "")
    else:
        failure = failure_in(value)
    if failure is not None:
        outcome.status, outcome.error = _reported(failure.text, refused=failure.refused)


def _reported(text: str, *, refused: bool, **more: Any) -> tuple[Status, CallError]:
    """Return the status and error of a failure or refusal that the tool reports."""
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
        refused = frame.get("denied") is True or is_refusal(text)
        return _reported(text, refused=refused, type=name, line=line, retryable=retryable)
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
        # The text names the missing package and no data.
        reveal, more["hint"] = True, None
    where = f" in line {line} of {PurePath(spec.path).name}" if line else ""
    summary = f"{name}{where}" + (f": {text}" if reveal and text else "")
    if is_loading:
        message = f"the tool cannot be imported: {summary}"
        return Status.FAILED, CallError(code="import_failed", message=message, **more)
    return Status.FAILED, CallError(code="exception", message=summary, **more)


def refused_result(
    call: Call, started: float, status: Status, error: CallError, tool: ResolvedTool | None = None
) -> Result:
    """Return the result of a call that did not run."""
    return Result(
        call_id=call.id,
        tool=call.tool,
        digest=tool.spec.digest if tool else call.digest,
        status=status,
        error=error,
        text=error_text(error),
        dev=tool is not None and tool.dev,
        timing=Timing(started=started, duration=time.time() - started),
    )


def error_text(error: CallError) -> str:
    """Return an error with its hint, as text for the model."""
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")


def as_call_error(error: ToolkilnError) -> CallError:
    """Convert a platform error for the model."""
    return CallError(
        code=error.code,
        message=error.message,
        hint=error.hint,
        retryable=not isinstance(error, InputError),
    )


def invalid_arguments(problems: Problems) -> CallError:
    """Return the error of a call with invalid arguments."""
    lines = [problem.message for problem in problems.problems]
    hints = (getattr(problem, "hint", None) for problem in problems.problems)
    hint = next(filter(None, hints), None)
    return CallError(code="invalid_arguments", message="\n".join(lines), hint=hint)


def mask_outcome(outcome: ExecutionOutcome, mask: Mask) -> None:
    """Mask secrets in everything that a run returned."""
    outcome.value = mask.value(outcome.value)
    outcome.stdout = mask.text(outcome.stdout, cut=outcome.is_cut)
    outcome.stderr = mask.text(outcome.stderr, cut=outcome.is_cut)
    outcome.notes = [mask.text(note) for note in outcome.notes]
    outcome.messages = [mask.value(message) for message in outcome.messages]
    outcome.injected_tools = [mask.text(name) for name in outcome.injected_tools]
    outcome.agent_state = mask.value(outcome.agent_state)
    outcome.files = [
        file.model_copy(update={"name": mask.text(file.name), "data": mask.data(file.data)})
        for file in outcome.files
    ]
    if outcome.error is not None:
        outcome.error = mask_error(outcome.error, mask)


def mask_error(error: CallError, mask: Mask) -> CallError:
    """Mask secrets in the texts of an error."""
    texts = {
        name: mask.text(text, cut=True)
        for name in ("message", "type", "hint", "traceback")
        if (text := getattr(error, name)) is not None
    }
    return error.model_copy(update=texts)
