"""Worker process: connections, publisher, runner and worker of one Kiln.

`serve_fleet` runs one inside a program that serves its own functions. A process of `supervisor`
keeps its leases: its parent, or the sidecar of the program.
"""

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar, Protocol

from toolkiln.errors import BackendError, ConfigError, InputError, StoreError, ToolkilnError
from toolkiln.fleet import keys
from toolkiln.fleet.address import read_address
from toolkiln.fleet.call_runner import CallLog, CallRunner
from toolkiln.fleet.call_store import RedisCallStore
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Counts, WorkerMetrics
from toolkiln.fleet.leases import LeaseTable, new_lease_table
from toolkiln.fleet.message_auth import FleetKeys, fleet_keys, restore_fleet_key
from toolkiln.fleet.publisher import (
    Announcements,
    CatalogSync,
    ForeignCatalog,
    Publisher,
    publisher_id,
)
from toolkiln.fleet.questions import ANSWER, QuestionSender
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.remote_catalog import fetch
from toolkiln.fleet.rpc import OperationServer
from toolkiln.fleet.supervisor import (
    READY,
    SLOTS,
    WorkerConfig,
    background,
    open_pipe,
    start_sidecar,
)
from toolkiln.fleet.worker import EventPublisher, Trace, Worker, WorkerParts
from toolkiln.model.catalog import ServedVersion
from toolkiln.operations.services import Services

_DESCRIBE_SECONDS = 2.0
"""Seconds between updates of a worker's description, which expires after five times that."""
_FORCE_SECONDS = 1.0
"""Seconds after which a second `stop` cancels running calls."""
_REFUSED_KEPT_MS = 10 * 60 * 1000
_POOLS_KEPT_MS = 7 * 24 * 3600 * 1000


class WorkerDraining(ToolkilnError):
    """The worker finishes its calls and takes no new ones."""

    code: ClassVar[str] = "draining"


@dataclass(frozen=True)
class WorkerHandle:
    """What a worker process shares with its lease keeper."""

    consumer: str
    worker: str
    """Name of the worker; its processes come and go."""
    leases: LeaseTable
    channel: socket.socket
    """Non-blocking."""

    async def report_ready(self) -> None:
        """Notify the keeper that this process reads calls and sends heartbeats."""
        self.leases.beat()
        await asyncio.get_running_loop().sock_sendall(self.channel, READY + b"\n")


def handle_from_parent(text: str) -> WorkerHandle:
    """Return the handle that the parent process passed; this process dies with the parent.

    `text` is `CONSUMER,TABLE,CHANNEL,PARENT`: two descriptors and a process id.
    """
    from toolkiln.runtime import linux

    try:
        consumer, table, channel, parent = text.rsplit(",", 3)
        leases, end = LeaseTable(int(table)), socket.socket(fileno=int(channel))
    except (ValueError, OSError):
        hint = "run `toolkiln worker` without it"
        raise InputError("--kept is internal to `toolkiln worker`", hint=hint) from None
    os.close(int(table))
    end.set_inheritable(False)
    end.setblocking(False)
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != int(parent):
        raise InputError("the parent process is gone")
    return WorkerHandle(consumer, consumer.rpartition(".")[0], leases, end)


