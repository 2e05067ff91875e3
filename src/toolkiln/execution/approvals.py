"""Approvals: a call waits until a person says yes, and runs with exactly what they saw.

A request is bound to a version of the tool, to its arguments and to its caller; an answer
to anything else is no answer. It is used once, unless the person said to remember it.
Callers answer their own only where the rule allows it; no answer in time is a no. Any surface
can ask a person: it hears of the request by a `pending` event or `waiting`, and answers
with `decide`. Who may run a tool at all is decided before, by `rules`.
"""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from toolkiln.errors import NotAllowed, NotFound
from toolkiln.model import (
    Approval,
    Call,
    Caller,
    CallError,
    Event,
    Privilege,
    Remember,
    Verdict,
)
from toolkiln.store import PATIENCE, Unreachable, key_of, while_unreachable

_FIRST_POLL, _LONGEST_POLL = 0.05, 1.0
MOST_PENDING = 100
"""Pending approvals of one user in this process: people would not find those of others."""


class ApprovalBook(Protocol):
    """Where requests and answers are kept."""

    def ask(
        self,
        request: Approval,
        fingerprint: str,
        call_key: str,
        remember_keys: Mapping[Remember, str],
    ) -> Approval:
        """A request that waits: this one, or the one that the same call made before."""
        ...

    def get(self, approval_id: str) -> Approval | None:
        """A request as it stands."""
        ...

    def of_call(self, call_key: str) -> list[Approval]:
        """The pending requests of one call, newest first."""
        ...

    def decide(self, approval_id: str, verdict: Verdict) -> Approval:
        """The first answer counts. Raises InputError."""
        ...

    def use(self, approval_id: str, fingerprint: str) -> Approval | None:
        """Take what was approved, once."""
        ...

    def withdraw(self, approval_id: str) -> bool:
        """Nobody waits for it any more."""
        ...

    def remembered(self, keys: Sequence[str]) -> Approval | None:
        """What was approved for later calls, too."""
        ...

    def forget(self, approval_id: str) -> bool:
        """Remember it no longer."""
        ...

    def list(self, states: Sequence[str] = ("pending",), limit: int = 100) -> list[Approval]:
        """Requests, newest first."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that a person has to approve."""

    call: Call
    caller: Caller
    digest: str
    arguments: dict[str, Any]
    """As they were checked."""
    why: str
    approve_own: bool | None


class Obtained(NamedTuple):
    """What a person said: arguments to run with, or why not to."""

    arguments: dict[str, Any] | None
    detail: str
    """Who approved it, for the audit."""
    error: CallError | None = None


class Approvals:
    """The requests of one store."""

    def __init__(self, book: Callable[[], ApprovalBook], seconds: Callable[[], float]) -> None:
        """`seconds` is how long a person may take."""
        self._open = book
        self._seconds = seconds
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        """Calls of this process, so that an answer given here wakes them at once."""
        self._pending: Counter[str] = Counter()
        """By user, the calls of this process that wait."""

    @property
    def patience(self) -> float:
        """Seconds that a person may take."""
        return self._seconds()

    async def obtain(self, wanted: Wanted, observe: Callable[[Event], None]) -> Obtained:
        """Wait for a person's answer, as long as they may take and the caller waits.

        Raises:
            StoreError: nobody can be asked.
        """
        text = canonical(wanted.arguments)
        keys = _remember_keys(wanted, text)
        patience = self.patience
        if wanted.call.timeout is not None:
            patience = min(patience, wanted.call.timeout)
        away = min(patience, PATIENCE)
        book = await while_unreachable(partial(asyncio.to_thread, self._open), away)
        look = partial(asyncio.to_thread, book.remembered, list(keys.values()))
        known = await while_unreachable(look, away) if keys else None
        if known is not None:
            said = f"{_approved_by(known)}, remembered for {known.remember}"
            return Obtained(json.loads(text), said)
        user = wanted.caller.who
        if self._pending[user] >= MOST_PENDING:
            return Obtained(None, "", _too_many(user))
        self._pending[user] += 1
        try:
            return await self._ask(book, wanted, text, keys, patience, observe)
        finally:
            self._pending[user] -= 1
            if not self._pending[user]:
                del self._pending[user]

    async def _ask(
        self,
        book: ApprovalBook,
        wanted: Wanted,
        text: str,
        keys: dict[Remember, str],
        patience: float,
        observe: Callable[[Event], None],
    ) -> Obtained:
        """Put a call whose arguments are this text to a person, and wait for the answer."""
        fingerprint = _hash(_identity(wanted.caller), wanted.call.tool, wanted.digest, text)
        now = time.time()
        request = Approval(
            id="",
            tool=wanted.call.tool,
            digest=wanted.digest,
            arguments=json.loads(text),
            user=wanted.caller.who,
            session=wanted.caller.session,
            call_id=wanted.call.id,
            why=wanted.why,
            approve_own=wanted.approve_own,
            created=now,
            expires=now + patience,
        )
        call_key = key_of(wanted.caller, wanted.call.id)
        ask = partial(asyncio.to_thread, book.ask, request, fingerprint, call_key, keys)
        asked = await while_unreachable(ask, min(patience, PATIENCE))
        if asked.state == "pending":
            observe(Event(kind="pending", text=asked.id))
        answer = await self._answered(book, asked, patience)
        if answer.state == "approved":
            used = await asyncio.to_thread(book.use, answer.id, fingerprint)
            if used is not None:
                arguments = used.edited if used.edited is not None else used.arguments
                edited = ", with other arguments" if used.edited is not None else ""
                return Obtained(arguments, f"{_approved_by(used)}{edited}")
        return Obtained(None, "", _refusal(answer))

    def decide(
        self,
        approval_id: str,
        verdict: Verdict,
        by: Caller,
        check: Callable[[Approval], None] = lambda _: None,
        *,
        is_local: bool = False,
    ) -> Approval:
        """Answer a request for a caller; `check` may refuse the arguments that they put in.

        `is_local`: the caller is the person who runs this process.

        Raises:
            NotAllowed: the caller may not answer this request.
            NotFound: there is none.
            TooLate: it was answered before, or waits no longer.
            InputError: the arguments are refused.
        """
        book = self._open()
        request = book.get(approval_id)
        if request is None:
            raise NotFound(
                f"there is no approval {approval_id!r}", hint="see `toolkiln approvals list`"
            )
        if not may_answer(by, request, is_local=is_local):
            raise _not_theirs(by, request)
        if verdict.arguments is not None:
            check(request)
        decided = book.decide(request.id, verdict.model_copy(update={"by": by.who}))
        if woken := self._waiting.get(request.id):
            loop, event = woken
            loop.call_soon_threadsafe(event.set)
        return decided

    def waiting(self, limit: int = 100) -> list[Approval]:
        """The calls that wait for a person, newest first."""
        return self._open().list(("pending",), limit)

    def of_call(self, caller: Caller, call_id: str) -> list[Approval]:
        """The requests of one call that wait for a person, newest first."""
        return self._open().of_call(key_of(caller, call_id))

    def history(self, limit: int = 100) -> list[Approval]:
        """All requests that are still kept, newest first."""
        states = ("pending", "approved", "rejected", "expired", "withdrawn", "used")
        return self._open().list(states, limit)

    def get(self, approval_id: str) -> Approval | None:
        """One request as it stands."""
        return self._open().get(approval_id)

    def forget(self, approval_id: str) -> bool:
        """Ask again next time."""
        return self._open().forget(approval_id)

    async def _answered(self, book: ApprovalBook, asked: Approval, patience: float) -> Approval:
        """The request once it waits no longer. Cancelled, or out of patience, it is withdrawn."""
        event = asyncio.Event()
        self._waiting[asked.id] = asyncio.get_running_loop(), event
        # Not by the store's clock alone: one that is set back would let a call wait for ever.
        deadline = time.monotonic() + patience
        poll, current = _FIRST_POLL, asked
        try:
            while current.state == "pending":
                left = deadline - time.monotonic()
                if left <= 0:
                    await asyncio.to_thread(book.withdraw, asked.id)
                    return current.model_copy(update={"state": "expired"})
                try:
                    await asyncio.wait_for(event.wait(), min(poll, left))
                except TimeoutError:
                    poll = min(poll * 1.5, _LONGEST_POLL)
                with suppress(Unreachable):  # as during a failover: it is looked up again
                    found = await asyncio.to_thread(book.get, asked.id)
                    current = found or current
            if current.state == "expired":  # for good, whatever the clock does later
                await asyncio.to_thread(book.withdraw, asked.id)
            return current
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(book.withdraw, asked.id))
            raise
        finally:
            self._waiting.pop(asked.id, None)


