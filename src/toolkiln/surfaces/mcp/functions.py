"""Prompts and resources that are functions: which there are for a caller, and running one.

What a client gets to read of their results is in `prompts` and `resources`. There is no
result with an error in it here, as there is for tools: what fails is an error of the
protocol.
"""

from collections.abc import Callable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, InputResponseRequestParams

from toolkiln.app import Kiln
from toolkiln.errors import InputError
from toolkiln.model import Result, Role, Status, Task, ToolSpec
from toolkiln.surfaces.mcp.cards import icons
from toolkiln.surfaces.mcp.exchanges import Exchange
from toolkiln.surfaces.mcp.following import Following, Forms, Wire
from toolkiln.surfaces.mcp.requests import Request


class Functions:
    """The prompts and resources of one Kiln."""

    def __init__(self, kiln: Kiln, following: Following) -> None:
        self._kiln = kiln
        self._following = following

    def of(self, session: str, role: Role) -> dict[str, ToolSpec]:
        """Those that a caller may run, by name."""
        try:
            return self._kiln.visible(session, role)
        except InputError:  # nothing is served yet
            return {}

    def all(self) -> dict[str, ToolSpec]:
        """Everything that is offered, tools too, whoever may know of it."""
        try:
            return self._kiln.specs
        except InputError:
            return {}

    async def answer(
        self,
        request: Request[InputResponseRequestParams],
        spec: ToolSpec,
        arguments: dict[str, str],
        form: Callable[[Result], Wire],
    ) -> Wire:
        """What a client is answered that wants a function run; `form` makes it of a good result.

        Raises:
            MCPError: the function gave nothing, and why.
        """

        async def start(exchange: Exchange, wait_seconds: float) -> Result | Task:
            return await self._kiln.call(
                spec.name,
                arguments,
                session=request.session,
                called=spec.name,
                surface="mcp",
                observe=exchange.observe,
                ask=exchange.ask,
                asks=exchange.kinds,
                background="auto",
                wait_seconds=wait_seconds,
            )

        def answered(result: Result) -> Wire:
            if result.status is not Status.OK:
                raise _failed(result)
            return form(result)

        forms = Forms(answered, _going_on, can_continue=False)
        return await self._following.call(request, spec.name, start, forms)


def _failed(result: Result) -> MCPError:
    code = INVALID_PARAMS if result.status is Status.INVALID else INTERNAL_ERROR
    error = result.error
    if error is None:
        return MCPError(code, result.text)
    return MCPError(code, error.message, {"code": error.code, "hint": error.hint or ""})


def _going_on(_: Request[Any], task: Task) -> Wire:
    """There is no handle for anything but tools."""
    raise MCPError(INTERNAL_ERROR, f"{task.tool} needs an approval that this client cannot give")


def described(spec: ToolSpec) -> Wire:
    """What lists say of prompts and resources alike, but for their names."""
    return {"title": spec.display_name, "description": spec.description, **icons(spec)}
