"""Services: the parts of one Kiln, which operations and surfaces use.

Each part is created on first use, so that listing tools loads neither the sandbox nor the
store. This class serves a folder; `fleet.front` has the services of a Kiln in front of a
fleet. Nothing here decides who may do what: that is for `operation` and `security`.
"""

import logging
import os
import threading
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from weakref import WeakSet

from toolkiln.catalog.admission import Admissions
from toolkiln.catalog.catalog import Catalog, CatalogOptions
from toolkiln.catalog.registry import Function, Specs, ToolRegistry, functions_by_name
from toolkiln.config import Settings
from toolkiln.errors import InputError, NotFound
from toolkiln.model.call import Call, Result, Status, Task
from toolkiln.model.catalog import CatalogChange, FileVersion
from toolkiln.model.identity import Caller
from toolkiln.model.source import Finding
from toolkiln.model.spec import BUILTIN_NAMES, Role, ToolSpec
from toolkiln.model.system import DeadLetter, FleetReport, WorkerStatus
from toolkiln.operations.engines import CallEngines
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken

if TYPE_CHECKING:
    from toolkiln.catalog.admission_pipeline import AdmissionPipeline, ReadingPool
    from toolkiln.catalog.watch import Changes
    from toolkiln.errors import ToolkilnError
    from toolkiln.execution.idempotency import CallStore
    from toolkiln.execution.run_log import RunLog
    from toolkiln.operations.calls import Tasks
    from toolkiln.operations.engine import CallEngine, CallOptions
    from toolkiln.operations.library import Allow, Library, Usages
    from toolkiln.operations.operation import Operation, Report
    from toolkiln.operations.runs import History
    from toolkiln.operations.sources import PreparedRun, SourceCall
    from toolkiln.sandbox.network.proxy import Resolve
    from toolkiln.security.approvals import ApprovalStore, PendingApprovals
    from toolkiln.security.guard import RateStore
    from toolkiln.security.security import Security, StateStores
    from toolkiln.security.sessions import SessionStore
    from toolkiln.store.store import Store

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output
_MOST_DERIVED = 50_000
_LONGEST_ID = 200
_log = logging.getLogger(__name__)


if TYPE_CHECKING:
    part = cached_property

    class CallStores(StateStores, Protocol):
        """What calls of a Kiln are kept in."""

        def calls(self) -> "CallStore":
            """Return where calls with ids of their callers, and truncated outputs, are kept."""

        def close(self) -> None:
            """Close connections."""
else:

    class part(cached_property):  # noqa: N801 - used as a decorator
        """A part that is created once, on first use, by one of any number of threads.

        It takes a lock of the object, not one of the class as in Python 3.11 (which a fork in
        the middle would leave locked for ever) and not none as in later versions.
        """

        def __get__(self, instance, owner=None):  # noqa: ANN001, ANN204
            if instance is None:
                return self
            parts = vars(instance)
            with instance._creating:
                if self.attrname not in parts:
                    parts[self.attrname] = self.func(instance)
                return parts[self.attrname]


