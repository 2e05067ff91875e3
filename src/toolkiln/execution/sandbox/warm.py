"""Workers that have imported their tool already, so that calls need not.

A template forks for each call; it serves one tool version and one caller, because code of
the tool could keep what it saw. A spare serves a single call and has seen nobody. Which
of the two it is, the tool says (`isolation`), and a tool whose import leaves threads or
files behind can only have spares. Idle workers are retired, and their number and memory
are bounded.
"""

import asyncio
import os
import socket
from collections.abc import Hashable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.execution.network import HostRules
from toolkiln.execution.sandbox.conversation import encode_frame, parse_frame
from toolkiln.execution.sandbox.networks import NetworkAccess, Networks
from toolkiln.execution.sandbox.processes import Ended, Job, Launcher, Process

WORTH = 0.015
"""Seconds of importing from which on a tool is kept warm."""
_SURELY = 0.1
"""Seconds that no cheap import takes, however busy the machine."""
_IDLE = 120.0
_REMEMBERED = 1024
_MOST = 16
_MOST_MEMORY = 2 << 30
_LOADING = 60.0
_MAX_FRAME = 1 << 16


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a worker for certain calls."""

    key: Hashable
    job: Job
    load: Mapping[str, Any]
    """What makes it import the tool."""
    load_frame: bytes
    """The same as it is sent."""
    hosts: HostRules
    kind: str
    """`template` or `spare`."""


@dataclass(eq=False, slots=True)
class Worker:
    """A process that waits for a call."""

    process: Process
    control: socket.socket
    forks: bool
    memory: int
    stack: AsyncExitStack
    access: NetworkAccess = field(default_factory=NetworkAccess)
    idle_since: float = 0.0

    def hand_over(self, descriptors: tuple[int, int, int]) -> bool:
        """Give it a call; False if it has died and never will take one."""
        self.access.records.clear()
        try:
            socket.send_fds(self.control, [b"C"], list(descriptors))
        except OSError:
            return False
        return True

    async def ended(self) -> Ended:
        """How the call's own process ended."""
        if not self.forks:
            return await asyncio.shield(self.process.ended)
        try:
            frame = await _receive(self.control)
            status, cpu, memory = (_number(frame, name) for name in ("status", "cpu", "memory"))
        except (OSError, ValueError, EOFError):
            return await asyncio.shield(self.process.ended)
        return Ended(int(status), cpu, int(memory) * 1024)


