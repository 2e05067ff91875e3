"""On whose behalf a request comes: over HTTP by what it shows, over stdio by the process.

`endpoint` leaves a Visitor in the scope of each request. A process that speaks over stdio
has one client, and takes that client's credentials from the environment.
"""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass

from toolkiln.app import Entrance
from toolkiln.surfaces.mcp.requests import Context

SCOPE_KEY = "toolkiln.visitor"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody whose session was found."""

    session: str
    principal: str
    """Names them for as long as any of their sessions lasts."""


VISITOR: ContextVar[Visitor] = ContextVar("VISITOR")
"""Whose request is looked at, for what the SDK asks before it makes a context of it."""


class Visitors:
    """Tells who makes a request."""

    def __init__(self, entrance: Entrance, credential: str | None = None) -> None:
        """`credential` is what the client of this process showed, for requests without one."""
        self._entrance = entrance
        self._credential = credential

    async def session(self, context: Context) -> str:
        """The session that a request runs under.

        Raises:
            NoSession: nobody is known by what was shown.
        """
        if context.request is not None:
            visitor: Visitor = context.request.scope[SCOPE_KEY]
            return visitor.session
        if self._credential is None:
            return self._entrance.agent()
        return await asyncio.to_thread(self._entrance.session, self._credential)

    @staticmethod
    def principal(context: Context) -> str:
        """What the state of a call that waits for its client is bound to."""
        if context.request is None:
            return "stdio"
        visitor: Visitor = context.request.scope[SCOPE_KEY]
        return visitor.principal
