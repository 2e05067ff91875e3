"""Sessions: who makes a call, found by a token that the trusted side gave out.

A request carries the token and nothing else about its caller. Only a hash of the token is
kept, in the store or in Redis. What was found is believed for a second, so that a session
that another process ended is refused within that time, and one that this process ended at
once. The process's own people (the operator at a terminal, the program that opened a Kiln)
have sessions that live in its memory and nowhere else.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Protocol

from pydantic import ValidationError

from toolkiln.errors import InputError, nearest_hint
from toolkiln.model import ANONYMOUS, KEY_PREFIX, TOKEN_PREFIX, Caller, OpenSession, Session

_BELIEVED = 1.0
"""Seconds for which another process's word is not asked for again."""
_MOST_KNOWN = 10_000
_LONGEST = 200
_ALIAS, _PROOF = "ta_", 64
_MOST_SECONDS = 30 * 86_400.0


class NoSession(InputError):
    """There is no such session, or none any more."""

    code: ClassVar[str] = "no_session"


class SessionBook(Protocol):
    """Where sessions are kept, by the hash of their token."""

    def put(self, token_hash: str, session: Session, seconds: float) -> None:
        """Keep a session for so long."""
        ...

    def get(self, token_hash: str, *, running: bool = False) -> tuple[Session, float] | None:
        """One that holds, and for how long still; for a running call also one that expired."""
        ...

    def renew(self, token_hash: str, seconds: float) -> bool:
        """Let one that holds hold for so long from now."""
        ...

    def end(self, token_hash: str) -> bool:
        """Let one hold no longer."""
        ...

    def end_named(self, trace_id: str) -> Session | None:
        """Let the one that holds by this public name hold no longer; None if there is none."""
        ...

    def end_of_key(self, key_id: str) -> int:
        """Let all that were made with a key hold no longer."""
        ...

    def alive(self, limit: int = 100) -> list[tuple[Session, float]]:
        """Those that hold, newest first."""
        ...


@dataclass(slots=True)
class _Known:
    session: Session
    until: float
    """When it expires, on the monotonic clock."""
    believed_until: float


class Sessions:
    """The sessions of one store, and those of this process."""

    def __init__(
        self,
        book: Callable[[], SessionBook],
        seconds: Callable[[], float],
        opened: Callable[[Session], None] = lambda _: None,
    ) -> None:
        """`seconds` is how long a session holds unless its maker says otherwise.

        `opened` is told of each session before it is kept.
        """
        self._opened = opened
        self._open = book
        self._seconds = seconds
        self._known: dict[str, _Known] = {}
        self._alias_key = secrets.token_bytes(32)

    def create(self, user_id: str, *, seconds: float | None = None, **identity: Any) -> OpenSession:
        """Write a session down, for somebody whom the trusted side has authenticated.

        `identity` holds further fields of `Caller`: platform, guild_id, channel_id, groups,
        privileges, tools, agent_id, agent_state, workspace.

        Raises:
            InputError: a field is unknown or unusable.
            StoreError: it cannot be kept.
        """
        return self.open(_caller(user_id, identity), seconds=seconds)

    def open(
        self, caller: Caller, *, seconds: float | None = None, key_id: str | None = None
    ) -> OpenSession:
        """As `create`, for a caller that is complete but for its session."""
        held = self._held(seconds)
        token, session = _made(caller, key_id)
        self._opened(session)
        self._open().put(token_hash(token), session, held)
        return OpenSession(token, session.trace_id, held)

    def renew(self, token: str, seconds: float | None = None) -> None:
        """Let a session hold for longer.

        Raises:
            NoSession: it does not hold any more.
            InputError: an API key made it, whose own end must count.
        """
        if self.find(token).key_id is not None:
            hint = "show the key again, which makes another"
            raise InputError("a session that an API key made is not renewed", hint=hint)
        if not self._open().renew(self._hash(token), self._held(seconds)):
            raise _NONE
        self._forget(token)

    def end(self, token: str) -> bool:
        """Let a session hold no longer, also for calls that run."""
        ended = self._open().end(self._hash(token))
        self._forget(token)  # afterwards, so that nobody looks it up in between
        return ended

    def end_named(self, trace_id: str) -> Session | None:
        """Let a session hold no longer, by its public name; None if there is none that holds."""
        ended = self._open().end_named(trace_id)
        for token, known in list(self._known.items()):
            if known.session.trace_id == trace_id and known.until != inf:
                self._known.pop(token, None)
        return ended

    def end_of_key(self, key_id: str) -> int:
        """Let all sessions that were made with a key hold no longer."""
        ended = self._open().end_of_key(key_id)
        for token, known in list(self._known.items()):
            if known.session.key_id == key_id:
                self._known.pop(token, None)
        return ended

    def alive(self, limit: int = 100) -> list[tuple[Session, float]]:
        """The sessions that hold, newest first, with the seconds that they have left."""
        return self._open().alive(limit)

    def local(self, caller: Caller) -> str:
        """A session of this process's own: it holds until the process ends."""
        token, session = _made(caller, None)
        self._known[token] = _Known(session, inf, inf)
        return token

    def end_local(self, token: str) -> None:
        """End a session of this process, also where it was shared."""
        self._known.pop(token, None)
        self._open().end(token_hash(token))

    def share(self, token: str, seconds: float) -> None:
        """Let other processes know a session of this process's own, for so long.

        Raises:
            StoreError: it cannot be kept.
        """
        self._open().put(token_hash(token), self._known[token].session, seconds)

    def is_local(self, token: str) -> bool:
        """Whether a session is one of this process's own."""
        known = self._known.get(token)
        return known is not None and known.until == inf

    def alias(self, hashed: str) -> str:
        """A token that stands for a session by the hash of its own, in this process only.

        For calls that come through a queue, which carries no tokens. Always the same one;
        it holds as long as the session does, and means nothing to any other process.
        """
        proof = hmac.digest(self._alias_key, hashed.encode("utf-8", "surrogatepass"), "sha256")
        return f"{_ALIAS}{proof.hex()}{hashed}"

    def known(self, token: str | None, *, running: bool = False) -> Session | None:
        """A session that was looked up a moment ago; None says nothing."""
        found = self._known.get(token) if token else None
        if found is None:
            return None
        now = time.monotonic()
        if now >= found.believed_until or (now >= found.until and not running):
            return None
        return found.session

    def find(self, token: str | None, *, running: bool = False) -> Session:
        """The session of a token; `running` lets calls go on that began before it expired.

        Raises:
            NoSession: there is none, or it does not hold any more.
            StoreError: it cannot be looked up.
        """
        if not token:
            raise _MISSING
        if found := self.known(token, running=running):
            return found
        now = time.monotonic()
        kept = self._open().get(self._hash(token), running=running)
        if kept is None:
            self._known.pop(token, None)
            raise _KEY if token.startswith(KEY_PREFIX) else _NONE
        session, left = kept
        if len(self._known) >= _MOST_KNOWN:
            self._known = {t: k for t, k in list(self._known.items()) if k.until == inf}
        self._known[token] = _Known(session, now + left, now + _BELIEVED)
        return session

    def _hash(self, token: str) -> str:
        """By what the book knows a session; an alias tells, if it is one of ours."""
        if token.startswith(_ALIAS) and token.isascii():
            hashed = token[len(_ALIAS) + _PROOF :]
            if hmac.compare_digest(token, self.alias(hashed)):
                return hashed
        return token_hash(token)

    def _forget(self, token: str) -> None:
        self._known.pop(token, None)
        self._known.pop(self.alias(self._hash(token)), None)

    def _held(self, seconds: float | None) -> float:
        held = self._seconds() if seconds is None else seconds
        if not 0 < held <= _MOST_SECONDS:
            raise InputError(f"a session holds for more than 0 s and at most {_MOST_SECONDS:.0f} s")
        return held


