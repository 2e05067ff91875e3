"""Calls behind a real Sentinel when the primary dies, and calls over TLS."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.model.call import Status

from . import servers
from .servers import SERVICE, Server
from .workers import BOUND, performer, until


def asked(port: int, *question: str, about: str = SERVICE) -> Any:
    """What a sentinel says; nothing if it does not answer yet."""
    parts = (*question, about) if about else question
    try:
        with closing(redis.Redis(port=port, retry=Retry(NoBackoff(), 0))) as client:
            return client.execute_command("SENTINEL", *parts)  # type: ignore[no-untyped-call]
    except redis.exceptions.RedisError:
        return None


def is_online(primary: Server) -> bool:
    """Whether its replica has all that it has."""
    with closing(primary.client()) as client:
        return "'state': 'online'" in str(client.info("replication"))


def knows_a_replica(port: int) -> bool:
    replicas = asked(port, "REPLICAS") or []
    return any(replica[b"master-link-status"] == b"ok" for replica in replicas)


def primary_of(port: int) -> int:
    _, found = asked(port, "GET-MASTER-ADDR-BY-NAME")
    return int(found)


@contextmanager
def service(folder: Path) -> Iterator[tuple[Server, Server, int]]:
    """A primary, its replica, and the port of a sentinel that knows both."""
    places = [folder / name for name in ("primary", "replica", "sentinel")]
    for place in places:
        place.mkdir()
    with (
        servers.running(places[0]) as primary,
        servers.running(places[1], "--replicaof", "127.0.0.1", str(primary.port)) as replica,
    ):
        # A sentinel asks for replicas when it starts, and then not for ten seconds.
        until(lambda: is_online(primary))
        with servers.sentinel(places[2], primary.port) as port:
            until(lambda: asked(port, "CKQUORUM"))
            # A sentinel that got no CPU for two seconds takes no part for half a minute (TILT).
            asked(port, "DEBUG", "TILT-PERIOD", "500", about="")  # Redis 7 and later
            until(lambda: knows_a_replica(port))
            yield primary, replica, port


async def test_calls_outlive_the_primary_behind_a_sentinel(folder: Path, tmp_path: Path) -> None:
    with service(folder) as (primary, replica, port):
        sentinels = f"127.0.0.1:{servers.free_port()},127.0.0.1:{port}"  # the first is gone
        url = f"redis+sentinel://{sentinels}/{SERVICE}"
        with performer(url, tmp_path, lease=10):
            async with Kiln.connect(url, settings=Settings(state=tmp_path / "state")) as kiln:
                begun = asyncio.Event()
                sleeping = asyncio.create_task(
                    kiln.call("nap", {"seconds": 2, "mark": "nap"}, observe=lambda _: begun.set())
                )
                await asyncio.wait_for(begun.wait(), BOUND)
                with closing(primary.client()) as client:
                    client.set("after", "all that was written before")
                    assert client.wait(1, 10_000) == 1

                async def halve() -> list[Any]:
                    """Calls that take from a bucket, some of them while the primary dies."""
                    ends = []
                    while not sleeping.done():
                        ends.append((await kiln.call("halve", {"number": 2})).error)
                    return ends

                halving = [asyncio.create_task(halve()) for _ in range(4)]
                await kiln.call("halve", {"number": 2})
                primary.process.kill()

                during = []
                while not sleeping.done():
                    during.append(await kiln.call("double", {"number": 2}))
                slept = await sleeping
                halved = [error for ends in halving for error in await ends]
                after = await kiln.call("double", {"number": 2})

        assert primary_of(port) == replica.port
    assert (slept.status, slept.error) == (Status.OK, None)
    assert [result.error for result in during] == [None] * len(during)
    assert halved == [None] * len(halved)
    assert (after.value, after.error) == (4, None)
    assert len((tmp_path / "nap").read_text().splitlines()) == 1


async def test_calls_go_over_tls(tls_port: int, certificate: Path, tmp_path: Path) -> None:
    url = f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificate}"
    with performer(url, tmp_path):
        async with Kiln.connect(url, settings=Settings(state=tmp_path / "state")) as kiln:
            # All at once: none may be ahead of the session that it is made with.
            results = await asyncio.gather(
                *(kiln.call("double", {"number": number}) for number in range(20))
            )

    assert [result.value for result in results] == [2 * number for number in range(20)]


async def test_a_durable_call_waits_for_a_replica(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    settings = Settings(state=tmp_path / "state", fleet_durable=True)
    with (
        performer(server.url, tmp_path),
        servers.running(folder, "--replicaof", "127.0.0.1", str(server.port)),
    ):
        until(lambda: is_online(server))
        async with Kiln.connect(server.url, settings=settings) as kiln:
            copied = await kiln.call("double", {"number": 2})
    until(lambda: not is_online(server))
    async with Kiln.connect(server.url, settings=settings) as kiln:
        alone = await kiln.call("double", {"number": 2})

    assert (copied.value, copied.error) == (4, None)
    assert alone.status is Status.UNAVAILABLE
    assert alone.error is not None
    assert (alone.error.code, alone.error.retryable) == ("no_replica", True)
