"""Commands about what is served: what people look at and decide, and how files stand.

A decision is never taken for granted: without `--yes` each file is shown and asked about.
Only who names a file where nobody can be asked, as a script does, has thereby decided.
What became of earlier decisions is in `versions`.
"""

import os
import select
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolkiln.app import (
    Candidate,
    Kiln,
    ManifestError,
    SessionToken,
    inherited,
    not_granted,
    refuse_hidden,
    refuse_hidden_file,
)
from toolkiln.errors import InputError
from toolkiln.model import FileState, FileStatus, Finding, Privilege, Severity
from toolkiln.surfaces.cli.opening import open_folder, require, tools_path, user_of
from toolkiln.surfaces.cli.terminal import Live, print_json, printable, say

if TYPE_CHECKING:
    from toolkiln.app import Assessment, Authored, Problem

_MANIFEST = "_manifest.json"
_COLORS = {
    FileState.ADMITTED: "green",
    FileState.CHANGED: "yellow",
    FileState.NEW: "yellow",
    FileState.PROPOSED: "yellow",
    FileState.REJECTED: "red",
    FileState.MISSING: "red",
}
_UNDECIDED = {FileState.NEW, FileState.CHANGED, FileState.PROPOSED}


@dataclass(frozen=True)
class Addition:
    """A file that shall become a tool."""

    file: Path
    name: str | None
    description: str
    overwrite: bool


@dataclass(frozen=True)
class Options:
    """How `toolkiln admit` was asked."""

    grant: bool
    yes: bool
    probe: bool
    afresh: bool
    as_json: bool


def add(given: Addition, tools: Path | None, *, as_json: bool) -> int:
    """Put a file into the catalog; the exit status is 1 if it is refused."""
    from toolkiln.app import Draft  # what else is here needs no event loop

    try:
        code = given.file.read_bytes()
    except OSError as error:
        raise InputError(f"{given.file} cannot be read: {error.strerror}") from error
    draft = Draft(code, given.name or given.file.stem, given.description, given.overwrite)
    with open_folder(tools) as kiln, Live(quiet=as_json) as live:
        session = require(kiln, Privilege.ADMIN, "admit")
        target = kiln.catalog.root / f"{draft.name.removesuffix('.py')}.py"
        is_there = os.path.lexists(target)
        if os.path.realpath(given.file) == os.path.realpath(target):
            raise InputError(
                f"{given.file} is in the tools' folder already",
                hint=f"admit it with `toolkiln admit {given.file}`",
            )
        _refuse_unusable_manifest(kiln)
        refuse_hidden_file(kiln, target.name, session)
        authored = kiln.run_sync(
            kiln.authoring.write(
                draft,
                kiln.guarding.decision(session=session),
                observe=lambda stage: live.report(stage.value, None, None),
            )
        )
        if as_json:
            print_json(authored.model_dump(mode="json"))
        else:
            _print_authored(kiln, given.file, authored)
            if is_there and not authored.success and not given.overwrite:
                say(f"\nhint: --overwrite replaces {target}", err=True)
    return 0 if authored.success else 1


def admit(files: list[Path], options: Options, tools: Path | None) -> int:
    """Show and admit files; the exit status is 1 if one of them is not admitted."""
    # Path's method raises for names that are too long.
    missing = [file for file in files if not os.path.exists(file)]  # noqa: PTH110
    is_named = bool(files) and not any(map(os.path.isdir, files))
    if options.as_json and not options.yes and not is_named:
        raise InputError("with --json nobody is asked", hint="name files, or add --yes")
    if missing:
        with open_folder(tools) as kiln:
            _refuse_missing(kiln, missing)
    with open_folder(_place(files, tools)) as kiln:
        session = require(kiln, Privilege.ADMIN, "admit")
        if not options.afresh:
            _refuse_unusable_manifest(kiln)
        candidates = _waiting(kiln, files, afresh=options.afresh)
        for candidate in candidates:
            refuse_hidden_file(kiln, candidate.file, session)
        agreed = candidates
        if not options.yes and not options.as_json:
            agreed = _agreed(kiln, candidates, grant=options.grant, is_named=is_named)
        told = _admitted(kiln, agreed, options, session)
        if options.as_json:
            print_json({key: authored.model_dump(mode="json") for key, authored in told.items()})
        else:
            for key, authored in told.items():
                _print_authored(kiln, kiln.catalog.root / key, authored, warn=options.yes)
    if not candidates and not options.as_json:
        say("nothing to admit", err=True)
    is_done = len(told) == len(candidates) and all(each.success for each in told.values())
    return 0 if is_done else 1