def may_answer(by: Caller, request: Approval, *, is_local: bool) -> bool:
    """Return whether a caller may answer a request.

    Calls of others take APPROVE. Their own: where the rule says `approve_own = true`, or, as the
    local person, where the rule does not say `approve_own = false`.
    """
    if by.is_anonymous:
        return False
    if by.who != request.user:
        return Privilege.APPROVE in by.privileges
    return is_local if request.approve_own is None else request.approve_own


def _not_theirs(by: Caller, request: Approval) -> NotAllowed:
    if by.is_anonymous:
        return NotAllowed("anonymous callers do not answer approvals", hint="sign in first")
    if by.who != request.user:
        return NotAllowed(
            f"{by.who} has no privilege to answer calls of others",
            hint="an operator grants APPROVE, in [privileges] of toolkiln.toml",
        )
    if request.approve_own is None:
        hint = "another person with APPROVE can; or let a rule say approve_own = true"
    else:
        hint = "another person with APPROVE can: the rule says approve_own = false"
    return NotAllowed(f"{request.user} made this call and may not approve it", hint=hint)


def _approved_by(approval: Approval) -> str:
    """Who approved a call, for the audit."""
    how = "self-approved" if approval.self_approved else "approved"
    return f"{how} by {approval.decided_by}"


def canonical(value: Any) -> str:
    """The one way to write a JSON value down."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _refusal(answer: Approval) -> CallError:
    if answer.state == "rejected":
        said = f": {answer.reason}" if answer.reason else ""
        return CallError(code="rejected", message=f"{answer.decided_by} rejected this call{said}")
    if answer.state == "used":
        return CallError(
            code="approval_used",
            message="the approval of this call was used before",
            hint="make the call again under another id",
        )
    return CallError(
        code="approval_expired",
        message="nobody approved this call in time",
        hint="ask a person to look at `toolkiln approvals list`, then call again",
        retryable=True,
    )


def _too_many(user: str) -> CallError:
    return CallError(
        code="too_many_approvals",
        message=f"{MOST_PENDING} calls of {user} already wait for a person's approval",
        hint="wait until some of them are answered, or cancel them",
        retryable=True,
    )


def _identity(caller: Caller) -> str:
    return canonical([caller.platform, caller.user_id, caller.agent_id])


def _remember_keys(wanted: Wanted, text: str) -> dict[Remember, str]:
    tool, caller = wanted.call.tool, wanted.caller
    if caller.is_anonymous:  # many people have this name: an answer for one is not for the others
        return {}
    return {
        "session": _hash("session", caller.session, tool, wanted.digest),
        "arguments": _hash("arguments", _identity(caller), tool, wanted.digest, text),
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
