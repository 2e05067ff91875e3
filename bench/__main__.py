"""Print every figure as a table, with the date and the commit it was measured at."""

import datetime
import os
import platform
import subprocess
import sys

from bench import (
    arguments,
    catalog,
    fleet,
    fleet_calls,
    guard,
    inline,
    peers,
    reading,
    sandbox,
    search,
    serve,
    start,
    web,
)

_VERDICTS = {True: "holds", False: "**missed**", None: "not measured"}


def main() -> int:
    """The exit status is 1 if a bound is missed."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, commit {commit}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    print("| figure | measured | bound | |\n|---|---|---|---|")
    missed = 0
    for module in (
        start,
        arguments,
        reading,
        inline,
        guard,
        peers,
        serve,
        fleet,
        fleet_calls,
        sandbox,
        catalog,
        search,
        web,
    ):
        for figure in module.figures():
            missed += figure.holds is False
            verdict = _VERDICTS[figure.holds] if figure.bound or not figure.holds else ""
            print(f"| {figure.name} | {figure.measured} | {figure.bound} | {verdict} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
