"""`tools/call` and `tasks/*`: calls of tools, their results as content blocks, long calls.

In the handshake era a client requests a task and gets its result from `tasks/result`. In the
modern era the server decides, and `tasks/get` contains the result. Calls that ask questions are
in `interaction`.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from mimetypes import guess_type
from typing import Any, Literal
from urllib.parse import quote

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    RequestParams,
)
from pydantic import Field

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, SentFile, Status, Task, Truncation
from toolkiln.model.spec import ToolSpec
from toolkiln.surfaces.mcp.exchange import ProgressNotifier, supports_forms
from toolkiln.surfaces.mcp.interaction import CallInteraction, CallResponses
from toolkiln.surfaces.mcp.requests import McpRequest, invalid_params
from toolkiln.surfaces.mcp.tools import DEV, ToolListing

Structured = Callable[[Any], dict[str, Any] | None]
"""Converts a value to structured content; None if it does not match the output schema."""


def call_result(
    result: Result, structured: Structured | None, *, has_schema: bool
) -> dict[str, Any]:
    """Return a result as a `CallToolResult`; `has_schema`: the tool has an output schema."""
    content: list[dict[str, Any]] = []
    response: dict[str, Any] = {"content": content}
    if result.status is not Status.OK or structured is None:
        content += _text_blocks(result.text)
        response["isError"] = result.status is not Status.OK or has_schema
    else:
        data = None if result.truncation else structured(result.value)
        if data is not None:
            content += _text_blocks(result.value if isinstance(result.value, str) else _json(data))
            response["structuredContent"] = data
        elif has_schema and result.truncation and (cut := structured(result.text)) is not None:
            # Truncated text still matches a schema for text, and contains a note about it.
            content += _text_blocks(result.text)
            response["structuredContent"] = cut
        else:
            content += _text_blocks(result.text)
            if has_schema:
                content.append(_text(_mismatch(result)))
                response["isError"] = True
    content += _extras(result)
    meta: dict[str, Any] = {"toolkiln/notes": list(result.notes)} if result.notes else {}
    if result.error is not None:
        meta["toolkiln/code"] = result.error.code
    if result.agent_state is not None:
        meta["toolkiln/agent_state"] = result.agent_state
    if result.dev:
        meta[DEV] = True
    return response | ({"_meta": meta} if meta else {})


def task_notice(task: Task, *, has_schema: bool) -> dict[str, Any]:
    """Return a `CallToolResult` for a call that continues as a background task."""
    reason = (
        "waits for a person's approval"
        if task.state == "pending"
        else "takes longer than this server lets clients wait, and continues in the background"
    )
    text = (
        f"This call of {task.tool} {reason}. Its task id is {task.id}. "
        "Call await_task to wait for its result, check_task to see its state, "
        "cancel_task to stop it."
    )
    response: dict[str, Any] = {"content": [_text(text)], "_meta": {"toolkiln/task": task.id}}
    return response | ({"isError": True} if has_schema else {})


def _text_blocks(text: str) -> list[dict[str, Any]]:
    """Return one text block, or none for empty text: some providers reject empty blocks."""
    return [_text(text)] if text else []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _mismatch(result: Result) -> str:
    if result.truncation:
        return "The result was truncated, so it does not match the tool's output schema."
    return (
        "The tool ran, but its result does not match its output schema; this is what it returned."
    )


def _extras(result: Result) -> list[dict[str, Any]]:
    """Return blocks for truncation, files, messages and injected tools."""
    blocks = []
    if result.truncation:
        blocks.append(_text(_truncation_notice(result.truncation)))
    blocks += [file_block(result.call_id, file) for file in result.files]
    for message in result.messages:
        text = message if isinstance(message, str) else _json(message)
        blocks.append({**_text(text), "annotations": {"audience": ["user"]}})
    if result.injected_tools:
        names = ", ".join(result.injected_tools)
        blocks.append(_text(f"These tools are now available: {names}."))
    return blocks


def _truncation_notice(truncation: Truncation) -> str:
    count = truncation.total - truncation.shown
    omitted = f"{count:,} of {truncation.total:,} characters were omitted."
    if truncation.handle is None:
        return f"{omitted} They could not be stored."
    return (
        f'{omitted} To read them, call read_output with handle "{truncation.handle}" and an offset.'
    )


def file_block(call_id: str, file: SentFile) -> dict[str, Any]:
    """Return the content block for a file that a call sent."""
    guessed = guess_type(file.name)[0] or "application/octet-stream"
    mime_type = "audio/wav" if guessed == "audio/x-wav" else guessed
    media = mime_type.partition("/")[0]
    if media in ("image", "audio") and mime_type != "image/svg+xml":
        return {"type": media, "data": b64encode(file.data).decode(), "mimeType": mime_type}
    uri = f"toolkiln://calls/{quote(call_id, safe='')}/files/{quote(file.name, safe='')}"
    resource: dict[str, Any] = {"uri": uri, "mimeType": mime_type}
    try:
        if b"\0" in file.data:
            raise ValueError
        resource["text"] = file.data.decode()
    except ValueError:
        resource["blob"] = b64encode(file.data).decode()
    return {"type": "resource", "resource": resource}


_UNKNOWN_TOOL_CODES = ("unknown_tool", "not_admitted", "disabled")


class ToolCalls:
    """The handler of `tools/call`."""

    def __init__(self, kiln: Kiln, interaction: CallInteraction, listing: ToolListing) -> None:
        self._kiln = kiln
        self._interaction = interaction
        self._listing = listing
        self._responses = CallResponses(self.respond, self._task_response)

    async def call(self, request: McpRequest[CallToolRequestParams]) -> dict[str, Any]:
        """Run a tool and return its result, a request for input, or a task.

        Raises:
            MCPError: the tool is unknown, or no call waits for the client's responses.
        """
        params = request.params
        name = self._listing.resolve(params.name, request.session)
        if params.task is not None and not request.is_modern:
            return await self._as_task(request, name)
        # A call that waits for a task never becomes a task itself.
        background: Literal["auto"] | bool = "auto" if name != "await_task" else False
        return await self._interaction.call(
            request,
            name,
            params.arguments or {},
            self._responses,
            called=params.name,
            background=background,
        )

    async def _as_task(
        self, request: McpRequest[CallToolRequestParams], name: str
    ) -> dict[str, Any]:
        """Start a task that a client of the handshake era requested; it cannot ask questions."""
        params, session = request.params, request.session
        notifier = ProgressNotifier(request.context, name)
        outcome = await self._kiln.call(
            name,
            params.arguments or {},
            session=session,
            request=request.said,
            called=params.name,
            surface="mcp",
            observe=notifier,
            background=True,
        )
        await notifier.flush()
        if isinstance(outcome, Task):
            return {"task": legacy_task(outcome)}
        response = self.respond(outcome)
        try:
            return {"task": legacy_task(await self._kiln.tasks.get(outcome.call_id, session))}
        except InputError:  # the call was refused, so there is no task
            raise MCPError(INVALID_PARAMS, response["content"][0]["text"]) from None

    def respond(self, result: Result) -> dict[str, Any]:
        """Return a result as a `CallToolResult`.

        Raises:
            MCPError: the tool is unknown.
        """
        error = result.error
        if error is not None and error.code in _UNKNOWN_TOOL_CODES:
            raise invalid_params(f"Unknown tool: {error.message}", error.hint)
        spec = self._spec(result.tool)
        if spec is None:
            return call_result(result, None, has_schema=False)
        tool = self._listing.mcp_tool(spec)
        return call_result(result, tool.structured, has_schema=tool.has_output_schema)

    def _spec(self, name: str) -> ToolSpec | None:
        try:
            return self._kiln.tool(name)
        except ToolkilnError:  # the tool was removed while it ran
            return None

    def _task_response(self, request: McpRequest[Any], task: Task) -> dict[str, Any]:
        if request.has_tasks:
            return {"resultType": "task", **modern_task(task)}
        spec = self._spec(task.tool)
        has_schema = spec is not None and self._listing.mcp_tool(spec).has_output_schema
        return task_notice(task, has_schema=has_schema)


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
            raise invalid_params(f"Unknown task: {error.message}", error.hint) from error

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
