"""The commands for those who look after a fleet: `toolkiln fleet …`."""

from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import JsonOption, app, errors

RedisOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The fleet's Redis. Default: the setting.", show_default=False
    ),
]
PoolOption = Annotated[str, typer.Option(metavar="NAME", help="Only this pool's.")]
LettersArgument = Annotated[
    list[str] | None, typer.Argument(help="The ids of dead letters.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="Every one of them.")]

fleet_app = typer.Typer(help="Look after a fleet of workers.", no_args_is_help=True)
app.add_typer(fleet_app, name="fleet")
letters_app = typer.Typer(help="Look after calls that were given up.", no_args_is_help=True)
fleet_app.add_typer(letters_app, name="dead-letters")


@fleet_app.command(name="status")
def fleet_status(redis: RedisOption = None, as_json: JsonOption = False) -> None:
    """Tell how the fleet stands: what waits, what runs, who is there."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        fleet.status(redis, as_json=as_json)


@fleet_app.command(name="keygen")
def fleet_keygen(as_json: JsonOption = False) -> None:
    """Print a new pair of keys: one that workers sign with, one that verifies."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        fleet.keygen(as_json=as_json)


@fleet_app.command(name="clear-catalog")
def fleet_clear_catalog(
    redis: RedisOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the prompt.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the published catalog, so that workers with other keys can publish theirs."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        fleet.clear_catalog(redis, yes=yes, as_json=as_json)


@fleet_app.command(name="drain")
def fleet_drain(
    worker: Annotated[
        str, typer.Argument(help="Its name. Default: all of --pool.", show_default=False)
    ] = "",
    pool: PoolOption = "",
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask workers to take no more calls, to end those that run, and to leave."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        fleet.drain(redis, worker, pool, as_json=as_json)


@fleet_app.command(name="reload")
def fleet_reload(redis: RedisOption = None, as_json: JsonOption = False) -> None:
    """Ask all workers to read their settings and tools again."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        fleet.reload(redis, as_json=as_json)


@letters_app.command(name="list")
def letters_list(
    pool: PoolOption = "", redis: RedisOption = None, as_json: JsonOption = False
) -> None:
    """List the calls that were given up, newest first."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        fleet.letters_list(redis, pool, as_json=as_json)


@letters_app.command(name="retry")
def letters_retry(
    ids: LettersArgument = None,
    everything: AllOption = False,
    pool: PoolOption = "",
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put calls in once more; their callers are not told a second time."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        chosen = fleet.Chosen(tuple(ids or ()), everything, pool)
        fleet.letters_retry(redis, chosen, as_json=as_json)


@letters_app.command(name="drop")
def letters_drop(
    ids: LettersArgument = None,
    everything: AllOption = False,
    pool: PoolOption = "",
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget calls that were given up."""
    from toolkiln.surfaces.cli import fleet

    with errors():
        chosen = fleet.Chosen(tuple(ids or ()), everything, pool)
        fleet.letters_drop(redis, chosen, as_json=as_json)
