"""The caller's side of the fleet, with a worker that gives back what it is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from toolkiln.errors import StoreError
from toolkiln.fleet import client as module
from toolkiln.fleet import keys, wire
from toolkiln.fleet.delivery import Delivery, Ending
from toolkiln.fleet.message_auth import FleetKeys, has_valid_seal
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.wire import CallReply, Envelope
from toolkiln.model.call import Event, Status

from .queues import call_of, calling, desk, echoed
from .servers import Proxy, Server, running
from .workers import code_of

KEY = FleetKeys(b"k" * 32)
SOON = 30.0
STREAM = keys.calls("default")


class Echo:
    """A worker that ends calls with their own arguments, when it is let."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.began: list[Envelope] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.has_begun = asyncio.Event()

    async def work(self) -> None:
        while True:
            with suppress(StoreError):  # a connection that was broken; it comes back
                for delivery in await self.queue.read("echo", 100, 200):
                    self.began.append(delivery.envelope)
                    self.has_begun.set()
                    await self.may_end.wait()
                    while not await self._is_ended(delivery):
                        pass

    async def _is_ended(self, delivery: Delivery) -> bool:
        with suppress(StoreError):
            await self.queue.finish(echoed(delivery))
            return True
        return False


@asynccontextmanager
async def working(url: str) -> AsyncIterator[Echo]:
    async with desk(url) as own:
        echo = Echo(own.queue)
        task = asyncio.create_task(echo.work())
        try:
            yield echo
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def waiting(behind: Any, count: int) -> None:
    """Until so many calls are in the queue."""
    async with asyncio.timeout(SOON):
        while behind.xlen(STREAM) != count:
            await asyncio.sleep(0.01)


async def test_calls_made_at_once_each_get_their_own_result(server: Server) -> None:
    async with calling(server.url, KEY) as client, working(server.url) as echo:
        results = await asyncio.gather(*(client.call(call_of(client, n)) for n in range(300)))

    assert [one.value for one in results] == list(range(300))
    assert all(has_valid_seal(KEY, envelope) for envelope in echo.began)


async def test_ended_calls_leave_nothing_behind_in_a_client(server: Server, behind: Any) -> None:
    async with calling(server.url, KEY) as client, working(server.url):
        await client.call(call_of(client, 1))

    left = {key.split(b":")[1] for key in behind.scan_iter()}
    assert left <= {b"call", b"calls"}
    assert behind.xlen(STREAM) == 0


async def test_two_who_make_the_same_call_share_a_run(server: Server) -> None:
    async with calling(server.url, KEY) as client, working(server.url) as echo:
        echo.may_end.clear()
        made = call_of(client, 1, remember=True)
        first = asyncio.create_task(client.call(made))
        await echo.has_begun.wait()
        second = asyncio.create_task(client.call(made))
        third = asyncio.create_task(client.call(made))
        await asyncio.sleep(0)
        third.cancel()
        echo.may_end.set()

        results = await asyncio.gather(first, second)

    assert [one.value for one in results] == [1, 1]
    assert len(echo.began) == 1


async def test_a_deadline_ends_a_call_that_no_worker_takes(
    server: Server, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.05)
    async with calling(server.url, KEY) as client:
        late = await client.call(call_of(client, timeout_ms=50))
        await waiting(behind, 0)

    assert (late.status, code_of(late)) == (Status.TIMEOUT, "timeout")


async def test_a_late_reply_is_ignored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.05)
    async with calling(server.url, KEY) as client, working(server.url) as echo:
        echo.may_end.clear()
        late = await client.call(call_of(client, 1, timeout_ms=50))
        echo.may_end.set()

        after = await client.call(call_of(client, 2))

    assert late.status is Status.TIMEOUT
    assert after.value == 2


async def test_a_person_may_take_longer_than_the_deadline(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.3)
    async with calling(server.url, KEY) as client, working(server.url) as echo:
        echo.may_end.clear()
        made = call_of(client, 1, timeout_ms=10, events=True)
        waited = asyncio.create_task(client.call(made))
        await echo.has_begun.wait()
        asked = Event(kind="pending", text="approval")
        await echo.queue.send(
            client.reply_to, [CallReply(made.record, "event", wire.event_to_wire(asked))]
        )
        done, _ = await asyncio.wait([waited], timeout=0.6)
        echo.may_end.set()

        assert not done
        assert (await waited).value == 1


async def test_an_event_that_comes_again_is_dropped(server: Server) -> None:
    async with calling(server.url, KEY) as client, working(server.url) as echo:
        echo.may_end.clear()
        made, seen = call_of(client, 1, events=True), list[Event]()
        waited = asyncio.create_task(client.call(made, seen.append))
        await echo.has_begun.wait()
        for number in (1, 2, 1, 2, 3, 10**9 + 1, 3):
            event = wire.event_to_wire(Event(kind="message", number=number))
            await echo.queue.send(client.reply_to, [CallReply(made.record, "event", event)])
        echo.may_end.set()
        await waited

    assert [event.number for event in seen] == [1, 2, 3, 10**9 + 1]


async def test_a_call_that_is_cancelled_leaves_the_queue(server: Server, behind: Any) -> None:
    async with calling(server.url, KEY) as client:
        made = asyncio.create_task(client.call(call_of(client)))
        await waiting(behind, 1)

        made.cancel()

        await waiting(behind, 0)
        with pytest.raises(asyncio.CancelledError):
            await made


