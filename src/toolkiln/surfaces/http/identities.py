"""`/v1/sessions` and `/v1/keys`: on whose behalf requests are made. A secret is shown once."""

import asyncio
import time
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkiln.app import NoSession, Scope
from toolkiln.errors import NotFound
from toolkiln.model import ApiKey, Privilege, Session, Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.shapes import Body, Name, Page

_MOST_SESSIONS = 10_000
_SECRET = {"cache-control": "no-store"}
Names = Annotated[list[Name], Field(max_length=200)]
Kind = Literal["anonymous", "local", "key", "session"]
Held = Annotated[float, Field(gt=0, le=30 * 86_400)]


class SessionBody(Body):
    """Whom a session acts for; whoever asks for it has made sure of that."""

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
    """Handed to tools that ask for it."""
    workspace: Annotated[str, Field(max_length=200)] = ""
    """Names the folder that its calls share; one of its own if that is empty."""
    seconds: Held | None = None
    """How long it holds, unless it is renewed; by default as set."""


class MadeSession(Value):
    """A session that was just made: the only time that its token can be seen."""

    token: str
    """Whoever shows it as `Authorization: Bearer …` acts for the user."""
    trace_id: str
    """Names the session in records, and is no proof of anything."""
    seconds: float


class ShownSession(Value):
    """A session that holds."""

    trace_id: str
    kind: Kind
    """How the caller is known: not at all, as the person who runs the server, by an API key, or by
    the token of a session."""
    user: str
    groups: tuple[str, ...]
    privileges: tuple[str, ...]
    tools: tuple[str, ...]
    agent_id: str | None
    key_id: str | None
    """The key that it was made with."""
    workspace: str
    seconds: float | None
    """How long it holds still."""


class SessionList(Value):
    """A part of the sessions that hold, newest first."""

    items: tuple[ShownSession, ...]
    next_cursor: str | None


class EndBody(Body):
    """Which session ends."""

    token: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    """By default the one that asks."""


class RenewBody(Body):
    """Which session holds for longer."""

    token: Annotated[str, Field(min_length=1, max_length=200)]
    seconds: Held | None = None


class NamedSession(Value):
    """Which session it was."""

    trace_id: str


class KeyBody(Body):
    """Whom a key acts for, and how far."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """What people call it."""
    user_id: Name
    groups: Names = Field(default_factory=list)
    privileges: Names = Field(default_factory=list)
    tools: Annotated[Names, Field(min_length=1)] = Field(default_factory=lambda: ["*"])
    """Globs of the tools that it is limited to."""
    days: Annotated[float, Field(gt=0, le=3650)] | None = 90
    """How long it holds; null: until it is revoked."""


class ShownKey(Value):
    """A key, but not what it is."""

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


class MadeKey(ShownKey):
    """A key that was just made: the only time that it can be seen."""

    key: str


class KeyList(Value):
    """A part of the keys, those that hold no longer too."""

    items: tuple[ShownKey, ...]
    next_cursor: str | None


async def create_session(visit: Visit, body: SessionBody) -> Answer:
    """Make a session for somebody."""

    def made() -> MadeSession:
        identity = body.model_dump(exclude={"user_id"})
        opened = visit.kiln.guarding.create_session(body.user_id, session=visit.session, **identity)
        return MadeSession(**opened._asdict())

    return Answer(await asyncio.to_thread(made), 201, _SECRET)


async def list_sessions(visit: Visit, query: Page) -> SessionList:
    """The sessions that hold."""

    def listed() -> SessionList:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "session.list")
        alive = visit.kiln.sessions.alive(_MOST_SESSIONS)
        found = [_session(session, left) for session, left in alive]
        # Sessions do not say how old they are: where the last one ended, the list begins anew.
        items, following = cursors.part(
            "sessions", found, lambda one: (0.0, one.trace_id), query.cursor, query.limit
        )
        return SessionList(items=tuple(items), next_cursor=following)

    return await asyncio.to_thread(listed)


async def get_own_session(visit: Visit) -> ShownSession:
    """On whose behalf this very request is made."""

    def got() -> ShownSession:
        found = visit.kiln.sessions.find(visit.session)
        held = found.model_copy(update={"caller": visit.caller})
        is_local = visit.kiln.guarding.is_local_person(visit.session)
        return _session(held, None, is_local=is_local)

    return await asyncio.to_thread(got)


async def end_session(visit: Visit, body: EndBody) -> NamedSession:
    """Let a session hold no longer."""
    token = body.token if body.token is not None else visit.session
    try:
        session = await asyncio.to_thread(visit.kiln.guarding.end_session, token)
    except NoSession as error:
        raise NotFound(error.message, hint=error.hint) from None
    return NamedSession(trace_id=session.trace_id)


async def end_named_session(visit: Visit) -> NamedSession:
    """Let somebody's session hold no longer."""
    end = visit.kiln.guarding.end_named_session
    session = await asyncio.to_thread(end, visit.path["session"], visit.session)
    return NamedSession(trace_id=session.trace_id)


async def renew_session(visit: Visit, body: RenewBody) -> NamedSession:
    """Let a session hold for longer."""

    def renewed() -> Session:
        try:
            return visit.kiln.guarding.renew_session(
                body.token, body.seconds, session=visit.session
            )
        except NoSession as error:
            raise NotFound(error.message, hint=error.hint) from None

    return NamedSession(trace_id=(await asyncio.to_thread(renewed)).trace_id)


