"""What several machines share through Redis: sessions, rates, and the calls of a fleet.

Names load on first use, and Redis with the first connection, so that this package can be
imported where the extra `toolkiln[redis]` is not installed. Key names are in `keys`, the
scripts that Redis runs in `lua/`.

Whoever can write to this Redis is the trusted side: sessions carry privileges, nothing in
it is signed, and a record written there by hand is believed. Give it a password or an ACL
user, TLS when it is on another machine, and no other tenants whom you would not let decide
who may do what.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.fleet.address import read_address
    from toolkiln.fleet.catalog import Listing, Published
    from toolkiln.fleet.client import Client
    from toolkiln.fleet.connection import Connection, open_redis
    from toolkiln.fleet.guarding import RedisBuckets, RedisSessions
    from toolkiln.fleet.identity import fleet_key
    from toolkiln.fleet.resp import Pipe
    from toolkiln.fleet.wire import Envelope, pack

_HOMES = {
    "Client": "client",
    "Connection": "connection",
    "Envelope": "wire",
    "Listing": "catalog",
    "Pipe": "resp",
    "Published": "catalog",
    "RedisBuckets": "guarding",
    "RedisSessions": "guarding",
    "fleet_key": "identity",
    "open_redis": "connection",
    "pack": "wire",
    "read_address": "address",
}

__all__ = [
    "Client",
    "Connection",
    "Envelope",
    "Listing",
    "Pipe",
    "Published",
    "RedisBuckets",
    "RedisSessions",
    "fleet_key",
    "open_redis",
    "pack",
    "read_address",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
