"""A Kiln for a command: the settings of the current folder, the tools that were named."""

import os
from pathlib import Path

from toolkiln.app import OWN, Kiln, SessionToken
from toolkiln.config import Settings, load


def settings() -> Settings:
    """The settings for work in the current folder."""
    return load(Path.cwd(), os.environ)


def tools_path(given: Path | None) -> Path:
    """Where the tools lie: as given, or as set, in the shortest way to say it."""
    if given is not None:
        return given
    tools, here = settings().tools, Path.cwd()
    return tools.relative_to(here) if tools.is_relative_to(here) else tools


def open_kiln(tools: Path | None = None, *, dev: bool = False) -> Kiln:
    """The Kiln of some tools; nothing is read yet."""
    return Kiln(tools_path(tools), settings=settings(), dev=dev, surface="cli")


def acting(token: str | None) -> SessionToken:
    """Whom a command acts for: the holder of a session, or else whoever runs it.

    An empty token is one that nobody holds, not none: a script that lost it gets no rights.
    """
    return OWN if token is None else token
