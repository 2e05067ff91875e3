"""Services of a Kiln in front of a fleet: it shows the fleet's tools, workers run them.

They differ from those of a folder in where tools come from (`remote_catalog`), where calls go
(`dispatcher`), whose rules apply (those that workers publish), and in that there are no files:
a worker runs the operations on them (`rpc`). No tool code is loaded, except that of pinned
tools in a sandbox.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from toolkiln.catalog.catalog import Catalog
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.fleet.admin import open_fleet_admin
from toolkiln.fleet.dispatcher import FleetDispatcher
from toolkiln.fleet.remote_catalog import (
    NoWorker,
    RemoteCatalog,
    RemoteToolRegistry,
    catalog_changes,
)
from toolkiln.fleet.security_stores import RedisStores
from toolkiln.model.catalog import CatalogChange
from toolkiln.model.identity import Privilege
from toolkiln.model.spec import BUILTIN_NAMES
from toolkiln.operations.services import Services, part
from toolkiln.security.live_settings import FleetLive
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken

if TYPE_CHECKING:
    from toolkiln.fleet.rpc import RemoteOperations
    from toolkiln.operations.engine import CallEngine
    from toolkiln.operations.operation import Operation, Report
    from toolkiln.operations.sources import PreparedRun, SourceCall
    from toolkiln.security.security import Security

I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output


class FleetServices(Services):
    """The tools of a fleet, and functions of this process."""

    def __init__(
        self,
        url: str,
        settings: Settings | None = None,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        surface: str = "python",
    ) -> None:
        """Raises StoreError if the URL cannot be read."""
        shared = replace(settings or Settings(), redis=url, dev=False)
        super().__init__(
            shared,
            functions=functions,
            surface=surface,
            stores=_stores,
            open_fleet=open_fleet_admin,
        )
        self._published = RemoteCatalog(shared)

    @property
    def location(self) -> str:
        return self._published.address.name

    @property
    def no_worker(self) -> NoWorker | None:
        """The error that answers every call while no worker has joined the fleet."""
        return self._published.no_worker

    @property
    def catalog(self) -> Catalog:
        raise InputError(
            "the tool files are at the workers of the fleet",
            hint="do this in the tools folder of a worker",
        )

    @part
    def registry(self) -> RemoteToolRegistry:
        return RemoteToolRegistry(
            self._published,
            self.functions,
            lambda: self.current_settings.grants,
            self._builtin_tools,
        )

    @part
    def security(self) -> "Security":
        from toolkiln.security.security import Security

        live = FleetLive(self.settings, lambda: self._published.snapshot.permissions)
        return Security(
            self.settings, lambda: self.store, self.registry.spec, self.surface, self.stores, live
        )

    def watch(
        self,
        warn: Callable[[str], None] = lambda _: None,  # noqa: ARG002 - there is nothing to warn of
    ) -> AsyncGenerator[CatalogChange, None]:
        return catalog_changes(self._published)

    async def run(
        self,
        operation: "Operation[I, O]",
        request: I,
        session: SessionToken = LOCAL_OPERATOR,
        report: "Report | None" = None,
    ) -> O:
        """Run an operation, at a worker if it is about the files there.

        Raises:
            NoWorker: no worker has ever joined the fleet.
        """
        if operation.routing == "local" or await asyncio.to_thread(
            self._is_local, operation, request, session
        ):
            return await super().run(operation, request, session, report)
        if (missing := await asyncio.to_thread(lambda: self.no_worker)) is not None:
            raise missing
        return await self._remote.run(operation, request, self.security.token(session))

    def run_sync(
        self,
        operation: "Operation[I, O]",
        request: I,
        session: SessionToken = LOCAL_OPERATOR,
        report: "Report | None" = None,
    ) -> O:
        if operation.routing == "local":
            return super().run_sync(operation, request, session, report)
        return self.wait(self.run(operation, request, session, report))

    async def prepare_source(self, request: "SourceCall") -> "PreparedRun":
        run = self._remote.run_source(request, self.security.token(request.session))
        if request.call_id is None:
            return run
        return lambda observe: self.engine.tasks.run_detached(run(observe))

    async def open(self) -> None:
        await asyncio.to_thread(lambda: self._published.snapshot)

    def _new_engine(self) -> "CallEngine":
        """Return an engine for calls that run here, with a dispatcher for all others."""
        from toolkiln.operations.engine import CallEngine

        return CallEngine(
            self.registry,
            self.settings,
            None,
            self._resolve_host,
            self.security.guard,
            self.stores.calls,
            self._new_dispatcher(),
        )

    def _new_dispatcher(self) -> FleetDispatcher:
        from toolkiln.fleet.call_store import RedisCallStore

        @cache
        def call_store() -> RedisCallStore:
            store = self.stores.calls()
            assert isinstance(store, RedisCallStore)  # as Redis is set
            return store

        return FleetDispatcher(
            self.registry,
            self._published,
            self.security.guard,
            call_store,
            durable=self.settings.fleet_durable,
        )

    def _release(self) -> None:
        super()._release()
        self._published.close()

    def _reset_in_child(self) -> None:
        super()._reset_in_child()
        self._published.reset_after_fork()

    @property
    def _remote(self) -> "RemoteOperations":
        from toolkiln.fleet.rpc import RemoteOperations

        dispatcher = self.engine.dispatcher
        assert isinstance(dispatcher, FleetDispatcher)
        return RemoteOperations(dispatcher, self.surface)

    def _is_local(
        self, operation: "Operation[Any, Any]", request: Any, session: SessionToken
    ) -> bool:
        """Return whether a request is about what is published, or about settings kept here."""
        name = request.name
        spec = self.registry.specs.get(name)
        if operation.name == "tools.state":
            # Only a worker knows of a tool that is not published whether it is disabled.
            is_published = name in BUILTIN_NAMES or spec is not None
            return is_published or Privilege.ADMIN not in self.security.caller(session).privileges
        if operation.name.startswith("tool_settings."):
            return spec is None or spec.pinned or self.registry.is_function(name)
        return False


def _stores(services: Services) -> RedisStores:
    settings = services.settings
    return RedisStores(settings.redis, lambda: services.store, settings.worker_keys)
