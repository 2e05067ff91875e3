"""Messages of models: decode their tool calls, run them, and reply to each.

A model's mistake becomes a reply, so that the model can correct it; only a program's mistake
is raised. A provider's call id is used for the reply only: other conversations may have the
same one.
"""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolkiln.errors import InputError, UnknownTool
from toolkiln.model.call import Call, Result, Status
from toolkiln.operations.library import refuse_other_roles
from toolkiln.schema.providers import compile_tool
from toolkiln.schema.providers.messages import Message, MessageFormat, ToolCall, ToolReply, read

if TYPE_CHECKING:
    from toolkiln.operations.services import Services
    from toolkiln.security.sessions import SessionToken


async def handle(
    services: "Services", message: object, provider: str | None, session: "SessionToken"
) -> list[Message]:
    """Return the messages to append to a conversation; none if the model called nothing.

    Raises:
        InputError: the form is unknown, or not that of the provider.
    """
    wire, tool_calls = read(message)
    provider = _provider(wire, provider)
    faults = [_fault(services, wire, item) for item in tool_calls]
    pairs = list(zip(tool_calls, faults, strict=True))
    calls = [_call(services, item, provider) for item, fault in pairs if fault is None]
    results = iter(await _run(services, calls, session) if calls else ())
    return wire.messages([_reply(item, fault or next(results)) for item, fault in pairs])


async def _run(services: "Services", calls: list[Call], session: "SessionToken") -> list[Result]:
    update = {"session": services.security.token(session), "surface": services.surface}
    return await services.engine.gateway.call_many(
        [call.model_copy(update=update) for call in calls]
    )


def _provider(wire: MessageFormat, provider: str | None) -> str:
    if provider is not None and provider not in wire.providers:
        raise InputError(
            f"this is a message of {wire.name}, which does not match the provider {provider!r}",
            hint=f"use one of {', '.join(wire.providers)}",
        )
    return provider or wire.providers[0]


def _fault(services: "Services", wire: MessageFormat, call: ToolCall) -> str | None:
    """Return why a call cannot be made, for the model."""
    if not isinstance(call.tool, str):
        return "error: the call names no tool\nhint: call one of the tools by its name"
    if wire.needs_ids and not (isinstance(call.id, str) and call.id):
        return "error: the call has no id and was not run\nhint: send it again with an id"
    try:
        refuse_other_roles(services, call.tool)
    except UnknownTool as error:
        return f"error: {error.message}"
    return None


def _call(services: "Services", call: ToolCall, provider: str) -> Call:
    """Return a call with decoded arguments; the gateway validates it."""
    assert isinstance(call.tool, str)
    arguments = _parsed(call.arguments)
    if isinstance(arguments, dict):
        with suppress(InputError):  # the tool is unknown or not served
            arguments = compile_tool(services.registry.spec(call.tool), provider).decode(arguments)
    return Call(tool=call.tool, arguments=arguments)


def _parsed(arguments: object) -> Any:
    """Return parsed JSON text; other text stays, and the gateway refuses it."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _reply(call: ToolCall, outcome: Result | str) -> ToolReply:
    if isinstance(outcome, str):
        return ToolReply(call, outcome, is_error=True)
    return ToolReply(call, outcome.text, outcome.status is not Status.OK)