def reject(file: Path, tools: Path | None, *, as_json: bool) -> None:
    """Reject the proposal for a file, or else what is on disk."""
    if not file.parent.is_dir() or file.is_dir():
        raise InputError(f"{str(file)!r} is no file")
    with open_folder(_place([file], tools)) as kiln:
        session = require(kiln, Privilege.ADMIN, "reject")
        key = kiln.catalog.disk.key(file)
        refuse_hidden_file(kiln, key, session)
        is_served = kiln.admissions.reject(key, user_of(kiln, session))
    if as_json:
        print_json({"file": str(file), "served": is_served})
        return
    after = "its admitted version is served on" if is_served else "it is not served"
    say(f"rejected: {file}: {after}")


def status(tools: Path | None, *, as_json: bool) -> int:
    """Print how each file stands; the exit status is 1 if one waits for a decision."""
    with open_folder(tools) as kiln:
        require(kiln, Privilege.ADMIN, "proposals.list")
        problem: ManifestError | None = None
        findings: Sequence[Finding] = ()
        found = [item for item in kiln.catalog.statuses() if _concerns_us(item)]
        inherits = {} if as_json else {item.file: _inherits(kiln, item) for item in found}
        try:
            findings = kiln.catalog.snapshot.findings
        except ManifestError as error:
            problem = error
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
    else:
        for item in found:
            _print_status(kiln.catalog.root, item, inherits[item.file])
    for finding in findings:
        say(f"{finding.path}:{finding.line}: {finding.message}", err=True)
    if problem:
        say(f"error: {problem.message}\n\nhint: {problem.hint}", err=True)
        return 1
    states = {item.state for item in found}
    unconfirmed = [item for item in found if item.is_unconfirmed]
    if unconfirmed and not as_json:
        say(f"note: {unconfirmed_note(len(unconfirmed))}", err=True)
    if not as_json and any(inherits.get(item.file) for item in found if item.is_unreviewed):
        say(
            "hint: `toolkiln admit FILE` lets a version that was not reviewed have its grants and "
            "settings",
            err=True,
        )
    if states & _UNDECIDED and not as_json:
        where = f" --tools {tools}" if tools else ""
        say(f"hint: `toolkiln admit{where}` shows what is new, and asks", err=True)
    if FileState.MISSING in states and not as_json:
        say("hint: `toolkiln reject FILE` forgets a file that is missing", err=True)
    return 1 if unconfirmed or states & {*_UNDECIDED, FileState.MISSING} else 0


def unconfirmed_note(count: int) -> str:
    """Say that versions are served which no person has decided about."""
    files = "1 file is" if count == 1 else f"{count} files are"
    return (
        f"{files} served in a version that `toolkiln dev` or an agent admitted; confirm each with "
        "`toolkiln admit FILE`, or stop serving it with `toolkiln reject FILE`"
    )


def switch(name: str, tools: Path | None, *, on: bool, as_json: bool) -> None:
    """Offer something, or cease to."""
    with open_folder(tools) as kiln:
        session = require(kiln, Privilege.ADMIN, "switch")
        refuse_hidden(kiln, name, session)
        kiln.admissions.switch(name, on, user_of(kiln, session))
    if as_json:
        print_json({"name": name, "enabled": on})
    else:
        say(f"{'enabled' if on else 'disabled'}: {name}")


def says_yes(question: str, *, unasked: bool | None = None) -> bool:
    """Whether the person at the keyboard agrees; no is what a mere return means.

    Raises:
        InputError: there is nobody to ask, and `unasked` does not say what that means.
    """
    is_terminal = bool(sys.stdin and sys.stdin.isatty())
    waits = is_terminal or unasked is None
    asked = f"{question} [y/N] "
    if waits:
        say(asked, err=True, newline=False)
    try:
        answer = sys.stdin.readline() if sys.stdin and (waits or _holds_an_answer()) else ""
    except UnicodeDecodeError:
        answer = "no"
    if not answer and not waits:
        return bool(unasked)
    if not is_terminal:  # where nobody sees what was typed
        say(f"{'' if waits else asked}{answer.strip()}", err=True)
    if not answer:
        raise InputError("nobody answers", hint="--yes goes ahead without asking")
    return answer.strip().lower() in ("y", "yes")


