"""The exchange between a running call and its client: notifications, questions, approvals.

In the handshake era all of it happens within one client request. In the modern era the
client returns each response in a new request, which resumes the call (`interaction`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from secrets import token_hex
from typing import Any

from mcp.server.connection import allowed_log_levels
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    InputResponseRequestParams,
    ListRootsRequest,
    ListRootsResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from pydantic import BaseModel

from toolkiln.errors import Unanswered
from toolkiln.model.call import Event, Result
from toolkiln.model.question import (
    FormAnswer,
    FormQuestion,
    Question,
    QuestionKind,
    Reply,
    RootFolder,
    RootsAnswer,
    SampleAnswer,
    SampleQuestion,
)
from toolkiln.surfaces.mcp.requests import Context, McpRequest, is_log_enabled, is_modern

_MAX_QUEUED_EVENTS = 100
_PROGRESS_STEP = 0.001
"""Added to the last progress value when the tool reports none that is larger."""


_KINDS = frozenset({"progress", "log", "message", "file", "injected"})
"""Without the output, which the result has."""


class ProgressNotifier:
    """Sends the events of one call to its client: progress as such, others as log messages."""

    def __init__(self, context: Context, tool: str) -> None:
        self._context: Context | None = context
        """None between two requests of the client."""
        self._tool = tool
        self._queue: deque[Event] = deque(maxlen=_MAX_QUEUED_EVENTS)
        self._sender: asyncio.Task[None] | None = None
        self._progress = 0.0

    def __call__(self, event: Event) -> None:
        """Queue an event; called from the event loop."""
        if event.kind in _KINDS:
            self._queue.append(event)
            self._start()

    def attach(self, context: Context) -> None:
        """Continue with another request of the client."""
        self._context = context
        self._start()

    async def pause(self) -> None:
        """Wait until all events are sent, and keep further ones for `attach`."""
        await self.flush()
        self._context = None

    def _start(self) -> None:
        if self._context is not None and (self._sender is None or self._sender.done()):
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def flush(self) -> None:
        """Wait until all events are sent: notifications must not follow the result."""
        if self._sender is not None:
            await self._sender

    async def _send(self) -> None:
        while self._queue and (context := self._context) is not None:
            event, session = self._queue.popleft(), context.session
            if event.kind != "progress":
                await self._log(context, event)
            else:
                total = event.total if event.total is None or isfinite(event.total) else None
                await session.report_progress(self._next_progress(event), total, event.text or None)

    async def _log(self, context: Context, event: Event) -> None:
        level, data = event.level or "info", _log_data(event)
        if is_modern(context):
            is_enabled = level in allowed_log_levels(context.protocol_version, context.meta)
        else:
            is_enabled = is_log_enabled(context, level)
        if not is_enabled:
            return
        params = LoggingMessageNotificationParams(level=level, data=data, logger=self._tool)
        await context.session.send_notification(
            LoggingMessageNotification(params=params), context.request_id
        )

    def _next_progress(self, event: Event) -> float:
        """Return a progress value above the last one, as the protocol requires."""
        done = event.done
        if done is None or not isfinite(done) or done <= self._progress:
            done = self._progress + (1 if event.total is None and done is None else _PROGRESS_STEP)
        self._progress = done
        return done


def _log_data(event: Event) -> Any:
    if event.kind == "log":
        return event.text
    return event.model_dump(exclude_defaults=True, exclude={"number"})


_REQUIRED_CAPABILITIES: dict[QuestionKind, dict[str, Any]] = {
    "form": {"elicitation": {"form": {}}},
    "sample": {"sampling": {}},
    "roots": {"roots": {}},
}


def supports_forms(capabilities: ClientCapabilities | None) -> bool:
    """Return whether a client can show forms to its user."""
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _supported_kinds(capabilities: ClientCapabilities | None) -> list[QuestionKind]:
    if capabilities is None:
        return []
    supported: dict[QuestionKind, bool] = {
        "form": supports_forms(capabilities),
        "sample": capabilities.sampling is not None,
        "roots": capabilities.roots is not None,
    }
    return [kind for kind, is_supported in supported.items() if is_supported]


def _encode_question(question: Question) -> dict[str, Any]:
    if isinstance(question, FormQuestion):
        schema = question.form_schema
        form = {"mode": "form", "message": question.message, "requestedSchema": schema}
        return {"method": "elicitation/create", "params": form}
    if isinstance(question, SampleQuestion):
        messages = [
            {"role": message.role, "content": {"type": "text", "text": message.text}}
            for message in question.messages
        ]
        params: dict[str, Any] = {"messages": messages, "maxTokens": question.max_tokens}
        if question.system:
            params["systemPrompt"] = question.system
        return {"method": "sampling/createMessage", "params": params}
    return {"method": "roots/list", "params": {}}


def _decode_reply(question: Question, response: BaseModel | Mapping[str, Any]) -> Reply:
    """Return a client's response as the reply to a question.

    Raises:
        ValueError: the response does not match the question.
    """
    if isinstance(response, BaseModel):
        response = response.model_dump(by_alias=True, mode="json", exclude_none=True)
    if isinstance(question, FormQuestion):
        content = response.get("content")
        fields = content if isinstance(content, Mapping) else {}
        return FormAnswer(action=response.get("action", ""), content=dict(fields))
    if isinstance(question, SampleQuestion):
        return SampleAnswer(
            text=_text(response.get("content")),
            model=response.get("model", ""),
            stop_reason=response.get("stopReason") or "",
        )
    roots = response.get("roots")
    if not isinstance(roots, list) or not all(isinstance(root, Mapping) for root in roots):
        raise ValueError("the response has no roots")
    folders = [RootFolder(uri=root.get("uri", ""), name=root.get("name") or "") for root in roots]
    return RootsAnswer(roots=tuple(folders))


async def _send_question(context: Context, question: Question) -> Reply:
    """Send a question to a client of the handshake era while its own request is open.

    Raises:
        MCPError: the client refused.
        ValueError: the response does not match the question.
    """
    message = _encode_question(question)
    related = ServerMessageMetadata(related_request_id=context.request_id)
    send = context.session.send_request
    response: BaseModel
    if isinstance(question, FormQuestion):
        elicit = ElicitRequest.model_validate(message, by_name=False)
        response = await send(elicit, ElicitResult, metadata=related)
    elif isinstance(question, SampleQuestion):
        sample = CreateMessageRequest.model_validate(message, by_name=False)
        response = await send(sample, CreateMessageResult, metadata=related)
    else:
        response = await send(ListRootsRequest(), ListRootsResult, metadata=related)
    return _decode_reply(question, response)


def _text(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == "text"
    ]
    if not texts:
        raise ValueError("the response has no text")
    return "".join(texts)


class PendingQuestions:
    """Questions that a tool asks together, and the replies received so far."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.id = token_hex(8)
        self._questions: dict[str, Question] = {}
        for number, question in enumerate(questions, 1):
            name = question.name or f"{question.kind}_{number}"
            self._questions[f"{name}_{number}" if name in self._questions else name] = question
        self._replies: dict[str, Reply] = {}
        self.done: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()

    @property
    def unanswered(self) -> dict[str, Any]:
        """The `inputRequests` of the questions without a reply, by name."""
        return {
            name: _encode_question(question)
            for name, question in self._questions.items()
            if name not in self._replies
        }

    def accept(self, responses: Mapping[str, Any]) -> None:
        """Store a client's `inputResponses`; names of other questions are ignored.

        Raises:
            MCPError: a response does not match its question.
        """
        for name, question in self._questions.items():
            if name in responses:
                try:
                    self._replies[name] = _decode_reply(question, responses[name])
                except (ValueError, AttributeError) as error:
                    raise MCPError(
                        INVALID_PARAMS, f"inputResponses: {name} does not answer the question"
                    ) from error
        if len(self._replies) == len(self._questions) and not self.done.done():
            self.done.set_result([self._replies[name] for name in self._questions])

    async def send(self, context: Context) -> None:
        """Send all questions to a client of the handshake era."""
        requests = [
            asyncio.ensure_future(_send_question(context, question))
            for question in self._questions.values()
        ]
        try:
            replies = await asyncio.gather(*requests)
        except MCPError as error:
            self.fail(f"the client refused: {error.error.message}"[:500])
        except ValueError:
            self.fail("the client's response does not match the question")
        else:
            if not self.done.done():
                self.done.set_result(replies)
        finally:
            for request in requests:
                request.cancel()

    def fail(self, reason: str) -> None:
        """Raise `Unanswered` in the tool that asked."""
        if not self.done.done():
            self.done.set_exception(Unanswered(reason))


