"""The command line: parse, run one operation, print.

Data goes to stdout, everything else to stderr. The order of the imports is that of the help.
"""

import sys
from io import TextIOWrapper

from toolkiln.surfaces.cli import tools  # isort: split

from toolkiln.surfaces.cli import calls  # isort: split

from toolkiln.surfaces.cli import serve  # isort: split

from toolkiln.surfaces.cli import catalog  # isort: split

from toolkiln.surfaces.cli import search  # isort: split

from toolkiln.surfaces.cli import system  # isort: split

from toolkiln.surfaces.cli import identities  # isort: split

from toolkiln.surfaces.cli import policy  # isort: split

from toolkiln.surfaces.cli import secrets  # isort: split

from toolkiln.surfaces.cli import audit  # isort: split

from toolkiln.surfaces.cli import install  # isort: split

from toolkiln.surfaces.cli import fleet  # isort: split

from toolkiln.surfaces.cli.app import app

__all__ = [
    "app",
    "audit",
    "calls",
    "catalog",
    "fleet",
    "identities",
    "install",
    "main",
    "policy",
    "search",
    "secrets",
    "serve",
    "system",
    "tools",
]


def main() -> None:
    """The `toolkiln` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that it cannot encode is no failure
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:  # the reader of our output has gone, as in `toolkiln list | head`
        sys.stderr.close()
        sys.exit(141)
