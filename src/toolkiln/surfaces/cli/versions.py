"""Commands about the versions of a tool: which there were, what changed, the way back."""

from pathlib import Path

from toolkiln.app import Kiln
from toolkiln.errors import InputError
from toolkiln.model import Version
from toolkiln.surfaces.cli.admitting import print_diff, says_yes
from toolkiln.surfaces.cli.opening import open_kiln
from toolkiln.surfaces.cli.terminal import print_json, say


def history(tool: str, tools: Path | None, *, as_json: bool) -> None:
    """Print the versions of a tool."""
    with open_kiln(tools) as kiln:
        versions = kiln.admissions.history(tool)
        served = kiln.catalog.snapshot.served.get(tool)
    current = served.admission.version if served else None
    if as_json:
        print_json([{**v.model_dump(mode="json"), "served": v.number == current} for v in versions])
        return
    for version in versions:
        mark = "*" if version.number == current else " "
        note = f"  {version.note}" if version.note else ""
        when = version.at[:19].replace("T", " ")
        say(
            f"{mark} v{version.number:<3} {version.digest[:12]}  {when}  "
            f"{version.action} by {version.by}{note}"
        )


def diff(tool: str, old: str, new: str, tools: Path | None, *, as_json: bool) -> None:
    """Print what changed between two versions."""
    with open_kiln(tools) as kiln:
        text = kiln.admissions.diff(tool, old, new)
    if as_json:
        print_json({"tool": tool, "diff": text})
    elif text:
        print_diff(text)
    else:
        say("the versions are the same", err=True)


def rollback(tool: str, wanted: str, tools: Path | None, *, yes: bool, as_json: bool) -> int:
    """Serve an earlier version again; the exit status is 1 if that was called off."""
    with open_kiln(tools) as kiln:
        version = kiln.admissions.version(tool, wanted)
        if not yes and (file := _unsaved(kiln, tool, version)):
            question = f"{file} has changes that nobody admitted; overwrite them?"
            if as_json:
                raise InputError(question, hint="add --yes")
            if not says_yes(question):
                return 1
        version = kiln.admissions.rollback(tool, wanted, kiln.guarding.decision())
    if as_json:
        print_json(version.model_dump(mode="json"))
    else:
        say(f"{tool}: v{version.number} is served, {version.note}")
    return 0


def _unsaved(kiln: Kiln, tool: str, version: Version) -> Path | None:
    """The file, if what it holds is in no version."""
    read = kiln.catalog.disk.read(version.file)
    kept = {each.digest for each in kiln.admissions.history(tool)}
    if read is None or read.digest in kept:
        return None
    return kiln.catalog.root / version.file
