"""One connection for many tasks: order, errors, loss and return."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet import connection as link
from toolkiln.fleet import connection as resp
from toolkiln.fleet.address import open_redis, read_address
from toolkiln.fleet.connection import RedisPipe

from . import servers
from .servers import Proxy, Server


@asynccontextmanager
async def piped(url: str) -> AsyncIterator[RedisPipe]:
    pipe = RedisPipe(read_address(url))
    await pipe.open()
    try:
        yield pipe
    finally:
        await pipe.close()


@pytest.fixture
async def pipe(server: Server) -> AsyncIterator[RedisPipe]:
    async with piped(server.url) as opened:
        yield opened


async def refused(url: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await RedisPipe(read_address(url)).open()
    return caught.value


async def unreachable(asked: Awaitable[Any]) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        await asked
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_many_tasks_get_their_own_answers(pipe: RedisPipe) -> None:
    said = await asyncio.gather(*(pipe.command("ECHO", f"{n}") for n in range(1000)))

    assert said == [str(n).encode() for n in range(1000)]


async def test_answers_are_bytes_integers_none_and_lists(pipe: RedisPipe) -> None:
    assert await pipe.command("SET", "k", b"\xff\r\n") == b"OK"
    assert await pipe.command("GET", "k") == b"\xff\r\n"
    assert await pipe.command("GET", "none") is None
    assert await pipe.command("RPUSH", "l", 1, "é") == 2
    assert await pipe.command("LRANGE", "l", 0, -1) == [b"1", "é".encode()]


async def test_whoever_gives_up_does_not_disturb_the_others(pipe: RedisPipe) -> None:
    asked = [asyncio.ensure_future(pipe.command("ECHO", f"{n}")) for n in range(3)]
    await asyncio.sleep(0)
    asked[1].cancel()

    assert await asked[0] == b"0"
    assert await asked[2] == b"2"
    assert await pipe.command("ECHO", "3") == b"3"


async def test_a_refusal_is_one_commands_error(pipe: RedisPipe) -> None:
    commands = [["ECHO", "1"], ["NOSUCH"], ["ECHO", "2"]]

    one, error, two = await asyncio.gather(
        *(pipe.command(*parts) for parts in commands), return_exceptions=True
    )

    assert (one, two) == (b"1", b"2")
    assert isinstance(error, StoreError)
    assert not isinstance(error, Unreachable)
    assert error.hint == "use Redis 6.2 or later"
    assert pipe.connects == 1


async def test_a_script_that_the_server_forgot_is_sent_again(
    server: Server, pipe: RedisPipe
) -> None:
    run = pipe.script("take")
    with closing(server.client()) as client:
        for _ in range(2):
            client.script_flush()
            assert await run(["toolkiln:b"], [5, 10**12]) == 0
        assert float(client.hget("toolkiln:b", "tokens") or 0) == pytest.approx(3, abs=0.1)


async def test_a_socket_and_a_database_are_used(server: Server) -> None:
    async with piped(f"unix://{server.socket}?db=3") as pipe:
        await pipe.command("SET", "k", "v")

    with closing(server.client(db=3)) as client:
        assert client.get("k") == b"v"


async def test_a_wrong_password_is_an_error_that_does_not_tell_it(folder: Path) -> None:
    with servers.running(folder, "--requirepass", "right") as server:
        error = await refused(f"redis://:s3cr3t@127.0.0.1:{server.port}")
        async with piped(f"redis://:right@127.0.0.1:{server.port}") as pipe:
            assert await pipe.command("PING") == b"PONG"
            assert "right" not in repr(pipe) + repr(pipe.address)

    assert error.hint == "check user and password in the URL"
    assert "s3cr3t" not in str(error)


async def test_nobody_there_is_an_error_with_a_hint() -> None:
    error = await refused(f"redis://127.0.0.1:{servers.free_port()}")

    assert isinstance(error, Unreachable)
    assert not error.sent
    assert error.hint == "check that the server is running and the URL is correct"


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n" * 9, b""])
async def test_a_server_of_another_kind_is_an_error(server: Server, says: bytes) -> None:
    class Other(Proxy):
        def _serve(self, client: socket.socket) -> None:
            with client:
                client.sendall(says)

    with closing(Other(server)) as other:
        assert (await refused(f"redis://127.0.0.1:{other.port}")).hint


async def test_a_mute_server_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_CONNECT_SECONDS", 0.1)
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        error = await refused(f"redis://127.0.0.1:{mute.getsockname()[1]}")

    assert "Timeout" in str(error)


async def test_what_was_under_way_when_the_server_died_may_have_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resp, "_RECONNECT_WAIT_SECONDS", 0.1)
    with servers.running(folder) as first:
        async with piped(first.url) as pipe:
            asked = asyncio.ensure_future(pipe.command("BLPOP", "k", 0, wait=60))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            first.process.kill()
            lost = await unreachable(asked)
            away = await unreachable(pipe.command("PING"))
            with servers.running(folder, port=first.port):
                await until(lambda: pipe.connects == 2)
                said = await pipe.command("PING")

    assert lost.sent
    assert not away.sent
    assert said == b"PONG"


async def test_a_connection_that_broke_without_a_word_is_noticed_and_replaced(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_READ_SECONDS", 0.3)
    with closing(Proxy(server)) as proxy:
        async with piped(f"redis://127.0.0.1:{proxy.port}") as pipe:
            proxy.prompt.clear()
            lost = await unreachable(pipe.command("PING"))
            proxy.prompt.set()
            await until(lambda: pipe.connects == 2)
            said = await pipe.command("ECHO", "1")

    assert lost.sent
    assert said == b"1"


async def test_a_command_that_blocks_is_waited_for(
    pipe: RedisPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_READ_SECONDS", 0.1)

    assert await pipe.command("BLPOP", "none", 1, wait=60) is None
    assert pipe.connects == 1


async def test_a_replica_is_left_for_the_primary(folder: Path) -> None:
    with servers.running(folder) as server, closing(server.client()) as client:
        async with piped(server.url) as pipe:
            run = pipe.script("take")
            client.replicaof("127.0.0.1", servers.free_port())
            plain = await unreachable(pipe.command("SET", "k", "v"))
            script = await unreachable(run(["toolkiln:b"], [5, 10**12]))
            client.replicaof("NO", "ONE")
            said = await pipe.command("SET", "k", "v")

    assert (plain.sent, script.sent) == (False, False)
    assert said == b"OK"
    assert pipe.connects == 3


async def test_closing_ends_what_is_under_way(server: Server) -> None:
    async with piped(server.url) as pipe:
        asked = asyncio.ensure_future(pipe.command("BLPOP", "k", 0, wait=60))
        await asyncio.sleep(0)

    assert "closed" in str(await unreachable(asked))
    assert "closed" in str(await unreachable(pipe.command("PING")))


async def test_an_answer_of_megabytes_comes_whole(pipe: RedisPipe) -> None:
    data = bytes(range(256)) * 100_000
    await pipe.command("SET", "k", data)

    assert await pipe.command("GET", "k") == data


async def test_after_a_failover_the_new_primary_is_found(folder: Path) -> None:
    places = {name: folder / name for name in ("one", "two", "watch")}
    for place in places.values():
        place.mkdir()
    with (
        servers.running(places["one"]) as one,
        servers.running(places["two"]) as two,
        closing(two.client()) as replica,
    ):
        replica.replicaof("127.0.0.1", one.port)
        await until(lambda: replica.info("replication").get("master_link_status") == "up")
        with servers.watching(places["watch"], one.port) as port:
            url = f"redis+sentinel://127.0.0.1:{servers.free_port()},127.0.0.1:{port}/main"
            async with piped(url) as pipe:
                await pipe.command("SET", "before", "1")
                await pipe.command("WAIT", 1, 5000)
                await known_to_the_sentinel(port)
                one.process.kill()
                await until(lambda: replica.info("replication")["role"] == "master")
                await set_after(pipe)
            # A sentinel that got no answer in time on a busy machine doubts the new one, too.
            await until(lambda: is_found(url))

        assert replica.mget("before", "after") == [b"1", b"1"]


def is_found(url: str) -> bool:
    try:
        with closing(open_redis(url)) as connection:
            connection.check()
    except StoreError:
        return False
    return True


async def known_to_the_sentinel(port: int) -> None:
    """Until it has heard of the replica, it has nobody to fail over to."""
    async with piped(f"redis://127.0.0.1:{port}") as sentinel:
        while not await sentinel.command("SENTINEL", "REPLICAS", "main"):
            await asyncio.sleep(0.05)


async def set_after(pipe: RedisPipe) -> None:
    while True:
        with suppress(Unreachable):
            await pipe.command("SET", "after", "1")
            return


async def test_a_service_that_no_sentinel_knows_is_an_error(folder: Path, server: Server) -> None:
    with servers.watching(folder, server.port) as port:
        error = await refused(f"redis+sentinel://127.0.0.1:{port}/other")

    assert "no sentinel knows 'other'" in str(error)


async def test_tls_is_spoken_to_a_server_whose_certificate_is_known(
    tls_port: int, certificate: Path
) -> None:
    async with piped(f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificate}") as pipe:
        said = await pipe.command("PING")
    unknown = await refused(f"rediss://127.0.0.1:{tls_port}")
    missing = await refused(f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs=/no/where")

    assert said == b"PONG"
    assert "certificate" in str(unknown.hint)
    assert missing.hint
