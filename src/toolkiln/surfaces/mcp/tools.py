"""`tools/list`: the tools that a caller sees, in pages.

`operations.listed_tools` decides which tools of a large catalog are listed; some built-in ones
are always listed. The list is the same for all connections of a caller, and its order is stable.
"""

import json
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from functools import cached_property
from hashlib import sha256
from operator import itemgetter
from typing import Any

from toolkiln.appearance import svg
from toolkiln.errors import InputError, UnknownTool
from toolkiln.kiln import Kiln
from toolkiln.model.spec import BUILTIN_NAMES, Role, ToolSpec
from toolkiln.operations.library import listed_tools
from toolkiln.schema.providers import compile_tool
from toolkiln.schema.providers.mcp import result_structurer
from toolkiln.surfaces.mcp.requests import invalid_params

_PORTABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LOOKS_GENERATED = re.compile(r".*_[0-9a-f]{12}")
_MAX_NAME_LENGTH = 40


def wire_name(name: str) -> str:
    """Return the name of a tool for clients, which accept fewer characters."""
    if _PORTABLE.fullmatch(name) and not _LOOKS_GENERATED.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    stem = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    stem = stem if stem[:1].isalpha() else f"tool_{stem}"
    return f"{stem[: _MAX_NAME_LENGTH - len(digest) - 1].rstrip('_')}_{digest}"


def originals(names: Iterable[str]) -> dict[str, str]:
    """Return the tool names by wire name, for names that differ."""
    return {wire: name for name in names if (wire := wire_name(name)) != name}


_MAX_DESCRIPTION = 1_000
"""Characters; some clients truncate longer descriptions."""
_ORIGINAL = "toolkiln/name"
_ICON = "toolkiln/icon"
DEV = "toolkiln/dev"
"""Set in `_meta` of tools and results whose version is not admitted."""
_SVG = "image/svg+xml"
_GREY = "#808080"
"""Replaces `currentColor`: visible on light and dark backgrounds."""


class McpTool:
    """A tool as a `tools/list` entry."""

    def __init__(self, spec: ToolSpec, compiled: dict[str, Any], *, dev: bool) -> None:
        """`compiled` is the compiler's payload; `dev`: the version is not admitted."""
        self.spec = spec
        self.dev = dev
        self.payload = _payload(spec, compiled, dev=dev)

    @cached_property
    def payload_with_icon(self) -> dict[str, Any]:
        """The payload with the icon's image, if the tool has one."""
        fields = icons(self.spec)
        return {**self.payload, **fields} if fields else self.payload

    @property
    def has_output_schema(self) -> bool:
        """Whether results must match an output schema."""
        return "outputSchema" in self.payload

    @cached_property
    def schema_with_headers(self) -> dict[str, Any] | None:
        """The input schema if some arguments are also sent as headers, else None."""
        schema: dict[str, Any] = self.payload["inputSchema"]
        return schema if "x-mcp-header" in json.dumps(schema) else None

    @cached_property
    def structured(self) -> Callable[[Any], dict[str, Any] | None]:
        """Converts a result to structured content; None if it does not match the schema."""
        return result_structurer(self.spec, self.payload.get("outputSchema"))


def icons(spec: ToolSpec) -> dict[str, Any]:
    """Return the `icons` field of a list entry; empty if the tool has no image."""
    image = svg(spec.icon, spec.color) if spec.icon else None
    return {"icons": [_icon(image)]} if image else {}


def _payload(spec: ToolSpec, compiled: dict[str, Any], *, dev: bool) -> dict[str, Any]:
    payload = dict(compiled)
    hints = payload.get("annotations", {})
    is_read_only = hints.get("readOnlyHint", False)
    # Spell out the protocol's defaults: not every client knows them.
    payload["annotations"] = {
        "title": spec.display_name,
        "readOnlyHint": is_read_only,
        "destructiveHint": hints.get("destructiveHint", not is_read_only),
        "idempotentHint": hints.get("idempotentHint", False),
        "openWorldHint": hints.get("openWorldHint", True),
    }
    payload["description"] = _description(spec)
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


def _icon(image: str) -> dict[str, Any]:
    """Return an image as a data URI: not every client can reach a URL of this server."""
    data = b64encode(image.replace("currentColor", _GREY).encode()).decode()
    return {"src": f"data:{_SVG};base64,{data}", "mimeType": _SVG, "sizes": ["any"]}


