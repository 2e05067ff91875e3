"""The guard: everything that is asked about a call before it may run, and recorded of it.

It puts sessions, rules, rates, approvals, secrets, settings and the audit together for
the gateway, which decides in which order they are asked. Each of them is a module of its
own; what is put together here holds no opinion.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from toolkiln.execution.acting import acting_session
from toolkiln.execution.approvals import Approvals
from toolkiln.execution.audit import Recorder
from toolkiln.execution.executor import Admitted
from toolkiln.execution.masking import Mask
from toolkiln.execution.rates import Rates
from toolkiln.execution.redaction import described_arguments
from toolkiln.execution.rules import Rules, decide
from toolkiln.execution.secrets import Secrets
from toolkiln.execution.sessions import Sessions
from toolkiln.execution.tool_settings import ToolSettings
from toolkiln.model import (
    AuditRecord,
    Call,
    Caller,
    CallError,
    Decision,
    Draw,
    Privilege,
    Result,
    Session,
    Status,
    ToolSpec,
)
from toolkiln.store import while_unreachable

NO_MASK = Mask({})
_MOST_REMEMBERED = 10_000
_MISSING = frozenset({"ImportError", "ModuleNotFoundError"})
"""Exceptions whose text names what cannot be imported, and nothing else."""
_EXCEPTIONS = frozenset({"exception", "import_failed", "crashed", "exited", "signalled"})


class BucketBook(Protocol):
    """Where token buckets are kept."""

    def take(self, draws: Sequence[Draw]) -> float:
        """Take one token from each, or say how many seconds that is too early."""
        ...


@dataclass(frozen=True, slots=True)
class Guard:
    """What the gateway asks."""

    sessions: Sessions
    rules: Callable[[], Rules]
    rates: Callable[[], Rates]
    buckets: Callable[[], BucketBook]
    approvals: Approvals
    secrets: Secrets
    settings: ToolSettings
    recorder: Recorder
    show_exceptions: bool = False
    """Whether everyone sees the text and the traceback of exceptions."""
    _callers: dict[str, tuple[Session, Rules, Caller]] = field(default_factory=dict)
    _decisions: dict[tuple[str, str, str], tuple[Rules, Decision]] = field(default_factory=dict)

    def known_caller(self, token: str | None, *, running: bool = False) -> Caller | None:
        """Who holds a session that was looked up a moment ago; None says nothing."""
        session = self.sessions.known(token, running=running)
        return None if session is None else self._with_privileges(session)

    def known_identity(self, token: str | None, *, running: bool = False) -> Caller | None:
        """As `known_caller`, for who only asks who it is: without privileges."""
        session = self.sessions.known(token, running=running)
        return None if session is None else session.caller

    async def caller(self, token: str | None, *, running: bool = False) -> Caller:
        """Who holds a session, with the privileges that they have at this moment.

        Raises:
            NoSession: nobody does.
            StoreError: it cannot be looked up.
        """
        running = running or _is_acting(token)
        known = self.known_caller(token, running=running)
        if known is not None:
            return known
        session = await asyncio.to_thread(self.sessions.find, token, running=running)
        return self._with_privileges(session)

    def caller_of(self, token: str | None) -> Caller:
        """As `caller`, for code without an event loop."""
        return self._with_privileges(self.sessions.find(token, running=_is_acting(token)))

    def decide(self, caller: Caller, spec: ToolSpec) -> Decision:
        """Whether somebody may run a tool, by the rules of this moment."""
        rules = self.rules()
        if not caller.session:
            return decide(caller, spec, rules)
        key = caller.session, spec.name, spec.digest
        known = self._decisions.get(key)
        if known is not None and known[0] is rules:
            return known[1]
        decision = decide(caller, spec, rules)
        _remember(self._decisions, key, (rules, decision))
        return decision

    def may_see(self, caller: Caller, spec: ToolSpec) -> bool:
        """Whether a tool is listed and found for somebody."""
        return self.decide(caller, spec).effect != "deny"

    def shows_exceptions(self, call: Call, caller: Caller, tool: Admitted) -> bool:
        """Whether a caller sees the text and the traceback of an exception.

        Those do who can read the source anyway: who sent it with the call and may write tools,
        and the account at this command line, without a token. A program is not one of them,
        because it may hand results on to models and users. The operator can let everyone.
        """
        if self.show_exceptions:
            return True
        if tool.is_source:
            return Privilege.WRITE_TOOLS in caller.privileges
        return call.surface == "cli" and self.sessions.is_local(call.session or "")

    async def rate_refusal(
        self, spec: ToolSpec, draws: Sequence[Draw], patience: float
    ) -> CallError | None:
        """Why a call comes too early; None if it does not.

        Waits this many seconds for a Redis that is away. If the connection broke after Redis
        took the tokens, the retry takes others: a call counts twice rather than not at all.

        Raises:
            StoreError: it cannot be looked up.
        """

        async def take() -> float:
            return await asyncio.to_thread(lambda: self.buckets().take(draws))

        wait = await while_unreachable(take, patience)
        if wait <= 0:
            return None
        return CallError(
            code="rate_limited",
            message=f"too many calls of {spec.name}: wait {ceil(wait * 10) / 10:g} s",
            hint="make fewer calls, or ask the operator for another rate",
            retryable=True,
            retry_after=wait,
        )

    def _with_privileges(self, session: Session) -> Caller:
        rules = self.rules()
        known = self._callers.get(session.trace_id)
        if known is not None and known[0] is session and known[1] is rules:
            return known[2]
        held = rules.privileges_of(session.caller, from_key=session.key_id is not None)
        caller = session.caller.model_copy(update={"privileges": held})
        _remember(self._callers, session.trace_id, (session, rules, caller))
        return caller


class Trail:
    """What the audit will say of one call; it grows on the way through the gateway."""

    __slots__ = (
        "_arguments", "_clock", "at", "call", "caller", "detail", "is_waiting", "mask", "spec",
    )  # fmt: skip

    def __init__(self, call: Call, mask: Mask = NO_MASK) -> None:
        """`mask`: for the secrets of the calls that this one was made from."""
        self.call = call
        self.mask = mask
        self._clock = time.perf_counter()
        self.at = time.time()
        self.caller: Caller | None = None
        self.spec: ToolSpec | None = None
        self.detail = ""
        self.is_waiting = False
        """Whether a person is asked about it."""
        self._arguments = ""

    def resolved(self, tool: Admitted) -> None:
        """Record which tool and version the call names."""
        self.spec = tool.spec
        if tool.dev:
            self.note("dev")

    def note(self, said: str) -> None:
        """Add something that whoever reads the audit should know."""
        self.detail = f"{self.detail}; {said}" if self.detail else said

    def privileged(self, arguments: object) -> AuditRecord:
        """The record that is committed before a privileged call starts."""
        # Masked before they are cut, too: of a value that is cut the beginning would stay.
        shown = described_arguments(self.mask.value(arguments))
        self._arguments = self.mask.text(shown)
        return self.started()

    def started(self) -> AuditRecord:
        """The record of a call that has not ended."""
        return self._record("started", self.detail, None)

    def ended(self, result: Result | None) -> AuditRecord:
        """The record of a call that has; None: it was cancelled."""
        duration = time.perf_counter() - self._clock
        if result is None:
            return self._record("cancelled", self.detail, duration)
        error = result.error
        if error is None:
            return self._record("ok", self.detail, duration)
        said = f"{error.code}: {_without_text(error)}"
        detail = f"{self.detail}; {said}" if self.detail else said
        exception = result.status is Status.FAILED and error.code in _EXCEPTIONS
        return self._record("exception" if exception else result.status.value, detail, duration)

    def _record(self, outcome: str, detail: str, duration: float | None) -> AuditRecord:
        call, caller, spec, tool = self.call, self.caller, self.spec, self.call.tool
        if self.mask:
            tool, detail = self.mask.text(tool), self.mask.text(detail)
        whom = (caller.who, caller.agent_id or "", caller.session) if caller else ("", "", "")
        of_tool = tool, spec.digest if spec else ""
        of_call = call.id, call.parent or ""
        return AuditRecord(
            self.at, "call", outcome, *whom, call.surface, *of_tool, *of_call,
            detail, duration, self._arguments,
        )  # fmt: skip


def _without_text(error: CallError) -> str:
    """What the audit says of an error: of an exception its type and line, never its text."""
    parts = error.message.split(": ")
    if error.code == "exception":
        return parts[0]
    if error.code == "import_failed" and error.type not in _MISSING:
        return ": ".join(parts[:2])
    return error.message


def _is_acting(token: str | None) -> bool:
    """Whether a call that runs asks, on behalf of its own caller."""
    return token is not None and token == acting_session()


def _remember(table: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if len(table) >= _MOST_REMEMBERED:
        table.clear()
    table[key] = value
