"""Tool operations: list, show, update and remove tools; `tool_files` writes them.

Those with `routing="worker"` run where the tool files are; their inputs and outputs are the
wire format of the fleet. The others build what surfaces show from them.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from toolkiln.appearance import paint
from toolkiln.catalog.manifest import ManifestError
from toolkiln.catalog.registry import NotAdmitted, Specs
from toolkiln.catalog.snapshots import refused_tools
from toolkiln.errors import (
    EditConflict,
    InputError,
    InvalidCursor,
    StaleVersion,
    UnknownTool,
    refuse_outdated,
)
from toolkiln.model.base import Value
from toolkiln.model.call import Grant
from toolkiln.model.catalog import ServedVersion
from toolkiln.model.identity import Privilege
from toolkiln.model.source import Finding
from toolkiln.model.spec import Role, ToolSpec
from toolkiln.model.tool import FormLoss, Tool, ToolPresentation, ToolSummary
from toolkiln.operations.operation import (
    Flag,
    OperationContext,
    PageQuery,
    decode_cursor,
    encode_cursor,
    operation,
)
from toolkiln.operations.policy import refuse_hidden
from toolkiln.schema.examples import example_calls
from toolkiln.schema.providers import PROVIDERS, compile_tool
from toolkiln.schema.providers.compilers import health
from toolkiln.security.sessions import LOCAL_OPERATOR

if TYPE_CHECKING:
    from toolkiln.operations.services import Services


Match = tuple[str, ...] | None
"""Digests of the versions that a request may change, `*` for any; None: whichever is served."""


class ToolName(Value):
    """Names a tool."""

    name: str


class ToolState(Value):
    """A tool's current state. `file`, `version` and `granted` are null unless it has a file."""

    spec: ToolSpec
    enabled: bool = True
    """Whether it can be called."""
    file: str | None = None
    """Relative to the tools folder."""
    version: int | None = None
    """Its number in the history of its file; a front of a fleet does not know it."""
    dev: bool = False
    """Whether `dev` serves it without an admission."""
    granted: Grant | None = None
    reviewed: bool = True
    """Whether a person with ADMIN admitted the version; others have no grants and no settings."""


class ListUnserved(Value):
    """Asks for all tools of a kind."""

    name: str = ""


class ChangeTool(Value):
    """Enables or disables a tool, or grants what it requests; omitted fields stay."""

    name: str
    enabled: bool | None = None
    """Whether it can be called."""
    granted: Literal[True] | None = None
    """Grants all permissions that the tools of its file request, now and in later versions."""
    match: Match = None


class RemoveTool(Value):
    """Removes a tool with its file."""

    name: str
    with_others: bool = False
    """Whether other tools of the same file may be removed with it."""
    match: Match = None


class DeleteTool(Value):
    """Removes a tool with its file, over HTTP."""

    name: str
    others: Flag = False
    """Whether other tools of the same file may be removed with it."""
    match: Match = None


class RemovedFile(Value):
    """A file that was removed; `rollback` to its version restores it."""

    tools: tuple[str, ...]
    file: str
    digest: str
    version: int


class ToolQuery(PageQuery):
    """Selects tools."""

    q: Annotated[str | None, Field(min_length=1, max_length=2_000)] = None
    """A search query: the tools that match best, best first, on one page."""
    role: Role | None = None
    """With `q` there are tools only."""
    toolkit: str | None = None
    read_only: Flag | None = None
    """Whether they declare that they change nothing."""
    core: Flag | None = None
    all: Flag = False
    """Whether to include tools that are hidden from people."""
    enabled: Flag = True
    """False lists disabled tools and requires ADMIN."""


class ToolList(Value):
    """A page of tools."""

    items: tuple[ToolSummary, ...]
    next_cursor: str | None
    hidden: int
    """How many more there are that are hidden from people."""


class ServedFile(Value):
    """The file that serves a tool."""

    file: str
    """Relative to the tools folder."""
    digest: str
    tools: tuple[str, ...]


class ShowTool(Value):
    """Names a tool, and a provider whose format it is to be shown in."""

    name: str
    provider: str | None = None


