"""The typer application: commands, common options, errors and logs on stderr.

Commands import what they need when they run, so that `toolkiln --help` loads little more than
typer.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.surfaces.cli.terminal import one_line, say

app = typer.Typer(
    name="toolkiln",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"toolkiln {version('toolkiln')}")
        raise typer.Exit


@app.callback()
def main_options(
    folder: Annotated[
        Path | None,
        typer.Option(
            "-C", metavar="FOLDER", help="Change to this folder first.", show_default=False
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Turn Python functions into tools that language models can be trusted with."""
    if folder is not None:
        with errors():
            _enter(folder)


def _enter(folder: Path) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(f"{str(folder)!r}: {error.strerror}", hint="name a folder") from error


ToolsOption = Annotated[
    Path | None,
    typer.Option(
        "--tools",
        metavar="PATH",
        help="A file or folder of tools. Default: the setting, else tools/ here.",
        show_default=False,
    ),
]
RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="Use the tools of a fleet, by the URL of its Redis. Default: the setting fleet.",
        show_default=False,
    ),
]
DevOption = Annotated[bool, typer.Option("--dev", help="Serve what is on disk, admitted or not.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        help="Act for the user of this session token. Default: $TOOLKILN_TOKEN.",
        show_default=False,
    ),
]
FilesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Where to put files that the tool hands over.", show_default=False
    ),
]
_USER_ERRORS = ("bad_config", "secret_unusable")
"""Codes of errors that count as bad input."""


P = ParamSpec("P")


def command(
    group: typer.Typer, name: str | None = None, **options: Any
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register a command; its errors are printed, and set the exit status."""

    def decorate(run: Callable[P, None]) -> Callable[P, None]:
        @group.command(name=name, **options)
        @wraps(run)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            with errors():
                run(*args, **kwargs)

        return guarded

    return decorate


@contextmanager
def errors() -> Iterator[None]:
    """Print an error as two lines on stderr and exit: 2 for bad input, 3 for a failure."""
    try:
        with _logs_on_stderr():
            yield
    except ToolkilnError as error:
        _print_error(error.message, error.hint)
        status = 2 if isinstance(error, InputError) or error.code in _USER_ERRORS else 3
        raise typer.Exit(status) from error
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk that is full, a folder that is not ours
        _discard_output()
        _print_error(
            str(error), "check the file or folder; `TOOLKILN_STATE` moves the state folder"
        )
        raise typer.Exit(3) from error


def _discard_output() -> None:
    """Drop what stdout could not take, so that the interpreter does not try again at exit."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(message: str, hint: str | None) -> None:
    say(f"error: {message}", err=True)
    if hint:
        say(f"\nhint: {hint}", err=True)


@contextmanager
def _logs_on_stderr() -> Iterator[None]:
    """Print what is logged meanwhile, each record on one line: by default warnings and errors."""
    import logging

    class Printer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError):  # stderr is closed; the work goes on
                say(f"{record.levelname.lower()}: {one_line(record.getMessage(), 1000)}", err=True)

    logger, handler = logging.getLogger("toolkiln"), Printer()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
