"""The commands that look after what calls leave: tasks, outputs, environments, workspaces."""

from pathlib import Path
from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import (
    FilesOption,
    JsonOption,
    TokenOption,
    ToolsOption,
    app,
    errors,
)

task_app = typer.Typer(help="Look after calls in the background.", no_args_is_help=True)
app.add_typer(task_app, name="task")
TaskArgument = Annotated[str, typer.Argument(help="The id that the call printed.")]


@task_app.command(name="list")
def task_list(token: TokenOption = None, as_json: JsonOption = False) -> None:
    """List the calls that are remembered, newest first."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.task_list(token, as_json=as_json)


@task_app.command(name="check")
def task_check(
    task_id: TaskArgument,
    files: FilesOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell how a task stands, with its result if it has ended."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        raise typer.Exit(upkeep.task_check(task_id, files, token, as_json=as_json))


@task_app.command(name="await")
def task_await(
    task_id: TaskArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most.", show_default=False)
    ] = None,
    files: FilesOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a task has ended."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        raise typer.Exit(upkeep.task_await(task_id, timeout, files, token, as_json=as_json))


@task_app.command(name="cancel")
def task_cancel(
    task_id: TaskArgument, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Stop a task."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        raise typer.Exit(upkeep.task_cancel(task_id, token, as_json=as_json))


@app.command(name="output")
def read_output(
    handle: Annotated[str, typer.Argument(help="The handle that a cut output names.")],
    offset: Annotated[int, typer.Option(help="The character to start from.")] = 0,
    limit: Annotated[int, typer.Option(help="How many characters.")] = 20_000,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read on in an output that was cut."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.read_output(handle, offset, limit, token, as_json=as_json)


env_app = typer.Typer(help="Look after the packages that tools require.", no_args_is_help=True)
app.add_typer(env_app, name="env")
EnvTools = Annotated[
    list[str] | None, typer.Argument(help="Names of tools. Default: all.", show_default=False)
]


@env_app.command(name="list")
def env_list(as_json: JsonOption = False) -> None:
    """List the environments, last used first."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.env_list(as_json=as_json)


@env_app.command(name="build")
def env_build(
    names: EnvTools = None, as_json: JsonOption = False, tools: ToolsOption = None
) -> None:
    """Build the environments of tools ahead of their first call."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        raise typer.Exit(upkeep.env_build(names or [], tools, as_json=as_json))


@env_app.command(name="upgrade")
def env_upgrade(
    names: EnvTools = None, as_json: JsonOption = False, tools: ToolsOption = None
) -> None:
    """Lock newer packages, if the tool's examples pass on them; else the old ones stay."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        raise typer.Exit(upkeep.env_upgrade(names or [], tools, as_json=as_json))


@env_app.command(name="prune")
def env_prune(
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", help="Days since the last use.")
    ] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Remove environments that nobody has used for long."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.env_prune(older_than, as_json=as_json)


workspace_app = typer.Typer(help="Look after the files of sessions.", no_args_is_help=True)
app.add_typer(workspace_app, name="workspace")
SessionArgument = Annotated[str, typer.Argument(help="The name of the session.")]


@workspace_app.command(name="list")
def workspace_list(as_json: JsonOption = False) -> None:
    """List the workspaces and what they hold."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.workspace_list(as_json=as_json)


@workspace_app.command(name="export")
def workspace_export(
    session: SessionArgument,
    folder: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Copy the files of a workspace to a folder; links and special files stay behind."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.workspace_export(session, folder, as_json=as_json)


@workspace_app.command(name="clear")
def workspace_clear(session: SessionArgument) -> None:
    """Remove a workspace with everything in it."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        upkeep.workspace_clear(session)
