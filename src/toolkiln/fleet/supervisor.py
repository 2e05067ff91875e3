"""Supervisor and sidecar: processes that keep the leases of a worker and recover its calls.

`toolkiln worker` is the supervisor: the parent of the process that runs the tools, which may crash,
block or be killed. It starts and restarts that process, and recovers the calls of a dead one at
once, without waiting for leases to expire.

A program that serves its own functions is that process already, and starts a sidecar:
`python -m toolkiln.fleet.supervisor TABLE CHANNEL`, with its configuration as a line of JSON on the
channel. When the program is gone, the sidecar recovers its calls and exits. It never kills the
program.
"""

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    MutableMapping,
)
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from toolkiln.errors import StoreError
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisPipe, check_server
from toolkiln.fleet.delivery import Counts
from toolkiln.fleet.leases import (
    FROZEN_SECONDS,
    LeaseKeeper,
    LeaseTable,
    Sweeper,
    WorkerHealth,
    new_lease_table,
    recover_calls,
)
from toolkiln.fleet.message_auth import Signer
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.worker import BLOCK_MS

READY = b"ready"
"""Sent by a worker once it reads calls."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_STABLE_SECONDS = 60.0
"""A process that ran this many seconds is restarted without a growing delay."""
_log = logging.getLogger(__name__)

Start = Callable[[str, int, int], Awaitable[Process]]
"""Starts a worker process with a consumer name and the descriptors of a table and a channel."""
NewKeeper = Callable[[LeaseTable, str, int], LeaseKeeper]
"""Creates the lease keeper of a consumer and its process id."""
Recover = Callable[[str, Collection[str]], Awaitable[None]]
"""Recovers the calls of a dead consumer, given the entries that it had started."""


class Supervisor:
    """Keeps one worker process running until stopped."""

    def __init__(
        self,
        name: str,
        slots: int,
        start: Start,
        new_keeper: NewKeeper,
        recover: Recover,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Each process gets its own consumer, so that none takes over the calls of another.

        `ready` is called whenever a process starts to read calls.
        """
        self._name = name
        self._slots = slots
        self._starts = 0
        self._start = start
        self._new_keeper = new_keeper
        self._recover = recover
        self._ready = ready
        self._process: Process | None = None
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """Let the worker finish its calls and exit; the second call makes it exit at once."""
        self._is_stopping.set()
        self._signal(signal.SIGTERM)

    async def run(self) -> int:
        """Keep a worker running; returns the exit status of the last one.

        A worker that exits with 0, because it was drained, or was never ready, is not restarted.
        """
        pause, has_been_ready = 0.0, False
        while True:
            began = asyncio.get_running_loop().time()
            status, was_ready = await self._run_once()
            has_been_ready |= was_ready
            if status == 0 or self._is_stopping.is_set() or not has_been_ready:
                return status
            runtime = asyncio.get_running_loop().time() - began
            is_stable = runtime > _STABLE_SECONDS or not pause
            pause = _FIRST_PAUSE if is_stable else min(2 * pause, _LONGEST_PAUSE)
            _log.warning("the worker exited with status %s; restarting in %g s", status, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_stopping.wait(), pause)
                return 0

    async def _run_once(self) -> tuple[int, bool]:
        """Run one worker; returns its exit status and whether it was ready."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        table = new_lease_table(self._slots)
        self._starts += 1
        consumer = f"{self._name}.{self._starts}"
        try:
            with closing(ours), closing(LeaseTable(table)) as leases:
                with closing(theirs):
                    process = self._process = await self._start(consumer, table, theirs.fileno())
                if self._is_stopping.is_set():  # stopped before the process existed
                    self._signal(signal.SIGTERM)
                keeper = self._new_keeper(leases, consumer, process.pid)
                keeper_task = asyncio.create_task(keeper.run(ours))
                ready_task = asyncio.create_task(_is_ready(ours, self._ready))
                await self._wait_for_exit(process, keeper_task)
                status = await process.wait()
                was_ready = await ready_task  # the channel closes with the process
                try:
                    await self._recover(consumer, leases.started())
                except StoreError as error:
                    _log.warning("leaving its calls to other workers: %s", error.message)
                return status, was_ready
        finally:
            self._process = None
            os.close(table)

    async def _wait_for_exit(
        self, process: Process, keeper_task: "asyncio.Task[WorkerHealth]"
    ) -> None:
        """Wait until the process exits; kill it if it hangs."""
        waiting = asyncio.create_task(process.wait())
        try:
            await asyncio.wait([waiting, keeper_task], return_when=asyncio.FIRST_COMPLETED)
            if keeper_task.done() and keeper_task.result() is WorkerHealth.HUNG:
                _log.error("the worker process does not respond; killing it")
                self._signal(signal.SIGKILL)
            await waiting
        finally:
            waiting.cancel()
            keeper_task.cancel()
            await asyncio.gather(keeper_task, return_exceptions=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _is_ready(channel: socket.socket, ready: Callable[[], None]) -> bool:
    """Wait for the end of the channel; returns whether the worker reported ready."""
    loop, received, is_ready = asyncio.get_running_loop(), b"", False
    with suppress(ConnectionError):
        while data := await loop.sock_recv(channel, 1024):
            received = (received + data)[-1024:]
            if not is_ready and READY in received:
                is_ready = True
                ready()
    return is_ready


_NOTIFY_SECONDS = 1.0
"""How long sending may block."""


class SystemdNotifier:
    """Notifications to systemd (`sd_notify`): readiness and watchdog."""

    def __init__(self, variables: MutableMapping[str, str]) -> None:
        """Remove systemd's variables from the environment, so that children do not inherit them."""
        address = variables.pop("NOTIFY_SOCKET", "")
        microseconds = variables.pop("WATCHDOG_USEC", "")
        is_watched = variables.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        # A name in the abstract namespace starts with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._period = int(microseconds) / 1e6 if is_watched and microseconds.isdigit() else 0.0

    def send(self, state: str) -> None:
        """Send a state such as `READY=1`; failures are ignored."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_NOTIFY_SECONDS)
                sender.sendto(state.encode(), self._address)

    async def keep_alive(self) -> None:
        """Send watchdog notifications, twice per period, until cancelled."""
        while self._period:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self._period / 2)


LEASE = 10.0
"""Lease time of a call in seconds."""
SLOTS = 32
"""Concurrent calls, as many as the sandbox runs."""


@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of a worker."""

    url: str = field(repr=False)
    pool: str = "default"
    slots: int = SLOTS
    lease: float = LEASE
    block_ms: int = BLOCK_MS
    frozen: float = FROZEN_SECONDS
    """Seconds without a heartbeat after which a worker process is replaced."""
    name: str = field(
        default_factory=lambda: f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(3)}"
    )
    """Name of the worker in the fleet."""
    worker_key: str = field(default="", repr=False)
    """Private key for signatures; empty: unsigned."""