async def test_one_who_asks_for_the_call_of_another_does_not_end_it(
    server: Server, behind: Any
) -> None:
    async with calling(server.url, KEY) as client, calling(server.url, KEY) as other:
        made = call_of(client, 1, remember=True)
        first = asyncio.create_task(client.call(made))
        await waiting(behind, 1)
        second = asyncio.create_task(
            other.call(call_of(other, 1, remember=True, record=made.record, id=made.id))
        )
        await asyncio.wait([second], timeout=0.1)
        second.cancel()
        await asyncio.wait([second])

        async with working(server.url):
            assert (await first).value == 1


async def test_closing_ends_what_is_still_awaited(server: Server, behind: Any) -> None:
    async with calling(server.url, KEY) as client:
        made = asyncio.create_task(client.call(call_of(client)))
        kept = asyncio.create_task(client.call(call_of(client, remember=True)))
        await waiting(behind, 2)
        client.detach()

    assert (await made).status is (await kept).status is Status.CANCELLED
    assert behind.xlen(STREAM) == 1


async def test_an_overloaded_queue_says_when_to_retry(server: Server, behind: Any) -> None:
    behind.xgroup_create(STREAM, keys.GROUP, "0", mkstream=True)
    behind.xadd(STREAM, {"record": "old"}, id="1-1")

    async with calling(server.url, KEY) as client:
        refused = await client.call(call_of(client))

    assert (refused.status, code_of(refused)) == (Status.UNAVAILABLE, "overloaded")
    assert refused.error is not None
    assert refused.error.retryable
    assert refused.error.retry_after


async def test_a_call_that_no_worker_takes_is_given_up(
    server: Server, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(module, "START_BY_MS", 100)
    async with calling(server.url, KEY) as client:
        given_up = await client.call(call_of(client))

    assert (given_up.status, code_of(given_up)) == (Status.UNAVAILABLE, "no_worker")
    assert behind.xlen(STREAM) == 0


async def test_a_call_whose_workers_are_all_gone_is_lost(
    server: Server, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.05)
    async with calling(server.url, KEY) as client:
        made = asyncio.create_task(client.call(call_of(client)))
        await waiting(behind, 1)
        behind.xreadgroup(keys.GROUP, "one that dies", {STREAM: ">"})

        monkeypatch.setattr(module, "START_BY_MS", 100)
        monkeypatch.setattr("toolkiln.fleet.queue.START_BY_MS", 100)
        ended = await asyncio.wait_for(made, SOON)

    assert (ended.status, code_of(ended)) == (Status.UNAVAILABLE, "lost")
    assert (behind.xlen(STREAM), behind.xpending(STREAM, keys.GROUP)["pending"]) == (0, 0)


@pytest.mark.parametrize(("repeatable", "ends"), [(True, None), (False, "lost")])
async def test_a_redis_that_forgot_everything_does_not_leave_callers_waiting(
    server: Server,
    behind: Any,
    monkeypatch: pytest.MonkeyPatch,
    repeatable: bool,
    ends: str | None,
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.05)
    async with calling(server.url, KEY) as client:
        made = asyncio.create_task(client.call(call_of(client, 1, repeatable=repeatable)))
        await waiting(behind, 1)

        behind.flushall()
        async with working(server.url) as echo:
            ended = await asyncio.wait_for(made, SOON)

    assert code_of(ended) == ends
    assert len(echo.began) == int(repeatable)


async def test_a_connection_that_breaks_loses_no_reply(server: Server, behind: Any) -> None:
    async with calling(server.url, KEY) as client, working(server.url) as echo:
        echo.may_end.clear()
        made = asyncio.create_task(client.call(call_of(client, 1)))
        await echo.has_begun.wait()
        behind.client_kill_filter(_type="normal", skipme=True)
        echo.may_end.set()

        assert (await asyncio.wait_for(made, SOON)).value == 1


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_lost_answer_does_not_make_a_call_run_twice(
    server: Server, repeatable: bool
) -> None:
    with closing(Proxy(server)) as proxy:
        async with (
            calling(f"redis://127.0.0.1:{proxy.port}", KEY) as client,
            working(server.url) as echo,
        ):
            await client.call(call_of(client, 0))
            echo.may_end.clear()
            proxy.lose_one = True
            made = asyncio.create_task(client.call(call_of(client, 1, repeatable=repeatable)))
            await asyncio.wait_for(_second(echo), SOON)
            echo.may_end.set()
            ended = await asyncio.wait_for(made, SOON)

    assert ended.value == 1
    assert len(echo.began) == 2


async def _second(echo: Echo) -> None:
    while len(echo.began) < 2:
        await asyncio.sleep(0.01)


async def test_a_server_that_is_gone_is_said_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REDIS_WAIT_SECONDS", 0.2)
    with running(folder) as server:
        async with calling(server.url, KEY) as client:
            server.process.kill()
            server.process.wait()

            refused = await client.call(call_of(client))

    assert refused.status is Status.UNAVAILABLE
    assert code_of(refused) in ("store_failed", "lost")


async def test_a_result_that_cannot_be_read_is_lost(server: Server) -> None:
    async with calling(server.url, KEY) as client, desk(server.url) as own:
        made = asyncio.create_task(client.call(call_of(client)))
        [taken] = await own.queue.read("w", 1, 5000)
        await own.queue.finish(Ending(taken, "result", b"\xc1"))

        assert code_of(await asyncio.wait_for(made, SOON)) == "lost"


async def test_a_call_that_is_too_large_is_not_sent(
    server: Server, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "BODY_LIMIT", 1000)
    async with calling(server.url, KEY) as client:
        refused = await client.call(call_of(client, "x" * 2000))

    assert refused.status is Status.INVALID
    assert behind.xlen(STREAM) == 0
