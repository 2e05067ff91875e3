"""The command line: parse, call one method, print.

Data goes to stdout, talk to stderr. What a command takes is declared in modules that
import nothing but typer; what it does lies in others, loaded when it runs.
"""

import sys
from io import TextIOWrapper

from toolkiln.surfaces.cli import tool_commands  # isort: split

from toolkiln.surfaces.cli import catalog_commands  # isort: split

from toolkiln.surfaces.cli import finding_commands  # isort: split

from toolkiln.surfaces.cli import upkeep_commands  # isort: split

from toolkiln.surfaces.cli import guard_commands  # isort: split

from toolkiln.surfaces.cli import audit_commands  # isort: split

from toolkiln.surfaces.cli import mcp_commands  # isort: split

from toolkiln.surfaces.cli import client_commands  # isort: split

from toolkiln.surfaces.cli import worker_commands  # isort: split

from toolkiln.surfaces.cli import fleet_commands  # isort: split

from toolkiln.surfaces.cli.shell import app

__all__ = [
    "app",
    "audit_commands",
    "catalog_commands",
    "client_commands",
    "finding_commands",
    "fleet_commands",
    "guard_commands",
    "main",
    "mcp_commands",
    "tool_commands",
    "upkeep_commands",
    "worker_commands",
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
