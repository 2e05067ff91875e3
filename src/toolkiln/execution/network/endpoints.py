"""Endpoints: the addresses inside a sandbox at which plain sockets reach granted hosts.

Every granted host gets a loopback address of its own in the sandbox's network namespace.
The sandbox listens there on each granted port, and `proxy` connects what arrives to the
host and port of that listener. Wildcards have no endpoints: there is no name to resolve.
Nothing here opens a socket.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import NamedTuple

from toolkiln.execution.network.rules import HostRules

MOST_ENDPOINTS = 32
"""Per sandbox: each one is an open descriptor of this process. Further ones use the proxy."""

_FIRST = IPv4Address("127.1.0.1")
# Many clients connect to 127.0.0.1 without looking `localhost` up.
_LOCALHOST = "127.0.0.1"


class Endpoint(NamedTuple):
    """A listener inside the sandbox and the granted host and port behind it."""

    address: str
    port: int
    host: str


def plan_endpoints(rules: HostRules) -> tuple[Endpoint, ...]:
    """Assign an address to every granted host, and list its ports."""
    ports: dict[str, set[int]] = {}
    for rule in rules.rules:
        if not rule.host.startswith("*."):
            ports.setdefault(rule.host, set()).update(rule.ports)
    planned = (
        Endpoint(_LOCALHOST if host == "localhost" else str(_FIRST + number), port, host)
        for number, host in enumerate(ports)
        for port in sorted(ports[host])
    )
    return tuple(planned)[:MOST_ENDPOINTS]


def hosts_file(endpoints: Iterable[Endpoint]) -> str:
    """Return the sandbox's `/etc/hosts`: the granted names and nothing else."""
    return "".join(dict.fromkeys(f"{each.address} {each.host}\n" for each in endpoints))
