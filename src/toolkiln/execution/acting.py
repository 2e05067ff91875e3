"""The session that code of this process is running for, where it needs to know.

Toolkiln's own tools act on a Kiln on behalf of their caller; this is how they find out for
whom. It is never set by what a request says.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SESSION: ContextVar[str | None] = ContextVar("toolkiln_session", default=None)


@contextmanager
def acting_as(session: str | None) -> Iterator[None]:
    """Run something for a session."""
    before = _SESSION.set(session)
    try:
        yield
    finally:
        _SESSION.reset(before)


def acting_session() -> str | None:
    """The token of the session that this code runs for; None outside of a call."""
    return _SESSION.get()