def _holds_an_answer() -> bool:
    """Whether reading would not wait: a pipe holds something, or has come to its end."""
    try:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, ValueError):  # no real file
        return True


def print_diff(text: str) -> None:
    """A diff, in colours on a terminal."""
    for line in text.splitlines():
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        typer.secho(line, fg=color, bold=line.startswith("diff "))


def _place(files: list[Path], tools: Path | None) -> Path | None:
    """The tools that files belong to: those given, or set, or else the folder that admits them.

    Raises:
        InputError: no folder does; nothing is admitted to one by accident.
    """
    usual = tools_path(tools)
    root = os.path.realpath(usual.parent if usual.is_file() else usual)
    outside = [file for file in files if not _is_below(file, root)]
    if tools is not None or not outside:
        return tools
    if outside[0].is_dir():
        return outside[0]
    for folder in Path(os.path.realpath(outside[0].parent), "_").parents:
        if (folder / _MANIFEST).is_file():
            return folder
    raise InputError(
        f"{outside[0]} is not in the tools' folder {usual}",
        hint="name where it lies with --tools, or copy it to the tools with `toolkiln add`",
    )


def _is_below(file: Path, folder: str) -> bool:
    # A link in the folder is a file of the folder, wherever it leads.
    own = os.path.realpath(file if file.is_dir() else file.parent)
    return Path(own).is_relative_to(folder)


def _refuse_unusable_manifest(kiln: Kiln) -> None:
    """Before anybody is asked anything."""
    if os.path.lexists(kiln.catalog.root / _MANIFEST):
        _ = kiln.catalog.manifest


def _refuse_missing(kiln: Kiln, files: list[Path]) -> None:
    """Refuse files that are neither on disk nor proposed.

    Raises:
        InputError: there is one.
    """
    for file in files:
        try:
            is_proposed = kiln.catalog.disk.key(file) in kiln.catalog.proposals()
        except (InputError, OSError, RuntimeError, ValueError):  # no manifest, no such name
            is_proposed = False
        if not is_proposed:
            raise InputError(f"there is no file or folder {str(file)!r}")


def _waiting(kiln: Kiln, files: list[Path], *, afresh: bool) -> list[Candidate]:
    """Return the files that were named, or all that wait for a decision.

    Of a file with a change on disk and a proposal, the change comes first; the proposal goes on
    waiting.
    """
    catalog = kiln.catalog
    named = [catalog.disk.key(file) for file in files if not file.is_dir()]
    folders = [f"{catalog.disk.key(file)}/".removeprefix("./") for file in files if file.is_dir()]
    if len(named) < len(files) or not files:
        wanted = {*_UNDECIDED, FileState.ADMITTED} if afresh else _UNDECIDED
        named += [
            item.file
            for item in catalog.statuses()
            if (item.state in wanted or item.is_unconfirmed)
            and _concerns_us(item)
            and (not folders or item.file.startswith(tuple(folders)))
        ]
    proposals = {} if afresh else catalog.proposals()
    return [_candidate(kiln, key, proposals) for key in dict.fromkeys(named)]


def _candidate(kiln: Kiln, key: str, proposals: Container[str]) -> Candidate:
    admissions = kiln.admissions
    if key in proposals and (proposal := admissions.proposal(key)):
        read = kiln.catalog.disk.read(key)
        state = kiln.catalog.manifest.state_of(key, read.digest) if read else FileState.MISSING
        if state not in (FileState.NEW, FileState.CHANGED):
            return proposal
    return admissions.candidate(key)


def _agreed(
    kiln: Kiln, candidates: list[Candidate], *, grant: bool, is_named: bool
) -> list[Candidate]:
    """Those that the person at the keyboard says yes to, and those that nobody can admit."""
    agreed = []
    for candidate in candidates:
        file = kiln.catalog.root / candidate.file
        if any(map(_is_error, candidate.read.reading.findings)):
            agreed.append(candidate)
            continue
        assessment = kiln.admissions.assess(candidate)
        if grant:  # that is about everything that it asks for
            whole = kiln.admissions.assess(replace(candidate, base=None))
            assessment = replace(assessment, rights=whole.rights)
        _print_assessment(file, assessment)
        for inherited_rights in inherited(kiln, candidate):
            say(printable(str(inherited_rights)))
        granting = " and grant that" if grant and assessment.rights else ""
        if says_yes(f"admit {file}{granting}?", unasked=True if is_named else None):
            agreed.append(candidate)
        else:
            say(f"not admitted: {file}", err=True)
    return agreed


