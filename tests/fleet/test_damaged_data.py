"""What others wrote into Redis: it is refused or left out, and stops nothing else."""

import asyncio
from contextlib import closing
from typing import Any

import pytest
from msgspec import Raw

from tables import each_row
from toolkiln.config import Settings
from toolkiln.errors import InputError, StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.address import open_redis
from toolkiln.fleet.admin import RedisFleetAdmin
from toolkiln.fleet.delivery import Ending
from toolkiln.fleet.message_auth import fleet_keys
from toolkiln.fleet.security_stores import RedisApprovals
from toolkiln.fleet.wire import Envelope, envelope_to_wire, pack
from toolkiln.model.policy import Approval

from .queues import desk
from .servers import Server


def call(record: str, **fields: Any) -> Envelope:
    return Envelope(record, record, "greet", arguments=Raw(pack({})), **fields)


@each_row("key", [b"", b"short", b"x" * 65, b"x" * 1_000_000])
async def test_a_damaged_key_of_the_fleet_is_an_error_that_says_what_to_do(
    server: Server, behind: Any, key: bytes
) -> None:
    behind.set(keys.FLEET_KEY, key)

    async with desk(server.url) as own, asyncio.timeout(10):
        with pytest.raises(StoreError, match="damaged fleet key") as refused:
            await fleet_keys(own.pipe, Settings())

    assert "fleet_key" in (refused.value.hint or "")


@each_row("upto", ["x", "", "1-x", "9" * 10_000 + "-1"])
async def test_a_worker_continues_with_a_damaged_lives_key(
    server: Server, behind: Any, upto: str
) -> None:
    behind.flushall()
    behind.hset(keys.lives("default"), mapping={"run": "x", "upto": upto})

    async with desk(server.url) as own:
        await own.queue.enqueue(call("one"))
        taken = await own.queue.read("worker", 1, 1000)

    assert [one.record for one in taken] == ["one"]


async def test_a_damaged_record_does_not_hide_how_other_calls_stand(
    server: Server, behind: Any
) -> None:
    async with desk(server.url) as own:
        await own.queue.enqueue(call("one"))
        for name, fields in (
            ("a", {"entry": "x"}),
            ("b", {"entry": "1-1", "pool": "no stream"}),
            ("c", {"entry": "1-1", "pool": keys.record("one"), "askers": ""}),
        ):
            behind.hset(keys.record(name), mapping=fields)
        behind.set(keys.record("d"), "x")
        found = await own.queue.call_states(["a", "b", "one", "c", "d"])

    assert [one.state for one in found] == ["missing", "missing", "waiting", "missing", "missing"]


async def test_a_call_that_repeats_a_damaged_record_does_not_stop_the_others(
    server: Server, behind: Any
) -> None:
    behind.hset(keys.record("bad"), mapping={"print": "", "entry": "x", "pool": "x"})

    async with desk(server.url) as own:
        bad, good = await asyncio.gather(
            own.queue.enqueue(call("bad")), own.queue.enqueue(call("good"))
        )

    assert [type(one).__name__ for one in (bad, good)] == ["Finished", "Accepted"]


async def test_an_unreadable_entry_leaves_a_small_dead_letter(server: Server, behind: Any) -> None:
    async with desk(server.url) as own:
        await own.queue.enqueue(call("one"))  # which makes the stream
        behind.xadd(keys.calls("default"), {"record": "x", "call": b"x" * 5_000_000})
        taken = await own.queue.read("worker", 2, 1000)
        (letter,) = await RedisFleetAdmin(own.pipe).dead_letters()

    assert [one.record for one in taken] == ["one"]
    assert letter.tool == ""
    kept: Any = behind.xrange(keys.dead("default"))
    assert sum(map(len, kept[0][1].values())) < 1000


async def test_many_dead_letters_are_read_in_parts(server: Server, behind: Any) -> None:
    for number in range(250):
        behind.xadd(keys.dead("default"), {"why": str(number)})

    async with desk(server.url) as own:
        letters = await RedisFleetAdmin(own.pipe).dead_letters()

    assert sorted(int(one.why) for one in letters) == list(range(250))


async def test_a_dead_letter_made_by_hand_cannot_replace_the_record_of_another_call(
    server: Server, behind: Any
) -> None:
    async with desk(server.url) as own:
        await own.queue.enqueue(call("theirs", remember=True))
        (delivery,) = await own.queue.read("worker", 1, 1000)
        await own.queue.finish(Ending(delivery, "end", b"timeout"))
        remembered = behind.hgetall(keys.record("theirs"))
        data = envelope_to_wire(call("theirs", remember=True))
        for fields in (
            {"record": "mine", "call": data, "by": 0, "tries": 0},
            {"record": "theirs", "call": data, "by": "x", "tries": 0},
            {"record": "theirs", "call": data, "by": 0, "tries": -1},
        ):
            behind.xadd(keys.calls("default"), fields)
        assert await own.queue.read("worker", 3, 1000) == []
        operator = RedisFleetAdmin(own.pipe)
        letters = await operator.dead_letters()
        for letter in letters:
            with pytest.raises(InputError, match="cannot be retried"):
                await operator.retry(letter)

    assert len(letters) == 3
    assert behind.hgetall(keys.record("theirs")) == remembered


async def test_fleet_status_shows_the_others_when_one_worker_is_described_wrongly(
    server: Server, behind: Any
) -> None:
    behind.hset(keys.worker("good"), mapping={"pool": "default", "slots": 4})
    odd = {"pool": b"\xff", "slots": "9" * 50, "pid": "-", "running": "-1"}
    behind.hset(keys.worker("odd\n"), mapping=odd)
    behind.hset(keys.worker("long"), mapping={"pool": "default", "host": "x" * 1_000_000})
    behind.set(keys.worker("text"), "x")
    behind.set(keys.refused("text"), "x")

    async with desk(server.url) as own:
        state = await RedisFleetAdmin(own.pipe).state()

    workers = {one.name: one for one in state.workers}
    assert set(workers) == {"good", "odd\n", "long", "text"}
    assert workers["good"].slots == 4
    shown = workers["odd\n"]
    assert (shown.pool, shown.slots, shown.pid, shown.running) == ("\\xff", 0, 0, 0)
    assert len(workers["long"].host) == 10_000


def test_a_damaged_approval_does_not_hide_the_others(server: Server, behind: Any) -> None:
    with closing(open_redis(server.url)) as connection:
        approvals = RedisApprovals(connection)
        wanted = Approval(
            id="", tool="t", digest="d", arguments={}, user="ann", session="s", call_id="c",
            why="", created=0.0, expires=60.0,
        )  # fmt: skip
        asked = approvals.ask(wanted, "print", "key")
        for number, fields in enumerate(
            ({"request": "{}"}, {"request": "{}", "state": "approved", "created": 1, "expires": 2})
        ):
            behind.hset(f"toolkiln:approval:00000000000{number}", mapping=fields)
            behind.zadd(keys.APPROVALS, {f"00000000000{number}": 1e18})
        behind.set("toolkiln:approval:000000000009", "x")
        behind.zadd(keys.APPROVALS, {"000000000009": 1e18})
        listed = approvals.list()
        everything = approvals.list(("pending", "approved", "used"))

    assert [one.id for one in listed] == [one.id for one in everything] == [asked.id]