class WorkerProcess:
    """One worker of one Kiln."""

    def __init__(
        self,
        services: Services,
        config: WorkerConfig,
        handle: WorkerHandle,
        trace: Trace | None = None,
    ) -> None:
        """`trace` joins calls to the traces of their callers."""
        self._services = services
        self._config = config
        self._handle = handle
        self._stopping = asyncio.Event()
        self._pipe = RedisPipe(read_address(config.url))
        self._trace = trace
        self._pipes = [self._pipe]
        self._queue: Queue | None = None
        self._waiting, self._oldest = 0, 0.0
        self._worker: Worker | None = None
        self._started = time.time()
        self._stopped_at = 0.0

    def stop(self) -> None:
        """Take no more calls and let running ones finish; a later second call cancels them."""
        now = time.monotonic()
        # A service manager may signal both processes, and the supervisor forwards its signal.
        if (
            self._stopping.is_set()
            and self._worker is not None
            and now > self._stopped_at + _FORCE_SECONDS
        ):
            self._worker.stop_now()
        elif not self._stopping.is_set():
            self._stopped_at = now
            self._stopping.set()

    @property
    def running(self) -> int:
        """Number of calls that it holds."""
        return self._worker.running if self._worker else 0

    @property
    def metrics(self) -> WorkerMetrics:
        """Metrics for `/metrics`; the queue is measured every two seconds."""
        reconnects = sum(max(0, pipe.connects - 1) for pipe in self._pipes)
        own = self._queue.counts if self._queue else Counts()
        counts = replace(own, reconnects=reconnects).plus(self._handle.leases.counts)
        return WorkerMetrics(self._config.pool, self._waiting, self._oldest, counts)

    async def check(self) -> None:
        """Check that the worker takes calls.

        Raises:
            WorkerDraining: it is stopping.
            StoreError: Redis does not respond.
        """
        if self._stopping.is_set():
            raise WorkerDraining("the worker is stopping")
        await self._pipe.command("PING")

    async def _fetch(self, key: FleetKeys, name: str, digest: str) -> ServedVersion | None:
        """Fetch a published version; a dev version only if this Kiln is in dev mode."""
        found = await fetch(self._pipe, key, name, digest)
        return None if found and found.dev and not self._services.settings.dev else found

    async def run(self, ready: Callable[[], None]) -> None:
        """Work until stopped; `ready` is called once it takes calls."""
        services, config, handle = self._services, self._config, self._handle
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(open_pipe(self._pipe))
            waiting, control, listening = [
                await stack.enter_async_context(open_pipe(RedisPipe(self._pipe.address)))
                for _ in range(3)
            ]
            key = await fleet_keys(self._pipe, services.settings)
            check_worker_keys(key)
            self._pipes += [waiting, control, listening]
            queue = Queue(self._pipe, config.pool, waiting=waiting, signer=key.signer)
            self._queue = queue
            stack.callback(services.engine.events.subscribe(CallLog(), passive=True))
            call_store = await asyncio.to_thread(services.stores.calls)
            assert isinstance(call_store, RedisCallStore)  # because `redis` is set
            events = EventPublisher(queue)
            questions = QuestionSender(self._pipe, key, events)
            publisher = Publisher(self._pipe, key, config.pool, publisher_id(services))
            sync = CatalogSync(services, publisher)
            runner = CallRunner(
                services.engine,
                services.security,
                key,
                partial(self._fetch, key),
                call_store.note_progress,
                questions,
                OperationServer(services, sync.publish),
            )
            handlers = {
                ANSWER: questions.notify_answer,
                "drain": self._drain,
                "reload": lambda _: sync.schedule(),
            }
            worker = self._worker = Worker(
                WorkerParts(
                    queue, handle.consumer, handle.leases, handle.channel,
                    runner.run, runner.limit, events, handlers, config.block_ms,
                    self._trace,
                )
            )  # fmt: skip
            try:
                await sync.publish()
            except ForeignCatalog as error:
                await self._report_refusal(error)
                raise
            await stack.enter_async_context(services.changes.running())
            await stack.enter_async_context(background(sync.run(Announcements(listening))))
            await stack.enter_async_context(background(self._describe(key)))
            await stack.enter_async_context(background(self._measure(queue)))
            # Existing objects stay alive. Scanning them would pause calls for tens of
            # milliseconds, and cost a twentieth of the worker's time.
            gc.collect()
            gc.freeze()
            await self._work(worker, control, ready)

    async def _work(self, worker: Worker, control: RedisPipe, ready: Callable[[], None]) -> None:
        worker_task, grace = asyncio.create_task(worker.run(control)), 0
        stop_task = asyncio.create_task(self._stopping.wait())
        try:
            await self._handle.report_ready()
            ready()
            await asyncio.wait([worker_task, stop_task], return_when=asyncio.FIRST_COMPLETED)
            grace = self._services.settings.drain_seconds
        finally:  # without grace if this is cancelled
            stop_task.cancel()
            if not worker_task.done():
                await worker.leave(grace)
            await worker_task

    async def _measure(self, queue: Queue) -> None:
        while True:
            with suppress(StoreError):
                waiting, _ = await queue.consumers.depth()
                oldest = await queue.consumers.oldest(await queue.now_ms())
                self._waiting, self._oldest = waiting, oldest if waiting else 0.0
            await asyncio.sleep(_DESCRIBE_SECONDS)

    def _drain(self, name: str) -> None:
        if name in ("", self._config.name):
            self.stop()

    async def _report_refusal(self, error: ForeignCatalog) -> None:
        """Show in `toolkiln fleet status`, for some minutes, that this worker did not start."""
        description = {
            "host": os.uname().nodename,
            "pool": self._config.pool,
            "at": round(time.time()),
            "why": error.message,
        }
        with suppress(StoreError):
            key = keys.refused(publisher_id(self._services))
            await self._write(key, description, _REFUSED_KEPT_MS)

    async def _describe(self, fleet_key: FleetKeys) -> None:
        """Publish this worker's description in Redis while it runs."""
        config = self._config
        description = {
            "pool": config.pool,
            "slots": config.slots,
            "version": version("toolkiln"),
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "started": round(self._started),
        }
        while True:
            state = "draining" if self._stopping.is_set() else "running"
            current = {**description, "running": self.running, "state": state}
            with suppress(StoreError):
                key = keys.worker(config.name)
                await self._write(key, current, round(5000 * _DESCRIBE_SECONDS))
                if not self._services.settings.fleet_key:
                    await restore_fleet_key(self._pipe, fleet_key)
                await self._pipe.command("SADD", keys.POOLS, config.pool)
                await self._pipe.command("PEXPIRE", keys.POOLS, _POOLS_KEPT_MS)
            await asyncio.sleep(_DESCRIBE_SECONDS)

    async def _write(self, key: str, fields: Mapping[str, Any], kept_ms: int) -> None:
        parts = [part for pair in fields.items() for part in pair]
        await self._pipe.command("HSET", key, *parts)
        await self._pipe.command("PEXPIRE", key, kept_ms)