def _admitted(
    kiln: Kiln, candidates: list[Candidate], options: Options, session: SessionToken
) -> "dict[str, Authored]":
    places = iter(range(len(candidates)))
    with Live(quiet=options.as_json) as live:
        return kiln.run_sync(
            kiln.authoring.admit(
                candidates,
                kiln.guarding.decision(grant=options.grant, session=session),
                probe=options.probe,
                afresh=options.afresh,
                observe=lambda file: live.report(file, next(places), len(candidates)),
            )
        )


def _print_assessment(file: Path, assessment: "Assessment") -> None:
    print_diff(assessment.diff)
    for finding in assessment.findings:
        if finding.severity is not Severity.INFO:
            say(_as_text(file, finding.severity, finding))
    for rights in assessment.rights:
        say(f"{rights}")


def _print_authored(kiln: Kiln, file: Path, authored: "Authored", *, warn: bool = True) -> None:
    for problem in authored.warnings if warn else ():
        say(_as_text(file, "warning", problem), err=True)
    for problem in authored.validation_errors:
        say(_as_text(file, "error", problem), err=True)
    if not authored.success:
        say(f"refused: {file}: {authored.error}", err=True)
        return
    tools = ", ".join(authored.functions_registered)
    say(f"admitted: {authored.filepath} v{authored.version}: {tools or 'none of its tools'}")
    for line in _notes(kiln, authored):
        say(f"note: {line}", err=True)


def _as_text(file: Path, severity: str, problem: "Problem | Finding") -> str:
    """As `toolkiln check` prints a finding, without the line of source."""
    place = f"{file}:{problem.line}: {severity}[{problem.rule}]"
    return f"{place} {problem.message}\n  fix: {problem.fix}"


def _notes(kiln: Kiln, authored: "Authored") -> Iterator[str]:
    """What keeps an admitted file from being of use: names that are taken, rights it lacks."""
    for finding in kiln.catalog.snapshot.findings:
        if finding.path == authored.filepath:
            yield finding.message
    for name in authored.functions_registered:
        if missing := "; ".join(not_granted(kiln, name)):
            grant = f"`toolkiln admit --grant {authored.filepath}`"
            yield f"{name} asks for {missing}, which is not granted; {grant} does"


def _inherits(kiln: Kiln, item: FileStatus) -> str:
    """Return the grants and settings that an unreviewed version gets once a person admits it."""
    if item.state is FileState.PROPOSED:
        candidate = kiln.admissions.proposal(item.file)
    elif item.is_unreviewed and item.state is FileState.ADMITTED:
        candidate = kiln.admissions.candidate(item.file)
    else:
        return ""
    return "; ".join(map(str, inherited(kiln, candidate))) if candidate else ""


def _print_status(root: Path, item: FileStatus, inherits: str) -> None:
    state = typer.style(f"{item.state:<9}", fg=_COLORS[item.state])
    entry = item.admission
    since = f"  v{entry.version} by {entry.admitted_by}" if entry else ""
    if item.is_unreviewed:
        since += " (unconfirmed)" if item.is_unconfirmed else " (not reviewed)"
    since += f"  by {item.proposed_by}" if item.proposed_by else ""
    for one in entry.overruled if entry else ():
        since += f"  {one.rule} overruled by {one.by} ({one.file}:{one.line})"
    wrong = next(filter(_is_error, item.findings), None)
    told = wrong.message if wrong else ", ".join(item.tools)
    typer.echo(f"{state} {printable(f'{root / item.file}{since}  {told}')}".rstrip())
    if inherits:
        typer.echo(f"          once a person admits it: {printable(inherits)}")


def _concerns_us(item: FileStatus) -> bool:
    """Whether a file declares tools, was admitted, or might declare some if it could be read."""
    return bool(item.tools or item.admission or any(map(_is_error, item.findings)))


def _is_error(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR
