"""The process that `toolkiln worker` starts with: it keeps another one at work for a fleet.

It runs nothing of a tool's, and loads little: what runs tools is `working`, in the other.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from toolkiln.fleet import (
    BLOCK_MS,
    FROZEN,
    Counts,
    Keeper,
    Leases,
    Notifier,
    Pipe,
    Queue,
    Signer,
    Start,
    Supervisor,
    Sweeper,
    check_server,
    read_address,
    settle,
)
from toolkiln.store import StoreError

LEASE = 10.0
"""Seconds for which a call is a worker's without being renewed."""
SLOTS = 32
"""As many calls as the sandbox runs at once."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Post:
    """Where a worker works, and how much at once."""

    url: str = field(repr=False)
    pool: str = "default"
    slots: int = SLOTS
    lease: float = LEASE
    block_ms: int = BLOCK_MS
    frozen: float = FROZEN
    """Seconds after which a worker process without a sign of life is replaced."""
    name: str = field(
        default_factory=lambda: f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(3)}"
    )
    """What the worker is called in the fleet."""
    worker_key: str = field(default="", repr=False)
    """What the worker signs with; empty: it does not."""


async def supervise(
    post: Post,
    start: Start,
    stopper: Callable[[Callable[[], None]], None],
    variables: MutableMapping[str, str],
) -> int:
    """Keep a worker's process running, and its leases; the exit status of the last.

    `stopper` gets what ends it; `variables` are the environment of this process.

    Raises:
        StoreError: Redis cannot be used.
    """
    async with opened(Pipe(read_address(post.url))) as pipe:
        for warning in await check_server(pipe):
            _log.warning("%s", warning)
        signer = Signer(post.worker_key) if post.worker_key else None
        queue, systemd = Queue(pipe, post.pool, signer=signer), Notifier(variables)
        sweeper = Sweeper(pipe, queue, post.name, post.lease)

        def counts() -> Counts:
            return replace(queue.counts, reconnects=pipe.connects - 1)

        def keep(leases: Leases, consumer: str, process: int) -> Keeper:
            return Keeper(leases, queue, consumer, process, post.lease, post.frozen, counts)

        def stop() -> None:
            systemd.send("STOPPING=1")
            supervisor.stop()

        ready = partial(systemd.send, "READY=1")
        supervisor = Supervisor(post.name, post.slots, start, keep, partial(settle, queue), ready)
        stopper(stop)
        async with beside(sweeper.run()), beside(systemd.keep_alive()):
            status = await supervisor.run()
        with suppress(StoreError):  # then it is forgotten later
            await sweeper.leave()
        return status


@asynccontextmanager
async def opened(pipe: Pipe) -> AsyncIterator[Pipe]:
    """A connection as long as the block runs.

    Raises:
        StoreError: there is none to be had.
    """
    await pipe.open()
    try:
        yield pipe
    finally:
        await pipe.close()


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something else as long as the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
