"""What a worker reads after its connection broke."""

import asyncio

from toolkiln.errors import StoreError
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Delivery
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.wire import Envelope, Observe
from toolkiln.model.call import Result, Status

from .queues import POOL, call, desk, working
from .servers import Server


class Broken(Queue):
    """A queue whose connection breaks once, and which tells late what a worker holds."""

    def __init__(self, pipe: RedisPipe, waiting: RedisPipe) -> None:
        super().__init__(pipe, POOL, waiting=waiting)
        self.reads, self.has_told, self.is_over = 0, asyncio.Event(), asyncio.Event()

    async def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        self.reads += 1
        if self.reads == 2:
            raise StoreError("the connection broke")
        return await super().read(consumer, count, block_ms)

    async def pending(self, consumer: str) -> list[Delivery]:
        held = await super().pending(consumer)
        self.has_told.set()
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
            await queue.has_told.wait()
            return Result(call_id=envelope.id, tool=envelope.tool, status=Status.OK, value=1)

        await queue.enqueue(call("once"))
        async with working(queue, own.pipe.address, "w1", perform):
            while (await queue.call_states(["once"]))[0].state != "done":
                await asyncio.sleep(0.01)
            queue.is_over.set()
            while queue.reads < 3:
                await asyncio.sleep(0.01)

    assert begun == ["once"]
