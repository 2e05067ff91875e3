"""`tools/call`: calls of tools, and their results as content blocks.

Calls that ask questions or take long are in `interaction`.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from mimetypes import guess_type
from typing import Any, Literal
from urllib.parse import quote

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, SentFile, Status, Task, Truncation
from toolkiln.model.spec import ToolSpec
from toolkiln.surfaces.mcp.exchange import CallExchange, ProgressNotifier
from toolkiln.surfaces.mcp.interaction import CallInteraction, CallResponses
from toolkiln.surfaces.mcp.requests import McpRequest
from toolkiln.surfaces.mcp.tasks import legacy_task, modern_task
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

        async def start(exchange: CallExchange, wait_seconds: float) -> Result | Task:
            return await self._kiln.call(
                name,
                params.arguments or {},
                session=request.session,
                called=params.name,
                surface="mcp",
                observe=exchange.observe,
                ask=exchange.ask,
                asks=exchange.kinds,
                background=background,
                wait_seconds=wait_seconds,
            )

        return await self._interaction.call(request, name, start, self._responses)

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
            hint = {"hint": error.hint} if error.hint else None
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {error.message}", hint)
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
