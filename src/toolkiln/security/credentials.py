"""Credentials of a process: a session token or an API key, from an option or the environment.

Only their form is checked here; `authentication` decides whether a credential is valid. Light to
import: commands without a credential load nothing else.
"""

from collections.abc import Mapping
from typing import NamedTuple

from toolkiln.errors import InputError
from toolkiln.model.identity import KEY_PREFIX, TOKEN_PREFIX

TOKEN_VARIABLE = "TOOLKILN_TOKEN"  # noqa: S105
KEY_VARIABLE = "TOOLKILN_API_KEY"


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
        return _token(Credential(token, "--token"), "leave out --token")
    if TOKEN_VARIABLE in environ and KEY_VARIABLE in environ:
        raise InputError(
            f"{TOKEN_VARIABLE} and {KEY_VARIABLE} are both set",
            hint="unset one of them: a command has one caller",
        )
    if TOKEN_VARIABLE in environ:
        found = Credential(environ[TOKEN_VARIABLE], TOKEN_VARIABLE)
        return _token(found, f"unset {TOKEN_VARIABLE}")
    if KEY_VARIABLE in environ:
        return _key(Credential(environ[KEY_VARIABLE], KEY_VARIABLE))
    return None


def _token(found: Credential, remedy: str) -> Credential:
    if not found.text.strip():
        raise InputError(
            f"{found.source} is empty; a session token is expected",
            hint=f"{remedy} to act as the local operator",
        )
    if found.text.startswith(KEY_PREFIX):
        raise InputError(
            f"{found.source} is an API key, not a session token",
            hint=f"set {KEY_VARIABLE} instead",
        )
    return found


def _key(found: Credential) -> Credential:
    if not found.text.strip():
        raise InputError(
            f"{KEY_VARIABLE} is empty; an API key is expected",
            hint=f"unset {KEY_VARIABLE} to act as the local operator",
        )
    if found.text.startswith(TOKEN_PREFIX):
        raise InputError(
            f"{KEY_VARIABLE} is a session token, not an API key",
            hint=f"set {TOKEN_VARIABLE} instead",
        )
    if not found.text.startswith(KEY_PREFIX):
        raise InputError(
            f"{KEY_VARIABLE} is not an API key: keys start with {KEY_PREFIX}",
            hint="an operator can create one with `toolkiln keys create`",
        )
    return found
