"""The command line: parse, run one operation, print.

Data goes to stdout, everything else to stderr.
"""

import sys
from importlib import import_module
from io import TextIOWrapper

from toolkiln.surfaces.cli.app import app

_COMMANDS = (
    "tools calls serve catalog imports search system identities policy secrets audit install fleet"
)
"""Modules with commands, in the order of the help."""

for _name in _COMMANDS.split():
    import_module(f"{__name__}.{_name}")


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