_MISSING = NoSession(
    "this call has no session, so nobody is known to have made it",
    hint="the trusted side makes one with sessions.create(…) and hands its token over",
)
_NONE = NoSession(
    "this session is unknown, has ended or has expired",
    hint="ask whoever made it for another; sessions have to be renewed in time",
)
_KEY = NoSession(
    "this is an API key, not a session token",
    hint="set TOOLKILN_API_KEY, or open a session with it: `kiln.guarding.keys.session(key).token`",
)


def _made(caller: Caller, key_id: str | None) -> tuple[str, Session]:
    token, trace_id = TOKEN_PREFIX + secrets.token_urlsafe(32), secrets.token_hex(8)
    workspace = caller.workspace or f"session-{trace_id}"
    named = caller.model_copy(update={"session": trace_id, "workspace": workspace})
    return token, Session(trace_id=trace_id, caller=named, key_id=key_id)


def _caller(user_id: str, identity: dict[str, Any]) -> Caller:
    known = Caller.model_fields.keys() - {"user_id", "session"}
    if unknown := sorted(identity.keys() - known):
        hint = nearest_hint(unknown[0], known) or f"known: {', '.join(sorted(known))}"
        raise InputError(f"a caller has no {unknown[0]!r}", hint=hint)
    try:
        caller = Caller(user_id=user_id, **identity)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InputError(
            f"a session cannot be made: {wrong['loc'][0]}: {wrong['msg']}",
            hint="ids are texts, groups and privileges lists of texts",
        ) from None
    texts = [user_id, caller.platform, caller.guild_id, caller.channel_id, caller.agent_id]
    if not user_id or any(text is not None and len(text) > _LONGEST for text in texts):
        raise InputError(f"user_id is empty, or an id is longer than {_LONGEST} characters")
    refuse_ambiguous(caller)
    return caller


def refuse_ambiguous(caller: Caller) -> None:
    """Check that `who` names one user: `discord:42` can only be user 42 of discord.

    Raises:
        InputError: the name is ambiguous, or reserved for callers without a credential.
    """
    if caller.is_anonymous:
        raise InputError(
            f"the user name {ANONYMOUS!r} is reserved for requests without a credential",
            hint="choose another user name",
        )
    if ":" in (caller.platform or caller.user_id or ""):
        named = "a platform" if caller.platform else "a user of no platform"
        raise InputError(
            f"{named} has no colon in its name", hint='platform="discord", user_id="42"'
        )


def token_hash(token: str) -> str:
    """By what a session is kept and spoken of where its token must not be."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