async def create_key(visit: Visit, body: KeyBody) -> Answer:
    """Make a key."""

    def made() -> MadeKey:
        scope = Scope(**body.model_dump(exclude={"name"}))
        text, key = visit.kiln.guarding.keys.create(body.name, scope, visit.session)
        return MadeKey(key=text, **_key(key).model_dump())

    return Answer(await asyncio.to_thread(made), 201, _SECRET)


async def list_keys(visit: Visit, query: Page) -> KeyList:
    """All keys."""

    def listed() -> KeyList:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "key.list")
        found = [_key(key) for key in visit.kiln.guarding.keys.list()]
        items, following = cursors.part(
            "keys", found, lambda one: (one.created, one.id), query.cursor, query.limit
        )
        return KeyList(items=tuple(items), next_cursor=following)

    return await asyncio.to_thread(listed)


async def revoke_key(visit: Visit) -> ShownKey:
    """Let a key and all its sessions hold no longer."""
    revoke = visit.kiln.guarding.keys.revoke
    return _key(await asyncio.to_thread(revoke, visit.path["key"], visit.session))


def _session(session: Session, left: float | None, *, is_local: bool = False) -> ShownSession:
    caller = session.caller
    kind: Kind = "local" if is_local else "key" if session.key_id else "session"
    return ShownSession(
        trace_id=session.trace_id,
        kind="anonymous" if caller.is_anonymous else kind,
        user=caller.who,
        groups=tuple(sorted(caller.groups)),
        privileges=tuple(sorted(caller.privileges)),
        tools=caller.tools,
        agent_id=caller.agent_id,
        key_id=session.key_id,
        workspace=caller.workspace,
        seconds=left,
    )


def _key(key: ApiKey) -> ShownKey:
    caller = key.caller
    return ShownKey(
        **key.model_dump(exclude={"caller"}),
        user=caller.who,
        groups=tuple(sorted(caller.groups)),
        privileges=tuple(sorted(caller.privileges)),
        tools=caller.tools,
        holds=key.revoked is None and (key.expires is None or key.expires > time.time()),
    )


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/sessions",
        name="create_session",
        summary="Make a session for somebody",
        description=(
            "Takes the privilege ADMIN: whoever does this vouches for who the user is. "
            "Privileges of Toolkiln's that they do not have they cannot give."
        ),
        handle=create_session,
        group="identities",
        body=SessionBody,
        answers={201: MadeSession},
        idempotent_by_key=True,
        examples={"ann": {"user_id": "ann", "groups": ["staff"], "seconds": 600}},
    ),
    Operation(
        method="GET",
        path="/v1/sessions",
        name="list_sessions",
        summary="List the sessions that hold, newest first",
        description="Takes the privilege ADMIN.",
        handle=list_sessions,
        group="identities",
        query=Page,
        answers={200: SessionList},
    ),
    Operation(
        method="GET",
        path="/v1/sessions/own",
        name="get_own_session",
        summary="Tell on whose behalf this request is made, with which privileges",
        handle=get_own_session,
        group="identities",
        answers={200: ShownSession},
    ),
    Operation(
        method="POST",
        path="/v1/sessions/end",
        name="end_session",
        summary="End a session, also for calls that run",
        description="By whoever has its token.",
        handle=end_session,
        group="identities",
        body=EndBody,
        answers={200: NamedSession},
        idempotent_by_key=True,
    ),
    Operation(
        method="DELETE",
        path="/v1/sessions/{session}",
        name="end_named_session",
        summary="End somebody's session by its trace_id, also for calls that run",
        description="Takes the privilege ADMIN.",
        handle=end_named_session,
        group="identities",
        answers={200: NamedSession},
        idempotent_by_key=True,
    ),
    Operation(
        method="POST",
        path="/v1/sessions/renew",
        name="renew_session",
        summary="Let a session hold for longer",
        description="Takes the privilege ADMIN.",
        handle=renew_session,
        group="identities",
        body=RenewBody,
        answers={200: NamedSession},
        idempotent_by_key=True,
    ),
    Operation(
        method="POST",
        path="/v1/keys",
        name="create_key",
        summary="Make an API key",
        description="Takes the privilege ADMIN.",
        handle=create_key,
        group="identities",
        body=KeyBody,
        answers={201: MadeKey},
        idempotent_by_key=True,
        examples={"ci": {"name": "ci", "user_id": "ci", "tools": ["check_*"], "days": 30}},
    ),
    Operation(
        method="GET",
        path="/v1/keys",
        name="list_keys",
        summary="List the API keys, but not what they are",
        description="Takes the privilege ADMIN.",
        handle=list_keys,
        group="identities",
        query=Page,
        answers={200: KeyList},
    ),
    Operation(
        method="DELETE",
        path="/v1/keys/{key}",
        name="revoke_key",
        summary="End an API key with all its sessions, by its id or name",
        description="Takes the privilege ADMIN.",
        handle=revoke_key,
        group="identities",
        answers={200: ShownKey},
        problems=(409,),
        idempotent_by_key=True,
    ),
)
