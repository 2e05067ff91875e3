"""Execution of tool calls: the gateway, its executors, tasks, results and call events.

The sandbox is a package of its own; `operations.engine` puts the parts together. Names load on
first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.execution.call_events import CallEvents, CallObserver, EventCallback, RunningCall
    from toolkiln.execution.executor import (
        MAXIMA,
        Bounds,
        Dispatcher,
        ExecutionOutcome,
        Executor,
        Invocation,
        Workspace,
        call_context,
    )
    from toolkiln.execution.gateway import Gateway, GatewayParts
    from toolkiln.execution.idempotency import CallResults, CallStore
    from toolkiln.execution.inline import InlineExecutor, Threads
    from toolkiln.execution.outcomes import apply_frame, exit_error, limit_error, reply
    from toolkiln.execution.probe import run_examples, run_probe
    from toolkiln.execution.questions import CANNOT_ASK, Ask, CallTimer, QuestionChannel
    from toolkiln.execution.run_log import (
        NO_RESULT,
        RunLog,
        RunRecord,
        RunResult,
        run_key,
        status_of,
    )
    from toolkiln.execution.tasks import TaskService

_HOMES = {
    "Ask": "questions",
    "Bounds": "executor",
    "CANNOT_ASK": "questions",
    "CallEvents": "call_events",
    "CallObserver": "call_events",
    "CallResults": "idempotency",
    "CallStore": "idempotency",
    "CallTimer": "questions",
    "Dispatcher": "executor",
    "EventCallback": "call_events",
    "ExecutionOutcome": "executor",
    "Executor": "executor",
    "Gateway": "gateway",
    "GatewayParts": "gateway",
    "RunResult": "run_log",
    "InlineExecutor": "inline",
    "Invocation": "executor",
    "MAXIMA": "executor",
    "NO_RESULT": "run_log",
    "QuestionChannel": "questions",
    "RunRecord": "run_log",
    "RunLog": "run_log",
    "RunningCall": "call_events",
    "TaskService": "tasks",
    "Threads": "inline",
    "Workspace": "executor",
    "apply_frame": "outcomes",
    "exit_error": "outcomes",
    "limit_error": "outcomes",
    "run_key": "run_log",
    "reply": "outcomes",
    "run_examples": "probe",
    "run_probe": "probe",
    "status_of": "run_log",
    "call_context": "executor",
}

__all__ = [
    "CANNOT_ASK",
    "MAXIMA",
    "NO_RESULT",
    "Ask",
    "Bounds",
    "CallEvents",
    "CallObserver",
    "CallResults",
    "CallStore",
    "CallTimer",
    "Dispatcher",
    "EventCallback",
    "ExecutionOutcome",
    "Executor",
    "Gateway",
    "GatewayParts",
    "InlineExecutor",
    "Invocation",
    "QuestionChannel",
    "RunLog",
    "RunRecord",
    "RunResult",
    "RunningCall",
    "TaskService",
    "Threads",
    "Workspace",
    "apply_frame",
    "call_context",
    "exit_error",
    "limit_error",
    "reply",
    "run_examples",
    "run_key",
    "run_probe",
    "status_of",
]


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
