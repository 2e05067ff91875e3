"""Commands about what is served: what people look at and decide, and what became of it."""

import json
import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from toolkiln.app import (
    Assessment,
    Authored,
    Candidate,
    Decision,
    Draft,
    Kiln,
    ManifestError,
    Problem,
)
from toolkiln.errors import InputError
from toolkiln.model import FileState, FileStatus, Finding, Severity, Version
from toolkiln.surfaces.cli.opening import open_kiln, tools_path
from toolkiln.surfaces.cli.terminal import Live, printable, say

_COLORS = {
    FileState.ADMITTED: "green",
    FileState.CHANGED: "yellow",
    FileState.NEW: "yellow",
    FileState.PROPOSED: "yellow",
    FileState.REJECTED: "red",
    FileState.MISSING: "red",
}


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
    try:
        code = given.file.read_bytes()
    except OSError as error:
        raise InputError(f"{given.file} cannot be read: {error.strerror}") from error
    draft = Draft(code, given.name or given.file.stem, given.description, given.overwrite)
    with open_kiln(tools) as kiln, Live(quiet=as_json) as live:
        authored = kiln.run_sync(
            kiln.authoring.write(
                draft, who(), observe=lambda stage: live.report(stage.value, None, None)
            )
        )
    if as_json:
        _print_json(authored.model_dump(mode="json"))
    else:
        _print_authored(given.file.name, authored)
    return 0 if authored.success else 1


def admit(files: list[Path], options: Options, tools: Path | None) -> int:
    """Show and admit files; the exit status is 1 if one of them is refused."""
    with open_kiln(_place(files, tools)) as kiln:
        candidates = _waiting(kiln, files, afresh=options.afresh)
        if not options.yes and not options.as_json:
            candidates = _agreed(kiln, candidates)
        with Live(quiet=options.as_json) as live:
            done = 0

            def observe(file: str) -> None:
                nonlocal done
                live.report(file, done, len(candidates))
                done += 1

            told = kiln.run_sync(
                kiln.authoring.admit(
                    candidates,
                    Decision(who(), grant=options.grant),
                    probe=options.probe,
                    afresh=options.afresh,
                    observe=observe,
                )
            )
    if options.as_json:
        _print_json({file: authored.model_dump(mode="json") for file, authored in told.items()})
    else:
        for file, authored in told.items():
            _print_authored(file, authored)
        if not told:
            say("nothing to admit", err=True)
    return 0 if all(authored.success for authored in told.values()) else 1


def reject(file: Path, tools: Path | None, *, as_json: bool) -> None:
    """Refuse what is on disk."""
    with open_kiln(_place([file], tools)) as kiln:
        is_served = kiln.admissions.reject(kiln.catalog.disk.key(file), who())
    if as_json:
        _print_json({"file": str(file), "served": is_served})
        return
    after = "its admitted version is served on" if is_served else "it is not served"
    say(f"rejected: {file}: {after}")


def status(tools: Path | None, *, as_json: bool) -> int:
    """Print how each file stands; the exit status is 1 if one waits for a decision."""
    with open_kiln(tools) as kiln:
        found = kiln.catalog.statuses()
        problem: ManifestError | None = None
        findings: Sequence[Finding] = ()
        try:
            findings = kiln.catalog.snapshot.findings
        except ManifestError as error:
            problem = error
    if as_json:
        _print_json([item.model_dump(mode="json") for item in found])
    else:
        for item in found:
            _print_status(item)
    for finding in findings:
        say(f"{finding.path}:{finding.line}: {finding.message}", err=True)
    if problem:
        say(f"error: {problem.message}\n\nhint: {problem.hint}", err=True)
    undecided = {FileState.NEW, FileState.CHANGED, FileState.PROPOSED, FileState.MISSING}
    return 1 if problem or any(item.state in undecided for item in found) else 0


def history(tool: str, tools: Path | None, *, as_json: bool) -> None:
    """Print the versions of a tool."""
    with open_kiln(tools) as kiln:
        versions = kiln.admissions.history(tool)
        served = kiln.catalog.snapshot.served.get(tool)
    current = served.admission.version if served else None
    if as_json:
        _print_json(
            [{**v.model_dump(mode="json"), "served": v.number == current} for v in versions]
        )
        return
    for version in versions:
        mark = "*" if version.number == current else " "
        note = f"  {version.note}" if version.note else ""
        when = version.at[:19].replace("T", " ")
        say(
            f"{mark} v{version.number:<3} {version.digest[:12]}  {when}  "
            f"{version.action} by {version.by}{note}"
        )


