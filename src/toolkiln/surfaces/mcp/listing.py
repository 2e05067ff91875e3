"""`tools/list`: which tools a caller is shown, and in which form.

A small catalog is shown whole. Above the setting `mcp_tools` only core tools are, with
those that find, describe and call the others. The list is the same for every connection
of a caller, in an order that does not change by itself.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

from toolkiln.app import Kiln, structuring
from toolkiln.errors import InputError
from toolkiln.model import Privilege, ToolSpec
from toolkiln.surfaces.mcp.names import originals, wire_name

PAGE = 200
"""Tools on one page of the list."""
_ALWAYS = ("rag_search", "read_output", "check_task", "await_task", "cancel_task")
_FINDING = ("search_tools", "describe_tool", "call_tool")
_MOST_CALLERS = 1_000
_LONGEST = 1_000
"""Characters of a description that every client passes on."""
_ORIGINAL = "toolkiln/name"
_ICON = "toolkiln/icon"

Key = tuple[int, int, str]
"""The place of a tool in the order: own ones last, then by weight, then by name."""


class Listing:
    """The tools of one Kiln as its callers are shown them."""

    def __init__(self, kiln: Kiln) -> None:
        self._kiln = kiln
        self._shown: dict[str, tuple[object, object, list[tuple[Key, dict[str, Any]]]]] = {}
        """By session, with the tools and the rules that it was made from."""
        self._payloads: dict[str, tuple[ToolSpec, dict[str, Any]]] = {}
        self._forms: dict[str, tuple[ToolSpec, Callable[[Any], dict[str, Any] | None]]] = {}
        self._headers: dict[str, tuple[ToolSpec, bool]] = {}
        self._originals: tuple[object, dict[str, str]] = (None, {})

    def page(self, session: str, cursor: str | None) -> dict[str, Any]:
        """The tools after a cursor, and the next cursor if there are more.

        Raises:
            InputError: the cursor is none of ours.
        """
        shown = self._of(session)
        if cursor is not None:
            after = _read(cursor)
            shown = [item for item in shown if item[0] > after]
        page: dict[str, Any] = {"tools": [tool for _, tool in shown[:PAGE]]}
        if len(shown) > PAGE:
            page["nextCursor"] = _written(shown[PAGE - 1][0])
        return page

    def original(self, name: str) -> str:
        """The tool that a client means."""
        specs = self._specs()
        if name in specs:
            return name
        if self._originals[0] is not specs:
            self._originals = specs, originals(specs)
        return self._originals[1].get(name, name)

    def payload(self, spec: ToolSpec) -> dict[str, Any]:
        """A tool as clients see it."""
        known = self._payloads.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._payloads[spec.name] = spec, self._made(spec)
        return known[1]

    def schema_with_headers(self, name: str) -> dict[str, Any] | None:
        """The schema of a tool some of whose arguments travel as headers too; None of others."""
        spec = self._specs().get(self.original(name))
        if spec is None:
            return None
        schema: dict[str, Any] = self.payload(spec)["inputSchema"]
        known = self._headers.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._headers[spec.name] = spec, "x-mcp-header" in json.dumps(schema)
        return schema if known[1] else None

    def structured(self, spec: ToolSpec, value: Any) -> dict[str, Any] | None:
        """A result in the form that the tool's output schema has; None if it does not fit."""
        known = self._forms.get(spec.name)
        if known is None or known[0] is not spec:
            form = structuring(spec, self.payload(spec).get("outputSchema"))
            known = self._forms[spec.name] = spec, form
        return known[1](value)

    def _specs(self) -> Mapping[str, ToolSpec]:
        try:
            return self._kiln.specs
        except InputError:  # nothing is served yet, which is no reason to refuse the rest
            return {}

    def _of(self, session: str) -> list[tuple[Key, dict[str, Any]]]:
        specs, rules = self._specs(), self._kiln.guarding.live.rules()
        known = self._shown.get(session)
        if known is not None and known[0] is specs and known[1] is rules:
            return known[2]
        if len(self._shown) >= _MOST_CALLERS:
            self._shown.clear()
        shown = self._make(session, specs)
        self._shown[session] = specs, rules, shown
        return shown

    def _make(
        self, session: str, specs: Mapping[str, ToolSpec]
    ) -> list[tuple[Key, dict[str, Any]]]:
        guarding = self._kiln.guarding
        may_see, settings = guarding.may_see(session), guarding.live.current()
        visible = [spec for spec in specs.values() if may_see(spec)]
        own = [*_ALWAYS]
        if len(visible) > self._kiln.settings.mcp_tools:
            visible = [spec for spec in visible if spec.cannot_be_disabled]
            own += _FINDING
        is_author = Privilege.WRITE_TOOLS in guarding.caller(session).privileges
        if is_author and settings.authoring != "off":
            own.append("write_python_tool")
        found = [((0, spec.weight, spec.name), self.payload(spec)) for spec in visible]
        for name in sorted(own):
            spec = self._kiln.tool(name)
            if may_see(spec):
                found.append(((1, spec.weight, name), self.payload(spec)))
        return sorted(found, key=lambda item: item[0])

    def _made(self, spec: ToolSpec) -> dict[str, Any]:
        payload = dict(self._kiln.compiled(spec, "mcp").payload)
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
        meta = {}
        if payload["name"] != spec.name:
            meta[_ORIGINAL] = spec.name
        if spec.icon:
            meta[_ICON] = spec.icon
        if meta:
            payload["_meta"] = meta
        return payload


def _described(spec: ToolSpec) -> str:
    """A description that says what matters within what every client passes on."""
    text = spec.description
    if len(text) <= _LONGEST:
        return text
    more = f"\n\nMore: the resource toolkiln://tools/{spec.name}, or describe_tool."
    room = _LONGEST - len(more)
    end = max(text.rfind("\n\n", 0, room), text.rfind(". ", 0, room) + 1)
    return text[: end if end > room // 2 else room].rstrip() + more


def _written(key: Key) -> str:
    return urlsafe_b64encode(json.dumps(key).encode()).decode()


def _read(cursor: str) -> Key:
    try:
        group, weight, name = json.loads(urlsafe_b64decode(cursor.encode()))
        if isinstance(group, int) and isinstance(weight, int) and isinstance(name, str):
            return group, weight, name
    except (ValueError, TypeError, RecursionError):
        pass
    raise InputError("this cursor is none of this server's", hint="list from the beginning")
