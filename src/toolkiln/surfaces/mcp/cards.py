"""A tool as clients see it: the wire form of its spec, and of what it returns."""

import json
from base64 import b64encode
from collections.abc import Callable
from functools import cached_property
from typing import Any

from toolkiln.app import structuring, svg
from toolkiln.model import ToolSpec
from toolkiln.surfaces.mcp.names import wire_name

_LONGEST = 1_000
"""Characters of a description that every client passes on."""
_ORIGINAL = "toolkiln/name"
_ICON = "toolkiln/icon"
DEV = "toolkiln/dev"
"""In `_meta` of tools and results that are not of an admitted version."""
_SVG = "image/svg+xml"
_GREY = "#808080"
"""Can be seen on light and dark ground; an image does not know the color of the text around it."""


class Card:
    """One version of one tool."""

    def __init__(self, spec: ToolSpec, compiled: dict[str, Any], *, dev: bool) -> None:
        """`compiled` is its form for MCP; `dev`: it is served without an admission."""
        self.spec = spec
        self.dev = dev
        self.payload = _payload(spec, compiled, dev=dev)

    @cached_property
    def illustrated(self) -> dict[str, Any]:
        """The wire form with the drawing of the icon, if it has one."""
        drawn = icons(self.spec)
        return {**self.payload, **drawn} if drawn else self.payload

    @property
    def promises(self) -> bool:
        """Whether results have to have a certain form."""
        return "outputSchema" in self.payload

    @cached_property
    def schema_with_headers(self) -> dict[str, Any] | None:
        """The schema of the arguments, if some of them travel as headers too."""
        schema: dict[str, Any] = self.payload["inputSchema"]
        return schema if "x-mcp-header" in json.dumps(schema) else None

    @cached_property
    def structured(self) -> Callable[[Any], dict[str, Any] | None]:
        """Puts a result into the form that the tool promises; None if it does not fit."""
        return structuring(self.spec, self.payload.get("outputSchema"))


def icons(spec: ToolSpec) -> dict[str, Any]:
    """The drawing of an icon as lists have it, if there is one."""
    drawing = svg(spec.icon, spec.color) if spec.icon else None
    return {"icons": [_icon(drawing)]} if drawing else {}


def _payload(spec: ToolSpec, compiled: dict[str, Any], *, dev: bool) -> dict[str, Any]:
    payload = dict(compiled)
    hints = payload.get("annotations", {})
    is_read_only = hints.get("readOnlyHint", False)
    # The protocol's own defaults, said aloud: not every client knows them.
    payload["annotations"] = {
        "title": spec.display_name,
        "readOnlyHint": is_read_only,
        "destructiveHint": hints.get("destructiveHint", not is_read_only),
        "idempotentHint": hints.get("idempotentHint", False),
        "openWorldHint": hints.get("openWorldHint", True),
    }
    payload["description"] = _described(spec)
    payload["execution"] = {"taskSupport": "optional"}
    payload["name"] = wire_name(spec.name)
    meta: dict[str, Any] = {DEV: True} if dev else {}
    if payload["name"] != spec.name:
        meta[_ORIGINAL] = spec.name
    if spec.icon:
        meta[_ICON] = spec.icon
    if meta:
        payload["_meta"] = meta
    return payload


def _icon(drawing: str) -> dict[str, Any]:
    """A drawing in the list itself: there is no address that each client could load it from."""
    image = b64encode(drawing.replace("currentColor", _GREY).encode()).decode()
    return {"src": f"data:{_SVG};base64,{image}", "mimeType": _SVG, "sizes": ["any"]}


def _described(spec: ToolSpec) -> str:
    """A description that says what matters within what every client passes on."""
    text = spec.description
    if len(text) <= _LONGEST:
        return text
    more = f"\n\nMore: the resource toolkiln://tools/{spec.name}, or rag_search."
    room = _LONGEST - len(more)
    end = max(text.rfind("\n\n", 0, room), text.rfind(". ", 0, room) + 1)
    return text[: end if end > room // 2 else room].rstrip() + more
