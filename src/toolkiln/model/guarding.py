"""Who calls, what they may, what people approved, what was recorded: values only.

Where these come from is decided elsewhere: callers by `execution.sessions`, decisions by
`execution.rules`, verdicts by people. No request carries any of them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic import Field, computed_field

from toolkiln.model.value import Value

TOKEN_PREFIX, KEY_PREFIX = "ts_", "tk_"
"""How session tokens and API keys begin; on a command line neither looks like an option."""


class Privilege(StrEnum):
    """The privileges that Toolkiln itself asks for; operators may name further ones."""

    UNSANDBOXED_EXEC = "UNSANDBOXED_EXEC"  # call or admit what runs outside the sandbox
    WRITE_TOOLS = "WRITE_TOOLS"  # write tools at run time
    APPROVE = "APPROVE"  # decide about calls that wait for a person
    ADMIN = "ADMIN"  # keys, grants, settings of tools, retention


ANONYMOUS = "anonymous"
"""The user of requests without a credential. Reserved: no key or session can be made for it."""


class Caller(Value):
    """On whose behalf a call runs; it comes from a session, never from a request."""

    user_id: str | None = None
    platform: str | None = None
    """Where the user id means something: `discord`, `slack` …"""
    guild_id: str | None = None
    channel_id: str | None = None
    groups: frozenset[str] = frozenset()
    privileges: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ("*",)
    """Globs of the tools that the session is limited to, whatever the rules say."""
    agent_id: str | None = None
    agent_state: dict[str, Any] = Field(default_factory=dict)
    session: str = ""
    """The public id of the session, as the audit names it."""
    workspace: str = ""
    """Names the folder that calls of one conversation share; a session makes up its own."""

    @property
    def who(self) -> str:
        """The user as rules and records name them: `ann`, or `discord:42`."""
        user = self.user_id or ""
        return f"{self.platform}:{user}" if self.platform else user

    @property
    def is_anonymous(self) -> bool:
        """Whether this is the shared identity of requests without a credential."""
        return self.user_id == ANONYMOUS and not self.platform


class Session(Value):
    """What the trusted side wrote down about somebody who may make calls for a while."""

    trace_id: str
    """Public: it names the session in records and is no proof of anything."""
    caller: Caller
    key_id: str | None = None
    """The API key that it was made with."""


class OpenSession(NamedTuple):
    """A session that was just made: the only time that its token can be seen."""

    token: str
    """What a request carries; whoever knows it acts as the caller."""
    trace_id: str
    seconds: float
    """How long it holds, unless it is renewed."""


class ApiKey(Value):
    """A key that makes sessions; the key itself is not kept."""

    id: str
    name: str
    caller: Caller
    """Whom its sessions act for, with which groups, privileges and tools."""
    created: float
    created_by: str
    expires: float | None = None
    revoked: float | None = None
    last_used: float | None = None


Effect = Literal["allow", "deny", "ask"]
Hint = Literal["read_only", "destructive", "idempotent", "open_world"]


class Rule(Value):
    """One line of the operator's rules: what is given must all fit, what is not fits anything."""

    effect: Effect
    """`ask`: it is allowed once a person has approved the call."""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    privileges: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Globs."""
    toolkits: tuple[str, ...] = ()
    """Globs."""
    hints: tuple[Hint, ...] = ()
    """What a tool must say of itself; one that says nothing fits no hint."""
    approve_own: bool | None = None
    """Whether callers may approve their own calls under this rule. Unset: only the local person
    may, at the command line or signed in with the start-up link."""
    reason: str = ""


class Decision(NamedTuple):
    """Whether somebody may run a tool, and why."""

    effect: Effect
    why: str
    rule: int | None = None
    """The place of the rule that decided, from 1; None: the default, or the session's limits."""
    approve_own: bool | None = None
    """As in the rule."""
    names_user: bool = False
    """Whether the rule lists the caller in `users`; `*` does not count."""


ApprovalState = Literal["pending", "approved", "rejected", "expired", "withdrawn", "used"]
Remember = Literal["session", "arguments"]
"""`session`: this version, any arguments, as long as the session lasts. `arguments`: this
version with exactly these arguments, for this user, in later sessions too."""


class Approval(Value):
    """A call that waits for a person, or waited: bound to a version, arguments and a caller."""

    id: str
    tool: str
    digest: str
    arguments: dict[str, Any]
    """As the person sees them, and as they run."""
    user: str
    """Whose call it is, as `Caller.who` says."""
    session: str
    """The public id of their session."""
    call_id: str
    why: str
    """What asked for it: the tool, its function, or a rule."""
    approve_own: bool | None = None
    """As in the rule: true, callers may approve their own calls; false, they may not; null, only
    the local person may."""
    created: float
    expires: float
    state: ApprovalState = "pending"
    decided_by: str = ""
    decided: float | None = None
    reason: str = ""
    edited: dict[str, Any] | None = None
    """The arguments that the person put in the place of the others."""
    remember: Remember | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def self_approved(self) -> bool:
        """Whether the caller approved their own call."""
        return self.state in ("approved", "used") and self.decided_by == self.user


class Verdict(Value):
    """What a person says about a call that waits."""

    approve: bool
    by: str
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """Other arguments to run with."""
    remember: Remember | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something may happen: a bucket of `count` that fills up within `seconds`."""

    count: int
    seconds: float


class Draw(NamedTuple):
    """One token to be taken from a bucket."""

    bucket: str
    rate: Rate


class AuditRecord(NamedTuple):
    """One line of the audit: of a call, or of an administrative act."""

    at: float
    """Unix time."""
    act: str
    """`call`, or what was done: `admit`, `approve`, `key.create` …"""
    outcome: str
    """`ok`, `denied`, `failed`, `exception` …; `started` ahead of the end."""
    user: str = ""
    agent: str = ""
    session: str = ""
    surface: str = ""
    tool: str = ""
    digest: str = ""
    call_id: str = ""
    parent: str = ""
    detail: str = ""
    duration: float | None = None
    """Seconds."""
    arguments: str = ""
    """JSON, of privileged calls only: references unresolved, secrets redacted, cut."""


class AuditEntry(NamedTuple):
    """A record in its place in the chain."""

    seq: int
    record: AuditRecord
    hash: str
    """Covers the record, its place and everything before it."""
