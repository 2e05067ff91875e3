"""Handling what a model sent: decoding its calls, running them, answering each.

A model's mistakes are answered, so that it can mend them; only what a program got wrong is
raised. A provider's id of a call is used to answer it and for nothing else: it is no
promise that no other conversation has the same one.
"""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolkiln.app.messages import Message, Sent, Told, Wire, read
from toolkiln.app.selection import refuse_other_roles
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import Call, Result, Status

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln
    from toolkiln.app.own import SessionToken


async def handle(
    kiln: "Kiln", given: object, provider: str | None, session: "SessionToken"
) -> list[Message]:
    """What to append to a conversation after a message of a model; nothing if it called nothing.

    Raises:
        InputError: the form is unknown, or not that of the provider.
    """
    wire, sent = read(given)
    known = _provider(wire, provider)
    faults = [_fault(kiln, wire, one) for one in sent]
    pairs = list(zip(sent, faults, strict=True))
    calls = [_call(kiln, one, known) for one, fault in pairs if fault is None]
    results = iter(await kiln.call_many(calls, session) if calls else ())
    return wire.messages([_told(one, fault or next(results)) for one, fault in pairs])


def _provider(wire: Wire, provider: str | None) -> str:
    if provider is not None and provider not in wire.providers:
        raise InputError(
            f"this is a message of {wire.name}, and does not answer tools made for {provider!r}",
            hint=f"one of {', '.join(wire.providers)}",
        )
    return provider or wire.providers[0]


def _fault(kiln: "Kiln", wire: Wire, sent: Sent) -> str | None:
    """Why a call cannot be made at all, for the model."""
    if not isinstance(sent.tool, str):
        return "error: the call names no tool\nhint: call one of the tools by its name"
    if wire.needs_ids and not (isinstance(sent.id, str) and sent.id):
        return "error: the call has no id, and was not made\nhint: send it again with an id"
    try:
        refuse_other_roles(kiln, sent.tool)
    except UnknownTool as error:
        return f"error: {error.message}"
    return None


def _call(kiln: "Kiln", sent: Sent, provider: str) -> Call:
    """A call with the tool's own arguments; what is wrong with it, the gateway says."""
    assert isinstance(sent.tool, str)
    arguments = _parsed(sent.arguments)
    if isinstance(arguments, dict):
        with suppress(InputError):  # no such tool, or none that is served
            arguments = kiln.compiled(sent.tool, provider).decode(arguments)
    return Call(tool=sent.tool, arguments=arguments)


def _parsed(arguments: object) -> Any:
    """What JSON text stands for; text that is none stays, to be complained about."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _told(sent: Sent, outcome: Result | str) -> Told:
    if isinstance(outcome, str):
        return Told(sent, outcome, is_error=True)
    return Told(sent, outcome.text, outcome.status is not Status.OK)