def diff(tool: str, old: str, new: str, tools: Path | None) -> None:
    """Print what changed between two versions."""
    with open_kiln(tools) as kiln:
        text = kiln.admissions.diff(tool, old, new)
    if text:
        _print_diff(text)
    else:
        say("the versions are the same", err=True)


def rollback(tool: str, wanted: str, tools: Path | None, *, as_json: bool) -> None:
    """Serve an earlier version again."""
    with open_kiln(tools) as kiln:
        version = kiln.admissions.rollback(tool, wanted, who())
    if as_json:
        _print_json(version.model_dump(mode="json"))
    else:
        say(_as_line(tool, version))


def switch(name: str, tools: Path | None, *, on: bool) -> None:
    """Offer something, or cease to."""
    with open_kiln(tools) as kiln:
        kiln.admissions.switch(name, on)
    say(f"{'enabled' if on else 'disabled'}: {name}")


def who() -> str:
    """The person at the keyboard, by the name of the account."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an account without a name, as in containers
        return f"uid {os.getuid()}"


def _place(files: list[Path], tools: Path | None) -> Path | None:
    """The folder of tools that files belong to: the one given, or set, or else their own."""
    usual = tools_path(tools).resolve()
    if tools is not None or all(file.resolve().is_relative_to(usual) for file in files):
        return tools
    return files[0] if files[0].is_dir() else files[0].parent


def _waiting(kiln: Kiln, files: list[Path], *, afresh: bool) -> list[Candidate]:
    """The files that were named, or all that are not served as they are on disk."""
    catalog = kiln.catalog
    named = [catalog.disk.key(file) for file in files if not file.is_dir()]
    folders = [f"{catalog.disk.key(file)}/".removeprefix("./") for file in files if file.is_dir()]
    if len(named) < len(files) or not files:
        named += [
            item.file
            for item in catalog.statuses()
            if item.tools
            and item.file not in named
            and (afresh or item.state is not FileState.ADMITTED)
            and item.state is not FileState.REJECTED
            and (not folders or item.file.startswith(tuple(folders)))
        ]
    return [kiln.admissions.candidate(key) for key in named]


def _agreed(kiln: Kiln, candidates: list[Candidate]) -> list[Candidate]:
    """Those that the person at the keyboard says yes to."""
    agreed = []
    for candidate in candidates:
        _print_assessment(kiln.admissions.assess(candidate))
        if typer.confirm(f"admit {candidate.file}?", default=True, err=True):
            agreed.append(candidate)
    return agreed


def _print_assessment(assessment: Assessment) -> None:
    _print_diff(assessment.diff)
    for finding in assessment.findings:
        if finding.severity is not Severity.INFO:
            say(f"{finding.severity}[{finding.rule}] line {finding.line}: {finding.message}")
    for rights in assessment.rights:
        say(f"asks for: {rights}")


def _print_diff(text: str) -> None:
    for line in text.splitlines():
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        typer.secho(line, fg=color, bold=line.startswith("diff "))


def _print_authored(file: str, authored: Authored) -> None:
    for problem in authored.warnings:
        say(f"warning: {file}:{_as_text(problem)}", err=True)
    if not authored.success:
        say(f"refused: {file}: {authored.error}", err=True)
        for problem in authored.validation_errors:
            say(f"  {file}:{_as_text(problem)}", err=True)
        return
    tools = ", ".join(authored.functions_registered)
    say(f"admitted: {authored.filepath} v{authored.version}: {tools}")


def _as_text(problem: Problem) -> str:
    return f"{problem.line}: [{problem.rule}] {problem.message}\n      fix: {problem.fix}"


def _print_status(item: FileStatus) -> None:
    state = typer.style(f"{item.state:<9}", fg=_COLORS[item.state])
    tools = ", ".join(item.tools)
    entry = item.admission
    since = f"  v{entry.version} by {entry.admitted_by}" if entry else ""
    typer.echo(f"{state} {printable(item.file)}{since}  {printable(tools)}")


def _as_line(tool: str, version: Version) -> str:
    return f"{tool}: v{version.number} ({version.note}), {version.digest[:12]}"


def _print_json(value: object) -> None:
    say(json.dumps(value, indent=2, ensure_ascii=False))
