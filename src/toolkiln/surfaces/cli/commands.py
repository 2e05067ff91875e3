"""What each command does: one call, then printing."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from toolkiln import app
from toolkiln.errors import InputError, UnknownTool, nearest_hint
from toolkiln.model import FileState, FileStatus, Role, Severity, ToolSpec
from toolkiln.surfaces.cli import output, templates
from toolkiln.surfaces.cli.opening import (
    authenticate,
    is_admin,
    note_no_worker,
    tools_path,
    visible_tool,
)
from toolkiln.surfaces.cli.terminal import say

_MANY_FILES = 50
"""From here on checking takes long enough for a progress bar."""


def new(name: str, dialect: str, tools: Path | None) -> None:
    """Write a first version of a tool."""
    folder = tools_path(tools)
    if folder.is_file():
        raise InputError(f"{str(folder)!r} is a file", hint="name a folder with --tools PATH")
    text = templates.source(name, dialect)
    file = folder / f"{name}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise InputError(
            f"{str(file)!r} exists already", hint="choose another name, or edit that file"
        ) from None
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    typer.echo(str(file))
    typer.echo(f"next: edit it, then `toolkiln check {file}` and `toolkiln admit {file}`", err=True)


def check(paths: list[Path] | None, tools: Path | None, *, as_json: bool, strict: bool) -> int:
    """Print findings; the exit status is 1 if any of them fails the check."""
    places = paths or [tools_path(tools)]
    reports = app.check(places)
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    summary = output.Summary()
    files: list[dict[str, Any]] = []
    failed = False
    for report in _with_progress(reports, quiet=as_json):
        summary.add(report)
        failed = failed or report.worst in failing
        if as_json:
            files.append(output.report_json(report))
        else:
            output.print_report(report)
    if as_json:
        typer.echo(json.dumps({"files": files, "summary": summary.as_json()}, indent=2))
    else:
        summary.print()
    if not summary.tools and not failed:
        raise InputError(
            f"there is no tool in {' '.join(map(str, places))}",
            hint="write a public function with a docstring, or start with `toolkiln new NAME`",
        )
    return 1 if failed else 0


def list_tools(kiln: app.Kiln, token: str | None, *, as_json: bool, everything: bool) -> None:
    """Print the tools that the caller may see, grouped by toolkit."""
    with kiln:
        _list_tools(kiln, authenticate(kiln, token), as_json=as_json, everything=everything)


def _list_tools(
    kiln: app.Kiln, session: app.SessionToken, *, as_json: bool, everything: bool
) -> None:
    dev: set[str] = set()
    sees_files = kiln.path is not None and is_admin(kiln, session)
    try:
        specs = list(kiln.visible(session, None).values())
        dev = {spec.name for spec in specs if kiln.is_dev(spec.name)}
    except app.ManifestError as unserved:
        if not sees_files:
            raise
        specs = sorted(_on_disk(kiln).values(), key=lambda spec: (spec.weight, spec.name))
        _note(unserved)
        statuses = kiln.catalog.statuses()
    else:
        statuses = _not_listed(kiln) if sees_files else []
        if denied := len(kiln.specs) - len(specs):
            say(f"note: {denied:,} not listed, because of the rules", err=True)
    shown = specs if everything else [spec for spec in specs if spec.is_shown]
    if as_json:
        listed = [{**output.tool_json(spec), "dev": spec.name in dev} for spec in shown]
        typer.echo(json.dumps(listed, indent=2))
    else:
        output.print_tools(shown, dev)
    note_no_worker(kiln)
    for status in statuses:
        problem = next((f for f in status.findings if f.severity is Severity.ERROR), None)
        if problem and not status.tools:
            file = kiln.catalog.root / status.file
            say(f"left out: {file}:{problem.line}: {problem.message}", err=True)
    hidden = len(specs) - len(shown)
    if hidden:
        typer.echo(f"{hidden} hidden; --all shows them", err=True)


def show(kiln: app.Kiln, name: str, form: str | None) -> int:
    """Print one tool in one form; the exit status is 1 if that form cannot be used."""
    with kiln:
        return _show(kiln, name, form, authenticate(kiln))


def _show(kiln: app.Kiln, name: str, form: str | None, session: app.SessionToken) -> int:
    forms = [*app.PROVIDERS, "schema", "docs"]
    if form is not None and form not in forms:
        hint = nearest_hint(form, forms) or f"one of {', '.join(forms)}"
        raise InputError(f"there is no form {form!r}", hint=hint)
    spec, dev = _served_or_not(kiln, name, session)
    if dev:
        say(f"note: {name} is not admitted; dev serves it as it is on disk", err=True)
    if form == "docs":
        typer.echo(spec.detailed_description())
        return 0
    if form == "schema":
        typer.echo(json.dumps(spec.parameters, indent=2, ensure_ascii=False))
        return 0
    if form is None:
        seen: dict[str, Any] = {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
        }
        if spec.role is not Role.TOOL:
            about = {"role": spec.role, "uri": spec.uri, "mime_type": spec.mime_type}
            seen |= {name: value for name, value in about.items() if value is not None}
        if dev:
            seen["dev"] = True
        typer.echo(json.dumps(seen, indent=2, ensure_ascii=False))
        return 0
    if spec.role is not Role.TOOL:
        raise InputError(f"{name} is a {spec.role}, which no model is given")
    compiled = kiln.compiled(spec, form)
    typer.echo(json.dumps(compiled.payload, indent=2, ensure_ascii=False))
    for loss in compiled.losses:
        typer.echo(f"lost: {loss.path or '/'}: {loss.reason}", err=True)
    for problem in compiled.errors:
        typer.echo(f"error: {problem}", err=True)
    return 1 if compiled.errors else 0


def _served_or_not(kiln: app.Kiln, name: str, session: app.SessionToken) -> tuple[ToolSpec, bool]:
    """Return a tool as it is served, and whether `dev` serves it.

    For the operator, also one that is not admitted yet.
    """
    try:
        return visible_tool(kiln, name, session), kiln.is_dev(name)
    except (app.ManifestError, app.NotAdmitted) as problem:
        if session is not app.OWN:
            raise
        found = _on_disk(kiln)
        if name not in found:
            raise UnknownTool(name, found) from None
        _note(problem)
        return found[name], False


def _on_disk(kiln: app.Kiln) -> dict[str, ToolSpec]:
    """The tools as they would be served if somebody admitted them.

    Raises:
        InputError: there is none.
    """
    found = kiln.preview()
    if not found:
        raise InputError(
            f"there is no tool in {kiln.path}",
            hint=f"`toolkiln check {kiln.path}` says what is wrong with its files",
        )
    return found


def _not_listed(kiln: app.Kiln) -> list[FileStatus]:
    """The files of the catalog, after telling which of their tools are not served."""
    snapshot, statuses = kiln.catalog.snapshot, list(kiln.catalog.statuses())
    if not snapshot.served:
        _on_disk(kiln)  # raises if there is nothing that could be admitted
    if off := sorted(snapshot.served.keys() - snapshot.tools.keys()):
        say(f"note: disabled: {', '.join(off)}", err=True)
    for finding in snapshot.findings:
        if finding.rule == "manifest-unusable":
            say(f"note: {finding.message}", err=True)
    unserved = sum(_is_unserved(kiln, status) for status in statuses)
    if unserved:
        files = "1 file is" if unserved == 1 else f"{unserved:,} files are"
        say(f"note: {files} not served as on disk; `toolkiln status` tells more", err=True)
    return statuses


def _is_unserved(kiln: app.Kiln, status: FileStatus) -> bool:
    """Whether a file declares tools, and they are not served in this version."""
    if not status.tools or status.state is FileState.ADMITTED:
        return False
    is_undecided = status.state in (FileState.NEW, FileState.CHANGED)
    return not (is_undecided and all(map(kiln.is_dev, status.tools)))


def _note(problem: InputError) -> None:
    say(f"note: {problem.message}\nnote: {problem.hint}", err=True)


def _with_progress(reports: Iterator[app.Report], *, quiet: bool) -> Iterator[app.Report]:
    """The reports, with a count on the terminal once there are many."""
    if quiet or not sys.stderr.isatty():
        yield from reports
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        for number, report in enumerate(reports, 1):
            if number >= _MANY_FILES:
                status.update(f"reading {number:,} files: {report.reading.path}")
            yield report
