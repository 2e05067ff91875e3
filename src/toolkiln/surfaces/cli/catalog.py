"""Commands for the catalog: admit, reject and add files, and their versions.

Without `--yes` each file is shown and confirmed. Naming a file without a terminal, as a script
does, counts as confirmation.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import JsonOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import (
    ProgressDisplay,
    confirm,
    print_diff,
    print_json,
    print_outcome,
    printable,
    say,
)

if TYPE_CHECKING:
    from toolkiln.model.admission import AdmissionResult, FindingSummary
    from toolkiln.model.catalog import FileStatus
    from toolkiln.model.source import Finding
    from toolkiln.operations import catalog, proposals

I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output
_MANIFEST = "_manifest.json"
_WAITING = {"new", "changed", "proposed"}
_COLORS = {
    "admitted": "green",
    "changed": "yellow",
    "new": "yellow",
    "proposed": "yellow",
    "rejected": "red",
    "missing": "red",
}
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ToolArgument = Annotated[str, typer.Argument(help="The name of the tool.")]
OptionalVersionArgument = Annotated[
    str | None,
    typer.Argument(help="A number, or the start of a digest.", show_default=False),
]
SwitchArgument = Annotated[
    str, typer.Argument(help="A tool, a toolkit, or a method as Toolkit.method.")
]


@command(app)
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
    from toolkiln.operations import catalog
    from toolkiln.surfaces.cli.session import authenticate, open_folder

    request = catalog.AddFile(file=file, name=name, description=description, overwrite=overwrite)
    with open_folder(tools) as kiln, ProgressDisplay(quiet=as_json) as progress:
        session = authenticate(kiln)
        added = kiln.run_operation_sync(catalog.add_file, request, session, progress.report)
        target = kiln.catalog.root / added.file
    if as_json:
        print_json(added.result.model_dump(mode="json"))
    else:
        _print_admission(file, added)
        if added.result.code == "exists" and not overwrite:
            say(f"\nhint: --overwrite replaces {target}", err=True)
    raise typer.Exit(0 if added.result.success else 1)


@command(app)
def admit(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files and folders. Default: the tools.", show_default=False),
    ] = None,
    grant: Annotated[
        bool, typer.Option("--grant", help="Grant the permissions that they request.")
    ] = False,
    yes: YesOption = False,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Neither import them nor run their examples first.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Replace a manifest that cannot be trusted.")
    ] = False,
    afresh: Annotated[bool, typer.Option("--afresh", hidden=True)] = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Show what is new in files, and admit them."""
    from toolkiln.operations import proposals
    from toolkiln.surfaces.cli.session import authenticate, open_folder

    paths, reset = tuple(files or ()), reset or afresh
    is_named = bool(paths) and not any(map(os.path.isdir, paths))
    if as_json and not yes and not is_named:
        raise InputError("--json does not prompt", hint="name files, or add --yes")
    asks = not yes and not as_json
    existing = [path for path in paths if os.path.exists(path)]  # noqa: PTH110 - too long a name
    with open_folder(_folder_of(existing, tools)) as kiln:
        session, root = authenticate(kiln), kiln.catalog.root
        query = proposals.CandidateQuery(paths=paths, reset=reset, compare=asks)
        candidates = kiln.run_operation_sync(proposals.find_candidates, query, session)
        agreed = [
            proposals.ProposalRef(file=item.file, digest=item.digest, base=item.base)
            for item in candidates
            if not asks or _is_confirmed(root, item, grant=grant, is_named=is_named)
        ]
        request = proposals.AdmitFiles(
            files=tuple(agreed), grant=grant, probe=not no_probe, reset=reset
        )
        with ProgressDisplay(quiet=as_json) as progress:
            admitted = kiln.run_operation_sync(
                proposals.admit_files, request, session, progress.report
            )
    if as_json:
        print_json({item.file: item.result.model_dump(mode="json") for item in admitted})
    else:
        for item in admitted:
            _print_admission(root / item.file, item, warn=yes)
        if not candidates:
            say("nothing to admit", err=True)
    is_done = len(admitted) == len(candidates) and all(item.result.success for item in admitted)
    raise typer.Exit(0 if is_done else 1)


