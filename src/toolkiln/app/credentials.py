"""Credentials of a process: a session token or an API key, from an option or the environment.

Only their form is checked here. Whether a credential is valid is decided by `entrance`, for
commands as for servers. Light to import: commands without a credential load nothing else.
"""

from collections.abc import Mapping
from typing import NamedTuple

from toolkiln.errors import InputError
from toolkiln.model import KEY_PREFIX, TOKEN_PREFIX

TOKEN_VARIABLE = "TOOLKILN_TOKEN"  # noqa: S105
KEY_VARIABLE = "TOOLKILN_API_KEY"


class Credential(NamedTuple):
    """A session token or an API key, and where it was found."""

    text: str
    source: str
    """The option or the variable, for messages."""


def find_credential(environ: Mapping[str, str], token: str | None = None) -> Credential | None:
    """Return the credential to act with; None: there is none, and the local operator acts.

    `token` is the value of an option and takes precedence over the environment.

    Raises:
        InputError: both variables are set, a value is empty, or it is of the other kind.
    """
    if token is not None:
        return _token(Credential(token, "--token"), "leave out --token")
    if TOKEN_VARIABLE in environ and KEY_VARIABLE in environ:
        raise InputError(
            f"{TOKEN_VARIABLE} and {KEY_VARIABLE} are both set",
            hint="unset one of them: a command acts for one user",
        )
    if TOKEN_VARIABLE in environ:
        found = Credential(environ[TOKEN_VARIABLE], TOKEN_VARIABLE)
        return _token(found, f"unset {TOKEN_VARIABLE}")
    if KEY_VARIABLE in environ:
        return _key(Credential(environ[KEY_VARIABLE], KEY_VARIABLE))
    return None


def _token(found: Credential, otherwise: str) -> Credential:
    if not found.text.strip():
        raise InputError(
            f"{found.source} is empty, where a session token is expected",
            hint=f"{otherwise} to act as the local operator",
        )
    if found.text.startswith(KEY_PREFIX):
        raise InputError(
            f"{found.source} holds an API key, not a session token",
            hint=f"set {KEY_VARIABLE} instead",
        )
    return found


def _key(found: Credential) -> Credential:
    if not found.text.strip():
        raise InputError(
            f"{KEY_VARIABLE} is empty, where an API key is expected",
            hint=f"unset {KEY_VARIABLE} to act as the local operator",
        )
    if found.text.startswith(TOKEN_PREFIX):
        raise InputError(
            f"{KEY_VARIABLE} holds a session token, not an API key",
            hint=f"set {TOKEN_VARIABLE} instead",
        )
    if not found.text.startswith(KEY_PREFIX):
        raise InputError(
            f"{KEY_VARIABLE} holds no API key: keys begin with {KEY_PREFIX}",
            hint="an operator creates one with `toolkiln keys create`",
        )
    return found
