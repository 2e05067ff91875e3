"""Executor of sandboxed calls: runs each call in a fresh or a warm process.

It enforces the timeout and the workspace quota, and turns the end of a process into an outcome.
`launchers` start processes, `channel` implements the protocol, `warm_pool` keeps warm processes.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Coroutine, Hashable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from toolkiln.errors import BackendError
from toolkiln.execution.executor import ExecutionOutcome, Invocation, call_context
from toolkiln.execution.outcomes import apply_frame, exit_error, limit_error
from toolkiln.execution.questions import CallTimer
from toolkiln.model.call import CallError, Status
from toolkiln.runtime.wire import SETUP_FAILED, TOO_MANY_PROCESSES
from toolkiln.sandbox.channel import CallChannel, Frame, encode_frame
from toolkiln.sandbox.launchers import Job, Launcher, Process, ProcessExit
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.network.addresses import plan_endpoints
from toolkiln.sandbox.trees import Versions
from toolkiln.sandbox.warm_pool import Recipe, WarmPool, WarmProcess
from toolkiln.sandbox.workspaces import exceeded, over_quota


class Load(NamedTuple):
    """The current load of a sandbox."""

    mode: str
    running: int
    """Running calls."""
    waiting: int
    """Calls that wait for a slot."""
    workers: int
    """Warm processes, busy or idle."""
    spare: int
    """Idle warm processes."""


class Slots:
    """Slots for concurrent calls, shared fairly among callers."""

    def __init__(self, shared: int, first: int) -> None:
        """Create `shared` slots for all callers and `first` more for callers without a slot."""
        self._shared = shared
        self._first = first
        self._used: Counter[str] = Counter()
        """Used slots by caller."""
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting calls by caller; the caller that has waited longest comes first."""
        self.running = 0

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return sum(map(len, self._queues.values()))

    async def acquire(self, caller: str, *, is_nested: bool) -> None:
        """Wait for a slot; pass the same arguments to `release`.

        A nested call needs no slot of its own: its parent keeps one while it waits.
        """
        if not is_nested:
            if caller in self._queues or not self._has_room(caller):
                await self._wait(caller)
            else:
                self._used[caller] += 1
        self.running += 1

    def release(self, caller: str, *, is_nested: bool) -> None:
        """Release a slot, which starts the next waiting call."""
        self.running -= 1
        if not is_nested:
            self._free(caller)

    def _has_room(self, caller: str) -> bool:
        used = self._used.total()
        return used < self._shared or (used < self._shared + self._first and not self._used[caller])

    async def _wait(self, caller: str) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller, deque()).append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():  # it got the slot at the same moment
                self._free(caller)
            else:
                self._dequeue(caller, slot)
            raise

    def _free(self, caller: str) -> None:
        self._used[caller] -= 1
        if not self._used[caller]:
            del self._used[caller]
        while self._queues:
            following = min(self._queues, key=lambda each: self._used[each])
            if not self._has_room(following):
                return
            slot = self._queues[following][0]
            self._dequeue(following, slot)
            if not slot.done():
                self._used[following] += 1
                slot.set_result(None)

    def _dequeue(self, caller: str, slot: "asyncio.Future[None]") -> None:
        """Remove a waiting call, and move its caller behind the other callers."""
        queue = self._queues.pop(caller, None)
        if queue is None:
            return
        with suppress(ValueError):
            queue.remove(slot)
        if queue:
            self._queues[caller] = queue


_EXIT_GRACE = 0.05
"""Seconds that a process may live after its result."""
_KILL_TIMEOUT = 10.0
_CONCURRENT_CALLS = 32
_FIRST_CALLS = 4
"""Additional slots for callers that run nothing."""
_CACHE_SIZE = 1024


