"""Approvals: a call waits for a person's decision and runs with exactly what they saw.

An approval is bound to a version of the tool, its arguments and its caller. It is used once,
unless the person chose to remember it. Callers may approve their own calls only where the rule
allows it; without a decision in time the call is rejected. Any surface can present an approval:
it learns of it from a `pending` event or `waiting`, and answers with `decide`. Whether the
caller may run the tool at all is decided earlier, by `rules`.
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

from toolkiln.errors import NotAllowed, NotFound, Unreachable
from toolkiln.model.call import Call, CallError, Event
from toolkiln.model.identity import Caller, Privilege
from toolkiln.model.policy import Approval, ApprovalVerdict, Remember
from toolkiln.store.codec import key_of
from toolkiln.store.rules import REDIS_WAIT_SECONDS, retry_while_unreachable

_FIRST_POLL, _MAX_POLL = 0.05, 1.0
MAX_PENDING = 100
"""Pending approvals of one user in this process: more would bury those of other users."""
_PENDING_CACHE_SECONDS = 0.5
_MAX_LISTED = 1_000


class ApprovalStore(Protocol):
    """Storage of approvals."""

    def ask(
        self,
        request: Approval,
        fingerprint: str,
        call_key: str,
        remember_keys: Mapping[Remember, str],
    ) -> Approval:
        """Store a pending approval, or return the one stored earlier for the same call."""

    def get(self, approval_id: str) -> Approval | None:
        """Return an approval in its current state."""

    def of_call(self, call_key: str) -> list[Approval]:
        """Return the pending approvals of a call, newest first."""

    def decide(self, approval_id: str, verdict: ApprovalVerdict) -> Approval:
        """Store a decision; the first one counts. Raises InputError."""

    def use(self, approval_id: str, fingerprint: str) -> Approval | None:
        """Use an approval, once."""

    def withdraw(self, approval_id: str) -> bool:
        """Withdraw an approval whose call no longer waits."""

    def remembered(self, keys: Sequence[str]) -> Approval | None:
        """Return an approval that was remembered under one of these keys."""

    def forget(self, approval_id: str) -> bool:
        """Stop remembering an approval."""

    def list(self, states: Sequence[str] = ("pending",), limit: int = 100) -> list[Approval]:
        """Return approvals, newest first."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that a person has to approve."""

    call: Call
    caller: Caller
    digest: str
    arguments: dict[str, Any]
    """Validated arguments."""
    why: str
    approve_own: bool | None


class ApprovalOutcome(NamedTuple):
    """The arguments to run a call with, or the error to end it with."""

    arguments: dict[str, Any] | None
    detail: str
    """Who approved the call, for the audit."""
    error: CallError | None = None


