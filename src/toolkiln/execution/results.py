"""Results of calls that did not run, and errors as callers see them."""

import time

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.execution.executor import Admitted
from toolkiln.model import Call, CallError, Result, Status, Timing
from toolkiln.schema import Problems


def refused(
    call: Call, started: float, status: Status, error: CallError, tool: Admitted | None = None
) -> Result:
    """A result of a call that did not run."""
    text = f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    return Result(
        call_id=call.id,
        tool=call.tool,
        digest=tool.spec.digest if tool else call.digest,
        status=status,
        error=error,
        text=text,
        dev=tool is not None and tool.dev,
        timing=Timing(started=started, duration=time.time() - started),
    )


def as_call_error(error: ToolkilnError) -> CallError:
    """An error of ours, for the model."""
    return CallError(
        code=error.code,
        message=error.message,
        hint=error.hint,
        retryable=not isinstance(error, InputError),
    )


def invalid(problems: Problems) -> CallError:
    """All that is wrong with arguments."""
    found = problems.problems
    lines = [problem.message for problem in found]
    hint = next((problem.hint for problem in found if getattr(problem, "hint", None)), None)
    return CallError(code="invalid_arguments", message="\n".join(lines), hint=hint)
