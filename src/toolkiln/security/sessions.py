"""Sessions: the caller behind a token issued by the trusted side, and a process's credential.

A request carries the token and nothing else about its caller. The store or Redis has only a
hash of the token. Lookups are cached for a second: a session ended by another process is
rejected within that time, one ended by this process at once. Local sessions (of the operator
at a terminal, of the program that opened a Kiln) exist in the memory of this process only.
"""

import hashlib
import hmac
import os
import pwd
import secrets
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import ValidationError

from toolkiln.errors import InputError, nearest_hint
from toolkiln.model.identity import (
    ANONYMOUS,
    KEY_PREFIX,
    TOKEN_PREFIX,
    Caller,
    OpenSession,
    SessionRecord,
)

TOKEN_VARIABLE = "TOOLKILN_TOKEN"  # noqa: S105
KEY_VARIABLE = "TOOLKILN_API_KEY"
_KEY_AND_TOKEN = ("an API key", "a session token")
_CACHE_SECONDS = 1.0
_CACHED_SESSIONS = 10_000
_MAX_ID_LENGTH = 200
_ALIAS_PREFIX, _ALIAS_PROOF_LENGTH = "ta_", 64
_MAX_SECONDS = 30 * 86_400.0


class NoSession(InputError):
    """The session is unknown, has ended or has expired."""

    code: ClassVar[str] = "no_session"


class SessionStore(Protocol):
    """Storage of sessions by the hash of their token."""

    def put(self, token_hash: str, session: SessionRecord, seconds: float) -> None:
        """Store a session for this many seconds."""

    def get(self, token_hash: str, *, running: bool = False) -> tuple[SessionRecord, float] | None:
        """Return a valid session and its remaining seconds; if `running`, also an expired one."""

    def renew(self, token_hash: str, seconds: float) -> bool:
        """Extend a valid session to this many seconds from now."""

    def end(self, token_hash: str) -> bool:
        """End a session."""

    def end_by_trace_id(self, trace_id: str) -> SessionRecord | None:
        """End the valid session with this public id; None if there is none."""

    def end_by_key(self, key_id: str) -> int:
        """End all sessions opened with an API key."""

    def alive(self, limit: int = 100) -> list[tuple[SessionRecord, float]]:
        """Return valid sessions, newest first."""


@dataclass(slots=True)
class _CachedSession:
    session: SessionRecord
    expires: float
    """On the monotonic clock; `inf` for a local session."""
    fresh_until: float


