"""Pool of warm workers: processes that have already imported their tool.

A template forks for each call; it serves one tool version and one caller, because the tool's
code could keep data between calls. A spare serves a single call. The tool chooses with
`isolation`; a tool whose import leaves threads or files behind gets only spares. Idle workers
are retired, and their number and memory are bounded.
"""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Hashable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.model.network import HostRules
from toolkiln.sandbox.channel import encode_frame, parse_frame
from toolkiln.sandbox.launchers import Job, Launcher, Process, ProcessExit
from toolkiln.sandbox.network.access import NetworkAccess, Networks

_MIN_IMPORT = 0.015
"""Import time in seconds from which on a tool is kept warm."""
_SLOW_IMPORT = 0.1
"""Import time in seconds that a cheap import never takes, even on a busy machine."""
_IDLE_SECONDS = 120.0
_CACHE_SIZE = 1024
_MAX_WORKERS = 16
_MAX_MEMORY = 2 << 30
_LOAD_TIMEOUT = 60.0
_MAX_FRAME = 1 << 16


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to create a worker for certain calls."""

    key: Hashable
    job: Job
    load: Mapping[str, Any]
    """The frame that makes it import the tool."""
    load_frame: bytes
    """The same, encoded."""
    hosts: HostRules
    kind: str
    """`template` or `spare`."""


@dataclass(eq=False, slots=True)
class WarmProcess:
    """A process that has imported its tool."""

    process: Process
    control: socket.socket
    forks: bool
    memory: int
    stack: AsyncExitStack
    access: NetworkAccess = field(default_factory=NetworkAccess)
    idle_since: float = 0.0

    def send_call(self, descriptors: tuple[int, int, int]) -> bool:
        """Send it a call; False if it has died."""
        self.access.records.clear()
        try:
            socket.send_fds(self.control, [b"C"], list(descriptors))
        except OSError:
            return False
        return True

    async def ended(self) -> ProcessExit:
        """Wait for the end of the call's process."""
        if not self.forks:
            return await asyncio.shield(self.process.ended)
        try:
            frame = await _receive(self.control)
            status, cpu, memory = (_number(frame, name) for name in ("status", "cpu", "memory"))
        except (OSError, ValueError, EOFError):
            # The figures of the worker are not those of the call.
            return replace(await asyncio.shield(self.process.ended), cpu=None, memory=None)
        return ProcessExit(int(status), cpu, int(memory) * 1024)