class SandboxExecutor:
    """Runs calls in unprivileged processes."""

    def __init__(self, launcher: Launcher, state: Path, networks: Networks) -> None:
        self._launcher = launcher
        self._versions = Versions(state / "versions")
        self._networks = networks
        self._slots = Slots(_CONCURRENT_CALLS, _FIRST_CALLS)
        self._warm = WarmPool(launcher, networks)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: set[asyncio.Future[ProcessExit]] = set()
        self._recipes: dict[Hashable, Recipe] = {}

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        """Run one call in its own process."""
        caller = invocation.caller.who
        await self._slots.acquire(caller, is_nested=invocation.is_nested)
        try:
            await self._launcher.ready()
            outcome = ExecutionOutcome(sandbox=self._launcher.mode)
            recipe = self._recipe(invocation)
            channel = CallChannel(invocation, outcome)
            try:
                worker = await self._warm.take(recipe)
                if worker is not None and not worker.send_call(channel.far_descriptors):
                    self._warm.discard(recipe.key, worker)
                    worker = None
                if worker is None:
                    await self._run_fresh(invocation, recipe, channel, outcome)
                else:
                    await self._run_warm(invocation, recipe, worker, channel, outcome)
            finally:
                channel.close()
            return outcome
        finally:
            self._slots.release(caller, is_nested=invocation.is_nested)

    async def ready(self) -> str:
        """Start the launcher and return its mode; raises BackendError if it does not work."""
        await self._launcher.ready()
        return self._launcher.mode

    @property
    def load(self) -> Load:
        """The current load."""
        slots, warm = self._slots, self._warm
        return Load(self._launcher.mode, slots.running, slots.waiting, warm.count, warm.spare)

    async def close(self) -> None:
        """End all processes: those of calls, then warm ones, then the launcher's."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._warm.close()
        if self._ending:
            await asyncio.wait(self._ending, timeout=_KILL_TIMEOUT)
        await self._launcher.close()

    def kill(self) -> None:
        """End all processes from any thread, after the event loop has ended."""
        self._warm.kill()
        self._launcher.kill()

    async def _run_fresh(
        self,
        invocation: Invocation,
        recipe: Recipe,
        channel: CallChannel,
        outcome: ExecutionOutcome,
    ) -> None:
        process = self._launcher.spawn(recipe.job, channel.far_descriptors)
        channel.close_far_ends()
        try:
            async with self._connected(recipe, channel, outcome) as load:
                channel.open()
                channel.send(load, encode_frame(_call_frame(invocation)))
                await self._until_over(invocation, channel, process)
                await self._conclude(invocation, channel, process.ended, process, outcome)
        finally:
            self._kill_after_grace(process)
        if channel.load_seconds is not None:
            self._warm.record_cost(recipe, channel.load_seconds + self._launcher.start_seconds)

    @asynccontextmanager
    async def _connected(
        self, recipe: Recipe, channel: CallChannel, outcome: ExecutionOutcome
    ) -> AsyncIterator[bytes]:
        """Open the network access of a call; yield the frame that loads its tool."""
        if not recipe.job.network:
            yield recipe.load_frame
            return
        async with AsyncExitStack() as stack:
            near, endpoints = channel.call, recipe.job.endpoints
            access = await self._networks.open(near, recipe.hosts, endpoints, stack)
            yield encode_frame({**recipe.load, "environment": access.variables})
        outcome.notes += access.notes(outcome.error)

    def _kill_after_grace(self, process: Process) -> None:
        if process.ended.done():
            return
        timer = asyncio.get_running_loop().call_later(_EXIT_GRACE, process.kill)
        self._ending.add(process.ended)
        process.ended.add_done_callback(self._ending.discard)
        process.ended.add_done_callback(lambda _: timer.cancel())

    async def _run_warm(
        self,
        invocation: Invocation,
        recipe: Recipe,
        worker: WarmProcess,
        channel: CallChannel,
        outcome: ExecutionOutcome,
    ) -> None:
        ended: asyncio.Task[ProcessExit] | None = None
        channel.load_seconds = 0.0
        try:
            channel.has_begun = True
            channel.open()
            channel.send(encode_frame(_call_frame(invocation)))
            ended = asyncio.create_task(worker.ended())
            await self._until_over(invocation, channel, worker.process)
            await self._conclude(invocation, channel, ended, worker.process, outcome)
            outcome.notes += worker.access.notes(outcome.error)
        finally:
            # A killed worker may still report that its call has ended.
            over = channel.over
            completed = over.done() and not over.cancelled() and over.result()[0] == "frame"
            self._run_in_background(self._return_worker(recipe, worker, ended, completed=completed))

    async def _return_worker(
        self,
        recipe: Recipe,
        worker: WarmProcess,
        ended: asyncio.Task[ProcessExit] | None,
        *,
        completed: bool,
    ) -> None:
        """Return a worker to the pool once its call's process has ended, or end the worker."""
        if ended is not None:
            done, _ = await asyncio.wait([ended], timeout=_EXIT_GRACE * 4)
            if completed and done and not ended.cancelled() and ended.exception() is None:
                self._warm.give_back(recipe, worker)
                return
            ended.cancel()
        self._warm.discard(recipe.key, worker)

    async def _until_over(
        self, invocation: Invocation, channel: CallChannel, process: Process
    ) -> None:
        """Wait for a final frame, the end of the process, a violation, the timeout or the quota."""
        timer = invocation.timer or CallTimer(invocation.bounds.timeout)
        timer.start(partial(channel.end, "timeout", None))
        watch = None
        if invocation.workspace is not None and invocation.workspace.writable:
            watch = asyncio.create_task(over_quota(invocation.workspace))
            watch.add_done_callback(partial(_on_quota, channel))
        try:
            await channel.over
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            timer.stop()
            if watch is not None:
                watch.cancel()

    async def _conclude(
        self,
        invocation: Invocation,
        channel: CallChannel,
        ended: Awaitable[ProcessExit],
        process: Process,
        outcome: ExecutionOutcome,
    ) -> None:
        kind, data = channel.over.result()
        bounds = invocation.bounds
        if kind == "frame":
            apply_frame(outcome, data, invocation)
            # As the process measured them: its end, and the kernel's figures, come too late.
            memory = data["memory"]
            outcome.cpu, outcome.memory = data["cpu"], None if memory is None else int(memory)
            if invocation.workspace is not None and invocation.workspace.writable:
                excess = await asyncio.to_thread(exceeded, invocation.workspace)
                if excess:  # written after the last periodic check
                    outcome.status, outcome.error = _over_quota(excess)
            return
        if kind == "gone":
            end = await _wait_for_end(ended, process)
            outcome.cpu, outcome.memory = end.cpu, end.memory
            # Once a tool has begun, this status is the tool's.
            failed = end.status >> 8 == SETUP_FAILED and not channel.has_begun
            if self._launcher.mode == "C" and end.status >> 8 == TOO_MANY_PROCESSES:
                outcome.status, outcome.error = limit_error("processes", bounds)
                return
            if end.platform_error or failed:
                raise BackendError(end.platform_error or channel.setup_error())
            outcome.status, outcome.error = exit_error(
                end.status, end.cpu, bounds, out_of_memory=end.out_of_memory
            )
            return
        process.kill()
        waiting = asyncio.ensure_future(ended)
        if (await asyncio.wait([waiting], timeout=_EXIT_GRACE))[0]:
            outcome.cpu, outcome.memory = waiting.result().cpu, waiting.result().memory
        if kind == "timeout":
            outcome.status, outcome.error = limit_error("timeout", bounds)
        elif kind == "quota":
            outcome.status, outcome.error = _over_quota(data)
        else:
            outcome.status = Status.KILLED
            outcome.error = CallError(code="output_limit", message=data)

    def _recipe(self, invocation: Invocation) -> Recipe:
        spec, caller, bounds = invocation.tool.spec, invocation.caller, invocation.bounds
        is_template = spec.isolation == "template"
        # A template may have kept data of its caller; a spare has not served any.
        identity = (caller.platform, caller.user_id, caller.agent_id, caller.session)
        template_caller = identity if is_template else None
        limits = (bounds.memory, bounds.cpu, bounds.processes, bounds.disk)
        granted = (invocation.site, invocation.workspace, invocation.network)
        # An approval function may also be a tool, with other arguments; a function may have
        # two roles.
        function = (spec.digest, spec.entry, spec.whole_arguments, spec.role)
        key = (function, is_template, template_caller, limits, granted)
        recipe = self._recipes.get(key)
        if recipe is None:
            if len(self._recipes) >= _CACHE_SIZE:
                self._recipes.clear()
            recipe = self._recipes[key] = self._new_recipe(key, invocation)
        return recipe

    def _new_recipe(self, key: Hashable, invocation: Invocation) -> Recipe:
        spec = invocation.tool.spec
        is_template = spec.isolation == "template"
        job = Job(
            version=self._versions.folder(spec, invocation.tool.sources),
            site=invocation.site,
            workspace=invocation.workspace,
            network=bool(invocation.network.rules) and self._launcher.mode != "none",
            bounds=invocation.bounds,
            extra_processes=1 if is_template else 0,
            endpoints=plan_endpoints(invocation.network),
        )
        paths = self._launcher.paths(job)
        load = {
            "op": "load",
            "file": f"{paths.tool}/{PurePath(spec.path).name}",
            "site": paths.site,
            "base": paths.base,
            "entry": spec.entry,
            "dialect": spec.dialect,
            "injected": spec.injected,
            "whole_arguments": spec.whole_arguments,
            "role": spec.role,
            "workdir": paths.workspace,
            "keep_instance": spec.toolkit is not None and spec.toolkit.instance == "template",
        }
        return Recipe(
            key=key,
            job=job,
            load=load,
            load_frame=encode_frame(load),
            hosts=invocation.network,
            kind="template" if is_template else "spare",
        )

    def _run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _over_quota(excess: str) -> tuple[Status, CallError]:
    hint = "export or clear the session's files with `toolkiln workspace`"
    return Status.KILLED, CallError(code="workspace_limit", message=excess, hint=hint)


def _on_quota(channel: CallChannel, watch: asyncio.Task[str]) -> None:
    if not watch.cancelled():
        channel.end("quota", watch.result())


def _call_frame(invocation: Invocation) -> Frame:
    return {"op": "call", "arguments": invocation.arguments, "caller": call_context(invocation)}


async def _wait_for_end(ended: Awaitable[ProcessExit], process: Process) -> ProcessExit:
    """Wait for the end of a process that closed its socket; kill it if necessary."""
    waiting = asyncio.ensure_future(ended)
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    if not done:
        process.kill()
        done, _ = await asyncio.wait([waiting], timeout=_KILL_TIMEOUT)
    if not done:
        raise BackendError("a killed process does not end")
    return waiting.result()
