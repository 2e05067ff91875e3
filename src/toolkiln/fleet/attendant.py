"""The attendant: a process that keeps the leases of a program which performs calls itself.

`toolkiln worker` starts the process that runs tools; a program that offers functions of its
own is that process already, and starts this one: `python -m toolkiln.fleet.attendant TABLE
CHANNEL`, with its orders as a line of JSON on the channel. When the program is gone, it
settles what was left and ends. It never ends the program.
"""

import asyncio
import json
import logging
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from toolkiln.fleet.address import read_address
from toolkiln.fleet.keeper import Keeper, Verdict
from toolkiln.fleet.leases import Leases
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.signatures import Signer
from toolkiln.fleet.sweeper import Sweeper, settle
from toolkiln.store import StoreError

_AT_WORK = b"\n"
_log = logging.getLogger(__name__)


class Orders(NamedTuple):
    """What an attendant has to know."""

    url: str
    pool: str
    worker: str
    process: int
    lease: float
    worker_key: str = ""
    """What the worker signs with; empty: it does not."""


async def start_attendant(orders: Orders, table: int) -> tuple[Process, socket.socket]:
    """Start one for this process, and wait until it is at work; the socket leads to it.

    Raises:
        StoreError: it cannot reach Redis.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, str(table), str(theirs.fileno()),
            pass_fds=(table, theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # what ends the program by its terminal must leave this one
        )  # fmt: skip
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(ours, json.dumps(orders).encode() + b"\n")
        said = await loop.sock_recv(ours, 4096)
    except BaseException:  # whatever it is, nobody else knows of the socket
        ours.close()
        raise
    if said != _AT_WORK:
        ours.close()
        await process.wait()
        raise StoreError(said.decode() or "the process that keeps leases did not start")
    return process, ours


async def attend(orders: Orders, leases: Leases, channel: socket.socket) -> None:
    """Keep the leases of a program until it is gone, then settle what it left.

    Raises:
        StoreError: Redis failed at the end.
    """
    pipe = Pipe(read_address(orders.url))
    try:
        await pipe.open()
    except StoreError as error:
        await asyncio.get_running_loop().sock_sendall(channel, error.message.encode())
        return
    await asyncio.get_running_loop().sock_sendall(channel, _AT_WORK)
    signer = Signer(orders.worker_key) if orders.worker_key else None
    queue = Queue(pipe, orders.pool, signer=signer)
    sweeper = Sweeper(pipe, queue, orders.worker, orders.lease)
    sweeping = asyncio.create_task(sweeper.run())
    keeper = Keeper(leases, queue, orders.worker, orders.process, orders.lease)
    gone = asyncio.create_task(_closed(channel))
    while not gone.done() and await _either(gone, keeper.run(channel)) is not Verdict.GONE:
        await asyncio.sleep(orders.lease / 3)  # it hangs, and may go on after all
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    await settle(queue, orders.worker, {one.entry for one in leases.held() if one.has_begun})
    await sweeper.leave()
    await pipe.close()


async def _closed(channel: socket.socket) -> None:
    """Until the program's end of the channel is closed, by its death at the latest."""
    with suppress(ConnectionError):
        while await asyncio.get_running_loop().sock_recv(channel, 4096):
            pass


async def _either(gone: "asyncio.Task[None]", keeping: Coroutine[Any, Any, Verdict]) -> Verdict:
    task = asyncio.create_task(keeping)
    await asyncio.wait([gone, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    return Verdict.GONE


def main(table: str, channel: str) -> None:
    """Attend to the process that started this one."""
    with socket.socket(fileno=int(channel)) as end:
        line = b""
        while b"\n" not in line:
            heard = end.recv(4096)
            if not heard:
                return
            line += heard
        end.setblocking(False)
        orders = Orders(*json.loads(line.partition(b"\n")[0]))
        try:
            asyncio.run(attend(orders, Leases(int(table)), end))
        except StoreError as error:
            _log.error("what the worker left is left to others: %s", error.message)
            sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
