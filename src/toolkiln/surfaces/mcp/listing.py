"""`tools/list`: which tools a caller is shown, in pages.

Which of a large catalog are shown is decided by `Kiln.at_hand`; some of Toolkiln's own
come on top. The list is the same for every connection of a caller, in an order that does
not change by itself. How one tool is shown is in `cards`.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolkiln.app import BUILTIN_NAMES, Kiln
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import Role, ToolSpec
from toolkiln.surfaces.mcp.cards import Card
from toolkiln.surfaces.mcp.names import originals

PAGE = 200
"""Tools on one page of the list."""
ILLUSTRATED = 100
"""Tools of a list that has drawings of their icons: half a kilobyte each."""
_ALWAYS = ("rag_search", "read_output", "check_task", "await_task", "cancel_task")
_AUTHORING = "write_python_tool"
_MOST_CALLERS = 1_000

Key = tuple[int, int, str]
"""The place of a tool in the order: own ones last, then by weight, then by name."""
_Shown = list[tuple[Key, dict[str, Any]]]


class Listing:
    """The tools of one Kiln as its callers are shown them."""

    def __init__(self, kiln: Kiln) -> None:
        self._kiln = kiln
        self._shown: dict[str, tuple[object, object, _Shown]] = {}
        """By session, with the tools and the rules that it was made from."""
        self._cards: dict[str, Card] = {}
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

    def called(self, name: str, session: str) -> str:
        """The tool that a client calls.

        Raises:
            MCPError: it is a prompt or a resource, which is as if there were nothing.
        """
        meant = self.original(name)
        spec = self._specs().get(meant)
        if spec is not None and spec.role is not Role.TOOL:
            error = UnknownTool(name, self._kiln.visible(session))
            hint = {"hint": error.hint} if error.hint else None
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {error.message}", hint)
        return meant

    def card(self, spec: ToolSpec) -> Card:
        """A tool as clients see it."""
        known, dev = self._cards.get(spec.name), self._kiln.is_dev(spec.name)
        if known is None or known.spec is not spec or known.dev is not dev:
            payload = self._kiln.compiled(spec, "mcp").payload
            known = self._cards[spec.name] = Card(spec, payload, dev=dev)
        return known

    def schema_with_headers(self, name: str, session: str) -> dict[str, Any] | None:
        """The schema of a tool some of whose arguments travel as headers too; None of others."""
        spec = self._specs().get(self.original(name))
        if spec is None or not self._kiln.guarding.may_see(session)(spec):
            return None
        return self.card(spec).schema_with_headers

    def _specs(self) -> Mapping[str, ToolSpec]:
        try:
            return self._kiln.specs
        except InputError:  # nothing is served yet, which is no reason to refuse the rest
            return {}

    def _of(self, session: str) -> _Shown:
        specs, rules = self._specs(), self._kiln.guarding.live.rules()
        known = self._shown.get(session)
        if known is not None and known[0] is specs and known[1] is rules:
            return known[2]
        if len(self._shown) >= _MOST_CALLERS:
            self._shown.clear()
        at_hand = self._kiln.at_hand(session) if specs else []
        tools = {spec.name: spec for spec in (*at_hand, *self._own(session))}
        cards = {_key(spec): self.card(spec) for spec in tools.values()}
        has_icons = len(cards) <= ILLUSTRATED
        shown = [
            (key, card.illustrated if has_icons else card.payload)
            for key, card in sorted(cards.items(), key=itemgetter(0))
        ]
        self._shown[session] = specs, rules, shown
        return shown

    def _own(self, session: str) -> list[ToolSpec]:
        """The tools of Toolkiln's that are shown however few there are of others."""
        guarding, names = self._kiln.guarding, [*_ALWAYS]
        if guarding.live.current().authoring != "off":
            names.append(_AUTHORING)
        may_see = guarding.may_see(session)
        return [spec for name in names if may_see(spec := self._kiln.tool(name))]


def _key(spec: ToolSpec) -> Key:
    return int(spec.name in BUILTIN_NAMES), spec.weight, spec.name


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
