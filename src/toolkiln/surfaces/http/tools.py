"""`/v1/tools`: the tools that a caller may run. What is done about them is in `writing`.

Who may not see a tool gets the same answer as if there were none.
"""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from toolkiln.app import errands
from toolkiln.model import (
    Grant,
    Health,
    Hints,
    JsonSchema,
    Limits,
    Rights,
    Role,
    ToolSpec,
    Value,
)
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.preconditions import tag
from toolkiln.surfaces.http.shapes import LONGEST_QUERY, Flag, Page

_KIND = "tools"


class ToolSummary(Value):
    """A tool in a list."""

    name: str
    role: Role
    """A `prompt` or a `resource` is no tool to a model, and can be called all the same."""
    uri: str | None
    """The address of a resource, or a template of addresses."""
    title: str
    """For people."""
    description: str
    """The only prose a model reads when it chooses a tool."""
    toolkit: str | None
    """The group that it belongs to."""
    digest: str
    """SHA-256 of its version: what a call or a change can be bound to."""
    is_core: bool
    """Whether it is always offered."""
    is_shown: bool
    """Whether people see it unless they ask for all; hidden tools work all the same."""
    hints: Hints
    """What it says of its effects."""
    parallel: bool
    """Whether it may run beside other calls of a batch."""
    icon: str | None
    color: str | None
    weight: int
    """Lighter ones come first."""
    dev: bool
    """Whether it is served as it is on disk, without an admission."""


class ToolList(Value):
    """A part of the list of tools."""

    items: tuple[ToolSummary, ...]
    next_cursor: str | None
    hidden: int
    """How many there are besides that are not shown to people."""


class ToolDetails(ToolSummary):
    """All that is known of a tool, but for its source."""

    enabled: bool
    parameters: JsonSchema
    """JSON Schema 2020-12 of the arguments, always an object."""
    returns: JsonSchema | None
    """JSON Schema of what it gives, where the source says."""
    documentation: str
    """The long form, as Markdown."""
    limits: Limits
    rights: Rights
    """What it asks for; nothing is granted by being asked for."""
    granted: Grant | None
    """What it was granted; null for tools that come with the server."""
    reviewed: bool
    """Whether a person with ADMIN admitted this version; others have no grants and no settings."""
    requirements: tuple[str, ...]
    settings: tuple[str, ...]
    """Whose settings it reads: `operator`, `user`."""
    health: Health
    """Whether models can be held to its parameters."""
    version: int | None
    """Its number in the history of its file; null for tools that come with the server, and in
    front of a fleet, where `versions` tells it."""
    file: str | None
    """Relative to the tools' folder."""


class ToolsQuery(Page):
    """Which tools."""

    q: Annotated[str | None, Field(min_length=1, max_length=LONGEST_QUERY)] = None
    """What they are to do: those that fit best, best first, in one part."""
    role: Role | None = None
    """With `q` there are tools only."""
    toolkit: str | None = None
    read_only: Flag | None = None
    """Whether they say of themselves that they change nothing."""
    core: Flag | None = None
    all: Flag = False
    """With those that people are not shown."""
    enabled: Flag = True
    """False lists those that are switched off; that takes ADMIN."""


async def list_tools(visit: Visit, query: ToolsQuery) -> ToolList:
    """Those that the caller may run."""
    off: tuple[ToolSpec, ...] = ()
    if not query.enabled:
        off = await visit.kiln.tend(errands.ListDisabled(), visit.session)
    return await asyncio.to_thread(_listed, visit, query, off)


def _listed(visit: Visit, query: ToolsQuery, off: tuple[ToolSpec, ...]) -> ToolList:
    if query.enabled:
        specs = visit.kiln.visible(visit.session, None)
    else:
        specs = {spec.name: spec for spec in off}
    fitting = [spec for spec in specs.values() if _fits(spec, query)]
    if query.q is not None:
        names = {spec.name for spec in fitting}
        answer = visit.kiln.search(query.q, len(specs) or 1, visit.session)
        fitting = [specs[hit.key] for hit in answer if hit.key in names]
    shown = [spec for spec in fitting if query.all or spec.is_shown]
    following = None
    if query.q is not None and query.cursor is not None:
        raise cursors.refused()
    if query.q is None:
        if query.cursor is not None:
            last = tuple(cursors.read(_KIND, query.cursor, int, str))
            shown = [spec for spec in shown if (spec.weight, spec.name) > last]
        if len(shown) > query.limit:
            end = shown[query.limit - 1]
            following = cursors.made(_KIND, end.weight, end.name)
    return ToolList(
        items=tuple(_summary(visit, spec) for spec in shown[: query.limit]),
        next_cursor=following,
        hidden=0 if query.all else sum(not spec.is_shown for spec in fitting),
    )


def _fits(spec: ToolSpec, query: ToolsQuery) -> bool:
    toolkit = spec.toolkit.name if spec.toolkit else None
    return (
        query.role in (None, spec.role)
        and (query.toolkit is None or toolkit == query.toolkit)
        and (query.read_only is None or bool(spec.hints.read_only) == query.read_only)
        and (query.core is None or spec.cannot_be_disabled == query.core)
    )


def _summary(visit: Visit, spec: ToolSpec) -> ToolSummary:
    return ToolSummary(**_summary_fields(spec), dev=visit.kiln.is_dev(spec.name))


def _summary_fields(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "role": spec.role,
        "uri": spec.uri,
        "title": spec.display_name,
        "description": spec.description,
        "toolkit": spec.toolkit.name if spec.toolkit else None,
        "digest": spec.digest,
        "is_core": spec.cannot_be_disabled,
        "is_shown": spec.is_shown,
        "hints": spec.hints,
        "parallel": spec.parallel,
        "icon": spec.icon,
        "color": spec.color,
        "weight": spec.weight,
    }


async def get_tool(visit: Visit) -> Answer:
    """One tool."""
    standing = await visit.kiln.tend(errands.Look(name=visit.path["name"]), visit.session)
    found = await asyncio.to_thread(details, visit, standing)
    return Answer(found, headers={"etag": tag(found.digest)})


def details(visit: Visit, standing: errands.Standing) -> ToolDetails:
    """What clients are told of a tool."""
    spec = standing.spec
    return ToolDetails(
        **_summary_fields(spec),
        dev=standing.dev,
        enabled=standing.enabled,
        parameters=spec.parameters,
        returns=spec.returns,
        documentation=spec.detailed_description(),
        limits=spec.limits,
        rights=spec.rights,
        granted=standing.granted,
        reviewed=standing.reviewed,
        requirements=spec.requirements,
        settings=tuple(sorted(spec.settings)),
        health=visit.kiln.health(spec),
        version=standing.version,
        file=standing.file,
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/tools",
        name="list_tools",
        summary="List the tools that the caller may run",
        description="By weight, then name. With `q` the tools that fit best, best first.",
        handle=list_tools,
        group="tools",
        query=ToolsQuery,
        answers={200: ToolList},
    ),
    Operation(
        method="GET",
        path="/v1/tools/{name}",
        name="get_tool",
        summary="Get all that is known of a tool",
        handle=get_tool,
        group="tools",
        answers={200: ToolDetails},
    ),
)