class HasServices(Protocol):
    """A Kiln."""

    @property
    def services(self) -> Services:
        """Its parts."""


async def serve_fleet(
    kiln: HasServices,
    url: str,
    *,
    pool: str = "default",
    slots: int = SLOTS,
    ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run calls for the fleet at a Redis URL with the tools of this Kiln.

    Its functions run in this process. To stop at once, cancel it; to finish running calls first,
    set `stop`. Without `stop`, SIGTERM does the same unless the program handles it. `ready` is
    called once it takes calls. Objects that exist by then are exempt from garbage collection
    (`gc.freeze`).

    Raises:
        InputError: the Kiln is in use and has its sessions elsewhere.
        ToolkilnError: Redis or the tools cannot be used, or the sidecar died.
    """
    config = WorkerConfig(url, pool, slots)
    await run_embedded_worker(kiln.services, config, ready, stop)


async def run_embedded_worker(
    services: Services, config: WorkerConfig, ready: Callable[[], None], stop: asyncio.Event | None
) -> None:
    """Run `serve_fleet` with a complete configuration."""
    join_fleet(services, config.url)
    table = new_lease_table(config.slots)
    sidecar_died = False
    try:
        sidecar, channel = await start_sidecar(
            replace(config, worker_key=services.settings.worker_key), table
        )
        leases = LeaseTable(table)
    finally:
        os.close(table)
    try:
        with closing(channel), closing(leases):
            process = WorkerProcess(
                services, config, WorkerHandle(config.name, config.name, leases, channel)
            )

            async def stop_when_set() -> None:
                if stop is not None:
                    await stop.wait()
                    process.stop()

            async def watch_sidecar() -> None:
                nonlocal sidecar_died
                await sidecar.wait()
                sidecar_died = True
                process.stop()  # its leases are no longer renewed

            with nullcontext() if stop is not None else _stop_on_sigterm(process.stop):
                async with background(stop_when_set()), background(watch_sidecar()):
                    await process.run(ready)
    finally:
        await sidecar.wait()  # exits when the channel closes
    if sidecar_died:
        raise BackendError("the lease sidecar of this process has exited")


def check_worker_keys(key: FleetKeys) -> None:
    """Check that callers with the same settings will trust this worker."""
    if key.trusted is None:
        return
    if key.signer is None:
        raise ConfigError(
            "worker_keys is set, but this worker has no worker_key to sign with",
            hint="`toolkiln fleet keygen` prints a pair: set worker_key on workers only",
        )
    if key.signer.public not in key.trusted.publics:
        raise ConfigError(
            "the public key of this worker's worker_key is not in worker_keys",
            hint=f'add "{key.signer.public}" to worker_keys of all workers and clients first',
        )


@contextmanager
def _stop_on_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM, unless the program handles it or this is not the main thread."""
    loop = asyncio.get_running_loop()
    is_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    is_ours &= threading.current_thread() is threading.main_thread()
    if is_ours:
        loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if is_ours:
            loop.remove_signal_handler(signal.SIGTERM)


def join_fleet(services: Services, url: str) -> None:
    """Make a Kiln use the sessions of the fleet."""
    if services.settings.redis == url:
        return
    if "security" in services.__dict__:
        hint = "open it with Settings(redis=…), or pass a Kiln that is not in use yet"
        raise InputError("this Kiln has its sessions outside the fleet's Redis", hint=hint)
    services.settings = replace(services.settings, redis=url)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, of uvloop if installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
