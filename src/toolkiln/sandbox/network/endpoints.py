"""Endpoints: loopback addresses in a sandbox through which plain sockets reach granted hosts.

Every granted host gets its own loopback address in the sandbox's network namespace. The sandbox
listens there on each granted port, and `proxy` connects each connection to the host and port of
that listener. Wildcards have no endpoints, because they have no name to resolve.
"""

import errno
import select
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from typing import NamedTuple

from toolkiln.model.network import HostRules

_MAX_ENDPOINTS = 32
"""Per sandbox, because each is an open descriptor of this process; further hosts need the proxy."""

_FIRST_ADDRESS = IPv4Address("127.1.0.1")
_NOT_LISTENING = {errno.EINVAL, errno.EBADF, errno.ENOTSOCK, errno.EOPNOTSUPP}


class Endpoint(NamedTuple):
    """A listening address in the sandbox, and the granted host behind it."""

    address: str
    port: int
    host: str


def plan_endpoints(rules: HostRules) -> tuple[Endpoint, ...]:
    """Assign an address to every granted host; return an endpoint for each of its ports."""
    ports: dict[str, set[int]] = {}
    for rule in rules.rules:
        if not rule.host.startswith("*."):
            ports.setdefault(rule.host, set()).update(rule.ports)
    # Many clients connect to 127.0.0.1 without resolving `localhost`.
    endpoints = (
        Endpoint("127.0.0.1" if host == "localhost" else str(_FIRST_ADDRESS + number), port, host)
        for number, host in enumerate(ports)
        for port in sorted(ports[host])
    )
    return tuple(endpoints)[:_MAX_ENDPOINTS]


def hosts_file(endpoints: Iterable[Endpoint]) -> str:
    """Return the sandbox's `/etc/hosts`, which contains only granted names."""
    return "".join(dict.fromkeys(f"{each.address} {each.host}\n" for each in endpoints))


class Listeners:
    """The listeners of a sandbox: one for proxy requests and one per endpoint."""

    def __init__(self, proxy: socket.socket, endpoints: Mapping[socket.socket, Endpoint]) -> None:
        listeners = {proxy: None, **endpoints}
        self._open = {each.fileno(): (each, endpoint) for each, endpoint in listeners.items()}
        self._poll = select.poll()
        for listener in listeners:
            listener.setblocking(True)
            self._poll.register(listener, select.POLLIN)

    def accept(self) -> tuple[socket.socket, Endpoint | None] | None:
        """Wait for a connection; return it with its endpoint, which is None for the proxy.

        Returns None once no listener is left.

        Raises:
            OSError: a connection cannot be accepted.
        """
        while self._open:
            descriptor, _ = self._poll.poll()[0]
            listener, endpoint = self._open[descriptor]
            try:
                return listener.accept()[0], endpoint
            except OSError as error:
                if error.errno not in _NOT_LISTENING:
                    raise
                self._close(descriptor)
        return None

    def shut_down(self) -> None:
        """Make a blocked `accept` return; may be called from another thread."""
        for listener, _ in list(self._open.values()):
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all listeners; not while `accept` is blocked."""
        for descriptor in list(self._open):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.pop(descriptor)[0].close()
