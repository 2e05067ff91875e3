"""Networks that break between a caller, Redis and a worker: every call still ends once."""

import asyncio
from pathlib import Path

import pytest

from toolkiln.fleet.connection import _source
from toolkiln.model.call import Status

from ..servers import Server
from ..workers import LEASE, asking, code_of, performer
from .cables import cable
from .conftest import Connect
from .reckoning import begun, runs, settled, soon

pytestmark = pytest.mark.faults

LONG = 600.0


def named(script: str) -> bytes:
    """What Redis calls a script."""
    return _source(script)[1].encode()


# Lost answers


async def test_an_end_whose_confirmation_is_lost_is_sent_once(
    server: Server, tmp_path: Path
) -> None:
    with cable(server.port) as laid, performer(laid.url, tmp_path, lease=LONG):
        async with asking(server) as asker:
            await asker.call("double", {"number": 1})
            lost = laid.lose_answer_to(named("finish"))

            call = await asker.start("nap", {"seconds": 0, "mark": "once"})
            result = await asker.end_of(call)
            after = await asker.call("double", {"number": 2})

    assert lost.is_set()
    assert (result.status, after.value) == (Status.OK, 4)
    assert len(asker.replies[call.record]) == 1
    assert len(runs(tmp_path, "once")) == 1
    await settled(server)


async def test_what_was_on_its_way_to_a_worker_when_the_connection_broke_still_runs(
    server: Server, tmp_path: Path
) -> None:
    with cable(server.port) as laid, performer(laid.url, tmp_path, lease=LONG):
        async with asking(server) as asker:
            await asker.call("double", {"number": 1})
            lost = laid.lose_answer_to(b"XREADGROUP")

            calls = [await asker.start("nap", {"seconds": 0, "mark": str(n)}) for n in range(3)]
            results = [await asker.end_of(call) for call in calls]

    assert lost.is_set()
    assert {result.status for result in results} == {Status.OK}
    assert [len(runs(tmp_path, str(n))) for n in range(3)] == [1, 1, 1]
    await settled(server)


# Broken and half-open connections


@pytest.mark.parametrize("how", ["cut", "silence"])
async def test_a_caller_that_was_cut_off_when_its_call_ended_gets_the_reply_later(
    server: Server, tmp_path: Path, connect: Connect, how: str
) -> None:
    with cable(server.port) as laid, performer(server.url, tmp_path):
        async with connect(laid.url) as kiln:
            calling = asyncio.create_task(kiln.call("nap", {"seconds": 0.5, "mark": "once"}))
            await begun(tmp_path, "once")
            getattr(laid, how)()
            await settled(server)
            laid.mend()

            result = await asyncio.wait_for(calling, 60)

    assert result.status is Status.OK
    assert len(runs(tmp_path, "once")) == 1
    await settled(server)


async def test_a_caller_without_a_network_learns_that_its_call_was_not_sent(
    server: Server, tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.fleet.client.REDIS_WAIT_SECONDS", 0.5)
    with cable(server.port) as laid, performer(server.url, tmp_path):
        async with connect(laid.url) as kiln:
            await kiln.call("double", {"number": 1})
            laid.cut()

            result = await asyncio.wait_for(kiln.call("double", {"number": 2}), 60)

    assert result.status is Status.UNAVAILABLE
    await settled(server)


async def test_a_call_waits_for_redis_while_nothing_was_sent(
    server: Server, tmp_path: Path, connect: Connect
) -> None:
    with cable(server.port) as laid, performer(server.url, tmp_path):
        async with connect(laid.url) as kiln:
            lost = laid.lose_answer_to(named("sessions"))

            result = await kiln.call("nap", {"seconds": 0, "mark": "once"})

    assert lost.is_set()
    assert (result.status, result.error) == (Status.OK, None)
    assert len(runs(tmp_path, "once")) == 1


async def test_a_worker_waits_for_redis_to_find_out_who_calls(
    server: Server, tmp_path: Path
) -> None:
    with cable(server.port) as laid, performer(laid.url, tmp_path, lease=LONG):
        async with asking(server) as asker:
            lost = laid.lose_answer_to(named("sessions"), times=3)

            result = await asker.call("nap", {"seconds": 0, "mark": "once"})

    assert lost.is_set()
    assert (result.status, result.error) == (Status.OK, None)
    assert len(runs(tmp_path, "once")) == 1


# A partition


async def test_a_worker_that_is_cut_off_loses_its_calls_and_what_it_does_counts_no_more(
    server: Server, tmp_path: Path
) -> None:
    with cable(server.port) as laid, performer(laid.url, tmp_path) as first:
        async with asking(server) as asker:
            once = await asker.start("nap", {"seconds": 4, "mark": "once"})
            again = await asker.start("doze", {"seconds": 4, "mark": "again"}, repeatable=True)
            await begun(tmp_path, "once")
            await begun(tmp_path, "again")
            laid.silence()
            with performer(server.url, tmp_path) as second:
                lost, slept = await asker.end_of(once), await asker.end_of(again)
            laid.mend()
            # It is back when it takes calls again, and has then ended what it still had.
            after = await asker.call("double", {"number": 2})
            by = await asker.call("nap", {"seconds": 0, "mark": "after"})

        assert code_of(lost) == "lost"
        assert slept.value == f"slept by {second.process.pid}"
        assert (after.value, by.value) == (4, f"slept by {first.process.pid}")
        assert [len(asker.replies[call.record]) for call in (once, again)] == [1, 1]
    assert len(runs(tmp_path, "once")) == 1
    await settled(server)


async def test_a_partition_shorter_than_the_lease_costs_nothing(
    server: Server, tmp_path: Path
) -> None:
    with cable(server.port) as laid, performer(laid.url, tmp_path, lease=20 * LEASE) as first:
        async with asking(server) as asker:
            call = await asker.start("nap", {"seconds": 0.5, "mark": "once"})
            await begun(tmp_path, "once")
            laid.cut()
            made = laid.made
            await soon(lambda: laid.made > made)
            laid.mend()

            result = await asker.end_of(call)

    assert result.value == f"slept by {first.process.pid}"
    assert len(runs(tmp_path, "once")) == 1
    await settled(server)
