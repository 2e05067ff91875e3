"""What guards the calls of a Kiln, put together; and what people do about it.

`Guarding` wires sessions, rules, approvals, secrets, settings of tools and the audit to
the store or to Redis. Administrative acts go through here, so that each leaves its record
(`recording`).
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkiln.app.audit import DAY, Audit
from toolkiln.app.books import Books
from toolkiln.app.keys import Keys, refuse_unheld
from toolkiln.app.live import Live
from toolkiln.app.own import OWN, SessionToken, account
from toolkiln.app.recording import Recording
from toolkiln.catalog import Decision
from toolkiln.config import Settings
from toolkiln.errors import ConfigError, InputError, NotAllowed, NotFound
from toolkiln.execution import (
    Approvals,
    Guard,
    Recorder,
    Secrets,
    Sessions,
    ToolSettings,
    admits_own_tools,
    audit_key,
    authoring_refusal,
    how_to_get,
    may_answer,
)
from toolkiln.model import (
    Approval,
    AuditRecord,
    Caller,
    CallError,
    OpenSession,
    Privilege,
    Remember,
    Session,
    ToolSpec,
    Verdict,
)
from toolkiln.schema import Problems, check
from toolkiln.store import AuditFilter, open_ledger

if TYPE_CHECKING:
    from toolkiln.execution import CallBook
    from toolkiln.store import Ledger, Store


_AUTHORING_TOOL = "write_python_tool"


class Authority(NamedTuple):
    """How far a caller may go with a tool that they write."""

    decision: Decision
    admits: bool
    """Whether it is served at once; otherwise it is a proposal."""


class Guarding:
    """The guard of one Kiln."""

    def __init__(
        self,
        settings: Settings,
        store: "Callable[[], Store]",
        spec: Callable[[str], ToolSpec],
        surface: str,
        live: Live | None = None,
    ) -> None:
        """`spec` finds a tool by its name; `live` are the settings, where others change them."""
        self._settings = settings
        self._spec = spec
        self._store = store
        self._books = Books(settings.redis, store, settings.worker_keys)
        self._surface = surface
        self.live = live or Live(settings, self._on_change)
        state = settings.state.absolute()
        file = settings.secrets_file or state / "secrets.toml"
        self.secrets = Secrets(settings.environ, file, keyring=settings.keyring)
        self.sessions = Sessions(
            self._books.sessions, lambda: self.live.current().session_seconds, self._on_session
        )
        self.approvals = Approvals(
            self._books.approvals, lambda: self.live.current().approval_seconds
        )
        self.tool_settings = ToolSettings(lambda: store().tool_settings, self.secrets)
        self.recorder = Recorder(self._open_for_writing)
        self.recording = Recording(self.recorder, surface)
        self.act, self.record = self.recording.act, self.recording.record
        self.guard = Guard(
            sessions=self.sessions,
            rules=self.live.rules,
            rates=self.live.rates,
            buckets=self._books.buckets,
            approvals=self.approvals,
            secrets=self.secrets,
            settings=self.tool_settings,
            recorder=self.recorder,
            show_exceptions=settings.show_exceptions or settings.dev,
        )

    @cached_property
    def operator(self) -> str:
        """The session of whoever runs this process, with every privilege of Toolkiln's."""
        return self.operator_in("default")

    def operator_in(self, workspace: str) -> str:
        """The operator's session with another workspace."""
        caller = Caller(user_id=account(), privileges=frozenset(Privilege), workspace=workspace)
        return self.sessions.local(caller)

    def token(self, session: SessionToken) -> str | None:
        """What a request carries."""
        return self.operator if session is OWN else session

    def caller(self, session: SessionToken) -> Caller:
        """Who holds a session.

        Raises:
            NoSession: nobody.
        """
        return self.guard.caller_of(self.token(session))

    def may_see(self, session: SessionToken) -> Callable[[ToolSpec], bool]:
        """Whether tools are listed and found for the holder of a session.

        Raises:
            NoSession: nobody holds it.
        """
        caller = self.caller(session)
        return lambda spec: self.guard.may_see(caller, spec)

    def require(self, session: SessionToken, privilege: Privilege, what: str) -> Caller:
        """Who holds a session, if they have a privilege.

        Raises:
            NotAllowed: they have not; this is recorded.
        """
        caller = self.caller(session)
        if privilege not in caller.privileges:
            self.recording.denied(what, caller, f"lacks {privilege}")
            if self.sessions.find(self.token(session)).key_id is None:
                hint = how_to_get(privilege, caller)
            else:  # the settings add nothing to what a key has
                create = f"toolkiln keys create NAME --user {caller.who} --privilege {privilege}"
                hint = f"an operator creates a key that has it: `{create}`"
            raise NotAllowed(
                f"{caller.who} may not do this: it takes the privilege {privilege}", hint=hint
            )
        return caller

    def decision(self, *, grant: bool = False, session: SessionToken = OWN) -> Decision:
        """Return the decision of a caller about versions; by default the operator's.

        Without ADMIN it counts as a writer's: the version gets no grants and no settings.
        """
        caller = self.caller(session)
        return Decision(
            caller.who,
            grant=grant,
            unsandboxed=Privilege.UNSANDBOXED_EXEC in caller.privileges,
            reviewed=Privilege.ADMIN in caller.privileges,
        )

    async def may_author(
        self, session: SessionToken, *, is_review: bool = False
    ) -> "Authority | CallError":
        """Return what a caller may do with a tool that they write, or why they may do nothing.

        `is_review`: the caller writes the version themselves, so that with ADMIN they also admit
        it. Tool calls (`write_python_tool`) never do: a model or another tool makes them.

        Raises:
            NoSession: nobody holds it.
        """
        token = self.token(session)
        caller = await self.guard.caller(token, running=True)
        authoring = self.live.current().authoring
        may_call = self.guard.may_see(caller, self._spec(_AUTHORING_TOOL))
        if refusal := authoring_refusal(caller, authoring, may_call=may_call):
            self.recorder.add(
                AuditRecord(
                    time.time(),
                    "author",
                    "denied",
                    caller.who,
                    caller.agent_id or "",
                    caller.session,
                    self.recording.surface,
                    detail=refusal.message,
                )
            )
            return refusal
        unsandboxed = Privilege.UNSANDBOXED_EXEC in caller.privileges
        decision = Decision(
            caller.who or caller.agent_id or "an agent",
            unsandboxed=unsandboxed,
            reviewed=is_review and Privilege.ADMIN in caller.privileges,
        )
        # Agents of this account have a platform; an anonymous caller has none.
        is_local_agent = self.sessions.is_local(token or "") and caller.platform is not None
        return Authority(decision, admits_own_tools(caller, authoring, local=is_local_agent))

    def create_session(
        self, user_id: str, *, session: SessionToken = OWN, **identity: Any
    ) -> OpenSession:
        """As `sessions.create`, by somebody with ADMIN, and recorded."""
        admin = self.require(session, Privilege.ADMIN, "session.create")
        with self.act("session.create", admin, detail=f"for {user_id}"):
            refuse_unheld(admin, identity.get("privileges", ()))
            return self.sessions.create(user_id, **identity)

    def renew_session(
        self, token: str, seconds: float | None = None, *, session: SessionToken = OWN
    ) -> Session:
        """As `sessions.renew`, by somebody with ADMIN, and recorded."""
        admin = self.require(session, Privilege.ADMIN, "session.renew")
        found = self.sessions.find(token)
        with self.act("session.renew", admin, detail=found.trace_id):
            self.sessions.renew(token, seconds)
        return found

    def end_session(self, token: str) -> Session:
        """Let a session hold no longer, by whoever has its token; recorded.

        Raises:
            NoSession: it holds no longer.
            InputError: it is this process's own, which nobody can end.
        """
        found = self.sessions.find(token)
        if self.sessions.is_local(token):
            raise InputError("this session lasts as long as the process that made it")
        with self.act("session.end", found.caller):
            self.sessions.end(token)
        return found

    def end_named_session(self, trace_id: str, session: SessionToken = OWN) -> Session:
        """Let somebody's session hold no longer, by somebody with ADMIN; recorded.

        Raises:
            NotAllowed: whoever holds the session has no ADMIN.
            NotFound: there is no such session.
        """
        admin = self.require(session, Privilege.ADMIN, "session.end")
        with self.act("session.end", admin, detail=trace_id):
            if (ended := self.sessions.end_named(trace_id)) is None:
                raise NotFound(f"no session {trace_id[:100]!r} holds")
        return ended

    def approvals_for(self, session: SessionToken = OWN) -> Callable[[Approval], bool]:
        """Which requests for approval somebody may look at: their own, or with APPROVE all."""
        caller = self.caller(session)
        if Privilege.APPROVE in caller.privileges:
            return lambda _: True
        # Anonymous callers are many people: none of them sees what the others asked for.
        return lambda approval: approval.user == caller.who and not caller.is_anonymous

    def may_answer(self, approval: Approval, session: SessionToken = OWN) -> bool:
        """Return whether the holder of a session may answer a request for approval.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        caller = self.caller(session)
        return may_answer(caller, approval, is_local=self.is_local_person(session))

    def is_local_person(self, session: SessionToken) -> bool:
        """Return whether a session is that of the person who runs this process.

        So are the sessions of the command line, of the program that opened the Kiln, and of a
        browser that signed in with the start-up link. An agent over stdio is not.
        """
        token = self.token(session)
        if token is None or not self.sessions.is_local(token):
            return False
        return self.sessions.find(token).caller.who == account()

    def approval(self, approval_id: str, session: SessionToken = OWN) -> Approval:
        """One request for approval.

        Raises:
            NotFound: there is none that the holder of the session may look at.
        """
        found = self.approvals.get(approval_id)
        if found is None or not self.approvals_for(session)(found):
            raise NotFound(
                f"there is no approval {approval_id[:100]!r}", hint="see `toolkiln approvals list`"
            )
        return found

    def approve(
        self,
        approval_id: str,
        *,
        session: SessionToken = OWN,
        arguments: dict[str, Any] | None = None,
        reason: str = "",
        remember: Remember | None = None,
    ) -> Approval:
        """Let a call run that waits, with its own arguments or with others that fit.

        Raises:
            NotAllowed: whoever holds the session may not.
            InputError: there is no such request, it was answered, or the arguments are wrong.
        """
        verdict = Verdict(
            approve=True, by="", reason=reason, arguments=arguments, remember=remember
        )

        def fits(request: Approval) -> None:
            checked = check(self._spec(request.tool), arguments)
            if isinstance(checked, Problems):
                lines = "\n".join(problem.message for problem in checked.problems)
                raise InputError(f"{request.tool}: {lines}")

        return self._decide("approve", approval_id, verdict, session, fits)

    def reject(
        self, approval_id: str, *, session: SessionToken = OWN, reason: str = ""
    ) -> Approval:
        """Keep a call from running.

        Raises:
            NotAllowed: whoever holds the session may not.
            InputError: there is no such request, or it was answered.
        """
        verdict = Verdict(approve=False, by="", reason=reason)
        return self._decide("reject", approval_id, verdict, session, lambda _: None)

    def forget_approval(self, approval_id: str, session: SessionToken = OWN) -> bool:
        """Ask people again about what an approval was remembered for."""
        caller = self.require(session, Privilege.APPROVE, "approval.forget")
        with self.act("approval.forget", caller, detail=approval_id):
            return self.approvals.forget(approval_id)

    def set_tool(
        self,
        spec: ToolSpec,
        changes: Mapping[str, Any],
        *,
        removed: frozenset[str] = frozenset(),
        user: str = "",
        session: SessionToken = OWN,
    ) -> None:
        """Set what a tool is handed with its calls: by an operator, or by a user for themselves.

        Raises:
            NotAllowed: whoever holds the session may not.
            InputError: a name is unknown, or a value does not fit.
        """
        caller = self.caller(session)
        if not user or caller.who != user or caller.is_anonymous:
            caller = self.require(session, Privilege.ADMIN, "settings")
        names = ", ".join(sorted({*changes, *removed}))
        whose = f" of {user}" if user else ""
        with self.act(
            "settings", caller, tool=spec.name, digest=spec.digest, detail=f"{names}{whose}"
        ):
            self.tool_settings.change(spec, changes, removed, user)

    def set_secret(self, name: str, value: str | None, session: SessionToken = OWN) -> None:
        """Keep a secret in the secrets file, or with None remove it."""
        caller = self.require(session, Privilege.ADMIN, "secret")
        with self.act("secret.set" if value is not None else "secret.remove", caller, detail=name):
            if value is None:
                self.secrets.remove(name)
            else:
                self.secrets.set(name, value)

    @cached_property
    def keys(self) -> Keys:
        """API keys, which make sessions."""
        return Keys(lambda: self._store().keys, self)

    @cached_property
    def audit(self) -> Audit:
        """What was recorded."""
        return Audit(self._open_ledger, self)

    def call_book(self) -> "CallBook":
        """Where calls with ids of their callers', and outputs that were cut, are kept."""
        return self._books.calls()

    def close(self) -> None:
        """Write down what is not written yet, and let go of what is open."""
        self.recorder.close()
        if audit := self.__dict__.get("audit"):
            audit.close()
        self._books.close()

    def _decide(
        self,
        act: str,
        approval_id: str,
        verdict: Verdict,
        session: SessionToken,
        fits: Callable[[Approval], None],
    ) -> Approval:
        caller = self.caller(session)
        known = self.approvals.get(approval_id)
        about = known.model_dump(include={"tool", "digest", "call_id"}) if known else {}
        is_local = self.is_local_person(session)
        how = ""
        if verdict.approve and known is not None and known.user == caller.who:
            may = may_answer(caller, known, is_local=is_local)
            how = "(self-approved)" if may else ""
        detail = " ".join(part for part in (approval_id, how, verdict.reason) if part)
        with self.act(act, caller, detail=detail, **about):
            return self.approvals.decide(approval_id, verdict, caller, fits, is_local=is_local)

    def _on_session(self, session: Session) -> None:
        """Record with which rights the calls of a session will be made."""
        caller = session.caller
        is_key = session.key_id is not None
        rights = {
            "groups": sorted(caller.groups),
            "privileges": sorted(self.live.rules().privileges_of(caller, from_key=is_key)),
            "tools": [] if caller.tools == ("*",) else caller.tools,
            "key": [session.key_id] if session.key_id else [],
        }
        told = "; ".join(f"{name} {', '.join(some)}" for name, some in rights.items() if some)
        self.recorder.add(
            AuditRecord(
                time.time(),
                "session.open",
                "ok",
                caller.who,
                caller.agent_id or "",
                session.trace_id,
                self._surface,
                detail=told,
            )
        )

    def _on_change(self, summary: str, error: ConfigError | None) -> None:
        outcome = "failed" if error else "ok"
        record = AuditRecord(time.time(), "config", outcome, detail=summary, surface=self._surface)
        self.recorder.add(record)

    def _open_for_writing(self) -> "Ledger":
        """The ledger, without what is older than it has to be kept."""
        ledger, days = self._open_ledger(), self._settings.audit_days
        # A day more: not every process that opens it has something to remove.
        overdue = AuditFilter(until=time.time() - (days + 1) * DAY)
        if days and next(ledger.entries(overdue, 1), None) is not None:
            ledger.prune(time.time() - days * DAY, "audit_days")
        return ledger

    def _open_ledger(self) -> "Ledger":
        state = self._settings.made_state()
        key = audit_key(self._settings.audit_key, state)
        return open_ledger(self._settings.store or state / "audit.db", key)
