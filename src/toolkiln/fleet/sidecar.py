"""Sidecar process that keeps the leases of a program which runs calls itself.

`toolkiln worker` starts the process that runs tools. A program that serves its own functions is
that process already, and starts this one: `python -m toolkiln.fleet.sidecar TABLE CHANNEL`, with
its configuration as a line of JSON on the channel. When the program is gone, the sidecar recovers
its calls and exits. It never kills the program.
"""

import asyncio
import json
import logging
import socket
import sys
from asyncio.subprocess import Process
from contextlib import suppress
from typing import NamedTuple

from toolkiln.errors import StoreError
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.leases import LeaseKeeper, LeaseTable, WorkerHealth
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.signatures import Signer
from toolkiln.fleet.sweeper import Sweeper, recover_calls

_READY = b"\n"
_log = logging.getLogger(__name__)


class SidecarConfig(NamedTuple):
    """Configuration of a sidecar."""

    url: str
    pool: str
    worker: str
    process: int
    lease: float
    worker_key: str = ""
    """Private key for signatures; empty: unsigned."""


async def start_sidecar(config: SidecarConfig, table: int) -> tuple[Process, socket.socket]:
    """Start a sidecar for this process and wait until it is ready; returns its channel too."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, str(table), str(theirs.fileno()),
            pass_fds=(table, theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # signals from the terminal must not reach it
        )  # fmt: skip
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(ours, json.dumps(config).encode() + b"\n")
        received = await loop.sock_recv(ours, 4096)
    except BaseException:  # no other code would close the socket
        ours.close()
        raise
    if received != _READY:
        ours.close()
        await process.wait()
        raise StoreError(received.decode() or "the lease sidecar did not start")
    return process, ours


async def run_sidecar(config: SidecarConfig, leases: LeaseTable, channel: socket.socket) -> None:
    """Keep the leases of a program until it is gone, then recover its calls."""
    pipe = RedisPipe(read_address(config.url))
    try:
        await pipe.open()
    except StoreError as error:
        await asyncio.get_running_loop().sock_sendall(channel, error.message.encode())
        return
    await asyncio.get_running_loop().sock_sendall(channel, _READY)
    signer = Signer(config.worker_key) if config.worker_key else None
    queue = Queue(pipe, config.pool, signer=signer)
    sweeper = Sweeper(pipe, queue, config.worker, config.lease)
    sweeping = asyncio.create_task(sweeper.run())
    keeper = LeaseKeeper(leases, queue, config.worker, config.process, config.lease)
    closed = asyncio.create_task(_wait_for_close(channel))
    while not closed.done() and await _run_keeper(closed, keeper, channel) is not WorkerHealth.GONE:
        await asyncio.sleep(config.lease / 3)  # it hangs, and may recover
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    await recover_calls(queue, config.worker, leases.started())
    await sweeper.leave()
    await pipe.close()


async def _wait_for_close(channel: socket.socket) -> None:
    """Wait until the program closes its end of the channel, at the latest by exiting."""
    with suppress(ConnectionError):
        while await asyncio.get_running_loop().sock_recv(channel, 4096):
            pass


async def _run_keeper(
    closed: "asyncio.Task[None]", keeper: LeaseKeeper, channel: socket.socket
) -> WorkerHealth:
    task = asyncio.create_task(keeper.run(channel))
    await asyncio.wait([closed, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    task.cancel()
    return WorkerHealth.GONE


def main(table: str, channel: str) -> None:
    """Run the sidecar of the process that started this one."""
    with socket.socket(fileno=int(channel)) as end:
        line = b""
        while b"\n" not in line:
            data = end.recv(4096)
            if not data:
                return
            line += data
        end.setblocking(False)
        config = SidecarConfig(*json.loads(line.partition(b"\n")[0]))
        try:
            asyncio.run(run_sidecar(config, LeaseTable(int(table)), end))
        except StoreError as error:
            _log.error("leaving the program's calls to other workers: %s", error.message)
            sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
