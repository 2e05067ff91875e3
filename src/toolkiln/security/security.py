"""The security services of a Kiln, and the administrative acts on them.

`Security` wires sessions, rules, approvals, secrets, tool settings and the audit log to the
store or to Redis. It checks the privilege for each administrative act and audits it.
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolkiln.config import Settings
from toolkiln.errors import ConfigError, InputError, NotAllowed, NotFound
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.audit import AuditFilter
from toolkiln.model.call import CallError
from toolkiln.model.identity import Caller, OpenSession, Privilege, SessionRecord
from toolkiln.model.policy import Approval, ApprovalVerdict, Remember
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.arguments import Problems, check
from toolkiln.security.approvals import ApprovalService, ApprovalStore, may_answer
from toolkiln.security.audit import DAY, AuditedActions, AuditReader, AuditWriter, audit_key
from toolkiln.security.authentication import ApiKeyService, check_grantable
from toolkiln.security.guard import Guard, RateStore
from toolkiln.security.live_settings import LiveSettings
from toolkiln.security.secrets import Secrets
from toolkiln.security.sessions import (
    LOCAL_OPERATOR,
    SessionService,
    SessionStore,
    SessionToken,
    account_name,
)
from toolkiln.security.tool_settings import ToolSettingsService
from toolkiln.store.audit_log import open_audit_log

if TYPE_CHECKING:
    from toolkiln.store.audit_log import AuditLog
    from toolkiln.store.store import Store


def authoring_refusal(caller: Caller, authoring: str, *, may_call: bool) -> CallError | None:
    """Return why a caller may neither write nor propose tools; None if they may.

    `may_call`: the rules allow them to call `write_python_tool`.
    """
    if authoring not in ("auto", "propose", "admit"):  # `off`, or an unknown value
        return CallError(
            code="not_granted",
            message="permission denied: writing tools is disabled",
            hint='an operator can set authoring = "auto", "propose" or "admit"',
        )
    if not may_call and Privilege.WRITE_TOOLS not in caller.privileges:
        return missing_privilege(caller, Privilege.WRITE_TOOLS, "write tools")
    return None


def admits_own_tools(caller: Caller, authoring: str, *, local: bool = False) -> bool:
    """Return whether a caller's tools are admitted at once; otherwise they become proposals.

    `local`: the caller is an agent of the account that runs this process.
    """
    if authoring == "propose":
        return False
    return Privilege.WRITE_TOOLS in caller.privileges or (authoring == "admit" and local)


def missing_privilege(caller: Caller, privilege: Privilege, action: str) -> CallError:
    """Return the error of a call that needs a privilege its caller lacks."""
    who = caller.who or "this caller"
    return CallError(
        code="not_allowed",
        message=f"permission denied: {who} may not {action} without the privilege {privilege}",
        hint=privilege_hint(privilege, caller),
    )


def privilege_hint(privilege: Privilege, caller: Caller) -> str:
    """Return a hint how a caller gets a privilege."""
    if caller.is_anonymous:
        return "sign in with the link the server printed at start, or with an API key"
    who = caller.who or "USER"
    return f'an operator can write in toolkiln.toml: [privileges] "{who}" = ["{privilege}"]'


class StateStores(Protocol):
    """The stores that processes may share."""

    def sessions(self) -> SessionStore:
        """Return the store of sessions."""

    def approvals(self) -> ApprovalStore:
        """Return the store of approvals."""

    def rates(self) -> RateStore:
        """Return the store of rate limits."""


class Authority(NamedTuple):
    """What a caller may do with a tool they write."""

    decision: AdmissionDecision
    admits: bool
    """Whether the tool is served at once; otherwise it becomes a proposal."""


class Security:
    """The security services of one Kiln."""

    def __init__(
        self,
        settings: Settings,
        store: "Callable[[], Store]",
        spec: Callable[[str], ToolSpec],
        surface: str,
        stores: StateStores,
        live: LiveSettings | None = None,
    ) -> None:
        """`spec` finds a tool by name; `live` is given at a front: the fleet's settings."""
        self._settings = settings
        self._spec = spec
        self._store = store
        self._surface = surface
        self.live = live or LiveSettings(settings, self._on_change)
        state = settings.state.absolute()
        file = settings.secrets_file or state / "secrets.toml"
        self.secrets = Secrets(settings.environ, file, keyring=settings.keyring)
        self.sessions = SessionService(
            stores.sessions, lambda: self.live.current().session_seconds, self._on_session
        )
        self.approvals = ApprovalService(
            stores.approvals, lambda: self.live.current().approval_seconds
        )
        self.tool_settings = ToolSettingsService(lambda: store().tool_settings, self.secrets)
        self.recorder = AuditWriter(self._open_for_writing)
        self.recording = AuditedActions(self.recorder, surface)
        self.audited, self.record = self.recording.audited, self.recording.record
        self.guard = Guard(
            sessions=self.sessions,
            rules=self.live.rules,
            rates=self.live.rates,
            buckets=stores.rates,
            approvals=self.approvals,
            secrets=self.secrets,
            settings=self.tool_settings,
            recorder=self.recorder,
            show_exceptions=settings.show_exceptions or settings.dev,
        )

    @cached_property
    def operator(self) -> str:
        """Token of the local operator's session, which has all built-in privileges."""
        return self.operator_in("default")

    def operator_in(self, workspace: str) -> str:
        """Open another session of the local operator, with this workspace."""
        privileges = frozenset(Privilege)
        caller = Caller(user_id=account_name(), privileges=privileges, workspace=workspace)
        return self.sessions.local(caller)

    def token(self, session: SessionToken) -> str | None:
        """Return the token of a session; None if there is none."""
        return self.operator if session is LOCAL_OPERATOR else session

    def caller(self, session: SessionToken) -> Caller:
        """Return the caller of a session.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        return self.guard.caller_of(self.token(session))

    def may_see(self, session: SessionToken) -> Callable[[ToolSpec], bool]:
        """Return a function that says whether a tool is visible to the caller of a session."""
        caller = self.caller(session)
        return lambda spec: self.guard.may_see(caller, spec)

    def require(self, session: SessionToken, privilege: Privilege, act: str) -> Caller:
        """Return the caller of a session if they have a privilege.

        Raises:
            NotAllowed: they lack it; the denial is audited as `act`.
        """
        caller = self.caller(session)
        if privilege not in caller.privileges:
            self.recording.denied(act, caller, f"lacks {privilege}")
            if self.sessions.find(self.token(session)).key_id is None:
                hint = privilege_hint(privilege, caller)
            else:  # `[privileges]` does not apply to sessions of API keys
                create = f"toolkiln keys create NAME --user {caller.who} --privilege {privilege}"
                hint = f"an operator can create a key that has it: `{create}`"
            raise NotAllowed(
                f"{caller.who} may not do this: it requires the privilege {privilege}", hint=hint
            )
        return caller

    def decision(
        self, *, grant: bool = False, session: SessionToken = LOCAL_OPERATOR
    ) -> AdmissionDecision:
        """Return an admission decision by the caller of a session.

        Without ADMIN the version counts as not reviewed: it gets no grants and no settings.
        """
        caller = self.caller(session)
        return AdmissionDecision(
            caller.who,
            grant=grant,
            unsandboxed=Privilege.UNSANDBOXED_EXEC in caller.privileges,
            reviewed=Privilege.ADMIN in caller.privileges,
        )

    async def may_author(
        self, session: SessionToken, *, is_review: bool = False
    ) -> "Authority | CallError":
        """Return what a caller may do with a tool they write, or an error if nothing.

        `is_review`: the caller writes the version in person; with ADMIN that is also a review.
        Calls of `write_python_tool` are no review: a model or another tool makes them.
        """
        token = self.token(session)
        caller = await self.guard.caller(token, running=True)
        authoring = self.live.current().authoring
        may_call = self.guard.may_see(caller, self._spec("write_python_tool"))
        if refusal := authoring_refusal(caller, authoring, may_call=may_call):
            self.recording.queue("author", "denied", caller, detail=refusal.message)
            return refusal
        decision = AdmissionDecision(
            caller.who or caller.agent_id or "an agent",
            unsandboxed=Privilege.UNSANDBOXED_EXEC in caller.privileges,
            reviewed=is_review and Privilege.ADMIN in caller.privileges,
        )
        # Agents of this account have a platform, anonymous callers have none.
        is_local_agent = self.sessions.is_local(token or "") and caller.platform is not None
        return Authority(decision, admits_own_tools(caller, authoring, local=is_local_agent))

    def create_session(
        self, user_id: str, *, session: SessionToken = LOCAL_OPERATOR, **identity: Any
    ) -> OpenSession:
        """Create a session, as in `sessions.create`; requires ADMIN, audited."""
        admin = self.require(session, Privilege.ADMIN, "session.create")
        with self.audited("session.create", admin, detail=f"for {user_id}"):
            check_grantable(admin, identity.get("privileges", ()))
            return self.sessions.create(user_id, **identity)

    def renew_session(
        self, token: str, seconds: float | None = None, *, session: SessionToken = LOCAL_OPERATOR
    ) -> SessionRecord:
        """Extend a session, as in `sessions.renew`; requires ADMIN, audited."""
        admin = self.require(session, Privilege.ADMIN, "session.renew")
        found = self.sessions.find(token)
        with self.audited("session.renew", admin, detail=found.trace_id):
            self.sessions.renew(token, seconds)
        return found

    def end_session(self, token: str) -> SessionRecord:
        """End a session by its token; audited.

        Raises:
            NoSession: it is unknown or has ended.
            InputError: it is a local session, which cannot be ended.
        """
        found = self.sessions.find(token)
        if self.sessions.is_local(token):
            raise InputError("this session is local and ends with the process that opened it")
        with self.audited("session.end", found.caller):
            self.sessions.end(token)
        return found

    def end_named_session(
        self, trace_id: str, session: SessionToken = LOCAL_OPERATOR
    ) -> SessionRecord:
        """End a session by its public id; requires ADMIN, audited."""
        admin = self.require(session, Privilege.ADMIN, "session.end")
        with self.audited("session.end", admin, detail=trace_id):
            if (ended := self.sessions.end_by_trace_id(trace_id)) is None:
                raise NotFound(f"there is no valid session {trace_id[:100]!r}")
        return ended

    def approvals_for(self, session: SessionToken = LOCAL_OPERATOR) -> Callable[[Approval], bool]:
        """Return a filter for visible approvals: the caller's own, or all with APPROVE."""
        caller = self.caller(session)
        if Privilege.APPROVE in caller.privileges:
            return lambda _: True
        # Anonymous callers are many people, who must not see each other's calls.
        return lambda approval: approval.user == caller.who and not caller.is_anonymous

    def may_answer(self, approval: Approval, session: SessionToken = LOCAL_OPERATOR) -> bool:
        """Return whether the caller of a session may decide on an approval."""
        return may_answer(self.caller(session), approval, is_local=self.is_local_person(session))

    def is_local_person(self, session: SessionToken) -> bool:
        """Return whether a session belongs to the person who runs this process.

        That is true of the command line, of the program that opened the Kiln, and of a browser
        that signed in with the start-up link, but not of an agent over stdio.
        """
        token = self.token(session)
        if token is None or not self.sessions.is_local(token):
            return False
        return self.sessions.find(token).caller.who == account_name()

    def approval(self, approval_id: str, session: SessionToken = LOCAL_OPERATOR) -> Approval:
        """Return an approval.

        Raises:
            NotFound: it does not exist or is not visible to the caller.
        """
        found = self.approvals.get(approval_id)
        if found is None or not self.approvals_for(session)(found):
            raise NotFound(
                f"there is no approval {approval_id[:100]!r}",
                hint="see `toolkiln approvals list`; those of other users require APPROVE",
            )
        return found

    def approve(
        self,
        approval_id: str,
        *,
        session: SessionToken = LOCAL_OPERATOR,
        arguments: dict[str, Any] | None = None,
        reason: str = "",
        remember: Remember | None = None,
    ) -> Approval:
        """Approve a pending call, optionally with edited arguments.

        Raises:
            NotAllowed: the caller may not decide on it.
            InputError: it does not exist, was decided before, or the arguments are invalid.
        """
        verdict = ApprovalVerdict(
            approve=True, by="", reason=reason, arguments=arguments, remember=remember
        )

        def check_arguments(request: Approval) -> None:
            checked = check(self._spec(request.tool), arguments)
            if isinstance(checked, Problems):
                lines = "\n".join(problem.message for problem in checked.problems)
                raise InputError(f"{request.tool}: {lines}")

        return self._decide("approve", approval_id, verdict, session, check_arguments)

    def reject(
        self, approval_id: str, *, session: SessionToken = LOCAL_OPERATOR, reason: str = ""
    ) -> Approval:
        """Reject a pending call; raises as `approve`."""
        verdict = ApprovalVerdict(approve=False, by="", reason=reason)
        return self._decide("reject", approval_id, verdict, session, lambda _: None)

    def forget_approval(self, approval_id: str, session: SessionToken = LOCAL_OPERATOR) -> bool:
        """Stop applying a remembered approval to later calls; requires APPROVE, audited."""
        caller = self.require(session, Privilege.APPROVE, "approval.forget")
        with self.audited("approval.forget", caller, detail=approval_id):
            return self.approvals.forget(approval_id)

    def change_tool_settings(
        self,
        spec: ToolSpec,
        changes: Mapping[str, Any],
        *,
        removed: frozenset[str] = frozenset(),
        user: str = "",
        session: SessionToken = LOCAL_OPERATOR,
    ) -> None:
        """Change the operator's settings of a tool, or those of one user.

        Users may change their own; everything else requires ADMIN. Audited.
        """
        caller = self.caller(session)
        if not user or caller.who != user or caller.is_anonymous:
            caller = self.require(session, Privilege.ADMIN, "settings")
        names = ", ".join(sorted({*changes, *removed}))
        owner = f" of {user}" if user else ""
        with self.audited(
            "settings", caller, tool=spec.name, digest=spec.digest, detail=f"{names}{owner}"
        ):
            self.tool_settings.change(spec, changes, removed, user)

    def set_secret(
        self, name: str, value: str | None, session: SessionToken = LOCAL_OPERATOR
    ) -> None:
        """Store a secret in the secrets file, or remove it if `value` is None."""
        caller = self.require(session, Privilege.ADMIN, "secret")
        act = "secret.remove" if value is None else "secret.set"
        with self.audited(act, caller, detail=name):
            if value is None:
                self.secrets.remove(name)
            else:
                self.secrets.set(name, value)

    @cached_property
    def keys(self) -> ApiKeyService:
        """The API keys."""
        return ApiKeyService(lambda: self._store().keys, self)

    @cached_property
    def audit(self) -> AuditReader:
        """The reader of the audit log."""
        return AuditReader(self._open_audit_log, self)

    def close(self) -> None:
        """Write pending audit records and close the audit log."""
        self.recorder.close()
        if audit := self.__dict__.get("audit"):
            audit.close()

    def _decide(
        self,
        act: str,
        approval_id: str,
        verdict: ApprovalVerdict,
        session: SessionToken,
        check_arguments: Callable[[Approval], None],
    ) -> Approval:
        caller = self.caller(session)
        approval = self.approvals.get(approval_id)
        fields = approval.model_dump(include={"tool", "digest", "call_id"}) if approval else {}
        is_local = self.is_local_person(session)
        note = ""
        if verdict.approve and approval is not None and approval.user == caller.who:
            may = may_answer(caller, approval, is_local=is_local)
            note = "(self-approved)" if may else ""
        detail = " ".join(part for part in (approval_id, note, verdict.reason) if part)
        with self.audited(act, caller, detail=detail, **fields):
            return self.approvals.decide(
                approval_id, verdict, caller, check_arguments, is_local=is_local
            )

    def _on_session(self, session: SessionRecord) -> None:
        """Audit the identity and privileges of a new session."""
        caller = session.caller
        is_key = session.key_id is not None
        parts = {
            "groups": sorted(caller.groups),
            "privileges": sorted(self.live.rules().privileges_of(caller, from_key=is_key)),
            "tools": [] if caller.tools == ("*",) else caller.tools,
            "key": [session.key_id] if session.key_id else [],
        }
        detail = "; ".join(f"{name} {', '.join(items)}" for name, items in parts.items() if items)
        self.recording.queue("session.open", "ok", caller, detail=detail, surface=self._surface)

    def _on_change(self, summary: str, error: ConfigError | None) -> None:
        outcome = "failed" if error else "ok"
        self.recording.queue("config", outcome, detail=summary, surface=self._surface)

    def _open_for_writing(self) -> "AuditLog":
        """Open the audit log, and prune it after `audit_days`."""
        log, days = self._open_audit_log(), self._settings.audit_days
        # One extra day: otherwise nearly every process that opens the log would prune it.
        overdue = AuditFilter(until=time.time() - (days + 1) * DAY)
        if days and next(log.entries(overdue, 1), None) is not None:
            log.prune(time.time() - days * DAY, "audit_days")
        return log

    def _open_audit_log(self) -> "AuditLog":
        state = self._settings.prepare_state()
        key = audit_key(self._settings.audit_key, state)
        return open_audit_log(self._settings.store or state / "audit.db", key)
