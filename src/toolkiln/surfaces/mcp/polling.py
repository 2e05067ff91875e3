"""`tasks/*`: long calls that a client polls, in the form of its era.

In the handshake era a client makes a call a task by asking for it, and takes its result
with `tasks/result`. In the modern era the server decides, and `tasks/get` has the result.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RequestParams
from pydantic import Field

from toolkiln.app import Kiln
from toolkiln.errors import InputError
from toolkiln.model import Approval, Result, Task
from toolkiln.surfaces.mcp.following import Following
from toolkiln.surfaces.mcp.questions import can_be_asked
from toolkiln.surfaces.mcp.requests import Request
from toolkiln.surfaces.mcp.task_forms import legacy_task, modern_task, status

_RELATED = "io.modelcontextprotocol/related-task"
_LOST = "The process that ran this call died before there was a result"
_MOST_LISTED = 1_000


class TaskParams(RequestParams):
    """Names a task."""

    task_id: str = Field(alias="taskId", max_length=200)


class UpdateParams(TaskParams):
    """Answers what a task asks."""

    input_responses: dict[str, Any] = Field(alias="inputResponses", default_factory=dict)


class Polling:
    """The tasks of all callers."""

    def __init__(
        self, kiln: Kiln, following: Following, answered: Callable[[Result], dict[str, Any]]
    ) -> None:
        """`answered` makes of a result what `tools/call` answers."""
        self._kiln = kiln
        self._following = following
        self._answered = answered

    async def get(self, request: Request[TaskParams]) -> dict[str, Any]:
        """How a task stands; in the modern era with its result, or what it asks."""
        task = await self._task(request)
        if not request.is_modern:
            return legacy_task(task)
        found = modern_task(task)
        if task.result is not None and found["status"] == "completed":
            found["result"] = {"resultType": "complete", **self._answered(task.result)}
        elif found["status"] == "failed":
            found["error"] = {"code": INTERNAL_ERROR, "message": _LOST}
        elif task.result is None:
            questions = await self._questions(request, task)
            found["status"] = "input_required" if questions else "working"
            if questions:
                found["inputRequests"] = questions
        return found

    async def result(self, request: Request[TaskParams]) -> dict[str, Any]:
        """The result of a task, once there is one; of the handshake era."""
        task = await self._task(request)
        task = await self._kiln.await_task(task.id, request.session)
        if task.result is None:
            raise MCPError(INTERNAL_ERROR, _LOST)
        answered = self._answered(task.result)
        meta = {**answered.get("_meta", {}), _RELATED: {"taskId": task.id}}
        return {**answered, "_meta": meta}

    async def listed(self, request: Request[RequestParams]) -> dict[str, Any]:
        """The tasks of a caller, newest first; of the handshake era."""
        tasks = await self._kiln.tasks(request.session, _MOST_LISTED)
        return {"tasks": [legacy_task(task) for task in tasks]}

    async def cancel(self, request: Request[TaskParams]) -> dict[str, Any]:
        """Stop a task."""
        task = await self._task(request)
        if request.is_modern:
            if task.result is None:
                await self._kiln.cancel_task(task.id, request.session)
            return {}
        if status(task) in ("completed", "cancelled", "failed"):
            raise MCPError(INVALID_PARAMS, f"The task has ended: it is {status(task)}")
        return legacy_task(await self._kiln.cancel_task(task.id, request.session))

    async def update(self, request: Request[UpdateParams]) -> dict[str, Any]:
        """Take the answers to what a task asked; of the modern era."""
        task = await self._task(request)
        responses = request.params.input_responses
        self._following.answer(task, responses)
        for approval in await self._waiting(request, task):
            given = responses.get(approval.id)
            if isinstance(given, Mapping):
                await self._following.asking.answer(approval.id, given, request.session)
        return {}

    async def _task(self, request: Request[TaskParams]) -> Task:
        if request.is_modern and not request.has_tasks:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", request.context.method)
        try:
            return await self._kiln.check_task(request.params.task_id, request.session)
        except InputError as error:
            hint = {"hint": error.hint} if error.hint else None
            raise MCPError(INVALID_PARAMS, f"Unknown task: {error.message}", hint) from error

    async def _questions(self, request: Request[TaskParams], task: Task) -> dict[str, Any]:
        found = self._following.questions(task)
        if not can_be_asked(request.capabilities) or task.state != "pending":
            return found
        for approval in await self._waiting(request, task):
            question = await self._following.asking.question(approval.id, request.session)
            if question is not None:
                found[approval.id] = {"method": "elicitation/create", "params": question}
        return found

    async def _waiting(self, request: Request[Any], task: Task) -> list[Approval]:
        """What a task itself waits for; calls that it makes are not told apart."""
        return await self._following.asking.waiting(task.id, request.session)
