"""Calls in a queue: in, out, ended and handed on, each once."""

import asyncio
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.errors import InputError, Unreachable
from toolkiln.fleet import keys, wire
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import (
    Accepted,
    Admission,
    AlreadyRunning,
    CallState,
    ControlMessage,
    DeliveryConflict,
    Ending,
    Finished,
    Overloaded,
)
from toolkiln.fleet.wire import CallReply

from . import servers
from .queues import POOL, Desk, call, desk, result
from .servers import Proxy, Server

STREAM = keys.calls(POOL)
LARGE = "x" * (wire.INLINE_LIMIT + 1)


async def test_a_call_goes_in_and_its_first_result_comes_back(own: Desk, behind: Any) -> None:
    made = call(arguments={"n": 1}, timeout_ms=60_000)

    put = await own.queue.enqueue(made)
    [taken] = await own.take()
    won, late = await asyncio.gather(
        own.queue.finish(result(taken)), own.queue.finish(result(taken, b"\x02"))
    )

    assert put == Accepted()
    assert taken.envelope == made
    assert wire.unpack(taken.envelope.arguments) == {"n": 1}
    assert taken.tries == 0
    assert 0 < (taken.deadline_ms or 0) - await own.queue.now_ms() <= 60_000
    assert (won, late) == (True, False)
    assert await own.replies_to("c1") == [CallReply(made.record, "result", b"\x01")]
    assert behind.xlen(STREAM) == 0
    assert await own.queue.consumers.depth() == (0, 0)


async def test_calls_of_one_moment_go_in_and_out_with_one_script_each(
    own: Desk, behind: Any
) -> None:
    await own.queue.enqueue(call(reply_to="c2"))
    (first,) = await own.take()
    await own.queue.finish(result(first))  # the server knows the scripts
    behind.config_resetstat()

    await asyncio.gather(*(own.queue.enqueue(call(reply_to=f"c{n % 2}")) for n in range(30)))
    taken = await own.take()
    won = await asyncio.gather(*(own.queue.finish(result(one)) for one in taken))

    runs = behind.info("commandstats")["cmdstat_evalsha"]
    assert won == [True] * 30
    assert runs["calls"] <= 3  # in, out, and perhaps one that keeps the queue
    assert behind.xlen(keys.replies("c0")) == behind.xlen(keys.replies("c1")) == 1
    assert len(await own.replies_to("c0")) == len(await own.replies_to("c1")) == 15


async def test_a_repeated_call_runs_once_and_both_callers_get_the_reply(
    own: Desk, behind: Any
) -> None:
    first, second = call("r", reply_to="c1"), call("r", reply_to="c2")

    put = [*await asyncio.gather(own.queue.enqueue(first), own.queue.enqueue(first))]
    put += [await own.queue.enqueue(second), await own.queue.enqueue(second)]
    [taken] = await own.take()
    put += [await own.queue.enqueue(first)]
    await own.queue.finish(result(taken))

    assert put == [Accepted(), *[AlreadyRunning()] * 4]
    for name in ("c1", "c2"):
        assert await own.replies_to(name) == [CallReply("r", "result", b"\x01")]
    assert behind.xlen(STREAM) == 0


@each_row(
    "end, remember, again",
    [
        ("", True, Finished(CallReply("r", "result", b"\x01"))),
        ("", False, Finished(None)),
        ("lost", True, Finished(CallReply("r", "end", b"lost"))),
        ("stale", True, Accepted()),
    ],
)
async def test_the_end_of_a_call_decides_what_its_id_gives(
    own: Desk, behind: Any, end: str, remember: bool, again: Admission
) -> None:
    behind.flushall()
    await own.queue.enqueue(call("r", {"a": 1, "b": 2}, remember=remember))
    [taken] = await own.take()

    await own.queue.finish(Ending(taken, "end", end.encode()) if end else result(taken))

    assert await own.queue.enqueue(call("r", {"b": 2, "a": 1}, remember=remember)) == again


async def test_what_no_worker_took_is_withdrawn_and_its_id_free_again(own: Desk) -> None:
    await own.queue.enqueue(call("r1", remember=True))
    await own.queue.enqueue(call("r2", remember=True))
    await own.take(count=1)

    withdrawn = [await own.queue.withdraw(record, "no_worker") for record in ("r1", "r2", "r3")]

    assert withdrawn == [False, True, False]
    assert await own.replies_to("c1") == [CallReply("r2", "end", b"no_worker")]
    assert await own.queue.enqueue(call("r2", remember=True)) == Accepted()


