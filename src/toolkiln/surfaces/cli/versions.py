"""Commands about the versions of a tool: which there were, what changed, away and back."""

from collections.abc import Sequence
from pathlib import Path

from toolkiln.app import OWN, Kiln, SessionToken, inherited, refuse_hidden
from toolkiln.errors import InputError
from toolkiln.model import FileState, Privilege
from toolkiln.surfaces.cli.admitting import print_diff, says_yes
from toolkiln.surfaces.cli.opening import authenticate, open_folder, require, user_of
from toolkiln.surfaces.cli.terminal import print_json, say


def history(tool: str, tools: Path | None, *, as_json: bool) -> None:
    """Print the versions of a tool."""
    with open_folder(tools) as kiln:
        _refuse_hidden(kiln, tool, authenticate(kiln))
        versions = kiln.admissions.history(tool)
        served = kiln.catalog.snapshot.served.get(tool)
    current = served.version if served else None
    if not versions:
        say(f"no version of {tool} was admitted", err=True)
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


def diff(tool: str, old: str | None, new: str | None, tools: Path | None, *, as_json: bool) -> None:
    """Print what changed between two versions, or from the admitted version to the file on disk.

    Raises:
        InputError: only one version is named.
    """
    if (old is None) is not (new is None):
        raise InputError(
            "one version has nothing to be compared with", hint="name two versions, or none"
        )
    inherits: Sequence[str] = ()
    with open_folder(tools) as kiln:
        _refuse_hidden(kiln, tool, require(kiln, Privilege.WRITE_TOOLS, "source.show"))
        if old is None or new is None:
            text, equal = kiln.admissions.pending(tool), f"{tool} has no pending change"
            inherits = _inherited_by_change(kiln, tool) if text else ()
        else:
            text, equal = kiln.admissions.diff(tool, old, new), "the versions are the same"
    if as_json:
        print_json({"tool": tool, "diff": text})
    elif text:
        print_diff(text)
        for line in inherits:
            say(line)
    else:
        say(equal, err=True)


def rollback(tool: str, wanted: str, tools: Path | None, *, yes: bool, as_json: bool) -> int:
    """Serve an earlier version again; the exit status is 1 if that was called off."""
    with open_folder(tools) as kiln:
        session = require(kiln, Privilege.ADMIN, "rollback")
        refuse_hidden(kiln, tool, session)
        version = kiln.admissions.version(tool, wanted)
        if not yes and (file := kiln.admissions.unsaved(tool, version)):
            question = f"{file} has changes that nobody admitted; overwrite them?"
            if as_json:
                raise InputError(question, hint="add --yes")
            if not says_yes(question):
                return 1
        decision = kiln.guarding.decision(session=session)
        version = kiln.admissions.rollback(tool, wanted, decision)
    if as_json:
        print_json(version.model_dump(mode="json"))
    else:
        say(f"{tool}: v{version.number} is served, {version.note}")
    return 0


def remove(tool: str, tools: Path | None, *, with_others: bool, yes: bool, as_json: bool) -> int:
    """Remove a tool with its file; the exit status is 1 if that was called off."""
    with open_folder(tools) as kiln:
        session = require(kiln, Privilege.ADMIN, "remove")
        refuse_hidden(kiln, tool, session)
        if as_json and not yes:
            raise InputError("with --json nobody is asked", hint="add --yes")
        served = kiln.catalog.snapshot.served.get(tool)
        digest = served.read.digest if served else None
        if served and not yes:
            told = f"remove {kiln.catalog.root / served.file} ({', '.join(served.read.names)})?"
            if not says_yes(told):
                return 1
        by = user_of(kiln, session)
        gone = kiln.admissions.remove(tool, by, digest=digest, with_others=with_others)
        file, number = kiln.catalog.root / gone.file, gone.version
    if as_json:
        print_json({"file": str(file), "tools": gone.read.names, "version": number})
    else:
        say(f"removed: {file}; `toolkiln rollback {tool} {number}` brings it back")
    return 0


def _inherited_by_change(kiln: Kiln, tool: str) -> list[str]:
    """Return what the changed file of a tool inherits once a person admits it, a line for each."""
    lines: list[str] = []
    for item in kiln.catalog.statuses():
        if tool in item.tools and item.state in (FileState.NEW, FileState.CHANGED):
            lines += map(str, inherited(kiln, kiln.admissions.candidate(item.file)))
        elif tool in item.tools and item.state is FileState.PROPOSED:
            proposal = kiln.admissions.proposal(item.file)
            lines += map(str, inherited(kiln, proposal)) if proposal else ()
    return list(dict.fromkeys(lines))


def _refuse_hidden(kiln: Kiln, tool: str, session: SessionToken) -> None:
    """Refuse to show versions of a tool that the rules hide from the caller."""
    if session is OWN:
        return
    from toolkiln.app import errands

    kiln.run_sync(kiln.tend(errands.ListVersions(name=tool), session))
