"""What a running call and its client say to each other, over any number of requests.

A call may tell how far it is, wait for approval, or ask something. In the handshake era all
of that happens within one request; in the modern era each answer comes with a request of its
own, which goes on where the last one stopped (`following`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    InputResponseRequestParams,
)

from toolkiln.errors import Unanswered
from toolkiln.model import Event, Question, Reply, Result
from toolkiln.surfaces.mcp.questions import NEEDED, kinds, put, reply, wire
from toolkiln.surfaces.mcp.requests import Context, Request
from toolkiln.surfaces.mcp.telling import Telling


class Asked:
    """Questions that are asked together, and the answers that have come."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.id = token_hex(8)
        self._questions: dict[str, Question] = {}
        for number, question in enumerate(questions, 1):
            name = question.name or f"{question.kind}_{number}"
            self._questions[f"{name}_{number}" if name in self._questions else name] = question
        self._replies: dict[str, Reply] = {}
        self.done: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()

    @property
    def wire(self) -> dict[str, Any]:
        """What is still to be answered, by name."""
        return {k: wire(q) for k, q in self._questions.items() if k not in self._replies}

    def take(self, given: Mapping[str, Any]) -> None:
        """Take what a client answered, as far as anybody asked for it.

        Raises:
            MCPError: an answer fits its question in no way.
        """
        for name, question in self._questions.items():
            if name in given:
                try:
                    self._replies[name] = reply(question, given[name])
                except (ValueError, AttributeError) as error:
                    raise MCPError(
                        INVALID_PARAMS, f"inputResponses: {name} does not answer the question"
                    ) from error
        if len(self._replies) == len(self._questions) and not self.done.done():
            self.done.set_result([self._replies[name] for name in self._questions])

    async def put(self, context: Context) -> None:
        """Ask a client of the handshake era."""
        asking = [asyncio.ensure_future(put(context, one)) for one in self._questions.values()]
        try:
            found = await asyncio.gather(*asking)
        except MCPError as error:
            self.fail(f"the client refused: {error.error.message}"[:500])
        except ValueError:
            self.fail("the client's answer does not fit the question")
        else:
            if not self.done.done():
                self.done.set_result(found)
        finally:
            for one in asking:
                one.cancel()

    def fail(self, why: str) -> None:
        """Let the tool know that there will be no answer."""
        if not self.done.done():
            self.done.set_exception(Unanswered(why))


class Exchange:
    """One call and its client."""

    def __init__(self, request: Request[InputResponseRequestParams], name: str) -> None:
        self._name = name
        self._telling = Telling(request.context, name)
        self._is_modern = request.is_modern
        self.kinds = kinds(request.capabilities)
        """What the client can be asked."""
        self._ahead = dict(request.params.input_responses or {}) if request.is_modern else {}
        self._approvals: deque[str] = deque()
        self.for_others: set[str] = set()
        """Approvals, by id, that the client's person could not give."""
        self._came = asyncio.Event()
        self._is_left = False
        self._lacking = ""
        self._needed: dict[str, Any] = {}
        self.asked: Asked | None = None
        """What the call waits to be answered."""
        self._new: Asked | None = None
        """What it asked since somebody last looked; it may be answered by now."""

    def observe(self, event: Event) -> None:
        """Hear of something that the call tells."""
        if event.kind == "pending":
            self._approvals.append(event.text)
            self._came.set()
        else:
            self._telling(event)

    def ask(self, questions: Sequence[Question]) -> Awaitable[Sequence[Reply]]:
        """Have the client asked by whoever follows the call.

        Raises:
            Unanswered: it cannot be.
        """
        lacking = dict.fromkeys(one.kind for one in questions if one.kind not in self.kinds)
        if lacking:
            self._needed = {k: v for kind in lacking for k, v in NEEDED[kind].items()}
            names = ", ".join(self._needed)
            self._lacking = f"the client cannot be asked: it does not declare {names}"
            raise Unanswered(self._lacking)
        if self._is_left:
            raise Unanswered("the client cannot be asked: it waits for this call no longer")
        return self._answers(Asked(questions))

    async def _answers(self, asked: Asked) -> Sequence[Reply]:
        ahead, self._ahead = self._ahead, {}
        with suppress(MCPError):  # then it is asked
            asked.take(ahead)
        self.asked = self._new = asked
        self._came.set()
        try:
            return await asked.done
        except asyncio.CancelledError:  # the call has ended, or nobody has come back in time
            self._is_left = True
            raise
        finally:
            self.asked = None
            if asked.wire:  # nobody waits for the rest
                self._new = None

    def take(self) -> "Asked | str | None":
        """What the client is to be asked next: by the call, or whether it may run (by id)."""
        self._came.clear()
        if self._approvals:
            return self._approvals.popleft()
        new, self._new = self._new, None
        return new

    def again(self, waiting: "Asked | str") -> None:
        """Have something asked once more."""
        if isinstance(waiting, str):
            self._approvals.appendleft(waiting)
        elif waiting is self.asked:
            self._new = waiting

    def ask_others(self, approval_id: str) -> None:
        """Leave an approval to others: the client's person could not answer."""
        self.for_others.add(approval_id)
        self._approvals.appendleft(approval_id)
        self._came.set()

    async def came(self) -> None:
        """Wait until there is something to ask."""
        await self._came.wait()

    def continue_with(self, request: Request[Any]) -> None:
        """Tell whatever follows to another request of the same client."""
        self._telling = Telling(request.context, self._name)

    def leave(self) -> None:
        """The client waits no longer."""
        self._is_left = True
        if self.asked is not None:
            self.asked.fail("the client cannot be asked: it waits for this call no longer")

    async def finish(self) -> None:
        """Wait until everything is told."""
        await self._telling.finish()

    def refuse(self, result: Result) -> None:
        """Say in the protocol's way that a call failed for what its client cannot do.

        Raises:
            MCPError: it did.
        """
        failed = self._lacking and result.error is not None
        if self._is_modern and failed and self._lacking in result.text:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"{result.tool}: {self._lacking}",
                {"requiredCapabilities": self._needed},
            )
