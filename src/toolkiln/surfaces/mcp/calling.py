"""`tools/call`: from a request to the gateway, and back to what a client can read.

A call that waits for a person, or takes too long, is a task of the Kiln from then on.
While it waits its client is asked: in the handshake era by a request of ours, in the
modern era by a result that makes the client repeat the request with an answer. What the
client brings back names the task; `service` seals it on the way out and opens it on the
way in.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams
from pydantic import ValidationError

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Event, Result, Task, ToolSpec
from toolkiln.surfaces.mcp.answers import answer, going_on
from toolkiln.surfaces.mcp.asking import Asking, can_be_asked
from toolkiln.surfaces.mcp.listing import Listing
from toolkiln.surfaces.mcp.requests import Request
from toolkiln.surfaces.mcp.task_forms import legacy_task, modern_task
from toolkiln.surfaces.mcp.telling import Telling

PATIENCE = 10.0
"""Seconds that a client waits for a call that went on after its person was asked."""
_ABSENT = ("unknown_tool", "not_admitted", "disabled")
_APPROVAL = "approval"
_PATIENT = ("await_task",)
"""Tools that are there to wait: no task is made of waiting for a task."""


class Calling:
    """The calls of all connections."""

    def __init__(self, kiln: Kiln, entrance: Entrance, listing: Listing) -> None:
        self._kiln = kiln
        self._listing = listing
        self.asking = Asking(kiln, entrance)
        self._ending: set[asyncio.Task[Any]] = set()

    async def call(self, request: Request[CallToolRequestParams]) -> dict[str, Any]:
        """The result of a call in wire form.

        Raises:
            MCPError: there is no such tool, or nothing waits for what the client brought.
        """
        params, name = request.params, self._listing.original(request.params.name)
        telling, pending = Telling(request.context, name), _Pending()
        observe = _apart(telling, pending.add)
        if params.request_state is not None:
            return await self._resumed(request, observe, pending)
        wants_task = params.task is not None and not request.is_modern
        background: Literal["auto"] | bool = "auto" if name not in _PATIENT else False
        given = await self._kiln.call(
            name,
            params.arguments or {},
            session=request.session,
            surface="mcp",
            observe=observe,
            background=True if wants_task else background,
        )
        await telling.finish()
        if isinstance(given, Result):
            given = await self._kiln.engine.told(given, request.session, params.name)
        if wants_task:
            return await self._as_task(given, request.session)
        if isinstance(given, Result):
            return self.answered(given)
        return await self._followed(request, given, pending)

    async def _as_task(self, given: Result | Task, session: str) -> dict[str, Any]:
        """A task that a client of the handshake era asked for, ended or not.

        Raises:
            MCPError: the call was refused, which leaves nothing to ask for.
        """
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

    async def close(self) -> None:
        """Wait for what was told to stop."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _spec(self, name: str) -> ToolSpec | None:
        try:
            return self._kiln.tool(name)
        except ToolkilnError:  # it went while it ran
            return None

    async def _followed(
        self, request: Request[CallToolRequestParams], task: Task, pending: "_Pending"
    ) -> dict[str, Any]:
        """What becomes of a call that goes on: an answer, a question, or a handle."""
        try:
            while True:
                approval_id = pending.take()
                if approval_id is None or not can_be_asked(request.capabilities):
                    return self._handle(request, task)
                question = await self.asking.question(approval_id, request.session)
                if question is None:
                    return self._handle(request, task)
                if request.is_modern:
                    return _input_required(task, approval_id, question)
                asked = self._ask(request, approval_id, question)
                found = await self._settled(task, request.session, pending, asked)
                if found.result is not None:
                    return self.answered(found.result)
                task = found
        except asyncio.CancelledError:
            self._stop(task, request.session)
            raise

    async def _resumed(
        self,
        request: Request[CallToolRequestParams],
        observe: Callable[[Event], None],
        pending: "_Pending",
    ) -> dict[str, Any]:
        params, session = request.params, request.session
        state = json.loads(params.request_state or "")  # ours: the seal was broken before
        guarding = self._kiln.guarding
        try:
            task = await self._kiln.check_task(state["task"], session)
        except InputError as error:
            raise MCPError(
                INVALID_PARAMS, "This call waits no longer; call the tool again"
            ) from error
        if task.result is not None:
            return self.answered(task.result)
        caller = await guarding.guard.caller(session)
        forget = self._kiln.engine.tasks.listen(caller, task.id, observe)
        try:
            given = (params.input_responses or {}).get(_APPROVAL)
            if given is None:
                pending.add(state["approval"])
            else:
                said = given if isinstance(given, dict) else given.model_dump(by_alias=True)
                await self.asking.answer(state["approval"], said, session)
                task = await self._settled(task, session, pending)
            if task.result is not None:
                return self.answered(task.result)
            return await self._followed(request, task, pending)
        except asyncio.CancelledError:
            self._stop(task, session)
            raise
        finally:
            if forget is not None:
                forget()

    async def _settled(
        self,
        task: Task,
        session: str,
        pending: "_Pending",
        asked: Coroutine[Any, Any, None] | None = None,
    ) -> Task:
        """The task when it has ended, has another question, or takes too long.

        While its person is still asked, nothing takes too long.
        """
        asking = asyncio.ensure_future(asked) if asked is not None else None
        ended = asyncio.ensure_future(self._kiln.await_task(task.id, session))
        waited = asyncio.ensure_future(pending.came())
        try:
            if asking is not None:
                await asyncio.wait([ended, asking], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(
                [ended, waited], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
            if ended.done():
                return ended.result()
            return await self._kiln.check_task(task.id, session)
        finally:
            for one in (asking, ended, waited):
                if one is not None:
                    one.cancel()

    async def _ask(self, request: Request[Any], approval_id: str, question: dict[str, Any]) -> None:
        """Ask in the handshake era: a request to the client while its own waits."""
        context = request.context
        try:
            given = await context.session.elicit_form(
                question["message"], question["requestedSchema"], context.request_id
            )
        except (MCPError, ValidationError):  # it cannot be asked after all; others may answer
            return
        await self.asking.answer(approval_id, given.model_dump(), request.session)

    def _handle(self, request: Request[Any], task: Task) -> dict[str, Any]:
        if request.has_tasks:
            return {"resultType": "task", **modern_task(task)}
        spec = self._spec(task.tool)
        promises = spec is not None and self._listing.card(spec).promises
        return going_on(task, promises=promises)

    def _stop(self, task: Task, session: str) -> None:
        """Stop a call whose client has gone; nobody waits for that."""
        ending = asyncio.ensure_future(self._kiln.cancel_task(task.id, session))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


class _Pending:
    """The approvals that a call waits for, or calls that it makes, in order."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._came = asyncio.Event()

    def add(self, approval_id: str) -> None:
        self._ids.append(approval_id)
        self._came.set()

    def take(self) -> str | None:
        self._came.clear()
        return self._ids.pop(0) if self._ids else None

    async def came(self) -> None:
        await self._came.wait()


def _input_required(task: Task, approval_id: str, question: dict[str, Any]) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {_APPROVAL: {"method": "elicitation/create", "params": question}},
        "requestState": json.dumps({"task": task.id, "approval": approval_id}),
    }


def _apart(telling: Telling, ask: Callable[[str], None]) -> Callable[[Event], None]:
    """Requests for approval to one, everything else to the other."""

    def observe(event: Event) -> None:
        if event.kind == "pending":
            ask(event.text)
        else:
            telling(event)

    return observe
