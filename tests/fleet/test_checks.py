"""Which Redis servers calls are entrusted to, asked of real ones."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolkiln.errors import StoreError
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisPipe, check_server

from . import servers
from .servers import Server


async def checked(url: str) -> tuple[str, ...]:
    pipe = RedisPipe(read_address(url))
    await pipe.open()
    try:
        return await check_server(pipe)
    finally:
        await pipe.close()


@pytest.fixture
def configured(server: Server) -> Iterator[Server]:
    """A server whose settings are as they were, afterwards."""
    names = ("maxmemory", "maxmemory-policy", "appendonly")
    with closing(server.client()) as client:
        before = {name: str(client.config_get(name)[name]) for name in names}
        yield server
        for name, value in before.items():
            client.config_set(name, value)


def set_(server: Server, **values: str) -> None:
    with closing(server.client()) as client:
        for name, value in values.items():
            client.config_set(name.replace("_", "-"), value)


async def test_a_server_that_keeps_what_it_has_is_fit(configured: Server) -> None:
    set_(configured, appendonly="yes", maxmemory="100mb")

    assert await checked(configured.url) == ()


async def test_a_server_without_an_append_only_file_is_warned_about(server: Server) -> None:
    (warning,) = await checked(server.url)

    assert "appendonly yes" in warning
    assert server.url in warning


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_throws_keys_away_is_refused(configured: Server, policy: str) -> None:
    set_(configured, maxmemory="100mb", maxmemory_policy=policy)

    with pytest.raises(StoreError, match=policy) as caught:
        await checked(configured.url)

    assert "noeviction" in str(caught.value.hint)


async def test_a_policy_that_has_no_effect_yet_is_warned_about(configured: Server) -> None:
    set_(configured, maxmemory="0", maxmemory_policy="allkeys-lru", appendonly="yes")

    (warning,) = await checked(configured.url)

    assert "noeviction" in warning


async def test_a_replica_is_refused(server: Server, folder: Path) -> None:
    of = ("--replicaof", "127.0.0.1", str(server.port))
    with (
        servers.running(folder, *of) as replica,
        pytest.raises(StoreError, match="read-only replica"),
    ):
        await checked(replica.url)


async def test_a_cluster_is_refused(folder: Path) -> None:
    # It also listens 10,000 ports further up.
    port = next(port for port in iter(servers.free_port, None) if port < 55_000)
    cluster = servers.running(folder, "--cluster-enabled", "yes", port=port)
    with cluster as server, pytest.raises(StoreError, match="Cluster"):
        await checked(server.url)


def hello(version: str) -> list[bytes]:
    return [b"server", b"redis", b"version", version.encode(), b"mode", b"standalone"]


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16", "6", ""])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(StoreError, match="too old"):
        read_address("redis://h").check(hello(version))


@pytest.mark.parametrize("version", ["6.2.0", "7.4.1", "10.0.0", "7.2.rc1"])
def test_later_servers_are_fit(version: str) -> None:
    read_address("redis://h").check(hello(version))
