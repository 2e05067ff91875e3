"""Addresses on both ends of a granted host's name.

On the host, a name may resolve to public addresses and to those that the operator lists. In the
sandbox, every granted host has its own loopback address, so that plain sockets reach it: the
sandbox listens there on each granted port (an endpoint), and `proxy` connects each connection to
the host and port of that endpoint. Wildcards have no endpoints, because they have no name to
resolve.

The ranges are listed here because `ipaddress.is_global` differs between Python versions and
includes multicast.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import NamedTuple

from toolkiln.errors import InputError
from toolkiln.model.network import HostRules

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata service
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's metadata service, a public address
            "169.254.0.0/16",  # link-local; metadata services
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata service
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, which embeds IPv4 addresses
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which embeds IPv4 addresses
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_FIRST_ENDPOINT = IPv4Address("127.1.0.1")
_MAX_ENDPOINTS = 32
"""Per sandbox, because each is an open descriptor of this process; further hosts need the proxy."""


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse addresses and ranges such as `10.1.0.0/16`.

    Raises:
        InputError: a text is neither.
    """
    return tuple(map(_parse, texts))


def unmapped(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; other addresses unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def is_reachable(address: Address, listed: Iterable[Network]) -> bool:
    """Return whether an address is public or listed by the operator."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return False
    target = unmapped(address)
    if target in _NAT64:  # a gateway translates this to the IPv4 address in its last bytes
        target = IPv4Address(int(target) & 0xFFFFFFFF)
    return any(target in network for network in listed) or _is_public(target)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def _parse(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InputError(
            f"private networks: {error}", hint="write an address or a range such as '10.1.0.0/16'"
        ) from error


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
        Endpoint("127.0.0.1" if host == "localhost" else str(_FIRST_ENDPOINT + number), port, host)
        for number, host in enumerate(ports)
        for port in sorted(ports[host])
    )
    return tuple(endpoints)[:_MAX_ENDPOINTS]


def hosts_file(endpoints: Iterable[Endpoint]) -> str:
    """Return the sandbox's `/etc/hosts`, which contains only granted names."""
    return "".join(dict.fromkeys(f"{each.address} {each.host}\n" for each in endpoints))
