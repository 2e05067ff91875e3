"""A Kiln for a command: the settings of the current folder, the tools that were named."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkiln.app import OWN, Kiln, SessionToken
from toolkiln.config import Settings, checked, load


def settings() -> Settings:
    """The settings for work in the current folder."""
    return load(Path.cwd(), os.environ)


def tools_path(given: Path | None) -> Path:
    """Where the tools lie: as given, or as set, in the shortest way to say it."""
    if given is not None:
        return given
    tools, here = settings().tools, Path.cwd()
    return tools.relative_to(here) if tools.is_relative_to(here) else tools


def open_kiln(tools: Path | None = None, *, dev: bool = False, surface: str = "cli") -> Kiln:
    """The Kiln of some tools; nothing is read yet."""
    return Kiln(tools_path(tools), settings=settings(), dev=dev, surface=surface)


def open_served(tools: Path | None, *, dev: bool = False, **given: Any) -> Kiln:
    """The Kiln of some tools, to be served; what is given and not None goes before settings."""
    said = {name: value for name, value in given.items() if value is not None}
    values = {name: checked(name, value, f"--{name}") for name, value in said.items()}
    return Kiln(tools_path(tools), settings=replace(settings(), **values), dev=dev, surface="http")


def acting(token: str | None) -> SessionToken:
    """Whom a command acts for: the holder of a session, or else whoever runs it.

    An empty token is one that nobody holds, not none: a script that lost it gets no rights.
    """
    return OWN if token is None else token
