"""What is left of calls when all is over: in Redis, and of what tools did. Not a test itself."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from toolkiln.fleet import keys

from ..servers import Server
from ..workers import until

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
_STAY = ("calls", "control", "dead", "fleet-key", "announcements", "sessions", "catalog")
"""Kinds of keys that are there once for a pool or a fleet, however many calls there were."""


def runs(folder: Path, mark: str) -> list[int]:
    """The processes that began the function of a call, each time that one did (`performer`)."""
    file = folder / mark
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def soon(look: Callable[[], T | None]) -> T:
    """What a look finds, as soon as that is something; the loop goes on meanwhile."""
    return await asyncio.to_thread(until, look)


async def begun(folder: Path, mark: str, count: int = 1) -> list[int]:
    """As `runs`, once there are so many."""
    return await soon(lambda: found if len(found := runs(folder, mark)) >= count else None)


def under_way(client: "redis.Redis", pool: str = "default") -> dict[str, int]:
    """What of calls has not ended: entries, those that workers hold, bodies."""
    groups = client.xinfo_groups(keys.calls(pool)) if client.exists(keys.calls(pool)) else []
    return {
        "entries": client.xlen(keys.calls(pool)),
        "held": sum(group["pending"] for group in groups),
        "bodies": sum(1 for _ in client.scan_iter("toolkiln:body:call:*", count=1000)),
    }


def lasting(client: "redis.Redis") -> list[bytes]:
    """Keys that never go by themselves, but for the few that are there once."""
    return [
        key
        for key in client.scan_iter(count=1000)
        if client.ttl(key) == -1 and not key.decode().split(":")[1].startswith(_STAY)
    ]


async def settled(server: Server) -> None:
    """Wait until no call is under way, and see that what is left goes by itself.

    Raises:
        AssertionError: something stays.
    """

    def is_over() -> bool:
        with closing(server.client()) as client:
            return not any(under_way(client).values())

    await soon(is_over)
    with closing(server.client()) as client:
        assert lasting(client) == []
