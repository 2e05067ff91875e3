"""Kiln: the tools of a file or folder, and functions of this process.

Reading files and compiling schemas runs nothing of a tool's code. Calls run in the
sandbox, unless the tool is a function that was handed over as one.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from toolkiln import schema
from toolkiln.app.offer import BUILTIN_NAMES, Function, Offer, functions_by_name
from toolkiln.catalog import Admissions, Catalog, Change, Options, utc_now, watch
from toolkiln.config import Settings
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import (
    Answer,
    Call,
    Caller,
    Event,
    Grant,
    Health,
    Result,
    Status,
    Task,
    ToolSpec,
)

if TYPE_CHECKING:
    import asyncio

    from toolkiln.app.authoring import Authored, Authoring, Draft
    from toolkiln.app.engine import Engine
    from toolkiln.app.library import Allow, Library
    from toolkiln.execution import (
        Candidate,
        Diagnosis,
        Environment,
        Report,
        Resolve,
    )
    from toolkiln.store import OutputPage, Store

PROVIDERS = schema.PROVIDERS
"""The providers that tools are compiled for."""

T = TypeVar("T")
_NOBODY = Caller()
_LONGEST_ID = 200
_LONGEST_PROMPT = 2000


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
        dev: bool = False,
        resolve_host: "Resolve | None" = None,
    ) -> None:
        """Nothing is read or started yet.

        With `dev` the files on disk are served without anybody admitting them.
        `functions` run in this process, without a sandbox: hand over only what you trust.
        `resolve_host` replaces the look-up of hosts that tools were granted.
        """
        settings = settings or Settings()
        self.settings = replace(settings, dev=True) if dev else settings
        self._given = tuple(functions)
        self.path = (
            None
            if tools is None and self._given
            else Path(tools if tools is not None else self.settings.tools)
        )
        self._resolve_host = resolve_host
        self._runner: asyncio.Runner | None = None

    @cached_property
    def catalog(self) -> Catalog:
        """What is served from the tools' folder.

        Raises:
            InputError: this Kiln has functions only.
        """
        if self.path is None:
            raise InputError("there is no folder of tools", hint="hand one to Kiln(…)")
        options = Options(
            dev=self.settings.dev,
            key=self.settings.manifest_key,
            cache=self.settings.state.absolute() / "readings",
            reserved=BUILTIN_NAMES | self._functions.keys(),
        )
        return Catalog(self.path, lambda: self.store.archive, options)

    @cached_property
    def admissions(self) -> Admissions:
        """What people decide about files, and what became of it."""
        return Admissions(self.catalog)

    def watch(self, say: Callable[[str], None] = lambda _: None) -> AsyncGenerator[Change, None]:
        """What changes in the catalog while its files are edited, as long as somebody asks.

        `say` gets what a person should know about watching itself.

        Raises:
            InputError: there are only functions.
        """
        return watch(self.catalog, say)

    @property
    def tools(self) -> dict[str, ToolSpec]:
        """The tools by name, lightest first, without Toolkiln's own.

        Raises:
            ManifestError: nothing is served from the folder, and why.
            InputError: there is no such folder.
        """
        return self._offer.tools

    def tool(self, name: str) -> ToolSpec:
        """One tool, of the catalog, of this process or of those that come with Toolkiln.

        Raises:
            UnknownTool: there is none of that name; the hint names the nearest.
            InputError: there is, but it is not admitted, or it is disabled.
        """
        return self._offer.spec(name)

    def grant(self, name: str) -> Grant:
        """What a tool of the catalog was granted, by the settings or with its admission."""
        return self._offer.grant(name)

    def preview(self) -> dict[str, ToolSpec]:
        """What would be served if every file were admitted as it is on disk.

        Raises:
            InputError: there is no such folder, or no Python file in it.
        """
        reads = self.catalog.disk.everything().values()
        return {spec.name: spec for read in reads for spec in read.reading.tools}

    def search(self, query: str, k: int = 5, allow: "Allow | None" = None) -> Answer:
        """The k tools that fit a query best, among those that `allow` says yes to."""
        return self.library.search(query, k, allow)

    def select(self, prompt: str, k: int = 10, allow: "Allow | None" = None) -> list[ToolSpec]:
        """The tools for a model's context: core ones always, then by relevance, k in all."""
        return self.library.select(prompt, k, allow)

    @cached_property
    def library(self) -> "Library":
        """Search, and what is written about tools."""
        from toolkiln.app.library import Library

        return Library(self._offer, self.settings, self.path, self._usages)

    @cached_property
    def authoring(self) -> "Authoring":
        """The way of new versions into the catalog."""
        from toolkiln.app.authoring import Authoring

        async def index() -> str | None:
            from asyncio import to_thread

            return await to_thread(self.library.refresh)

        return Authoring(self.catalog, frozenset(self.settings.refuse), self.engine.probe, index)

    async def author(self, draft: "Draft", caller: Caller = _NOBODY) -> "Authored":
        """Write a tool on behalf of somebody, as far as the setting `authoring` lets them."""
        from toolkiln.app.authoring import Authored
        from toolkiln.execution import authoring_refusal

        policy = self.settings.authoring
        if refusal := authoring_refusal(caller, policy):
            return Authored(success=False, error=f"{refusal.message}: {refusal.hint}")
        by = caller.user_id or caller.agent_id or "an agent"
        return await self.authoring.write(draft, by, propose=policy == "propose")

    def health(self, name: str) -> Health:
        """Whether models can be held to a tool's schema."""
        return schema.health(self.tool(name).parameters)

    def compiled(self, tool: str | ToolSpec, provider: str) -> schema.Compiled:
        """A tool as one provider wants it, with what was lost on the way."""
        return schema.compile_tool(self.tool(tool) if isinstance(tool, str) else tool, provider)

    def deferring(self, provider: str, prompt: str = "", k: int = 5) -> list[dict[str, Any]]:
        """All tools for one request: the k that fit the prompt at hand, the others deferred.

        What a model sends for one of them is decoded as `compiled` does.

        Raises:
            InputError: the provider has no deferred loading.
        """
        return self.library.deferring(provider, prompt, k)

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
        prompt: str | None = None,
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
        prompt: str | None = None,
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
        prompt: str | None = None,
        background: Literal["auto"] | bool = False,
        observe: Callable[[Event], None] = _unobserved,
    ) -> Result | Task:
        """Run a tool: in the sandbox, unless it is a function of this process.

        Never raises for what the tool does. To stop a call, cancel the task that awaits it.

        Args:
            call_id: Makes the call run once: repeating it gives the first Result.
            digest: The version that must run; another one is refused.
            timeout: Seconds to wait at most; the tool's own limit holds too.
            prompt: What the tool is to answer; search learns from it, if the operator agreed.
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
        result = await self.engine.gateway.call(call, observe)
        if prompt and result.status is Status.OK:
            from asyncio import to_thread

            await to_thread(self.learn, name, prompt)
        return result

    def learn(self, tool: str, prompt: str) -> None:
        """Remember that a tool answered a prompt; does nothing unless `learn_usages` is set."""
        if not self.settings.learn_usages or tool not in self._offer.snapshot.tools:
            return
        with suppress(ToolkilnError):  # the tool has answered, and that counts for more
            catalog, said = self.catalog.manifest.catalog, prompt[:_LONGEST_PROMPT]
            self.store.archive.add_usage(catalog, tool, said, utc_now())
            self.library.forget(tool)

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
        wanted = self.engine.requirements(self._offer.resolve(name, None))
        return await self.engine.environments.build(wanted, report)

    async def upgrade_environment(
        self, name: str, report: "Report"
    ) -> "tuple[Candidate | None, str | None]":
        """Newer packages for a tool, adopted if its examples pass on them, else why not."""
        return await self.engine.upgrade(self._offer.resolve(name, None), report)

    async def doctor(self) -> "Diagnosis":
        """Every mode of the sandbox, tried out on this machine."""
        return await self.engine.sandboxes.diagnose()

    @cached_property
    def engine(self) -> "Engine":
        """What calls need: environments, workspaces, the sandbox; made with the first use."""
        from toolkiln.app.engine import Engine

        return Engine(
            self._offer.resolve,
            self._offer.everything,
            self.settings,
            self.path,
            self._resolve_host,
            lambda: self.store,
        )

    @cached_property
    def store(self) -> "Store":
        """Where results, outputs and versions are kept; opened with the first use."""
        from toolkiln.store import open_store

        return open_store(self.settings.store or self.settings.state.absolute() / "store.db")

    async def close(self) -> None:
        """End everything that calls started."""
        if "engine" in self.__dict__:
            await self.engine.close()
            del self.__dict__["engine"]
        if "store" in self.__dict__:
            self.store.close()
            del self.__dict__["store"]

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

    def _usages(self) -> Mapping[str, Sequence[str]]:
        if not self.settings.learn_usages or self.path is None:
            return {}
        with suppress(ToolkilnError):  # search is as good as it can be without the store
            return self.store.archive.usages(self.catalog.manifest.catalog)
        return {}

    @cached_property
    def _functions(self) -> dict[str, Function]:
        return functions_by_name(self._given)

    @cached_property
    def _offer(self) -> Offer:
        def home() -> object:
            from toolkiln.app.builtin import Builtin

            return Builtin(self)

        catalog = None if self.path is None else self.catalog
        return Offer(catalog, self._functions, self.settings.grants, home)