async def test_an_id_with_another_call_is_a_conflict(own: Desk) -> None:
    others = [call("r", {"n": 2}, remember=True), call("r", {"n": 1}, tool="x", remember=True)]
    await own.queue.enqueue(call("r", {"n": 1}, remember=True))

    put = [await own.queue.enqueue(other) for other in others]
    [taken] = await own.take()
    await own.queue.finish(result(taken))
    put += [await own.queue.enqueue(other) for other in others]

    assert put == [DeliveryConflict()] * 4


async def test_an_answer_that_was_lost_can_be_asked_for_again(server: Server) -> None:
    made = call("r", remember=True)
    with closing(Proxy(server)) as proxy:
        async with desk(f"redis://127.0.0.1:{proxy.port}") as own:
            await own.queue.enqueue(call(reply_to="c2"))
            await own.queue.finish(result((await own.take())[0]))  # the server knows the scripts
            proxy.lose_one = True
            with pytest.raises(Unreachable) as caught:
                await own.queue.enqueue(made)
            again = await own.queue.enqueue(made)
            [taken] = await own.take()
            proxy.lose_one = True
            with pytest.raises(Unreachable):
                await own.queue.finish(result(taken))
            late = await own.queue.finish(result(taken, b"\x02"))
            finished = await own.queue.enqueue(made)
            replies = await own.replies_to("c1")

    assert caught.value.sent
    assert again == AlreadyRunning()
    assert late is False
    assert finished == Finished(CallReply("r", "result", b"\x01"))
    assert replies == [CallReply("r", "result", b"\x01")]


async def test_beyond_the_depth_calls_are_refused_and_can_be_tried_again(server: Server) -> None:
    async with desk(server.url, most_waiting=3) as own:
        calls = [call(f"r{n}") for n in range(5)]
        put = await asyncio.gather(*(own.queue.enqueue(one) for one in calls))
        over = await own.queue.enqueue(calls[4])
        known = await own.queue.enqueue(calls[0])
        state = (await own.queue.call_states(["r0"]))[0].state
        cancelled = await own.queue.cancel("r0")  # before there is a worker
        depth = await own.queue.consumers.depth()
        taken = await own.take(count=2)
        again = await own.queue.enqueue(calls[4])

    assert put[:3] == [Accepted()] * 3
    assert [type(one) for one in [*put[3:], over]] == [Overloaded] * 3
    assert known == AlreadyRunning()
    assert (state, cancelled, depth) == ("waiting", "cancelled", (2, 0))
    assert [one.record for one in taken] == ["r1", "r2"]
    assert again == Accepted()


async def test_while_the_oldest_waits_too_long_calls_are_refused(server: Server) -> None:
    async with desk(server.url, oldest_waiting_ms=1) as own:
        await own.queue.enqueue(call("r"))
        while not isinstance(await own.queue.enqueue(call()), Overloaded):
            pass
        await own.take()

        assert await own.queue.enqueue(call()) == Accepted()


async def test_a_requeued_call_no_longer_belongs_to_its_first_worker(own: Desk) -> None:
    await own.queue.enqueue(call("r", timeout_ms=5000))
    [first] = await own.take("w1")

    handed = await own.queue.requeue(first, 1)
    [second] = await own.take("w2")
    late = [
        await own.queue.finish(result(first)),
        await own.queue.requeue(first, 2),
        *await own.queue.renew("w1", [first.entry]),
    ]
    won = await own.queue.finish(result(second, b"\x02"))

    assert handed
    assert (second.tries, second.deadline_ms) == (1, first.deadline_ms)
    assert late == [False, False, False]
    assert won
    assert await own.replies_to("c1") == [CallReply("r", "result", b"\x02")]


async def test_a_call_without_a_renewed_lease_is_taken_over(own: Desk) -> None:
    await asyncio.gather(*(own.queue.enqueue(call(f"r{n}")) for n in range(3)))
    taken = await own.take("w1")
    renewed = await own.queue.renew("w1", [one.entry for one in taken])
    others = await own.queue.renew("w2", [one.entry for one in taken])

    kept, none = await own.queue.claim_abandoned("sweeper", "0-0", 60_000)
    cursor, some = await own.queue.claim_abandoned("sweeper", "0-0", 0, count=2)
    end, rest = await own.queue.claim_abandoned("sweeper", cursor, 0, count=2)

    assert renewed == [True] * 3
    assert others == [False] * 3
    assert (kept, none) == ("0-0", [])
    assert end == "0-0"
    assert sorted(one.record for one in [*some, *rest]) == ["r0", "r1", "r2"]
    assert await own.queue.renew("w1", [one.entry for one in taken]) == [False] * 3
    assert await own.queue.finish(result(some[0]))


