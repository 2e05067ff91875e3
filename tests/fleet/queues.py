"""Queues on a real server, and the shortest envelopes for them."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from toolkiln.fleet import wire
from toolkiln.fleet.address import Address, read_address
from toolkiln.fleet.client import FleetClient, ReplyStream
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Delivery, Ending
from toolkiln.fleet.leases import LeaseTable, new_lease_table
from toolkiln.fleet.message_auth import FleetKeys
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.supervisor import open_pipe
from toolkiln.fleet.wire import CallReply, Envelope
from toolkiln.fleet.worker import EventPublisher, RunCall, Worker, WorkerParts
from toolkiln.model.call import Result, Status

POOL = "default"


@dataclass(frozen=True)
class Desk:
    """A queue, two clients of it, and the connections that they share."""

    queue: Queue
    pipe: RedisPipe
    waiting: RedisPipe

    def replies(self, name: str) -> ReplyStream:
        return ReplyStream(self.pipe, self.waiting, name)

    async def replies_to(self, name: str) -> list[CallReply]:
        """All replies that a client got so far."""
        return await self.replies(name).next(1)

    async def take(self, consumer: str = "w1", count: int = 100) -> list[Delivery]:
        """What there is to take at the moment."""
        return await self.queue.read(consumer, count, 1)


@asynccontextmanager
async def desk(url: str, pool: str = POOL, **options: Any) -> AsyncIterator[Desk]:
    """Everything that one process needs."""
    pipes = [RedisPipe(read_address(url)) for _ in range(2)]
    async with open_pipe(pipes[0]) as pipe, open_pipe(pipes[1]) as waiting:
        yield Desk(Queue(pipe, pool, waiting=waiting, **options), pipe, waiting)


@asynccontextmanager
async def working(
    queue: Queue, address: Address, name: str, perform: RunCall
) -> AsyncIterator[None]:
    """A worker of two slots in this process, which leaves at the end."""
    table = new_lease_table(2)
    ours, theirs = socket.socketpair()
    async with open_pipe(RedisPipe(address)) as control:
        with closing(LeaseTable(table)) as leases, ours, theirs:
            os.close(table)
            ours.setblocking(False)
            parts = WorkerParts(
                queue, name, leases, ours, perform, lambda _: 1.0, EventPublisher(queue), block_ms=1
            )
            worker = Worker(parts)
            running = asyncio.create_task(worker.run(control))
            yield
            await worker.leave(1.0)
            await running


def call(record: str = "", arguments: Any = None, **fields: Any) -> Envelope:
    """A call of a tool, by default with an id of its own."""
    name = record or os.urandom(32).hex()
    given = {"id": name, "record": name, "tool": "echo", "reply_to": "c1", **fields}
    return Envelope(arguments=Raw(wire.pack(arguments)), **given)


def result(delivery: Delivery, body: bytes = b"\x01") -> Ending:
    """An end with any result."""
    return Ending(delivery, "result", body)


@asynccontextmanager
async def calling(url: str, key: FleetKeys) -> AsyncIterator[FleetClient]:
    """The caller's side, which believes workers with this key."""
    client = FleetClient(RedisPipe(read_address(url)), RedisPipe(read_address(url)), key)
    await client.open()
    try:
        yield client
    finally:
        await client.close()


def call_of(client: FleetClient, value: Any = None, **fields: Any) -> Envelope:
    """A call with an id of its own, whose reply the client awaits."""
    return call(arguments=value, reply_to=client.reply_to, **fields)


def echoed(delivery: Delivery) -> Ending:
    """The end of a call that gives back its arguments."""
    envelope = delivery.envelope
    value = wire.unpack(envelope.arguments)
    made = Result(call_id=envelope.id, tool=envelope.tool, status=Status.OK, value=value)
    return Ending(delivery, "result", wire.result_to_wire(made))
