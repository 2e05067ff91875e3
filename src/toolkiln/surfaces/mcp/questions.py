"""Questions of tools in the protocol's words: elicitation, sampling, roots.

What a client has to be able to do for each, what it is sent, and what its answer means.
"""

from collections.abc import Mapping
from typing import Any

from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
)
from pydantic import BaseModel

from toolkiln.model import (
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
from toolkiln.surfaces.mcp.requests import Context

NEEDED: dict[QuestionKind, dict[str, Any]] = {
    "form": {"elicitation": {"form": {}}},
    "sample": {"sampling": {}},
    "roots": {"roots": {}},
}
"""The capability that a client has to declare for a question of each kind."""

Wire = dict[str, Any]


def can_be_asked(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client shows forms to its person."""
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def kinds(capabilities: ClientCapabilities | None) -> list[QuestionKind]:
    """What a client can be asked."""
    if capabilities is None:
        return []
    declared: dict[QuestionKind, bool] = {
        "form": can_be_asked(capabilities),
        "sample": capabilities.sampling is not None,
        "roots": capabilities.roots is not None,
    }
    return [kind for kind, can in declared.items() if can]


def wire(question: Question) -> Wire:
    """A question as a client reads it."""
    if isinstance(question, FormQuestion):
        schema = question.form_schema
        form = {"mode": "form", "message": question.message, "requestedSchema": schema}
        return {"method": "elicitation/create", "params": form}
    if isinstance(question, SampleQuestion):
        said = [
            {"role": message.role, "content": {"type": "text", "text": message.text}}
            for message in question.messages
        ]
        asked: Wire = {"messages": said, "maxTokens": question.max_tokens}
        if question.system:
            asked["systemPrompt"] = question.system
        return {"method": "sampling/createMessage", "params": asked}
    return {"method": "roots/list", "params": {}}


def reply(question: Question, given: BaseModel | Mapping[str, Any]) -> Reply:
    """What a client's answer means.

    Raises:
        ValueError: it answers something else.
    """
    if isinstance(given, BaseModel):
        given = given.model_dump(by_alias=True, mode="json", exclude_none=True)
    if isinstance(question, FormQuestion):
        content = given.get("content")
        filled = content if isinstance(content, Mapping) else {}
        return FormAnswer(action=given.get("action", ""), content=dict(filled))
    if isinstance(question, SampleQuestion):
        return SampleAnswer(
            text=_text(given.get("content")),
            model=given.get("model", ""),
            stop_reason=given.get("stopReason") or "",
        )
    roots = given.get("roots")
    if not isinstance(roots, list) or not all(isinstance(root, Mapping) for root in roots):
        raise ValueError("there are no roots in it")
    folders = [RootFolder(uri=root.get("uri", ""), name=root.get("name") or "") for root in roots]
    return RootsAnswer(roots=tuple(folders))


async def put(context: Context, question: Question) -> Reply:
    """Ask a client of the handshake era, while its own request waits.

    Raises:
        MCPError: it refused.
        ValueError: it answered something else.
    """
    asked = wire(question)
    related = ServerMessageMetadata(related_request_id=context.request_id)
    send = context.session.send_request
    given: BaseModel
    if isinstance(question, FormQuestion):
        request = ElicitRequest.model_validate(asked, by_name=False)
        given = await send(request, ElicitResult, metadata=related)
    elif isinstance(question, SampleQuestion):
        message = CreateMessageRequest.model_validate(asked, by_name=False)
        given = await send(message, CreateMessageResult, metadata=related)
    else:
        given = await send(ListRootsRequest(), ListRootsResult, metadata=related)
    return reply(question, given)


def _text(content: Any) -> str:
    """What a model wrote, in one block or several."""
    blocks = content if isinstance(content, list) else [content]
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == "text"
    ]
    if not texts:
        raise ValueError("there is no text in it")
    return "".join(texts)
