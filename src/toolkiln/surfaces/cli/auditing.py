"""Commands about the audit: look records up, hand them on, verify them, let go of old ones."""

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from toolkiln.app import AuditFilter
from toolkiln.errors import InputError
from toolkiln.model import AuditEntry, AuditRecord, Privilege
from toolkiln.surfaces.cli.admitting import says_yes
from toolkiln.surfaces.cli.opening import open_kiln, require
from toolkiln.surfaces.cli.tables import one_line, print_table, when
from toolkiln.surfaces.cli.terminal import Live, print_json, say

_AGO = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")
_COLUMNS = ("seq", *AuditRecord._fields, "hash")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take a text for a formula."""
_MANY = 1000
"""So many records are told of at once."""
_MOST_DAYS = 36_500.0


@dataclass(frozen=True)
class Wanted:
    """Which records, as the command line says it."""

    user: str | None
    tool: str | None
    outcome: str | None
    act: str | None
    session: str | None
    since: str | None
    until: str | None

    def filter(self) -> AuditFilter:
        """The same for the audit.

        Raises:
            InputError: a moment is none.
        """
        return AuditFilter(
            user=self.user,
            tool=self.tool,
            outcome=self.outcome,
            act=self.act,
            session=self.session,
            since=None if self.since is None else _moment("--since", self.since),
            until=None if self.until is None else _moment("--until", self.until),
        )


def audit_list(wanted: Wanted, limit: int, *, as_json: bool) -> None:
    """Print records, newest first."""
    chosen = wanted.filter()
    with open_kiln() as kiln:
        require(kiln, Privilege.ADMIN, "audit.list")
        entries = list(kiln.guarding.audit.entries(chosen, limit))
    if as_json:
        print_json([_as_json(entry) for entry in entries])
        return
    if not entries:
        say("no records", err=True)
        return
    print_table(
        ("seq", "time", "user", "act", "tool", "outcome", "took", "detail"), map(_row, entries)
    )
    if len(entries) == limit:
        say(f"note: the newest {limit:,}; --limit shows more", err=True)


def export(wanted: Wanted, form: str, file: Path | None, *, as_json: bool) -> None:
    """Write records to a file or to stdout, oldest first."""
    chosen, line = wanted.filter(), _csv_line if form == "csv" else _json_line
    count = 0
    # Where the records go to the same terminal, they are progress enough.
    is_quiet = as_json or (file is None and sys.stdout.isatty())
    with open_kiln() as kiln:
        require(kiln, Privilege.ADMIN, "audit.list")
        with _output(file) as write, Live(quiet=is_quiet) as live:
            if form == "csv":
                write(_csv_text(_COLUMNS))
            for count, entry in enumerate(kiln.guarding.audit.export(chosen), 1):
                write(line(entry))
                if count % _MANY == 0:
                    live.report("records", count, None)
    if as_json and file is not None:
        print_json({"file": str(file), "records": count})
    else:
        say(f"{_count(count)}{f' to {file}' if file else ''}", err=True)


def verify(head: str | None, *, as_json: bool) -> int:
    """Print whether the chain is whole, and its head; the exit status is 1 if it is not."""
    expected = None if head is None else _noted(head)
    with open_kiln() as kiln:
        require(kiln, Privilege.ADMIN, "audit.verify")
        found = kiln.guarding.audit.verify(expected)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return 0 if found.ok else 1
    for problem in found.problems:
        say(f"problem: {one_line(problem)}")
    whole = "intact" if found.ok else "not intact"
    say(f"{whole}: {_count(found.count)}, {found.first} to {found.last}")
    if found.ok:
        say(f"head: {found.last}:{found.head}")
    return 0 if found.ok else 1


def prune(days: float, *, yes: bool, as_json: bool) -> int:
    """Remove old records; the exit status is 1 if that was called off."""
    if not 0 <= days <= _MOST_DAYS:
        raise InputError(f"--older-than is not between 0 and {_MOST_DAYS:g} days")
    if as_json and not yes:
        raise InputError("with --json nobody is asked", hint="add --yes")
    with open_kiln() as kiln:
        session = require(kiln, Privilege.ADMIN, "audit.prune")
        if not yes and not says_yes(f"remove all records that are older than {days:g} days?"):
            return 1
        removed = kiln.guarding.audit.prune(days, session)
    if as_json:
        print_json({"removed": removed})
    else:
        say(f"removed: {_count(removed)}")
    return 0


def _moment(option: str, text: str) -> float:
    if ago := _AGO.fullmatch(text):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(
            f"{option}: {text[:100]!r} is no moment",
            hint="such as 2h, 30m, 7d, 2026-11-01, or 2026-11-01T08:30:00+01:00; UTC unless said",
        ) from None


def _noted(head: str) -> tuple[int, str]:
    found = _HEAD.fullmatch(head.strip())
    if found is None:
        raise InputError(
            f"--head: {head[:100]!r} is no head", hint="SEQ:HASH, as `audit verify` prints it"
        )
    return int(found[1]), found[2]


def _row(entry: AuditEntry) -> tuple[str, ...]:
    record = entry.record
    took = "" if record.duration is None else f"{record.duration:.3f} s"
    return (
        str(entry.seq),
        when(record.at),
        record.user,
        record.act,
        record.tool,
        record.outcome,
        took,
        record.detail,
    )


def _as_json(entry: AuditEntry) -> dict[str, Any]:
    return {"seq": entry.seq, **entry.record._asdict(), "hash": entry.hash}


def _json_line(entry: AuditEntry) -> str:
    return json.dumps(_as_json(entry)) + "\n"


def _csv_line(entry: AuditEntry) -> str:
    return _csv_text(_as_json(entry).values())


def _csv_text(values: Any) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(_no_formula, values))
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value


@contextmanager
def _output(file: Path | None) -> Iterator[Callable[[str], object]]:
    """Where records go; a file is this user's alone, and is there only if it is whole."""
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
    except BaseException:  # Ctrl-C as well: half of an export would pass for all of it
        file.unlink()
        raise


def _count(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"