class WarmWorkers:
    """The workers of one executor."""

    def __init__(self, launcher: Launcher, networks: Networks) -> None:
        self._launcher = launcher
        self._networks = networks
        self._idle: dict[Hashable, list[Worker]] = {}
        self._count: dict[Hashable, int] = {}
        """Idle, busy and starting ones."""
        self._cost: dict[Hashable, float] = {}
        self._hopeless: dict[Hashable, float] = {}
        """Until when a tool is not tried again that could not be kept warm."""
        self._waiting: dict[Hashable, list[asyncio.Future[Worker]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: set[asyncio.Task[Any]] = set()
        """Those of them that may be cancelled; the others close something."""
        self._per_tool = max(2, os.cpu_count() or 1)

    @property
    def count(self) -> int:
        """Workers that idle, are busy or start."""
        return sum(self._count.values())

    @property
    def spare(self) -> int:
        """Workers that wait for a call."""
        return sum(map(len, self._idle.values()))

    @property
    def memory(self) -> int:
        """Bytes that idle workers held when they had imported their tools."""
        return sum(worker.memory for workers in self._idle.values() for worker in workers)

    async def take(self, recipe: Recipe) -> Worker | None:
        """A worker for one call, or None: then a fresh process is the faster way.

        A busy worker is waited for no longer than importing would take.
        """
        key = recipe.key
        if not self._count.get(key):
            return None
        while workers := self._idle.get(key):
            worker = workers.pop()
            if worker.process.ended.done():
                self._forget(key, worker)
                continue
            if recipe.kind == "spare" or not worker.forks:
                self._start(recipe)
            return worker
        self._start(recipe)
        return await self._wait(key)

    async def _wait(self, key: Hashable) -> Worker | None:
        waiting: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(key, [])
        queue.append(waiting)
        try:
            await asyncio.wait([waiting], timeout=self._cost.get(key, WORTH))
        except asyncio.CancelledError:
            if waiting.done():  # a worker came for a call that has gone
                self._offer(key, waiting.result())
            raise
        finally:
            queue.remove(waiting)
            if not queue:
                del self._waiting[key]
        return waiting.result() if waiting.done() else None

    def learned(self, recipe: Recipe, seconds: float) -> None:
        """Importing this tool took so long: keep one warm if that is worth it.

        A cheap import can take long once, on a busy machine; twice in a row is a sign.
        """
        if seconds < WORTH:
            self._cost.pop(recipe.key, None)
            return
        is_sure = seconds >= _SURELY or recipe.key in self._cost
        if len(self._cost) >= _REMEMBERED:
            self._cost.clear()
            self._hopeless.clear()
        self._cost[recipe.key] = seconds
        if is_sure and not self._count.get(recipe.key):
            self._start(recipe)

    def give_back(self, recipe: Recipe, worker: Worker) -> None:
        """Take a worker back whose call is over."""
        if not worker.forks or worker.process.ended.done():
            self._forget(recipe.key, worker)
        else:
            self._offer(recipe.key, worker)

    def discard(self, recipe: Recipe, worker: Worker) -> None:
        """End a worker that a call was stopped in."""
        self._forget(recipe.key, worker)

    async def close(self) -> None:
        """End all of them."""
        for task in self._starting:
            task.cancel()
        idle = [(key, worker) for key, workers in self._idle.items() for worker in workers]
        for key, worker in idle:
            self._forget(key, worker)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill(self) -> None:
        """Close what is kept, from any thread; for when the event loop has ended.

        The launcher ends the processes.
        """
        for workers in self._idle.values():
            for worker in workers:
                worker.control.close()

    def _start(self, recipe: Recipe) -> None:
        key = recipe.key
        if self._count.get(key, 0) >= self._per_tool:
            return
        if self._hopeless.get(key, 0.0) > asyncio.get_running_loop().time():
            return
        self._make_room()
        if self.count >= _MOST:
            return
        self._count[key] = self._count.get(key, 0) + 1
        task = self._keep(self._warm_up(recipe))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _warm_up(self, recipe: Recipe) -> None:
        try:
            worker = await self._make(recipe)
        except (BackendError, OSError, ValueError, EOFError, TimeoutError):
            # The next call is a cold one, and tells what is wrong.
            self._count[recipe.key] -= 1
            self._hopeless[recipe.key] = asyncio.get_running_loop().time() + _IDLE
            return
        except asyncio.CancelledError:
            self._count[recipe.key] -= 1
            raise
        asyncio.get_running_loop().call_later(_IDLE, self._retire, recipe.key, worker)
        self._offer(recipe.key, worker)

    async def _make(self, recipe: Recipe) -> Worker:
        await self._launcher.ready()
        near, far = socket.socketpair()
        near.setblocking(False)
        nothing = os.open(os.devnull, os.O_WRONLY)
        stack = AsyncExitStack()
        stack.callback(near.close)
        access = NetworkAccess()
        try:
            process = self._launcher.spawn(recipe.job, (far.fileno(), nothing, nothing))
            stack.callback(process.kill)
        except BaseException:  # cancelled or failed: nothing of it may stay
            await stack.aclose()
            raise
        finally:
            far.close()
            os.close(nothing)
        try:
            async with asyncio.timeout(_LOADING):
                load = dict(recipe.load) | {"warm": recipe.kind}
                if recipe.job.network:
                    endpoints = recipe.job.endpoints
                    access = await self._networks.open(near, recipe.hosts, endpoints, stack)
                    load["environment"] = access.variables
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(near, encode_frame(load))
                loaded = await _receive(near)
            if loaded["op"] != "loaded":
                raise ValueError("the tool cannot be imported")
            forks = loaded.get("forks") is True
            memory = int(min(max(_number(loaded, "memory"), 0), recipe.job.bounds.memory))
        except BaseException:  # cancelled or failed: nothing of it may stay
            await stack.aclose()
            raise
        return Worker(process, near, forks, memory, stack, access)

    def _offer(self, key: Hashable, worker: Worker) -> None:
        """Hand a worker to who waits for it, else let it idle for a while."""
        for waiting in self._waiting.get(key, ()):
            if not waiting.done():
                waiting.set_result(worker)
                return
        worker.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(key, []).append(worker)

    def _retire(self, key: Hashable, worker: Worker) -> None:
        """End a worker that has idled for long enough, else look again when it might have."""
        if worker.process.ended.done():
            return
        loop = asyncio.get_running_loop()
        is_idle = worker in self._idle.get(key, ())
        left = worker.idle_since + _IDLE - loop.time() if is_idle else _IDLE
        if left > 0:
            loop.call_later(left, self._retire, key, worker)
        else:
            self._forget(key, worker)

    def _make_room(self) -> None:
        """Retire the longest idle while there are too many, or they hold too much."""
        while self.count >= _MOST or self.memory > _MOST_MEMORY:
            idle = [(w.idle_since, key, w) for key, found in self._idle.items() for w in found]
            if not idle:
                return
            _, key, worker = min(idle, key=lambda item: item[0])
            self._forget(key, worker)

    def _forget(self, key: Hashable, worker: Worker) -> None:
        workers = self._idle.get(key, [])
        if worker in workers:
            workers.remove(worker)
        self._count[key] -= 1
        if not self._count[key]:
            del self._count[key]
            self._idle.pop(key, None)
        self._keep(worker.stack.aclose())

    def _keep(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _receive(near: socket.socket) -> dict[str, Any]:
    """One frame of a worker; hostile code may have written it."""
    loop = asyncio.get_running_loop()
    data = b""
    wanted = 4
    while len(data) < wanted:
        chunk = await loop.sock_recv(near, wanted - len(data))
        if not chunk:
            raise EOFError("the worker has ended")
        data += chunk
        if len(data) == 4 and wanted == 4:
            wanted += int.from_bytes(data, "big")
            if wanted > _MAX_FRAME:
                raise ValueError("the worker sent too much")
    try:
        return parse_frame(data[4:])
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _number(frame: dict[str, Any], name: str) -> float:
    value = frame.get(name)
    if not isinstance(value, int | float) or abs(value) > 1 << 60:
        raise ValueError(f"the worker sent a {name} that is none")
    return value
