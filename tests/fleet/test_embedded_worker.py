"""A worker in the process of the test: what it reads after a break, and the order of replies."""

import asyncio
from collections.abc import Sequence

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Delivery
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.wire import CallReply, Envelope, Observe, event_from_wire
from toolkiln.fleet.worker import EventPublisher
from toolkiln.model.call import Event, Result, Status

from .queues import POOL, call, desk, result, working
from .servers import Server


class Broken(Queue):
    """A queue whose connection breaks once, and which says late what a worker has."""

    def __init__(self, pipe: RedisPipe, waiting: RedisPipe) -> None:
        super().__init__(pipe, POOL, waiting=waiting)
        self.reads, self.has_answered, self.is_over = 0, asyncio.Event(), asyncio.Event()

    async def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        self.reads += 1
        if self.reads == 2:
            raise StoreError("the connection broke")
        return await super().read(consumer, count, block_ms)

    async def pending(self, consumer: str) -> list[Delivery]:
        held = await super().pending(consumer)
        self.has_answered.set()
        await self.is_over.wait()
        return held


async def test_a_call_that_ends_while_a_worker_asks_what_it_holds_is_not_begun_again(
    server: Server,
) -> None:
    begun: list[str] = []
    async with desk(server.url) as own:
        queue = Broken(own.pipe, own.waiting)

        async def perform(
            envelope: Envelope, left: float | None, observe: Observe | None
        ) -> Result:
            begun.append(envelope.record)
            await queue.has_answered.wait()
            return Result(call_id=envelope.id, tool=envelope.tool, status=Status.OK, value=1)

        await queue.enqueue(call("once"))
        async with working(queue, own.pipe.address, "w1", perform):
            while (await queue.call_states(["once"]))[0].state != "done":
                await asyncio.sleep(0.01)
            queue.is_over.set()
            while queue.reads < 3:
                await asyncio.sleep(0.01)

    assert begun == ["once"]


async def test_events_of_a_call_come_before_its_end(server: Server) -> None:
    async with desk(server.url) as own:
        made, before = call(events=True), call(reply_to="c2")
        await asyncio.gather(own.queue.enqueue(before), own.queue.enqueue(made))
        first, taken = await own.take()
        await own.queue.finish(result(first))  # so that the server knows the script
        events, ended = EventPublisher(own.queue), asyncio.Event()
        events.observer(made)(Event(kind="log", text="it begins"))
        await asyncio.sleep(0)  # on its way, and no longer waiting to be sent

        await events.flush(made)
        own.queue.finish_nowait(result(taken), lambda _: ended.set(), last=True)
        await ended.wait()

        assert [reply.kind for reply in await own.replies_to("c1")] == ["event", "result"]


class Doubtful(Queue):
    """A queue whose connection breaks twice while it sends: before and after the arrival."""

    breaks = 2

    async def send(self, reply_to: str, replies: Sequence[CallReply]) -> None:
        self.breaks -= 1
        if self.breaks != 1:
            await super().send(reply_to, replies)
        if self.breaks >= 0:
            raise Unreachable("the connection broke", sent=self.breaks == 0)


async def test_events_are_sent_again_in_order_until_they_have_arrived(server: Server) -> None:
    async with desk(server.url) as own:
        made = call(events=True)
        events = EventPublisher(Doubtful(own.pipe, POOL, waiting=own.waiting))
        observe = events.observer(made, 1)
        for number in (1, 2):
            observe(Event(kind="message", value=number, index=number - 1, number=number))
            await asyncio.sleep(0)

        await events.flush(made)

        sent = [event_from_wire(reply.body) for reply in await own.replies_to("c1")]
        assert [event.value for event in sent] == [1, 1, 2]
        numbers = [event.number for event in sent]
        assert numbers == [10**9 + 1, 10**9 + 1, 10**9 + 2]  # clients drop the second
