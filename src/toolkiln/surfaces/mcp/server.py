"""The MCP server: capabilities and methods of both eras, on top of the SDK's server.

A middleware passes requests directly to the handlers (`tools`, `calls`, `prompts`,
`resources` …) and returns their results unchanged, because the SDK would validate each one
three times. The handshake, streams and unknown methods are left to the SDK.
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

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.catalog import CatalogChange
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.mcp.calls import TaskMethods, TaskParams, ToolCalls, UpdateTaskParams
from toolkiln.surfaces.mcp.interaction import CallInteraction
from toolkiln.surfaces.mcp.prompts import McpCatalog, Prompts
from toolkiln.surfaces.mcp.requests import (
    MCP_CALLER,
    TASKS_EXTENSION,
    Connections,
    Context,
    McpCallers,
    McpRequest,
    invalid_params,
    is_modern,
)
from toolkiln.surfaces.mcp.resources import Completion, Resources, Subscriptions
from toolkiln.surfaces.mcp.tools import ToolListing
from toolkiln.surfaces.tracing import is_traced

_INSTRUCTIONS = """\
Tools that run in a sandbox. If the list has search_tools, there are more tools than it \
shows: find them with search_tools, read how to call one with describe_tool, run it with \
call_tool. A call that waits for approval or takes too long returns a task id: use await_task. \
An output that was cut names a handle: use read_output. rag_search answers questions about the \
tools.\
"""
_LIST_TTL_MS = 60_000
"""Clients that listen are notified of changes earlier."""
_REQUEST_STATE_SECONDS = 3_600.0
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

Handler = Callable[[McpRequest[Any]], Awaitable[dict[str, Any]]]


class McpServer:
    """The MCP server of one Kiln, for any number of connections."""

    def __init__(
        self, kiln: Kiln, authenticator: Authenticator, credential: str | None = None
    ) -> None:
        """`credential` is that of the client over stdio."""
        self._kiln = kiln
        self._callers = McpCallers(authenticator, credential)
        self._listing = ToolListing(kiln)
        self._interaction = CallInteraction(kiln, authenticator)
        calls = ToolCalls(kiln, self._interaction, self._listing)
        self._connections = Connections()
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)
        self._publications: set[asyncio.Task[None]] = set()
        tasks = TaskMethods(kiln, self._interaction, calls.respond)
        catalog = McpCatalog(kiln, self._interaction)
        prompts, resources = Prompts(catalog), Resources(kiln, catalog)
        completion = Completion(catalog, prompts, resources)
        subscriptions = self._subscriptions = Subscriptions(resources, self._callers)
        self._methods: dict[str, tuple[type[BaseModel], Handler]] = {
            "tools/list": (PaginatedRequestParams, self._list_tools),
            "tools/call": (CallToolRequestParams, calls.call),
            "prompts/list": (PaginatedRequestParams, prompts.list_prompts),
            "prompts/get": (GetPromptRequestParams, prompts.get),
            "resources/list": (PaginatedRequestParams, resources.list_resources),
            "resources/templates/list": (PaginatedRequestParams, resources.list_templates),
            "resources/read": (ReadResourceRequestParams, resources.read),
            "resources/subscribe": (SubscribeRequestParams, subscriptions.subscribe),
            "resources/unsubscribe": (UnsubscribeRequestParams, subscriptions.unsubscribe),
            "completion/complete": (CompleteRequestParams, completion.complete),
            "logging/setLevel": (SetLevelRequestParams, self._connections.set_level),
            "tasks/get": (TaskParams, tasks.get),
            "tasks/result": (TaskParams, tasks.result),
            "tasks/list": (RequestParams, tasks.list_tasks),
            "tasks/cancel": (TaskParams, tasks.cancel),
            "tasks/update": (UpdateTaskParams, tasks.update),
        }
        self.server = _Server("toolkiln", version=version("toolkiln"), title="Toolkiln",
                              instructions=_INSTRUCTIONS)  # fmt: skip
        for method, (params, _) in self._methods.items():
            self.server.add_request_handler(method, params, _unreachable)
        self.server.add_request_handler(
            "subscriptions/listen", SubscriptionsListenRequestParams, self._listen
        )
        security = RequestStateSecurity.ephemeral(ttl=_REQUEST_STATE_SECONDS)
        security.bind_principal = self._callers.principal
        # The SDK's middleware continues the trace that a request names.
        tracing = self.server.middleware if is_traced(kiln.settings) else []
        self.server.middleware = [
            *tracing,
            RequestStateBoundary(security, default_audience="toolkiln"),
            self._dispatch,
        ]
        # Otherwise the SDK lists all tools for each call to compare headers with arguments.
        self.server.get_tool_input_schema = lambda name: self._listing.schema_with_headers(
            name, MCP_CALLER.get().session
        )
        self._server_info = {SERVER_INFO_META_KEY: self.server.server_info_stamp}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Notify clients of catalog changes while the block runs."""
        unsubscribe = self._kiln.services.changes.listen(self._on_change)
        self._kiln.services.changes.start()
        try:
            yield
        finally:
            unsubscribe()
            self._listeners.close()
            await self._interaction.close()

    def _on_change(self, _: CatalogChange) -> None:
        updated, subscribed = self._subscriptions.take_changes(), self._subscriptions.uris
        self._connections.notify(lambda connection: subscribed(connection) & updated)
        publication = asyncio.get_running_loop().create_task(self._publish(updated))
        self._publications.add(publication)
        publication.add_done_callback(self._publications.discard)

    async def _publish(self, updated: set[str]) -> None:
        for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
            await self._bus.publish(event)
        for uri in sorted(updated):
            await self._bus.publish(ResourceUpdated(uri=uri))

    async def _listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        try:
            async with self._subscriptions.listening(ctx, params.notifications) as granted:
                params = params.model_copy(update={"notifications": granted})
                return await self._listeners(ctx, params)
        except InputError as error:
            raise MCPError(INVALID_PARAMS, error.message) from error

    async def _list_tools(self, request: McpRequest[PaginatedRequestParams]) -> dict[str, Any]:
        return self._listing.page(request.session, request.params.cursor)

    async def _dispatch(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Call our handler of a method; leave other methods to the SDK."""
        context = ctx  # the SDK passes it by keyword
        if context.method == "notifications/initialized":
            await call_next(context)
            self._connections.add(context)
            return None
        method = self._methods.get(context.method)
        is_ready = is_modern(context) or context.session.client_params is not None
        if method is None or context.request_id is None or not is_ready:
            return await call_next(context)
        if context.method in (_LEGACY_ONLY if is_modern(context) else _MODERN_ONLY):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
        params_type, handle = method
        params = params_type.model_validate(context.params or {}, by_name=False)
        try:
            session = await self._callers.session(context)
            result = await handle(McpRequest(context, params, session))
        except InputError as error:
            raise invalid_params(error.message, error.hint) from error
        except ToolkilnError as error:
            _log.warning("%s failed: %s", context.method, error.message)
            raise MCPError(INTERNAL_ERROR, error.message) from error
        return self._modern_result(context, result) if is_modern(context) else result

    def _modern_result(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Add the fields that the modern era requires."""
        modern = {"resultType": "complete", **result}
        if context.method in _CACHEABLE:
            modern = {"ttlMs": _LIST_TTL_MS, "cacheScope": "private", **modern}
        modern["_meta"] = {**result.get("_meta", {}), **self._server_info}
        return modern


class _Server(Server[Any]):
    """The SDK's server with the capabilities of both eras."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Announce list-changed notifications by default."""
        defaults = NotificationOptions(
            tools_changed=True, prompts_changed=True, resources_changed=True
        )
        return super().create_initialization_options(
            notification_options or defaults, experimental_capabilities, extensions
        )

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        """Add tasks to the SDK's capabilities."""
        capabilities = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            return capabilities.model_copy(update={"extensions": {TASKS_EXTENSION: {}}})
        tasks: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return capabilities.model_copy(
            update={"tasks": ServerTasksCapability.model_validate(tasks)}
        )


async def _unreachable(context: Context, _: Any) -> dict[str, Any]:
    """Registered with the SDK for each method that the middleware handles."""
    raise MCPError(INTERNAL_ERROR, f"{context.method} has no handler")
