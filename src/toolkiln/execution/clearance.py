"""Clearance: all that has to be settled between valid arguments and a run.

Rights, settings, secrets, rates, then a person where one is asked for, then the record
that must be there before a privileged call starts. Whatever is in the way is raised as
`Refused`. The order matters: a person is asked last, about a call that could run, and
secrets are resolved only once that and the record are done.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from toolkiln.execution.approvals import Wanted
from toolkiln.execution.asking import Asking
from toolkiln.execution.executor import Admitted
from toolkiln.execution.guard import Guard, Trail
from toolkiln.execution.masking import Mask
from toolkiln.execution.policy import refusal
from toolkiln.execution.results import as_call_error, invalid
from toolkiln.execution.secrets import SecretError, references
from toolkiln.execution.sessions import NoSession
from toolkiln.execution.tool_settings import NOTHING, Settled
from toolkiln.model import ANONYMOUS, Call, Caller, CallError, Decision, Event, Status
from toolkiln.schema import Problems, check
from toolkiln.store import PATIENCE


class Refused(Exception):
    """A call goes no further, and how it ends."""

    def __init__(self, status: Status, error: CallError, tool: Admitted | None = None) -> None:
        super().__init__(error.message)
        self.status, self.error, self.tool = status, error, tool


@dataclass(slots=True)
class Passage:
    """A call on its way, and what was found out about it."""

    call: Call
    observe: Callable[[Event], None]
    trail: Trail
    outer_mask: Mask
    """Secrets of the calls that this one was made from."""
    caller: Caller
    tool: Admitted
    decision: Decision
    arguments: dict[str, Any]
    """Checked; a person may put others in their place."""
    notes: tuple[str, ...]
    asking: Asking | None = None
    """How its caller is asked; None: not at all."""

    @property
    def is_privileged(self) -> bool:
        """Whether the tool itself makes this a call that is recorded before it starts."""
        return not self.tool.spec.rights.sandbox or self.tool.spec.hints.destructive is True


Asks = Callable[[Passage], Awaitable[bool]]
"""Whether a tool wants a person to be asked about these arguments."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """What a call may run with."""

    settled: Settled
    secrets: dict[str, str]
    """By name; here and in the run, and nowhere else."""


PLAIN = Clearance(NOTHING, {})
_ANONYMOUS_SECRET = CallError(
    code="not_allowed",
    message="permission denied: anonymous callers may not use secrets",
    hint=f'sign in, or let a rule name users = ["{ANONYMOUS}"]',
)


def asks_nothing(guard: Guard, passage: Passage) -> bool:
    """Whether there is nothing to settle: the common case of a function of this process."""
    tool, spec = passage.tool, passage.tool.spec
    rights = spec.rights
    return (
        tool.function is not None
        and passage.decision.effect == "allow"
        and not (rights.needs_approval or rights.secrets or spec.settings or passage.is_privileged)
        and not guard.rates()
        and not references(passage.arguments)
    )


async def cleared(guard: Guard, passage: Passage, asks: Asks) -> Clearance:
    """Settle everything; `asks` puts the question to the tool's own function.

    Raises:
        Refused: the call does not run.
        ToolkilnError: the platform failed.
    """
    tool, caller, spec = passage.tool, passage.caller, passage.tool.spec
    settled = NOTHING
    if spec.settings:
        found = await guard.settings.settled(spec, caller, is_reviewed=tool.is_reviewed)
        if isinstance(found, CallError):
            raise Refused(Status.UNAVAILABLE, found, tool)
        settled = found
    names = rightful_secrets(passage, settled)
    if names:
        await asyncio.to_thread(_values, guard, names)
    draws = guard.rates().draws(caller, spec)
    if draws:
        patience = PATIENCE if passage.call.timeout is None else passage.call.timeout
        early = await guard.rate_refusal(spec, draws, min(PATIENCE, patience))
        if early is not None:
            raise Refused(Status.DENIED, early, tool)
    why = None
    if spec.rights.needs_approval or passage.decision.effect == "ask":
        why = await _why_ask(passage, asks)
        if why is not None:
            await _approved(guard, passage, why)
            names = rightful_secrets(passage, settled)
    if names or why or passage.is_privileged:
        record = passage.trail.privileged(passage.arguments)
        await asyncio.to_thread(guard.recorder.commit, record, passage.trail)
    if not names and settled is NOTHING:
        return PLAIN
    return Clearance(settled, await asyncio.to_thread(_values, guard, names))


def rightful_secrets(passage: Passage, settled: Settled = NOTHING) -> set[str]:
    """The names of all secrets that the call is to be handed.

    Raises:
        Refused: one is not granted, or another right is missing.
    """
    tool, rights = passage.tool, passage.tool.spec.rights
    asked = references(passage.arguments)
    if rights.secrets:
        asked.update(rights.secrets)
    if denied := refusal(tool, passage.caller, asked):
        raise Refused(Status.DENIED, denied, tool)
    names = asked | settled.secrets
    if names and passage.caller.is_anonymous and not passage.decision.names_user:
        raise Refused(Status.DENIED, _ANONYMOUS_SECRET, tool)
    return names


def _values(guard: Guard, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        value = guard.secrets.get(name)
        if value is None:
            raise SecretError(
                f"the secret {name} is not set", hint=f"`toolkiln secrets set {name}` sets it"
            )
        found[name] = value
    return found


async def _why_ask(passage: Passage, asks: Asks) -> str | None:
    """What asks for a person; None if nothing does."""
    name, rights = passage.call.tool, passage.tool.spec.rights
    if passage.decision.effect == "ask":
        return passage.decision.why
    if rights.approval_function is None:
        return f"{name} asks for it before every call"
    if await asks(passage):
        return f"{name} asks for it with these arguments"
    return None


async def _approved(guard: Guard, passage: Passage, why: str) -> None:
    """Wait for a person, and go on with what they approved."""
    tool, call, trail = passage.tool, passage.call, passage.trail
    text = json.dumps(passage.arguments)
    if passage.outer_mask.text(text) != text:
        leaking = CallError(
            code="secret_in_arguments",
            message=f"the arguments of {call.tool} hold the value of a secret",
            hint="pass `secret:NAME` instead, so that people can look at the arguments",
        )
        raise Refused(Status.DENIED, leaking, tool)
    own = passage.decision.approve_own
    wanted = Wanted(call, passage.caller, tool.spec.digest, passage.arguments, why, own)
    trail.detail, trail.is_waiting = "waits for approval", True
    obtained = await guard.approvals.obtain(wanted, passage.observe)
    trail.detail, trail.is_waiting = obtained.detail, False
    if obtained.arguments is None:
        assert obtained.error is not None
        raise Refused(Status.DENIED, obtained.error, tool)
    await _still_allowed(guard, passage)
    checked = check(tool.spec, obtained.arguments)
    if isinstance(checked, Problems):
        raise Refused(Status.INVALID, invalid(checked), tool)
    passage.arguments = checked.arguments


async def _still_allowed(guard: Guard, passage: Passage) -> None:
    """People take their time: meanwhile a session may end, and rules may change."""
    call, tool = passage.call, passage.tool
    try:
        passage.caller = await guard.caller(call.session, running=True)
    except NoSession as error:
        raise Refused(Status.DENIED, as_call_error(error), tool) from None
    decision = guard.decide(passage.caller, tool.spec)
    if decision.effect == "deny":
        raise Refused(Status.DENIED, not_allowed(call.tool, decision), tool)


def not_allowed(tool: str, decision: Decision) -> CallError:
    """That the rules deny a tool to its caller."""
    return CallError(
        code="not_allowed",
        message=f"you may not run {tool}: {decision.why}",
        hint="`toolkiln policy explain USER TOOL` shows an operator which rule decides",
    )


def unsendable(caller: Caller) -> CallError | None:
    """Why what a tool may know of its caller cannot be told to a sandbox."""
    told = [
        caller.user_id, caller.agent_id, caller.agent_state,
        caller.platform, caller.guild_id, caller.channel_id,
    ]  # fmt: skip
    try:
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return CallError(code="invalid_caller", message=f"the caller is not plain JSON: {error}")
    return None
