"""A sandbox's way out: takes the listener that it passes, and serves the proxy on it."""

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass

from toolkiln.errors import BackendError
from toolkiln.execution.network import (
    ConnectionRecord,
    HostRules,
    Resolve,
    proxy_environment,
    serve,
)


@dataclass(frozen=True, slots=True)
class Networks:
    """How granted hosts are reached."""

    allow_private: tuple[str, ...] = ()
    """Ranges that are not public and may be reached all the same."""
    resolve: Resolve | None = None

    async def open(
        self,
        near: socket.socket,
        hosts: HostRules,
        records: list[ConnectionRecord],
        stack: AsyncExitStack,
    ) -> dict[str, str]:
        """Serve the process at the other end of a socket; the variables that it needs.

        Raises:
            BackendError: the process has not passed a listener.
        """
        listener = await _passed(near)
        port = listener.getsockname()[1]
        proxy = serve(
            listener,
            hosts,
            allow_private=self.allow_private,
            resolve=self.resolve,
            on_connection=records.append,
        )
        await stack.enter_async_context(proxy)
        return proxy_environment(port)


async def _passed(near: socket.socket) -> socket.socket:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(near, readable.cancel)
    try:
        await asyncio.wait([readable])
    finally:
        loop.remove_reader(near)
    _, descriptors, _, _ = socket.recv_fds(near, 1, 1)
    if not descriptors:
        raise BackendError("the sandbox has no network: it ended before it could listen")
    return socket.socket(fileno=descriptors[0])
