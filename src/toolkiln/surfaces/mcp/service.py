"""The server of both eras, made from the SDK's: what it says of itself, and its methods.

Requests go by one middleware straight to the parts that answer them (`listing`, `calling`,
`prompts`, `resources` …) and their answers straight to the wire: the SDK would check each
of them three times. What it alone knows (the handshake, eras, streams, methods that nobody
has) goes on to it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
    ServerCapabilities,
    ServerTasksCapability,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from toolkiln.app import Change, Entrance, Kiln
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.surfaces.mcp.calling import Calling
from toolkiln.surfaces.mcp.completing import Completing
from toolkiln.surfaces.mcp.connections import Connections
from toolkiln.surfaces.mcp.following import Following
from toolkiln.surfaces.mcp.functions import Functions
from toolkiln.surfaces.mcp.listing import Listing
from toolkiln.surfaces.mcp.polling import Polling, TaskParams, UpdateParams
from toolkiln.surfaces.mcp.prompts import Prompts
from toolkiln.surfaces.mcp.requests import TASKS, Context, Request, is_modern
from toolkiln.surfaces.mcp.resources import Resources
from toolkiln.surfaces.mcp.subscriptions import Subscriptions
from toolkiln.surfaces.mcp.visitors import VISITOR, Visitors
from toolkiln.surfaces.tracing import is_traced

_INSTRUCTIONS = """\
Tools that run in a sandbox. If the list has search_tools, there are more tools than it \
shows: find them with search_tools, read how to call one with describe_tool, run it with \
call_tool. A call that waits for approval or takes too long returns a task id: use await_task. \
An output that was cut names a handle: use read_output. rag_search answers questions about the \
tools.\
"""
_FRESH = 60_000
"""Milliseconds that a client may keep a list: changes are told, to those who listen."""
_STATE_SECONDS = 3_600.0
_CACHEABLE = frozenset(
    {
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
_LEGACY_ONLY = frozenset(
    {
        "logging/setLevel",
        "tasks/result",
        "tasks/list",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
_MODERN_ONLY = frozenset({"tasks/update"})
_log = logging.getLogger(__name__)

Handler = Callable[[Request[Any]], Awaitable[dict[str, Any]]]


class Service:
    """The MCP server of one Kiln, for any number of connections."""

    def __init__(self, kiln: Kiln, entrance: Entrance, credential: str | None = None) -> None:
        """`credential` is that of the one client that there is over stdio."""
        self._kiln = kiln
        self._visitors = Visitors(entrance, credential)
        self._listing = Listing(kiln)
        self._following = Following(kiln, entrance)
        calling = Calling(kiln, self._following, self._listing)
        self._connections = Connections()
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)
        self._publishing: set[asyncio.Task[None]] = set()
        polling = Polling(kiln, self._following, calling.answered)
        functions = Functions(kiln, self._following)
        prompts, resources = Prompts(functions), Resources(kiln, functions)
        completing = Completing(functions, prompts, resources)
        subscriptions = self._subscriptions = Subscriptions(resources, self._visitors)
        self._methods: dict[str, tuple[type[BaseModel], Handler]] = {
            "tools/list": (PaginatedRequestParams, self._list),
            "tools/call": (CallToolRequestParams, calling.call),
            "prompts/list": (PaginatedRequestParams, prompts.list_prompts),
            "prompts/get": (GetPromptRequestParams, prompts.get),
            "resources/list": (PaginatedRequestParams, resources.list_resources),
            "resources/templates/list": (PaginatedRequestParams, resources.list_templates),
            "resources/read": (ReadResourceRequestParams, resources.read),
            "resources/subscribe": (SubscribeRequestParams, subscriptions.subscribe),
            "resources/unsubscribe": (UnsubscribeRequestParams, subscriptions.unsubscribe),
            "completion/complete": (CompleteRequestParams, completing.complete),
            "logging/setLevel": (SetLevelRequestParams, self._connections.set_level),
            "tasks/get": (TaskParams, polling.get),
            "tasks/result": (TaskParams, polling.result),
            "tasks/list": (RequestParams, polling.listed),
            "tasks/cancel": (TaskParams, polling.cancel),
            "tasks/update": (UpdateParams, polling.update),
        }
        self.server = _Server("toolkiln", version=version("toolkiln"), title="Toolkiln",
                              instructions=_INSTRUCTIONS)  # fmt: skip
        for method, (params, _) in self._methods.items():
            self.server.add_request_handler(method, params, _answered_before)
        self.server.add_request_handler(
            "subscriptions/listen", SubscriptionsListenRequestParams, self._listen
        )
        security = RequestStateSecurity.ephemeral(ttl=_STATE_SECONDS)
        security.bind_principal = self._visitors.principal
        # The SDK's own makes what is called part of the trace that a request names.
        traced = self.server.middleware if is_traced(kiln.settings) else []
        self.server.middleware = [
            *traced,
            RequestStateBoundary(security, default_audience="toolkiln"),
            self._directly,
        ]
        # Without it the SDK lists all tools for each call, to compare headers with arguments.
        self.server.get_tool_input_schema = lambda name: self._listing.schema_with_headers(
            name, VISITOR.get().session
        )
        self._stamp = {SERVER_INFO_META_KEY: self.server.server_info_stamp}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tell clients what changes as long as the block runs."""
        forget = self._kiln.changes.listen(self._changed)
        self._kiln.changes.start()
        try:
            yield
        finally:
            forget()
            self._listeners.close()
            await self._following.close()

    def _changed(self, _: Change) -> None:
        updated, wanted = self._subscriptions.changed(), self._subscriptions.of
        self._connections.tell(lambda connection: wanted(connection) & updated)
        publishing = asyncio.get_running_loop().create_task(self._publish(updated))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)

    async def _publish(self, updated: set[str]) -> None:
        for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
            await self._bus.publish(event)
        for uri in sorted(updated):
            await self._bus.publish(ResourceUpdated(uri=uri))

    async def _listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        try:
            async with self._subscriptions.listening(ctx, params.notifications) as wanted:
                told = params.model_copy(update={"notifications": wanted})
                return await self._listeners(ctx, told)
        except InputError as error:
            raise MCPError(INVALID_PARAMS, error.message) from error

    async def _list(self, request: Request[PaginatedRequestParams]) -> dict[str, Any]:
        return self._listing.page(request.session, request.params.cursor)

    async def _directly(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer what is ours to answer; everything else goes on."""
        context = ctx  # the SDK passes it by this name
        if context.method == "notifications/initialized":
            await call_next(context)
            self._connections.add(context)
            return None
        known = self._methods.get(context.method)
        is_ready = is_modern(context) or context.session.client_params is not None
        if known is None or context.request_id is None or not is_ready:
            return await call_next(context)
        if context.method in (_LEGACY_ONLY if is_modern(context) else _MODERN_ONLY):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
        params_type, handle = known
        params = params_type.model_validate(context.params or {}, by_name=False)
        try:
            session = await self._visitors.session(context)
            found = await handle(Request(context, params, session))
        except InputError as error:
            hint = {"hint": error.hint} if error.hint else None
            raise MCPError(INVALID_PARAMS, error.message, hint) from error
        except ToolkilnError as error:
            _log.warning("%s failed: %s", context.method, error.message)
            raise MCPError(INTERNAL_ERROR, error.message) from error
        return self._dressed(context, found) if is_modern(context) else found

    def _dressed(self, context: Context, found: dict[str, Any]) -> dict[str, Any]:
        """A result as the modern era wants it."""
        dressed = {"resultType": "complete", **found}
        if context.method in _CACHEABLE:
            dressed = {"ttlMs": _FRESH, "cacheScope": "private", **dressed}
        dressed["_meta"] = {**found.get("_meta", {}), **self._stamp}
        return dressed


class _Server(Server[Any]):
    """Says what it can do, in both eras."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK does, but with lists that change."""
        changing = NotificationOptions(
            tools_changed=True, prompts_changed=True, resources_changed=True
        )
        return super().create_initialization_options(
            notification_options or changing, experimental_capabilities, extensions
        )

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """As the SDK does, with tasks."""
        found = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            return found.model_copy(update={"extensions": {TASKS: {}}})
        tasks: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return found.model_copy(update={"tasks": ServerTasksCapability.model_validate(tasks)})


async def _answered_before(context: Context, _: Any) -> dict[str, Any]:
    """Stands for a method that `Service` answers before the SDK looks for a handler."""
    raise MCPError(INTERNAL_ERROR, f"{context.method} was not answered")
