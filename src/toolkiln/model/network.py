"""Host rules: hosts and ports a tool may reach, and their text format.

A rule names a host, never an IP address. As in a TLS certificate, `*.example.org` covers
exactly one label: `a.example.org`, but neither `example.org` nor `a.b.example.org`. Names are
ASCII: international names must be in `xn--` form, so that a person reads exactly the text
that is compared. `sandbox.network.addresses` checks the addresses a name resolves to.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from toolkiln.errors import InputError
from toolkiln.model.base import Value

DEFAULT_PORTS = (80, 443)

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# Resolvers parse a name that ends in a number as an IPv4 address: 127.1, 2130706433, 0x7f.1.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


class HostRule(Value):
    """A host, or a wildcard for one label, with ports."""

    host: str
    """Lower case; a leading `*.` matches one label."""
    ports: tuple[int, ...]

    def covers(self, host: str, port: int) -> bool:
        """Return whether a name from `host_name` may be reached at `port`."""
        return port in self.ports and _covers(self.host, host)


class HostRules(Value):
    """All hosts a tool may reach; without rules it has no network."""

    rules: tuple[HostRule, ...] = ()

    def allow(self, host: str, port: int) -> bool:
        """Return whether any rule covers a name from `host_name`."""
        return any(rule.covers(host, port) for rule in self.rules)


def host_name(text: str) -> str | None:
    """Return `text` in lower case if it is a host name; None for an IP address or other text."""
    if not text.isascii() or len(text) > 253:  # lower() converts some other letters to ASCII
        return None
    name = text.lower()
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        return None
    return name


def port_number(text: str) -> int | None:
    """Parse a port in plain decimal digits; None if it is invalid."""
    return int(text) if _PORT.fullmatch(text) and int(text) <= 65535 else None


def parse_rules(entries: Iterable[str]) -> HostRules:
    """Parse entries such as `api.example.com`, `api.example.com:8443`, `*.example.org:443`.

    Raises:
        InputError: an entry is invalid.
    """
    if isinstance(entries, str):
        raise InputError(
            f"network is a string, not a list: {entries!r}", hint=f'write ["{entries}"]'
        )
    return HostRules(rules=tuple(_parse(entry) for entry in entries))


def granted(declared: Iterable[str], granted_by_operator: Iterable[str]) -> HostRules:
    """Intersect the hosts a source declares with those the operator grants.

    Raises:
        InputError: an entry of either list is invalid.
    """
    theirs = parse_rules(granted_by_operator).rules
    ports: dict[str, set[int]] = defaultdict(set)
    for ours in parse_rules(declared).rules:
        for their in theirs:
            if _covers(their.host, ours.host):
                ports[ours.host].update(set(ours.ports) & set(their.ports))
            elif _covers(ours.host, their.host):
                ports[their.host].update(set(ours.ports) & set(their.ports))
    return HostRules(
        rules=tuple(
            HostRule(host=host, ports=tuple(sorted(both))) for host, both in ports.items() if both
        )
    )


def _covers(pattern: str, host: str) -> bool:
    wild = pattern.startswith("*.") and host.partition(".")[2] == pattern[2:]
    return wild or pattern == host


def _parse(entry: str) -> HostRule:
    if not isinstance(entry, str) or not entry:
        raise _invalid_entry(entry, "is not a host name")
    if "://" in entry:
        raise _invalid_entry(entry, "has a scheme")
    if re.search(r"[/?#]", entry):
        raise _invalid_entry(entry, "has a path")
    if "@" in entry:
        raise _invalid_entry(entry, "has a user name")
    if "[" in entry or entry.count(":") > 1:
        raise _invalid_entry(entry, "is an IP address", "hosts are granted by name")
    host, colon, port = entry.partition(":")
    number = port_number(port)
    if colon and number is None:
        raise _invalid_entry(entry, f"has the port {port!r}", "a port is a number from 1 to 65535")
    return HostRule(
        host=_parse_host(entry, host), ports=DEFAULT_PORTS if number is None else (number,)
    )


def _parse_host(entry: str, host: str) -> str:
    if not host.isascii():
        raise _invalid_entry(
            entry, "has letters outside ASCII", "write the host's ASCII form, which has 'xn--'"
        )
    base = host.removeprefix("*.")
    if "*" in base:
        raise _invalid_entry(
            entry,
            "has a '*' in the wrong place",
            "'*.example.org' matches one label in front of example.org; no wildcard matches all",
        )
    name = host_name(base)
    if name is None:
        if _NUMBER.fullmatch(base.lower().rpartition(".")[2]):
            raise _invalid_entry(entry, "is an IP address", "hosts are granted by name")
        raise _invalid_entry(entry, "is not a host name")
    if base == host:
        return name
    if "." not in name:
        raise _invalid_entry(entry, "covers a whole top-level domain", "name the domain as well")
    return f"*.{name}"


def _invalid_entry(
    entry: object, fault: str, hint: str = "write 'api.example.com' or 'api.example.com:8443'"
) -> InputError:
    return InputError(f"network: {str(entry)[:300]!r} {fault}", hint=hint)