InputRequest = PendingQuestions | str
"""A request for input: questions of the tool, or the id of an approval."""

_DETACHED = "the client cannot be asked: it no longer waits for this call"


class CallExchange:
    """Notifications, questions and approvals of one call, over one or more client requests."""

    def __init__(self, request: McpRequest[InputResponseRequestParams], name: str) -> None:
        self._notifier = ProgressNotifier(request.context, name)
        self._is_modern = request.is_modern
        self.kinds = _supported_kinds(request.capabilities)
        """The kinds of questions that the client supports."""
        self._early_responses = (
            dict(request.params.input_responses or {}) if request.is_modern else {}
        )
        self._approvals: deque[str] = deque()
        self.delegated_approvals: set[str] = set()
        """Ids of approvals that the client's user could not decide."""
        self._has_input_request = asyncio.Event()
        self._is_detached = False
        self._unsupported = ""
        self._required_capabilities: dict[str, Any] = {}
        self.questions: PendingQuestions | None = None
        """The questions whose replies the call waits for."""
        self._unsent: PendingQuestions | None = None
        """Questions not yet returned by `next_input_request`; they may have been answered."""

    def observe(self, event: Event) -> None:
        """Forward an event of the call to the client, or queue an approval."""
        if event.kind == "pending":
            self._approvals.append(event.text)
            self._has_input_request.set()
        else:
            self._notifier(event)

    def ask(self, questions: Sequence[Question]) -> Awaitable[Sequence[Reply]]:
        """Queue questions for the client and return an awaitable for the replies.

        Raises:
            Unanswered: the client does not support a question or no longer waits.
        """
        kinds = {question.kind: None for question in questions if question.kind not in self.kinds}
        if kinds:
            self._required_capabilities = {
                name: value
                for kind in kinds
                for name, value in _REQUIRED_CAPABILITIES[kind].items()
            }
            names = ", ".join(self._required_capabilities)
            self._unsupported = f"the client cannot be asked: it does not declare {names}"
            raise Unanswered(self._unsupported)
        if self._is_detached:
            raise Unanswered(_DETACHED)
        return self._replies(PendingQuestions(questions))

    async def _replies(self, questions: PendingQuestions) -> Sequence[Reply]:
        responses, self._early_responses = self._early_responses, {}
        with suppress(MCPError):  # the questions are sent to the client instead
            questions.accept(responses)
        self.questions = self._unsent = questions
        self._has_input_request.set()
        try:
            return await questions.done
        except asyncio.CancelledError:  # the call ended, or the client did not return in time
            self._is_detached = True
            raise
        finally:
            self.questions = None
            if questions.unanswered:
                self._unsent = None

    def next_input_request(self) -> InputRequest | None:
        """Remove and return the next request for input; approvals come first."""
        self._has_input_request.clear()
        if self._approvals:
            return self._approvals.popleft()
        questions, self._unsent = self._unsent, None
        return questions

    async def wait_for_input_request(self) -> None:
        """Wait until there is a request for input."""
        await self._has_input_request.wait()

    def repeat(self, request: InputRequest) -> None:
        """Queue a request for input again."""
        if isinstance(request, str):
            self._approvals.appendleft(request)
        elif request is self.questions:
            self._unsent = request

    def delegate_approval(self, approval_id: str) -> None:
        """Leave an approval to other approvers: the client's user could not decide it."""
        self.delegated_approvals.add(approval_id)
        self._approvals.appendleft(approval_id)
        self._has_input_request.set()

    def attach(self, request: McpRequest[Any]) -> None:
        """Send further notifications with another request of the same client."""
        self._notifier.attach(request.context)

    def detach(self) -> None:
        """Fail current and future questions: the client no longer waits."""
        self._is_detached = True
        if self.questions is not None:
            self.questions.fail(_DETACHED)

    async def flush(self) -> None:
        """Wait until all notifications are sent; later ones wait for another request."""
        await self._notifier.pause()

    def raise_if_unsupported(self, result: Result) -> None:
        """Raise the protocol's error if a call failed for a capability that its client lacks.

        Raises:
            MCPError: the client lacks a capability.
        """
        failed = self._unsupported and result.error is not None
        if self._is_modern and failed and self._unsupported in result.text:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"{result.tool}: {self._unsupported}",
                {"requiredCapabilities": self._required_capabilities},
            )
