"""Fleet: several machines that share sessions, rates, tools and calls through Redis.

Calls go through a queue (`queue`, `wire`, `steps`) from callers (`client`, `dispatcher`) to
workers (`worker`, with `leases`, `supervisor`, `sweeper`), which publish their tools (`publisher`,
`remote_catalog`) and may ask callers questions (`questions`). `security_stores` and `call_store`
replace the SQL stores. Key names are in `keys`, Lua scripts in `lua/`.

Names load on first use, so that this package can be imported without `toolkiln[redis]`.

Processes that can write sessions are trusted: sessions carry privileges and are not signed. A
client whose Redis user cannot read sessions has its own key prefix (`connection`). Workers sign
their messages (`signatures`) where `worker_keys` is set. Protect Redis with passwords and the
users of `deploy/redis`, and with TLS if it is on another machine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.fleet.address import RedisClient, open_redis
    from toolkiln.fleet.admin import RedisFleetAdmin, open_fleet_admin
    from toolkiln.fleet.call_store import RedisCallStore
    from toolkiln.fleet.delivery import WorkerMetrics
    from toolkiln.fleet.front import FleetServices
    from toolkiln.fleet.remote_catalog import NoWorker
    from toolkiln.fleet.security_stores import (
        RedisApprovals,
        RedisBuckets,
        RedisSessions,
        RedisStores,
    )
    from toolkiln.fleet.signatures import Verifier, generate_worker_keys
    from toolkiln.fleet.supervisor import WorkerConfig, supervise
    from toolkiln.fleet.worker_process import (
        WorkerHandle,
        WorkerProcess,
        handle_from_parent,
        join_fleet,
        new_loop,
        serve_fleet,
    )

_HOMES = {
    "FleetServices": "front",
    "RedisFleetAdmin": "admin",
    "NoWorker": "remote_catalog",
    "RedisApprovals": "security_stores",
    "RedisBuckets": "security_stores",
    "RedisClient": "address",
    "RedisCallStore": "call_store",
    "RedisSessions": "security_stores",
    "RedisStores": "security_stores",
    "Verifier": "signatures",
    "WorkerConfig": "supervisor",
    "WorkerMetrics": "delivery",
    "WorkerHandle": "worker_process",
    "WorkerProcess": "worker_process",
    "generate_worker_keys": "signatures",
    "join_fleet": "worker_process",
    "handle_from_parent": "worker_process",
    "new_loop": "worker_process",
    "open_redis": "address",
    "open_fleet_admin": "admin",
    "serve_fleet": "worker_process",
    "supervise": "supervisor",
}

__all__ = [
    "FleetServices",
    "NoWorker",
    "RedisApprovals",
    "RedisBuckets",
    "RedisCallStore",
    "RedisClient",
    "RedisFleetAdmin",
    "RedisSessions",
    "RedisStores",
    "Verifier",
    "WorkerConfig",
    "WorkerHandle",
    "WorkerMetrics",
    "WorkerProcess",
    "generate_worker_keys",
    "handle_from_parent",
    "join_fleet",
    "new_loop",
    "open_fleet_admin",
    "open_redis",
    "serve_fleet",
    "supervise",
]


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
