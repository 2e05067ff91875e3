"""The command `import`: copy files of other frameworks to the tools, and say what differs.

A file that cannot be copied does not stop the others.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import JsonOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import ProgressDisplay, counted, print_json, say

if TYPE_CHECKING:
    from toolkiln.model.imports import ImportedFile, ImportReport, PackageUse

_MOST_SKIPPED = 10
_MOST_ERRORS = 5
_MOST_DIFFERENCES = 20
_LEFT_OUT = ("not-offered", "unpassable-type")
"""Rules of findings about functions that are no tools, or none that a model can call."""
_GUIDE = "docs/migrating.md"


@command(app, "import")
def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.")],
    into: Annotated[
        str, typer.Option(metavar="FOLDER", help="Copy to this folder below the tools.")
    ] = "",
    add_requirements: Annotated[
        bool,
        typer.Option("--add-requirements", help="List imported packages in the copies (PEP 723)."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that have other content.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report only; copy nothing.")] = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Copy files of other frameworks to the tools, to be admitted, and show what differs."""
    from toolkiln.operations import catalog
    from toolkiln.surfaces.cli.session import authenticate, open_folder

    request = catalog.ImportFiles(
        paths=tuple(paths),
        into=into,
        add_requirements=add_requirements,
        overwrite=overwrite,
        dry_run=dry_run,
    )
    with open_folder(tools) as kiln, ProgressDisplay(quiet=as_json) as progress:
        session = authenticate(kiln)
        found = kiln.run_operation_sync(catalog.import_files, request, session, progress.report)
        root = kiln.catalog.root
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print_report(root, found, f" --tools {tools}" if tools else "")
    if all(item.outcome == "skipped" for item in found.files):
        raise InputError(
            f"there is no tool in {' '.join(map(str, paths))}",
            hint="name the files or folders with the tools",
        )
    raise typer.Exit(1 if any(item.outcome == "refused" for item in found.files) else 0)


def _print_report(root: Path, found: "ImportReport", option: str) -> None:
    for item in found.files:
        if item.outcome != "skipped":
            _print_file(root, item, dry_run=found.dry_run)
    skipped = [item.source for item in found.files if item.outcome == "skipped"]
    if skipped:
        more = f" and {len(skipped) - _MOST_SKIPPED:,} more" if len(skipped) > _MOST_SKIPPED else ""
        say(f"no tools: {', '.join(skipped[:_MOST_SKIPPED])}{more}", err=True)
    for note in found.notes:
        say(f"note: {note}", err=True)
    outcomes = Counter(item.outcome for item in found.files)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    say(f"{counted(len(found.files), 'file')}: {counts}", err=True)
    copied = [item for item in found.files if item.file is not None]
    if any(item.differences for item in copied):
        say(f"hint: {_GUIDE} says what differs for each framework, and why", err=True)
    if any(_is_unlisted(use) for item in copied for use in item.packages):
        say("hint: --add-requirements lists the packages in the copies", err=True)
    if found.dry_run:
        say("nothing was written (--dry-run)", err=True)
    elif copied:
        say(f"next: `toolkiln admit{option}` shows the files, and asks", err=True)


def _print_file(root: Path, item: "ImportedFile", *, dry_run: bool) -> None:
    framework = item.framework or "plain Python"
    if item.outcome == "refused":
        say(f"refused: {item.source} ({framework}): {item.reason}")
        errors = [finding for finding in item.findings if finding.severity == "error"]
        for finding in errors[:_MOST_ERRORS]:
            place = f"line {finding.line}: error[{finding.rule}]"
            say(f"  {place} {finding.message}\n    fix: {finding.fix}")
    else:
        would = "would be " if dry_run and item.outcome != "unchanged" else ""
        say(f"{would}{item.outcome}: {item.source} -> {root / (item.file or '')} ({framework})")
    if item.companions:
        say(f"  with: {', '.join(item.companions)}")
    if item.file is not None:
        _print_tools(item)
    for finding in item.findings:
        if finding.rule in _LEFT_OUT and finding.severity != "error":
            tool = f"{finding.tool}, " if finding.tool else ""
            say(f"  left out: {tool}line {finding.line}: {finding.message}")
    for difference in item.differences[:_MOST_DIFFERENCES]:
        place = f"{difference.file} " if difference.file else ""
        say(f"  differs: {place}line {difference.line}: {difference.message}")
    if len(item.differences) > _MOST_DIFFERENCES:
        say(f"  differs: {len(item.differences) - _MOST_DIFFERENCES:,} more; --json has all")
    for use in item.packages:
        say(f"  needs: {_need(use)}")
    warnings = sum(finding.severity == "warning" for finding in item.findings)
    if warnings and item.file is not None:
        say(f"  {counted(warnings, 'warning')}: `toolkiln check {item.source}` shows them")


def _print_tools(item: "ImportedFile") -> None:
    """Print the tools that work, and those that fail where they use what differs."""
    in_part = {tool for difference in item.differences for tool in difference.tools}
    is_complete = all(use.is_listed for use in item.packages)
    label = "works" if is_complete else "works once its packages are listed"
    for names, partly in (
        ([tool for tool in item.tools if tool not in in_part], ""),
        ([tool for tool in item.tools if tool in in_part], " in part"),
    ):
        if names:
            say(f"  {label.replace('works', f'works{partly}')}: {', '.join(names)}")


def _is_unlisted(use: "PackageUse") -> bool:
    return not use.is_listed and use.requirement is not None


def _need(use: "PackageUse") -> str:
    if use.requirement is None:
        return (
            f"{use.module} (line {use.line}): not known; list the distribution that provides it, "
            "or put your own module beside the file"
        )
    return f"{use.requirement}" if use.is_listed else f"{use.requirement} (not listed in the file)"
