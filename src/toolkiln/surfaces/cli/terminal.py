"""Printing what tools wrote: raw to files and pipes, without tricks to a terminal.

`Live` shows a running call on stderr. What it looks like in the end is for `calling`.
"""

import json
import shutil
import sys
from typing import Self

import typer

from toolkiln.model import Event

_BAR = 20


def say(text: str, *, err: bool = False, newline: bool = True) -> None:
    """Print text that others wrote."""
    typer.echo(printable(text) if is_terminal(err=err) else text, err=err, nl=newline, color=True)


def talk(text: str) -> None:
    """Tell a person something beside the data."""
    say(text, err=True)


def print_json(value: object) -> None:
    """Print data for programs."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """Text that cannot play tricks on a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


class Live:
    """A running call on stderr: its output as it comes, its progress on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = is_terminal(err=True)
        self._in_line = False
        """Whether the tool has begun a line and not ended it."""
        self._progress = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()
        if self._in_line:
            typer.echo(err=True)

    def observe(self, event: Event) -> None:
        """Show an event."""
        if self._quiet:
            return
        if event.kind == "progress":
            self._show(event)
            return
        self._erase()
        if event.kind == "log" and self._in_line:
            typer.echo(err=True)
        say(event.text, err=True, newline=event.kind == "log")
        self._in_line = event.kind != "log" and not event.text.endswith("\n")

    def report(self, stage: str, done: int | None, total: int | None) -> None:
        """Show how far something else than a call is."""
        self.observe(Event(kind="progress", text=stage, done=done, total=total))

    def _show(self, event: Event) -> None:
        if not self._terminal or self._in_line:
            return
        bar = ""
        if event.total and event.done is not None:
            full = min(_BAR, max(0, int(_BAR * event.done / event.total)))
            bar = f"[{'#' * full}{' ' * (_BAR - full)}] "
        line = printable(f"{bar}{event.described}").replace("\n", " ").replace("\t", " ")
        width = shutil.get_terminal_size().columns - 1
        typer.echo(f"\r\x1b[2K{line[:width]}", err=True, nl=False, color=True)
        self._progress = True

    def _erase(self) -> None:
        if self._progress:
            typer.echo("\r\x1b[2K", err=True, nl=False, color=True)
            self._progress = False


def is_terminal(*, err: bool) -> bool:
    """Whether a person reads what is written to stdout, or stderr."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()
