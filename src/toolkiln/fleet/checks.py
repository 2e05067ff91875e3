"""Whether a Redis server is one that calls can be entrusted to; asked once, when a process starts.

What would break the promise that each call gets one reply is refused: a server that throws
keys away when its memory is full, a replica, a cluster, one that is too old. What makes it
weaker is a warning, for whoever runs the server to decide. Nothing is changed on the server.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe

_OLDEST = (6, 2)
_KEEPS_ALL = "noeviction"


async def check_server(pipe: "Pipe", *, durable: bool = False) -> tuple[str, ...]:
    """What whoever runs the server should know; one sentence each.

    `durable`: a call is to be accepted only once a replica has it.

    Raises:
        StoreError: the server cannot be reached, or calls must not be entrusted to it.
    """
    info, name = read_info(await pipe.command("INFO")), pipe.address.name
    refuse_unfit(info, name)
    return complaints(info, name, durable=durable)


def read_info(said: bytes) -> dict[str, str]:
    """The answer to INFO as a mapping."""
    lines = said.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and line[0] != "#")


def refuse_unfit(info: Mapping[str, str], name: str) -> None:
    """Whether a server that says this of itself serves.

    Raises:
        StoreError: calls must not be entrusted to it.
    """
    version = info.get("redis_version", "")
    if _numbers(version) < _OLDEST:
        hint = "use Redis 6.2 or later"
        raise StoreError(f"{name} is Redis {version}, which is too old", hint=hint)
    if info.get("redis_mode") == "cluster":
        hint = "use a single server or one with replicas"
        raise StoreError(f"{name} is a Redis Cluster, which cannot serve", hint=hint)
    if info.get("role") == "slave":
        hint = "use the primary server; redis+sentinel://…/SERVICE finds it behind Sentinel"
        raise StoreError(f"{name} is a replica, which cannot be written to", hint=hint)
    if _may_evict(info) and info.get("maxmemory") != "0":
        policy = info["maxmemory_policy"]
        raise StoreError(
            f"{name} throws calls away when its memory is full: its maxmemory-policy is {policy}",
            hint="set `maxmemory-policy noeviction` in its redis.conf; calls are then refused "
            "when it is full, and those that were accepted still end",
        )


def complaints(info: Mapping[str, str], name: str, *, durable: bool = False) -> tuple[str, ...]:
    """What could be better about a server that says this of itself."""
    found = []
    if _may_evict(info):
        found.append(
            f"{name} throws calls away as soon as it has a maxmemory: "
            "set `maxmemory-policy noeviction` in its redis.conf"
        )
    if info.get("aof_enabled") == "0":
        found.append(
            f"{name} keeps no append-only file: calls under way are lost when it restarts; "
            "set `appendonly yes` in its redis.conf"
        )
    if durable and info.get("connected_slaves") == "0":
        found.append(f"{name} has no replica: calls that wait for one are not accepted")
    return tuple(found)


def _may_evict(info: Mapping[str, str]) -> bool:
    return info.get("maxmemory_policy", _KEEPS_ALL) != _KEEPS_ALL


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
