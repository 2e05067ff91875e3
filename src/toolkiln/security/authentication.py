"""Authentication of requests, and API keys.

A request has an API key, a session token or no credential. Surfaces pass it on and get a
session token; the gateway decides what that session may do. Over HTTP a request without a
credential comes from an anonymous caller, if the authentication mode allows it. Over stdio
the caller is an agent of the account that runs this process.
"""

import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from toolkiln.config import Settings
from toolkiln.errors import InputError, NotAllowed
from toolkiln.model.identity import (
    ANONYMOUS,
    KEY_PREFIX,
    TOKEN_PREFIX,
    Caller,
    KeyRecord,
    OpenSession,
    Privilege,
)
from toolkiln.security.audit import DAY
from toolkiln.security.sessions import (
    NoSession,
    SessionToken,
    account_name,
    check_identity,
    token_hash,
)

if TYPE_CHECKING:
    from toolkiln.security.security import Security
    from toolkiln.store.security_stores import SqlApiKeys

_MODE_CACHE_SECONDS = 1.0
_SPARE = 0.2
"""Fraction of a session's lifetime that must remain for it to be reused."""
_CACHED_SESSIONS = 10_000
_LOGIN_SECONDS = 8 * 3600.0
_LOCAL_LOGIN_SECONDS = 30 * DAY
"""Lifetime of the local person's cookie; the session itself ends with the process."""
_MAX_NAME_LENGTH = 100
_MAX_DAYS = 3_650
_MIN_SECONDS = 0.001


@lru_cache
def is_loopback(name: str) -> bool:
    """Return whether a host name or address is a loopback address."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


class AuthenticationMode(NamedTuple):
    """Whether requests without a credential are served, and why."""

    allows_anonymous: bool
    reason: str

    def __str__(self) -> str:
        """Return one line for the log."""
        mode = "anonymous callers allowed" if self.allows_anonymous else "credentials required"
        return f"{mode} ({self.reason})"


class Authentication:
    """The current mode, looked up at most once a second; thread-safe."""

    def __init__(self, settings: Settings, has_keys: Callable[[], bool]) -> None:
        self._settings = settings
        self._has_keys = has_keys
        self._cached: tuple[AuthenticationMode, float] | None = None
        self._lock = threading.Lock()

    @property
    def may_allow_anonymous(self) -> bool:
        """Whether the settings allow anonymous callers while there are no API keys."""
        return is_loopback(self._settings.host) and self._settings.require_key is not True

    def known_mode(self) -> AuthenticationMode | None:
        """Return the mode if it is cached."""
        cached = self._cached
        return cached[0] if cached is not None and time.monotonic() < cached[1] else None

    def mode(self) -> AuthenticationMode:
        """Return the mode; may query the store."""
        with self._lock:  # concurrent requests query the store once
            mode = self.known_mode()
            if mode is None:
                until = time.monotonic() + _MODE_CACHE_SECONDS
                mode = self._look_up()
                self._cached = mode, until
        return mode

    def _look_up(self) -> AuthenticationMode:
        host, require_key = self._settings.host, self._settings.require_key
        if not is_loopback(host):
            return AuthenticationMode(False, f"other machines can reach {host}")
        if require_key is True:
            return AuthenticationMode(False, "require_key is set")
        if require_key is False:
            return AuthenticationMode(True, f"{host}, require_key = false")
        if self._has_keys():
            return AuthenticationMode(False, "the project has API keys")
        return AuthenticationMode(True, f"{host}, no API keys")


class StartUpToken:
    """A token for one sign-in, in memory only; each use replaces it."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(32)
        self._lock = threading.Lock()

    def take(self, text: str) -> bool:
        """Use the token. Returns whether the text was the current one."""
        with self._lock:
            if not hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self.text.encode()):
                return False
            self.text = secrets.token_urlsafe(32)
        return True


