"""The sandbox: real walls around every call. docs/sandbox.md says what they stop.

`Sandboxes` is the front: it finds out which mode works here, and keeps one executor for
tools in it and one for those that may run without.
"""

import asyncio
from pathlib import Path

from toolkiln.execution.executor import Invocation, Outcome
from toolkiln.execution.sandbox.doctor import Diagnosis, diagnose
from toolkiln.execution.sandbox.executor import SandboxExecutor
from toolkiln.execution.sandbox.launching import sandbox_user
from toolkiln.execution.sandbox.networks import Networks
from toolkiln.execution.sandbox.selection import choose, make_launcher
from toolkiln.execution.sandbox.slots import Load

__all__ = ["Diagnosis", "Networks", "Sandboxes", "sandbox_user"]


class Sandboxes:
    """An executor in the best mode that works, found out when the first call comes."""

    def __init__(
        self,
        state: Path,
        networks: Networks,
        *,
        wanted: str = "auto",
        allow_reduced: bool = False,
    ) -> None:
        self._state = state
        self._networks = networks
        self._wanted = wanted
        self._allow_reduced = allow_reduced
        self._executors: dict[bool, SandboxExecutor] = {}
        self._choosing = asyncio.Lock()

    async def run(self, invocation: Invocation) -> Outcome:
        """Run a call in the sandbox, or without one if its tool asks and may."""
        executor = await self._executor(sandboxed=invocation.tool.spec.rights.sandbox)
        return await executor.run(invocation)

    @property
    def warm(self) -> tuple[int, int]:
        """How many workers are kept warm, and the bytes that the idle ones hold."""
        kept = [executor.warm for executor in self._executors.values()]
        return sum(count for count, _ in kept), sum(size for _, size in kept)

    @property
    def loads(self) -> list[Load]:
        """How busy each mode is that calls ran in."""
        return [executor.load for executor in self._executors.values()]

    async def ready(self) -> str:
        """The mode that calls run in, started if nothing has needed it yet.

        Raises:
            BackendError: none works.
        """
        return await (await self._executor(sandboxed=True)).ready()

    async def close(self) -> None:
        """End everything that was started."""
        for executor in self._executors.values():
            await executor.close()
        self._executors.clear()

    def kill(self) -> None:
        """End all processes, from any thread; for when the event loop has ended."""
        for executor in self._executors.values():
            executor.kill()
        self._executors.clear()

    async def diagnose(self) -> Diagnosis:
        """Every mode, tried out."""
        return await diagnose(self._state, wanted=self._wanted, allow_reduced=self._allow_reduced)

    async def _executor(self, *, sandboxed: bool) -> SandboxExecutor:
        if sandboxed not in self._executors:
            async with self._choosing:
                if sandboxed not in self._executors:
                    self._executors[sandboxed] = await self._make(sandboxed=sandboxed)
        return self._executors[sandboxed]

    async def _make(self, *, sandboxed: bool) -> SandboxExecutor:
        mode = "none"
        if sandboxed:
            mode = await choose(self._wanted, self._state, allow_reduced=self._allow_reduced)
        launcher = make_launcher(mode, self._state)
        return SandboxExecutor(launcher, self._state, self._networks)
