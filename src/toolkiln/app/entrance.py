"""Who comes in through a surface: with an API key, a session's token, or from this machine.

Surfaces hand over what a request showed and get the token of a session; whether that may
do anything is decided by the gateway, as for everybody.
"""

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from toolkiln.app.own import account
from toolkiln.execution import NoSession
from toolkiln.model import Caller, OpenSession, Privilege

if TYPE_CHECKING:
    from toolkiln.app.guarding import Guarding

_KEY = "tk_"
_SPARE = 0.2
"""The share of a session's time that must be left for it to be used again."""
_MOST_KEPT = 10_000
_VISIT = 8 * 3600.0
"""Seconds that a person who logged in stays so: a day's work."""


class Entrance:
    """One way in; any thread may ask."""

    def __init__(self, guarding: "Guarding", *, is_local: bool) -> None:
        """With `is_local`, whoever shows nothing acts for the account that runs this process."""
        self._guarding = guarding
        self._is_local = is_local
        self._opened: dict[str, tuple[OpenSession, float]] = {}
        """By key, with the time after which another one is opened."""
        self._opening = threading.Lock()
        self._agents: dict[str, str] = {}

    def person(self, credential: str | None) -> str:
        """The session of somebody who asks for themselves.

        Raises:
            NoSession: nobody is known by what was shown.
        """
        if credential is None and self._is_local:
            return self._guarding.operator
        return self._shown(credential)

    def agent(self, credential: str | None, name: str = "mcp") -> str:
        """The session of a program that acts for somebody.

        From this machine it is known as `mcp:ACCOUNT`, so that the person who runs it can
        approve what it asks for, and may write tools but not approve or administer.

        Raises:
            NoSession: nobody is known by what was shown.
        """
        if credential is None and self._is_local:
            if name not in self._agents:
                caller = Caller(
                    user_id=account(),
                    platform=name,
                    privileges=frozenset({Privilege.WRITE_TOOLS}),
                    workspace="default",
                )
                self._agents[name] = self._guarding.sessions.local(caller)
            return self._agents[name]
        return self._shown(credential)

    def log_in(self, key: str, whence: str) -> OpenSession:
        """A session of some hours for a person who shows a key; recorded.

        `whence` says in the record from where they came.

        Raises:
            NoSession: it is no key, or does not hold any more.
        """
        opened = self._guarding.keys.session(key, _VISIT)
        self._guarding.record("login", self._guarding.caller(opened.token), detail=whence)
        return opened

    def record_refusal(self, whence: str) -> None:
        """Record that somebody could not log in."""
        self._guarding.recording.denied("login", "", whence)

    def log_out(self, token: str) -> None:
        """End a session, if it holds still."""
        with suppress(NoSession):
            self._guarding.end_session(token)

    def is_own_agent(self, session: str) -> bool:
        """Whether a session is that of an agent of this machine."""
        return session in self._agents.values()

    def _shown(self, credential: str | None) -> str:
        if not credential:
            raise NoSession(
                "this needs an API key",
                hint="send `Authorization: Bearer tk_…`; `toolkiln keys create` makes one",
            )
        if not credential.startswith(_KEY):
            self._guarding.sessions.find(credential)
            return credential
        with self._opening:  # a key that is shown a hundred times at once makes one session
            opened, until = self._opened.get(credential, (None, 0.0))
            if opened is None or time.monotonic() >= until or not self._holds(opened):
                if len(self._opened) >= _MOST_KEPT:
                    self._opened.clear()
                opened = self._guarding.keys.session(credential)
                until = time.monotonic() + opened.seconds * (1 - _SPARE)
                self._opened[credential] = opened, until
        return opened.token

    def _holds(self, opened: OpenSession) -> bool:
        try:
            self._guarding.sessions.find(opened.token)
        except NoSession:  # the key was revoked, and whoever shows it is to be told that
            return False
        return True