async def test_after_a_reconnect_a_worker_finds_what_it_holds(own: Desk) -> None:
    await own.queue.enqueue(call("r1"))
    await own.take("w1")
    await own.queue.enqueue(call("r2"))
    await own.take("w2")

    assert [one.record for one in await own.queue.pending("w1")] == ["r1"]
    assert await own.queue.pending("w3") == []


async def test_a_deleted_entry_is_acknowledged_and_its_call_missing(own: Desk, behind: Any) -> None:
    await asyncio.gather(*(own.queue.enqueue(call(f"r{n}")) for n in range(3)))
    await own.take("w1", count=2)
    behind.xtrim(STREAM, maxlen=0, approximate=False)

    states = [one.state for one in await own.queue.call_states(["r0", "r1", "r2"])]
    own_left = await own.queue.pending("w1")
    _, taken = await own.queue.claim_abandoned("w2", "0-0", 0)
    once = await own.queue.enqueue(call("r0"))
    anew = await own.queue.enqueue(call("r1", repeatable=True))

    assert states == ["missing"] * 3
    assert own_left == taken == []
    assert await own.queue.consumers.depth() == (1, 0)
    assert once == Finished(CallReply("r0", "end", b"lost"))
    assert anew == Accepted()


async def test_a_sweeper_forgets_what_was_deleted_under_others(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r"))
    await own.take("w1")
    behind.xtrim(STREAM, maxlen=0, approximate=False)

    _, taken = await own.queue.claim_abandoned("w2", "0-0", 0)

    assert taken == []
    assert await own.queue.consumers.depth() == (0, 0)


async def test_a_call_that_waits_is_cancelled_at_once(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r", LARGE, remember=True))

    said = await own.queue.cancel("r")

    assert said == "cancelled"
    assert await own.take() == []
    assert await own.replies_to("c1") == [CallReply("r", "end", b"cancelled")]
    assert await own.queue.cancel("r") == "done"
    again = await own.queue.enqueue(call("r", LARGE, remember=True))
    assert again == Finished(CallReply("r", "end", b"cancelled"))
    assert not behind.exists(keys.body("r", "call"))


async def test_a_call_that_runs_is_asked_to_stop_and_one_end_wins(own: Desk) -> None:
    await own.queue.enqueue(call("r"))
    [taken] = await own.take()

    said = await own.queue.cancel("r")
    _, asks = await own.queue.consumers.read_control(("0-0", "0-0"), 1, own.waiting)
    won = await own.queue.finish(Ending(taken, "end", b"cancelled"))
    late = await own.queue.finish(result(taken))

    assert said == "asked"
    assert asks == [ControlMessage("cancel", "r")]
    assert (won, late) == (True, False)
    assert await own.replies_to("c1") == [CallReply("r", "end", b"cancelled")]
    assert await own.queue.cancel("r") == "done"
    assert await own.queue.cancel("unheard-of") == "unknown"


async def test_states_of_calls_are_returned_in_order(own: Desk) -> None:
    await own.queue.enqueue(call("done", remember=True))
    await own.queue.finish(result((await own.take())[0]))
    await own.queue.enqueue(call("over"))
    await own.queue.finish(result((await own.take())[0]))
    await own.queue.enqueue(call("running"))
    await own.take()
    await own.queue.enqueue(call("waiting"))

    found = await own.queue.call_states(["running", "missing", "done", "waiting", "over"])

    assert [one.state for one in found] == ["running", "missing", "done", "waiting", "done"]
    assert [one.reply for one in found][1:] == [
        None,
        CallReply("done", "result", b"\x01"),
        None,
        None,
    ]
    assert all(0 <= one.age_ms < 60_000 for one in found)


async def test_large_bodies_travel_beside_the_streams_and_leave_nothing(
    own: Desk, behind: Any
) -> None:
    made = call("r", LARGE, remember=True)
    body = wire.pack(LARGE)

    await own.queue.enqueue(made)
    entry = behind.xrange(STREAM)[0][1]
    [taken] = await own.take()
    await own.queue.finish(result(taken, body))
    replies = await own.replies_to("c1")
    again = await own.queue.enqueue(made)

    assert len(entry[b"call"]) < 100
    assert wire.unpack(taken.envelope.arguments) == LARGE
    assert replies == [CallReply("r", "result", body)]
    assert again == Finished(replies[0])
    assert not behind.exists(keys.body("r", "call"))
    assert behind.pttl(keys.body("r", "result")) > 0
    assert behind.memory_usage(keys.replies("c1")) < 10_000


async def test_a_large_result_whose_body_is_gone_is_a_loss(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r"))
    [taken] = await own.take()
    await own.queue.finish(result(taken, LARGE.encode()))
    behind.set(keys.body("r", "result"), b"another")

    assert await own.replies_to("c1") == [CallReply("r", "end", b"lost")]


async def test_what_is_too_large_is_refused_before_it_is_sent(own: Desk, behind: Any) -> None:
    with pytest.raises(InputError) as caught:
        await own.queue.enqueue(call("r", "x" * wire.BODY_LIMIT))

    assert caught.value.hint
    assert behind.dbsize() == 0


@each_row(
    "fields",
    [
        {"record": "r", "call": b"", "by": 0, "tries": 0},
        {"record": "r", "call": b"\x91" * 100_000, "by": 0, "tries": 0},
        {"record": "r", "call": b"\xdd\xff\xff\xff\xff", "by": 0, "tries": 0},
        {"record": "r", "call": b"\xc4\x20" + bytes(32), "by": 0, "tries": 0},
        {"record": "r", "call": wire.envelope_to_wire(call("other")), "by": 0, "tries": 0},
        {"record": "r", "call": wire.envelope_to_wire(call("r")), "by": "soon", "tries": 0},
        {"record": "r", "call": wire.envelope_to_wire(call("r")), "by": 0, "tries": "9" * 5000},
        {"record": "r"},
        {"record": b"\xff\n", "call": b"\x00"},
        {"record": "r\r\nXADD", "call": b"\x80", "by": "soon", "tries": "-1"},
        {"record": "r" * 5000, "call": b"\x80", "by": "9" * 400, "tries": "1e9"},
        {"x": "y"},
    ],
)
async def test_an_unreadable_entry_is_dead_lettered_and_its_caller_notified(
    own: Desk, behind: Any, fields: dict[str, bytes | str | int]
) -> None:
    behind.flushall()
    await own.queue.enqueue(call("before"))
    entry = behind.xadd(STREAM, fields)
    about = {"pool": STREAM, "entry": entry, "askers": keys.replies("c1"), "print": ""}
    behind.hset(keys.record("r"), mapping=about)
    await own.queue.enqueue(call("after"))

    taken = await own.take()

    assert [one.record for one in taken] == ["before", "after"]
    assert behind.xlen(STREAM) == 2
    [(_, letter)] = behind.xrange(keys.dead(POOL))
    assert letter[b"why"]
    if fields.get("record") == "r":
        assert await own.replies_to("c1") == [CallReply("r", "end", b"poison")]


async def test_a_copied_entry_is_dropped_and_its_call_ends_once(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r"))
    [(_, fields)] = behind.xrange(STREAM)
    behind.xadd(STREAM, fields)
    behind.xadd(STREAM, {"record": "r", "call": "nonsense"})

    [first] = await own.take()
    won = await own.queue.finish(result(first))
    behind.xadd(STREAM, fields)
    again = await own.take()

    assert (won, again) == (True, [])
    assert await own.replies_to("c1") == [CallReply("r", "result", b"\x01")]
    assert behind.xlen(STREAM) == 0


async def test_damaged_keys_do_not_stop_other_calls_from_ending(own: Desk, behind: Any) -> None:
    names = ["good", "no-record", "no-stream", "other"]
    calls = [call(name, reply_to="bad" if name == "no-stream" else "c1") for name in names]
    behind.set(keys.record("taken"), "no hash")
    behind.set(keys.replies("bad"), "no stream")
    behind.set(keys.dead(POOL), "no stream")
    behind.xadd(STREAM, {f"f{n}": "x" for n in range(9000)})

    put = await asyncio.gather(*(own.queue.enqueue(one) for one in [*calls, call("taken")]))
    taken = await own.take()
    behind.delete(keys.record("no-record"))
    behind.set(keys.record("no-record"), "no hash")
    won = await asyncio.gather(*(own.queue.finish(result(one)) for one in taken))

    assert put == [Accepted()] * 4 + [DeliveryConflict()]
    assert won == [True] * 4
    assert [reply.record for reply in await own.replies_to("c1")] == ["good", "no-record", "other"]
    assert behind.xlen(STREAM) == 0


async def test_a_call_that_was_given_up_is_poison_and_a_dead_letter(own: Desk, behind: Any) -> None:
    made = call("r", remember=True)
    await own.queue.enqueue(made)
    [taken] = await own.take()

    buried = await own.queue.bury(taken, "begun 3 times")
    again = await own.queue.bury(taken, "begun 3 times")

    [(_, letter)] = behind.xrange(keys.dead(POOL))
    assert (buried, again) == (True, False)
    assert letter[b"why"] == b"begun 3 times"
    assert wire.envelope_from_wire(letter[b"call"]) == made
    assert await own.replies_to("c1") == [CallReply("r", "end", b"poison")]
    assert await own.queue.enqueue(made) == Finished(CallReply("r", "end", b"poison"))


async def test_without_memory_calls_are_refused_and_those_under_way_still_end(
    own: Desk, behind: Any
) -> None:
    await asyncio.gather(*(own.queue.enqueue(call(f"r{n}", remember=True)) for n in range(4)))
    taken = await own.take(count=3)
    behind.config_set("maxmemory", 1)
    try:
        put = await own.queue.enqueue(call("more"))
        finished = await own.queue.finish(result(taken[0], LARGE.encode()))
        handed = await own.queue.requeue(taken[1], 1)
        buried = await own.queue.bury(taken[2], "why")
        cancelled = await own.queue.cancel("r3")
    finally:
        behind.config_set("maxmemory", 0)

    assert isinstance(put, Overloaded)
    assert (finished, handed, buried, cancelled) == (True, True, True, "cancelled")
    assert sorted(reply.record for reply in await own.replies_to("c1")) == ["r0", "r2", "r3"]
    assert (await own.queue.call_states(["more"]))[0].state == "missing"
    assert [one.record for one in await own.take()] == ["r1"]


async def test_replies_go_on_from_where_they_were_read_and_are_trimmed(
    own: Desk, behind: Any
) -> None:
    replies = own.replies("c1")
    read = list[CallReply]()
    for n in range(3):
        await own.queue.enqueue(call(f"r{n}"))
        await own.queue.finish(result((await own.take())[0]))
        read += await replies.next(1)
    nothing = await replies.next(1)

    assert [reply.record for reply in read] == ["r0", "r1", "r2"]
    assert nothing == []
    assert behind.xlen(keys.replies("c1")) == 0
    assert behind.pttl(keys.replies("c1")) > 0
    await replies.close()
    assert not behind.exists(keys.replies("c1"))


async def test_replies_of_a_server_whose_clock_is_behind_are_read(own: Desk, behind: Any) -> None:
    replies = own.replies("c1")
    await own.queue.send("c1", [CallReply("r1", "event", b"")])
    first = await replies.next(1)
    packed = wire.replies_to_wire([CallReply("r2", "event", b"")])
    behind.delete(keys.replies("c1"))
    behind.xadd(keys.replies("c1"), {"replies": packed}, id="1-1")
    behind.client_kill_filter(_type="normal", skipme=True)
    await reconnected(own.waiting)

    second = await replies.next(1)
    behind.client_kill_filter(_type="normal", skipme=True)
    await reconnected(own.waiting, 3)

    assert [reply.record for reply in [*first, *second]] == ["r1", "r2"]
    assert await replies.next(1) == []


async def test_nonsense_in_a_reply_stream_is_passed_over(own: Desk, behind: Any) -> None:
    for data in (b"\x91" * 5000, b"", b"\x01", b"\x91\x93\xa1r\xa6result\xa1x"):
        behind.xadd(keys.replies("c1"), {"replies": data})
    await own.queue.send("c1", [CallReply("r", "event", b"")])

    assert await own.replies_to("c1") == [CallReply("r", "event", b"")]


async def test_a_consumer_is_forgotten_only_when_it_holds_nothing(own: Desk) -> None:
    await own.queue.enqueue(call("r"))
    [taken] = await own.take("w1")

    held = await own.queue.consumers.retire("w1")
    names = [(one.name, one.pending) for one in await own.queue.consumers.members()]
    await own.queue.finish(result(taken))
    gone = await own.queue.consumers.retire("w1")

    assert (held, gone) == (False, True)
    assert names == [("w1", 1)]
    assert await own.queue.consumers.members() == []


async def test_a_redis_that_lost_everything_is_worked_with_again(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r"))
    [taken] = await own.take()
    behind.flushall()
    behind.script_flush()

    assert await own.queue.renew("w1", [taken.entry]) == [False]
    assert await own.queue.consumers.retire("w1") is True
    assert await own.queue.consumers.members() == []
    assert await own.queue.consumers.depth() == (0, 0)
    assert await own.take() == []
    assert await own.queue.finish(result(taken)) is False
    assert await own.queue.requeue(taken, 1) is False
    assert await own.queue.claim_abandoned("w1", "0-0", 0) == ("0-0", [])
    assert await own.queue.call_states(["r"]) == [CallState("missing", 0, None)]
    assert await own.queue.enqueue(call("r")) == Accepted()
    assert [one.record for one in await own.take()] == ["r"]


async def test_a_call_whose_record_is_gone_still_ends_with_a_reply(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r"))
    [taken] = await own.take()
    behind.delete(keys.record("r"))

    assert await own.queue.finish(result(taken))
    assert await own.replies_to("c1") == [CallReply("r", "result", b"\x01")]


async def test_every_key_that_a_call_leaves_goes_by_itself(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r1", LARGE, remember=True))
    await own.queue.enqueue(call("r2"))
    for taken in await own.take():
        await own.queue.finish(result(taken, LARGE.encode()))

    lasting = [key.decode() for key in behind.scan_iter() if behind.ttl(key) < 0]
    assert sorted(lasting) == [STREAM, keys.lives(POOL)]
    assert behind.ttl(keys.record("r1")) > 3600
    assert 0 < behind.ttl(keys.record("r2")) <= 30
    assert behind.memory_usage(STREAM) < 2000


async def test_the_record_of_a_call_is_small(own: Desk, behind: Any) -> None:
    await own.queue.enqueue(call("r", reply_to="c" * 40, remember=True))
    waiting = behind.object("encoding", keys.record("r"))
    [taken] = await own.take()
    await own.queue.finish(result(taken))

    assert waiting in {b"ziplist", b"listpack"}
    assert behind.object("encoding", keys.record("r")) == waiting
    assert behind.memory_usage(keys.record("r")) < 400


async def reconnected(pipe: RedisPipe, times: int = 2) -> None:
    while pipe.connects < times:
        with suppress(Unreachable):
            await pipe.command("PING")


async def test_calls_survive_a_server_that_is_killed_and_keeps_a_log(folder: Path) -> None:
    log = ("--appendonly", "yes", "--appendfsync", "always")
    with servers.running(folder, *log) as first:
        async with desk(first.url) as own:
            await asyncio.gather(*(own.queue.enqueue(call(f"r{n}")) for n in range(5)))
            taken = await own.take(count=3)
            await own.queue.finish(result(taken[0]))
            first.process.kill()
            first.process.wait()
            with servers.running(folder, *log, port=first.port):
                for pipe in (own.pipe, own.waiting):
                    await reconnected(pipe)
                held = await own.queue.pending("w1")
                won = [await own.queue.finish(result(one)) for one in taken]
                rest = await own.take()
                replies = await own.replies_to("c1")

    assert [one.record for one in held] == ["r1", "r2"]
    assert won == [False, True, True]
    assert [one.record for one in rest] == ["r3", "r4"]
    assert [reply.record for reply in replies] == ["r0", "r1", "r2"]


async def test_an_id_under_which_nothing_ran_is_free_for_another_call(own: Desk) -> None:
    await own.queue.enqueue(call("r", {"n": 1}, remember=True))
    [taken] = await own.take()
    await own.queue.finish(result(taken)._replace(is_open=True))
    [before] = await own.queue.call_states(["r"])

    put = await own.queue.enqueue(call("r", {"n": 2}, remember=True))
    [taken] = await own.take()
    await own.queue.finish(result(taken, b"\x02"))

    assert (before.state, before.reply) == ("done", CallReply("r", "result", b"\x01"))
    assert put == Accepted()
    assert await own.queue.enqueue(call("r", {"n": 2}, remember=True)) == Finished(
        CallReply("r", "result", b"\x02")
    )


async def test_a_result_can_be_remembered_that_was_not_to_be(own: Desk) -> None:
    await own.queue.enqueue(call("r"))
    [taken] = await own.take()

    was_in_time = await own.queue.remember("r")
    await own.queue.finish(result(taken))

    assert was_in_time
    assert (await own.queue.call_states(["r"]))[0].reply == CallReply("r", "result", b"\x01")
    assert not await own.queue.remember("r")
    assert not await own.queue.remember("unknown")
