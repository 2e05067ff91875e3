"""Callers, privileges, sessions and API keys. A request carries only a token or a key."""

from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import Field

from toolkiln.model.base import Value

TOKEN_PREFIX, KEY_PREFIX = "ts_", "tk_"
"""Prefixes of session tokens and API keys; neither looks like a command-line option."""


class Privilege(StrEnum):
    """Built-in privileges; operators may define more."""

    UNSANDBOXED_EXEC = "UNSANDBOXED_EXEC"  # call or admit unsandboxed tools
    WRITE_TOOLS = "WRITE_TOOLS"  # write tools at run time
    APPROVE = "APPROVE"  # approve or reject pending calls
    ADMIN = "ADMIN"  # keys, grants, tool settings, retention


ANONYMOUS = "anonymous"
"""The user of requests without a credential. Reserved: it gets no keys or sessions."""


class Caller(Value):
    """The identity and privileges behind a session."""

    user_id: str | None = None
    platform: str | None = None
    """Namespace of the user id: `discord`, `slack` …"""
    guild_id: str | None = None
    channel_id: str | None = None
    groups: frozenset[str] = frozenset()
    privileges: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ("*",)
    """Globs of the tools that the session is limited to, in addition to the rules."""
    agent_id: str | None = None
    agent_state: dict[str, Any] = Field(default_factory=dict)
    session: str = ""
    """Public id of the session, as in the audit log."""
    workspace: str = ""
    """Name of the folder shared by the calls of one conversation; by default one per session."""

    @property
    def who(self) -> str:
        """The user as in rules and records: `ann`, or `discord:42`."""
        user = self.user_id or ""
        return f"{self.platform}:{user}" if self.platform else user

    @property
    def is_anonymous(self) -> bool:
        """Whether this is the identity of requests without a credential."""
        return self.user_id == ANONYMOUS and not self.platform


class SessionRecord(Value):
    """A stored session."""

    trace_id: str
    """Public id of the session in records; not a credential."""
    caller: Caller
    key_id: str | None = None
    """The API key that opened it."""


class OpenSession(NamedTuple):
    """A new session; its token is shown only once."""

    token: str
    """Credential of the caller."""
    trace_id: str
    seconds: float
    """Lifetime, unless it is renewed."""


class KeyRecord(Value):
    """A stored API key; the key itself is not stored."""

    id: str
    name: str
    caller: Caller
    """Identity, groups, privileges and tools of its sessions."""
    created: float
    created_by: str
    expires: float | None = None
    revoked: float | None = None
    last_used: float | None = None
