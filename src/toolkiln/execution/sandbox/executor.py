"""The sandbox as an executor: a fresh process for each call, or a warm one that fits.

It runs a call, watches the clock, and makes an outcome of how it ended. How processes
come about is a launcher's business (`processes`), what is said on their sockets
`conversation`'s, which of them are kept warm `warm`'s.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.execution.clock import Clock
from toolkiln.execution.executor import Invocation, Outcome, told
from toolkiln.execution.network import plan_endpoints
from toolkiln.execution.outcomes import apply_frame, died, limit_hit
from toolkiln.execution.sandbox.conversation import Conversation, Frame, encode_frame
from toolkiln.execution.sandbox.networks import Networks
from toolkiln.execution.sandbox.processes import Ended, Job, Launcher, Process
from toolkiln.execution.sandbox.slots import Load, Slots
from toolkiln.execution.sandbox.warm import Recipe, WarmWorkers, Worker
from toolkiln.execution.versions import Versions
from toolkiln.execution.workspaces import exceeded, over_quota
from toolkiln.model import CallError, Status

_LINGERING = 0.05
"""Seconds that a process may live after its result."""
_DYING = 10.0
"""Seconds that the kernel may take to end a killed process."""
_CONCURRENT = 32
_FIRST = 4
"""Slots more, for callers that run nothing."""
_REMEMBERED = 1024


class SandboxExecutor:
    """Runs calls in processes without rights."""

    def __init__(self, launcher: Launcher, state: Path, networks: Networks) -> None:
        self._launcher = launcher
        self._versions = Versions(state / "versions")
        self._networks = networks
        self._slots = Slots(_CONCURRENT, _FIRST)
        self._warm = WarmWorkers(launcher, networks)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: set[asyncio.Future[Ended]] = set()
        self._recipes: dict[Hashable, Recipe] = {}

    async def run(self, invocation: Invocation) -> Outcome:
        """Run one call in a process of its own."""
        who = invocation.caller.who
        await self._slots.take(who, is_nested=invocation.is_nested)
        try:
            await self._launcher.ready()
            outcome = Outcome(sandbox=self._launcher.mode)
            recipe = self._recipe(invocation)
            conversation = Conversation(invocation, outcome)
            try:
                worker = await self._warm.take(recipe)
                if worker is not None and not worker.hand_over(conversation.far_descriptors):
                    self._warm.discard(recipe, worker)
                    worker = None
                if worker is None:
                    await self._run_fresh(invocation, recipe, conversation, outcome)
                else:
                    await self._run_warm(invocation, recipe, worker, conversation, outcome)
            finally:
                conversation.close()
            return outcome
        finally:
            self._slots.give_back(who, is_nested=invocation.is_nested)

    async def ready(self) -> str:
        """The mode, once calls can be run in it.

        Raises:
            BackendError: they cannot.
        """
        await self._launcher.ready()
        return self._launcher.mode

    @property
    def load(self) -> Load:
        """How busy it is."""
        slots, warm = self._slots, self._warm
        return Load(self._launcher.mode, slots.running, slots.waiting, warm.count, warm.spare)

    @property
    def warm(self) -> tuple[int, int]:
        """How many workers are kept warm, and the bytes that the idle ones hold."""
        return self._warm.count, self._warm.memory

    async def close(self) -> None:
        """End what calls left, the warm workers that they gave back, then everything else."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._warm.close()
        if self._ending:
            await asyncio.wait(self._ending, timeout=_DYING)
        await self._launcher.close()

    def kill(self) -> None:
        """End all processes, from any thread; for when the event loop has ended."""
        self._warm.kill()
        self._launcher.kill()

    async def _run_fresh(
        self, invocation: Invocation, recipe: Recipe, conversation: Conversation, outcome: Outcome
    ) -> None:
        process = self._launcher.spawn(recipe.job, conversation.far_descriptors)
        conversation.close_far_ends()
        try:
            async with self._connected(recipe, conversation, outcome) as load:
                conversation.open()
                conversation.send(load, encode_frame(_call_frame(invocation)))
                await self._until_over(invocation, conversation, process)
                await self._conclude(invocation, conversation, process.ended, process, outcome)
        finally:
            self._see_off(process)
        if conversation.load_seconds is not None:
            self._warm.learned(recipe, conversation.load_seconds + self._launcher.start_seconds)

    @asynccontextmanager
    async def _connected(
        self, recipe: Recipe, conversation: Conversation, outcome: Outcome
    ) -> AsyncIterator[bytes]:
        """The frame that loads the tool, once the network that it may use is there."""
        if not recipe.job.network:
            yield recipe.load_frame
            return
        async with AsyncExitStack() as stack:
            near, endpoints = conversation.call, recipe.job.endpoints
            access = await self._networks.open(near, recipe.hosts, endpoints, stack)
            yield encode_frame({**recipe.load, "environment": access.variables})
        outcome.notes += access.notes(outcome.error)

    def _see_off(self, process: Process) -> None:
        """See to it that a process does not outlive its call."""
        if process.ended.done():
            return
        timer = asyncio.get_running_loop().call_later(_LINGERING, process.kill)
        self._ending.add(process.ended)
        process.ended.add_done_callback(self._ending.discard)
        process.ended.add_done_callback(lambda _: timer.cancel())

    async def _run_warm(
        self,
        invocation: Invocation,
        recipe: Recipe,
        worker: Worker,
        conversation: Conversation,
        outcome: Outcome,
    ) -> None:
        ended: asyncio.Task[Ended] | None = None
        conversation.load_seconds = 0.0
        try:
            conversation.has_begun = True
            conversation.open()
            conversation.send(encode_frame(_call_frame(invocation)))
            ended = asyncio.create_task(worker.ended())
            await self._until_over(invocation, conversation, worker.process)
            await self._conclude(invocation, conversation, ended, worker.process, outcome)
            outcome.notes += worker.access.notes(outcome.error)
        finally:
            # One that was killed may still say that its call has ended.
            over = conversation.over
            answered = over.done() and not over.cancelled() and over.result()[0] == "frame"
            self._later(self._settle(recipe, worker, ended, answered=answered))

    async def _settle(
        self,
        recipe: Recipe,
        worker: Worker,
        ended: asyncio.Task[Ended] | None,
        *,
        answered: bool,
    ) -> None:
        """Give a worker back once its call's process has really ended, or end it."""
        if ended is not None:
            done, _ = await asyncio.wait([ended], timeout=_LINGERING * 4)
            if answered and done and not ended.cancelled() and ended.exception() is None:
                self._warm.give_back(recipe, worker)
                return
            ended.cancel()
        self._warm.discard(recipe, worker)

    async def _until_over(
        self, invocation: Invocation, conversation: Conversation, process: Process
    ) -> None:
        """Wait for a final frame, the other side's end, a breach, the clock or the quota."""
        clock = invocation.clock or Clock(invocation.bounds.timeout)
        clock.start(partial(conversation.end, "timeout", None))
        watch = None
        if invocation.workspace is not None and invocation.workspace.writable:
            watch = asyncio.create_task(over_quota(invocation.workspace))
            watch.add_done_callback(partial(_on_quota, conversation))
        try:
            await conversation.over
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            clock.stop()
            if watch is not None:
                watch.cancel()

    async def _conclude(
        self,
        invocation: Invocation,
        conversation: Conversation,
        ended: Awaitable[Ended],
        process: Process,
        outcome: Outcome,
    ) -> None:
        kind, data = conversation.over.result()
        bounds = invocation.bounds
        if kind == "frame":
            apply_frame(outcome, data, invocation)
            if invocation.workspace is not None and invocation.workspace.writable:
                excess = await asyncio.to_thread(exceeded, invocation.workspace)
                if excess:  # it was faster than whoever watched it
                    outcome.status, outcome.error = _over_quota(excess)
            return
        if kind == "gone":
            end = await _bounded(ended, process)
            outcome.cpu, outcome.memory = end.cpu, end.memory
            # Once a tool has begun, this status is the tool's own.
            failed = end.status >> 8 == _SETUP_FAILED and not conversation.has_begun
            if self._launcher.mode == "C" and end.status >> 8 == _TOO_MANY:
                outcome.status, outcome.error = limit_hit("processes", bounds)
                return
            if end.trouble or failed:
                raise BackendError(end.trouble or conversation.complaint())
            outcome.status, outcome.error = died(
                end.status, end.cpu, bounds, out_of_memory=end.out_of_memory
            )
            return
        process.kill()
        if kind == "timeout":
            outcome.status, outcome.error = limit_hit("timeout", bounds)
        elif kind == "quota":
            outcome.status, outcome.error = _over_quota(data)
        else:
            outcome.status = Status.KILLED
            outcome.error = CallError(code="output_limit", message=data)

    def _recipe(self, invocation: Invocation) -> Recipe:
        spec, caller, bounds = invocation.tool.spec, invocation.caller, invocation.bounds
        is_template = spec.isolation == "template"
        # A template has seen its callers; a spare has seen nobody.
        person = (caller.platform, caller.user_id, caller.agent_id, caller.session)
        identity = person if is_template else None
        limits = (bounds.memory, bounds.cpu, bounds.processes, bounds.disk)
        granted = (invocation.site, invocation.workspace, invocation.network)
        # A function that decides on approvals may be a tool as well, and is given other things;
        # and one function may have two roles.
        runs = (spec.digest, spec.entry, spec.whole_arguments, spec.role)
        key = (runs, is_template, identity, limits, granted)
        recipe = self._recipes.get(key)
        if recipe is None:
            if len(self._recipes) >= _REMEMBERED:
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
        view = self._launcher.view(job)
        load = {
            "op": "load",
            "file": f"{view.tool}/{PurePath(spec.path).name}",
            "site": view.site,
            "base": view.base,
            "entry": spec.entry,
            "dialect": spec.dialect,
            "injected": spec.injected,
            "whole_arguments": spec.whole_arguments,
            "role": spec.role,
            "workdir": view.workspace,
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

    def _later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_SETUP_FAILED = 119
_TOO_MANY = 118
"""What the guardian of mode C ends with; `runtime.once` has both."""


def _over_quota(excess: str) -> tuple[Status, CallError]:
    hint = "`toolkiln workspace` exports and clears the files of a session"
    return Status.KILLED, CallError(code="workspace_limit", message=excess, hint=hint)


def _on_quota(conversation: Conversation, watch: asyncio.Task[str]) -> None:
    if not watch.cancelled():
        conversation.end("quota", watch.result())


def _call_frame(invocation: Invocation) -> Frame:
    return {"op": "call", "arguments": invocation.arguments, "caller": told(invocation)}


async def _bounded(ended: Awaitable[Ended], process: Process) -> Ended:
    """The end that must follow a closed socket; it is helped along."""
    waiting = asyncio.ensure_future(ended)
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    if not done:
        process.kill()
        done, _ = await asyncio.wait([waiting], timeout=_DYING)
    if not done:
        raise BackendError("a process cannot be ended")
    return waiting.result()