class Authenticator:
    """Maps credentials to sessions; thread-safe."""

    def __init__(self, security: "Security", settings: Settings) -> None:
        self._security = security
        self.authentication = Authentication(settings, security.keys.any_valid)
        self.start_up = StartUpToken() if is_loopback(settings.host) else None
        """Signs in the local person; None if other machines can reach the server."""
        self._anonymous = security.sessions.local(Caller(user_id=ANONYMOUS, workspace=ANONYMOUS))
        agent = Caller(user_id=account_name(), platform="mcp", workspace="default")
        self._agent = security.sessions.local(agent)
        self._signed_in: set[str] = set()
        """Sessions opened with the start-up token."""
        self._key_sessions: dict[str, tuple[OpenSession, float]] = {}
        """By key, with the time after which another session is opened."""
        self._lock = threading.Lock()

    def known_session(self, credential: str | None, *, is_local: bool = True) -> str | None:
        """Return the session of a request without querying the store; None if that is needed."""
        if credential is not None or not is_local:
            return None
        mode = self.authentication.known_mode()
        return self._anonymous if mode is not None and mode.allows_anonymous else None

    def session(self, credential: str | None, *, is_local: bool = True) -> str:
        """Return the session of a request; may query the store.

        `is_local`: the request came from this machine, not through a proxy.

        Raises:
            NoSession: the credential is missing or invalid.
        """
        if credential is not None:
            return self._authenticated(credential)
        if not is_local:
            raise _needs_credential("the request came from another machine")
        mode = self.authentication.mode()
        if not mode.allows_anonymous:
            raise _needs_credential(mode.reason)
        return self._anonymous

    def agent(self) -> str:
        """Return the session of the program that started this process and uses stdio.

        The caller is `mcp:ACCOUNT`, not `ACCOUNT`: the person who runs the process can approve
        its calls. It has no privileges.
        """
        return self._agent

    def is_own_agent(self, session: str) -> bool:
        """Return whether a session belongs to the agent over stdio."""
        return session == self._agent

    def log_in(self, key: str, source: str) -> OpenSession:
        """Open a session of some hours with an API key; audited.

        `source` is where the request came from.
        """
        opened = self._security.keys.session(key, _LOGIN_SECONDS)
        self._security.record("login", self._security.caller(opened.token), detail=source)
        return opened

    def sign_in(self, token: str, source: str) -> OpenSession:
        """Open the local person's session with the start-up token; audited.

        Raises:
            NoSession: the token is wrong or was used.
        """
        if self.start_up is None or not self.start_up.take(token):
            raise NoSession(
                "this sign-in link is not valid, or was used before",
                hint="use the newest link in the server's terminal, or an API key",
            )
        session = self._security.operator_in("default")
        self._signed_in.add(session)
        caller = self._security.caller(session)
        self._security.record("login", caller, detail=f"start-up token {source}".strip())
        return OpenSession(session, caller.session, _LOCAL_LOGIN_SECONDS)

    def record_refusal(self, source: str) -> None:
        """Audit a failed sign-in."""
        self._security.recording.denied("login", "", source)

    def log_out(self, token: str) -> None:
        """End a session, if it is valid."""
        with suppress(NoSession):
            if token not in self._signed_in:
                self._security.end_session(token)
                return
            self._signed_in.discard(token)
            with self._security.audited("session.end", self._security.caller(token)):
                self._security.sessions.end_local(token)

    def _authenticated(self, credential: str) -> str:
        if not credential:
            raise _needs_credential("the Authorization header has none")
        if not credential.startswith(KEY_PREFIX):
            self._security.sessions.find(credential)
            return credential
        with self._lock:  # concurrent requests with one key open one session
            opened, until = self._key_sessions.get(credential, (None, 0.0))
            if opened is None or time.monotonic() >= until or not self._is_valid(opened):
                if len(self._key_sessions) >= _CACHED_SESSIONS:
                    self._key_sessions.clear()
                opened = self._security.keys.session(credential)
                until = time.monotonic() + opened.seconds * (1 - _SPARE)
                self._key_sessions[credential] = opened, until
        return opened.token

    def _is_valid(self, opened: OpenSession) -> bool:
        try:
            self._security.sessions.find(opened.token)
        except NoSession:  # the key may have been revoked: opening another session reports that
            return False
        return True


def _needs_credential(reason: str) -> NoSession:
    return NoSession(
        f"an API key is required: {reason}",
        hint="send `Authorization: Bearer tk_…`; `toolkiln keys create` creates a key",
    )


@dataclass(frozen=True)
class KeyScope:
    """The user of an API key, and its limits."""

    user_id: str
    groups: Sequence[str] = ()
    privileges: Sequence[str] = ()
    tools: Sequence[str] = ("*",)
    days: float | None = 90
    """Lifetime; None: until revoked."""


class NewApiKey(NamedTuple):
    """A key just created: the only time its text is available."""

    text: str
    key: KeyRecord


