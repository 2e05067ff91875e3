"""Resources: the page about each tool that a caller may see, as Markdown."""

import asyncio
from typing import Any
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams, ReadResourceRequestParams

from toolkiln.app import Kiln
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import ToolSpec
from toolkiln.surfaces.mcp.requests import Request

PREFIX = "toolkiln://tools/"
_MARKDOWN = "text/markdown"
_PAGE = 500
_NOT_FOUND = -32002
"""What the handshake era has for a resource that is not there."""


class Documents:
    """The pages of one Kiln."""

    def __init__(self, kiln: Kiln) -> None:
        self._kiln = kiln

    async def list_resources(self, request: Request[PaginatedRequestParams]) -> dict[str, Any]:
        """One resource for each tool, by name; the cursor is the last name of a page."""
        names, cursor = sorted(self._visible(request.session)), request.params.cursor
        if cursor is not None:
            names = [name for name in names if name > cursor]
        found: dict[str, Any] = {"resources": [self._resource(name) for name in names[:_PAGE]]}
        if len(names) > _PAGE:
            found["nextCursor"] = names[_PAGE - 1]
        return found

    async def list_templates(self, _: Request[PaginatedRequestParams]) -> dict[str, Any]:
        """How the address of a page is made."""
        template = {
            "uriTemplate": PREFIX + "{name}",
            "name": "tool",
            "title": "Documentation of a tool",
            "description": "How to use a tool well: parameters, results, examples.",
            "mimeType": _MARKDOWN,
        }
        return {"resourceTemplates": [template]}

    async def read(self, request: Request[ReadResourceRequestParams]) -> dict[str, Any]:
        """A page.

        Raises:
            MCPError: there is none of this address, or not for this caller.
        """
        uri = str(request.params.uri)
        name = unquote(uri.removeprefix(PREFIX))
        if not uri.startswith(PREFIX) or name not in self._visible(request.session):
            code = INVALID_PARAMS if request.is_modern else _NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": uri})
        try:
            text = await asyncio.to_thread(self._kiln.library.page, name)
        except ToolkilnError as error:  # it went in the meantime
            raise MCPError(INVALID_PARAMS, error.message, {"uri": uri}) from error
        return {"contents": [{"uri": uri, "mimeType": _MARKDOWN, "text": text}]}

    def _visible(self, session: str) -> dict[str, ToolSpec]:
        try:
            return self._kiln.visible(session)
        except InputError:  # nothing is served yet
            return {}

    def _resource(self, name: str) -> dict[str, Any]:
        spec = self._kiln.specs[name]
        return {
            "uri": PREFIX + quote(name, safe=""),
            "name": name,
            "title": spec.display_name,
            "description": f"Documentation of the tool {name}",
            "mimeType": _MARKDOWN,
        }
