"""Snapshots of everything that users, clients and stored files see, for `make check`.

`tests/snapshots` holds one file for each kind. Without options the script takes all of them again
and fails if one differs; `--update` rewrites them. They are taken through the command line, HTTP,
MCP, Redis and files, so that modules can move; `surface_golden.py` lists the few exceptions.
"""

import argparse
import difflib
import sys
from collections.abc import Callable
from functools import partial

import surface_fleet
import surface_golden
import surface_page
import surface_sessions
import surface_state
from surface_sessions import SNAPSHOTS, Files

GROUPS: dict[str, Callable[[], Files]] = {
    "help": surface_sessions.helps,
    "cli-tools": partial(surface_sessions.transcript, "cli-tools.txt"),
    "cli-catalog": partial(surface_sessions.transcript, "cli-catalog.txt"),
    "cli-security": partial(surface_sessions.transcript, "cli-security.txt"),
    "cli-search": partial(surface_sessions.transcript, "cli-search.txt"),
    "old-state": partial(surface_sessions.transcript, "old-state.txt", surface_state.restored),
    "server": surface_sessions.server,
    "fleet": surface_fleet.fleet,
    "page": surface_page.page,
    "errors": surface_golden.errors,
    "golden": surface_golden.golden,
}


def main() -> None:
    """Compare the snapshots that are named, or all, and fail if one differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], help="some of the snapshots")
    parser.add_argument("--update", action="store_true", help="rewrite the files")
    parser.add_argument("--list", action="store_true", help="print the names of the snapshots")
    given = parser.parse_args()
    if given.list:
        print(*GROUPS, sep="\n")
        return
    differs = False
    for group in given.groups or GROUPS:
        for name, text in GROUPS[group]().items():
            file = SNAPSHOTS / name
            known = file.read_text("utf-8") if file.exists() else ""
            if text == known:
                continue
            differs = True
            if given.update:
                file.write_text(text, "utf-8")
            old, new = known.splitlines(keepends=True), text.splitlines(keepends=True)
            sys.stdout.writelines(
                difflib.unified_diff(old, new, f"stored {name}", f"current {name}")
            )
    if differs and not given.update:
        sys.exit("the surface changed: if that is meant, run scripts/surface_snapshot.py --update")


if __name__ == "__main__":
    main()
