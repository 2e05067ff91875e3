"""Session and API key operations. A token or key is returned once, when it is created."""

import time
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkiln.errors import NotFound
from toolkiln.model.base import Page, Value
from toolkiln.model.identity import KeyRecord, Privilege, SessionRecord
from toolkiln.operations.operation import Nothing, OperationContext, PageQuery, operation, page_of
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import NoSession

_MOST_SESSIONS = 10_000
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=200)]
Lifetime = Annotated[float, Field(gt=0, le=30 * 86_400)]
SessionKind = Literal["anonymous", "local", "key", "session"]


class CreateSession(Value):
    """The user of a session; the caller vouches for their identity."""

    user_id: Name
    platform: Name | None = None
    """Where the user id means something: `discord`, `slack` …"""
    guild_id: Name | None = None
    channel_id: Name | None = None
    groups: Names = Field(default_factory=list)
    privileges: Names = Field(default_factory=list)
    tools: Annotated[Names, Field(min_length=1)] = Field(default_factory=lambda: ["*"])
    """Globs of the tools that it is limited to."""
    agent_id: Name | None = None
    agent_state: dict[str, Any] = Field(default_factory=dict)
    """Passed to tools that ask for it."""
    workspace: Annotated[str, Field(max_length=200)] = ""
    """Names the folder that its calls share; empty: one of its own."""
    seconds: Lifetime | None = None
    """Its lifetime unless it is renewed; by default the setting."""


class NewSession(Value):
    """A new session. The token is shown only once."""

    token: str
    """Requests with `Authorization: Bearer …` act for the user."""
    trace_id: str
    """Names the session in records; it is no credential."""
    seconds: float


class Session(Value):
    """A valid session."""

    trace_id: str
    kind: SessionKind
    """How the caller signed in: not at all, as the person who runs the server, with an API key,
    or with the token of a session."""
    user: str
    groups: tuple[str, ...]
    privileges: tuple[str, ...]
    tools: tuple[str, ...]
    agent_id: str | None
    key_id: str | None
    """The key that opened it."""
    workspace: str
    seconds: float | None
    """Its remaining lifetime."""


class EndSession(Value):
    """Names a session by its token."""

    token: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    """By default the session of the request."""


class RevokeSession(Value):
    """Names a session by its trace id."""

    session: str


class RenewSession(Value):
    """Extends a session."""

    token: Annotated[str, Field(min_length=1, max_length=200)]
    seconds: Lifetime | None = None


class SessionRef(Value):
    """Names a session."""

    trace_id: str


