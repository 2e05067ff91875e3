"""System operations: sandbox, environments, workspaces, settings, fleet, dead letters."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolkiln.config import effective_settings
from toolkiln.errors import InputError
from toolkiln.model.base import Value
from toolkiln.model.identity import Privilege
from toolkiln.model.system import (
    DeadLetter,
    Diagnosis,
    EnvironmentInfo,
    Exported,
    FleetReport,
    FleetStatus,
    WorkerStatus,
    WorkspaceInfo,
)
from toolkiln.operations.operation import Nothing, OperationContext, operation
from toolkiln.operations.tools import ToolName
from toolkiln.security.live_settings import LIVE

if TYPE_CHECKING:
    from toolkiln.operations.services import FleetAdmin


class EnvironmentList(Value):
    """All environments, last used first."""

    items: tuple[EnvironmentInfo, ...]


class PruneEnvironments(Value):
    """Selects unused environments by age."""

    days: Annotated[float, Field(ge=0, le=36_500)]
    """Days since the last use; an environment in use stays."""


class EnvironmentBuild(Value):
    """An installed environment."""

    key: str
    packages: dict[str, str]
    """The version of each package."""


class EnvironmentUpgrade(Value):
    """Newer versions of the packages of a tool."""

    changes: dict[str, tuple[str | None, str | None]]
    """By package: the old and the new version; null if the package is absent."""
    problem: str | None = None
    """Why the old versions stay: an example fails with the new ones."""


class WorkspaceRef(Value):
    """Names the workspace of a session."""

    session: str


class ExportWorkspace(WorkspaceRef):
    """Copies a workspace to a folder."""

    folder: Path


class SettingInfo(Value):
    """One setting."""

    name: str
    value: Any
    """Null if it is hidden."""
    hidden: bool
    """Whether it is set but not shown, because it contains a password."""
    origin: str
    """A file, a variable, `default`, or `program`: an option, or the program that started the
    server."""
    live: bool
    """Whether a change of the file applies without a restart."""


class SettingList(Value):
    """All current settings."""

    version: str
    """Of Toolkiln."""
    file: str | None
    """The settings file, whether it exists or not."""
    items: tuple[SettingInfo, ...]


class FleetView(Value):
    """The fleet, if there is one."""

    state: FleetStatus | None
    """Null: the settings name no Redis."""


class DrainFleet(Value):
    """Selects workers: one by its name, or all of a pool."""

    worker: str = ""
    pool: str = ""


class DeadLetterQuery(Value):
    """Selects the dead letters of a pool; empty: of all pools."""

    pool: str = ""


class DeadLetterRefs(DeadLetterQuery):
    """Selects dead letters by their ids."""

    ids: tuple[str, ...] = ()
    """Empty: all."""


@operation("sandbox.diagnose", privilege=Privilege.ADMIN, act="doctor", read_only=True)
async def diagnose(context: OperationContext, _: Nothing) -> Diagnosis:
    """Try every sandbox mode on this machine."""
    return await context.services.engine.sandboxes.diagnose()


@operation("environments.list", privilege=Privilege.ADMIN, act="environment.list", read_only=True)
async def list_environments(context: OperationContext, _: Nothing) -> EnvironmentList:
    """Return the installed environments."""
    return EnvironmentList(items=tuple(await context.services.engine.environments.entries()))


@operation("environments.prune", privilege=Privilege.ADMIN, act="environment.prune")
async def prune_environments(
    context: OperationContext, request: PruneEnvironments
) -> EnvironmentList:
    """Remove unused environments and return them."""
    from asyncio import to_thread

    services, detail = context.services, f"unused for {request.days:g} days"
    await to_thread(services.security.record, "environment.prune", context.caller, detail=detail)
    removed = await services.engine.environments.prune(timedelta(days=request.days))
    return EnvironmentList(items=tuple(removed))


@operation("environments.build", privilege=Privilege.ADMIN, act="environment.build")
async def build_environment(
    context: OperationContext, request: ToolName
) -> EnvironmentBuild | None:
    """Install the packages of a tool before its first call; None if it requires none."""
    built = await context.services.engine.build_environment(request.name, context.report)
    return None if built is None else EnvironmentBuild(key=built.key, packages=built.packages)


@operation("environments.upgrade", privilege=Privilege.ADMIN, act="environment.build")
async def upgrade_environment(
    context: OperationContext, request: ToolName
) -> EnvironmentUpgrade | None:
    """Lock newer packages if the tool's examples pass with them; None if it requires none."""
    candidate, problem = await context.services.engine.upgrade_environment(
        request.name, context.report
    )
    if candidate is None:
        return None
    return EnvironmentUpgrade(changes=candidate.changes, problem=problem)


@operation("workspaces.list", privilege=Privilege.ADMIN, act="workspace.list", read_only=True)
def list_workspaces(context: OperationContext, _: Nothing) -> list[WorkspaceInfo]:
    """Return the workspaces and their sizes."""
    return context.services.engine.workspaces.list()


