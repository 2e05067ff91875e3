"""Calls that ask, wait or resume, for every MCP method that runs a tool, prompt or resource.

A call that needs an approval, asks its client or outlasts the client's wait becomes a
background task. Clients wait as long as the tool may run, unless they can poll tasks or the
operator sets `mcp_wait_seconds`. A call's requests for input go to the client: in the
handshake era as requests of the server, in the modern era as an `input_required` result,
after which the client repeats its request with the responses. The request state of such a
result names the task; the SDK seals it on the way out and opens it on the way in (`server`).
How a result looks on the wire is up to the method (`calls`, `prompts`, `resources`).
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal
from weakref import WeakValueDictionary

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, InputResponseRequestParams
from pydantic import ValidationError

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, Task
from toolkiln.model.policy import Approval, Remember
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.mcp.exchange import CallExchange, PendingQuestions, supports_forms
from toolkiln.surfaces.mcp.requests import McpRequest

_MAX_ARGUMENTS_SHOWN = 2_000
"""Characters of the arguments in the message of an approval."""
_APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "remember": {
            "type": "boolean",
            "title": "Do not ask again",
            "description": "Always allow this call with the same arguments.",
            "default": False,
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "Recorded in the audit log.",
        },
    },
}


class ApprovalElicitation:
    """Approvals decided by the client's user, through the client."""

    def __init__(self, kiln: Kiln, authenticator: Authenticator) -> None:
        self._kiln = kiln
        self._authenticator = authenticator

    async def question(self, approval_id: str, session: str) -> dict[str, Any] | None:
        """Return the form for the client's user; None if they may not decide the approval."""
        approval = await asyncio.to_thread(self._kiln.security.approvals.get, approval_id)
        if approval is None:
            return None
        if not self._authenticator.is_own_agent(session) and not await asyncio.to_thread(
            self._kiln.security.may_answer, approval, session
        ):
            return None
        return {"mode": "form", "message": _message(approval), "requestedSchema": _APPROVAL_SCHEMA}

    async def pending(self, call_id: str, session: str) -> list[Approval]:
        """Return the pending approvals of one of the caller's calls."""
        security = self._kiln.security
        caller = await security.guard.caller(session)
        return await asyncio.to_thread(security.approvals.of_call, caller, call_id)

    async def decide(self, approval_id: str, response: Mapping[str, Any], session: str) -> bool:
        """Record the user's decision; anything but an explicit yes is a rejection.

        Returns False if the approval is still pending because the user may not decide it.
        """
        security = self._kiln.security
        by = security.operator if self._authenticator.is_own_agent(session) else session
        content = response.get("content")
        form = content if isinstance(content, Mapping) else {}
        reason = form.get("reason")
        reason = reason if isinstance(reason, str) else ""
        try:
            if response.get("action") == "accept":
                remember: Remember | None = "arguments" if form.get("remember") is True else None
                await asyncio.to_thread(
                    security.approve, approval_id, session=by, reason=reason, remember=remember
                )
            else:
                await asyncio.to_thread(security.reject, approval_id, session=by, reason=reason)
        except ToolkilnError:  # decided elsewhere, expired, or the user may not decide it
            approval = await asyncio.to_thread(security.approvals.get, approval_id)
            return approval is None or approval.state != "pending"
        return True


def _message(approval: Approval) -> str:
    arguments = json.dumps(approval.arguments, ensure_ascii=False, indent=2)
    if len(arguments) > _MAX_ARGUMENTS_SHOWN:
        omitted = len(arguments) - _MAX_ARGUMENTS_SHOWN
        arguments = f"{arguments[:_MAX_ARGUMENTS_SHOWN]}\n… and {omitted:,} more characters"
    return f"May {approval.tool} run? {approval.why}\n\n{arguments}"


_APPROVAL = "approval"


@dataclass(frozen=True, slots=True)
class CallResponses:
    """How a method presents the outcome of a call; both functions may raise MCPError."""

    for_result: Callable[[Result], dict[str, Any]]
    for_task: Callable[[McpRequest[Any], Task], dict[str, Any]]
    """The response for a call that continues without its client."""
    can_continue: bool = True
    """Whether a call can continue as a background task; otherwise it ends with its request."""


