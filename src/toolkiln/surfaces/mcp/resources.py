"""`resources/*` and `completion/complete`: resource functions, pages of tools, subscriptions.

A resource function returns its content: text and bytes unchanged, anything else as JSON.
Completions come from schemas (`Literal` and enum values) and from the names of the tools; no
tool code runs to complete an argument.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from mimetypes import guess_type
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    SubscribeRequestParams,
    SubscriptionFilter,
    UnsubscribeRequestParams,
)

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.base import uri_values, uri_variables
from toolkiln.model.call import Result
from toolkiln.model.spec import Role, ToolSpec
from toolkiln.surfaces.mcp.prompts import McpCatalog, Prompts, descriptive_fields
from toolkiln.surfaces.mcp.requests import Context, McpCallers, McpRequest, connection_of
from toolkiln.surfaces.mcp.tools import paged

_MARKDOWN = "text/markdown"
PAGE_TEMPLATE = "toolkiln://tools/{name}"
_PAGE_PREFIX = PAGE_TEMPLATE.removesuffix("{name}")
_RESOURCE_NOT_FOUND = -32002
"""Error code of the handshake era."""
_RETURNED_FILE = "content"
"""The name of the file that holds bytes returned by a function."""


def _is_page(uri: str) -> bool:
    return uri.startswith(_PAGE_PREFIX)


def _page_entry(spec: ToolSpec) -> dict[str, Any]:
    return {
        "uri": _PAGE_PREFIX + quote(spec.name, safe=""),
        "name": spec.name,
        "title": spec.display_name,
        "description": f"Documentation of the tool {spec.name}",
        "mimeType": _MARKDOWN,
    }


def _page_template_entry() -> dict[str, Any]:
    return {
        "uriTemplate": PAGE_TEMPLATE,
        "name": "tool",
        "title": "Documentation of a tool",
        "description": "How to use a tool well: parameters, results, examples.",
        "mimeType": _MARKDOWN,
    }


class ResourceMatch(NamedTuple):
    """A resource function, or the tool of a documentation page, that a URI refers to."""

    spec: ToolSpec
    arguments: dict[str, str]


class Resources:
    """The handlers of `resources/*` except subscriptions."""

    def __init__(self, kiln: Kiln, catalog: McpCatalog) -> None:
        self._kiln = kiln
        self._catalog = catalog

    async def list_resources(self, request: McpRequest[PaginatedRequestParams]) -> dict[str, Any]:
        """Return one page of documentation pages and resources with a fixed URI."""
        tools = self._catalog.visible(request.session, Role.TOOL)
        entries = {name: _page_entry(spec) for name, spec in tools.items()}
        for name, spec in self._catalog.visible(request.session, Role.RESOURCE).items():
            if spec.uri and not uri_variables(spec.uri):
                entries[name] = {"uri": spec.uri, **_common_fields(spec)}
        names, next_cursor = paged(entries, request.params.cursor)
        return {"resources": [entries[name] for name in names], **next_cursor}

    async def list_templates(self, request: McpRequest[PaginatedRequestParams]) -> dict[str, Any]:
        """Return one page of resource templates."""
        entries = {"": _page_template_entry()}
        for name, spec in self._catalog.visible(request.session, Role.RESOURCE).items():
            if spec.uri and uri_variables(spec.uri):
                entries[name] = {"uriTemplate": spec.uri, **_common_fields(spec)}
        names, next_cursor = paged(entries, request.params.cursor)
        return {"resourceTemplates": [entries[name] for name in names], **next_cursor}

    async def read(self, request: McpRequest[ReadResourceRequestParams]) -> dict[str, Any]:
        """Return the contents of a resource.

        Raises:
            MCPError: the caller has no such resource, or the function failed.
        """
        uri = str(request.params.uri)
        match = self.get(uri, request)
        if match.spec.role is Role.TOOL:
            try:
                text = await asyncio.to_thread(self._kiln.library.page, match.spec.name)
            except ToolkilnError:  # the tool was removed in the meantime
                raise _not_found(uri, request) from None
            return {"contents": [{"uri": uri, "mimeType": _MARKDOWN, "text": text}]}

        def present(result: Result) -> dict[str, Any]:
            # The function may return something else the next time.
            ttl = {"ttlMs": 0} if request.is_modern else {}
            return {"contents": _contents(uri, match.spec, result), **ttl}

        return await self._catalog.call(request, match.spec, match.arguments, present)

    def get(self, uri: str, request: McpRequest[Any]) -> ResourceMatch:
        """Return the resource with this URI.

        Raises:
            MCPError: the caller has no such resource.
        """
        match = self.find(uri, request.session)
        if match is None:
            raise _not_found(uri, request)
        return match

    def find(self, uri: str, session: str) -> ResourceMatch | None:
        """Return the resource with this URI; None if the caller has no such resource."""
        role = Role.TOOL if _is_page(uri) else Role.RESOURCE
        return _match(uri, self._catalog.visible(session, role))

    def find_template(self, template: str, session: str) -> ToolSpec | None:
        """Return the resource function declared with this URI or URI template."""
        specs = self._catalog.visible(session, Role.RESOURCE).values()
        return next((spec for spec in specs if spec.uri == template), None)

    def versions(self, uris: Iterable[str]) -> dict[str, str | None]:
        """Return the version behind each URI, without regard to callers."""
        specs = self._catalog.all()
        resources = {name: spec for name, spec in specs.items() if spec.role is Role.RESOURCE}
        versions = {}
        for uri in uris:
            match = _match(uri, specs if _is_page(uri) else resources)
            versions[uri] = match.spec.digest if match else None
        return versions


def _match(uri: str, specs: Mapping[str, ToolSpec]) -> ResourceMatch | None:
    """Return the match for a URI; fixed URIs come before templates."""
    if _is_page(uri):
        page = specs.get(unquote(uri.removeprefix(_PAGE_PREFIX)))
        return ResourceMatch(page, {}) if page and page.role is Role.TOOL else None
    templates = []
    for spec in specs.values():
        assert spec.uri is not None
        if uri_variables(spec.uri):
            templates.append(spec)
        elif spec.uri == uri:
            return ResourceMatch(spec, {})
    for spec in templates:
        assert spec.uri is not None
        arguments = uri_values(spec.uri, uri)
        if arguments is not None:
            return ResourceMatch(spec, arguments)
    return None


def _not_found(uri: str, request: McpRequest[Any]) -> MCPError:
    code = INVALID_PARAMS if request.is_modern else _RESOURCE_NOT_FOUND
    return MCPError(code, "Resource not found", {"uri": uri})


def _common_fields(spec: ToolSpec) -> dict[str, Any]:
    mime_type = {"mimeType": spec.mime_type} if spec.mime_type else {}
    return {"name": spec.name, **descriptive_fields(spec), **mime_type}


def _contents(uri: str, spec: ToolSpec, result: Result) -> list[dict[str, Any]]:
    value, contents = result.value, []
    if isinstance(value, str):
        mime_type = spec.mime_type or "text/plain"
        contents.append({"uri": uri, "mimeType": mime_type, "text": value})
    elif value is not None or not result.files:
        mime_type = spec.mime_type or "application/json"
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        contents.append({"uri": uri, "mimeType": mime_type, "text": text})
    for file in result.files:
        mime_type = guess_type(file.name)[0] or "application/octet-stream"
        if file.name == _RETURNED_FILE and spec.mime_type:
            mime_type = spec.mime_type
        contents.append({"uri": uri, "mimeType": mime_type, "blob": b64encode(file.data).decode()})
    return contents


_MAX_URI_LENGTH = 2_000
MAX_SUBSCRIPTIONS = 100
"""URIs that one connection, or one stream, may subscribe to."""


class Subscriptions:
    """The resource subscriptions of all clients."""

    def __init__(self, resources: Resources, callers: McpCallers) -> None:
        self._resources = resources
        self._callers = callers
        self._versions: dict[object, dict[str, str | None]] = {}
        """The last known version by URI, for each connection or stream."""

    async def subscribe(self, request: McpRequest[SubscribeRequestParams]) -> dict[str, Any]:
        """Subscribe a client of the handshake era to a resource.

        Raises:
            MCPError: the caller has no such resource.
            InputError: the URI is too long, or there are too many subscriptions.
        """
        uri = str(request.params.uri)
        if len(uri) > _MAX_URI_LENGTH:
            raise _too_long()
        self._resources.get(uri, request)
        connection = connection_of(request.context)
        if connection not in self._versions:
            self._versions[connection] = {}
            connection.exit_stack.callback(self._versions.pop, connection, None)
        versions = self._versions[connection]
        if len(versions) >= MAX_SUBSCRIPTIONS and uri not in versions:
            raise _too_many()
        versions |= self._resources.versions([uri])
        return {}

    async def unsubscribe(self, request: McpRequest[UnsubscribeRequestParams]) -> dict[str, Any]:
        """End a subscription; it is no error if there is none."""
        versions = self._versions.get(connection_of(request.context), {})
        versions.pop(str(request.params.uri), None)
        return {}

    @asynccontextmanager
    async def listening(
        self, context: Context, requested: SubscriptionFilter
    ) -> AsyncIterator[SubscriptionFilter]:
        """Subscribe a stream of the modern era and yield the filter without unknown resources.

        Raises:
            InputError: a URI is too long, or there are too many.
        """
        requested_uris = requested.resource_subscriptions
        if not requested_uris:
            yield requested
            return
        if len(requested_uris) > MAX_SUBSCRIPTIONS:
            raise _too_many()
        if max(map(len, requested_uris)) > _MAX_URI_LENGTH:
            raise _too_long()
        session = await self._callers.session(context)
        uris = [uri for uri in requested_uris if self._resources.find(uri, session)]
        stream = object()
        self._versions[stream] = self._resources.versions(uris)
        try:
            yield requested.model_copy(update={"resource_subscriptions": uris})
        finally:
            del self._versions[stream]

    def uris(self, connection: Connection) -> set[str]:
        """Return the URIs that a connection subscribed to."""
        return set(self._versions.get(connection, ()))

    def take_changes(self) -> set[str]:
        """Return the URIs whose version changed since the last time."""
        uris = {uri for versions in self._versions.values() for uri in versions}
        current = self._resources.versions(uris)
        changed = set()
        for versions in self._versions.values():
            changed |= {uri for uri, version in versions.items() if version != current[uri]}
            versions |= {uri: current[uri] for uri in versions}
        return changed


def _too_many() -> InputError:
    return InputError(f"a client can subscribe to at most {MAX_SUBSCRIPTIONS} resources")


def _too_long() -> InputError:
    return InputError(f"a subscribed URI may have at most {_MAX_URI_LENGTH:,} characters")


_MAX_VALUES = 100
"""The limit of the protocol."""
_MAX_DEPTH = 10


class Completion:
    """The handler of `completion/complete`."""

    def __init__(self, catalog: McpCatalog, prompts: Prompts, resources: Resources) -> None:
        self._catalog = catalog
        self._prompts = prompts
        self._resources = resources

    async def complete(self, request: McpRequest[CompleteRequestParams]) -> dict[str, Any]:
        """Return the values that start with the client's text.

        Raises:
            MCPError: the prompt, template or argument is unknown.
        """
        prefix = request.params.argument.value.casefold()
        values = [value for value in self._values(request) if value.casefold().startswith(prefix)]
        return {
            "completion": {
                "values": values[:_MAX_VALUES],
                "total": len(values),
                "hasMore": len(values) > _MAX_VALUES,
            }
        }

    def _values(self, request: McpRequest[CompleteRequestParams]) -> Iterable[str]:
        reference, name = request.params.ref, request.params.argument.name
        spec: ToolSpec | None
        if isinstance(reference, PromptReference):
            spec = self._prompts.find(reference.name, request.session)
        elif reference.uri == PAGE_TEMPLATE and name == "name":
            return sorted(self._catalog.visible(request.session, Role.TOOL))
        else:
            spec = self._resources.find_template(reference.uri, request.session)
        schema = spec.parameters["properties"].get(name) if spec else None
        if spec is None or schema is None:
            raise MCPError(INVALID_PARAMS, f"There is no argument {name!r} to complete")
        return dict.fromkeys(_choices(schema, spec.parameters.get("$defs", {})))


def _choices(schema: Any, definitions: dict[str, Any], depth: int = 0) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    if schema.get("type") == "boolean":
        values += ["true", "false"]
    yield from (str(value) for value in values if isinstance(value, str | int | float))
    inner = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    if "$ref" in schema:
        inner.append(definitions.get(schema["$ref"].rpartition("/")[2]))
    for subschema in inner:
        yield from _choices(subschema, definitions, depth + 1)
