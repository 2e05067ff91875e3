"""Subscriptions to resources: a client is told when what stands behind an address changes.

A page about a tool changes with the tool's version, and so does a resource: what a function
would return is not known before it runs. In the handshake era addresses are subscribed to
one by one and forgotten with the connection, in the modern era they are part of what a
stream listens to.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.connection import Connection
from mcp_types import SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams

from toolkiln.errors import InputError
from toolkiln.surfaces.mcp.connections import connection_of
from toolkiln.surfaces.mcp.requests import Context, Request
from toolkiln.surfaces.mcp.resources import Resources
from toolkiln.surfaces.mcp.visitors import Visitors

_LONGEST = 2_000
"""Characters of an address that can be subscribed to: each one is kept."""
MOST = 100
"""Addresses that one connection, or one stream, may subscribe to."""


Versions = dict[str, str | None]
"""What stood behind addresses when it was last looked at."""


class Subscriptions:
    """What all clients want to be told of."""

    def __init__(self, resources: Resources, visitors: Visitors) -> None:
        self._resources = resources
        self._visitors = visitors
        self._wanted: dict[object, Versions] = {}
        """Addresses, by who wants to be told: a connection, or a stream."""

    async def subscribe(self, request: Request[SubscribeRequestParams]) -> dict[str, Any]:
        """Tell a client of the handshake era when an address changes.

        Raises:
            MCPError: nothing stands there for this client.
            InputError: it has subscribed to too many, or the address is too long.
        """
        uri = str(request.params.uri)
        if len(uri) > _LONGEST:
            raise _too_long()
        self._resources.known(uri, request)
        connection = connection_of(request.context)
        if connection not in self._wanted:
            self._wanted[connection] = {}
            connection.exit_stack.callback(self._wanted.pop, connection, None)
        wanted = self._wanted[connection]
        if len(wanted) >= MOST and uri not in wanted:
            raise _too_many()
        wanted |= self._resources.versions([uri])
        return {}

    async def unsubscribe(self, request: Request[UnsubscribeRequestParams]) -> dict[str, Any]:
        """Tell it no longer; an address that it did not subscribe to is no error."""
        wanted = self._wanted.get(connection_of(request.context), {})
        wanted.pop(str(request.params.uri), None)
        return {}

    @asynccontextmanager
    async def listening(
        self, context: Context, wanted: SubscriptionFilter
    ) -> AsyncIterator[SubscriptionFilter]:
        """What a stream of the modern era is told of: addresses that lead nowhere are left out.

        Raises:
            InputError: it names too many, or one that is too long.
        """
        named = wanted.resource_subscriptions
        if not named:
            yield wanted
            return
        if len(named) > MOST:
            raise _too_many()
        if max(map(len, named)) > _LONGEST:
            raise _too_long()
        session = await self._visitors.session(context)
        uris = [uri for uri in named if self._resources.find(uri, session)]
        stream = object()
        self._wanted[stream] = self._resources.versions(uris)
        try:
            yield wanted.model_copy(update={"resource_subscriptions": uris})
        finally:
            del self._wanted[stream]

    def of(self, connection: Connection) -> set[str]:
        """The addresses that a connection subscribed to."""
        return set(self._wanted.get(connection, ()))

    def changed(self) -> set[str]:
        """The addresses behind which there is another version than the last time."""
        now = self._resources.versions({uri for known in self._wanted.values() for uri in known})
        changed = set()
        for known in self._wanted.values():
            changed |= {uri for uri, version in known.items() if version != now[uri]}
            known |= {uri: now[uri] for uri in known}
        return changed


def _too_many() -> InputError:
    return InputError(f"one can subscribe to {MOST} resources at most")


def _too_long() -> InputError:
    return InputError(f"an address of more than {_LONGEST:,} characters cannot be subscribed to")
