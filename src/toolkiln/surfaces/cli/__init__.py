"""The command line: parse, call one method, print.

Data goes to stdout, talk to stderr. Commands import what they need when they run, so that
`toolkiln --help` stays as light as typer itself.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="toolkiln",
    help="Turn Python functions into tools that language models can be trusted with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ToolsOption = Annotated[
    Path | None,
    typer.Option(
        "--tools",
        metavar="PATH",
        help="A file or folder of tools. Default: the setting, else tools/ here.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FilesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Where to put files that the tool hands over.", show_default=False
    ),
]


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the tool, such as convert_currency.")],
    dialect: Annotated[
        str,
        typer.Option(
            help="How it is written: function, decorated, constants, toolkit, base_tool, "
            "open_webui."
        ),
    ] = "decorated",
    tools: ToolsOption = None,
) -> None:
    """Write a first version of a tool, ready to be edited."""
    from toolkiln.surfaces.cli import commands

    with _errors():
        commands.new(name, dialect, tools)


@app.command()
def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files and folders. Default: the tools.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    tools: ToolsOption = None,
) -> None:
    """Say what is wrong with tools, where, and what to do about it."""
    from toolkiln.surfaces.cli import commands

    with _errors():
        raise typer.Exit(commands.check(paths, tools, as_json=as_json, strict=strict))


@app.command(name="list")
def list_(
    as_json: JsonOption = False,
    everything: Annotated[bool, typer.Option("--all", help="Show hidden tools too.")] = False,
    tools: ToolsOption = None,
) -> None:
    """List the tools by toolkit, lightest first."""
    from toolkiln.surfaces.cli import commands

    with _errors():
        commands.list_tools(tools, as_json=as_json, everything=everything)


@app.command()
def show(
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="FORM",
            help="openai, openai-strict, anthropic, anthropic-strict, gemini, mcp, schema or "
            "docs. Default: exactly what a model sees.",
            show_default=False,
        ),
    ] = None,
    tools: ToolsOption = None,
) -> None:
    """Show one tool as a model, a provider or a person sees it."""
    from toolkiln.surfaces.cli import commands

    with _errors():
        raise typer.Exit(commands.show(tool, form, tools))


@app.command()
def call(
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="['{json}' | @FILE | - | key=value …]",
            help="One JSON object, here, in a file or on stdin, or pairs; key=@FILE takes a file.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    session: Annotated[
        str, typer.Option(help="Whose workspace the call uses.", metavar="NAME")
    ] = "default",
    call_id: Annotated[
        str | None,
        typer.Option("--id", help="Run once: the same id again gives the first result."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most.", show_default=False)
    ] = None,
    files: FilesOption = None,
    background: Annotated[
        bool, typer.Option("--background", help="Print a task id and leave the call running.")
    ] = False,
    tools: ToolsOption = None,
) -> None:
    """Run a tool in the sandbox and print what it gives."""
    from toolkiln.surfaces.cli import calling

    options = calling.Options(as_json, session, call_id, timeout, files, tools)
    with _errors():
        run = calling.start_in_background if background else calling.call
        raise typer.Exit(run(tool, arguments or [], options))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Try the sandbox out on this machine, and say what is missing."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        raise typer.Exit(upkeep.doctor(as_json=as_json))


task_app = typer.Typer(help="Look after calls in the background.", no_args_is_help=True)
app.add_typer(task_app, name="task")
TaskArgument = Annotated[str, typer.Argument(help="The id that the call printed.")]


@task_app.command(name="list")
def task_list(as_json: JsonOption = False) -> None:
    """List the calls that are remembered, newest first."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        upkeep.task_list(as_json=as_json)


