"""Commands about secrets: which there are and which are missing, set and forget them.

No value of one is printed, and none has to be on a command line.
"""

from collections import defaultdict
from pathlib import Path

from toolkiln.app import Kiln
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Privilege
from toolkiln.surfaces.cli.opening import open_kiln, require
from toolkiln.surfaces.cli.prompting import hidden
from toolkiln.surfaces.cli.tables import one_line, print_table
from toolkiln.surfaces.cli.terminal import print_json, say


def secrets_list(tools: Path | None, *, as_json: bool) -> None:
    """Print the names of secrets and where they come from, and which are missing."""
    with open_kiln(tools) as kiln:
        require(kiln, Privilege.ADMIN, "secret")
        sources = kiln.guarding.secrets.sources()
        missing = _missing(kiln)
    if as_json:
        print_json({"secrets": sources, "missing": missing})
        return
    if sources:
        print_table(("name", "source"), sources.items())
    else:
        say("no secrets", err=True)
    for name, asking in missing.items():
        say(f"note: {one_line(name)} is not set; asked for by {', '.join(asking)}", err=True)


def secrets_set(name: str, *, as_json: bool) -> None:
    """Keep a secret."""
    with open_kiln() as kiln:
        session = require(kiln, Privilege.ADMIN, "secret")
        kiln.guarding.set_secret(name, hidden(f"the secret {one_line(name)}"), session)
        source = kiln.guarding.secrets.sources().get(name, "")
    if source.startswith("$"):
        say(f"note: {source} is set, and comes first", err=True)
    if as_json:
        print_json({"name": name, "source": source})
    else:
        say(f"set: {name}")


def secrets_remove(name: str, *, as_json: bool) -> None:
    """Forget a secret."""
    with open_kiln() as kiln:
        session = require(kiln, Privilege.ADMIN, "secret")
        secrets = kiln.guarding.secrets
        source = secrets.sources().get(name)
        if source is None:
            raise InputError(
                f"there is no secret {name[:100]!r}", hint="see `toolkiln secrets list`"
            )
        kiln.guarding.set_secret(name, None, session)
        left = secrets.sources().get(name)
    if left is not None:
        raise InputError(f"{name} is set by {left}", hint="unset the variable where it is set")
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        say(f"removed: {name}")


def _missing(kiln: Kiln) -> dict[str, list[str]]:
    """The tools that ask for secrets which are nowhere, by secret."""
    asking: dict[str, list[str]] = defaultdict(list)
    try:
        for spec in kiln.specs.values():
            for name in spec.rights.secrets:
                asking[name].append(spec.name)
    except InputError as error:  # there are secrets without tools, too
        say(f"note: {error.message}", err=True)
    return {name: tools for name, tools in sorted(asking.items()) if not has_value(kiln, name)}


def has_value(kiln: Kiln, name: str) -> bool:
    """Whether a secret could be handed to a call."""
    try:
        return kiln.guarding.secrets.get(name) is not None
    except ToolkilnError as error:
        say(f"note: {error.message}", err=True)
        return False
