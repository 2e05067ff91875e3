"""The commands for what is served: serve, develop, add, admit, look back, switch on and off."""

from pathlib import Path
from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import JsonOption, RedisOption, ToolsOption, app, errors

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(help="Files and folders. Default: the tools.", show_default=False),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ToolArgument = Annotated[str, typer.Argument(help="The name of the tool.")]
VersionArgument = Annotated[str, typer.Argument(help="A number, or the start of a digest.")]
OptionalVersionArgument = Annotated[
    str | None,
    typer.Argument(help="A number, or the start of a digest.", show_default=False),
]
SwitchArgument = Annotated[
    str, typer.Argument(help="A tool, a toolkit, or a method as Toolkit.method.")
]


HostOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Default: the setting, 127.0.0.1.", show_default=False),
]
PortOption = Annotated[
    int | None,
    typer.Option(help="0: any that is free. Default: the setting, 8420.", show_default=False),
]


@app.command()
def serve(
    host: HostOption = None,
    port: PortOption = None,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Serve the admitted tools over HTTP and MCP, until Ctrl-C."""
    from toolkiln.surfaces.cli import serving

    with errors():
        serving.serve(tools, redis, host=host, port=port)


@app.command()
def dev(
    port: PortOption = None,
    no_serve: Annotated[
        bool, typer.Option("--no-serve", help="Only watch and tell; no HTTP, no MCP.")
    ] = False,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open the page in a browser.")
    ] = False,
    tools: ToolsOption = None,
) -> None:
    """Serve what is on disk as it is edited, until Ctrl-C."""
    from toolkiln.surfaces.cli import developing

    with errors():
        raise typer.Exit(developing.dev(tools, port, serves=not no_serve, opens=not no_open))


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="A Python file.")],
    name: Annotated[
        str | None, typer.Option(help="Default: the file's own.", show_default=False)
    ] = None,
    description: Annotated[
        str, typer.Option(help="Becomes the docstring of tools that have none.")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a tool.")] = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Try a file out in the sandbox, copy it to the tools, admit it."""
    from toolkiln.surfaces.cli import admitting

    with errors():
        given = admitting.Addition(file, name, description, overwrite)
        raise typer.Exit(admitting.add(given, tools, as_json=as_json))


@app.command()
def admit(
    files: FilesArgument = None,
    grant: Annotated[
        bool, typer.Option("--grant", help="Grant the rights that are asked for.")
    ] = False,
    yes: YesOption = False,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Neither import them nor run their examples first.")
    ] = False,
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Replace a manifest that cannot be trusted.")
    ] = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Show what is new in files, and let them be served."""
    from toolkiln.surfaces.cli import admitting

    with errors():
        options = admitting.Options(grant, yes, not no_probe, afresh, as_json)
        raise typer.Exit(admitting.admit(files or [], options, tools))


@app.command()
def reject(
    file: Annotated[Path, typer.Argument(help="A file of the tools.")],
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Refuse a file as it is; a version admitted before stays."""
    from toolkiln.surfaces.cli import admitting

    with errors():
        admitting.reject(file, tools, as_json=as_json)


@app.command()
def status(as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Tell which files are served, and which wait for a decision."""
    from toolkiln.surfaces.cli import admitting

    with errors():
        raise typer.Exit(admitting.status(tools, as_json=as_json))


@app.command()
def history(tool: ToolArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """List the admitted versions of a tool, newest first."""
    from toolkiln.surfaces.cli import versions

    with errors():
        versions.history(tool, tools, as_json=as_json)


@app.command()
def diff(
    tool: ToolArgument,
    old: OptionalVersionArgument = None,
    new: OptionalVersionArgument = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Show the pending change of a tool, or compare two versions."""
    from toolkiln.surfaces.cli import versions

    with errors():
        versions.diff(tool, old, new, tools, as_json=as_json)


@app.command()
def rollback(
    tool: ToolArgument,
    version: VersionArgument,
    yes: YesOption = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Serve an earlier version of a tool again, and write it back."""
    from toolkiln.surfaces.cli import versions

    with errors():
        raise typer.Exit(versions.rollback(tool, version, tools, yes=yes, as_json=as_json))


@app.command()
def remove(
    tool: ToolArgument,
    with_others: Annotated[
        bool, typer.Option("--with-others", help="Other tools of its file may go too.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Take a tool out of the catalog, with its file."""
    from toolkiln.surfaces.cli import versions

    with errors():
        raise typer.Exit(
            versions.remove(tool, tools, with_others=with_others, yes=yes, as_json=as_json)
        )


@app.command()
def enable(name: SwitchArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Offer a tool, a toolkit or one of its methods again."""
    from toolkiln.surfaces.cli import admitting

    with errors():
        admitting.switch(name, tools, on=True, as_json=as_json)


@app.command()
def disable(name: SwitchArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Cease to offer a tool, a toolkit or one of its methods."""
    from toolkiln.surfaces.cli import admitting

    with errors():
        admitting.switch(name, tools, on=False, as_json=as_json)