class ShownTool(Value):
    """A tool for the command line."""

    spec: ToolSpec
    dev: bool = False
    """Whether `dev` serves it without an admission."""
    unserved: tuple[str, str | None] | None = None
    """Why it is not served, and a hint, if the spec is that of the file on disk."""
    payload: Any = None
    """Its entry in a request to the provider."""
    losses: tuple[FormLoss, ...] = ()
    errors: tuple[str, ...] = ()
    """Why the provider would reject it."""


@operation("tools.list", read_only=True)
async def list_tools(context: OperationContext, request: ToolQuery) -> ToolList:
    """Return a page of the tools that the caller may run."""
    from asyncio import to_thread

    disabled = () if request.enabled else await context.run(list_disabled, ListUnserved())
    return await to_thread(_list, context, request, disabled)


def _list(
    context: OperationContext, request: ToolQuery, disabled: tuple[ToolSpec, ...]
) -> ToolList:
    services = context.services
    specs = {spec.name: spec for spec in disabled}
    if request.enabled:
        specs = dict(services.visible(context.session, None))
    matches = [spec for spec in specs.values() if _matches(spec, request)]
    if request.q is not None:
        names = {spec.name for spec in matches}
        allow = services.may_see(context.session)
        hits = services.library.search(request.q, len(specs) or 1, allow)
        matches = [specs[hit.key] for hit in hits if hit.key in names]
    shown = [spec for spec in matches if request.all or spec.is_shown]
    following = None
    if request.q is not None and request.cursor is not None:
        raise InvalidCursor
    if request.q is None:
        if request.cursor is not None:
            last = tuple(decode_cursor("tools", request.cursor, int, str))
            shown = [spec for spec in shown if (spec.weight, spec.name) > last]
        if len(shown) > request.limit:
            end = shown[request.limit - 1]
            following = encode_cursor("tools", end.weight, end.name)
    registry = services.registry
    return ToolList(
        items=tuple(
            ToolSummary(**_summary(spec), dev=registry.is_dev(spec.name))
            for spec in shown[: request.limit]
        ),
        next_cursor=following,
        hidden=0 if request.all else sum(not spec.is_shown for spec in matches),
    )


def _matches(spec: ToolSpec, query: ToolQuery) -> bool:
    toolkit = spec.toolkit.name if spec.toolkit else None
    return (
        query.role in (None, spec.role)
        and (query.toolkit is None or toolkit == query.toolkit)
        and (query.read_only is None or bool(spec.hints.read_only) == query.read_only)
        and (query.core is None or spec.cannot_be_disabled == query.core)
    )


@operation("tools.get", read_only=True)
async def get_tool(context: OperationContext, request: ToolName) -> Tool:
    """Return a tool; a disabled one requires ADMIN."""
    from asyncio import to_thread

    return await to_thread(_tool, await context.run(tool_state, request))


def _tool(state: ToolState) -> Tool:
    spec = state.spec
    return Tool(
        **_summary(spec),
        dev=state.dev,
        enabled=state.enabled,
        parameters=spec.parameters,
        returns=spec.returns,
        documentation=spec.detailed_description(),
        limits=spec.limits,
        rights=spec.rights,
        granted=state.granted,
        reviewed=state.reviewed,
        requirements=spec.requirements,
        settings=tuple(sorted(spec.settings)),
        health=health(spec.parameters),
        version=state.version,
        file=state.file,
    )


def _summary(spec: ToolSpec) -> dict[str, Any]:
    return {
        "id": spec.id,
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
        "metadata": spec.metadata,
    }


@operation("tools.present", read_only=True)
async def present_tool(context: OperationContext, request: ToolName) -> ToolPresentation:
    """Return a tool as people and providers see it."""
    from asyncio import to_thread

    state = await context.run(tool_state, request)
    return await to_thread(_presentation, context.services, state.spec)


def _presentation(services: "Services", spec: ToolSpec) -> ToolPresentation:
    from toolkiln.docs.pages import page as page_of_tool
    from toolkiln.operations.library import provider_form

    try:
        page = services.library.page(spec.name)
    except InputError:  # it is disabled
        page = page_of_tool(spec)
    color = spec.color or (spec.toolkit.color if spec.toolkit else None)
    return ToolPresentation(
        color=paint(color) if color else None,
        page=page,
        forms=tuple(provider_form(spec, provider) for provider in PROVIDERS),
        examples=example_calls(spec),
        findings=_findings(services, spec),
    )