class FleetAdmin(Protocol):
    """Administration of one fleet. Methods raise StoreError when Redis fails."""

    async def state(self) -> FleetReport:
        """Return the status of the fleet."""

    async def drain(self, *, worker: str = "", pool: str = "") -> tuple[WorkerStatus, ...]:
        """Ask one worker, or all of a pool, to finish their calls and exit; returns them."""

    async def reload(self) -> int:
        """Ask all workers to reload settings and tools; returns their number."""

    async def clear_catalog(self) -> int:
        """Delete the published catalog and return its number of tools."""

    async def dead_letters(self, pool: str = "") -> list[DeadLetter]:
        """Return the dead letters of a pool, or of all pools, newest first."""

    async def retry(self, letter: DeadLetter) -> None:
        """Enqueue the call of a dead letter again."""

    async def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Delete dead letters and return how many existed."""


class Services:
    """The parts behind a Kiln that serves a folder, a file, or functions of this process."""

    def __init__(
        self,
        settings: Settings,
        path: Path | None = None,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        surface: str = "python",
        stores: "Callable[[Services], CallStores]",
        open_fleet: Callable[[str], AbstractAsyncContextManager[FleetAdmin]],
        resolve_host: "Resolve | None" = None,
    ) -> None:
        """`stores` opens what sessions, approvals, rates and calls are kept in.

        `open_fleet` connects to the fleet at a Redis URL.
        """
        self.settings = settings
        self.path = path
        """The folder or file of the tools; None if there are functions only."""
        self.surface = surface
        """What the audit log names as the origin of calls."""
        self._given_functions = tuple(functions)
        self._open_stores = stores
        self.open_fleet = open_fleet
        self._resolve_host = resolve_host
        self._start()
        _open.add(self)

    def _start(self) -> None:
        self._creating = threading.RLock()
        self.engines = CallEngines(self._new_engine, self._release)

    @property
    def location(self) -> str:
        """Where the tools are, for people."""
        return str(self.path)

    @property
    def no_worker(self) -> "ToolkilnError | None":
        """Why a fleet has no tools; None for a folder, and once a worker has joined."""
        return None

    @property
    def fleet_url(self) -> str | None:
        """The Redis URL of the fleet in the settings; None without one."""
        return self.settings.fleet or self.settings.redis or None

    @property
    def current_settings(self) -> Settings:
        """The settings as they are in their file, once a part follows it."""
        security: Security | None = self.__dict__.get("security")
        return security.live.current() if security else self.settings

    @part
    def catalog(self) -> Catalog:
        """The tools of the folder.

        Raises:
            NotFound: there are functions only.
        """
        if self.path is None:
            raise NotFound("there is no folder of tools", hint="pass one to Kiln(…)")
        options = CatalogOptions(
            dev=self.settings.dev,
            key=self.settings.manifest_key,
            cache=self.settings.prepare_state() / "readings",
            reserved=BUILTIN_NAMES | self.functions.keys(),
        )
        return Catalog(self.path, lambda: self.store.archive, options)

    @part
    def functions(self) -> dict[str, Function]:
        """Functions of this process that are tools, by name."""
        return functions_by_name(self._given_functions)

    @part
    def registry(self) -> ToolRegistry:
        """Every tool by its name."""
        catalog = None if self.path is None else self.catalog
        return ToolRegistry(
            catalog, self.functions, lambda: self.current_settings.grants, self._builtin_tools
        )

    @part
    def library(self) -> "Library":
        """Search and pages of tools."""
        from toolkiln.operations.library import Library

        usages = self.usages.by_tool if self.usages else dict
        return Library(self.registry, self.settings, self.path, usages)

    @part
    def usages(self) -> "Usages | None":
        """Prompts that tools answered; None unless `learn_usages` is set."""
        from toolkiln.operations.library import Usages

        if not self.settings.learn_usages or self.path is None:
            return None
        return Usages(self.catalog, lambda: self.store)

    @part
    def admissions(self) -> Admissions:
        """Decisions about versions."""
        return Admissions(self.catalog, self.security.audited)

    @part
    def pipeline(self) -> "AdmissionPipeline":
        """The way of new versions into the catalog."""
        from toolkiln.catalog.admission_pipeline import AdmissionPipeline

        async def index() -> str | None:
            from asyncio import to_thread

            return await to_thread(self.library.refresh)

        def probe(version: FileVersion) -> Awaitable[list[Finding]]:
            return self.engine.probe(version)  # in the event loop of the caller

        refuse = frozenset(self.current_settings.refuse)
        return AdmissionPipeline(self.admissions, refuse, probe, index, self.reading_pool)

    @part
    def reading_pool(self) -> "ReadingPool":
        """The threads that read sources for callers."""
        from toolkiln.catalog.admission_pipeline import ReadingPool

        return ReadingPool()

    @part
    def changes(self) -> "Changes":
        """Changes of the catalog and the rules, for any number of listeners."""
        from toolkiln.catalog.watch import Changes

        return Changes(lambda: self.watch(_log.warning), self.security.live.rules)

    @part
    def security(self) -> "Security":
        """Sessions, keys, rules, approvals, secrets, settings of tools, and the audit log."""
        from toolkiln.security.security import Security

        return Security(
            self.settings, lambda: self.store, self.registry.spec, self.surface, self.stores
        )

    @part
    def stores(self) -> "CallStores":
        """Where sessions, approvals, rates and calls are kept: in the store, or in Redis."""
        return self._open_stores(self)

    @part
    def store(self) -> "Store":
        """The database of results, outputs and versions."""
        from toolkiln.store.store import open_store

        return open_store(self.settings.store or self.settings.prepare_state() / "store.db")

    @part
    def runs(self) -> "RunLog":
        """Current and recent calls, while a server runs."""
        from toolkiln.execution.run_log import RunLog

        def identify(token: str | None, nested: bool) -> Caller | None:
            return self.security.guard.known_identity(token, running=nested)

        return RunLog(identify)

    @part
    def history(self) -> "History":
        """The runs, and earlier ones from the audit log."""
        from toolkiln.operations.runs import History

        return History(self.runs, self.security.audit, self.engine.visibility)

    @part
    def pending_approvals(self) -> "PendingApprovals":
        """The calls that wait for a person."""
        from toolkiln.security.approvals import PendingApprovals

        return PendingApprovals(self.security.approvals)

    @part
    def tasks(self) -> "Tasks":
        """Calls in the background, and truncated outputs, for their callers."""
        from toolkiln.operations.calls import Tasks

        return Tasks(self)

    @property
    def engine(self) -> "CallEngine":
        """What runs calls in this event loop: gateway, sandbox, environments, tasks."""
        return self.engines.current

    def may_see(self, session: SessionToken) -> "Allow | None":
        """Return which tools a caller may see; None if that is every tool.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        settings = self.current_settings
        if session is LOCAL_OPERATOR and settings.policy == "allow" and not settings.rules:
            return None
        return self.security.may_see(session)

    async def caller(self, session: SessionToken) -> Caller:
        """Return the caller behind a session.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        return await self.security.guard.caller(self.security.token(session))

    def visible(
        self, session: SessionToken = LOCAL_OPERATOR, role: Role | None = Role.TOOL
    ) -> Specs:
        """Return the tools of a role, or of any, that a caller may run, by weight and name.

        Raises:
            NoSession: the session is unknown or has ended.
        """
        return self.registry.filter(role, self.may_see(session))

    def derived(self, spec: ToolSpec, make: Callable[[ToolSpec], T]) -> T:
        """Return what a function makes of a tool, computed once for each version."""
        cache, key = self._derived, (make, spec.name, spec.digest)
        value: T | None = cache.get(key)
        if value is None:
            value = make(spec)
            if len(cache) >= _MOST_DERIVED:
                cache.clear()
            cache[key] = value
        return value

    async def call(
        self,
        name: str,
        arguments: object,
        background: Literal["auto"] | bool,
        options: "CallOptions",
    ) -> "Result | Task":
        """Run a tool; see `Kiln.call`."""
        call_id, prompt = options.get("call_id"), options.get("prompt")
        if call_id is not None and len(call_id) > _LONGEST_ID:
            raise InputError(f"the id of a call has at most {_LONGEST_ID} characters")
        request = options.get("request") or {}
        if not isinstance(request, dict):
            raise InputError("the request context of a call is an object")
        call = Call(
            tool=name,
            arguments=arguments,
            session=self.security.token(options.get("session", LOCAL_OPERATOR)),
            surface=options.get("surface", self.surface),
            digest=options.get("digest"),
            timeout=options.get("timeout"),
            request=request,
        )
        if call_id is not None:
            call = call.model_copy(update={"id": call_id, "remember": True})
        result = await self.engine.call(call, background, options)
        if prompt and isinstance(result, Result) and result.status is Status.OK:
            from asyncio import to_thread

            await to_thread(self.learn, name, prompt)
        return result

    def learn(self, tool: str, prompt: str) -> None:
        """Remember that a tool answered a prompt; does nothing unless `learn_usages` is set."""
        if self.usages is not None and tool in self.registry.snapshot.tools:
            self.usages.add(tool, prompt)
            self.library.forget(tool)

    def watch(
        self, warn: Callable[[str], None] = lambda _: None
    ) -> AsyncGenerator[CatalogChange, None]:
        """Yield changes of the catalog while its files are edited.

        Raises:
            InputError: there are functions only.
        """
        from toolkiln.catalog.watch import watch

        return watch(self.catalog, warn)

    async def prepare_source(self, request: "SourceCall") -> "PreparedRun":
        """Return what runs a tool of a source in the sandbox, once.

        Raises:
            NotAllowed: the caller may not write tools, or may only propose them.
            InputError: the source cannot be run, or has no such tool.
        """
        from toolkiln.operations.sources import prepare_source

        return await prepare_source(self, request)

    async def run(
        self,
        operation: "Operation[I, O]",
        request: I,
        session: SessionToken = LOCAL_OPERATOR,
        report: "Report | None" = None,
    ) -> O:
        """Run an operation for a caller; a front of a fleet has a worker run it."""
        return await operation.run(self, request, session, report)

    def run_sync(
        self,
        operation: "Operation[I, O]",
        request: I,
        session: SessionToken = LOCAL_OPERATOR,
        report: "Report | None" = None,
    ) -> O:
        """As `run`, from a thread without an event loop; a synchronous handler starts none."""
        if operation.is_async:
            return self.wait(self.run(operation, request, session, report))
        return operation.run_sync(self, request, session, report)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, from a thread without an event loop."""
        return self.engines.run_sync(work)

    async def open(self) -> None:
        """Prepare what must not block the event loop later; a folder needs nothing."""

    async def close(self) -> None:
        """End everything that calls started, in all threads, and watching."""
        if "changes" in self.__dict__:
            await self.changes.stop()
        await self.engines.close()

    def _release(self) -> None:
        """Close the parts that need no event loop for it."""
        if "changes" in self.__dict__:
            self.changes.cancel()
        for name in ("security", "stores", "store"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    def _new_engine(self) -> "CallEngine":
        from toolkiln.operations.engine import CallEngine

        return CallEngine(
            self.registry,
            self.settings,
            self.path,
            self._resolve_host,
            self.security.guard,
            self.stores.calls,
        )

    def _builtin_tools(self) -> object:
        from toolkiln.operations.builtin_tools import Builtin

        return Builtin(self)

    @part
    def _derived(self) -> dict[tuple[Callable[[ToolSpec], Any], str, str], Any]:
        return {}

    def _reset_in_child(self) -> None:
        """Start from the beginning in a forked process.

        What the parent opened is neither used nor closed here: its threads do not exist, its
        locks may be held, its sockets and connections are the parent's.
        """
        own = vars(self)
        parts = [name for name in own if isinstance(getattr(type(self), name, None), part)]
        self._inherited = [own.pop(name) for name in parts], self.engines
        self._start()


class SqlStores:
    """Sessions, approvals, rates and calls in the store of a Kiln."""

    def __init__(self, store: "Callable[[], Store]") -> None:
        self._store = store

    def sessions(self) -> "SessionStore":
        """Return where sessions are kept."""
        return self._store().sessions

    def approvals(self) -> "ApprovalStore":
        """Return where requests for approval are kept."""
        return self._store().approvals

    def rates(self) -> "RateStore":
        """Return where rate limits are counted."""
        return self._store().buckets

    def calls(self) -> "CallStore":
        """Return where calls with ids of their callers, and truncated outputs, are kept."""
        return self._store()

    def close(self) -> None:
        """Do nothing: the store is closed by its owner."""


_open: WeakSet[Services] = WeakSet()
"""What starts from the beginning in a forked process."""


def _after_fork() -> None:
    for services in list(_open):
        with suppress(AttributeError):  # forked in the middle of its constructor
            services._reset_in_child()


os.register_at_fork(after_in_child=_after_fork)
