"""One connection for many tasks: order, errors, reconnects, batches, and the server check."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet import connection as module
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import Batch, BatchDone, RedisPipe, check_server
from toolkiln.fleet.supervisor import open_pipe

from . import servers
from .servers import Proxy, Server


def piped(url: str) -> AbstractAsyncContextManager[RedisPipe]:
    return open_pipe(RedisPipe(read_address(url)))


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


async def test_a_cancelled_command_does_not_disturb_the_others(pipe: RedisPipe) -> None:
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


async def test_what_was_under_way_when_the_server_died_may_have_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RECONNECT_WAIT_SECONDS", 0.1)
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
    monkeypatch.setattr(module, "_READ_SECONDS", 0.3)
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
    monkeypatch.setattr(module, "_READ_SECONDS", 0.1)

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


async def test_a_service_that_no_sentinel_knows_is_an_error(folder: Path, server: Server) -> None:
    with servers.sentinel(folder, server.port) as port:
        error = await refused(f"redis+sentinel://127.0.0.1:{port}/other")

    assert "no sentinel knows 'other'" in str(error)


async def test_tls_is_spoken_to_a_server_whose_certificate_is_known(
    tls_port: int, certificate: Path
) -> None:
    async with piped(f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs={certificate}") as pipe:
        assert await pipe.command("PING") == b"PONG"


async def checked(url: str) -> tuple[str, ...]:
    async with piped(url) as pipe:
        return await check_server(pipe)


@pytest.fixture
def configured(server: Server, behind: Any) -> Iterator[Server]:
    """A server whose settings are as they were, afterwards."""
    names = ("maxmemory", "maxmemory-policy", "appendonly")
    before = {name: str(behind.config_get(name)[name]) for name in names}
    yield server
    for name, value in before.items():
        behind.config_set(name, value)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"appendonly": "yes", "maxmemory": "100mb"}, None),
        ({"appendonly": "no"}, "appendonly yes"),
        ({"appendonly": "yes", "maxmemory": "0", "maxmemory-policy": "allkeys-lru"}, "noeviction"),
    ],
)
async def test_a_server_that_keeps_what_it_has_is_fit_or_warned_about(
    configured: Server, behind: Any, settings: dict[str, str], warning: str | None
) -> None:
    for name, value in settings.items():
        behind.config_set(name, value)

    said = await checked(configured.url)

    assert len(said) == (warning is not None)
    assert all(str(warning) in one for one in said)


async def test_a_server_that_throws_keys_away_is_refused(configured: Server, behind: Any) -> None:
    behind.config_set("maxmemory", "100mb")
    for policy in ("allkeys-lru", "volatile-ttl"):
        behind.config_set("maxmemory-policy", policy)

        with pytest.raises(StoreError, match=policy) as caught:
            await checked(configured.url)
        assert "noeviction" in str(caught.value.hint)


async def test_a_replica_is_refused(server: Server, folder: Path) -> None:
    of = ("--replicaof", "127.0.0.1", str(server.port))
    with (
        servers.running(folder, *of) as replica,
        pytest.raises(StoreError, match="read-only replica"),
    ):
        await checked(replica.url)


class Asked:
    """Keeps questions until the test answers them."""

    def __init__(self) -> None:
        self.batch: Batch[int, str] = Batch(self._ask, size=3)
        self.questions: list[tuple[list[int], BatchDone[str]]] = []

    def _ask(self, items: Sequence[int], done: BatchDone[str]) -> None:
        self.questions.append((list(items), done))

    async def add(self, *items: int) -> "list[asyncio.Task[str]]":
        tasks = [asyncio.create_task(self.batch.add(item)) for item in items]
        for _ in range(2):
            await asyncio.sleep(0)
        return tasks

    @property
    def items(self) -> list[list[int]]:
        return [items for items, _ in self.questions]

    def answer(self, number: int) -> None:
        items, done = self.questions[number]
        done([str(item) for item in items])


async def test_what_is_asked_in_one_turn_is_one_question() -> None:
    asked = Asked()

    tasks = await asked.add(1, 2)
    asked.answer(0)

    assert asked.items == [[1, 2]]
    assert await asyncio.gather(*tasks) == ["1", "2"]


async def test_what_comes_meanwhile_is_the_next_question() -> None:
    asked = Asked()

    tasks = [*await asked.add(1), *await asked.add(2), *await asked.add(3)]
    before = list(asked.items)
    asked.answer(0)
    asked.answer(1)

    assert before == [[1]]
    assert asked.items == [[1], [2, 3]]
    assert await asyncio.gather(*tasks) == ["1", "2", "3"]
    assert len(await asked.add(4)) == 1
    assert asked.items[-1] == [4]


async def test_a_portion_waits_for_no_answer() -> None:
    asked = Asked()

    tasks = [*await asked.add(1), *await asked.add(2, 3, 4, 5)]
    before = list(asked.items)
    asked.answer(0)
    while_one_is_open = list(asked.items)
    asked.answer(1)
    asked.answer(2)

    assert before == while_one_is_open == [[1], [2, 3, 4]]
    assert asked.items == [[1], [2, 3, 4], [5]]
    assert await asyncio.gather(*tasks) == ["1", "2", "3", "4", "5"]


async def test_the_last_of_a_turn_is_asked_for_at_once_with_those_before_it() -> None:
    asked, answers = Asked(), list[str | Exception]()

    asked.batch.put(1, answers.append)
    asked.batch.put(2, answers.append, last=True)
    at_once = list(asked.items)
    asked.batch.put(3, answers.append, last=True)
    while_open = list(asked.items)
    asked.answer(0)
    asked.answer(1)

    assert at_once == while_open == [[1, 2]]
    assert asked.items == [[1, 2], [3]]
    assert answers == ["1", "2", "3"]


async def test_a_failure_reaches_its_batch_only_and_delays_no_other() -> None:
    asked = Asked()

    first = await asked.add(1)
    rest = await asked.add(2, 3, 4, 5)
    asked.questions[0][1](ValueError("gone"))
    after = list(asked.items)
    asked.answer(2)
    asked.answer(1)

    with pytest.raises(ValueError, match="gone"):
        await first[0]
    assert after == [[1], [2, 3, 4], [5]]
    assert await asyncio.gather(*rest) == ["2", "3", "4", "5"]
    await asked.add(6)
    assert asked.items[-1] == [6]


async def test_a_cancelled_item_does_not_disturb_its_batch() -> None:
    asked = Asked()

    one, two = await asked.add(1, 2)
    one.cancel()
    await asyncio.sleep(0)
    asked.answer(0)

    assert await two == "2"
    assert one.cancelled()
