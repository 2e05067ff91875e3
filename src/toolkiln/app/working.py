"""A Kiln at work for a fleet: what a worker is made of, put together.

`Station` is one worker's life in one process, from the connections to the last reply;
`serve_fleet` is that for a program with functions of its own. The process beside it is
`supervising`'s business, or an attendant's.
"""

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import ClassVar

from toolkiln.app.delegating import Attending
from toolkiln.app.kiln import Kiln
from toolkiln.app.performing import Performer
from toolkiln.app.published import key_settings
from toolkiln.app.publishing import Publishing, publisher_id
from toolkiln.app.supervising import SLOTS, Post, beside, opened
from toolkiln.errors import BackendError, ConfigError, InputError, ToolkilnError
from toolkiln.fleet import (
    ANSWER,
    READY,
    Announcements,
    Counts,
    FleetKeys,
    ForeignCatalog,
    Leases,
    Orders,
    Parts,
    Pipe,
    Publisher,
    Questions,
    Queue,
    RedisRecords,
    Telling,
    Trace,
    Worker,
    WorkerFigures,
    fetch,
    fleet_keys,
    keys,
    new_table,
    put_back,
    read_address,
    start_attendant,
)
from toolkiln.model import Served
from toolkiln.store import StoreError

_TOLD = 2.0
"""Seconds between two descriptions of a worker, which hold five times as long."""
_AGAIN = 1.0
"""Seconds after which being told to stop again means to do it at once."""
_REFUSED_KEPT_MS = 10 * 60 * 1000
_POOLS_KEPT_MS = 7 * 24 * 3600 * 1000


class Leaving(ToolkilnError):
    """The worker ends what it has begun, and takes nothing new."""

    code: ClassVar[str] = "draining"


@dataclass(frozen=True)
class Kept:
    """What a worker's process shares with its keeper."""

    consumer: str
    worker: str
    """The name of the worker, of which this process may be one of several in turn."""
    leases: Leases
    channel: socket.socket
    """Not blocking."""

    async def say_ready(self) -> None:
        """Tell the keeper that calls are taken, and that it can expect signs of life."""
        self.leases.beat()
        await asyncio.get_running_loop().sock_sendall(self.channel, READY + b"\n")


def kept_by_parent(said: str) -> Kept:
    """What the process that started this one shares with it; this one dies with it.

    `said` is `CONSUMER,TABLE,CHANNEL,PARENT`: two descriptors and a process.

    Raises:
        InputError: it is something else, or the parent is gone.
    """
    from toolkiln.runtime import linux

    try:
        consumer, table, channel, parent = said.rsplit(",", 3)
        leases, end = Leases(int(table)), socket.socket(fileno=int(channel))
    except (ValueError, OSError):
        hint = "start `toolkiln worker` without it"
        raise InputError("--kept is for a worker's own use", hint=hint) from None
    os.close(int(table))
    end.set_inheritable(False)
    end.setblocking(False)
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != int(parent):
        raise InputError("the process that started this one is gone")
    return Kept(consumer, consumer.rpartition(".")[0], leases, end)


