"""What operators see of a fleet and do about it, against a real server, without workers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from typer.testing import CliRunner

from tables import each_row
from toolkiln.config import Settings
from toolkiln.errors import InputError, StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.admin import RedisFleetAdmin
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import AlreadyRunning, Ending, Finished
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.wire import Envelope, pack
from toolkiln.kiln import Kiln
from toolkiln.operations import system
from toolkiln.operations.operation import Nothing
from toolkiln.surfaces.cli.app import app

from .servers import Server

CALL = Envelope("1", "one", "greet", arguments=Raw(pack({"name": "Ann"})), reply_to="ann")
KEPT = Envelope("2", "two", "greet", arguments=Raw(pack({})), remember=True)


@pytest.fixture
def operator(pipe: RedisPipe) -> RedisFleetAdmin:
    return RedisFleetAdmin(pipe)


@pytest.fixture
def queue(pipe: RedisPipe) -> Queue:
    return Queue(pipe, "default")


async def register(pipe: RedisPipe, name: str, **said: str | int) -> None:
    """Say what a worker says of itself."""
    about = {"pool": "default", "slots": 4, "running": 1, "state": "running", **said}
    parts = [part for pair in about.items() for part in pair]
    await pipe.command("HSET", keys.worker(name), *parts)
    await pipe.command("SADD", keys.POOLS, about["pool"])


async def bury(queue: Queue, envelope: Envelope = CALL, why: str = "it killed three") -> None:
    await queue.enqueue(envelope)
    (delivery,) = await queue.read("worker", 1, 10)
    assert await queue.bury(delivery, why)


async def run(server: Server, *arguments: str) -> str:
    """What a command prints; it has an event loop of its own."""
    command = ["fleet", *arguments, "--redis", server.url]
    done = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert done.exit_code == 0, done.output
    return done.output


# Status


async def test_a_fleet_is_its_workers_and_what_waits(
    operator: RedisFleetAdmin, queue: Queue, pipe: RedisPipe
) -> None:
    empty = await operator.state()
    await register(pipe, "b", version="0.1.0", host="here", pid=7)
    await register(pipe, "a", state="draining")
    await queue.enqueue(CALL)
    await queue.read("a.1", 1, 10)
    await queue.enqueue(KEPT)
    await pipe.command("SADD", keys.POOLS, "gpu", "empty")  # pools without workers
    await Queue(pipe, "gpu").enqueue(Envelope("3", "three", "greet"))

    state = await operator.state()

    assert (empty.pools, empty.workers, empty.tools) == ((), (), 0)
    assert [(one.name, one.state) for one in state.workers] == [("a", "draining"), ("b", "running")]
    assert (state.workers[1].host, state.workers[1].pid) == ("here", 7)
    found = [(one.name, one.waiting, one.running, one.dead) for one in state.pools]
    assert found == [("default", 1, 1, 0), ("gpu", 1, 0, 0)]
    assert state.pools[1].oldest >= 0


async def test_the_status_is_readable_at_a_glance_or_json(
    server: Server, queue: Queue, pipe: RedisPipe, tmp_path: Path
) -> None:
    await register(pipe, "vm-1", version="0.1.0", host="vm", pid=7)
    await queue.enqueue(CALL)

    lines = (await run(server, "status")).splitlines()
    said = json.loads(await run(server, "status", "--json"))
    async with Kiln(settings=Settings(state=tmp_path, redis=server.url)) as kiln:
        answer = await kiln.run_operation(system.show_fleet, Nothing())

    assert lines[0].startswith(f"{server.url}/0: Redis ")
    assert lines[2].split()[:5] == ["pool", "workers", "slots", "running", "waiting"]
    assert lines[3].split()[:5] == ["default", "1", "4", "0", "1"]
    assert lines[6].split()[:6] == ["vm-1", "default", "running", "1", "of", "4"]
    assert (said["workers"][0]["name"], said["pools"][0]["waiting"]) == ("vm-1", 1)
    assert answer.state is not None
    assert [(one.name, one.host) for one in answer.state.workers] == [("vm-1", "vm")]


# Asking workers


async def asked(pipe: RedisPipe, pool: str = "default") -> list[list[bytes]]:
    return [fields for _, fields in await pipe.command("XRANGE", keys.control(pool), "-", "+")]


async def test_one_worker_is_asked_to_leave(operator: RedisFleetAdmin, pipe: RedisPipe) -> None:
    await register(pipe, "vm-17", pool="gpu")
    await register(pipe, "b")

    with pytest.raises(InputError) as caught:
        await operator.drain(worker="vm-71")
    found = await operator.drain(worker="vm-17")

    assert "vm-17" in str(caught.value.hint)
    assert [one.name for one in found] == ["vm-17"]
    assert await asked(pipe, "gpu") == [[b"ask", b"drain", b"of", b"vm-17"]]
    assert await asked(pipe) == []


async def test_all_workers_of_a_pool_are_asked_at_once(server: Server, pipe: RedisPipe) -> None:
    await register(pipe, "a")
    await register(pipe, "b")

    said = await run(server, "drain", "--pool", "default")

    assert said.splitlines() == ["draining: a, 1 running", "draining: b, 1 running"]
    assert await asked(pipe) == [[b"ask", b"drain", b"of", b""]]


@each_row(
    "command, says",
    [
        ("drain", "name either one worker or a pool to drain"),
        ("drain a --pool b", "name either one worker or a pool to drain"),
        ("dead-letters drop", "`toolkiln fleet dead-letters list` lists them"),
        ("dead-letters drop 1-1 --all", "`toolkiln fleet dead-letters list` lists them"),
        ("dead-letters drop 1-1", "`toolkiln fleet dead-letters list` lists them"),
    ],
)
def test_a_command_has_to_name_what_it_is_about(server: Server, command: str, says: str) -> None:
    done = CliRunner().invoke(app, ["fleet", *command.split(), "--redis", server.url])

    assert done.exit_code == 2
    assert says in done.output


async def test_a_reload_is_announced_to_all(server: Server, pipe: RedisPipe) -> None:
    await register(pipe, "a")

    assert await run(server, "reload") == "asked 1 worker\n"

    ((_, fields),) = await pipe.command("XRANGE", keys.ANNOUNCEMENTS, "-", "+")
    assert fields == [b"kind", b"config"]


async def test_without_a_redis_that_answers_there_is_no_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLKILN_REDIS", raising=False)

    absent = CliRunner().invoke(app, ["fleet", "status"])
    command = ["fleet", "status", "--redis", "redis://127.0.0.1:1"]
    unreachable = await asyncio.to_thread(CliRunner().invoke, app, command)
    async with Kiln(settings=Settings(state=tmp_path, fleet="redis://127.0.0.1:1")) as kiln:
        with pytest.raises(StoreError):
            await kiln.run_operation(system.show_fleet, Nothing())

    assert absent.exit_code == 2
    assert "--redis redis://HOST:PORT" in absent.output
    assert unreachable.exit_code == 3
    assert unreachable.output.startswith("error: redis://127.0.0.1:1/0 failed")


# Dead letters


async def test_a_call_that_was_given_up_is_listed(server: Server, queue: Queue) -> None:
    await bury(queue)

    titles, line = (await run(server, "dead-letters", "list")).splitlines()

    assert titles.split() == ["id", "pool", "age", "tool", "call", "tries", "why"]
    assert line.split()[4:] == ["greet", "1", "0", "it", "killed", "three"]


async def test_a_letter_that_cannot_be_read_is_listed_and_dropped_but_not_tried(
    operator: RedisFleetAdmin, queue: Queue, pipe: RedisPipe
) -> None:
    await pipe.command("XADD", keys.dead("default"), "*", "call", b"\xc1", "why", "x\nforged row")
    (letter,) = await operator.dead_letters()

    with pytest.raises(InputError, match="cannot be read"):
        await operator.retry(letter)

    assert letter.tool == ""
    assert await operator.drop([letter]) == 1
    assert await operator.dead_letters() == []


async def test_a_retried_dead_letter_runs_and_its_caller_gets_no_second_reply(
    operator: RedisFleetAdmin, queue: Queue, pipe: RedisPipe, behind: Any
) -> None:
    await bury(queue)
    (letter,) = await operator.dead_letters()

    await operator.retry(letter)

    (delivery,) = await queue.read("worker", 1, 10)
    assert delivery.envelope == CALL
    assert (delivery.tries, delivery.deadline_ms) == (0, None)
    assert await queue.finish(Ending(delivery, "result", b"hello"))
    assert await operator.dead_letters() == []
    assert behind.xlen(keys.replies("ann")) == 1  # that it was given up
    lasting = [key for key in behind.scan_iter() if behind.ttl(key) == -1]
    lasting.remove(keys.lives("default").encode())
    assert all(behind.type(key) == b"stream" and behind.xlen(key) == 0 for key in lasting)


async def test_the_result_of_another_try_is_remembered_for_its_id(
    operator: RedisFleetAdmin, queue: Queue
) -> None:
    await bury(queue, KEPT)
    (letter,) = await operator.dead_letters()
    await operator.retry(letter)
    (delivery,) = await queue.read("worker", 1, 10)
    during = await queue.enqueue(KEPT)

    await queue.finish(Ending(delivery, "result", b"hello"))

    assert during == AlreadyRunning()
    after = await queue.enqueue(KEPT)
    assert isinstance(after, Finished)
    assert after.reply is not None
    assert after.reply.body == b"hello"


async def test_a_call_that_runs_again_by_itself_is_not_tried_beside(
    operator: RedisFleetAdmin, queue: Queue, pipe: RedisPipe
) -> None:
    await bury(queue)
    await pipe.command("DEL", keys.record("one"))
    await queue.enqueue(CALL)
    (letter,) = await operator.dead_letters()

    with pytest.raises(InputError, match="running again"):
        await operator.retry(letter)

    assert await queue.consumers.depth() == (1, 0)


async def test_letters_are_tried_or_dropped_by_id_or_all_at_once(
    server: Server, operator: RedisFleetAdmin, queue: Queue
) -> None:
    for number in range(3):
        await bury(queue, Envelope(str(number), str(number), "greet"))
    first = (await operator.dead_letters())[0].id

    assert await run(server, "dead-letters", "drop", first) == f"dropped: {first} greet\n"
    assert len((await run(server, "dead-letters", "retry", "--all")).splitlines()) == 2

    assert await operator.dead_letters() == []
    assert await queue.consumers.depth() == (2, 0)
