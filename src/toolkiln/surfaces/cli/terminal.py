"""Terminal input and output: text, tables, progress, secrets.

Text from tools is printed unchanged to files and pipes. On a terminal, control characters are
escaped.
"""

import select
import shutil
import sys
from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Self

import typer

from toolkiln.errors import InputError

if TYPE_CHECKING:
    from toolkiln.model.call import Event, Result

_BAR_WIDTH = 20


def say(text: str, *, err: bool = False, newline: bool = True) -> None:
    """Print text; escape control characters on a terminal."""
    typer.echo(printable(text) if is_terminal(err=err) else text, err=err, nl=newline, color=True)


def talk(text: str) -> None:
    """Print a message for the user to stderr."""
    say(text, err=True)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    import json

    say(json.dumps(value, indent=2, ensure_ascii=False))


def print_outcome(value: object, text: str, *, as_json: bool) -> None:
    """Print what a command did: as JSON, or as text."""
    if as_json:
        print_json(value)
    else:
        say(text)


def printable(text: str) -> str:
    """Return text with control characters escaped, except newlines and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


_SENT = {"message": "message: {}", "file": "file: {}", "injected": "note: the tool offers {}"}
"""What a tool sends beside its result, by kind of event."""


class ProgressDisplay:
    """Shows the output of a running call on stderr, and its progress on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = is_terminal(err=True)
        self._is_mid_line = False
        """Whether the last output did not end with a newline."""
        self._has_progress = False
        self.shown: set[tuple[str, int | None]] = set()
        """Kind and index of the events."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()
        if self._is_mid_line:
            typer.echo(err=True)

    def observe(self, event: "Event") -> None:
        """Show an event."""
        if self._quiet:
            return
        if event.kind == "progress":
            self._show_progress(event)
            return
        if event.kind == "message" and event.text:  # large: printed with the result
            return
        self._erase()
        is_output = event.kind in ("stdout", "stderr")
        if self._is_mid_line and not is_output:
            typer.echo(err=True)
        text = _SENT.get(event.kind, "{}").format(event.described)
        say(text, err=True, newline=not is_output)
        self._is_mid_line = is_output and not text.endswith("\n")
        self.shown.add((event.kind, event.index))

    def report(self, stage: str, done: int | None, total: int | None) -> None:
        """Show the progress of something other than a call."""
        from toolkiln.model.call import Event

        self.observe(Event(kind="progress", text=stage, done=done, total=total))

    def _show_progress(self, event: "Event") -> None:
        if not self._terminal or self._is_mid_line:
            return
        bar = ""
        if event.total and event.done is not None:
            full = min(_BAR_WIDTH, max(0, int(_BAR_WIDTH * event.done / event.total)))
            bar = f"[{'#' * full}{' ' * (_BAR_WIDTH - full)}] "
        line = printable(f"{bar}{event.described}").replace("\n", " ").replace("\t", " ")
        width = shutil.get_terminal_size().columns - 1
        typer.echo(f"\r\x1b[2K{line[:width]}", err=True, nl=False, color=True)
        self._has_progress = True

    def _erase(self) -> None:
        if self._has_progress:
            typer.echo("\r\x1b[2K", err=True, nl=False, color=True)
            self._has_progress = False


def print_sent(result: "Result", shown: Container[object]) -> None:
    """Print on stderr what a tool sent beside its result and was not `shown` as an event."""
    import json

    messages = [json.dumps(message, ensure_ascii=False) for message in result.messages]
    for kind, texts in ("message", messages), ("injected", result.injected_tools):
        for index, text in enumerate(texts):
            if (kind, index) not in shown:
                say(_SENT[kind].format(text), err=True)


def is_terminal(*, err: bool) -> bool:
    """Return whether stdout, or stderr with `err`, is a terminal."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


_MAX_CELL_WIDTH = 60
_MAX_LAST_CELL_WIDTH = 300


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with one line per row; long cells are truncated."""
    limits = [_MAX_CELL_WIDTH] * (len(titles) - 1) + [_MAX_LAST_CELL_WIDTH]
    lines = [
        [one_line(cell, limit) for cell, limit in zip(row, limits, strict=True)]
        for row in chain([titles], rows)
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())


def one_line(text: str, limit: int = _MAX_LAST_CELL_WIDTH) -> str:
    """Return text truncated to one line of printable characters."""
    truncated = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in truncated)


def exact_json(value: object) -> str:
    """Return JSON for a person's decision: invisible characters are escaped."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def when(at: float | None, otherwise: str = "") -> str:
    """Return a Unix time as text in UTC."""
    if at is None:
        return otherwise
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):  # out of range
        return f"{at!r}"


def listed(values: Iterable[str]) -> str:
    """Return values in order, separated by commas."""
    return ", ".join(sorted(values))


def counted(number: int, noun: str) -> str:
    """Return a number of things, in the plural if it is not one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_diff(text: str) -> None:
    """Print a diff, in colors on a terminal."""
    for line in text.splitlines():
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        typer.secho(line, fg=color, bold=line.startswith("diff "))


def confirm(question: str, *, default: bool | None = None) -> bool:
    """Ask the user to confirm; an empty line means no.

    Without a terminal the answer comes from stdin. `default` is returned if there is none.

    Raises:
        InputError: there is neither an answer nor a default.
    """
    has_terminal = bool(sys.stdin and sys.stdin.isatty())
    waits = has_terminal or default is None
    prompt = f"{question} [y/N] "
    if waits:
        say(prompt, err=True, newline=False)
    try:
        answer = sys.stdin.readline() if sys.stdin and (waits or _has_input()) else ""
    except UnicodeDecodeError:
        answer = "no"
    if not answer and not waits:
        return bool(default)
    if not has_terminal:  # where the answer does not show
        say(f"{'' if waits else prompt}{answer.strip()}", err=True)
    if not answer:
        raise InputError("no answer on stdin", hint="use --yes to skip the prompt")
    return answer.strip().lower() in ("y", "yes")


def _has_input() -> bool:
    """Return whether reading stdin would not block: a pipe has data, or is closed."""
    try:
        return bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, ValueError):  # no real file
        return True


_MAX_SECRET_BYTES = 1_048_576


def hidden(what: str) -> str:
    """Read a secret from a prompt without echo, or from stdin without its final newline.

    Raises:
        InputError: the secret is missing, too long, or not text.
    """
    if sys.stdin is None:
        raise InputError(f"cannot read {what}: stdin is closed")
    if sys.stdin.isatty():
        return _prompt_secret(what)
    data = sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1)
    if len(data) > _MAX_SECRET_BYTES:
        raise InputError(f"{what} is longer than {_MAX_SECRET_BYTES:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:  # do not chain: the error contains the data
        text = None
    if text is None:
        raise InputError(f"{what} is not UTF-8 text")
    return _require(text.removesuffix("\n").removesuffix("\r"), what)


def _prompt_secret(what: str) -> str:
    from getpass import getpass

    try:
        return _require(getpass(f"{what}: "), what)
    except (EOFError, UnicodeDecodeError):
        raise InputError(f"{what} is missing") from None


def _require(text: str, what: str) -> str:
    if not text:
        raise InputError(f"{what} is empty", hint="type it, or pipe it to stdin")
    return text
