"""What several machines share through Redis: sessions and rates, tools, and calls.

`guarding`, `approvals` and `records` keep in Redis what is otherwise in the store.
Calls go through a queue (`queue`, `wire`, `steps`) from callers (`client`) to workers
(`worker`, and beside it `keeper`, `supervisor`, `sweeper`), which publish their tools
(`publisher`, `catalog`) and may ask callers something (`questions`, `answers`). Names load
on first use, so that this package can be imported where the extra `toolkiln[redis]` is not
installed. Key names are in `keys`, the scripts that Redis runs in `lua/`.

Processes that can write sessions are trusted with identities: they carry privileges, and are
not signed. A client whose Redis user may not see them has records of its own (`connection`).
What workers say is signed (`signatures`), where `worker_keys` is set. Give Redis passwords and
the users of `deploy/redis`, and TLS when it is on another machine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.fleet.address import Address, read_address
    from toolkiln.fleet.announcements import Announcements, announce
    from toolkiln.fleet.approvals import RedisApprovals
    from toolkiln.fleet.attendant import Orders, start_attendant
    from toolkiln.fleet.catalog import Listing, Published, fetch
    from toolkiln.fleet.checks import check_server
    from toolkiln.fleet.client import Client
    from toolkiln.fleet.connection import Connection, open_redis
    from toolkiln.fleet.counts import Counts, WorkerFigures
    from toolkiln.fleet.endings import ended
    from toolkiln.fleet.guarding import RedisBuckets, RedisSessions
    from toolkiln.fleet.identity import (
        FleetKeys,
        KeySettings,
        fleet_keys,
        is_genuine,
        put_back,
        seal,
    )
    from toolkiln.fleet.keeper import FROZEN, Keeper
    from toolkiln.fleet.leases import Leases, new_table
    from toolkiln.fleet.loop import new_loop
    from toolkiln.fleet.operating import DeadLetter, FleetState, Operator
    from toolkiln.fleet.publisher import REFRESH_SECONDS, ForeignCatalog, Publisher
    from toolkiln.fleet.questioning import ANSWER
    from toolkiln.fleet.questions import Questions
    from toolkiln.fleet.queue import Queue
    from toolkiln.fleet.records import RedisRecords
    from toolkiln.fleet.resp import Pipe
    from toolkiln.fleet.signatures import Signer, Verifier, generate_worker_keys
    from toolkiln.fleet.steps import End
    from toolkiln.fleet.supervisor import READY, Start, Supervisor
    from toolkiln.fleet.sweeper import Sweeper, settle
    from toolkiln.fleet.systemd import Notifier
    from toolkiln.fleet.telling import Telling
    from toolkiln.fleet.wire import Envelope, Malformed, pack, unpack
    from toolkiln.fleet.worker import BLOCK_MS, Parts, Trace, Worker

_HOMES = {
    "ANSWER": "questioning",
    "BLOCK_MS": "worker",
    "FROZEN": "keeper",
    "READY": "supervisor",
    "REFRESH_SECONDS": "publisher",
    "Address": "address",
    "Announcements": "announcements",
    "Client": "client",
    "Connection": "connection",
    "Counts": "counts",
    "DeadLetter": "operating",
    "End": "steps",
    "Envelope": "wire",
    "FleetKeys": "identity",
    "FleetState": "operating",
    "ForeignCatalog": "publisher",
    "Keeper": "keeper",
    "KeySettings": "identity",
    "Leases": "leases",
    "Listing": "catalog",
    "Notifier": "systemd",
    "Operator": "operating",
    "Malformed": "wire",
    "Orders": "attendant",
    "Parts": "worker",
    "Pipe": "resp",
    "Published": "catalog",
    "Publisher": "publisher",
    "Questions": "questions",
    "Queue": "queue",
    "RedisApprovals": "approvals",
    "RedisBuckets": "guarding",
    "RedisRecords": "records",
    "RedisSessions": "guarding",
    "Signer": "signatures",
    "Start": "supervisor",
    "Supervisor": "supervisor",
    "Sweeper": "sweeper",
    "Telling": "telling",
    "Trace": "worker",
    "Verifier": "signatures",
    "Worker": "worker",
    "WorkerFigures": "counts",
    "announce": "announcements",
    "check_server": "checks",
    "ended": "endings",
    "fetch": "catalog",
    "fleet_keys": "identity",
    "generate_worker_keys": "signatures",
    "is_genuine": "identity",
    "new_loop": "loop",
    "new_table": "leases",
    "open_redis": "connection",
    "pack": "wire",
    "put_back": "identity",
    "read_address": "address",
    "seal": "identity",
    "settle": "sweeper",
    "start_attendant": "attendant",
    "unpack": "wire",
}

__all__ = [
    "ANSWER",
    "BLOCK_MS",
    "FROZEN",
    "READY",
    "REFRESH_SECONDS",
    "Address",
    "Announcements",
    "Client",
    "Connection",
    "Counts",
    "DeadLetter",
    "End",
    "Envelope",
    "FleetKeys",
    "FleetState",
    "ForeignCatalog",
    "Keeper",
    "KeySettings",
    "Leases",
    "Listing",
    "Malformed",
    "Notifier",
    "Operator",
    "Orders",
    "Parts",
    "Pipe",
    "Published",
    "Publisher",
    "Questions",
    "Queue",
    "RedisApprovals",
    "RedisBuckets",
    "RedisRecords",
    "RedisSessions",
    "Signer",
    "Start",
    "Supervisor",
    "Sweeper",
    "Telling",
    "Trace",
    "Verifier",
    "Worker",
    "WorkerFigures",
    "announce",
    "check_server",
    "ended",
    "fetch",
    "fleet_keys",
    "generate_worker_keys",
    "is_genuine",
    "new_loop",
    "new_table",
    "open_redis",
    "pack",
    "put_back",
    "read_address",
    "seal",
    "settle",
    "start_attendant",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
