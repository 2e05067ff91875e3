"""Commands for this installation: doctor, environments, workspaces."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkiln.errors import NotAllowed, ToolkilnError
from toolkiln.surfaces.cli.app import JsonOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import ProgressDisplay, counted, print_json, say

if TYPE_CHECKING:
    from datetime import datetime

    from toolkiln.model.system import EnvironmentInfo
    from toolkiln.operations.operation import Operation

ToolsArgument = Annotated[
    list[str] | None, typer.Argument(help="Names of tools. Default: all.", show_default=False)
]
SessionArgument = Annotated[str, typer.Argument(help="The name of the session.")]

env_app = typer.Typer(help="Manage the packages of tools.", no_args_is_help=True)
app.add_typer(env_app, name="env")
workspace_app = typer.Typer(help="Manage the files of sessions.", no_args_is_help=True)
app.add_typer(workspace_app, name="workspace")


@command(app)
def doctor(tools: ToolsOption = None, as_json: JsonOption = False) -> None:
    """Show the project's files and which sandbox modes work here."""
    from toolkiln.config import describe_project
    from toolkiln.operations import system
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import open_folder

    with open_folder(tools) as kiln:
        assert kiln.services.path is not None
        project = describe_project(kiln.settings, kiln.services.path)
        diagnosis = kiln.run_operation_sync(system.diagnose, Nothing())
    if as_json:
        print_json({"project": project, **diagnosis.model_dump(mode="json")})
    else:
        for name, value in project.items():
            say(f"{name:<12} {value}")
        say("")
        for line in diagnosis.lines():
            typer.echo(line.rstrip())
    if not diagnosis.mode:
        raise typer.Exit(1)


@command(env_app, "list")
def env_list(as_json: JsonOption = False) -> None:
    """List environments, last used first."""
    from toolkiln.operations import system
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import run_in_folder

    environments = run_in_folder(system.list_environments, Nothing()).items
    if as_json:
        print_json([_environment_json(environment) for environment in environments])
        return
    for environment in environments:
        used = _utc(environment.last_used).strftime("%Y-%m-%d %H:%M")
        size = f"{environment.size / 1e6:8.1f} MB"
        say(f"{environment.key[:12]}  {size}  used {used}  {_versions(environment.packages)}")


@command(env_app, "build")
def env_build(
    names: ToolsArgument = None, as_json: JsonOption = False, tools: ToolsOption = None
) -> None:
    """Build the environments of tools before their first call."""
    from toolkiln.operations import system

    def describe(built: "system.EnvironmentBuild | None") -> tuple[str, dict[str, Any]]:
        if built is None:
            return "needs no packages", {"key": None, "packages": {}}
        return f"{built.key[:12]}  {_versions(built.packages)}", built.model_dump()

    _for_each(names or [], tools, system.build_environment, describe, as_json=as_json)


@command(env_app, "upgrade")
def env_upgrade(
    names: ToolsArgument = None, as_json: JsonOption = False, tools: ToolsOption = None
) -> None:
    """Lock newer packages if the tool's examples pass with them."""
    from toolkiln.operations import system

    def describe(upgrade: "system.EnvironmentUpgrade | None") -> tuple[str, dict[str, Any]]:
        if upgrade is None:
            return "needs no packages", {"changes": {}}
        data: dict[str, Any] = {"changes": upgrade.changes}
        if not upgrade.changes:
            return "is up to date", data
        changes = ", ".join(
            f"{package} {old or '-'} → {new or '-'}"
            for package, (old, new) in upgrade.changes.items()
        )
        if upgrade.problem is None:
            return changes, data
        return f"not upgraded: the examples fail with {changes}", {**data, "error": upgrade.problem}

    _for_each(names or [], tools, system.upgrade_environment, describe, as_json=as_json)


@command(env_app, "prune")
def env_prune(
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", help="Days since the last use.")
    ] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Remove unused environments."""
    from toolkiln.operations import system
    from toolkiln.surfaces.cli.session import checked_days, run_in_folder

    request = system.PruneEnvironments(days=checked_days(older_than))
    removed = run_in_folder(system.prune_environments, request).items
    if as_json:
        print_json([_environment_json(environment) for environment in removed])
        return
    size = sum(environment.size for environment in removed) / 1e6
    typer.echo(f"removed {counted(len(removed), 'environment')}, {size:.1f} MB")


@command(workspace_app, "list")
def workspace_list(as_json: JsonOption = False) -> None:
    """List workspaces and their sizes."""
    from toolkiln.operations import system
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import run_in_folder

    workspaces = run_in_folder(system.list_workspaces, Nothing())
    if as_json:
        print_json([asdict(workspace) for workspace in workspaces])
        return
    for workspace in workspaces:
        files = counted(workspace.files, "file")
        say(f"{workspace.session}  {files}  {workspace.bytes:,} bytes")


@command(workspace_app, "export")
def workspace_export(
    session: SessionArgument,
    folder: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Copy the files of a workspace to a folder, without links and special files."""
    from toolkiln.operations import system
    from toolkiln.surfaces.cli.session import run_in_folder

    request = system.ExportWorkspace(session=session, folder=folder)
    exported = run_in_folder(system.export_workspace, request)
    if as_json:
        print_json(asdict(exported))
        return
    typer.echo(f"{counted(exported.files, 'file')} to {folder}")
    for name in exported.left_out:
        say(f"skipped: {name}", err=True)


@command(workspace_app, "clear")
def workspace_clear(session: SessionArgument) -> None:
    """Delete a workspace with all its files."""
    from toolkiln.operations import system
    from toolkiln.surfaces.cli.session import run_in_folder

    run_in_folder(system.clear_workspace, system.WorkspaceRef(session=session))
    say(f"cleared: {session}", err=True)


def _for_each(
    names: list[str],
    folder: Path | None,
    operation: "Operation[Any, Any]",
    describe: Callable[[Any], tuple[str, dict[str, Any]]],
    *,
    as_json: bool,
) -> None:
    """Run an operation for each tool and print the results; exit with 1 if one failed."""
    from toolkiln.operations import tools
    from toolkiln.surfaces.cli.session import authenticate, open_folder

    results: list[dict[str, Any]] = []
    with open_folder(folder) as kiln:
        session = authenticate(kiln)
        for name in [kiln.tool(name).name for name in names] or kiln.services.registry.specs:
            try:
                with ProgressDisplay(quiet=as_json) as progress:
                    request = tools.ToolName(name=name)
                    result = kiln.run_operation_sync(
                        operation, request, session, report=progress.report
                    )
                    text, data = describe(result)
            except NotAllowed:
                raise
            except ToolkilnError as error:
                text, data = "failed", {"error": error.message, "hint": error.hint}
            results.append({"tool": name, **data})
            if as_json:
                continue
            say(f"{name}: {text}")
            if "error" in data:
                say(f"error: {name}: {data['error']}", err=True)
            if data.get("hint"):
                say(f"\nhint: {data['hint']}", err=True)
    if as_json:
        print_json(results)
    if any("error" in result for result in results):
        raise typer.Exit(1)


def _environment_json(environment: "EnvironmentInfo") -> dict[str, Any]:
    times = {
        name: _utc(getattr(environment, name)).isoformat().replace("+00:00", "Z")
        for name in ("built", "last_used")
    }
    return {**environment.model_dump(mode="json"), **times}


def _utc(timestamp: float) -> "datetime":
    from datetime import UTC, datetime

    return datetime.fromtimestamp(timestamp, UTC)


def _versions(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())
