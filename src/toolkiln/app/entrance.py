"""Authentication of requests: which session a credential opens.

A request has an API key, the token of a session, or nothing. Surfaces pass on what it has and
get the token of a session; what that session may do is decided by the gateway. Over HTTP a
request without a credential is an anonymous caller, if the authentication mode allows it. Over
stdio it acts as an agent of the account that runs this process.
"""

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from toolkiln.app.authentication import Authentication, StartUpToken, is_loopback
from toolkiln.app.own import account
from toolkiln.config import Settings
from toolkiln.execution import NoSession
from toolkiln.model import ANONYMOUS, KEY_PREFIX, Caller, OpenSession

if TYPE_CHECKING:
    from toolkiln.app.guarding import Guarding

_SPARE = 0.2
"""The share of a session's time that must be left for it to be used again."""
_MOST_KEPT = 10_000
_VISIT = 8 * 3600.0
"""Seconds that a person who signed in with an API key stays signed in."""
_LOCAL_VISIT = 30 * 86_400.0
"""Seconds that a browser keeps the local person's cookie; the session ends with the process."""


class Entrance:
    """Maps credentials to sessions; may be used from any thread."""

    def __init__(self, guarding: "Guarding", settings: Settings) -> None:
        self._guarding = guarding
        self.authentication = Authentication(settings, guarding.keys.any_valid)
        self.start_up = StartUpToken() if is_loopback(settings.host) else None
        """What the local person signs in with; None where other machines can reach the server."""
        self._anonymous = guarding.sessions.local(Caller(user_id=ANONYMOUS, workspace=ANONYMOUS))
        agent = Caller(user_id=account(), platform="mcp", workspace="default")
        self._agent = guarding.sessions.local(agent)
        self._signed_in: set[str] = set()
        """The sessions that the start-up token opened."""
        self._opened: dict[str, tuple[OpenSession, float]] = {}
        """By key, with the time after which another one is opened."""
        self._opening = threading.Lock()

    def known_session(self, credential: str | None, *, is_local: bool = True) -> str | None:
        """The session of a request, if the store need not be asked; None says nothing."""
        if credential is not None or not is_local:
            return None
        mode = self.authentication.known_mode()
        return self._anonymous if mode is not None and mode.allows_anonymous else None

    def session(self, credential: str | None, *, is_local: bool = True) -> str:
        """The session of a request; may ask the store.

        `is_local`: the request came from this machine, not through a proxy.

        Raises:
            NoSession: the credential is missing or opens no session.
            StoreError: that cannot be looked up.
        """
        if credential is not None:
            return self._shown(credential)
        if not is_local:
            raise _needs_credential("the request came from another machine")
        mode = self.authentication.mode()
        if not mode.allows_anonymous:
            raise _needs_credential(mode.reason)
        return self._anonymous

    def agent(self) -> str:
        """The session of the program that started this process and speaks over stdio.

        It is known as `mcp:ACCOUNT`, so that the person who runs it can approve what it asks
        for, and has no privileges.
        """
        return self._agent

    def is_own_agent(self, session: str) -> bool:
        """Return whether a session is that of the agent over stdio."""
        return session == self._agent

    def log_in(self, key: str, whence: str) -> OpenSession:
        """Open a session of some hours for a person who shows a key; recorded.

        `whence` says in the record where the request came from.

        Raises:
            NoSession: the key is unknown, revoked or expired.
        """
        opened = self._guarding.keys.session(key, _VISIT)
        self._guarding.record("login", self._guarding.caller(opened.token), detail=whence)
        return opened

    def sign_in(self, token: str, whence: str) -> OpenSession:
        """Open the local person's session with the start-up token; recorded.

        Raises:
            NoSession: the token is wrong or was used.
        """
        if self.start_up is None or not self.start_up.take(token):
            raise NoSession(
                "this sign-in link is not valid, or was used before",
                hint="use the newest link in the server's terminal, or an API key",
            )
        session = self._guarding.operator_in("default")
        self._signed_in.add(session)
        caller = self._guarding.caller(session)
        self._guarding.record("login", caller, detail=f"start-up token {whence}".strip())
        return OpenSession(session, caller.session, _LOCAL_VISIT)

    def record_refusal(self, whence: str) -> None:
        """Record that a sign-in failed."""
        self._guarding.recording.denied("login", "", whence)

    def log_out(self, token: str) -> None:
        """End a session, if it is valid."""
        with suppress(NoSession):
            if token not in self._signed_in:
                self._guarding.end_session(token)
                return
            self._signed_in.discard(token)
            with self._guarding.act("session.end", self._guarding.caller(token)):
                self._guarding.sessions.end_local(token)

    def _shown(self, credential: str) -> str:
        if not credential:
            raise _needs_credential("the Authorization header has none")
        if not credential.startswith(KEY_PREFIX):
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
        except NoSession:  # the key was revoked, which the next look-up says
            return False
        return True


def _needs_credential(reason: str) -> NoSession:
    return NoSession(
        f"this needs an API key: {reason}",
        hint="send `Authorization: Bearer tk_…`; `toolkiln keys create` makes one",
    )
