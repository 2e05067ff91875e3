"""The authentication mode of a server, and the start-up token of the person who runs it.

The mode says whether a request without a credential is an anonymous caller or is refused, and
why. Which session a credential opens is decided in `entrance`.
"""

import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from toolkiln.config import Settings

_FRESH = 1.0
"""Seconds before the server looks again for API keys."""


@lru_cache
def is_loopback(name: str) -> bool:
    """Return whether a name or address, as in a Host header or a setting, is this machine's."""
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
        """One line for the log."""
        said = "anonymous callers allowed" if self.allows_anonymous else "credentials required"
        return f"{said} ({self.reason})"


def authentication_mode(settings: Settings, has_keys: Callable[[], bool]) -> AuthenticationMode:
    """Return the mode of a server; `has_keys` is asked only if it makes a difference.

    Raises:
        StoreError: the keys cannot be looked up.
    """
    if not is_loopback(settings.host):
        return AuthenticationMode(False, f"other machines can reach {settings.host}")
    if settings.require_key is True:
        return AuthenticationMode(False, "require_key is set")
    if settings.require_key is False:
        return AuthenticationMode(True, f"{settings.host}, require_key = false")
    if has_keys():
        return AuthenticationMode(False, "the project has API keys")
    return AuthenticationMode(True, f"{settings.host}, no API keys")


class Authentication:
    """The current mode: looked up at most once a second, from any thread."""

    def __init__(self, settings: Settings, has_keys: Callable[[], bool]) -> None:
        self._settings = settings
        self._has_keys = has_keys
        self._found: tuple[AuthenticationMode, float] | None = None
        self._asking = threading.Lock()

    @property
    def may_allow_anonymous(self) -> bool:
        """Whether the settings allow anonymous callers as long as there are no API keys."""
        return authentication_mode(self._settings, lambda: False).allows_anonymous

    def known_mode(self) -> AuthenticationMode | None:
        """The mode, if it was looked up within the last second."""
        found = self._found
        return found[0] if found is not None and time.monotonic() < found[1] else None

    def mode(self) -> AuthenticationMode:
        """The mode; may ask the store.

        Raises:
            StoreError: the keys cannot be looked up.
        """
        with self._asking:  # many requests at once ask the store once
            mode = self.known_mode()
            if mode is None:
                until = time.monotonic() + _FRESH
                mode = authentication_mode(self._settings, self._has_keys)
                self._found = mode, until
        return mode


class StartUpToken:
    """A token for one sign-in, in memory only. Each use replaces it with another."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(32)
        self._taking = threading.Lock()

    def take(self, text: str) -> bool:
        """Use up the token. Returns whether the text was the current one."""
        with self._taking:
            if not hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self.text.encode()):
                return False
            self.text = secrets.token_urlsafe(32)
        return True