def _description(spec: ToolSpec) -> str:
    text = spec.description
    if len(text) <= _MAX_DESCRIPTION:
        return text
    more = f"\n\nMore: the resource toolkiln://tools/{spec.name}, or rag_search."
    room = _MAX_DESCRIPTION - len(more)
    end = max(text.rfind("\n\n", 0, room), text.rfind(". ", 0, room) + 1)
    return text[: end if end > room // 2 else room].rstrip() + more


def served_specs(kiln: Kiln) -> dict[str, ToolSpec]:
    """Return the specs of all roles, for all callers; none if nothing is served yet."""
    try:
        return kiln.services.registry.specs
    except InputError:  # nothing is served yet
        return {}


TOOLS_PAGE_SIZE = 200
MAX_TOOLS_WITH_ICONS = 100
"""Longer lists omit the images, which take half a kilobyte each."""
_ALWAYS_LISTED = ("rag_search", "read_output", "check_task", "await_task", "cancel_task")
_MAX_CACHED_SESSIONS = 1_000

SortKey = tuple[int, int, str]
"""Orders tools: built-in ones last, then by weight, then by name."""
_Entries = list[tuple[SortKey, dict[str, Any]]]


class ToolListing:
    """The tool lists of one Kiln, cached per session."""

    def __init__(self, kiln: Kiln) -> None:
        self._kiln = kiln
        self._lists: dict[str, tuple[object, object, _Entries]] = {}
        """By session, with the tools and rules that each list was built from."""
        self._tools: dict[str, McpTool] = {}
        self._originals: tuple[object, dict[str, str]] = (None, {})

    def page(self, session: str, cursor: str | None) -> dict[str, Any]:
        """Return the tools after a cursor, and the next cursor if there are more."""
        entries = self._entries(session)
        if cursor is not None:
            after = _decode_cursor(cursor)
            entries = [entry for entry in entries if entry[0] > after]
        page: dict[str, Any] = {"tools": [tool for _, tool in entries[:TOOLS_PAGE_SIZE]]}
        if len(entries) > TOOLS_PAGE_SIZE:
            page["nextCursor"] = _encode_cursor(entries[TOOLS_PAGE_SIZE - 1][0])
        return page

    def _original_name(self, name: str) -> str:
        specs = served_specs(self._kiln)
        if name in specs:
            return name
        if self._originals[0] is not specs:
            self._originals = specs, originals(specs)
        return self._originals[1].get(name, name)

    def resolve(self, name: str, session: str) -> str:
        """Return the tool that a client means by a name.

        Raises:
            MCPError: the name is that of a prompt or resource; reported as an unknown tool.
        """
        original = self._original_name(name)
        spec = served_specs(self._kiln).get(original)
        if spec is not None and spec.role is not Role.TOOL:
            error = UnknownTool(name, self._kiln.specs(session))
            raise invalid_params(f"Unknown tool: {error.message}", error.hint)
        return original

    def mcp_tool(self, spec: ToolSpec) -> McpTool:
        """Return the list entry of a tool, cached until the tool changes."""
        tool, dev = self._tools.get(spec.name), self._kiln.services.registry.is_dev(spec.name)
        if tool is None or tool.spec is not spec or tool.dev is not dev:
            payload = compile_tool(spec, "mcp").payload
            tool = self._tools[spec.name] = McpTool(spec, payload, dev=dev)
        return tool

    def schema_with_headers(self, name: str, session: str) -> dict[str, Any] | None:
        """Return the input schema of a tool if some arguments are also sent as headers."""
        spec = served_specs(self._kiln).get(self._original_name(name))
        if spec is None or not self._kiln.security.may_see(session)(spec):
            return None
        return self.mcp_tool(spec).schema_with_headers

    def _entries(self, session: str) -> _Entries:
        specs, rules = served_specs(self._kiln), self._kiln.security.live.rules()
        cached = self._lists.get(session)
        if cached is not None and cached[0] is specs and cached[1] is rules:
            return cached[2]
        if len(self._lists) >= _MAX_CACHED_SESSIONS:
            self._lists.clear()
        listed = listed_tools(self._kiln.services, session) if specs else []
        tools = {spec.name: spec for spec in (*listed, *self._builtin(session))}
        tools_by_key = {_sort_key(spec): self.mcp_tool(spec) for spec in tools.values()}
        has_icons = len(tools_by_key) <= MAX_TOOLS_WITH_ICONS
        entries = [
            (key, tool.payload_with_icon if has_icons else tool.payload)
            for key, tool in sorted(tools_by_key.items(), key=itemgetter(0))
        ]
        self._lists[session] = specs, rules, entries
        return entries

    def _builtin(self, session: str) -> list[ToolSpec]:
        """Return the built-in tools that are always listed."""
        security, names = self._kiln.security, [*_ALWAYS_LISTED]
        if security.live.current().authoring != "off":
            names.append("write_python_tool")
        may_see = security.may_see(session)
        return [spec for name in names if may_see(spec := self._kiln.tool(name))]


def _sort_key(spec: ToolSpec) -> SortKey:
    return int(spec.name in BUILTIN_NAMES), spec.weight, spec.name


def _encode_cursor(key: SortKey) -> str:
    return urlsafe_b64encode(json.dumps(key).encode()).decode()


def _decode_cursor(cursor: str) -> SortKey:
    try:
        group, weight, name = json.loads(urlsafe_b64decode(cursor.encode()))
        if isinstance(group, int) and isinstance(weight, int) and isinstance(name, str):
            return group, weight, name
    except (ValueError, TypeError, RecursionError):
        pass
    raise InputError("this cursor is not from this server", hint="list from the beginning")


PAGE_SIZE = 500
"""Prompts or resources on one page."""


def paged(names: Iterable[str], cursor: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the names after a cursor, in order, and the next cursor if there are more."""
    rest = sorted(name for name in names if cursor is None or name > cursor)
    next_cursor = {"nextCursor": rest[PAGE_SIZE - 1]} if len(rest) > PAGE_SIZE else {}
    return rest[:PAGE_SIZE], next_cursor
