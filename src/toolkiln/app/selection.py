"""Which tools a model is shown at first, and as what a provider wants of them.

A handful is shown whole. Of a large catalog a model sees the core tools and three of
Toolkiln's own, with which it finds and calls the others.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolkiln import schema
from toolkiln.errors import ToolkilnError, UnknownTool
from toolkiln.model import Role, ToolSpec

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln
    from toolkiln.app.own import SessionToken

FINDERS = ("search_tools", "describe_tool", "call_tool")
"""What a model needs to use tools that it is not shown."""
_log = logging.getLogger(__name__)


def at_hand(kiln: "Kiln", session: "SessionToken") -> list[ToolSpec]:
    """All tools that somebody may run, or if they are too many core ones and the finders.

    Raises:
        NoSession: nobody holds the session.
    """
    visible = kiln.visible(session).values()
    if len(visible) <= kiln.settings.mcp_tools:
        return list(visible)
    core = [spec for spec in visible if spec.cannot_be_disabled]
    may_see = kiln.guarding.may_see(session)
    finders = (kiln.tool(name) for name in FINDERS)
    return [*core, *(spec for spec in finders if may_see(spec))]


def named(kiln: "Kiln", names: Iterable[str], session: "SessionToken") -> list[ToolSpec]:
    """Tools by their names, Toolkiln's own too.

    Raises:
        UnknownTool: there is none of that name, or none that the session's holder may run.
    """
    may_see = kiln.guarding.may_see(session)
    found = []
    for name in names:
        spec = kiln.tool(name)
        if spec.role is not Role.TOOL or not may_see(spec):
            raise UnknownTool(name, kiln.visible(session))
        found.append(spec)
    return found


def refuse_other_roles(kiln: "Kiln", name: str) -> None:
    """Let models call tools, and nothing else.

    Raises:
        UnknownTool: it is a prompt or a resource, which is as if there were nothing.
    """
    try:
        role = kiln.tool(name).role
    except ToolkilnError:  # whoever runs the call says why
        return
    if role is not Role.TOOL:
        raise UnknownTool(name, ())


def compiled(specs: Iterable[ToolSpec], provider: str) -> list[dict[str, Any]]:
    """The `tools` of a request; what the provider would refuse is left out and logged.

    Raises:
        InputError: there is no such provider.
    """
    made = [(spec, schema.compile_tool(spec, provider)) for spec in specs]
    for spec, one in made:
        if one.errors:
            _log.warning("%s is left out for %s: %s", spec.name, provider, "; ".join(one.errors))
    return schema.request_tools(provider, [one for _, one in made if not one.errors])