class SessionService:
    """The sessions of one store, and the local sessions of this process."""

    def __init__(
        self,
        store: Callable[[], SessionStore],
        seconds: Callable[[], float],
        on_open: Callable[[SessionRecord], None] = lambda _: None,
    ) -> None:
        """`seconds` is the default lifetime; `on_open` runs before a session is stored."""
        self._on_open = on_open
        self._store = store
        self._seconds = seconds
        self._cache: dict[str, _CachedSession] = {}
        self._alias_key = secrets.token_bytes(32)

    def create(self, user_id: str, *, seconds: float | None = None, **identity: Any) -> OpenSession:
        """Create a session for a user whom the trusted side has authenticated.

        `identity` is further fields of `Caller`: platform, guild_id, channel_id, groups,
        privileges, tools, agent_id, agent_state, workspace.
        """
        return self.open(_caller(user_id, identity), seconds=seconds)

    def open(
        self, caller: Caller, *, seconds: float | None = None, key_id: str | None = None
    ) -> OpenSession:
        """Create a session for this caller."""
        lifetime = self._lifetime(seconds)
        token, session = _new_session(caller, key_id)
        self._on_open(session)
        self._store().put(token_hash(token), session, lifetime)
        return OpenSession(token, session.trace_id, lifetime)

    def renew(self, token: str, seconds: float | None = None) -> None:
        """Extend a session.

        Raises:
            NoSession: it has ended or expired.
            InputError: it was opened with an API key, which may expire earlier.
        """
        if self.find(token).key_id is not None:
            hint = "open another session with the key"
            raise InputError("a session opened with an API key cannot be renewed", hint=hint)
        if not self._store().renew(self._hash(token), self._lifetime(seconds)):
            raise _UNKNOWN
        self._forget(token)

    def end(self, token: str) -> bool:
        """End a session, including for running calls."""
        ended = self._store().end(self._hash(token))
        self._forget(token)  # afterwards, or a lookup in between would cache it again
        return ended

    def end_by_trace_id(self, trace_id: str) -> SessionRecord | None:
        """End a session by its public id; None if no valid session has it."""
        ended = self._store().end_by_trace_id(trace_id)
        self._forget_all(lambda session: session.trace_id == trace_id)
        return ended

    def end_by_key(self, key_id: str) -> int:
        """End all sessions opened with an API key."""
        ended = self._store().end_by_key(key_id)
        self._forget_all(lambda session: session.key_id == key_id)
        return ended

    def alive(self, limit: int = 100) -> list[tuple[SessionRecord, float]]:
        """Return valid sessions with their remaining seconds, newest first."""
        return self._store().alive(limit)

    def local(self, caller: Caller) -> str:
        """Create a local session, which is valid until the process ends. Returns its token."""
        token, session = _new_session(caller, None)
        self._cache[token] = _CachedSession(session, inf, inf)
        return token

    def end_local(self, token: str) -> None:
        """End a local session, including where it was shared."""
        self._cache.pop(token, None)
        self._store().end(token_hash(token))

    def share(self, token: str, seconds: float) -> None:
        """Store a local session for other processes, for this many seconds."""
        self._store().put(token_hash(token), self._cache[token].session, seconds)

    def is_local(self, token: str) -> bool:
        """Return whether a session is local."""
        cached = self._cache.get(token)
        return cached is not None and cached.expires == inf

    def alias(self, hashed: str) -> str:
        """Return a substitute token for a session known by its token's hash only.

        For calls from a queue, which carries no tokens. The alias is always the same, is valid
        as long as the session, and only in this process.
        """
        proof = hmac.digest(self._alias_key, hashed.encode("utf-8", "surrogatepass"), "sha256")
        return f"{_ALIAS_PREFIX}{proof.hex()}{hashed}"

    def known(self, token: str | None, *, running: bool = False) -> SessionRecord | None:
        """Return a cached session; None if it must be looked up."""
        cached = self._cache.get(token) if token else None
        if cached is None:
            return None
        now = time.monotonic()
        if now >= cached.fresh_until or (now >= cached.expires and not running):
            return None
        return cached.session

    def find(self, token: str | None, *, running: bool = False) -> SessionRecord:
        """Return the session of a token; with `running`, also one that expired during a call.

        Raises:
            NoSession: it is unknown, has ended or has expired.
        """
        if not token:
            raise _MISSING
        if cached := self.known(token, running=running):
            return cached
        now = time.monotonic()
        stored = self._store().get(self._hash(token), running=running)
        if stored is None:
            self._cache.pop(token, None)
            raise _IS_KEY if token.startswith(KEY_PREFIX) else _UNKNOWN
        session, remaining = stored
        if len(self._cache) >= _CACHED_SESSIONS:
            self._cache = {t: c for t, c in list(self._cache.items()) if c.expires == inf}
        self._cache[token] = _CachedSession(session, now + remaining, now + _CACHE_SECONDS)
        return session

    def _hash(self, token: str) -> str:
        if token.startswith(_ALIAS_PREFIX) and token.isascii():
            hashed = token[len(_ALIAS_PREFIX) + _ALIAS_PROOF_LENGTH :]
            if hmac.compare_digest(token, self.alias(hashed)):
                return hashed
        return token_hash(token)

    def _forget(self, token: str) -> None:
        self._cache.pop(token, None)
        self._cache.pop(self.alias(self._hash(token)), None)

    def _forget_all(self, is_ended: Callable[[SessionRecord], bool]) -> None:
        for token, cached in list(self._cache.items()):
            if cached.expires != inf and is_ended(cached.session):  # a local session has no key
                self._cache.pop(token, None)

    def _lifetime(self, seconds: float | None) -> float:
        lifetime = self._seconds() if seconds is None else seconds
        if not 0 < lifetime <= _MAX_SECONDS:
            raise InputError(
                f"the lifetime of a session must be above 0 s and at most {_MAX_SECONDS:.0f} s"
            )
        return lifetime


_MISSING = NoSession(
    "this call has no session, so its caller is unknown",
    hint="create a session with sessions.create(…) and pass its token",
)
_UNKNOWN = NoSession(
    "this session is unknown, has ended or has expired",
    hint="get a new token from the program that created the session; renew sessions in time",
)
_IS_KEY = NoSession(
    "this is an API key, not a session token",
    hint="set TOOLKILN_API_KEY, or open a session with it: `kiln.security.keys.session(key).token`",
)