class CreateKey(Value):
    """The user and the limits of an API key."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """A label for people."""
    user_id: Name
    groups: Names = Field(default_factory=list)
    privileges: Names = Field(default_factory=list)
    tools: Annotated[Names, Field(min_length=1)] = Field(default_factory=lambda: ["*"])
    """Globs of the tools that it is limited to."""
    days: Annotated[float, Field(gt=0, le=3650)] | None = 90
    """Its lifetime; null: until it is revoked."""


class RotateKey(Value):
    """Replaces an API key."""

    key: str
    """Its id or name."""
    keep_seconds: float
    """How long the old key stays valid; 0 revokes it at once."""


class KeyRef(Value):
    """Names an API key."""

    key: str
    """Its id or name."""


class ApiKey(Value):
    """An API key, without the secret."""

    id: str
    name: str
    user: str
    groups: tuple[str, ...]
    privileges: tuple[str, ...]
    tools: tuple[str, ...]
    created: float
    created_by: str
    expires: float | None
    revoked: float | None
    last_used: float | None
    holds: bool
    """Whether it is neither revoked nor expired."""


class NewKey(ApiKey):
    """A new API key. The key is shown only once."""

    key: str


@operation("sessions.create", privilege=Privilege.ADMIN, act="session.create")
def create_session(context: OperationContext, request: CreateSession) -> NewSession:
    """Create a session for a user."""
    identity = request.model_dump(exclude={"user_id"})
    session = context.services.security.create_session(
        request.user_id, session=context.session, **identity
    )
    return NewSession(**session._asdict())


@operation("sessions.list", privilege=Privilege.ADMIN, act="session.list", read_only=True)
def list_sessions(context: OperationContext, request: PageQuery) -> Page[Session]:
    """Return the valid sessions, newest first."""
    valid = context.services.security.sessions.alive(_MOST_SESSIONS)
    sessions = [_session(record, left) for record, left in valid]
    # Sessions have no date of creation: if the one at the cursor ended, the list starts again.
    items, following = page_of(
        "sessions", sessions, lambda one: (0.0, one.trace_id), request.cursor, request.limit
    )
    return Page(items=tuple(items), next_cursor=following)


@operation("sessions.records", privilege=Privilege.ADMIN, act="session.list", read_only=True)
def list_session_records(
    context: OperationContext, _: Nothing
) -> list[tuple[SessionRecord, float]]:
    """Return the valid sessions with all that is known of their callers, and the seconds left."""
    return context.services.security.sessions.alive(_MOST_SESSIONS)


@operation("sessions.get_own", read_only=True)
def get_own_session(context: OperationContext, _: Nothing) -> Session:
    """Return the session of the request."""
    security = context.services.security
    record = security.sessions.find(security.token(context.session))
    is_local = security.is_local_person(context.session)
    return _session(record.model_copy(update={"caller": context.caller}), None, is_local=is_local)


@operation("sessions.end", act="session.end")
def end_session(context: OperationContext, request: EndSession) -> SessionRef:
    """End a session, including for running calls; its token is enough."""
    security = context.services.security
    token = request.token if request.token is not None else security.token(context.session)
    try:
        return SessionRef(trace_id=security.end_session(token or "").trace_id)
    except NoSession as error:
        raise NotFound(error.message, hint=error.hint) from None


@operation("sessions.revoke", privilege=Privilege.ADMIN, act="session.end")
def revoke_session(context: OperationContext, request: RevokeSession) -> SessionRef:
    """End the session of any user, including for running calls."""
    record = context.services.security.end_named_session(request.session, context.session)
    return SessionRef(trace_id=record.trace_id)


@operation("sessions.renew", privilege=Privilege.ADMIN, act="session.renew")
def renew_session(context: OperationContext, request: RenewSession) -> SessionRef:
    """Extend a valid session."""
    try:
        record = context.services.security.renew_session(
            request.token, request.seconds, session=context.session
        )
    except NoSession as error:
        raise NotFound(error.message, hint=error.hint) from None
    return SessionRef(trace_id=record.trace_id)


@operation("keys.create", privilege=Privilege.ADMIN, act="key.create")
def create_key(context: OperationContext, request: CreateKey) -> NewKey:
    """Create an API key."""
    scope = KeyScope(**request.model_dump(exclude={"name"}))
    text, record = context.services.security.keys.create(request.name, scope, context.session)
    return NewKey(key=text, **_key(record).model_dump())


@operation("keys.list", privilege=Privilege.ADMIN, act="key.list", read_only=True)
def list_keys(context: OperationContext, request: PageQuery) -> Page[ApiKey]:
    """Return the API keys, newest first, including revoked and expired ones."""
    keys = [_key(record) for record in context.services.security.keys.list()]
    items, following = page_of(
        "keys", keys, lambda one: (one.created, one.id), request.cursor, request.limit
    )
    return Page(items=tuple(items), next_cursor=following)


@operation("keys.rotate", privilege=Privilege.ADMIN, act="key.rotate")
def rotate_key(context: OperationContext, request: RotateKey) -> NewKey:
    """Create a key that replaces another one, which expires."""
    text, record = context.services.security.keys.rotate(
        request.key, request.keep_seconds, context.session
    )
    return NewKey(key=text, **_key(record).model_dump())


@operation("keys.revoke", privilege=Privilege.ADMIN, act="key.revoke")
def revoke_key(context: OperationContext, request: KeyRef) -> ApiKey:
    """Revoke an API key, and end its sessions."""
    return _key(context.services.security.keys.revoke(request.key, context.session))


def _session(record: SessionRecord, left: float | None, *, is_local: bool = False) -> Session:
    caller = record.caller
    kind: SessionKind = "local" if is_local else "key" if record.key_id else "session"
    return Session(
        trace_id=record.trace_id,
        kind="anonymous" if caller.is_anonymous else kind,
        user=caller.who,
        groups=tuple(sorted(caller.groups)),
        privileges=tuple(sorted(caller.privileges)),
        tools=caller.tools,
        agent_id=caller.agent_id,
        key_id=record.key_id,
        workspace=caller.workspace,
        seconds=left,
    )


def _key(record: KeyRecord) -> ApiKey:
    caller = record.caller
    return ApiKey(
        **record.model_dump(exclude={"caller"}),
        user=caller.who,
        groups=tuple(sorted(caller.groups)),
        privileges=tuple(sorted(caller.privileges)),
        tools=caller.tools,
        holds=record.revoked is None and (record.expires is None or record.expires > time.time()),
    )
