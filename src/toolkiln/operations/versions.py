"""Version operations: the history of a tool's file, and rollback to an earlier version."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from toolkiln.errors import EditConflict, InputError
from toolkiln.model.base import Page, Value
from toolkiln.model.catalog import FileState, ServedVersion, Sources, Version
from toolkiln.model.identity import Privilege
from toolkiln.operations.operation import OperationContext, PageQuery, operation, page_of
from toolkiln.operations.policy import inherited, refuse_hidden
from toolkiln.operations.tools import Match, ToolName, matching_digest, visible_tool

_READING = 15.0
_Text = Annotated[str, Field(min_length=1, max_length=64)]


def _as_text(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number and value > 0 else value


VersionRef = Annotated[
    _Text,
    BeforeValidator(_as_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 64},
                {"type": "integer", "minimum": 1},
            ]
        }
    ),
]
"""A version's number, also as an integer, or the beginning of its digest."""


class VersionInfo(Value):
    """One version of a tool's file."""

    version: int
    """Its number in the file's history; 0 if `dev` serves it without an admission."""
    digest: str
    action: str
    """`admit` or `rollback`; `dev` if it was not admitted, or by an earlier Toolkiln."""
    by: str
    at: str
    """UTC, ISO 8601."""
    tools: tuple[str, ...]
    """The tools that it declares."""
    note: str
    served: bool
    """Whether calls run this version."""


class VersionDetails(VersionInfo):
    """A version with its source."""

    sources: dict[str, str]
    """The file, first, its helper modules and its data files, by name."""
    diff: str | None
    """What changed since the version named by `since`."""


class GetVersion(Value):
    """Names a version. One that `dev` serves without an admission is named by its digest."""

    name: str
    version: str
    """Its number, or the beginning of its digest."""
    since: _Text | None = None
    """Another version, to show what changed."""


class Rollback(Value):
    """Names the version to serve again."""

    name: str
    version: VersionRef
    """Its number, or the beginning of its digest."""
    discard: bool = False
    """Whether unadmitted changes on disk are overwritten."""
    match: Match = None


class VersionQuery(PageQuery):
    """Selects a page of a tool's versions."""

    name: str


class VersionHistory(Value):
    """The admitted versions of a tool's file."""

    versions: tuple[Version, ...]
    """Newest first."""
    served: int | None
    """The number of the one that calls run."""


class CompareVersions(Value):
    """Names two versions to compare; without them, the served version and the file on disk."""

    name: str
    old: str | None = None
    new: str | None = None


class VersionDiff(Value):
    """What changed between two versions."""

    diff: str
    inherits: tuple[str, ...] = ()
    """Grants and settings that the file on disk has once it is admitted."""


@operation("versions.page", read_only=True)
async def page_versions(context: OperationContext, request: VersionQuery) -> Page[VersionInfo]:
    """Return a page of the admitted versions of a tool's file, newest first."""
    versions = await context.run(list_versions, ToolName(name=request.name))
    items, following = page_of(
        "versions", versions, lambda item: (float(item.version), ""), request.cursor, request.limit
    )
    return Page(items=tuple(items), next_cursor=following)


@operation("versions.list", read_only=True, timeout=_READING, routing="worker")
def list_versions(context: OperationContext, request: ToolName) -> tuple[VersionInfo, ...]:
    """Return the admitted versions of a tool's file, newest first."""
    _refuse_unseen(context, request.name)
    versions = context.services.admissions.history(request.name)
    return tuple(_info(context, request.name, version) for version in versions)


@operation(
    "versions.get",
    privilege=Privilege.WRITE_TOOLS,
    act="source.show",
    read_only=True,
    timeout=_READING,
    routing="worker",
)
def get_version(context: OperationContext, request: GetVersion) -> VersionDetails:
    """Return one version with its source."""
    _refuse_unseen(context, request.name)
    admissions = context.services.admissions
    served = context.services.catalog.snapshot.served.get(request.name)
    if served and served.dev and request.version == served.read.digest:
        return _unadmitted(served)
    version = admissions.version(request.name, request.version)
    diff = None
    if request.since is not None:
        diff = admissions.diff(request.name, request.since, str(version.number))
    return VersionDetails(
        **_info(context, request.name, version).model_dump(),
        sources=_texts(admissions.sources(version)),
        diff=diff,
    )


