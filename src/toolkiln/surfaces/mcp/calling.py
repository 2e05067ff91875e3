"""`tools/call`: from a request to the gateway, and back to what a client can read.

How a call is followed that asks something or takes long is `following`'s business.
"""

from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams

from toolkiln.app import Kiln
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Result, Task, ToolSpec
from toolkiln.surfaces.mcp.answers import answer, going_on
from toolkiln.surfaces.mcp.exchanges import Exchange
from toolkiln.surfaces.mcp.following import Following, Forms
from toolkiln.surfaces.mcp.listing import Listing
from toolkiln.surfaces.mcp.requests import Request
from toolkiln.surfaces.mcp.task_forms import legacy_task, modern_task
from toolkiln.surfaces.mcp.telling import Telling

_ABSENT = ("unknown_tool", "not_admitted", "disabled")
_PATIENT = ("await_task",)
"""Tools that are there to wait: no task is made of waiting for a task."""


class Calling:
    """The calls of all connections."""

    def __init__(self, kiln: Kiln, following: Following, listing: Listing) -> None:
        self._kiln = kiln
        self._following = following
        self._listing = listing
        self._forms = Forms(self.answered, self._going_on)

    async def call(self, request: Request[CallToolRequestParams]) -> dict[str, Any]:
        """The result of a call in wire form.

        Raises:
            MCPError: there is no such tool, or nothing waits for what the client brought.
        """
        params = request.params
        name = self._listing.called(params.name, request.session)
        if params.task is not None and not request.is_modern:
            return await self._as_task(request, name)
        background: Literal["auto"] | bool = "auto" if name not in _PATIENT else False

        async def start(exchange: Exchange, wait_seconds: float) -> Result | Task:
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

        return await self._following.call(request, name, start, self._forms)

    async def _as_task(self, request: Request[CallToolRequestParams], name: str) -> dict[str, Any]:
        """A task that a client of the handshake era asked for, ended or not; it cannot ask.

        Raises:
            MCPError: the call was refused, which leaves nothing to ask for.
        """
        params, session = request.params, request.session
        telling = Telling(request.context, name)
        given = await self._kiln.call(
            name,
            params.arguments or {},
            session=session,
            called=params.name,
            surface="mcp",
            observe=telling,
            background=True,
        )
        await telling.finish()
        if isinstance(given, Task):
            return {"task": legacy_task(given)}
        answered = self.answered(given)
        try:
            return {"task": legacy_task(await self._kiln.check_task(given.call_id, session))}
        except InputError:
            raise MCPError(INVALID_PARAMS, answered["content"][0]["text"]) from None

    def answered(self, result: Result) -> dict[str, Any]:
        """A result in wire form.

        Raises:
            MCPError: there is no such tool.
        """
        error = result.error
        if error is not None and error.code in _ABSENT:
            hint = {"hint": error.hint} if error.hint else None
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {error.message}", hint)
        spec = self._spec(result.tool)
        if spec is None:
            return answer(result, None, promises=False)
        card = self._listing.card(spec)
        return answer(result, card.structured, promises=card.promises)

    def _spec(self, name: str) -> ToolSpec | None:
        try:
            return self._kiln.tool(name)
        except ToolkilnError:  # it went while it ran
            return None

    def _going_on(self, request: Request[Any], task: Task) -> dict[str, Any]:
        if request.has_tasks:
            return {"resultType": "task", **modern_task(task)}
        spec = self._spec(task.tool)
        promises = spec is not None and self._listing.card(spec).promises
        return going_on(task, promises=promises)
