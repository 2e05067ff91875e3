"""API keys: what programs show to get a session, over HTTP and MCP.

A key acts for one user, with the groups, privileges and tools that it was made with and
no others; `[privileges]` in the settings adds nothing to it. Only its hash is kept.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from toolkiln.app.own import SessionToken
from toolkiln.errors import InputError, NotAllowed
from toolkiln.execution import NoSession, refuse_ambiguous
from toolkiln.model import KEY_PREFIX, TOKEN_PREFIX, ApiKey, Caller, OpenSession, Privilege

if TYPE_CHECKING:
    from toolkiln.app.guarding import Guarding
    from toolkiln.store import Keys as KeyBook

_DAY = 86_400.0
_LONGEST_NAME = 100
_MOST_DAYS = 3_650
_SHORTEST = 0.001


@dataclass(frozen=True)
class Scope:
    """Whom a key acts for, and how far."""

    user_id: str
    groups: Sequence[str] = ()
    privileges: Sequence[str] = ()
    tools: Sequence[str] = ("*",)
    days: float | None = 90
    """How long it holds; None: until it is revoked."""


class MadeKey(NamedTuple):
    """A key that was just made: the only time that it can be seen."""

    text: str
    key: ApiKey


class Keys:
    """The keys of one store."""

    def __init__(self, book: "Callable[[], KeyBook]", guarding: "Guarding") -> None:
        self._open = book
        self._guarding = guarding

    def create(self, name: str, scope: Scope, session: SessionToken) -> MadeKey:
        """Make a key.

        Raises:
            NotAllowed: whoever holds the session has no ADMIN, or lacks a privilege themselves.
            InputError: the name is taken or unusable.
        """
        admin = self._guarding.require(session, Privilege.ADMIN, "key.create")
        if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise InputError(f"a key's name has 1 to {_LONGEST_NAME} printable characters")
        if not scope.user_id or not scope.tools:
            raise InputError("a key acts for a user, with at least one tool")
        if scope.days is not None and not 0 < scope.days <= _MOST_DAYS:
            raise InputError(f"a key holds for more than 0 and at most {_MOST_DAYS} days")
        caller = Caller(
            user_id=scope.user_id,
            groups=frozenset(scope.groups),
            privileges=frozenset(scope.privileges),
            tools=tuple(scope.tools),
        )
        refuse_ambiguous(caller)
        text = KEY_PREFIX + secrets.token_urlsafe(32)
        now = time.time()
        key = ApiKey(
            id=secrets.token_hex(6),
            name=name,
            caller=caller,
            created=now,
            created_by=admin.who,
            expires=None if scope.days is None else now + scope.days * _DAY,
        )
        with self._guarding.act("key.create", admin, detail=f"{key.id} {name}"):
            refuse_unheld(admin, scope.privileges)
            self._open().add(key, _hash(text))
        return MadeKey(text, key)

    def rotate(self, which: str, keep_seconds: float, session: SessionToken) -> MadeKey:
        """Make a key that replaces another, by its id or name, and has its scope and lifetime.

        The old key stays valid for `keep_seconds`; with 0 it is revoked, with its sessions.

        Raises:
            NotAllowed: the session has no ADMIN, or lacks a privilege that the key has.
            InputError: there is no such key.
        """
        admin = self._guarding.require(session, Privilege.ADMIN, "key.rotate")
        if not 0 <= keep_seconds <= _MOST_DAYS * _DAY:
            raise InputError(f"a replaced key stays valid for at most {_MOST_DAYS} days")
        text, now = KEY_PREFIX + secrets.token_urlsafe(32), time.time()

        def made(old: ApiKey) -> tuple[ApiKey, str]:
            refuse_unheld(admin, old.caller.privileges)
            lifetime = None if old.expires is None else old.expires - old.created
            key = ApiKey(
                id=secrets.token_hex(6),
                name=old.name,
                caller=old.caller,
                created=now,
                created_by=admin.who,
                expires=None if lifetime is None else now + lifetime,
            )
            replaced.append(old.id)
            return key, _hash(text)

        replaced: list[str] = []
        with self._guarding.act("key.rotate", admin, detail=which):
            key = self._open().rotate(which, made, keep_seconds)
            if not keep_seconds:
                self._open().revoke(replaced[-1])
                self._guarding.sessions.end_of_key(replaced[-1])
        return MadeKey(text, key)

    def any_valid(self) -> bool:
        """Return whether the project has a key that is neither revoked nor expired."""
        return self._open().any_valid()

    def list(self) -> list[ApiKey]:
        """All keys, those that do not hold any more too."""
        return self._open().list()

    def revoke(self, which: str, session: SessionToken) -> ApiKey:
        """Let a key and all its sessions hold no longer; by its id or name.

        Raises:
            NotAllowed: whoever holds the session has no ADMIN.
            InputError: there is no such key.
        """
        admin = self._guarding.require(session, Privilege.ADMIN, "key.revoke")
        with self._guarding.act("key.revoke", admin, detail=which):
            key = self._open().revoke(which)
            self._guarding.sessions.end_of_key(key.id)
            return key

    def session(self, text: str, seconds: float | None = None) -> OpenSession:
        """A session for whoever shows a key.

        Raises:
            NoSession: it is no key, or does not hold any more.
        """
        if text.startswith(TOKEN_PREFIX):
            raise NoSession(
                "this is a session token, not an API key",
                hint="set TOOLKILN_TOKEN, or send `Authorization: Bearer ts_…`",
            )
        key = self._open().find(_hash(text)) if text.startswith(KEY_PREFIX) else None
        if key is None:
            raise NoSession(
                "this API key is unknown, revoked or expired",
                hint="an operator makes one with `toolkiln keys create`",
            )
        if key.expires is not None:  # what it makes holds no longer than the key itself
            usual = self._guarding.live.current().session_seconds if seconds is None else seconds
            seconds = min(usual, max(key.expires - time.time(), _SHORTEST))
        opened = self._guarding.sessions.open(key.caller, seconds=seconds, key_id=key.id)
        if self._open().find(_hash(text)) is None:  # revoked meanwhile, and its sessions ended
            self._guarding.sessions.end(opened.token)
        return opened


def refuse_unheld(giver: Caller, given: Iterable[str]) -> None:
    """See that nobody gives away a privilege of Toolkiln's that they do not have.

    Raises:
        NotAllowed: somebody tries to.
    """
    if unheld := sorted({*given} & {*Privilege} - giver.privileges):
        raise NotAllowed(f"{giver.who} has no {unheld[0]} to give away")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
