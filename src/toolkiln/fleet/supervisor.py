"""The supervisor: starts the process that runs tools, keeps its leases, starts it again.

The process that it watches over may crash, hang or be killed by what it runs; this one runs
nothing of the kind. What a dead process held is settled at once, without waiting for leases
to run out, because here it is known to be dead. How the process is started is for others.
"""

import asyncio
import logging
import os
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing, suppress

from toolkiln.fleet.keeper import Keeper, Verdict
from toolkiln.fleet.leases import Leases, new_table
from toolkiln.store import StoreError

READY = b"ready"
"""What a worker says once it reads calls."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_SETTLED = 60.0
"""Seconds after which a process that ends is not taken for one that cannot start."""
_log = logging.getLogger(__name__)

Start = Callable[[str, int, int], Awaitable[Process]]
"""Starts a worker as a consumer; it inherits a table and a channel by their descriptors."""
Keep = Callable[[Leases, str, int], Keeper]
"""A keeper for the leases of a consumer, which is a process."""
Settle = Callable[[str, Collection[str]], Awaitable[None]]
"""Hands on, or ends, what a dead consumer held; some of it had been begun."""


class Supervisor:
    """Sees to it that there is a worker, until it is told to stop."""

    def __init__(
        self,
        name: str,
        slots: int,
        start: Start,
        keep: Keep,
        settle: Settle,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Each process is a consumer of its own, so that none takes up what another left.

        `ready` is called each time that a process begins to read calls.
        """
        self._name = name
        self._slots = slots
        self._started = 0
        self._start = start
        self._keep = keep
        self._settle = settle
        self._ready = ready
        self._process: Process | None = None
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """Have the worker end its calls, then end; asked again, it ends at once."""
        self._is_stopping.set()
        self._signal(signal.SIGTERM)

    async def run(self) -> int:
        """Keep a worker running; the exit status of the last.

        One that ended by itself without complaint, or that never got ready, is not started
        again: somebody drained it, or has to mend something first.
        """
        pause, has_been_ready = 0.0, False
        while True:
            began = asyncio.get_running_loop().time()
            status, was_ready = await self._run_once()
            has_been_ready |= was_ready
            if status == 0 or self._is_stopping.is_set() or not has_been_ready:
                return status
            lived = asyncio.get_running_loop().time() - began
            fresh = lived > _SETTLED or not pause
            pause = _FIRST_PAUSE if fresh else min(2 * pause, _LONGEST_PAUSE)
            _log.warning("the worker ended with status %s; another starts in %g s", status, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_stopping.wait(), pause)
                return 0

    async def _run_once(self) -> tuple[int, bool]:
        """One worker from start to end: its exit status, and whether it got ready."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        table = new_table(self._slots)
        self._started += 1
        consumer = f"{self._name}.{self._started}"
        try:
            with closing(ours), closing(Leases(table)) as leases:
                with closing(theirs):
                    process = self._process = await self._start(consumer, table, theirs.fileno())
                if self._is_stopping.is_set():  # it may have come before there was a process
                    self._signal(signal.SIGTERM)
                keeper = self._keep(leases, consumer, process.pid)
                keeping = asyncio.create_task(keeper.run(ours))
                listening = asyncio.create_task(_is_ready(ours, self._ready))
                await self._outlast(process, keeping)
                status = await process.wait()
                was_ready = await listening  # the channel ends with the process
                try:
                    begun = {one.entry for one in leases.held() if one.has_begun}
                    await self._settle(consumer, begun)
                except StoreError as error:
                    _log.warning("its calls are left to others: %s", error.message)
                return status, was_ready
        finally:
            self._process = None
            os.close(table)

    async def _outlast(self, process: Process, keeping: "asyncio.Task[Verdict]") -> None:
        """Until the process is gone, by itself or because it hangs."""
        waiting = asyncio.create_task(process.wait())
        try:
            await asyncio.wait([waiting, keeping], return_when=asyncio.FIRST_COMPLETED)
            if keeping.done() and keeping.result() is Verdict.HUNG:
                _log.error("the worker process does not respond; killing it")
                self._signal(signal.SIGKILL)
            await waiting
        finally:
            waiting.cancel()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _is_ready(channel: socket.socket, ready: Callable[[], None]) -> bool:
    """Whether the process at the other end got ready, once it has gone; `ready` is called then."""
    loop, said, is_ready = asyncio.get_running_loop(), b"", False
    with suppress(ConnectionError):
        while heard := await loop.sock_recv(channel, 1024):
            said = (said + heard)[-1024:]
            if not is_ready and READY in said:
                is_ready = True
                ready()
    return is_ready
