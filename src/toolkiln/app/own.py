"""The process's own operator: who that is, and a name for their session.

Light to import: whatever makes the session is loaded with the first use of it.
"""

import os
import pwd
from enum import Enum
from typing import Literal


class Own(Enum):
    """Stands for the session of whoever runs this process."""

    SESSION = "own"


OWN = Own.SESSION
SessionToken = str | None | Literal[Own.SESSION]
"""A token, None for a request that has none, or `OWN`."""


def account() -> str:
    """The name of the account that runs this process."""
    unnamed = f"uid {os.getuid()}"
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an account without a name, as in containers
        return unnamed
    return unnamed if name == "anonymous" else name  # the user of requests without a credential
