"""`tasks/*`: long calls that a client polls, in both eras.

In the handshake era a client requests a task and gets its result from `tasks/result`. In the
modern era the server decides, and `tasks/get` contains the result.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RequestParams
from pydantic import Field

from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, Status, Task
from toolkiln.surfaces.mcp.exchange import supports_forms
from toolkiln.surfaces.mcp.interaction import CallInteraction
from toolkiln.surfaces.mcp.requests import McpRequest

_TTL_MS = 3_600_000
_POLL_INTERVAL_MS = 1_000


def legacy_task(task: Task) -> dict[str, Any]:
    """Return a task in the form of protocol version 2025-11-25."""
    return {**_common_fields(task), "ttl": _TTL_MS, "pollInterval": _POLL_INTERVAL_MS}


def modern_task(task: Task) -> dict[str, Any]:
    """Return a task in the form of the tasks extension."""
    return {**_common_fields(task), "ttlMs": _TTL_MS, "pollIntervalMs": _POLL_INTERVAL_MS}


def _status(task: Task) -> str:
    if task.result is not None:
        return "cancelled" if task.result.status is Status.CANCELLED else "completed"
    return {"pending": "input_required", "lost": "failed", "done": "completed"}.get(
        task.state, "working"
    )


def _common_fields(task: Task) -> dict[str, Any]:
    fields = {
        "taskId": task.id,
        "status": _status(task),
        "createdAt": _time(task.started),
        "lastUpdatedAt": _time(_updated(task)),
    }
    message = task.progress or ("its process died" if task.state == "lost" else "")
    return fields | ({"statusMessage": message} if message else {})


def _updated(task: Task) -> float:
    """Return when a task ended, or the current time if it is running."""
    if task.result is None:
        return datetime.now(UTC).timestamp()
    timing = task.result.timing
    return timing.started + timing.duration or task.started


def _time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds")


_RELATED_TASK = "io.modelcontextprotocol/related-task"
_LOST = "The process that ran this call died before there was a result"
_MAX_LISTED = 1_000


class TaskParams(RequestParams):
    """Parameters of methods about one task."""

    task_id: str = Field(alias="taskId", max_length=200)


class UpdateTaskParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(alias="inputResponses", default_factory=dict)


class TaskMethods:
    """The handlers of `tasks/*`."""

    def __init__(
        self, kiln: Kiln, interaction: CallInteraction, respond: Callable[[Result], dict[str, Any]]
    ) -> None:
        """`respond` converts a result to the response of `tools/call`."""
        self._kiln = kiln
        self._interaction = interaction
        self._respond = respond

    async def get(self, request: McpRequest[TaskParams]) -> dict[str, Any]:
        """Return a task; in the modern era with its result or its requests for input."""
        task = await self._task(request)
        if not request.is_modern:
            return legacy_task(task)
        fields = modern_task(task)
        if task.result is not None and fields["status"] == "completed":
            fields["result"] = {"resultType": "complete", **self._respond(task.result)}
        elif fields["status"] == "failed":
            fields["error"] = {"code": INTERNAL_ERROR, "message": _LOST}
        elif task.result is None:
            input_requests = await self._input_requests(request, task)
            fields["status"] = "input_required" if input_requests else "working"
            if input_requests:
                fields["inputRequests"] = input_requests
        return fields

    async def result(self, request: McpRequest[TaskParams]) -> dict[str, Any]:
        """Wait for a task and return its result; handshake era only."""
        task = await self._task(request)
        task = await self._kiln.tasks.wait(task.id, request.session)
        if task.result is None:
            raise MCPError(INTERNAL_ERROR, _LOST)
        response = self._respond(task.result)
        meta = {**response.get("_meta", {}), _RELATED_TASK: {"taskId": task.id}}
        return {**response, "_meta": meta}

    async def list_tasks(self, request: McpRequest[RequestParams]) -> dict[str, Any]:
        """Return the caller's tasks, newest first; handshake era only."""
        tasks = await self._kiln.tasks.list(request.session, _MAX_LISTED)
        return {"tasks": [legacy_task(task) for task in tasks]}

    async def cancel(self, request: McpRequest[TaskParams]) -> dict[str, Any]:
        """Cancel a task."""
        task = await self._task(request)
        if request.is_modern:
            if task.result is None:
                await self._kiln.tasks.cancel(task.id, request.session)
            return {}
        if (status := _status(task)) in ("completed", "cancelled", "failed"):
            raise MCPError(INVALID_PARAMS, f"The task has already ended: it is {status}")
        return legacy_task(await self._kiln.tasks.cancel(task.id, request.session))

    async def update(self, request: McpRequest[UpdateTaskParams]) -> dict[str, Any]:
        """Pass a client's responses to a task; modern era only."""
        task = await self._task(request)
        responses = request.params.input_responses
        self._interaction.answer(task, responses)
        approvals = self._interaction.approvals
        for approval in await approvals.pending(task.id, request.session):
            response = responses.get(approval.id)
            if isinstance(response, Mapping):
                await approvals.decide(approval.id, response, request.session)
        return {}

    async def _task(self, request: McpRequest[TaskParams]) -> Task:
        if request.is_modern and not request.has_tasks:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", request.context.method)
        try:
            return await self._kiln.tasks.get(request.params.task_id, request.session)
        except InputError as error:
            hint = {"hint": error.hint} if error.hint else None
            raise MCPError(INVALID_PARAMS, f"Unknown task: {error.message}", hint) from error

    async def _input_requests(self, request: McpRequest[TaskParams], task: Task) -> dict[str, Any]:
        requests = self._interaction.questions(task)
        if not supports_forms(request.capabilities) or task.state != "pending":
            return requests
        approvals = self._interaction.approvals
        for approval in await approvals.pending(task.id, request.session):
            form = await approvals.question(approval.id, request.session)
            if form is not None:
                requests[approval.id] = {"method": "elicitation/create", "params": form}
        return requests