def _new_session(caller: Caller, key_id: str | None) -> tuple[str, SessionRecord]:
    token, trace_id = TOKEN_PREFIX + secrets.token_urlsafe(32), secrets.token_hex(8)
    workspace = caller.workspace or f"session-{trace_id}"
    caller = caller.model_copy(update={"session": trace_id, "workspace": workspace})
    return token, SessionRecord(trace_id=trace_id, caller=caller, key_id=key_id)


def _caller(user_id: str, identity: dict[str, Any]) -> Caller:
    fields = Caller.model_fields.keys() - {"user_id", "session"}
    if unknown := sorted(identity.keys() - fields):
        hint = nearest_hint(unknown[0], fields) or f"known: {', '.join(sorted(fields))}"
        raise InputError(f"a caller has no field {unknown[0]!r}", hint=hint)
    try:
        caller = Caller(user_id=user_id, **identity)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InputError(
            f"cannot create a session: {problem['loc'][0]}: {problem['msg']}",
            hint="ids are strings, groups and privileges are lists of strings",
        ) from None
    ids = [user_id, caller.platform, caller.guild_id, caller.channel_id, caller.agent_id]
    if not user_id or any(text is not None and len(text) > _MAX_ID_LENGTH for text in ids):
        raise InputError(f"user_id is empty, or an id is longer than {_MAX_ID_LENGTH} characters")
    check_identity(caller)
    return caller


def check_identity(caller: Caller) -> None:
    """Check that `Caller.who` names one user: `discord:42` can only be user 42 of discord.

    Raises:
        InputError: the name is ambiguous, or reserved for callers without a credential.
    """
    if caller.is_anonymous:
        raise InputError(
            f"the user name {ANONYMOUS!r} is reserved for requests without a credential",
            hint="choose another user name",
        )
    if ":" in (caller.platform or caller.user_id or ""):
        field = "platform" if caller.platform else "user_id without a platform"
        raise InputError(
            f"a {field} must not contain a colon", hint='use platform="discord", user_id="42"'
        )


def token_hash(token: str) -> str:
    """Return the name of a session where its token must not appear."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


SESSION: ContextVar[str | None] = ContextVar("toolkiln_session", default=None)


def acting_session() -> str | None:
    """Return the session token of the running call; None outside of a call."""
    return SESSION.get()


class LocalOperator(Enum):
    """Placeholder for the session of the account that runs this process."""

    SESSION = "own"


LOCAL_OPERATOR = LocalOperator.SESSION
SessionToken = str | None | Literal[LocalOperator.SESSION]
"""A token, None for a request without one, or `LOCAL_OPERATOR`."""


def account_name() -> str:
    """Return the name of the account that runs this process."""
    uid = f"uid {os.getuid()}"
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an account without a name, as in containers
        return uid
    return uid if name == ANONYMOUS else name


class Credential(NamedTuple):
    """A session token or an API key, and where it was found."""

    text: str
    source: str
    """The option or the environment variable, for messages."""


def find_credential(environ: Mapping[str, str], token: str | None = None) -> Credential | None:
    """Return the credential of this process; None: it acts as the local operator.

    `token` is the value of an option and takes precedence over the environment.

    Raises:
        InputError: both variables are set, a value is empty, or it is the other kind of credential.
    """
    if token is not None:
        return _checked(Credential(token, "--token"))
    if TOKEN_VARIABLE in environ and KEY_VARIABLE in environ:
        raise InputError(
            f"{TOKEN_VARIABLE} and {KEY_VARIABLE} are both set",
            hint="unset one of them: a command has one caller",
        )
    for variable in (TOKEN_VARIABLE, KEY_VARIABLE):
        if variable in environ:
            return _checked(Credential(environ[variable], variable))
    return None


def _checked(found: Credential) -> Credential:
    text, source = found
    is_key = source == KEY_VARIABLE
    kind, other = _KEY_AND_TOKEN if is_key else reversed(_KEY_AND_TOKEN)
    other_prefix = TOKEN_PREFIX if is_key else KEY_PREFIX
    other_variable = TOKEN_VARIABLE if is_key else KEY_VARIABLE
    if not text.strip():
        remedy = "leave out --token" if source == "--token" else f"unset {source}"
        raise InputError(
            f"{source} is empty; {kind} is expected", hint=f"{remedy} to act as the local operator"
        )
    if text.startswith(other_prefix):
        raise InputError(f"{source} is {other}, not {kind}", hint=f"set {other_variable} instead")
    if is_key and not text.startswith(KEY_PREFIX):
        raise InputError(
            f"{KEY_VARIABLE} is not an API key: keys start with {KEY_PREFIX}",
            hint="an operator can create one with `toolkiln keys create`",
        )
    return found
