"""The session that code of this process is running for, where it needs to know.

Toolkiln's own tools act on a Kiln on behalf of their caller; this is how they find out for
whom. The gateway sets it around a call, and no request does.
"""

from contextvars import ContextVar

SESSION: ContextVar[str | None] = ContextVar("toolkiln_session", default=None)


def acting_session() -> str | None:
    """The token of the session that this code runs for; None outside of a call."""
    return SESSION.get()
