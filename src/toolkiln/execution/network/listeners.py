"""The listeners of one sandbox, and the connections that arrive at them.

They were opened inside the sandbox's network namespace and may be shared with the tool, so
that any call on them may block: `take` belongs in a thread. What becomes of a connection
is decided in `proxy`.
"""

import errno
import select
import socket
from collections.abc import Mapping
from contextlib import suppress

from toolkiln.execution.network.endpoints import Endpoint

_NO_LISTENER = {errno.EINVAL, errno.EBADF, errno.ENOTSOCK, errno.EOPNOTSUPP}


class Listeners:
    """One listener for proxy requests and one for each endpoint."""

    def __init__(self, proxy: socket.socket, endpoints: Mapping[socket.socket, Endpoint]) -> None:
        everything = {proxy: None, **endpoints}
        self._open = {each.fileno(): (each, endpoint) for each, endpoint in everything.items()}
        self._poll = select.poll()
        for listener in everything:
            listener.setblocking(True)
            self._poll.register(listener, select.POLLIN)

    def take(self) -> tuple[socket.socket, Endpoint | None] | None:
        """Wait for a connection: its socket and the endpoint it came to, None for the proxy.

        Returns None once no listener is left.

        Raises:
            OSError: a connection arrived and cannot be accepted.
        """
        while self._open:
            descriptor, _ = self._poll.poll()[0]
            listener, endpoint = self._open[descriptor]
            try:
                return listener.accept()[0], endpoint
            except OSError as error:
                if error.errno not in _NO_LISTENER:
                    raise
                self._forget(descriptor)
        return None

    def shut_down(self) -> None:
        """Make a `take` under way return; safe from another thread."""
        for listener, _ in list(self._open.values()):
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all of them; not while a `take` is under way."""
        for descriptor in list(self._open):
            self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor)[0].close()