@task_app.command(name="check")
def task_check(
    task_id: TaskArgument, files: FilesOption = None, as_json: JsonOption = False
) -> None:
    """Tell how a task stands, with its result if it has ended."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        raise typer.Exit(upkeep.task_check(task_id, files, as_json=as_json))


@task_app.command(name="await")
def task_await(
    task_id: TaskArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most.", show_default=False)
    ] = None,
    files: FilesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a task has ended."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        raise typer.Exit(upkeep.task_await(task_id, timeout, files, as_json=as_json))


@task_app.command(name="cancel")
def task_cancel(task_id: TaskArgument, as_json: JsonOption = False) -> None:
    """Stop a task."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        raise typer.Exit(upkeep.task_cancel(task_id, as_json=as_json))


@app.command(name="output")
def read_output(
    handle: Annotated[str, typer.Argument(help="The handle that a cut output names.")],
    offset: Annotated[int, typer.Option(help="The character to start from.")] = 0,
    limit: Annotated[int, typer.Option(help="How many characters.")] = 20_000,
    as_json: JsonOption = False,
) -> None:
    """Read on in an output that was cut."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        upkeep.read_output(handle, offset, limit, as_json=as_json)


env_app = typer.Typer(help="Look after the packages that tools require.", no_args_is_help=True)
app.add_typer(env_app, name="env")
EnvTools = Annotated[
    list[str] | None, typer.Argument(help="Names of tools. Default: all.", show_default=False)
]


@env_app.command(name="list")
def env_list(as_json: JsonOption = False) -> None:
    """List the environments, last used first."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        upkeep.env_list(as_json=as_json)


@env_app.command(name="build")
def env_build(
    names: EnvTools = None, as_json: JsonOption = False, tools: ToolsOption = None
) -> None:
    """Build the environments of tools ahead of their first call."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        raise typer.Exit(upkeep.env_build(names or [], tools, as_json=as_json))


@env_app.command(name="upgrade")
def env_upgrade(
    names: EnvTools = None, as_json: JsonOption = False, tools: ToolsOption = None
) -> None:
    """Lock newer packages, if the tool's examples pass on them; else the old ones stay."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
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

    with _errors():
        upkeep.env_prune(older_than, as_json=as_json)


workspace_app = typer.Typer(help="Look after the files of sessions.", no_args_is_help=True)
app.add_typer(workspace_app, name="workspace")
SessionArgument = Annotated[str, typer.Argument(help="The name of the session.")]


@workspace_app.command(name="list")
def workspace_list(as_json: JsonOption = False) -> None:
    """List the workspaces and what they hold."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        upkeep.workspace_list(as_json=as_json)


@workspace_app.command(name="export")
def workspace_export(
    session: SessionArgument,
    folder: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Copy the files of a workspace to a folder; links and special files stay behind."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        upkeep.workspace_export(session, folder, as_json=as_json)


@workspace_app.command(name="clear")
def workspace_clear(session: SessionArgument) -> None:
    """Remove a workspace with everything in it."""
    from toolkiln.surfaces.cli import upkeep

    with _errors():
        upkeep.workspace_clear(session)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(installed("toolkiln"))


@contextmanager
def _errors() -> Iterator[None]:
    """Errors as two lines on stderr, never a traceback; 3 if it is the platform's, else 2."""
    from toolkiln.errors import ConfigError, InputError, ToolkilnError

    try:
        yield
    except ToolkilnError as error:
        _complain(error.message, error.hint)
        status = 2 if isinstance(error, InputError | ConfigError) else 3
        raise typer.Exit(status) from error
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk that is full, a folder that is not ours
        _give_up_output()
        _complain(str(error), "check the file or folder; `TOOLKILN_STATE` moves the state folder")
        raise typer.Exit(3) from error


def _give_up_output() -> None:
    """Let go of what stdout could not take, so that the interpreter does not try again."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, hint: str | None) -> None:
    from toolkiln.surfaces.cli.terminal import say

    say(f"error: {message}", err=True)
    if hint:
        say(f"\nhint: {hint}", err=True)


def main() -> None:
    """The `toolkiln` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that it cannot encode is no failure
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:  # the reader of our output has gone, as in `toolkiln list | head`
        sys.stderr.close()
        sys.exit(141)
