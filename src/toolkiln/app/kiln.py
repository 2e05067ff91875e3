"""Kiln: the tools of a file or folder, and functions of this process.

Reading files and compiling schemas runs nothing of a tool's code. Calls run in the
sandbox, unless the tool is a function that was handed over as one.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from toolkiln import schema
from toolkiln.catalog import read_file, sources, tool_files
from toolkiln.config import Settings
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import (
    Call,
    Caller,
    Dialect,
    Event,
    Grant,
    Health,
    Reading,
    Result,
    Task,
    ToolSpec,
)

if TYPE_CHECKING:
    import asyncio

    from toolkiln.app.engine import Engine
    from toolkiln.execution import (
        Admitted,
        Candidate,
        Diagnosis,
        Environment,
        Report,
        Resolve,
    )
    from toolkiln.store import OutputPage

PROVIDERS = schema.PROVIDERS
"""The providers that tools are compiled for."""

T = TypeVar("T")
_NOBODY = Caller()
_LONGEST_ID = 200


def _unobserved(event: Event) -> None:
    pass


class Kiln:
    """The tools of a file or folder, and functions of this process, ready to be called.

        async with Kiln("tools") as kiln:
            result = await kiln.call("convert", {"amount": 10, "to": "EUR"})

    Programs without an event loop write `with Kiln("tools") as kiln` and `kiln.call_sync`.
    """

    def __init__(
        self,
        tools: str | Path | None = None,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        settings: Settings | None = None,
        resolve_host: "Resolve | None" = None,
    ) -> None:
        """Nothing is read or started yet.

        `functions` run in this process, without a sandbox: hand over only what you trust.
        `resolve_host` replaces the look-up of hosts that tools were granted.
        """
        self.settings = settings or Settings()
        self._functions = tuple(functions)
        self.path = (
            None
            if tools is None and self._functions
            else Path(tools if tools is not None else self.settings.tools)
        )
        self._resolve_host = resolve_host
        self._runner: asyncio.Runner | None = None

    @cached_property
    def readings(self) -> list[Reading]:
        """What each tool file says.

        Raises:
            InputError: the path does not exist or holds no Python files.
        """
        if self.path is None:
            return []
        readings = [read_file(file) for file in tool_files([self.path])]
        used = {Path(r.path): {Path(r.path).parent / name for name in r.helpers} for r in readings}
        # Of two files that import each other neither is just the other's helper.
        helpers = {h for file, own in used.items() for h in own if file not in used.get(h, ())}
        return [r for r in readings if Path(r.path) not in helpers or _is_marked(r)]

    @cached_property
    def tools(self) -> dict[str, ToolSpec]:
        """The tools by name, lightest first; of two with one name the first file's.

        Raises:
            InputError: there is no tool.
        """
        found = {spec.name: spec for spec in self._function_specs.values()}
        for reading in self.readings:
            for spec in reading.tools:
                found.setdefault(spec.name, spec)
        if not found:
            raise InputError(
                f"there is no tool in {self.path}",
                hint=f"run `toolkiln check {self.path}` to see why, or `toolkiln new NAME`",
            )
        return {spec.name: spec for spec in sorted(found.values(), key=_order)}

    def tool(self, name: str) -> ToolSpec:
        """One tool, of the files or of those that come with Toolkiln.

        Raises:
            UnknownTool: there is none of that name; the hint names the nearest.
        """
        spec = self.tools.get(name) or self._builtin_specs.get(name)
        if spec is None:
            raise UnknownTool(name, [*self.tools, *self._builtin_specs])
        return spec

    def health(self, name: str) -> Health:
        """Whether models can be held to a tool's schema."""
        return schema.health(self.tool(name).parameters)

    def compiled(self, name: str, provider: str) -> schema.Compiled:
        """A tool as one provider wants it, with what was lost on the way."""
        return schema.compile_tool(self.tool(name), provider)

    def check_arguments(self, name: str, arguments: object) -> schema.Checked | schema.Problems:
        """Whether these arguments may be passed to a tool, all problems at once."""
        return schema.check(self.tool(name), arguments)

    @overload
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        call_id: str | None = None,
        caller: Caller = _NOBODY,
        digest: str | None = None,
        timeout: float | None = None,
        background: Literal[False] = False,
        observe: Callable[[Event], None] = _unobserved,
    ) -> Result: ...
    @overload
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        call_id: str | None = None,
        caller: Caller = _NOBODY,
        digest: str | None = None,
        timeout: float | None = None,
        background: Literal["auto", True],
        observe: Callable[[Event], None] = _unobserved,
    ) -> Result | Task: ...
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        call_id: str | None = None,
        caller: Caller = _NOBODY,
        digest: str | None = None,
        timeout: float | None = None,
        background: Literal["auto"] | bool = False,
        observe: Callable[[Event], None] = _unobserved,
    ) -> Result | Task:
        """Run a tool: in the sandbox, unless it is a function of this process.

        Never raises for what the tool does. To stop a call, cancel the task that awaits it.

        Args:
            call_id: Makes the call run once: repeating it gives the first Result.
            digest: The version that must run; another one is refused.
            timeout: Seconds to wait at most; the tool's own limit holds too.
            background: With "auto" a call that takes longer than ten seconds goes on as a
                Task; with True it is one from the start.
            observe: Gets progress, log lines and output while the call runs.
        """
        call = Call(tool=name, arguments=arguments, caller=caller, digest=digest, timeout=timeout)
        if call_id is not None:
            if len(call_id) > _LONGEST_ID:
                raise InputError(f"the id of a call has at most {_LONGEST_ID} characters")
            call = call.model_copy(update={"id": call_id, "remember": True})
        if background:
            return await self.engine.tasks.call(call, observe, background)
        return await self.engine.gateway.call(call, observe)

    async def call_many(self, calls: Sequence[Call]) -> list[Result]:
        """Run calls in order, neighbours that are parallel-safe together, the others alone."""
        return await self.engine.gateway.call_many(calls)

    def call_sync(self, name: str, arguments: object = None, **options: Any) -> Any:
        """As `call`, for programs without an event loop; the same options."""
        return self.run_sync(self.call(name, arguments, **options))

    async def check_task(self, task_id: str, caller: Caller = _NOBODY) -> Task:
        """How a call in the background stands.

        Raises:
            InputError: there is none of this id.
        """
        return await self.engine.memory.task(caller, task_id)

    async def await_task(
        self, task_id: str, caller: Caller = _NOBODY, *, timeout: float | None = None
    ) -> Task:
        """The task when it has ended, or as it is when the time is up."""
        return await self.engine.memory.finished(caller, task_id, timeout)

    async def cancel_task(self, task_id: str, caller: Caller = _NOBODY) -> Task:
        """Stop a call in the background."""
        return await self.engine.tasks.cancel(caller, task_id)

    async def tasks(self, caller: Caller = _NOBODY) -> list[Task]:
        """The calls that are remembered for a caller, newest first."""
        return await self.engine.memory.tasks(caller)

    async def read_output(
        self, handle: str, caller: Caller = _NOBODY, *, offset: int = 0, limit: int = 20_000
    ) -> "OutputPage":
        """A page of an output that was cut.

        Raises:
            InputError: there is none under this handle.
        """
        return await self.engine.memory.read_output(caller, handle, offset, limit)

    async def build_environment(self, name: str, report: "Report") -> "Environment | None":
        """Install what a tool requires ahead of its first call; None if that is nothing.

        Raises:
            InputError, EnvironmentFailed: it cannot be resolved or installed.
        """
        wanted = self.engine.requirements(self._admitted(name, None))
        return await self.engine.environments.build(wanted, report)

    async def upgrade_environment(
        self, name: str, report: "Report"
    ) -> "tuple[Candidate | None, str | None]":
        """Newer packages for a tool, adopted if its examples pass on them, else why not."""
        return await self.engine.upgrade(self._admitted(name, None), report)

    async def doctor(self) -> "Diagnosis":
        """Every mode of the sandbox, tried out on this machine."""
        return await self.engine.sandboxes.diagnose()

    @cached_property
    def engine(self) -> "Engine":
        """What calls need: environments, workspaces, the sandbox; made with the first use."""
        from toolkiln.app.engine import Engine

        return Engine(
            self._admitted,
            self._everything,
            self.settings,
            self.path,
            self._resolve_host,
        )

    async def close(self) -> None:
        """End everything that calls started."""
        if "engine" in self.__dict__:
            await self.engine.close()
            del self.__dict__["engine"]

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something of this Kiln to its end, in a program without an event loop."""
        if self._runner is None:
            from asyncio import Runner  # reading and listing tools needs no event loop

            self._runner = Runner()
        return self._runner.run(work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is not None:
            self._runner.run(self.close())
            self._runner.close()
            self._runner = None

    @cached_property
    def _function_specs(self) -> dict[int, ToolSpec]:
        return {number: _spec_of(f) for number, f in enumerate(self._functions)}

    @cached_property
    def _builtin_specs(self) -> dict[str, ToolSpec]:
        reading = read_file(Path(__file__).with_name("builtin.py"))
        return {spec.name: spec for spec in reading.tools}

    @cached_property
    def _known(self) -> "dict[str, Admitted]":
        from toolkiln.app.builtin import Builtin
        from toolkiln.execution import Admitted

        home = Builtin(self)
        known = {
            name: Admitted(spec, dict, function=getattr(home, name))
            for name, spec in self._builtin_specs.items()
        }
        for reading in reversed(self.readings):
            for spec in reversed(reading.tools):
                known[spec.name] = Admitted(
                    spec, partial(sources, reading), _grant(self.settings, spec.name)
                )
        for number, spec in self._function_specs.items():
            known[spec.name] = Admitted(spec, dict, function=self._functions[number])
        return known

    def _everything(self) -> "Iterable[Admitted]":
        return self._known.values()

    def _admitted(self, name: str, digest: str | None) -> "Admitted":
        found = self._known.get(name)
        if found is None:
            raise UnknownTool(name, [*self.tools, *self._builtin_specs])
        if digest is not None and digest != found.spec.digest:
            raise InputError(
                f"{name} is no longer at version {digest[:12]}",
                hint=f"the current version is {found.spec.digest}",
            )
        return found


def _spec_of(function: Callable[..., Any]) -> ToolSpec:
    """The spec of a function of this process, from the source that it was written in."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    reading = read_file(Path(file)) if file else None
    for spec in reading.tools if reading else ():
        if spec.entry == name:
            return spec
    raise InputError(
        f"{name} is not a tool by its source",
        hint="hand over a public function of a file's top level, with a docstring",
    )


def _grant(settings: Settings, name: str) -> Grant:
    """What an operator allows a tool: its own entry, or the one for all."""
    given = settings.grants.get(name, settings.grants.get("*", {}))
    return Grant.model_validate(dict(given))


def _is_marked(reading: Reading) -> bool:
    """Whether a helper of other files declares tools of its own on purpose."""
    return any(spec.dialect is not Dialect.FUNCTION for spec in reading.tools)


def _order(spec: ToolSpec) -> tuple[int, str]:
    return spec.weight, spec.name
