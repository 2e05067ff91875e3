"""The guard: the gateway's access to sessions, rules, rates, approvals, secrets and the audit.

The gateway decides in which order to check them; each has a module of its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from typing import NamedTuple, Protocol

from toolkiln.model.call import Call, CallError
from toolkiln.model.identity import Caller, Privilege, SessionRecord
from toolkiln.model.policy import Draw, PolicyDecision, Rate
from toolkiln.model.spec import ToolSpec
from toolkiln.model.tool import ResolvedTool
from toolkiln.security.approvals import ApprovalService
from toolkiln.security.audit import AuditWriter
from toolkiln.security.masking import Mask
from toolkiln.security.rules import Globs, Rules, folded
from toolkiln.security.secrets import Secrets
from toolkiln.security.sessions import SessionService, acting_session
from toolkiln.security.tool_settings import ToolSettingsService
from toolkiln.store.rules import REDIS_WAIT_SECONDS, retry_while_unreachable

NO_MASK = Mask({})
_CACHED_TOOLS = 10_000
_CACHED_CALLERS = 10_000


class Rates:
    """Rate limits by glob of tool names, per caller (`caller`) or for all callers (`tool`)."""

    def __init__(self, table: Mapping[str, Mapping[str, Rate]]) -> None:
        # Loose, as in rules that deny: a look-alike name does not escape the limit.
        self._entries = tuple((glob, Globs([glob], loose=True), table[glob]) for glob in table)
        self._for_tool = lru_cache(_CACHED_TOOLS)(self._find)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def draws(self, caller: Caller, spec: ToolSpec) -> tuple[Draw, ...]:
        """Return the tokens a call needs; it takes all of them or none."""
        if not self._entries:
            return ()
        limits = self._for_tool(spec.name)
        if not limits.per_caller:
            return limits.shared
        who = (caller.platform, caller.user_id)
        own = [Draw(_bucket("caller", *scope, *who), rate) for scope, rate in limits.per_caller]
        return (*own, *limits.shared)

    def _find(self, name: str) -> "_ToolLimits":
        folded_name = folded(name)
        matches = [
            (glob, rates) for glob, globs, rates in self._entries if globs.match(name, folded_name)
        ]
        return _ToolLimits(
            tuple(
                # A limit for `*` counts the calls of all tools together.
                ((glob, None if glob == "*" else name), rates["caller"])
                for glob, rates in matches
                if "caller" in rates
            ),
            tuple(
                Draw(_bucket("tool", glob, name), rates["tool"])
                for glob, rates in matches
                if "tool" in rates
            ),
        )


class _ToolLimits(NamedTuple):
    per_caller: tuple[tuple[tuple[str, str | None], Rate], ...]
    shared: tuple[Draw, ...]


def _bucket(*parts: str | None) -> str:
    """Return a bucket name of fixed length, safe for any user or tool name."""
    return blake2b(ascii(parts).encode("ascii"), digest_size=16).hexdigest()


class RateStore(Protocol):
    """Storage of token buckets."""

    def take(self, draws: Sequence[Draw]) -> float:
        """Take one token from each bucket, or none and return the seconds to wait."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The security services of one Kiln, as the gateway uses them."""

    sessions: SessionService
    rules: Callable[[], Rules]
    rates: Callable[[], Rates]
    buckets: Callable[[], RateStore]
    approvals: ApprovalService
    secrets: Secrets
    settings: ToolSettingsService
    recorder: AuditWriter
    show_exceptions: bool = False
    """Whether all callers see the text and the traceback of exceptions."""
    _callers: dict[str, tuple[SessionRecord, Rules, Caller]] = field(default_factory=dict)

    def known_caller(self, token: str | None, *, running: bool = False) -> Caller | None:
        """Return the caller of a cached session; None if it must be looked up."""
        session = self.sessions.known(token, running=running)
        return None if session is None else self._with_privileges(session)

    def known_identity(self, token: str | None, *, running: bool = False) -> Caller | None:
        """Return the caller of a cached session without the operator's privileges."""
        session = self.sessions.known(token, running=running)
        return None if session is None else session.caller

    async def caller(self, token: str | None, *, running: bool = False) -> Caller:
        """Return the caller of a session, with current privileges.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        running = running or _is_acting(token)
        known = self.known_caller(token, running=running)
        if known is not None:
            return known
        session = await asyncio.to_thread(self.sessions.find, token, running=running)
        return self._with_privileges(session)

    def caller_of(self, token: str | None) -> Caller:
        """Return the caller of a session; blocking form of `caller`."""
        return self._with_privileges(self.sessions.find(token, running=_is_acting(token)))

    def decide(self, caller: Caller, spec: ToolSpec) -> PolicyDecision:
        """Decide by the current rules whether a caller may run a tool."""
        return self.rules().decide(caller, spec)

    def may_see(self, caller: Caller, spec: ToolSpec) -> bool:
        """Return whether a caller finds a tool in lists and searches."""
        return self.decide(caller, spec).effect != "deny"

    def shows_exceptions(self, call: Call, caller: Caller, tool: ResolvedTool) -> bool:
        """Return whether a caller sees the text and the traceback of an exception.

        Callers see them if they can read the source anyway: if they sent it with the call and
        may write tools, or use this command line without a token. A program does not see them,
        because it may pass results on to models and users. `show_exceptions` overrides all this.
        """
        if self.show_exceptions:
            return True
        if tool.is_source:
            return Privilege.WRITE_TOOLS in caller.privileges
        return call.surface == "cli" and self.sessions.is_local(call.session or "")

    async def rate_refusal(
        self, spec: ToolSpec, draws: Sequence[Draw], timeout: float | None
    ) -> CallError | None:
        """Return the error of a call that exceeds a rate; None if it does not.

        Waits for an unreachable Redis, up to the call's timeout. If the connection broke after
        Redis took the tokens, the retry takes others: a call counts twice rather than not at all.
        """

        async def take() -> float:
            return await asyncio.to_thread(lambda: self.buckets().take(draws))

        patience = REDIS_WAIT_SECONDS if timeout is None else min(REDIS_WAIT_SECONDS, timeout)
        wait = await retry_while_unreachable(take, patience)
        if wait <= 0:
            return None
        return CallError(
            code="rate_limited",
            message=f"too many calls of {spec.name}: wait {ceil(wait * 10) / 10:g} s",
            hint="make fewer calls, or ask the operator for a higher rate",
            retryable=True,
            retry_after=wait,
        )

    def _with_privileges(self, session: SessionRecord) -> Caller:
        rules = self.rules()
        cached = self._callers.get(session.trace_id)
        if cached is not None and cached[0] is session and cached[1] is rules:
            return cached[2]
        privileges = rules.privileges_of(session.caller, from_key=session.key_id is not None)
        caller = session.caller.model_copy(update={"privileges": privileges})
        if len(self._callers) >= _CACHED_CALLERS:
            self._callers.clear()
        self._callers[session.trace_id] = session, rules, caller
        return caller


def _is_acting(token: str | None) -> bool:
    """Return whether this code runs in a call of the same session."""
    return token is not None and token == acting_session()