async def supervise(
    config: WorkerConfig,
    start: Start,
    stopper: Callable[[Callable[[], None]], None],
    variables: MutableMapping[str, str],
) -> int:
    """Run a worker process under supervision; returns the exit status of the last one.

    `stopper` gets a function that stops it; `variables` are the environment of this process.
    """
    async with open_pipe(RedisPipe(read_address(config.url))) as pipe:
        for warning in await check_server(pipe):
            _log.warning("%s", warning)
        (queue, sweeper), systemd = _recovery(config, pipe), SystemdNotifier(variables)

        def counts() -> Counts:
            return replace(queue.counts, reconnects=pipe.connects - 1)

        def new_keeper(leases: LeaseTable, consumer: str, process: int) -> LeaseKeeper:
            return LeaseKeeper(
                leases, queue.renew, consumer, process, config.lease, config.frozen, counts
            )

        def stop() -> None:
            systemd.send("STOPPING=1")
            supervisor.stop()

        ready = partial(systemd.send, "READY=1")
        supervisor = Supervisor(
            config.name, config.slots, start, new_keeper, partial(recover_calls, queue), ready
        )
        stopper(stop)
        async with background(sweeper.run()), background(systemd.keep_alive()):
            status = await supervisor.run()
        with suppress(StoreError):  # its keys expire
            await sweeper.leave()
        return status


def _recovery(config: WorkerConfig, pipe: RedisPipe) -> tuple[Queue, Sweeper]:
    """Return the queue of a worker's pool, with its signatures, and its sweeper."""
    signer = Signer(config.worker_key) if config.worker_key else None
    queue = Queue(pipe, config.pool, signer=signer)
    return queue, Sweeper(pipe, queue, config.name, config.lease)


@asynccontextmanager
async def open_pipe(pipe: RedisPipe) -> AsyncIterator[RedisPipe]:
    """Connect for the duration of the block."""
    await pipe.open()
    try:
        yield pipe
    finally:
        await pipe.close()


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background for the duration of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_SIDECAR_READY = b"\n"


async def start_sidecar(config: WorkerConfig, table: int) -> tuple[Process, socket.socket]:
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
        await loop.sock_sendall(ours, json.dumps([os.getpid(), asdict(config)]).encode() + b"\n")
        received = await loop.sock_recv(ours, 4096)
    except BaseException:  # no other code would close the socket
        ours.close()
        raise
    if received != _SIDECAR_READY:
        ours.close()
        await process.wait()
        raise StoreError(received.decode() or "the lease sidecar did not start")
    return process, ours


async def _run_sidecar(
    process: int, config: WorkerConfig, leases: LeaseTable, channel: socket.socket
) -> None:
    """Keep the leases of a program until it is gone, then recover its calls."""
    loop, pipe = asyncio.get_running_loop(), RedisPipe(read_address(config.url))
    try:
        await pipe.open()
    except StoreError as error:
        await loop.sock_sendall(channel, error.message.encode())
        return
    await loop.sock_sendall(channel, _SIDECAR_READY)
    queue, sweeper = _recovery(config, pipe)
    async with background(sweeper.run()):
        keeper = LeaseKeeper(leases, queue.renew, config.name, process, config.lease)
        closed = asyncio.create_task(_wait_for_close(channel))
        while not closed.done() and await _run_keeper(closed, keeper, channel) != WorkerHealth.GONE:
            await asyncio.sleep(config.lease / 3)  # it hangs, and may recover
    await recover_calls(queue, config.name, leases.started())
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


def _main(table: str, channel: str) -> None:
    """Run the sidecar of the process that started this one."""
    with socket.socket(fileno=int(channel)) as end:
        line = b""
        while b"\n" not in line:
            data = end.recv(4096)
            if not data:
                return
            line += data
        end.setblocking(False)
        process, fields = json.loads(line)
        work = _run_sidecar(process, WorkerConfig(**fields), LeaseTable(int(table)), end)
        try:
            asyncio.run(work)
        except StoreError as error:
            _log.error("leaving the program's calls to other workers: %s", error.message)
            sys.exit(3)


if __name__ == "__main__":
    _main(*sys.argv[1:])
