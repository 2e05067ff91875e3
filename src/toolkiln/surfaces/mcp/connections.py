"""Connections of the handshake era: who is told when the catalog changes, and how loudly.

The SDK hands requests a session without saying which connection it belongs to; that is
looked up in one place, here. Modern clients have no connection: they listen (`service`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, get_args

from mcp.server.connection import Connection
from mcp_types import LoggingLevel, SetLevelRequestParams

from toolkiln.surfaces.mcp.requests import Context, Request

_LEVELS: tuple[str, ...] = get_args(LoggingLevel)
_LEVEL = "toolkiln.level"
_SLOWEST = 10.0
"""Seconds that a client may take for a message that it did not ask for."""
_log = logging.getLogger(__name__)


class Connections:
    """All that are open."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._telling: set[asyncio.Task[None]] = set()

    def add(self, context: Context) -> None:
        """Tell a client of changes from here on, until it goes."""
        connection = connection_of(context)
        if connection not in self._open:
            self._open.add(connection)
            connection.exit_stack.callback(self._open.discard, connection)

    def tell(self, updated: Callable[[Connection], Iterable[str]]) -> None:
        """Say that lists are not what they were, and which addresses that a client is after."""
        for connection in self._open:
            told = _tell(connection, sorted(updated(connection)))
            telling = asyncio.get_running_loop().create_task(told)
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    @staticmethod
    async def set_level(request: Request[SetLevelRequestParams]) -> dict[str, Any]:
        """Send a client nothing below a level."""
        connection_of(request.context).state[_LEVEL] = request.params.level
        return {}


def wants_log(context: Context, level: str) -> bool:
    """Whether a client of the handshake era wants lines of a level."""
    least = connection_of(context).state.get(_LEVEL, _LEVELS[0])
    return _LEVELS.index(level) >= _LEVELS.index(least)


async def _tell(connection: Connection, updated: list[str]) -> None:
    try:
        async with asyncio.timeout(_SLOWEST):
            await connection.send_tool_list_changed()
            await connection.send_prompt_list_changed()
            await connection.send_resource_list_changed()
            for uri in updated:
                await connection.send_resource_updated(uri)
    except Exception as error:  # noqa: BLE001 - whatever ails one client, others are told
        _log.debug("a client could not be told of a change: %s", error)


def connection_of(context: Context) -> Connection:
    """The connection that a request came over."""
    found: Connection = context.session._connection  # the SDK has no other way to it
    return found