class ApprovalService:
    """The approvals of one store."""

    def __init__(self, store: Callable[[], ApprovalStore], seconds: Callable[[], float]) -> None:
        """`seconds` is the time a person has to decide."""
        self._store = store
        self._seconds = seconds
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        """Waiting calls of this process by approval id; a decision made here wakes them."""
        self._pending: Counter[str] = Counter()
        """Number of waiting calls of this process by user."""

    @property
    def patience(self) -> float:
        """Seconds a person has to decide."""
        return self._seconds()

    async def obtain(
        self, request: ApprovalRequest, observe: Callable[[Event], None]
    ) -> ApprovalOutcome:
        """Wait for a person's decision, up to the time limit and the call's timeout."""
        text = canonical(request.arguments)
        keys = _remember_keys(request, text)
        patience = self.patience
        if request.call.timeout is not None:
            patience = min(patience, request.call.timeout)
        retry_seconds = min(patience, REDIS_WAIT_SECONDS)
        store = await retry_while_unreachable(
            partial(asyncio.to_thread, self._store), retry_seconds
        )
        find = partial(asyncio.to_thread, store.remembered, list(keys.values()))
        remembered = await retry_while_unreachable(find, retry_seconds) if keys else None
        if remembered is not None:
            detail = f"{_approved_by(remembered)}, remembered for {remembered.remember}"
            return ApprovalOutcome(json.loads(text), detail)
        user = request.caller.who
        if self._pending[user] >= MAX_PENDING:
            return ApprovalOutcome(None, "", _too_many(user))
        self._pending[user] += 1
        try:
            return await self._ask(store, request, text, keys, patience, observe)
        finally:
            self._pending[user] -= 1
            if not self._pending[user]:
                del self._pending[user]

    async def _ask(
        self,
        store: ApprovalStore,
        request: ApprovalRequest,
        text: str,
        keys: dict[Remember, str],
        patience: float,
        observe: Callable[[Event], None],
    ) -> ApprovalOutcome:
        """Store a pending approval and wait for the decision; `text` is the arguments."""
        fingerprint = _hash(_identity(request.caller), request.call.tool, request.digest, text)
        now = time.time()
        approval = Approval(
            id="",
            tool=request.call.tool,
            digest=request.digest,
            arguments=json.loads(text),
            user=request.caller.who,
            session=request.caller.session,
            call_id=request.call.id,
            why=request.why,
            approve_own=request.approve_own,
            created=now,
            expires=now + patience,
        )
        call_key = key_of(request.caller, request.call.id)
        ask = partial(asyncio.to_thread, store.ask, approval, fingerprint, call_key, keys)
        approval = await retry_while_unreachable(ask, min(patience, REDIS_WAIT_SECONDS))
        if approval.state == "pending":
            observe(Event(kind="pending", text=approval.id))
        approval = await self._wait(store, approval, patience)
        if approval.state == "approved":
            used = await asyncio.to_thread(store.use, approval.id, fingerprint)
            if used is not None:
                arguments = used.edited if used.edited is not None else used.arguments
                edited = ", with other arguments" if used.edited is not None else ""
                return ApprovalOutcome(arguments, f"{_approved_by(used)}{edited}")
        return ApprovalOutcome(None, "", _refusal(approval))

    def decide(
        self,
        approval_id: str,
        verdict: ApprovalVerdict,
        by: Caller,
        check: Callable[[Approval], None] = lambda _: None,
        *,
        is_local: bool = False,
    ) -> Approval:
        """Decide on an approval; `check` raises if edited arguments are invalid.

        `is_local`: `by` is the person who runs this process.

        Raises:
            NotAllowed: the caller may not decide on this approval.
            NotFound: it does not exist.
            TooLate: it was decided before, or its call no longer waits.
            InputError: the arguments are invalid.
        """
        store = self._store()
        approval = store.get(approval_id)
        if approval is None:
            hint = "see `toolkiln approvals list`"
            raise NotFound(f"there is no approval {approval_id!r}", hint=hint)
        if not may_answer(by, approval, is_local=is_local):
            raise _may_not_answer(by, approval)
        if verdict.arguments is not None:
            check(approval)
        decided = store.decide(approval.id, verdict.model_copy(update={"by": by.who}))
        if waiter := self._waiting.get(approval.id):
            loop, event = waiter
            loop.call_soon_threadsafe(event.set)
        return decided

    def waiting(self, limit: int = 100) -> list[Approval]:
        """Return pending approvals, newest first."""
        return self._store().list(("pending",), limit)

    def of_call(self, caller: Caller, call_id: str) -> list[Approval]:
        """Return the pending approvals of a call, newest first."""
        return self._store().of_call(key_of(caller, call_id))

    def history(self, limit: int = 100) -> list[Approval]:
        """Return approvals in any state, newest first."""
        states = ("pending", "approved", "rejected", "expired", "withdrawn", "used")
        return self._store().list(states, limit)

    def get(self, approval_id: str) -> Approval | None:
        """Return an approval in its current state."""
        return self._store().get(approval_id)

    def forget(self, approval_id: str) -> bool:
        """Stop remembering an approval: the next call waits for a decision again."""
        return self._store().forget(approval_id)

    async def _wait(self, store: ApprovalStore, approval: Approval, patience: float) -> Approval:
        """Wait for a decision; withdraw the approval on cancellation and on timeout."""
        event = asyncio.Event()
        self._waiting[approval.id] = asyncio.get_running_loop(), event
        # If the store's clock is set back, `expires` alone would make the call wait forever.
        deadline = time.monotonic() + patience
        poll, current = _FIRST_POLL, approval
        try:
            while current.state == "pending":
                left = deadline - time.monotonic()
                if left <= 0:
                    await asyncio.to_thread(store.withdraw, approval.id)
                    return current.model_copy(update={"state": "expired"})
                try:
                    await asyncio.wait_for(event.wait(), min(poll, left))
                except TimeoutError:
                    poll = min(poll * 1.5, _MAX_POLL)
                with suppress(Unreachable):  # as during a failover: the next poll succeeds
                    found = await asyncio.to_thread(store.get, approval.id)
                    current = found or current
            if current.state == "expired":  # permanently, even if the clock is set back
                await asyncio.to_thread(store.withdraw, approval.id)
            return current
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(store.withdraw, approval.id))
            raise
        finally:
            self._waiting.pop(approval.id, None)


