"""What running calls tell, and in which order it comes."""

import asyncio

from toolkiln.fleet.worker import EventPublisher
from toolkiln.model.call import Event

from .queues import call, desk, result
from .servers import Server


async def test_events_of_a_call_come_before_its_end(server: Server) -> None:
    async with desk(server.url) as own:
        made, before = call(events=True), call(reply_to="c2")
        await asyncio.gather(own.queue.enqueue(before), own.queue.enqueue(made))
        first, taken = await own.take()
        await own.queue.finish(result(first))  # so that the server knows the script
        telling, ended = EventPublisher(own.queue), asyncio.Event()
        telling.observer(made)(Event(kind="log", text="it begins"))
        await asyncio.sleep(0)  # on its way, and no longer waiting to be sent

        await telling.flush(made)
        own.queue.finish_nowait(result(taken), lambda _: ended.set(), last=True)
        await ended.wait()

        assert [reply.kind for reply in await own.told("c1")] == ["event", "result"]