@command(app)
def reject(
    file: Annotated[Path, typer.Argument(help="A file of the tools.")],
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Reject the current version of a file; an admitted one stays."""
    from toolkiln.operations import proposals
    from toolkiln.surfaces.cli.session import run_in_folder

    if not file.parent.is_dir() or file.is_dir():
        raise InputError(f"{str(file)!r} is not a file")
    is_served = run_in_folder(
        proposals.reject_file, proposals.RejectFile(path=file), _folder_of([file], tools)
    )
    if as_json:
        print_json({"file": str(file), "served": is_served})
        return
    after = "its admitted version is served on" if is_served else "it is not served"
    say(f"rejected: {file}: {after}")


@command(app)
def status(as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Show which files are served, and which wait for a decision."""
    from toolkiln.operations import catalog
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import authenticate, open_folder

    with open_folder(tools) as kiln:
        found = kiln.run_operation_sync(catalog.get_status, Nothing(), authenticate(kiln))
        root = kiln.catalog.root
    if as_json:
        print_json([item.model_dump(mode="json") for item in found.files])
    else:
        for item in found.files:
            _print_status(root, item, found.inherits[item.file])
    for finding in found.findings:
        say(f"{finding.path}:{finding.line}: {finding.message}", err=True)
    if found.problem:
        message, hint = found.problem
        say(f"error: {message}\n\nhint: {hint}", err=True)
        raise typer.Exit(1)
    if not as_json:
        _print_status_hints(found, tools)
    is_waiting = any(item.state in {*_WAITING, "missing"} for item in found.files)
    is_unconfirmed = any(item.is_unconfirmed for item in found.files)
    raise typer.Exit(1 if is_waiting or is_unconfirmed else 0)


@command(app)
def history(tool: ToolArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """List the admitted versions of a tool, newest first."""
    from toolkiln.operations import tools as tool_operations
    from toolkiln.operations import versions
    from toolkiln.surfaces.cli.session import run_in_folder

    found = run_in_folder(versions.get_history, tool_operations.ToolName(name=tool), tools)
    if not found.versions:
        say(f"no version of {tool} was admitted", err=True)
    if as_json:
        print_json(
            [
                {**item.model_dump(mode="json"), "served": item.number == found.served}
                for item in found.versions
            ]
        )
        return
    for item in found.versions:
        mark = "*" if item.number == found.served else " "
        note = f"  {item.note}" if item.note else ""
        when = item.at[:19].replace("T", " ")
        say(
            f"{mark} v{item.number:<3} {item.digest[:12]}  {when}  {item.action} by {item.by}{note}"
        )


@command(app)
def diff(
    tool: ToolArgument,
    old: OptionalVersionArgument = None,
    new: OptionalVersionArgument = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Show the pending change of a tool, or compare two versions."""
    from toolkiln.operations import versions
    from toolkiln.surfaces.cli.session import run_in_folder

    if (old is None) is not (new is None):
        raise InputError("one version cannot be compared", hint="name two versions, or none")
    request = versions.CompareVersions(name=tool, old=old, new=new)
    found = run_in_folder(versions.compare_versions, request, tools)
    if as_json:
        print_json({"tool": tool, "diff": found.diff})
    elif found.diff:
        print_diff(found.diff)
        for line in found.inherits:
            say(line)
    else:
        is_pending = old is None
        say(f"{tool} has no pending change" if is_pending else "the versions are equal", err=True)


@command(app)
def rollback(
    tool: ToolArgument,
    version: Annotated[str, typer.Argument(help="A number, or the start of a digest.")],
    yes: YesOption = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Serve an earlier version of a tool again, and write it back."""
    from toolkiln.operations import versions
    from toolkiln.surfaces.cli.session import authenticate, checked_request, open_folder

    with open_folder(tools) as kiln:
        session = authenticate(kiln)
        target = versions.GetVersion(name=tool, version=version)
        file = kiln.run_operation_sync(versions.find_unsaved, target, session)
        if file is not None and not yes:
            question = f"{file} has unadmitted changes; overwrite them?"
            if as_json:
                raise InputError(question, hint="add --yes")
            if not confirm(question):
                raise typer.Exit(1)
        fields = {"name": tool, "version": version, "discard": file is not None}
        request = checked_request(versions.Rollback, fields)
        restored = kiln.run_operation_sync(versions.restore_version, request, session)
    print_outcome(
        restored.model_dump(mode="json"),
        f"{tool}: v{restored.number} is served, {restored.note}",
        as_json=as_json,
    )


@command(app)
def remove(
    tool: ToolArgument,
    with_others: Annotated[
        bool, typer.Option("--with-others", help="Remove other tools of its file too.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Remove a tool from the catalog, with its file."""
    from toolkiln.operations import tools as tool_operations
    from toolkiln.surfaces.cli.session import authenticate, open_folder

    with open_folder(tools) as kiln:
        session, root = authenticate(kiln), kiln.catalog.root
        name = tool_operations.ToolName(name=tool)
        served = kiln.run_operation_sync(tool_operations.get_served_file, name, session)
        if as_json and not yes:
            raise InputError("--json does not prompt", hint="add --yes")
        if not yes and not confirm(f"remove {root / served.file} ({', '.join(served.tools)})?"):
            raise typer.Exit(1)
        request = tool_operations.RemoveTool(
            name=tool, with_others=with_others, match=(served.digest,)
        )
        removed = kiln.run_operation_sync(tool_operations.remove_tool, request, session)
    file = root / removed.file
    print_outcome(
        {"file": str(file), "tools": removed.tools, "version": removed.version},
        f"removed: {file}; `toolkiln rollback {tool} {removed.version}` brings it back",
        as_json=as_json,
    )


@command(app)
def enable(name: SwitchArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Enable a tool, a toolkit or one of its methods."""
    _switch(name, tools, enabled=True, as_json=as_json)


@command(app)
def disable(name: SwitchArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Disable a tool, a toolkit or one of its methods."""
    _switch(name, tools, enabled=False, as_json=as_json)


def _switch(name: str, tools: Path | None, *, enabled: bool, as_json: bool) -> None:
    from toolkiln.operations import catalog
    from toolkiln.surfaces.cli.session import run_in_folder

    run_in_folder(catalog.switch_tool, catalog.SwitchTool(name=name, enabled=enabled), tools)
    print_outcome(
        {"name": name, "enabled": enabled},
        f"{'enabled' if enabled else 'disabled'}: {name}",
        as_json=as_json,
    )


def _folder_of(files: list[Path], tools: Path | None) -> Path | None:
    """Return the tools that files belong to: as given or set, or else the folder that admits them.

    Nothing is admitted to another folder by accident.
    """
    from toolkiln.surfaces.cli.session import tools_path

    default = tools_path(tools)
    root = os.path.realpath(default.parent if default.is_file() else default)
    outside = [file for file in files if not _is_below(file, root)]
    if tools is not None or not outside:
        return tools
    if outside[0].is_dir():
        return outside[0]
    for folder in Path(os.path.realpath(outside[0].parent), "_").parents:
        if (folder / _MANIFEST).is_file():
            return folder
    raise InputError(
        f"{outside[0]} is not in the tools folder {default}",
        hint="name its folder with --tools, or copy it to the tools with `toolkiln add`",
    )


def _is_below(file: Path, folder: str) -> bool:
    # A link in the folder is a file of the folder, wherever it leads.
    own = os.path.realpath(file if file.is_dir() else file.parent)
    return Path(own).is_relative_to(folder)


def _is_confirmed(
    root: Path, candidate: "proposals.AdmissionCandidate", *, grant: bool, is_named: bool
) -> bool:
    """Show a file and ask whether to admit it; one that cannot be admitted needs no answer."""
    proposal, file = candidate.proposal, root / candidate.file
    if candidate.is_blocked or proposal is None:
        return True
    print_diff(proposal.diff)
    for finding in proposal.findings:
        if finding.severity != "info":
            say(_finding_text(file, finding.severity, finding))
    permissions = proposal.grants if grant else proposal.rights
    for requested in permissions:
        say(f"{requested}")
    for inherited in proposal.inherits:
        say(printable(str(inherited)))
    granting = " and grant that" if grant and permissions else ""
    is_agreed = confirm(f"admit {file}{granting}?", default=True if is_named else None)
    if not is_agreed:
        say(f"not admitted: {file}", err=True)
    return is_agreed


def _print_admission(
    file: Path, admission: "proposals.FileAdmission", *, warn: bool = True
) -> None:
    result: AdmissionResult = admission.result
    for finding in result.warnings if warn else ():
        say(_finding_text(file, "warning", finding), err=True)
    for finding in result.validation_errors:
        say(_finding_text(file, "error", finding), err=True)
    if not result.success:
        say(f"refused: {file}: {result.error}", err=True)
        return
    tools = ", ".join(result.functions_registered)
    say(f"admitted: {result.filepath} v{result.version}: {tools or 'none of its tools'}")
    for note in admission.notes:
        say(f"note: {note}", err=True)


def _finding_text(file: Path, severity: str, finding: "FindingSummary | Finding") -> str:
    """Return a finding as `toolkiln check` prints it, without the line of source."""
    place = f"{file}:{finding.line}: {severity}[{finding.rule}]"
    return f"{place} {finding.message}\n  fix: {finding.fix}"


def _print_status(root: Path, item: "FileStatus", inherits: str) -> None:
    state = typer.style(f"{item.state:<9}", fg=_COLORS[item.state])
    entry = item.admission
    since = f"  v{entry.version} by {entry.admitted_by}" if entry else ""
    if item.is_unreviewed:
        since += " (unconfirmed)" if item.is_unconfirmed else " (not reviewed)"
    since += f"  by {item.proposed_by}" if item.proposed_by else ""
    for overruled in entry.overruled if entry else ():
        place = f"{overruled.file}:{overruled.line}"
        since += f"  {overruled.rule} overruled by {overruled.by} ({place})"
    error = next((finding for finding in item.findings if finding.severity == "error"), None)
    text = error.message if error else ", ".join(item.tools)
    typer.echo(f"{state} {printable(f'{root / item.file}{since}  {text}')}".rstrip())
    if inherits:
        typer.echo(f"          once a person admits it: {printable(inherits)}")


def _print_status_hints(found: "catalog.CatalogStatus", tools: Path | None) -> None:
    states: set[Any] = {item.state for item in found.files}
    if unconfirmed := sum(item.is_unconfirmed for item in found.files):
        say(f"note: {unconfirmed_note(unconfirmed)}", err=True)
    if any(item.is_unreviewed and found.inherits[item.file] for item in found.files):
        say(
            "hint: `toolkiln admit FILE` gives a version that was not reviewed its grants and "
            "settings",
            err=True,
        )
    if states & _WAITING:
        option = f" --tools {tools}" if tools else ""
        say(f"hint: `toolkiln admit{option}` shows what is new, and asks", err=True)
    if "missing" in states:
        say("hint: `toolkiln reject FILE` removes a missing file from the catalog", err=True)


def unconfirmed_note(count: int) -> str:
    """Return a note about served versions that no person has confirmed."""
    files = "1 file is" if count == 1 else f"{count} files are"
    return (
        f"{files} served in a version that `toolkiln dev` or an agent admitted; confirm each with "
        "`toolkiln admit FILE`, or stop serving it with `toolkiln reject FILE`"
    )