class Station:
    """One worker of one Kiln."""

    def __init__(self, kiln: Kiln, post: Post, kept: Kept, trace: Trace | None = None) -> None:
        """`trace` makes calls part of the traces of their callers."""
        self._kiln = kiln
        self._post = post
        self._kept = kept
        self._stopping = asyncio.Event()
        self._pipe = Pipe(read_address(post.url))
        self._trace = trace
        self._pipes = [self._pipe]
        self._queue: Queue | None = None
        self._waiting, self._oldest = 0, 0.0
        self._worker: Worker | None = None
        self._started = time.time()
        self._asked = 0.0

    def stop(self) -> None:
        """Take no more calls, and end those that run in time; asked again later, at once."""
        now = time.monotonic()
        # A service manager may tell both processes, of which one tells the other.
        if self._stopping.is_set() and self._worker is not None and now > self._asked + _AGAIN:
            self._worker.hurry()
        elif not self._stopping.is_set():
            self._asked = now
            self._stopping.set()

    @property
    def running(self) -> int:
        """How many calls it holds."""
        return self._worker.running if self._worker else 0

    @property
    def figures(self) -> WorkerFigures:
        """What it measures, for `/metrics`; the queue as of the last two seconds."""
        reconnects = sum(max(0, pipe.connects - 1) for pipe in self._pipes)
        own = self._queue.counts if self._queue else Counts()
        counts = replace(own, reconnects=reconnects).plus(self._kept.leases.noted)
        return WorkerFigures(self._post.pool, self._waiting, self._oldest, counts)

    async def check(self) -> None:
        """Whether calls are taken.

        Raises:
            Leaving: not any more.
            StoreError: Redis does not answer.
        """
        if self._stopping.is_set():
            raise Leaving("the worker is about to stop")
        await self._pipe.command("PING")

    async def _fetch(self, key: FleetKeys, name: str, digest: str) -> Served | None:
        """A published version; without `dev` only if its publisher serves it as admitted."""
        found = await fetch(self._pipe, key, name, digest)
        return None if found and found.dev and not self._kiln.settings.dev else found

    async def run(self, ready: Callable[[], None]) -> None:
        """Work until it is stopped; `ready` is called when calls are taken.

        Raises:
            ToolkilnError: Redis or the tools cannot be used.
        """
        kiln, post, kept = self._kiln, self._post, self._kept
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(opened(self._pipe))
            waiting, control, listening = [
                await stack.enter_async_context(opened(Pipe(self._pipe.address))) for _ in range(3)
            ]
            key = await fleet_keys(self._pipe, key_settings(kiln.settings))
            refuse_untrusted(key)
            self._pipes += [waiting, control, listening]
            queue = Queue(self._pipe, post.pool, waiting=waiting, signer=key.signer)
            self._queue = queue
            book = await asyncio.to_thread(kiln.guarding.call_book)
            assert isinstance(book, RedisRecords)  # as Redis is set
            telling = Telling(queue)
            questions = Questions(self._pipe, key, telling)
            publisher = Publisher(self._pipe, key, post.pool, publisher_id(kiln))
            publishing = Publishing(kiln, publisher)
            performer = Performer(
                kiln.engine,
                kiln.guarding,
                key,
                partial(self._fetch, key),
                book.note_progress,
                questions,
                Attending(kiln, publishing.publish),
            )
            asked = {
                ANSWER: questions.answered,
                "drain": self._drain,
                "reload": lambda _: publishing.again(),
            }
            worker = self._worker = Worker(
                Parts(
                    queue, kept.consumer, kept.leases, kept.channel,
                    performer.perform, performer.limit, telling, asked, post.block_ms,
                    self._trace,
                )
            )  # fmt: skip
            try:
                await publishing.publish()
            except ForeignCatalog as error:
                await self._say_refused(error)
                raise
            await stack.enter_async_context(kiln.changes.running())
            await stack.enter_async_context(beside(publishing.follow(Announcements(listening))))
            await stack.enter_async_context(beside(self._describe(key)))
            await stack.enter_async_context(beside(self._measure(queue)))
            # All that is there by now stays. Looking through it for garbage would hold up every
            # call, for tens of milliseconds, and take a twentieth of the worker's time.
            gc.collect()
            gc.freeze()
            await self._work(worker, control, ready)

    async def _work(self, worker: Worker, control: Pipe, ready: Callable[[], None]) -> None:
        working, grace = asyncio.create_task(worker.run(control)), 0
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await self._kept.say_ready()
            ready()
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            grace = self._kiln.settings.drain_seconds
        finally:  # whoever cancels this has no time
            stopping.cancel()
            if not working.done():
                await worker.leave(grace)
            await working

    async def _measure(self, queue: Queue) -> None:
        """Look at the queue now and then."""
        while True:
            with suppress(StoreError):
                waiting, _ = await queue.crew.depth()
                oldest = await queue.crew.oldest(await queue.now_ms())
                self._waiting, self._oldest = waiting, oldest if waiting else 0.0
            await asyncio.sleep(_TOLD)

    def _drain(self, name: str) -> None:
        if name in ("", self._post.name):
            self.stop()

    async def _say_refused(self, error: ForeignCatalog) -> None:
        """Let `toolkiln fleet status` show for some minutes that this worker did not start."""
        key = keys.refused(publisher_id(self._kiln))
        about: dict[str, str | int] = {
            "host": os.uname().nodename,
            "pool": self._post.pool,
            "at": round(time.time()),
        }
        parts = [part for pair in about.items() for part in pair]
        with suppress(StoreError):
            await self._pipe.command("HSET", key, *parts, "why", error.message)
            await self._pipe.command("PEXPIRE", key, _REFUSED_KEPT_MS)

    async def _describe(self, key_of_fleet: FleetKeys) -> None:
        """Say in Redis that this worker is there, for as long as it is."""
        post, key = self._post, keys.worker(self._post.name)
        about: dict[str, str | int] = {
            "pool": post.pool,
            "slots": post.slots,
            "version": version("toolkiln"),
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "started": round(self._started),
        }
        parts = [part for pair in about.items() for part in pair]
        while True:
            state = "draining" if self._stopping.is_set() else "running"
            with suppress(StoreError):
                told = (*parts, "running", self.running, "state", state)
                await self._pipe.command("HSET", key, *told)
                await self._pipe.command("PEXPIRE", key, round(5000 * _TOLD))
                if not self._kiln.settings.fleet_key:
                    await put_back(self._pipe, key_of_fleet)
                await self._pipe.command("SADD", keys.POOLS, post.pool)
                await self._pipe.command("PEXPIRE", keys.POOLS, _POOLS_KEPT_MS)
            await asyncio.sleep(_TOLD)


