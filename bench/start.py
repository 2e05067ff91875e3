"""The start of the command line, against an empty typer app."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.timing import Figure, at_most, ratio

_EMPTY = """
import typer
app = typer.Typer(add_completion=False, rich_markup_mode=None)
@app.command()
def one() -> None: ...
@app.command()
def two() -> None: ...
app()
"""


def figures() -> Iterator[Figure]:
    """`toolkiln --help` as a whole process."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.py")
        empty.write_text(_EMPTY, "utf-8")
        ours = [str(Path(sys.executable).parent / "toolkiln"), "--help"]
        theirs = [sys.executable, str(empty), "--help"]
        measured = ratio(
            lambda: _run(ours), lambda: _run(theirs), rounds=20, repeat=1, clock=time.perf_counter
        )
    yield at_most("`toolkiln --help` / an empty typer app", measured, 1.5)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
