"""Calls and what becomes of them, for every method that runs something: follow, ask, resume.

A call that waits for a person, asks its client or takes longer than its client waits becomes
a background task. Clients wait as long as the tool may run, unless they can poll tasks or the
operator set `mcp_wait_seconds`. While a task waits its client is asked: in the handshake era by
a request of ours, in the modern era by a result that makes the client repeat the request with an
answer. What the client brings back names the task; `service` seals it on the way out and opens
it on the way in. What an ended call looks like is up to the method (`calling`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any
from weakref import WeakValueDictionary

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, InputResponseRequestParams
from pydantic import ValidationError

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import InputError
from toolkiln.model import Result, Task
from toolkiln.surfaces.mcp.asking import Asking
from toolkiln.surfaces.mcp.exchanges import Asked, Exchange
from toolkiln.surfaces.mcp.questions import can_be_asked
from toolkiln.surfaces.mcp.requests import Request

_APPROVAL = "approval"

Wire = dict[str, Any]
Start = Callable[[Exchange, float], Awaitable[Result | Task]]
"""Starts a call that reports and asks through an exchange; the number is its `wait_seconds`."""


@dataclass(frozen=True, slots=True)
class Forms:
    """How one method tells what became of a call."""

    answered: Callable[[Result], Wire]
    """The answer that a result makes. May raise MCPError."""
    going_on: Callable[[Request[Any], Task], Wire]
    """What is told of a call that goes on without its client. May raise MCPError."""
    can_continue: bool = True
    """Whether a call can continue as a background task; otherwise it ends with its request."""


class Following:
    """The calls of all connections, to their ends."""

    def __init__(self, kiln: Kiln, entrance: Entrance) -> None:
        self._kiln = kiln
        self.asking = Asking(kiln, entrance)
        self._exchanges: WeakValueDictionary[str, Exchange] = WeakValueDictionary()
        """Of calls that run, by task; the call holds its own."""
        self._ending: set[asyncio.Task[Any]] = set()

    async def call(
        self, request: Request[InputResponseRequestParams], name: str, start: Start, forms: Forms
    ) -> Wire:
        """What a client is answered that wants something run, or brings what was asked for.

        Raises:
            MCPError: nothing waits for what it brought, or it cannot do what the call needs.
        """
        if request.params.request_state is not None:
            return await self._resumed(request, name, forms)
        exchange = Exchange(request, name)
        given = await start(exchange, self._wait_seconds(request, forms))
        await exchange.finish()
        if isinstance(given, Result):
            return _told(given, exchange, forms)
        self._exchanges[given.id] = exchange
        return await self._followed(request, given, exchange, forms)

    def questions(self, task: Task) -> Wire:
        """What a task asks its client, by name; without approvals."""
        exchange = self._exchanges.get(task.id)
        return exchange.asked.wire if exchange is not None and exchange.asked is not None else {}

    def answer(self, task: Task, given: Wire) -> None:
        """Take what a client answered to that.

        Raises:
            MCPError: an answer fits its question in no way.
        """
        exchange = self._exchanges.get(task.id)
        if exchange is not None and exchange.asked is not None:
            exchange.asked.take(given)

    async def close(self) -> None:
        """Wait for what was told to stop."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _followed(
        self,
        request: Request[InputResponseRequestParams],
        task: Task,
        exchange: Exchange,
        forms: Forms,
    ) -> Wire:
        """What becomes of a call that goes on: an answer, a question, or a handle."""
        limit = self._wait_seconds(request, forms)
        try:
            while True:
                waiting = exchange.take()
                if waiting is None and limit < inf:
                    return self._left(request, task, exchange, forms)
                asked: Coroutine[Any, Any, None] | None = None
                if isinstance(waiting, Asked):
                    if request.is_modern and waiting.wire:
                        return _input_required(task, waiting.wire, asked=waiting.id)
                    if waiting.wire:
                        asked = waiting.put(request.context)
                elif waiting is not None:
                    question = await self._approval(request, waiting, exchange)
                    if question is None:
                        task = task.model_copy(update={"state": "pending"})
                        return self._left(request, task, exchange, forms)
                    if request.is_modern:
                        shown = {"method": "elicitation/create", "params": question}
                        return _input_required(task, {_APPROVAL: shown}, approval=waiting)
                    asked = self._put_approval(request, waiting, question, exchange)
                task = await self._settled(task, request.session, exchange, limit, asked)
                if task.result is not None:
                    await exchange.finish()
                    return _told(task.result, exchange, forms)
        except asyncio.CancelledError:
            self._stop(task, request.session)
            raise

    async def _resumed(
        self, request: Request[InputResponseRequestParams], name: str, forms: Forms
    ) -> Wire:
        params, session = request.params, request.session
        state = json.loads(params.request_state or "")  # ours: the seal was broken before
        try:
            task = await self._kiln.check_task(state["task"], session)
        except InputError as error:
            raise MCPError(
                INVALID_PARAMS, "This call waits no longer; call the tool again"
            ) from error
        exchange = self._exchanges.get(task.id) or Exchange(request, name)
        if task.result is not None:
            return _told(task.result, exchange, forms)
        exchange.continue_with(request)
        given = params.input_responses or {}
        try:
            if await self._is_answered(state, given, exchange, session):
                limit = self._wait_seconds(request, forms)
                task = await self._settled(task, session, exchange, limit)
            if task.result is not None:
                await exchange.finish()
                return _told(task.result, exchange, forms)
            return await self._followed(request, task, exchange, forms)
        except asyncio.CancelledError:
            self._stop(task, session)
            raise

    async def _is_answered(
        self, state: Wire, given: Wire, exchange: Exchange, session: str
    ) -> bool:
        """Take what a client brought; False: it has to be asked again."""
        if "approval" in state:
            said = given.get(_APPROVAL)
            if said is None:
                exchange.again(state["approval"])
                return False
            said = said if isinstance(said, dict) else said.model_dump(by_alias=True)
            if not await self.asking.answer(state["approval"], said, session):
                exchange.ask_others(state["approval"])
            return True
        asked = exchange.asked
        if asked is not None and asked.id == state["asked"]:
            asked.take(given)
            if asked.wire:
                exchange.again(asked)
                return False
        return True

    async def _settled(
        self,
        task: Task,
        session: str,
        exchange: Exchange,
        limit: float,
        asked: Coroutine[Any, Any, None] | None = None,
    ) -> Task:
        """Return the task once it has ended, has another question, or `limit` seconds passed.

        The seconds count from when the client's person has answered.
        """
        asking = asyncio.ensure_future(asked) if asked is not None else None
        ended = asyncio.ensure_future(self._kiln.await_task(task.id, session))
        waited = asyncio.ensure_future(exchange.came())
        try:
            if asking is not None:
                await asyncio.wait([ended, asking], return_when=asyncio.FIRST_COMPLETED)
            timeout = limit if limit < inf else None
            await asyncio.wait(
                [ended, waited], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if ended.done():
                return ended.result()
            return await self._kiln.check_task(task.id, session)
        finally:
            for one in (asking, ended, waited):
                if one is not None:
                    one.cancel()

    async def _approval(
        self, request: Request[Any], approval_id: str, exchange: Exchange
    ) -> Wire | None:
        """Return the question for the client's person; None if they cannot answer it."""
        if not can_be_asked(request.capabilities) or approval_id in exchange.for_others:
            return None
        return await self.asking.question(approval_id, request.session)

    async def _put_approval(
        self, request: Request[Any], approval_id: str, question: Wire, exchange: Exchange
    ) -> None:
        """Ask in the handshake era: a request to the client while its own waits."""
        context, is_taken = request.context, False
        try:
            given = await context.session.elicit_form(
                question["message"], question["requestedSchema"], context.request_id
            )
            is_taken = await self.asking.answer(approval_id, given.model_dump(), request.session)
        except (MCPError, ValidationError):  # the client could not ask after all
            pass
        if not is_taken:
            exchange.ask_others(approval_id)

    def _wait_seconds(self, request: Request[Any], forms: Forms) -> float:
        """How long a client waits for a call before it continues as a background task."""
        if not forms.can_continue:
            return inf
        polled = self._kiln.engine.tasks.soft_limit if request.has_tasks else inf
        return self._kiln.settings.mcp_wait_seconds or polled

    def _left(self, request: Request[Any], task: Task, exchange: Exchange, forms: Forms) -> Wire:
        """Let a call go on without its client, who may poll it."""
        if not request.has_tasks:
            exchange.leave()
        if not forms.can_continue:
            self._stop(task, request.session)
        return forms.going_on(request, task)

    def _stop(self, task: Task, session: str) -> None:
        """Stop a call whose client has gone; nobody waits for that."""
        ending = asyncio.ensure_future(self._kiln.cancel_task(task.id, session))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _told(result: Result, exchange: Exchange, forms: Forms) -> Wire:
    exchange.refuse(result)
    return forms.answered(result)


def _input_required(task: Task, questions: Wire, **waiting: str) -> Wire:
    return {
        "resultType": "input_required",
        "inputRequests": questions,
        "requestState": json.dumps({"task": task.id, **waiting}),
    }