async def serve_fleet(
    kiln: Kiln,
    url: str,
    *,
    pool: str = "default",
    slots: int = SLOTS,
    ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Perform calls for the fleet at a Redis URL with the tools of this Kiln.

    Its functions run in this process. It ends when it is cancelled, with what runs, or when
    `stop` is set, after what runs; `ready` is called once calls are taken. Without `stop`,
    SIGTERM does the same, unless the program has a handler for it. What the program holds
    by then is exempt from garbage collection (`gc.freeze`).

    Raises:
        InputError: the Kiln is at work already, with sessions of its own.
        ToolkilnError: Redis or the tools cannot be used, or the process beside this one died.
    """
    post = Post(url, pool, slots, worker_key=kiln.settings.worker_key)
    await perform_calls(kiln, post, ready, stop)


async def perform_calls(
    kiln: Kiln, post: Post, ready: Callable[[], None], stop: asyncio.Event | None
) -> None:
    """As `serve_fleet`."""
    join_fleet(kiln, post.url)
    table = new_table(post.slots)
    orders = Orders(
        post.url, post.pool, post.name, os.getpid(), post.lease, kiln.settings.worker_key
    )
    is_alone = False
    try:
        attendant, channel = await start_attendant(orders, table)
        leases = Leases(table)
    finally:
        os.close(table)
    try:
        with closing(channel), closing(leases):
            station = Station(kiln, post, Kept(post.name, post.name, leases, channel))

            async def heed() -> None:
                if stop is not None:
                    await stop.wait()
                    station.stop()

            async def watch() -> None:
                nonlocal is_alone
                await attendant.wait()
                is_alone = True
                station.stop()  # nobody renews its leases any more

            with nullcontext() if stop is not None else _stopped_by_sigterm(station.stop):
                async with beside(heed()), beside(watch()):
                    await station.run(ready)
    finally:
        await attendant.wait()  # which ends with the channel
    if is_alone:
        raise BackendError("the process that kept the leases of this one has ended")


def refuse_untrusted(key: FleetKeys) -> None:
    """See that callers with the same settings will believe this worker.

    Raises:
        ConfigError: they would not.
    """
    if key.trusted is None:
        return
    if key.signer is None:
        raise ConfigError(
            "worker_keys is set, and this worker has no worker_key to sign with",
            hint="`toolkiln fleet keygen` prints a pair: set worker_key on workers only",
        )
    if key.signer.public not in key.trusted.publics:
        raise ConfigError(
            "the public key of this worker's worker_key is not in worker_keys",
            hint=f'add "{key.signer.public}" to worker_keys of all workers and clients first',
        )


@contextmanager
def _stopped_by_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM, unless the program handles that itself or this is a thread."""
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


def join_fleet(kiln: Kiln, url: str) -> None:
    """Have a Kiln look its callers up where those of the fleet are.

    Raises:
        InputError: it has begun to look elsewhere.
    """
    if kiln.settings.redis == url:
        return
    if "guarding" in kiln.__dict__:
        hint = "open it with Settings(redis=…), or hand over one that nobody has used"
        raise InputError("this Kiln has sessions elsewhere than in the fleet's Redis", hint=hint)
    kiln.settings = replace(kiln.settings, redis=url)