class ApiKeyService:
    """The API keys of one store; only ADMIN may change them, within its own privileges."""

    def __init__(self, store: "Callable[[], SqlApiKeys]", security: "Security") -> None:
        self._store = store
        self._security = security

    def create(self, name: str, scope: KeyScope, session: SessionToken) -> NewApiKey:
        """Create a key."""
        admin = self._security.require(session, Privilege.ADMIN, "key.create")
        if not 0 < len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
            raise InputError(
                f"the name of a key must have 1 to {_MAX_NAME_LENGTH} printable characters"
            )
        if not scope.user_id or not scope.tools:
            raise InputError("a key needs a user and at least one tool")
        if scope.days is not None and not 0 < scope.days <= _MAX_DAYS:
            raise InputError(f"the lifetime of a key must be above 0 and at most {_MAX_DAYS} days")
        caller = Caller(
            user_id=scope.user_id,
            groups=frozenset(scope.groups),
            privileges=frozenset(scope.privileges),
            tools=tuple(scope.tools),
        )
        check_identity(caller)
        created = _new_key(name, caller, admin, None if scope.days is None else scope.days * DAY)
        key = created.key
        with self._security.audited("key.create", admin, detail=f"{key.id} {name}"):
            check_grantable(admin, scope.privileges)
            self._store().add(key, token_hash(created.text))
        return created

    def rotate(self, which: str, keep_seconds: float, session: SessionToken) -> NewApiKey:
        """Replace a key, named by id or name, with a new one of the same scope and lifetime.

        The old key stays valid for `keep_seconds`; with 0 it is revoked, with its sessions.
        """
        admin = self._security.require(session, Privilege.ADMIN, "key.rotate")
        if not 0 <= keep_seconds <= _MAX_DAYS * DAY:
            raise InputError(f"a replaced key can stay valid for at most {_MAX_DAYS} days")
        replaced: list[str] = []
        created: list[NewApiKey] = []

        def replacement(old: KeyRecord) -> tuple[KeyRecord, str]:
            check_grantable(admin, old.caller.privileges)
            seconds = None if old.expires is None else old.expires - old.created
            new = _new_key(old.name, old.caller, admin, seconds)
            replaced.append(old.id)
            created.append(new)
            return new.key, token_hash(new.text)

        with self._security.audited("key.rotate", admin, detail=which):
            self._store().rotate(which, replacement, keep_seconds)
            if not keep_seconds:
                self._store().revoke(replaced[-1])
                self._security.sessions.end_by_key(replaced[-1])
        return created[-1]

    def any_valid(self) -> bool:
        """Return whether the project has a key that is neither revoked nor expired."""
        return self._store().any_valid()

    def list(self) -> list[KeyRecord]:
        """Return all keys, including revoked and expired ones."""
        return self._store().list()

    def revoke(self, which: str, session: SessionToken) -> KeyRecord:
        """Revoke a key, named by id or name, and end its sessions."""
        admin = self._security.require(session, Privilege.ADMIN, "key.revoke")
        with self._security.audited("key.revoke", admin, detail=which):
            key = self._store().revoke(which)
            self._security.sessions.end_by_key(key.id)
            return key

    def session(self, text: str, seconds: float | None = None) -> OpenSession:
        """Open a session with a key.

        Raises:
            NoSession: the key is unknown, revoked or expired.
        """
        if text.startswith(TOKEN_PREFIX):
            raise NoSession(
                "this is a session token, not an API key",
                hint="set TOOLKILN_TOKEN, or send `Authorization: Bearer ts_…`",
            )
        key = self._store().find(token_hash(text)) if text.startswith(KEY_PREFIX) else None
        if key is None:
            raise NoSession(
                "this API key is unknown, revoked or expired",
                hint="an operator can create one with `toolkiln keys create`",
            )
        if key.expires is not None:  # the session must not outlive the key
            default = self._security.live.current().session_seconds
            seconds = default if seconds is None else seconds
            seconds = min(seconds, max(key.expires - time.time(), _MIN_SECONDS))
        opened = self._security.sessions.open(key.caller, seconds=seconds, key_id=key.id)
        # It may have been revoked, and its sessions ended, before this one was stored.
        if self._store().find(token_hash(text)) is None:
            self._security.sessions.end(opened.token)
        return opened


def check_grantable(granter: Caller, privileges: Iterable[str]) -> None:
    """Check that a caller has the built-in privileges they grant.

    Raises:
        NotAllowed: they lack one.
    """
    if missing := sorted({*privileges} & {*Privilege} - granter.privileges):
        raise NotAllowed(f"{granter.who} cannot grant {missing[0]} without having it")


def _new_key(name: str, caller: Caller, creator: Caller, seconds: float | None) -> NewApiKey:
    now = time.time()
    key = KeyRecord(
        id=secrets.token_hex(6),
        name=name,
        caller=caller,
        created=now,
        created_by=creator.who,
        expires=None if seconds is None else now + seconds,
    )
    return NewApiKey(KEY_PREFIX + secrets.token_urlsafe(32), key)
