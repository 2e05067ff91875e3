"""The command that tells clients of the server."""

from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import JsonOption, ToolsOption, app, errors


@app.command()
def install(
    client: Annotated[
        str | None,
        typer.Argument(help="Which client. Without it: list them.", show_default=False),
    ] = None,
    tools: ToolsOption = None,
    name: Annotated[str, typer.Option(help="The server's name there.")] = "toolkiln",
    scope: Annotated[
        str, typer.Option(help="user: wherever you work; project: in this folder.")
    ] = "user",
    url: Annotated[
        str | None,
        typer.Option(help="Use a server that runs there, start none.", show_default=False),
    ] = None,
    key: Annotated[
        bool | None,
        typer.Option(
            help="With --url: create an API key for the client. Default: if the URL is loopback.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--print", help="Print what to put where; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell a client of the tools, in its own settings."""
    from toolkiln.surfaces.cli import installing

    with errors():
        if client is None:
            installing.list_clients(as_json=as_json)
            return
        order = installing.Order(client, tools, name, scope, url, key)
        if show:
            installing.show(order, as_json=as_json)
        else:
            installing.install(order, as_json=as_json)