@operation("versions.history", read_only=True)
def get_history(context: OperationContext, request: ToolName) -> VersionHistory:
    """Return the admitted versions of a tool's file in this folder."""
    _refuse_unseen(context, request.name)
    versions = context.services.admissions.history(request.name)
    served = context.services.catalog.snapshot.served.get(request.name)
    return VersionHistory(versions=tuple(versions), served=served.version if served else None)


@operation("versions.diff", privilege=Privilege.WRITE_TOOLS, act="source.show", read_only=True)
def compare_versions(context: OperationContext, request: CompareVersions) -> VersionDiff:
    """Compare two versions, or the served version with the file on disk."""
    from toolkiln.catalog.diff import pending_change

    _refuse_unseen(context, request.name)
    services = context.services
    if request.old is not None and request.new is not None:
        return VersionDiff(diff=services.admissions.diff(request.name, request.old, request.new))
    diff = pending_change(services.catalog, request.name)
    return VersionDiff(diff=diff, inherits=_inherited(context, request.name) if diff else ())


def _inherited(context: OperationContext, tool: str) -> tuple[str, ...]:
    services = context.services
    lines: list[str] = []
    for status in services.catalog.statuses():
        candidate = None
        if tool in status.tools and status.state in (FileState.NEW, FileState.CHANGED):
            candidate = services.admissions.candidate(status.file)
        elif tool in status.tools and status.state is FileState.PROPOSED:
            candidate = services.admissions.proposal(status.file)
        lines += map(str, inherited(services, candidate)) if candidate else ()
    return tuple(dict.fromkeys(lines))


@operation("versions.unsaved", privilege=Privilege.ADMIN, act="rollback", read_only=True)
def find_unsaved(context: OperationContext, request: GetVersion) -> Path | None:
    """Return the file whose unadmitted changes a rollback would overwrite."""
    refuse_hidden(context.services, request.name, context.session)
    admissions = context.services.admissions
    return admissions.unsaved(request.name, admissions.version(request.name, request.version))


@operation("versions.restore", privilege=Privilege.ADMIN, act="rollback")
def restore_version(context: OperationContext, request: Rollback) -> Version:
    """Serve an earlier version again, in this folder."""
    return _roll_back(context, request)


@operation("versions.rollback", privilege=Privilege.ADMIN, act="rollback", routing="worker")
def rollback(context: OperationContext, request: Rollback) -> VersionInfo:
    """Serve an earlier version again; this also restores a removed tool."""
    return _info(context, request.name, _roll_back(context, request))


def _roll_back(context: OperationContext, request: Rollback) -> Version:
    services, name = context.services, request.name
    refuse_hidden(services, name, context.session)
    digest = matching_digest(name, services.catalog.snapshot.served.get(name), request.match)
    target = services.admissions.version(name, request.version)
    if not request.discard and (file := services.admissions.unsaved(name, target)):
        raise EditConflict(
            f"{file.name} has unadmitted changes", hint="set `discard` to overwrite them"
        )
    decision = services.security.decision(session=context.session)
    return services.admissions.rollback(name, request.version, decision, digest=digest)


def _refuse_unseen(context: OperationContext, name: str) -> None:
    """Refuse a tool that the caller may not see; with ADMIN also removed tools have a history."""
    try:
        visible_tool(context, name)
    except InputError:
        if not context.is_admin:
            raise


def _info(context: OperationContext, name: str, version: Version) -> VersionInfo:
    served = context.services.catalog.snapshot.served.get(name)
    return VersionInfo(
        version=version.number,
        digest=version.digest,
        action=version.action,
        by=version.by,
        at=version.at,
        tools=version.tools,
        note=version.note,
        served=served is not None and served.version == version.number,
    )


def _unadmitted(served: ServedVersion) -> VersionDetails:
    return VersionDetails(
        version=0,
        digest=served.read.digest,
        action="dev",
        by="",
        at="",
        tools=served.read.names,
        note="",
        served=True,
        sources=_texts(served.sources),
        diff=None,
    )


def _texts(sources: Sources) -> dict[str, str]:
    return {file: _text(file, data) for file, data in sources.items()}


def _text(file: str, data: bytes) -> str:
    """Return a file as text; of a data file that is not text, its size."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        is_code = file.endswith(".py")
        return data.decode("utf-8", "replace") if is_code else f"<{len(data):,} bytes, not text>"