def may_answer(by: Caller, approval: Approval, *, is_local: bool) -> bool:
    """Return whether a caller may decide on an approval.

    Calls of others require APPROVE. Own calls require a rule with `approve_own = true`; the
    local person may also decide unless the rule has `approve_own = false`.
    """
    if by.is_anonymous:
        return False
    if by.who != approval.user:
        return Privilege.APPROVE in by.privileges
    return is_local if approval.approve_own is None else approval.approve_own


def _may_not_answer(by: Caller, approval: Approval) -> NotAllowed:
    if by.is_anonymous:
        return NotAllowed("anonymous callers may not answer approvals", hint="sign in first")
    if by.who != approval.user:
        return NotAllowed(
            f"{by.who} may not approve calls of others without the privilege APPROVE",
            hint="an operator can grant APPROVE in [privileges] of toolkiln.toml",
        )
    if approval.approve_own is None:
        hint = "ask another person with APPROVE, or set approve_own = true in the rule"
    else:
        hint = "ask another person with APPROVE: the rule has approve_own = false"
    return NotAllowed(f"{approval.user} made this call and may not approve it", hint=hint)


def _approved_by(approval: Approval) -> str:
    how = "self-approved" if approval.self_approved else "approved"
    return f"{how} by {approval.decided_by}"


def canonical(value: Any) -> str:
    """Return the canonical JSON text of a value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _refusal(approval: Approval) -> CallError:
    if approval.state == "rejected":
        reason = f": {approval.reason}" if approval.reason else ""
        message = f"{approval.decided_by} rejected this call{reason}"
        return CallError(code="rejected", message=message)
    if approval.state == "used":
        return CallError(
            code="approval_used",
            message="the approval of this call was used before",
            hint="repeat the call with another id",
        )
    return CallError(
        code="approval_expired",
        message="this call was not approved in time",
        hint="ask a person to check `toolkiln approvals list`, then call again",
        retryable=True,
    )


def _too_many(user: str) -> CallError:
    return CallError(
        code="too_many_approvals",
        message=f"{MAX_PENDING} calls of {user} are already waiting for approval",
        hint="wait for decisions on some of them, or cancel them",
        retryable=True,
    )


def _identity(caller: Caller) -> str:
    return canonical([caller.platform, caller.user_id, caller.agent_id])


def _remember_keys(request: ApprovalRequest, text: str) -> dict[Remember, str]:
    tool, caller = request.call.tool, request.caller
    if caller.is_anonymous:  # many people share this name
        return {}
    return {
        "session": _hash("session", caller.session, tool, request.digest),
        "arguments": _hash("arguments", _identity(caller), tool, request.digest, text),
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class PendingApprovals:
    """A short-lived cache of pending approvals."""

    def __init__(self, approvals: ApprovalService) -> None:
        self._approvals = approvals
        self._lock = asyncio.Lock()
        self._cached: Sequence[Approval] = ()
        self._fresh_until = 0.0

    async def by(self, caller: Caller, *, is_local: bool) -> frozenset[str]:
        """Return the ids of the approvals a caller may decide on; `is_local` as in `may_answer`."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._cached = await asyncio.to_thread(self._approvals.waiting, _MAX_LISTED)
                self._fresh_until = time.monotonic() + _PENDING_CACHE_SECONDS
        return frozenset(
            approval.id
            for approval in self._cached
            if may_answer(caller, approval, is_local=is_local)
        )
