"""What calls need, put together: gateway, sandbox, environments, workspaces, memory."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from toolkiln.app.discretion import Discretion, is_telling
from toolkiln.app.offer import Offer
from toolkiln.config import Settings
from toolkiln.errors import ToolkilnError
from toolkiln.execution import (
    MAXIMA,
    Admitted,
    Asking,
    Bounds,
    CallBook,
    Candidate,
    Elsewhere,
    Environment,
    Environments,
    Gateway,
    Guard,
    InlineExecutor,
    Memory,
    Networks,
    Parts,
    Quota,
    Report,
    Resolve,
    Sandboxes,
    Tasks,
    Workspaces,
    normalise,
    probe,
    read_requirements_file,
    run_examples,
    sandbox_user,
)
from toolkiln.model import Call, Event, Finding, Read, Result, Task


def _maxima(settings: Settings) -> Bounds:
    given: dict[str, Any] = {
        name: value if name in ("timeout", "cpu") else int(value)
        for name, value in settings.limits.items()
    }
    return replace(MAXIMA, **given)


class Engine:
    """The parts behind a Kiln, each made once."""

    def __init__(
        self,
        offer: Offer,
        settings: Settings,
        tools: Path | None,
        resolve_host: Resolve | None,
        guard: Guard,
        call_book: Callable[[], CallBook],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`elsewhere` takes the calls that do not run in this process or its sandbox."""
        self._offer = offer
        self.elsewhere = elsewhere
        self.resolve = offer.resolve
        self.version = offer.version
        self.published = offer.published
        self.functions = offer.functions
        self._guard = guard
        self._tools = tools
        self._maxima = _maxima(settings)
        state = settings.made_state()
        self.memory = Memory(call_book)
        self.environments = Environments(
            state / "envs",
            settings.environ,
            exclude_newer=settings.exclude_newer or None,
            quota=Quota(settings.environment_bytes, settings.environment_files),
        )
        self.workspaces = Workspaces(
            state / "workspaces",
            max_bytes=settings.workspace_bytes,
            max_files=settings.workspace_files,
            owner=sandbox_user(),
        )
        self.sandboxes = Sandboxes(
            state,
            Networks(settings.private_networks, resolve_host),
            wanted=settings.sandbox,
            allow_reduced=settings.allow_reduced,
        )
        self._inline = InlineExecutor()
        self.discretion = Discretion(offer, guard)
        parts = Parts(
            resolve=offer.resolve,
            inline=self._inline,
            sandbox=self.sandboxes,
            environments=self.environments,
            workspaces=self.workspaces,
            memory=self.memory,
            maxima=self._maxima,
            requirements=self.requirements,
            guard=guard,
            names=offer.names,
            told=self.discretion.told,
            elsewhere=elsewhere,
        )
        self.gateway = Gateway(parts)
        self.checks: Mapping[str, Callable[[], Awaitable[object]]] = (
            {"fleet": elsewhere.ready} if elsewhere else {"sandbox": self.sandboxes.ready}
        )
        """What calls depend on, by name; asked, it raises ToolkilnError if it is not ready."""
        self.tasks = Tasks(self.gateway, self.memory, elsewhere=elsewhere)

    async def call(
        self,
        call: Call,
        observe: Callable[[Event], None],
        background: Literal["auto"] | bool,
        *,
        lasting: bool = False,
        asking: Asking | None = None,
        wait_seconds: float | None = None,
    ) -> Result | Task:
        """Run a call; one that may outlast its caller ends at once if nobody may make it."""
        if not background and not lasting:
            return await self.gateway.call(call, observe, asking)
        try:
            caller = await self._guard.caller(call.session)
        except ToolkilnError:
            return await self.gateway.call(call, observe)  # which says why, and records it
        if not background:
            return await self.tasks.lasting(call, caller, observe, asking)
        return await self.tasks.call(
            call,
            caller,
            observe,
            background,
            lasting=lasting,
            asking=asking,
            wait_seconds=wait_seconds,
        )

    async def call_many(self, calls: Sequence[Call], *, lasting: bool = False) -> list[Result]:
        """Run calls in order; `lasting` ones go on if whoever awaits them is cancelled."""
        work = self.gateway.call_many(calls)
        return await (self.tasks.seen_out(work) if lasting else work)

    async def told(self, result: Result, session: str | None, called: str | None = None) -> Result:
        """A result as the holder of a session may know it; see `discretion`.

        Raises:
            NoSession: nobody holds it any more.
        """
        if not is_telling(result):
            return result
        return self.discretion.told(result, await self._guard.caller(session), called)

    def longest(self, name: str) -> float:
        """The seconds that a call of a tool may take, whatever its caller says."""
        try:
            asked = self._offer.spec(name).limits.timeout
        except ToolkilnError:
            asked = None
        return self._maxima.timeout if asked is None else min(asked, self._maxima.timeout)

    def requirements(self, tool: Admitted) -> Iterable[str]:
        """What a tool's environment holds: its own wishes and the folder's.

        Raises:
            InputError: the folder's `requirements.txt` cannot be used.
        """
        if self._tools is None:
            return tool.spec.requirements
        folder = self._tools if self._tools.is_dir() else self._tools.parent
        return (*tool.spec.requirements, *read_requirements_file(folder / "requirements.txt"))

    async def probe(self, read: Read) -> list[Finding]:
        """What keeps a version from being any good: import, schemas, examples, in the sandbox.

        Raises:
            InputError, EnvironmentFailed: what it requires cannot be installed.
            BackendError: the sandbox failed, not the version.
        """
        tools = [Admitted(spec, lambda: read.sources) for spec in read.reading.tools]
        async with self.environments.use(self.requirements(tools[0])) as environment:
            site = environment.site if environment else None
            return await probe(self.sandboxes, tools, site, maxima=self._maxima)

    async def build_environment(self, name: str, report: Report) -> Environment | None:
        """Install what a tool requires ahead of its first call; None if that is nothing.

        Raises:
            InputError, EnvironmentFailed: it cannot be resolved or installed.
        """
        wanted = self.requirements(self._offer.resolve(name, None))
        return await self.environments.build(wanted, report)

    async def upgrade_environment(
        self, name: str, report: Report
    ) -> tuple[Candidate | None, str | None]:
        """Newer packages for a tool, adopted if examples pass on them, else why not.

        A lock belongs to a set of requirements, so that the examples of every tool with
        the same set count.

        Raises:
            InputError, EnvironmentFailed: they cannot be resolved or installed.
        """
        tool = self._offer.resolve(name, None)
        candidate = await self.environments.upgrade(self.requirements(tool), report)
        if candidate is None or not candidate.changes:
            return candidate, None
        wanted = normalise(self.requirements(tool))
        async with self.environments.trial(candidate) as environment:
            for other in self._offer.everything():
                if normalise(self.requirements(other)) != wanted or other.function is not None:
                    continue
                complaint = await run_examples(self.sandboxes, other, environment.site)
                if complaint is not None:
                    return candidate, f"{other.spec.name}: {complaint}"
        await self.environments.adopt(candidate)
        return candidate, None

    async def close(self) -> None:
        """End what runs, then close what is open; calls in the background go on in a fleet."""
        if self.elsewhere is not None:
            self.elsewhere.detach()
        await self.tasks.close()
        await self.sandboxes.close()
        await self._inline.close()
        if self.elsewhere is not None:
            await self.elsewhere.close()

    def kill(self) -> None:
        """End all processes, from any thread: for an engine whose event loop has ended."""
        self.sandboxes.kill()
