"""Kiln: the tools of a file, a folder, a fleet or this process, ready to be called.

A façade: the parts are in `Services`. Reading files and compiling schemas runs none of a
tool's code. Calls run in the sandbox, unless the tool is a function passed to the Kiln.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from toolkiln.config import Settings, project_settings
from toolkiln.errors import InputError
from toolkiln.model.call import Call, Result, Task
from toolkiln.model.search import SearchResult
from toolkiln.model.spec import Role, ToolSpec
from toolkiln.operations.services import Services, SqlStores
from toolkiln.schema.providers import PROVIDERS as PROVIDERS
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from toolkiln.catalog.catalog import Catalog
    from toolkiln.catalog.registry import Specs
    from toolkiln.operations.calls import Tasks
    from toolkiln.operations.engine import CallEngine, CallOptions
    from toolkiln.operations.library import Library
    from toolkiln.operations.operation import Operation, Report
    from toolkiln.operations.services import CallStores, FleetAdmin
    from toolkiln.sandbox.network.proxy import Resolve
    from toolkiln.security.security import Security

I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output
_MOVED = {
    "guarding": "security",
    "sessions": "security.sessions",
    "admissions": "services.admissions",
    "check_task": "tasks.get",
    "await_task": "tasks.wait",
    "cancel_task": "tasks.cancel",
    "read_output": "tasks.read_output",
    "visible": "specs",
    "author": "run_operation(operations.tool_files.write_file, …)",
    "tend": "run_operation",
    "watch": "services.watch",
    "search_docs": "library.search_docs",
    "deferring": "tools(…, defer=True)",
    "snapshot": "catalog.snapshot",
    "health": "schema.health",
    "compiled": "schema.compile_tool",
    "check_arguments": "schema.check",
}
"""Names of earlier releases, and where they are."""


class Kiln:
    """The tools of a file or folder, and functions of this process, ready to be called.

        async with Kiln("tools") as kiln:
            result = await kiln.call("convert", {"amount": 10, "to": "EUR"})

    Programs without an event loop write `with Kiln("tools") as kiln` and `kiln.call_sync`.
    """

    services: Services
    """The parts, for surfaces and operations."""

    def __init__(
        self,
        tools: str | Path | None = None,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        settings: Settings | None = None,
        dev: bool = False,
        surface: str = "python",
        resolve_host: "Resolve | None" = None,
    ) -> None:
        """Load the settings; tools are read on first use.

        Without `settings` they come from the project's `toolkiln.toml` and from `TOOLKILN_*`
        variables, as on the command line; `settings=Settings()` means the defaults alone.
        With `dev` the files on disk are served without an admission, and marked as such.
        `functions` run in this process, without a sandbox: pass only what you trust.
        `surface` is the origin of calls in the audit log.
        `resolve_host` replaces the look-up of hosts that tools were granted.

        Raises:
            ConfigError: `toolkiln.toml` or a variable cannot be used.
            InputError: the settings name a fleet, which `Kiln.connect` is for.
        """
        functions = tuple(functions)
        if settings is None:
            settings = project_settings(tools)
            if settings.fleet and tools is None and not functions and not dev:
                raise InputError(
                    "the project's settings name a fleet",
                    hint='use Kiln.connect() for its tools, or name the folder: Kiln("tools")',
                )
        if dev:
            settings = replace(settings, dev=True)
        path = None
        if tools is not None or not functions:
            path = Path(tools if tools is not None else settings.tools)
        self.services = Services(
            settings,
            path,
            functions=functions,
            surface=surface,
            stores=_stores,
            open_fleet=_open_fleet,
            resolve_host=resolve_host,
        )

    @staticmethod
    def connect(
        url: str | None = None,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        settings: Settings | None = None,
        surface: str = "python",
    ) -> "Kiln":
        """Return a Kiln with the tools of a fleet; functions and pinned tools run here.

        `url` is that of the Redis that the workers use: `redis://`, `rediss://`, `unix://` or
        `redis+sentinel://`; the default is the setting `fleet`. Settings are found as for
        `Kiln(…)`. Redis is not contacted yet.

        Raises:
            InputError: there is no URL, neither given nor in the settings.
            StoreError: the URL cannot be read, or the extra `toolkiln[redis]` is missing.
        """
        from toolkiln.fleet.front import FleetServices

        settings = settings or project_settings()
        url = url or settings.fleet
        if not url:
            raise InputError(
                "there is no URL of a fleet",
                hint="pass one, or set `fleet` in toolkiln.toml or TOOLKILN_FLEET",
            )
        kiln = Kiln.__new__(Kiln)
        kiln.services = FleetServices(url, settings, functions=functions, surface=surface)
        return kiln

    @property
    def settings(self) -> Settings:
        """The settings that it was opened with."""
        return self.services.settings

    @property
    def catalog(self) -> "Catalog":
        """The tools of the folder, with manifest and history.

        Raises:
            InputError: there is no folder.
        """
        return self.services.catalog

    @property
    def library(self) -> "Library":
        """Search and pages of tools."""
        return self.services.library

    @property
    def security(self) -> "Security":
        """Sessions, keys, rules, approvals, secrets, settings of tools, and the audit log."""
        return self.services.security

    @property
    def engine(self) -> "CallEngine":
        """What runs calls in this event loop: gateway, sandbox, environments, tasks."""
        return self.services.engine

    @property
    def tasks(self) -> "Tasks":
        """Calls in the background, and truncated outputs."""
        return self.services.tasks

    def tool(self, name: str) -> ToolSpec:
        """Return a tool, prompt or resource, built-in ones included.

        Raises:
            UnknownTool: there is none of that name; the hint names the nearest.
            InputError: it is not admitted, or disabled.
        """
        return self.services.registry.spec(name)

    def specs(
        self, session: SessionToken = LOCAL_OPERATOR, role: Role | None = Role.TOOL
    ) -> "Specs":
        """Return the tools of a role, or of any, that a caller may run, by weight and name.

        Raises:
            NoSession: the session is unknown or has ended.
            ManifestError: the folder's manifest is missing or cannot be trusted.
        """
        return self.services.visible(session, role)

    def search(
        self, query: str, k: int = 5, session: SessionToken = LOCAL_OPERATOR
    ) -> SearchResult:
        """Return the k tools that match a query best, among those that the caller may run."""
        return self.library.search(query, k, self.services.may_see(session))

    def select(
        self, prompt: str, k: int = 10, session: SessionToken = LOCAL_OPERATOR
    ) -> list[ToolSpec]:
        """Return k tools for a model's context: core ones always, then by relevance."""
        return self.library.select(prompt, k, self.services.may_see(session))

    def tools(
        self,
        provider: str,
        prompt: str | None = None,
        k: int = 8,
        *,
        names: Iterable[str] | None = None,
        defer: bool = False,
        session: SessionToken = LOCAL_OPERATOR,
    ) -> list[Any]:
        """Return the `tools` of a provider's request: for a prompt, by name, or all.

        Of a large catalog, without a prompt, these are the core tools and those that find the
        others. With `defer` all tools are sent, and the provider loads those that are not
        among the `k` best when the model asks for them.

        Raises:
            InputError: there is no such provider, no such tool for the caller, or the provider
                cannot defer tools.
        """
        from toolkiln.operations.library import compiled, listed_tools, named

        if defer:
            allow = self.services.may_see(session)
            return self.library.deferring(provider, prompt or "", k, allow)
        if names is not None:
            return compiled(named(self.services, names, session), provider)
        if prompt:
            return compiled(self.select(prompt, k, session), provider)
        return compiled(listed_tools(self.services, session), provider)

    async def handle(
        self,
        message: object,
        provider: str | None = None,
        session: SessionToken = LOCAL_OPERATOR,
        tools: list[Any] | None = None,
        request: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Run the tool calls in a model's message, and return the messages to reply with.

        `message` is a response, a message or a call of OpenAI, Anthropic or Gemini, as objects
        of their SDK or plain dicts. `provider` is what the tools were compiled for, unless that
        is the strict form. Without calls there is nothing to reply. `tools` is the list that the
        requests send: tools that a call injects are added to it, for the next turn. `request`
        is what the caller says about the calls, as `ctx.request`; nothing verifies it.

        Raises:
            InputError: the message has another form. Never for what a model wrote.
        """
        from toolkiln.operations.calls import handle_message

        return await handle_message(self.services, message, provider, session, tools, request)

    def handle_sync(
        self,
        message: object,
        provider: str | None = None,
        session: SessionToken = LOCAL_OPERATOR,
        tools: list[Any] | None = None,
        request: dict[str, Any] | None = None,
    ) -> list[Any]:
        """As `handle`, from any thread without an event loop."""
        return self.services.wait(self.handle(message, provider, session, tools, request))

    @overload
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal[False] = False,
        **options: "Unpack[CallOptions]",
    ) -> Result: ...
    @overload
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal["auto"] | bool,
        **options: "Unpack[CallOptions]",
    ) -> Result | Task: ...
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal["auto"] | bool = False,
        **options: "Unpack[CallOptions]",
    ) -> Result | Task:
        """Run a tool: in the sandbox, unless it is a function of this process.

        Never raises for what the tool does. To stop a call, cancel the task that awaits it.
        `CallOptions` lists the other options. With `background="auto"` a call that takes longer
        than ten seconds (or `wait_seconds`), or waits for a person, continues as a Task; with
        True it is one from the start.
        """
        return await self.services.call(name, arguments, background, options)

    def call_sync(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal["auto"] | bool = False,
        **options: "Unpack[CallOptions]",
    ) -> Any:
        """As `call`, from any thread without an event loop; the same options.

        `observe` and `ask` are called in another thread.
        """
        return self.services.wait(self.services.call(name, arguments, background, options))

    async def call_many(
        self, calls: Sequence[Call], session: SessionToken = LOCAL_OPERATOR
    ) -> list[Result]:
        """Run calls in order; adjacent calls of parallel-safe tools run together.

        Calls without a session run for the caller of this one.
        """
        update = {"session": self.security.token(session), "surface": self.services.surface}
        ready = [c if c.session is not None else c.model_copy(update=update) for c in calls]
        return await self.engine.gateway.call_many(ready)

    async def run_operation(
        self, operation: "Operation[I, O]", request: I, session: SessionToken = LOCAL_OPERATOR
    ) -> O:
        """Run an administrative operation for a caller.

        Raises:
            NotAllowed: the caller lacks the privilege; the audit log has a record.
            ToolkilnError: it failed.
        """
        return await self.services.run(operation, request, session)

    def run_operation_sync(
        self,
        operation: "Operation[I, O]",
        request: I,
        session: SessionToken = LOCAL_OPERATOR,
        report: "Report | None" = None,
    ) -> O:
        """As `run_operation`, from any thread without an event loop; `report` gets progress."""
        return self.services.run_sync(operation, request, session, report)

    async def close(self) -> None:
        """End everything that calls started, in all threads, and watching."""
        await self.services.close()

    def close_sync(self) -> None:
        """As `close`, from a thread without an event loop.

        Calls of other threads that still run end with an error.
        """
        self.services.engines.close_sync()

    async def __aenter__(self) -> Self:
        await self.services.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    if not TYPE_CHECKING:  # a type checker reports unknown names itself

        def __getattr__(self, name: str) -> Any:
            place = f"; use `kiln.{_MOVED[name]}`" if name in _MOVED else ""
            raise AttributeError(f"Kiln has no attribute {name!r}{place}")


def _stores(services: Services) -> "CallStores":
    settings = services.settings
    if not settings.redis:
        return SqlStores(lambda: services.store)
    from toolkiln.fleet.security_stores import RedisStores

    return RedisStores(settings.redis, lambda: services.store, settings.worker_keys)


def _open_fleet(url: str) -> "AbstractAsyncContextManager[FleetAdmin]":
    from toolkiln.fleet.admin import open_fleet_admin

    return open_fleet_admin(url)