def _findings(services: "Services", spec: ToolSpec) -> tuple[Finding, ...]:
    served = services.registry.snapshot.served.get(spec.name)
    if served is None or served.read.digest != spec.digest:
        return ()
    reading = served.reading
    own = (one for one in reading.findings if one.tool in (None, spec.name))
    return (*own, *refused_tools(served.refused, reading))


@operation("tools.show", read_only=True)
def show_tool(context: OperationContext, request: ShowTool) -> ShownTool:
    """Return a tool for the command line; the local operator also sees unadmitted ones."""
    shown = _served_or_on_disk(context, request.name)
    if request.provider is None:
        return shown
    if shown.spec.role is not Role.TOOL:
        raise InputError(
            f"{request.name} is a {shown.spec.role}, which providers do not support",
            hint="leave out --as",
        )
    compiled = compile_tool(shown.spec, request.provider)
    update = {
        "payload": compiled.payload,
        "losses": tuple(FormLoss(**loss._asdict()) for loss in compiled.losses),
        "errors": compiled.errors,
    }
    return shown.model_copy(update=update)


def _served_or_on_disk(context: OperationContext, name: str) -> ShownTool:
    services = context.services
    if context.session is not LOCAL_OPERATOR:
        state = services.run_sync(tool_state, ToolName(name=name), context.session)
        return ShownTool(spec=state.spec, dev=services.registry.is_dev(name))
    try:
        spec = services.registry.spec(name)
    except (ManifestError, NotAdmitted) as error:
        specs = specs_on_disk(services)
        if name not in specs:
            raise UnknownTool(name, specs) from None
        return ShownTool(spec=specs[name], unserved=(error.message, error.hint))
    return ShownTool(spec=spec, dev=services.registry.is_dev(name))


def specs_on_disk(services: "Services") -> Specs:
    """Return the tools that would be served if every file on disk were admitted.

    Raises:
        InputError: there are none.
    """
    versions = services.catalog.folder.everything().values()
    specs = {spec.name: spec for version in versions for spec in version.reading.tools}
    if not specs:
        raise InputError(
            f"there is no tool in {services.path}",
            hint=f"`toolkiln check {services.path}` shows what is wrong with its files",
        )
    return specs


@operation("tools.state", read_only=True, timeout=15.0, routing="worker")
def tool_state(context: OperationContext, request: ToolName) -> ToolState:
    """Return the state of a tool; a disabled one requires ADMIN."""
    return state_of(context.services, visible_tool(context, request.name))


@operation(
    "tools.list_disabled",
    privilege=Privilege.ADMIN,
    act="switch",
    read_only=True,
    timeout=5.0,
    routing="worker",
)
def list_disabled(context: OperationContext, _: ListUnserved) -> tuple[ToolSpec, ...]:
    """Return the tools that are admitted and disabled."""
    snapshot = context.services.registry.snapshot
    disabled = sorted(snapshot.served.keys() - snapshot.tools.keys())
    return tuple(snapshot.served[name].read.tool(name) for name in disabled)


@operation(
    "tools.list_proposed",
    privilege=Privilege.ADMIN,
    act="admit",
    read_only=True,
    timeout=5.0,
    routing="worker",
)
def list_proposed(context: OperationContext, _: ListUnserved) -> tuple[ToolSpec, ...]:
    """Return the tools of versions that wait for a person to admit them."""
    if context.services.path is None:
        return ()
    proposals = context.services.catalog.proposals().values()
    return tuple(spec for read in proposals for spec in read.reading.tools)


@operation("tools.update")
async def update_tool(context: OperationContext, request: ChangeTool) -> Tool:
    """Enable or disable a tool, or grant what it requests; requires ADMIN."""
    return _tool(await context.run(change_tool, request))


@operation("tools.change", privilege=Privilege.ADMIN, act="switch", routing="worker")
def change_tool(context: OperationContext, request: ChangeTool) -> ToolState:
    """Enable or disable a tool, or grant what it requests."""
    services, name = context.services, request.name
    refuse_hidden(services, name, context.session)
    served = served_tool(services, name)
    digest = matching_digest(name, served, request.match)
    if request.granted is not None:
        _grant(context, name, served, digest)
    if request.enabled is not None:
        refuse_outdated(name, served_tool(services, name).read.digest, digest)
        services.admissions.switch(name, request.enabled, context.caller.who)
    return state_of(services, visible_tool(context, name))


