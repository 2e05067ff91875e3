"""Commands for the audit log: list, export, verify, prune."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import JsonOption, app, command
from toolkiln.surfaces.cli.terminal import (
    ProgressDisplay,
    confirm,
    counted,
    one_line,
    print_json,
    print_outcome,
    print_table,
    say,
    when,
)

if TYPE_CHECKING:
    from toolkiln.model.audit import AuditEntry, AuditFilter

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
    str | None, typer.Option(help="The trace id of a session.", show_default=False)
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Such as 2h, 7d or 2026-11-01.", show_default=False),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="As --since; exclusive.", show_default=False)
]
_AGO = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HEAD = r"[0-9]{1,18}:[0-9a-f]{64}"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets evaluate a text that starts with one of these."""
_REPORTED = 1000
"""Records between two reports of progress."""

audit_app = typer.Typer(help="Read and verify the audit log.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")


@command(audit_app, "list")
def audit_list(
    user: UserOption = None,
    tool: ToolOption = None,
    outcome: OutcomeOption = None,
    act: ActOption = None,
    session: SessionOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of records.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List records, newest first."""
    from toolkiln.operations import audit
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    matching = _filter(
        user=user, tool=tool, outcome=outcome, act=act, session=session, since=since, until=until
    )
    request = audit.ReadAudit(filter=matching, newest=limit)
    with open_kiln() as kiln:
        records = kiln.run_operation_sync(audit.read_records, request, authenticate(kiln))
        entries = list(records)
    if as_json:
        print_json([entry.model_dump() for entry in entries])
        return
    if not entries:
        say("no records", err=True)
        return
    print_table(
        ("seq", "time", "user", "act", "tool", "outcome", "took", "detail"), map(_row, entries)
    )
    if len(entries) == limit:
        say(f"note: the newest {limit:,}; --limit shows more", err=True)


@command(audit_app, "export")
def audit_export(
    file: Annotated[
        Path | None, typer.Argument(help="The target. Default: stdout.", show_default=False)
    ] = None,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="The file format.")
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
    from toolkiln.model.audit import AuditEntry
    from toolkiln.operations import audit
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    matching = _filter(
        user=user, tool=tool, outcome=outcome, act=act, session=session, since=since, until=until
    )
    line = _csv_line if form == "csv" else _json_line
    count = 0
    # Records that go to the same terminal are progress enough.
    is_quiet = as_json or (file is None and sys.stdout.isatty())
    with open_kiln() as kiln:
        request = audit.ReadAudit(filter=matching)
        entries = kiln.run_operation_sync(audit.read_records, request, authenticate(kiln))
        with _output(file) as write, ProgressDisplay(quiet=is_quiet) as progress:
            if form == "csv":
                write(_csv_text(AuditEntry.model_fields))
            for count, entry in enumerate(entries, 1):
                write(line(entry))
                if count % _REPORTED == 0:
                    progress.report("records", count, None)
    if as_json and file is not None:
        print_json({"file": str(file), "records": count})
    else:
        say(f"{counted(count, 'record')}{f' to {file}' if file else ''}", err=True)


@command(audit_app, "verify")
def audit_verify(
    head: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ:HASH",
            help="The head that an earlier run printed, stored elsewhere.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether records were edited, removed or reordered."""
    from toolkiln.operations import audit
    from toolkiln.surfaces.cli.session import run_operation

    if head is not None and re.fullmatch(_HEAD, head.strip()) is None:
        raise InputError(
            f"--head: {head[:100]!r} is not a head", hint="SEQ:HASH, as `audit verify` prints it"
        )
    request = audit.VerifyAudit(head=head and head.strip())
    found = run_operation(audit.verify_audit, request)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        for problem in found.problems:
            say(f"problem: {one_line(problem)}")
        state = "intact" if found.ok else "not intact"
        say(f"{state}: {counted(found.count, 'record')}, {found.first} to {found.last}")
        if found.ok:
            say(f"head: {found.last}:{found.head}")
    if not found.ok:
        raise typer.Exit(1)


@command(audit_app, "prune")
def audit_prune(
    older_than: Annotated[float, typer.Option(metavar="DAYS", help="Days to keep.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the prompt.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete old records. The rest can still be verified."""
    from toolkiln.operations import audit
    from toolkiln.surfaces.cli.session import checked_days, run_operation

    request = audit.PruneAudit(days=checked_days(older_than))
    if as_json and not yes:
        raise InputError("--json does not prompt", hint="add --yes")
    if not yes and not confirm(f"delete all records older than {older_than:g} days?"):
        raise typer.Exit(1)
    removed = run_operation(audit.prune_audit, request)
    print_outcome({"removed": removed}, f"removed: {counted(removed, 'record')}", as_json=as_json)


def _filter(*, since: str | None, until: str | None, **fields: str | None) -> "AuditFilter":
    from toolkiln.model.audit import AuditFilter

    times = {
        "since": None if since is None else _timestamp("--since", since),
        "until": None if until is None else _timestamp("--until", until),
    }
    return AuditFilter.model_validate({**fields, **times})


def _timestamp(option: str, text: str) -> float:
    from datetime import UTC, datetime

    if ago := _AGO.fullmatch(text):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(
            f"{option}: {text[:100]!r} is not a time",
            hint="use 2h, 30m, 7d, 2026-11-01, or 2026-11-01T08:30:00+01:00; the default is UTC",
        ) from None


def _row(entry: "AuditEntry") -> tuple[str, ...]:
    took = "" if entry.duration is None else f"{entry.duration:.3f} s"
    return (
        str(entry.seq),
        when(entry.at),
        entry.user,
        entry.act,
        entry.tool,
        entry.outcome,
        took,
        entry.detail,
    )


def _json_line(entry: "AuditEntry") -> str:
    import json

    return json.dumps(entry.model_dump()) + "\n"


def _csv_line(entry: "AuditEntry") -> str:
    return _csv_text(entry.model_dump().values())


def _csv_text(values: Iterable[Any]) -> str:
    import csv
    from io import StringIO

    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(_no_formula, values))
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value


@contextmanager
def _output(file: Path | None) -> Iterator[Callable[[str], object]]:
    """Yield what writes records; an incomplete file, which only this user can read, is deleted."""
    if file is None:
        yield lambda text: say(text, newline=False)
        return
    try:
        file.touch(0o600, exist_ok=False)
    except FileExistsError:
        raise InputError(f"{str(file)!r} exists already", hint="name another file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{str(file)!r} cannot be written: {why}") from error
    try:
        with file.open("w", encoding="utf-8") as opened:
            yield opened.write
    except BaseException:  # including Ctrl-C: half an export would pass for a whole one
        file.unlink()
        raise
