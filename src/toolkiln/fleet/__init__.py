"""What several machines share through Redis: sessions and rates.

Redis is loaded by `open_redis` and not before, so that this package can be imported where
the extra `toolkiln[redis]` is not installed. Key names are in `keys`, the scripts that
Redis runs in `lua/`.

Whoever can write to this Redis is the trusted side: sessions carry privileges, nothing in
it is signed, and a record written there by hand is believed. Give it a password or an ACL
user, TLS when it is on another machine, and no other tenants whom you would not let decide
who may do what.
"""

from toolkiln.fleet.connection import Connection, open_redis
from toolkiln.fleet.guarding import RedisBuckets, RedisSessions

__all__ = ["Connection", "RedisBuckets", "RedisSessions", "open_redis"]