def _grant(context: OperationContext, name: str, served: ServedVersion, digest: str | None) -> None:
    admissions = context.services.admissions
    candidate = admissions.candidate(served.file)
    if candidate.read.digest != candidate.base:
        raise EditConflict(
            f"{served.file} has unadmitted changes",
            hint=f"admit and grant them with `toolkiln admit --grant {served.file}`, or grant "
            f"it in [grants.{name}] of toolkiln.toml",
        )
    refuse_outdated(name, candidate.base, digest)
    decision = context.services.security.decision(grant=True, session=context.session)
    admissions.admit([candidate], decision)


@operation("tools.delete")
async def delete_tool(context: OperationContext, request: DeleteTool) -> RemovedFile:
    """Remove a tool's file from the catalog and the disk; requires ADMIN."""
    removal = RemoveTool(name=request.name, with_others=request.others, match=request.match)
    return await context.run(remove_tool, removal)


@operation("tools.file", privilege=Privilege.ADMIN, act="remove", read_only=True)
def get_served_file(context: OperationContext, request: ToolName) -> ServedFile:
    """Return the file that serves a tool of this folder."""
    refuse_hidden(context.services, request.name, context.session)
    served = served_tool(context.services, request.name)
    return ServedFile(file=served.file, digest=served.read.digest, tools=served.read.names)


@operation("tools.remove", privilege=Privilege.ADMIN, act="remove", routing="worker")
def remove_tool(context: OperationContext, request: RemoveTool) -> RemovedFile:
    """Remove a tool's file from the catalog and the disk."""
    services, name = context.services, request.name
    refuse_hidden(services, name, context.session)
    digest = matching_digest(name, served_tool(services, name), request.match)
    removed = services.admissions.remove(
        name, context.caller.who, digest=digest, with_others=request.with_others
    )
    return RemovedFile(
        tools=removed.read.names,
        file=removed.file,
        digest=removed.read.digest,
        version=removed.version or 0,
    )


def visible_tool(context: OperationContext, name: str) -> ToolSpec:
    """Return a tool that the caller may run; with ADMIN also a disabled one.

    Rules do not hide tools from the local operator.

    Raises:
        UnknownTool: there is no such tool for this caller.
    """
    services, session = context.services, context.session
    try:
        spec = services.registry.spec(name)
    except InputError as error:
        if not context.is_admin:
            raise UnknownTool(name, services.visible(session)) from None
        if error.code != "disabled":
            raise
        return services.registry.snapshot.served[name].read.tool(name)
    if session is not LOCAL_OPERATOR and not services.security.may_see(session)(spec):
        raise UnknownTool(name, services.visible(session))
    return spec


def served_tool(services: "Services", name: str) -> ServedVersion:
    """Return the admitted version of a tool, enabled or not.

    Raises:
        UnknownTool: none is admitted.
    """
    served = services.catalog.snapshot.served
    if name not in served:
        raise UnknownTool(name, served)
    return served[name]


def state_of(services: "Services", spec: ToolSpec) -> ToolState:
    """Return the state of a tool."""
    snapshot = services.registry.snapshot
    served = snapshot.served.get(spec.name)
    if served is None or served.read.digest != spec.digest:
        return ToolState(spec=spec)
    return ToolState(
        spec=spec,
        enabled=spec.name in snapshot.tools,
        file=served.file,
        version=served.version,
        dev=served.dev,
        granted=services.registry.grant(spec.name),
        reviewed=served.is_reviewed,
    )


def matching_digest(name: str, served: ServedVersion | None, match: Match) -> str | None:
    """Return the digest of the served version if a request names it; None if it names none.

    Raises:
        StaleVersion: another version is served.
    """
    if match is None:
        return None
    current = served.read.digest if served else None
    if current is None or not {"*", current} & {*match}:
        found = f"{name} is at version {current}" if current else f"there is no tool {name!r}"
        raise StaleVersion(found, hint="look at the current version, then try again")
    return current
