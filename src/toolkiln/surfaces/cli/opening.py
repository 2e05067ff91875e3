"""A Kiln for a command: the settings of the current folder, the tools or fleet that were named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkiln.app import OWN, Kiln, SessionToken
from toolkiln.config import Settings, checked, project_settings
from toolkiln.errors import InputError
from toolkiln.surfaces.cli.terminal import say


def tools_path(given: Path | None, settings: Settings | None = None) -> Path:
    """Return the tools folder as given or as set, relative to the current folder if below it."""
    if given is not None:
        return given
    tools, here = (settings or project_settings()).tools, Path.cwd()
    return tools.relative_to(here) if tools.is_relative_to(here) else tools


def open_folder(tools: Path | None = None, *, dev: bool = False) -> Kiln:
    """The Kiln of the tools in a folder, whatever fleet there is; nothing is read yet."""
    known = project_settings(tools)
    return Kiln(tools_path(tools, known), settings=known, dev=dev, surface="cli")


def open_kiln(
    tools: Path | None = None,
    redis: str | None = None,
    *,
    dev: bool = False,
    surface: str = "cli",
    **given: Any,
) -> Kiln:
    """The Kiln of a fleet, if one is named or set, else of some tools; nothing is read yet.

    What is `given` and not None goes before the settings. Tools that are named, or as they
    are on disk, are those of a folder.

    Raises:
        InputError: both are named.
    """
    said = {name: value for name, value in {**given, "fleet": redis}.items() if value is not None}
    options = {"fleet": "--redis"}
    values = {n: checked(n, value, options.get(n, f"--{n}")) for n, value in said.items()}
    known = replace(project_settings(tools), **values)
    is_folder = tools is not None or dev
    if is_folder and redis is not None:
        hint = "drop --tools" if tools is not None else "drop --dev"
        raise InputError("--redis names a fleet, which has tools of its own", hint=hint)
    if known.fleet and not is_folder:
        return Kiln.connect(known.fleet, settings=known, surface=surface)
    return Kiln(tools_path(tools, known), settings=known, dev=dev, surface=surface)


def note_no_worker(kiln: Kiln) -> None:
    """Print to stderr that the fleet has no tools because it never had a worker."""
    if (missing := kiln.no_worker) is not None:
        say(f"note: {missing.message}", err=True)
        say(f"note: {missing.hint}", err=True)


def acting(token: str | None) -> SessionToken:
    """Whom a command acts for: the holder of a session, or else whoever runs it.

    An empty token is one that nobody holds, not none: a script that lost it gets no rights.
    """
    return OWN if token is None else token
