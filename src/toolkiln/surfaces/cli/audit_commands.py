"""The commands for the audit: look it up, export it, verify it, prune it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from toolkiln.surfaces.cli.shell import JsonOption, app, errors

audit_app = typer.Typer(help="Look after the record of what happened.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")

UserOption = Annotated[str | None, typer.Option(show_default=False)]
ToolOption = Annotated[
    str | None, typer.Option(metavar="GLOB", help="A name or a glob.", show_default=False)
]
OutcomeOption = Annotated[
    str | None, typer.Option(help="Such as ok, denied, failed.", show_default=False)
]
ActOption = Annotated[
    str | None, typer.Option(help="Such as call, admit, approve.", show_default=False)
]
SessionOption = Annotated[
    str | None, typer.Option(help="The public id of a session.", show_default=False)
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Such as 2h, 7d or 2026-11-01.", show_default=False),
]
UntilOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The first moment that is too late.", show_default=False),
]


@audit_app.command(name="list")
def audit_list(
    user: UserOption = None,
    tool: ToolOption = None,
    outcome: OutcomeOption = None,
    act: ActOption = None,
    session: SessionOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, at most.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List records, newest first."""
    from toolkiln.surfaces.cli import auditing

    with errors():
        wanted = auditing.Wanted(user, tool, outcome, act, session, since, until)
        auditing.audit_list(wanted, limit, as_json=as_json)


@audit_app.command(name="export")
def audit_export(
    file: Annotated[
        Path | None, typer.Argument(help="Where to. Default: stdout.", show_default=False)
    ] = None,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="How it is written.")
    ] = "jsonl",
    user: UserOption = None,
    tool: ToolOption = None,
    outcome: OutcomeOption = None,
    act: ActOption = None,
    session: SessionOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records to a file, oldest first."""
    from toolkiln.surfaces.cli import auditing

    with errors():
        wanted = auditing.Wanted(user, tool, outcome, act, session, since, until)
        auditing.export(wanted, form, file, as_json=as_json)


@audit_app.command(name="verify")
def audit_verify(
    head: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ:HASH",
            help="What an earlier run printed, kept elsewhere.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether records were edited, removed or put elsewhere."""
    from toolkiln.surfaces.cli import auditing

    with errors():
        raise typer.Exit(auditing.verify(head, as_json=as_json))


@audit_app.command(name="prune")
def audit_prune(
    older_than: Annotated[float, typer.Option(metavar="DAYS", help="Days that are kept.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old records; the rest can be verified as before."""
    from toolkiln.surfaces.cli import auditing

    with errors():
        raise typer.Exit(auditing.prune(older_than, yes=yes, as_json=as_json))
