"""The command that performs calls for a fleet: `toolkiln worker`."""

from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import DevOption, ToolsOption, app, errors


@app.command()
def worker(
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The fleet's Redis. Default: the setting.", show_default=False
        ),
    ] = None,
    pool: Annotated[str, typer.Option(help="Whose calls to perform.", metavar="NAME")] = "default",
    slots: Annotated[int, typer.Option(help="Calls at once.", min=1, max=10_000)] = 32,
    health_port: Annotated[
        int | None,
        typer.Option(
            help="Answer /healthz, /readyz and /metrics there; 0: any port that is free.",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = None,
    tools: ToolsOption = None,
    dev: DevOption = False,
    lease: Annotated[float, typer.Option(hidden=True)] = 10.0,
    frozen: Annotated[float, typer.Option(hidden=True)] = 30.0,
    kept: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Perform calls for a fleet over Redis, until it is told to stop."""
    from toolkiln.surfaces.cli import working

    options = working.Options(redis, pool, slots, health_port, tools, dev, lease, frozen)
    with errors():
        raise typer.Exit(working.perform(options, kept) if kept else working.supervise(options))
