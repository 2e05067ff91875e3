"""`resources/*`: functions of the catalog that have an address, and the pages about tools.

What a function returns is its content: text as it is, bytes as they are, anything else as
JSON. Which versions stand behind addresses is told for `subscriptions`.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from mimetypes import guess_type
from typing import Any, NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams, ReadResourceRequestParams

from toolkiln.app import Kiln
from toolkiln.errors import ToolkilnError
from toolkiln.model import Result, Role, ToolSpec, uri_places, uri_values
from toolkiln.surfaces.mcp import documents
from toolkiln.surfaces.mcp.functions import Functions, described
from toolkiln.surfaces.mcp.paging import paged
from toolkiln.surfaces.mcp.requests import Request

_NOT_FOUND = -32002
"""What the handshake era has for a resource that is not there."""
_RETURNED = "content"
"""The name of the file that bytes arrive as."""


class Addressed(NamedTuple):
    """What an address leads to: a resource, or the tool that a page is about."""

    spec: ToolSpec
    arguments: dict[str, str]


class Resources:
    """The resources of one Kiln."""

    def __init__(self, kiln: Kiln, functions: Functions) -> None:
        self._kiln = kiln
        self._functions = functions

    async def list_resources(self, request: Request[PaginatedRequestParams]) -> dict[str, Any]:
        """Pages about tools, and the functions of one address each, by name."""
        tools = self._functions.of(request.session, Role.TOOL)
        found = {name: documents.listed(spec) for name, spec in tools.items()}
        for name, spec in self._functions.of(request.session, Role.RESOURCE).items():
            if spec.uri and not uri_places(spec.uri):
                found[name] = {"uri": spec.uri, **_listed(spec)}
        names, following = paged(found, request.params.cursor)
        return {"resources": [found[name] for name in names], **following}

    async def list_templates(self, request: Request[PaginatedRequestParams]) -> dict[str, Any]:
        """How the addresses of pages and of all other functions are made."""
        found = {"": documents.template()}
        for name, spec in self._functions.of(request.session, Role.RESOURCE).items():
            if spec.uri and uri_places(spec.uri):
                found[name] = {"uriTemplate": spec.uri, **_listed(spec)}
        names, following = paged(found, request.params.cursor)
        return {"resourceTemplates": [found[name] for name in names], **following}

    async def read(self, request: Request[ReadResourceRequestParams]) -> dict[str, Any]:
        """What stands at an address.

        Raises:
            MCPError: nothing, or not for this caller; or a function gave nothing, and why.
        """
        uri = str(request.params.uri)
        found = self.known(uri, request)
        if found.spec.role is Role.TOOL:
            try:
                text = await asyncio.to_thread(self._kiln.library.page, found.spec.name)
            except ToolkilnError:  # it went in the meantime
                raise _not_found(uri, request) from None
            return {"contents": [{"uri": uri, "mimeType": documents.MARKDOWN, "text": text}]}

        def form(result: Result) -> dict[str, Any]:
            # A function may give something else the next time.
            fresh = {"ttlMs": 0} if request.is_modern else {}
            return {"contents": _contents(uri, found.spec, result), **fresh}

        return await self._functions.answer(request, found.spec, found.arguments, form)

    def known(self, uri: str, request: Request[Any]) -> Addressed:
        """What an address leads to.

        Raises:
            MCPError: nothing that the caller may know of.
        """
        found = self.find(uri, request.session)
        if found is None:
            raise _not_found(uri, request)
        return found

    def find(self, uri: str, session: str) -> Addressed | None:
        """What an address leads to; None if that is nothing that a caller may know of."""
        role = Role.TOOL if documents.is_page(uri) else Role.RESOURCE
        return _addressed(uri, self._functions.of(session, role))

    def template(self, uri: str, session: str) -> ToolSpec | None:
        """The function that has this template, or this address."""
        specs = self._functions.of(session, Role.RESOURCE).values()
        return next((spec for spec in specs if spec.uri == uri), None)

    def versions(self, uris: Iterable[str]) -> dict[str, str | None]:
        """The version of what each address leads to, whoever may know of it."""
        everything = self._functions.all()
        resources = {n: spec for n, spec in everything.items() if spec.role is Role.RESOURCE}
        found = {}
        for uri in uris:
            is_page = documents.is_page(uri)
            leads_to = _addressed(uri, everything if is_page else resources)
            found[uri] = leads_to.spec.digest if leads_to else None
        return found


def _addressed(uri: str, specs: Mapping[str, ToolSpec]) -> Addressed | None:
    """What an address leads to among tools or resources; fixed ones come before templates."""
    if documents.is_page(uri):
        page = specs.get(documents.tool_name(uri))
        return Addressed(page, {}) if page and page.role is Role.TOOL else None
    templates = []
    for spec in specs.values():
        assert spec.uri is not None
        if uri_places(spec.uri):
            templates.append(spec)
        elif spec.uri == uri:
            return Addressed(spec, {})
    for spec in templates:
        assert spec.uri is not None
        arguments = uri_values(spec.uri, uri)
        if arguments is not None:
            return Addressed(spec, arguments)
    return None


def _not_found(uri: str, request: Request[Any]) -> MCPError:
    """That nothing stands at an address, in the code of the client's era."""
    code = INVALID_PARAMS if request.is_modern else _NOT_FOUND
    return MCPError(code, "Resource not found", {"uri": uri})


def _listed(spec: ToolSpec) -> dict[str, Any]:
    kind = {"mimeType": spec.mime_type} if spec.mime_type else {}
    return {"name": spec.name, **described(spec), **kind}


def _contents(uri: str, spec: ToolSpec, result: Result) -> list[dict[str, Any]]:
    value, found = result.value, []
    if isinstance(value, str):
        kind = spec.mime_type or "text/plain"
        found.append({"uri": uri, "mimeType": kind, "text": value})
    elif value is not None or not result.files:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        found.append({"uri": uri, "mimeType": spec.mime_type or "application/json", "text": text})
    for file in result.files:
        guessed = guess_type(file.name)[0] or "application/octet-stream"
        kind = spec.mime_type if file.name == _RETURNED and spec.mime_type else guessed
        found.append({"uri": uri, "mimeType": kind, "blob": b64encode(file.data).decode()})
    return found
