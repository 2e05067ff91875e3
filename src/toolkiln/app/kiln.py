"""Kiln: the tools of a file or folder, and functions of this process.

Reading files and compiling schemas runs nothing of a tool's code. Calls run in the
sandbox, unless the tool is a function that was handed over as one.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from toolkiln import schema
from toolkiln.app.offer import BUILTIN_NAMES, Function, Offer, Specs, functions_by_name
from toolkiln.app.opened import Opened, part
from toolkiln.app.options import CallOptions, asking_of
from toolkiln.app.own import OWN, SessionToken
from toolkiln.app.presented import Presented
from toolkiln.app.remembered import Remembered
from toolkiln.app.searched import Searched
from toolkiln.app.tended import Tended
from toolkiln.app.usages import Usages
from toolkiln.catalog import Catalog, Change, Options, watch
from toolkiln.config import Settings, project_settings
from toolkiln.errors import InputError, NotFound
from toolkiln.model import (
    Call,
    Grant,
    Result,
    Role,
    Snapshot,
    Status,
    Task,
    ToolSpec,
    unobserved,
)

if TYPE_CHECKING:
    from toolkiln.app.changes import Changes
    from toolkiln.app.engine import Engine
    from toolkiln.app.errands import Errand
    from toolkiln.app.guarding import Guarding
    from toolkiln.app.library import Allow, Library
    from toolkiln.app.published import NoWorker
    from toolkiln.app.sources import Run, SourceCall
    from toolkiln.execution import Diagnosis, Resolve, Sessions
    from toolkiln.store import Store

PROVIDERS = schema.PROVIDERS
"""The providers that tools are compiled for."""

A = TypeVar("A")
_LONGEST_ID = 200
_log = logging.getLogger(__name__)


class Kiln(Opened, Remembered, Searched, Presented, Tended):
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
        surface: str = "python",
        resolve_host: "Resolve | None" = None,
    ) -> None:
        """Load the settings; tools are read with the first use.

        Without `settings` they come from the project's `toolkiln.toml` and from `TOOLKILN_*`
        variables, as on the command line; `settings=Settings()` means the defaults alone.
        With `dev` the files on disk are served without an admission, and marked as such.
        `functions` run in this process, without a sandbox: hand over only what you trust.
        `surface` is what the audit says that calls came through.
        `resolve_host` replaces the look-up of hosts that tools were granted.

        Raises:
            ConfigError: `toolkiln.toml` or a variable cannot be used.
            InputError: the settings name a fleet, which `Kiln.connect` is for.
        """
        super().__init__()
        self._given = tuple(functions)
        if settings is None:
            settings = project_settings(tools)
            if settings.fleet and tools is None and not self._given and not dev:
                raise InputError(
                    "the project's settings name a fleet",
                    hint='use Kiln.connect() for its tools, or name the folder: Kiln("tools")',
                )
        self.settings = replace(settings, dev=True) if dev else settings
        self.path = (
            None
            if tools is None and self._given
            else Path(tools if tools is not None else self.settings.tools)
        )
        self._surface = surface
        self._resolve_host = resolve_host

    @staticmethod
    def connect(
        url: str | None = None,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        settings: Settings | None = None,
        surface: str = "python",
    ) -> "Kiln":
        """The tools of a fleet, which its workers run; functions and pinned tools run here.

        `url` is that of the Redis that the workers use: `redis://`, `rediss://`, `unix://` or
        `redis+sentinel://`; the default is the setting `fleet`. Settings are found as for
        `Kiln(…)`. Nothing is asked of Redis yet.

        Raises:
            InputError: there is no URL, neither given nor in the settings.
            StoreError: the URL cannot be read, or the extra `toolkiln[redis]` is missing.
        """
        from toolkiln.app.connected import Connected

        settings = settings or project_settings()
        url = url or settings.fleet
        if not url:
            raise InputError(
                "there is no URL of a fleet",
                hint="pass one, or set `fleet` in toolkiln.toml or TOOLKILN_FLEET",
            )
        return Connected(url, functions=functions, settings=settings, surface=surface)

    @property
    def place(self) -> str:
        """Where the tools are, for people."""
        return str(self.path)

    @part
    def catalog(self) -> Catalog:
        """What is served from the tools' folder.

        Raises:
            NotFound: this Kiln has functions only.
        """
        if self.path is None:
            raise NotFound("there is no folder of tools", hint="hand one to Kiln(…)")
        options = Options(
            dev=self.settings.dev,
            key=self.settings.manifest_key,
            cache=self.settings.made_state() / "readings",
            reserved=BUILTIN_NAMES | self._functions.keys(),
        )
        return Catalog(self.path, lambda: self.store.archive, options)

    def watch(self, say: Callable[[str], None] = lambda _: None) -> AsyncGenerator[Change, None]:
        """What changes in the catalog while its files are edited, as long as somebody asks.

        `say` gets what a person should know about watching itself.

        Raises:
            InputError: there are only functions.
        """
        return watch(self.catalog, say)

    @part
    def changes(self) -> "Changes":
        """What changes while this serves, for any number of listeners."""
        from toolkiln.app.changes import Changes

        return Changes(lambda: self.watch(_log.warning), self.guarding.live.rules)

    @property
    def snapshot(self) -> Snapshot:
        """What is served at this moment, without functions and Toolkiln's own tools.

        Raises:
            ManifestError: nothing is served from the folder, and why.
        """
        return self._offer.snapshot

    @property
    def specs(self) -> Specs:
        """What is offered by name, whatever its role, lightest first, without Toolkiln's own.

        Raises:
            ManifestError: nothing is served from the folder, and why.
            InputError: there is no such folder.
        """
        return self._offer.specs

    @property
    def no_worker(self) -> "NoWorker | None":
        """Why a fleet has no tools; None for a folder, and once a worker has joined."""
        return None

    def tool(self, name: str) -> ToolSpec:
        """One tool, prompt or resource: of the catalog, of this process or of Toolkiln's own.

        Raises:
            UnknownTool: there is none of that name; the hint names the nearest.
            InputError: there is, but it is not admitted, or it is disabled.
        """
        return self._offer.spec(name)

    def visible(self, session: SessionToken = OWN, role: Role | None = Role.TOOL) -> Specs:
        """What of a role, or of any, the holder of a session may run, in the order of `specs`.

        Raises:
            NoSession: nobody holds it.
        """
        return self._offer.of(role, self._may_see(session))

    def is_dev(self, name: str) -> bool:
        """Whether `dev` serves a tool without an admission."""
        return self._offer.is_dev(name)

    def grant(self, name: str) -> Grant:
        """What a tool of the catalog was granted, by the settings or with its admission."""
        return self._offer.grant(name)

    @part
    def library(self) -> "Library":
        """Search, and what is written about tools."""
        from toolkiln.app.library import Library

        past = self._usages.by_tool if self._usages else dict
        return Library(self._offer, self.settings, self.path, past)

    async def tend(self, errand: "Errand[A]", session: SessionToken = OWN) -> A:
        """Do something about the tools for the holder of a session, and tell what came of it.

        Raises:
            ToolkilnError: it cannot be done, as `Caretaking.do` tells.
        """
        from toolkiln.app.caretaking import Caretaking

        return await Caretaking(self, session).do(errand)

    async def prepare_source(self, wanted: "SourceCall") -> "Run":
        """What runs a tool of a source in the sandbox, once, and tells an observer about it.

        Raises:
            NotAllowed: whoever holds the session may not write tools, or only propose them.
            InputError: the source cannot be run as it is, or has no such tool.
        """
        from toolkiln.app.sources import prepare_source

        return await prepare_source(self, wanted)

    def at_hand(self, session: SessionToken = OWN) -> list[ToolSpec]:
        """The tools to list for a model: all, or core ones and those that find the others."""
        from toolkiln.app.selection import at_hand

        return at_hand(self, session)

    def tools(
        self,
        provider: str,
        prompt: str | None = None,
        k: int = 8,
        *,
        names: Iterable[str] | None = None,
        session: SessionToken = OWN,
    ) -> list[Any]:
        """The `tools` of a provider's request: for a prompt, by name, or as `at_hand`.

        Raises:
            InputError: there is no such provider, or no such tool for the session's holder.
        """
        from toolkiln.app.selection import compiled, named

        if names is not None:
            return compiled(named(self, names, session), provider)
        specs = self.select(prompt, k, session) if prompt else self.at_hand(session)
        return compiled(specs, provider)

    async def handle(
        self, message: object, provider: str | None = None, session: SessionToken = OWN
    ) -> list[Any]:
        """Run the tool calls in what a model sent, and give the messages to answer with.

        `message` is a response, a message or a call of OpenAI's, Anthropic's or Gemini's, as
        their SDK's objects or plain dicts. `provider` is what the tools were made for, where
        that is not the strict form. There is nothing to answer if nothing was called.

        Raises:
            InputError: the message has another form. Never for what a model wrote.
        """
        from toolkiln.app.handling import handle

        return await handle(self, message, provider, session)

    def handle_sync(
        self, message: object, provider: str | None = None, session: SessionToken = OWN
    ) -> list[Any]:
        """As `handle`, from any thread without an event loop."""
        return self.run_sync(self.handle(message, provider, session))

    @overload
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal[False] = False,
        **options: Unpack[CallOptions],
    ) -> Result: ...
    @overload
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal["auto"] | bool,
        **options: Unpack[CallOptions],
    ) -> Result | Task: ...
    async def call(
        self,
        name: str,
        arguments: object = None,
        *,
        background: Literal["auto"] | bool = False,
        **options: Unpack[CallOptions],
    ) -> Result | Task:
        """Run a tool: in the sandbox, unless it is a function of this process.

        Never raises for what the tool does. To stop a call, cancel the task that awaits it.
        `CallOptions` says what else can be given. With `background="auto"` a call that takes
        longer than ten seconds (or `wait_seconds`), or waits for a person, goes on as a Task;
        with True it is one from the start.
        """
        call_id = options.get("call_id")
        if call_id is not None and len(call_id) > _LONGEST_ID:
            raise InputError(f"the id of a call has at most {_LONGEST_ID} characters")
        call = Call(
            tool=name,
            arguments=arguments,
            session=self.guarding.token(options.get("session", OWN)),
            surface=options.get("surface", self._surface),
            digest=options.get("digest"),
            timeout=options.get("timeout"),
        )
        if call_id is not None:
            call = call.model_copy(update={"id": call_id, "remember": True})
        observe, prompt = options.get("observe", unobserved), options.get("prompt")
        lasting = options.get("lasting", False) and call.remember
        asking = asking_of(options)
        result = await self.engine.call(
            call,
            observe,
            background,
            lasting=lasting,
            asking=asking,
            wait_seconds=options.get("wait_seconds"),
        )
        if isinstance(result, Result) and "called" in options:
            result = await self.engine.told(result, call.session, options["called"])
        if prompt and isinstance(result, Result) and result.status is Status.OK:
            from asyncio import to_thread

            await to_thread(self.learn, name, prompt)
        return result

    def learn(self, tool: str, prompt: str) -> None:
        """Remember that a tool answered a prompt; does nothing unless `learn_usages` is set."""
        if self._usages is not None and tool in self._offer.snapshot.tools:
            self._usages.add(tool, prompt)
            self.library.forget(tool)

    async def call_many(self, calls: Sequence[Call], session: SessionToken = OWN) -> list[Result]:
        """Run calls in order, neighbours that are parallel-safe together, the others alone.

        Those that name no session run for the holder of this one.
        """
        known = {"session": self.guarding.token(session), "surface": self._surface}
        made = [c if c.session is not None else c.model_copy(update=known) for c in calls]
        return await self.engine.gateway.call_many(made)

    def call_sync(self, name: str, arguments: object = None, **options: Any) -> Any:
        """As `call`, from any thread without an event loop; the same options.

        `observe` and `ask` are called in another thread.
        """
        return self.run_sync(self.call(name, arguments, **options))

    async def doctor(self) -> "Diagnosis":
        """Every mode of the sandbox, tried out on this machine."""
        return await self.engine.sandboxes.diagnose()

    def _new_engine(self) -> "Engine":
        from toolkiln.app.engine import Engine

        return Engine(
            self._offer,
            self.settings,
            self.path,
            self._resolve_host,
            self.guarding.guard,
            self.guarding.call_book,
        )

    @part
    def guarding(self) -> "Guarding":
        """Who may run what: sessions, keys, approvals, secrets, settings of tools, the audit."""
        from toolkiln.app.guarding import Guarding

        return Guarding(self.settings, lambda: self.store, self.tool, self._surface)

    @property
    def sessions(self) -> "Sessions":
        """On whose behalf calls run; for the trusted side, which has authenticated them."""
        return self.guarding.sessions

    @part
    def store(self) -> "Store":
        """Where results, outputs and versions are kept; opened with the first use."""
        from toolkiln.store import open_store

        return open_store(self.settings.store or self.settings.made_state() / "store.db")

    async def close(self) -> None:
        """End everything that calls started, in all threads, and watching; see `close_sync`."""
        if "changes" in self.__dict__:
            await self.changes.stop()
        await super().close()

    def let_go(self) -> None:
        """Close what needs no event loop for that."""
        if "changes" in self.__dict__:
            self.changes.cancel()
        for name in ("guarding", "store"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    def _may_see(self, session: SessionToken) -> "Allow | None":
        """What the holder of a session is shown; None if that is everything."""
        if session is OWN and self._now.policy == "allow" and not self._now.rules:
            return None
        return self.guarding.may_see(session)

    @part
    def _usages(self) -> Usages | None:
        if not self.settings.learn_usages or self.path is None:
            return None
        return Usages(self.catalog, lambda: self.store)

    @part
    def _functions(self) -> dict[str, Function]:
        return functions_by_name(self._given)

    @part
    def _offer(self) -> Offer:
        def home() -> object:
            from toolkiln.app.builtin import Builtin

            return Builtin(self)

        catalog = None if self.path is None else self.catalog
        return Offer(catalog, self._functions, lambda: self._now.grants, home)

    @property
    def _now(self) -> Settings:
        """The settings of this moment, where something already follows their file."""
        known: Guarding | None = self.__dict__.get("guarding")
        return known.live.current() if known else self.settings