class CallInteraction:
    """The interactive calls of all connections."""

    def __init__(self, kiln: Kiln, authenticator: Authenticator) -> None:
        self._kiln = kiln
        self.approvals = ApprovalElicitation(kiln, authenticator)
        self._exchanges: WeakValueDictionary[str, CallExchange] = WeakValueDictionary()
        """By task; a running call keeps its exchange alive."""
        self._cancellations: set[asyncio.Task[Any]] = set()

    async def call(
        self,
        request: McpRequest[InputResponseRequestParams],
        name: str,
        arguments: Mapping[str, Any],
        responses: CallResponses,
        *,
        called: str,
        background: Literal["auto"] | bool = "auto",
    ) -> dict[str, Any]:
        """Start a call, or resume one with the client's responses, and return the response.

        `called` is the name that the client used.

        Raises:
            MCPError: no call waits for the client's responses, or the client lacks a capability.
        """
        if request.params.request_state is not None:
            return await self._resume(request, name, responses)
        exchange = CallExchange(request, name)
        outcome = await self._kiln.call(
            name,
            arguments,
            session=request.session,
            request=request.said,
            called=called,
            surface="mcp",
            observe=exchange.observe,
            ask=exchange.ask,
            asks=exchange.kinds,
            background=background,
            wait_seconds=self._wait_seconds(request, responses),
        )
        if isinstance(outcome, Result):
            await exchange.flush()
            return _result_response(outcome, exchange, responses)
        self._exchanges[outcome.id] = exchange
        return await self._follow(request, outcome, exchange, responses)

    def questions(self, task: Task) -> dict[str, Any]:
        """Return the unanswered questions of a task by name, without approvals."""
        exchange = self._exchanges.get(task.id)
        if exchange is None or exchange.questions is None:
            return {}
        return exchange.questions.unanswered

    def answer(self, task: Task, responses: dict[str, Any]) -> None:
        """Pass a client's responses to the questions of a task.

        Raises:
            MCPError: a response does not match its question.
        """
        exchange = self._exchanges.get(task.id)
        if exchange is not None and exchange.questions is not None:
            exchange.questions.accept(responses)

    async def close(self) -> None:
        """Wait for cancellations in progress."""
        await asyncio.gather(*self._cancellations, return_exceptions=True)

    async def _follow(
        self,
        request: McpRequest[InputResponseRequestParams],
        task: Task,
        exchange: CallExchange,
        responses: CallResponses,
    ) -> dict[str, Any]:
        """Return the result of a running call, a request for input, or a task."""
        response = await self._next_response(request, task, exchange, responses)
        await exchange.flush()
        return response

    async def _next_response(
        self,
        request: McpRequest[InputResponseRequestParams],
        task: Task,
        exchange: CallExchange,
        responses: CallResponses,
    ) -> dict[str, Any]:
        limit = self._wait_seconds(request, responses)
        try:
            while True:
                needed = exchange.next_input_request()
                if needed is None and limit < inf:
                    return self._continue_as_task(request, task, exchange, responses)
                elicitation: Coroutine[Any, Any, None] | None = None
                if isinstance(needed, PendingQuestions):
                    if request.is_modern and needed.unanswered:
                        return _input_required(task, needed.unanswered, questions=needed.id)
                    if needed.unanswered:
                        elicitation = needed.send(request.context)
                elif needed is not None:
                    form = await self._approval_form(request, needed, exchange)
                    if form is None:
                        task = task.model_copy(update={"state": "pending"})
                        return self._continue_as_task(request, task, exchange, responses)
                    if request.is_modern:
                        elicit = {"method": "elicitation/create", "params": form}
                        return _input_required(task, {_APPROVAL: elicit}, approval=needed)
                    elicitation = self._elicit_approval(request, needed, form, exchange)
                task = await self._wait(task, request.session, exchange, limit, elicitation)
                if task.result is not None:
                    return _result_response(task.result, exchange, responses)
        except asyncio.CancelledError:
            self._cancel(task, request.session)
            raise

    async def _resume(
        self,
        request: McpRequest[InputResponseRequestParams],
        name: str,
        responses: CallResponses,
    ) -> dict[str, Any]:
        params, session = request.params, request.session
        state = json.loads(params.request_state or "")  # trusted: the SDK has checked the seal
        try:
            task = await self._kiln.tasks.get(state["task"], session)
        except InputError as error:
            raise MCPError(
                INVALID_PARAMS, "This call is no longer waiting; call the tool again"
            ) from error
        exchange = self._exchanges.get(task.id) or CallExchange(request, name)
        exchange.attach(request)
        if task.result is not None:
            await exchange.flush()
            return _result_response(task.result, exchange, responses)
        try:
            if await self._accept(state, params.input_responses or {}, exchange, session):
                limit = self._wait_seconds(request, responses)
                task = await self._wait(task, session, exchange, limit)
            if task.result is not None:
                await exchange.flush()
                return _result_response(task.result, exchange, responses)
            return await self._follow(request, task, exchange, responses)
        except asyncio.CancelledError:
            self._cancel(task, session)
            raise

    async def _accept(
        self,
        state: dict[str, Any],
        responses: dict[str, Any],
        exchange: CallExchange,
        session: str,
    ) -> bool:
        """Use a client's responses; False if it must be asked again."""
        if "approval" in state:
            response = responses.get(_APPROVAL)
            if response is None:
                exchange.repeat(state["approval"])
                return False
            if not isinstance(response, dict):
                response = response.model_dump(by_alias=True)
            if not await self.approvals.decide(state["approval"], response, session):
                exchange.delegate_approval(state["approval"])
            return True
        questions = exchange.questions
        if questions is not None and questions.id == state["questions"]:
            questions.accept(responses)
            if questions.unanswered:
                exchange.repeat(questions)
                return False
        return True

    async def _wait(
        self,
        task: Task,
        session: str,
        exchange: CallExchange,
        limit: float,
        elicitation: Coroutine[Any, Any, None] | None = None,
    ) -> Task:
        """Return the task once it has ended, requests input, or `limit` seconds have passed.

        The seconds count from the end of the elicitation.
        """
        elicited = asyncio.ensure_future(elicitation) if elicitation is not None else None
        ended = asyncio.ensure_future(self._kiln.tasks.wait(task.id, session))
        needs_input = asyncio.ensure_future(exchange.wait_for_input_request())
        try:
            if elicited is not None:
                await asyncio.wait([ended, elicited], return_when=asyncio.FIRST_COMPLETED)
            timeout = limit if limit < inf else None
            await asyncio.wait(
                [ended, needs_input], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if ended.done():
                return ended.result()
            return await self._kiln.tasks.get(task.id, session)
        finally:
            for future in (elicited, ended, needs_input):
                if future is not None:
                    future.cancel()

    async def _approval_form(
        self, request: McpRequest[Any], approval_id: str, exchange: CallExchange
    ) -> dict[str, Any] | None:
        if not supports_forms(request.capabilities):
            return None
        if approval_id in exchange.delegated_approvals:
            return None
        return await self.approvals.question(approval_id, request.session)

    async def _elicit_approval(
        self,
        request: McpRequest[Any],
        approval_id: str,
        form: dict[str, Any],
        exchange: CallExchange,
    ) -> None:
        """Ask a client of the handshake era while its own request is open."""
        context, is_decided = request.context, False
        try:
            response = await context.session.elicit_form(
                form["message"], form["requestedSchema"], context.request_id
            )
            is_decided = await self.approvals.decide(
                approval_id, response.model_dump(), request.session
            )
        except (MCPError, ValidationError):  # the client could not show the form
            pass
        if not is_decided:
            exchange.delegate_approval(approval_id)

    def _wait_seconds(self, request: McpRequest[Any], responses: CallResponses) -> float:
        """Return how long a client waits before its call continues as a background task."""
        if not responses.can_continue:
            return inf
        default = self._kiln.engine.tasks.soft_limit if request.has_tasks else inf
        return self._kiln.settings.mcp_wait_seconds or default

    def _continue_as_task(
        self,
        request: McpRequest[Any],
        task: Task,
        exchange: CallExchange,
        responses: CallResponses,
    ) -> dict[str, Any]:
        if not request.has_tasks:
            exchange.detach()
        if not responses.can_continue:
            self._cancel(task, request.session)
        return responses.for_task(request, task)

    def _cancel(self, task: Task, session: str) -> None:
        """Cancel a call without waiting for it to end."""
        cancellation = asyncio.ensure_future(self._kiln.tasks.cancel(task.id, session))
        self._cancellations.add(cancellation)
        cancellation.add_done_callback(self._cancellations.discard)


def _result_response(
    result: Result, exchange: CallExchange, responses: CallResponses
) -> dict[str, Any]:
    exchange.raise_if_unsupported(result)
    return responses.for_result(result)


def _input_required(task: Task, requests: dict[str, Any], **state: str) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": requests,
        "requestState": json.dumps({"task": task.id, **state}),
    }
