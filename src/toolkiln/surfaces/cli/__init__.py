"""The command line: parse, call one method, print.

Data goes to stdout, talk to stderr. Commands import what they need when they run, so that
`toolkiln --help` stays as light as typer itself.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(installed("toolkiln"))


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of ours as two lines on stderr and exit status 2, never a traceback."""
    from toolkiln.errors import ToolkilnError

    try:
        yield
    except ToolkilnError as error:
        typer.echo(f"error: {error.message}", err=True)
        if error.hint:
            typer.echo(f"\nhint: {error.hint}", err=True)
        raise typer.Exit(2) from error


def main() -> None:
    """The `toolkiln` command."""
    try:
        app()
    except BrokenPipeError:  # the reader of our output has gone, as in `toolkiln list | head`
        sys.stderr.close()
        sys.exit(141)
