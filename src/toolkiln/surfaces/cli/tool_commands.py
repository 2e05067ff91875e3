"""The commands for tools at hand: write, check, list, show and call them."""

from pathlib import Path
from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import (
    DevOption,
    FilesOption,
    JsonOption,
    RedisOption,
    TokenOption,
    ToolsOption,
    app,
    errors,
)


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

    with errors():
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

    with errors():
        raise typer.Exit(commands.check(paths, tools, as_json=as_json, strict=strict))


@app.command(name="list")
def list_(
    as_json: JsonOption = False,
    everything: Annotated[bool, typer.Option("--all", help="Show hidden tools too.")] = False,
    token: TokenOption = None,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """List tools, prompts and resources by toolkit, lightest first."""
    from toolkiln.surfaces.cli import commands, opening

    with errors():
        kiln = opening.open_kiln(tools, redis, dev=dev)
        commands.list_tools(kiln, token, as_json=as_json, everything=everything)


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
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Show one tool as a model, a provider or a person sees it."""
    from toolkiln.surfaces.cli import commands, opening

    with errors():
        raise typer.Exit(commands.show(opening.open_kiln(tools, redis, dev=dev), tool, form))


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
    token: TokenOption = None,
    call_id: Annotated[
        str | None,
        typer.Option("--id", help="Run once: the same id again gives the first result."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most.", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="What the tool is to answer, for search to learn from.", show_default=False
        ),
    ] = None,
    files: FilesOption = None,
    background: Annotated[
        bool, typer.Option("--background", help="Print a task id and leave the call running.")
    ] = False,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Run a tool in the sandbox and print what it gives."""
    from toolkiln.surfaces.cli import calling

    options = calling.Options(
        as_json, session, token, call_id, timeout, prompt, files, tools, redis, dev
    )
    with errors():
        run = calling.start_in_background if background else calling.call
        raise typer.Exit(run(tool, arguments or [], options))


@app.command()
def doctor(tools: ToolsOption = None, as_json: JsonOption = False) -> None:
    """Show the project's files and which sandbox modes work here."""
    from toolkiln.surfaces.cli import upkeep

    with errors():
        raise typer.Exit(upkeep.doctor(tools, as_json=as_json))


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(installed("toolkiln"))
