"""Policy rules and decisions, approvals and rate limits."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import computed_field

from toolkiln.model.base import Value

Effect = Literal["allow", "deny", "ask"]
Hint = Literal["read_only", "destructive", "idempotent", "open_world"]


class Rule(Value):
    """One rule of the operator's policy; all fields that are set must match."""

    effect: Effect
    """`ask`: the call is allowed once a person approves it."""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    privileges: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Globs."""
    toolkits: tuple[str, ...] = ()
    """Globs."""
    hints: tuple[Hint, ...] = ()
    """Hints the tool must declare; undeclared hints never match."""
    approve_own: bool | None = None
    """Whether callers may approve their own calls under this rule. If unset, only the local
    person may, at the command line or signed in with the start-up link."""
    reason: str = ""


class PolicyDecision(NamedTuple):
    """Whether a caller may run a tool, and why."""

    effect: Effect
    why: str
    rule: int | None = None
    """Number of the deciding rule, from 1; None for the default or the session's limits."""
    approve_own: bool | None = None
    """As in the rule."""
    names_user: bool = False
    """Whether the rule names the caller in `users`; `*` does not count."""


ApprovalState = Literal["pending", "approved", "rejected", "expired", "withdrawn", "used"]
Remember = Literal["session", "arguments"]
"""`session`: this version with any arguments, until the session ends. `arguments`: this
version with exactly these arguments, for this user, in later sessions too."""


class Approval(Value):
    """A call that waits or waited for approval, bound to a version, arguments and a caller."""

    id: str
    tool: str
    digest: str
    arguments: dict[str, Any]
    """Arguments as displayed and as run."""
    user: str
    """The caller, as in `Caller.who`."""
    session: str
    """Public id of the caller's session."""
    call_id: str
    why: str
    """What required approval: the tool, its function, or a rule."""
    approve_own: bool | None = None
    """As in the rule: whether callers may approve their own calls; null, only the local person
    may."""
    created: float
    expires: float
    state: ApprovalState = "pending"
    decided_by: str = ""
    decided: float | None = None
    reason: str = ""
    edited: dict[str, Any] | None = None
    """The arguments as edited by the person."""
    remember: Remember | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def self_approved(self) -> bool:
        """Whether the caller approved their own call."""
        return self.state in ("approved", "used") and self.decided_by == self.user


class ApprovalVerdict(Value):
    """A person's decision on a pending call."""

    approve: bool
    by: str
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """Edited arguments to run with."""
    remember: Remember | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: a token bucket of `count` that refills within `seconds`."""

    count: int
    seconds: float


class Draw(NamedTuple):
    """One token to take from a bucket."""

    bucket: str
    rate: Rate