@operation("workspaces.export", privilege=Privilege.ADMIN, act="workspace.export", read_only=True)
def export_workspace(context: OperationContext, request: ExportWorkspace) -> Exported:
    """Copy the files of a workspace to a folder, without links and special files."""
    return context.services.engine.workspaces.export(request.session, request.folder)


@operation("workspaces.clear", privilege=Privilege.ADMIN, act="workspace.clear")
def clear_workspace(context: OperationContext, request: WorkspaceRef) -> None:
    """Delete a workspace with all its files."""
    context.services.engine.workspaces.clear(request.session)


@operation("settings.list", privilege=Privilege.ADMIN, read_only=True)
def list_settings(context: OperationContext, _: Nothing) -> SettingList:
    """Return the current settings and their origins."""
    settings = context.services.security.live.current()
    items = (
        SettingInfo(
            name=setting.name,
            value=setting.value,
            hidden=setting.is_hidden,
            origin=setting.origin,
            live=setting.name in LIVE,
        )
        for setting in effective_settings(settings)
    )
    file = None if settings.source is None else str(settings.source)
    return SettingList(version=version("toolkiln"), file=file, items=tuple(items))


@operation("fleet.get", privilege=Privilege.ADMIN, act="fleet.show", read_only=True)
async def show_fleet(context: OperationContext, _: Nothing) -> FleetView:
    """Return the status of the fleet, or that there is none."""
    if context.services.fleet_url is None:
        return FleetView(state=None)
    async with _fleet(context) as admin:
        report = await admin.state()
    return FleetView(state=FleetStatus(**{n: getattr(report, n) for n in FleetStatus.model_fields}))


@operation("fleet.status", privilege=Privilege.ADMIN, act="fleet.show", read_only=True)
async def fleet_status(context: OperationContext, _: Nothing) -> FleetReport:
    """Return the status of the fleet, including workers that refused to start."""
    async with _fleet(context) as admin:
        return await admin.state()


@operation("fleet.drain", privilege=Privilege.ADMIN)
async def drain_fleet(context: OperationContext, request: DrainFleet) -> tuple[WorkerStatus, ...]:
    """Ask workers to finish their calls and exit; return them."""
    if bool(request.worker) == bool(request.pool):
        raise InputError(
            "name either one worker or a pool to drain",
            hint="`toolkiln fleet status` lists them",
        )
    async with _fleet(context) as admin:
        return await admin.drain(worker=request.worker, pool=request.pool)


@operation("fleet.reload", privilege=Privilege.ADMIN)
async def reload_fleet(context: OperationContext, _: Nothing) -> int:
    """Ask all workers to reload settings and tools; return their number."""
    async with _fleet(context) as admin:
        return await admin.reload()


@operation("fleet.clear_catalog", privilege=Privilege.ADMIN)
async def clear_catalog(context: OperationContext, _: Nothing) -> int:
    """Delete the published catalog and return its number of tools."""
    async with _fleet(context) as admin:
        return await admin.clear_catalog()


@operation("dead_letters.list", privilege=Privilege.ADMIN, read_only=True)
async def list_dead_letters(
    context: OperationContext, request: DeadLetterQuery
) -> list[DeadLetter]:
    """Return the calls that were given up, newest first."""
    async with _fleet(context) as admin:
        return await admin.dead_letters(request.pool)


@operation("dead_letters.retry", privilege=Privilege.ADMIN)
async def retry_dead_letters(
    context: OperationContext, request: DeadLetterRefs
) -> list[DeadLetter]:
    """Enqueue calls again that were given up; their callers get no second reply."""
    async with _fleet(context) as admin:
        letters = await _selected(admin, request)
        for letter in letters:
            await admin.retry(letter)
        return letters


@operation("dead_letters.drop", privilege=Privilege.ADMIN)
async def drop_dead_letters(context: OperationContext, request: DeadLetterRefs) -> list[DeadLetter]:
    """Delete dead letters."""
    async with _fleet(context) as admin:
        letters = await _selected(admin, request)
        await admin.drop(letters)
        return letters


def _fleet(context: OperationContext) -> "AbstractAsyncContextManager[FleetAdmin]":
    services = context.services
    if services.fleet_url is None:
        raise InputError("there is no fleet", hint="set `fleet`, or pass --redis redis://HOST:PORT")
    return services.open_fleet(services.fleet_url)


async def _selected(admin: "FleetAdmin", request: DeadLetterRefs) -> list[DeadLetter]:
    letters = await admin.dead_letters(request.pool)
    if not request.ids:
        return letters
    by_id = {letter.id: letter for letter in letters}
    for missing in (id_ for id_ in request.ids if id_ not in by_id):
        hint = "`toolkiln fleet dead-letters list` lists them"
        raise InputError(f"there is no dead letter {missing!r}", hint=hint)
    return [by_id[id_] for id_ in dict.fromkeys(request.ids)]