class WarmPool:
    """The warm workers of one executor."""

    def __init__(self, launcher: Launcher, networks: Networks) -> None:
        self._launcher = launcher
        self._networks = networks
        self._idle: dict[Hashable, list[WarmProcess]] = {}
        self._count: Counter[Hashable] = Counter()
        """Idle, busy and starting workers."""
        self._import_seconds: dict[Hashable, float] = {}
        self._retry_after: dict[Hashable, float] = {}
        """When to try again to warm up a tool, after a failure."""
        self._waiters: dict[Hashable, list[asyncio.Future[WarmProcess]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: set[asyncio.Task[Any]] = set()
        """The tasks that `close` may cancel; the others release resources."""
        self._per_tool = max(2, os.cpu_count() or 1)

    @property
    def count(self) -> int:
        """The number of idle, busy and starting workers."""
        return self._count.total()

    @property
    def spare(self) -> int:
        """The number of idle workers."""
        return sum(map(len, self._idle.values()))

    @property
    def memory(self) -> int:
        """Bytes of memory of the idle workers after their imports."""
        return sum(worker.memory for workers in self._idle.values() for worker in workers)

    async def take(self, recipe: Recipe) -> WarmProcess | None:
        """Return a worker for one call, or None if a fresh process is faster.

        Waits for a busy worker no longer than the import would take.
        """
        key = recipe.key
        if not self._count[key]:
            return None
        while workers := self._idle.get(key):
            worker = workers.pop()
            if worker.process.ended.done():
                self.discard(key, worker)
                continue
            if recipe.kind == "spare" or not worker.forks:
                self._start(recipe)
            return worker
        self._start(recipe)
        return await self._wait(key)

    async def _wait(self, key: Hashable) -> WarmProcess | None:
        waiting: asyncio.Future[WarmProcess] = asyncio.get_running_loop().create_future()
        queue = self._waiters.setdefault(key, [])
        queue.append(waiting)
        try:
            await asyncio.wait([waiting], timeout=self._import_seconds.get(key, _MIN_IMPORT))
        except asyncio.CancelledError:
            if waiting.done():  # a worker became free for the cancelled call
                self._offer(key, waiting.result())
            raise
        finally:
            queue.remove(waiting)
            if not queue:
                del self._waiters[key]
        return waiting.result() if waiting.done() else None

    def record_cost(self, recipe: Recipe, seconds: float) -> None:
        """Record the import time of a tool, and keep a worker warm if it is worth it.

        On a busy machine a cheap import may be slow once, but rarely twice in a row.
        """
        if seconds < _MIN_IMPORT:
            self._import_seconds.pop(recipe.key, None)
            return
        is_sure = seconds >= _SLOW_IMPORT or recipe.key in self._import_seconds
        if len(self._import_seconds) >= _CACHE_SIZE:
            self._import_seconds.clear()
            self._retry_after.clear()
        self._import_seconds[recipe.key] = seconds
        if is_sure and not self._count[recipe.key]:
            self._start(recipe)

    def give_back(self, recipe: Recipe, worker: WarmProcess) -> None:
        """Return a worker whose call is over."""
        if not worker.forks or worker.process.ended.done():
            self.discard(recipe.key, worker)
        else:
            self._offer(recipe.key, worker)

    async def close(self) -> None:
        """End all workers."""
        for task in self._starting:
            task.cancel()
        idle = [(key, worker) for key, workers in self._idle.items() for worker in workers]
        for key, worker in idle:
            self.discard(key, worker)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill(self) -> None:
        """Close the sockets, from any thread; the launcher ends the processes."""
        for workers in self._idle.values():
            for worker in workers:
                worker.control.close()

    def _start(self, recipe: Recipe) -> None:
        key = recipe.key
        if self._count[key] >= self._per_tool:
            return
        if self._retry_after.get(key, 0.0) > asyncio.get_running_loop().time():
            return
        self._make_room()
        if self.count >= _MAX_WORKERS:
            return
        self._count[key] += 1
        task = self._run_in_background(self._warm_up(recipe))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _warm_up(self, recipe: Recipe) -> None:
        try:
            worker = await self._make(recipe)
        except (BackendError, OSError, ValueError, EOFError, TimeoutError):
            # The next call uses a fresh process and reports the error.
            self._count[recipe.key] -= 1
            self._retry_after[recipe.key] = asyncio.get_running_loop().time() + _IDLE_SECONDS
            return
        except asyncio.CancelledError:
            self._count[recipe.key] -= 1
            raise
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._retire, recipe.key, worker)
        self._offer(recipe.key, worker)

    async def _make(self, recipe: Recipe) -> WarmProcess:
        await self._launcher.ready()
        near, far = socket.socketpair()
        near.setblocking(False)
        null = os.open(os.devnull, os.O_WRONLY)
        stack = AsyncExitStack()
        stack.callback(near.close)
        access = NetworkAccess()
        try:
            process = self._launcher.spawn(recipe.job, (far.fileno(), null, null))
            stack.callback(process.kill)
        except BaseException:  # including cancellation
            await stack.aclose()
            raise
        finally:
            far.close()
            os.close(null)
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT):
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
        except BaseException:  # including cancellation
            await stack.aclose()
            raise
        return WarmProcess(process, near, forks, memory, stack, access)

    def _offer(self, key: Hashable, worker: WarmProcess) -> None:
        """Pass a worker to a waiting call, else make it idle."""
        for waiting in self._waiters.get(key, ()):
            if not waiting.done():
                waiting.set_result(worker)
                return
        worker.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(key, []).append(worker)

    def _retire(self, key: Hashable, worker: WarmProcess) -> None:
        """End a worker that has been idle long enough, else check again later."""
        if worker.process.ended.done():
            return
        loop = asyncio.get_running_loop()
        is_idle = worker in self._idle.get(key, ())
        left = worker.idle_since + _IDLE_SECONDS - loop.time() if is_idle else _IDLE_SECONDS
        if left > 0:
            loop.call_later(left, self._retire, key, worker)
        else:
            self.discard(key, worker)

    def _make_room(self) -> None:
        """End the longest idle workers while there are too many or they use too much memory."""
        while self.count >= _MAX_WORKERS or self.memory > _MAX_MEMORY:
            idle = [(w.idle_since, key, w) for key, found in self._idle.items() for w in found]
            if not idle:
                return
            _, key, worker = min(idle, key=lambda item: item[0])
            self.discard(key, worker)

    def discard(self, key: Hashable, worker: WarmProcess) -> None:
        """End a worker, busy or idle."""
        workers = self._idle.get(key, [])
        if worker in workers:
            workers.remove(worker)
        self._count[key] -= 1
        if not self._count[key]:
            del self._count[key]
            self._idle.pop(key, None)
        self._run_in_background(worker.stack.aclose())

    def _run_in_background(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _receive(near: socket.socket) -> dict[str, Any]:
    """Receive one frame of a worker, which may be hostile."""
    loop = asyncio.get_running_loop()
    data = b""
    expected = 4
    while len(data) < expected:
        chunk = await loop.sock_recv(near, expected - len(data))
        if not chunk:
            raise EOFError("the worker has ended")
        data += chunk
        if len(data) == 4 and expected == 4:
            expected += int.from_bytes(data, "big")
            if expected > _MAX_FRAME:
                raise ValueError("the worker sent too large a frame")
    try:
        return parse_frame(data[4:])
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _number(frame: dict[str, Any], name: str) -> float:
    value = frame.get(name)
    if not isinstance(value, int | float) or abs(value) > 1 << 60:
        raise ValueError(f"the worker sent an invalid {name}")
    return value
