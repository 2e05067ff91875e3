"""Requests, callers and connections, as the handlers of MCP methods see them."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ClientCapabilities, LoggingLevel, SetLevelRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from toolkiln.security.authentication import Authenticator

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
"""The extension with which clients of the modern era poll long calls."""

Context = ServerRequestContext[Any, Any]
P = TypeVar("P", bound=BaseModel, covariant=True)


@dataclass(frozen=True, slots=True)
class McpRequest(Generic[P]):
    """A client's request with parsed parameters and the caller's session."""

    context: Context
    params: P
    session: str

    @property
    def said(self) -> Any:
        """What the client says about a call, for its tool: `toolkiln/request` in `_meta`."""
        return (self.context.meta or {}).get("toolkiln/request")

    @property
    def is_modern(self) -> bool:
        """Whether the request belongs to the modern era, which has no handshake."""
        return is_modern(self.context)

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """The capabilities that the client declared."""
        return self.context.session.client_capabilities

    @property
    def has_tasks(self) -> bool:
        """Whether the client supports the tasks extension of the modern era."""
        extensions = self.capabilities.extensions if self.capabilities else None
        return self.is_modern and TASKS_EXTENSION in (extensions or {})


def is_modern(context: Context) -> bool:
    """Return whether a request belongs to the modern era, which has no handshake."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def invalid_params(message: str, hint: str | None) -> MCPError:
    """Return an error about parameters, with a hint if there is one."""
    return MCPError(INVALID_PARAMS, message, {"hint": hint} if hint else None)


SCOPE_KEY = "toolkiln.caller"
"""The key of the `McpCaller` in the ASGI scope."""


@dataclass(frozen=True, slots=True)
class McpCaller:
    """An authenticated caller."""

    session: str
    principal: str
    """The same for all sessions of one caller."""


MCP_CALLER: ContextVar[McpCaller] = ContextVar("MCP_CALLER")
"""The current caller, for SDK callbacks that get no request context."""


class McpCallers:
    """Finds the caller of a request."""

    def __init__(self, authenticator: Authenticator, credential: str | None = None) -> None:
        """`credential` applies to requests that did not come over HTTP."""
        self._authenticator = authenticator
        self._credential = credential

    async def session(self, context: Context) -> str:
        """Return the session of a request.

        Raises:
            NoSession: the credential opens no session.
        """
        if context.request is not None:
            caller: McpCaller = context.request.scope[SCOPE_KEY]
            return caller.session
        if self._credential is None:
            return self._authenticator.agent()
        return await asyncio.to_thread(self._authenticator.session, self._credential)

    @staticmethod
    def principal(context: Context) -> str:
        """Return the principal that the state of a waiting call is bound to."""
        if context.request is None:
            return "stdio"
        caller: McpCaller = context.request.scope[SCOPE_KEY]
        return caller.principal


_LOG_LEVELS: tuple[str, ...] = get_args(LoggingLevel)
_LEVEL_KEY = "toolkiln.level"
_NOTIFY_SECONDS = 10.0
"""Timeout for notifying one client."""
_log = logging.getLogger(__name__)


class Connections:
    """The open connections of clients that completed the handshake."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._notifications: set[asyncio.Task[None]] = set()

    def add(self, context: Context) -> None:
        """Notify a client of changes from now on, until its connection closes."""
        connection = connection_of(context)
        if connection not in self._open:
            self._open.add(connection)
            connection.exit_stack.callback(self._open.discard, connection)

    def notify(self, updated: Callable[[Connection], Iterable[str]]) -> None:
        """Notify all clients that lists changed, and of the resources `updated` for each."""
        for connection in self._open:
            notification = asyncio.get_running_loop().create_task(
                _notify(connection, sorted(updated(connection)))
            )
            self._notifications.add(notification)
            notification.add_done_callback(self._notifications.discard)

    @staticmethod
    async def set_level(request: McpRequest[SetLevelRequestParams]) -> dict[str, Any]:
        """Set the lowest level of the log messages that a connection receives."""
        connection_of(request.context).state[_LEVEL_KEY] = request.params.level
        return {}


def is_log_enabled(context: Context, level: str) -> bool:
    """Return whether a client of the handshake era receives log messages of a level."""
    lowest = connection_of(context).state.get(_LEVEL_KEY, _LOG_LEVELS[0])
    return _LOG_LEVELS.index(level) >= _LOG_LEVELS.index(lowest)


async def _notify(connection: Connection, updated: list[str]) -> None:
    try:
        async with asyncio.timeout(_NOTIFY_SECONDS):
            await connection.send_tool_list_changed()
            await connection.send_prompt_list_changed()
            await connection.send_resource_list_changed()
            for uri in updated:
                await connection.send_resource_updated(uri)
    except Exception as error:  # noqa: BLE001 - one broken client must not affect the others
        _log.debug("cannot notify a client of a change: %s", error)


def connection_of(context: Context) -> Connection:
    """Return the connection of a request."""
    connection: Connection = context.session._connection  # the SDK has no public accessor
    return connection
