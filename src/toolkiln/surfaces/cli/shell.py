"""What all commands share: the application, common options, errors as two lines.

Commands import what they need when they run, so that `toolkiln --help` stays as light as
typer itself.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="toolkiln",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"toolkiln {version('toolkiln')}")
        raise typer.Exit


@app.callback()
def in_folder(
    folder: Annotated[
        Path | None,
        typer.Option(
            "-C", metavar="FOLDER", help="Work there instead of here.", show_default=False
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_tell_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Turn Python functions into tools that language models can be trusted with."""
    if folder is not None:
        with errors():
            _enter(folder)


def _enter(folder: Path) -> None:
    from toolkiln.errors import InputError

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
_MENDABLE = ("bad_config", "secret_unusable")
"""Errors that a person at the keyboard can do something about, besides bad input."""


@contextmanager
def errors() -> Iterator[None]:
    """Errors as two lines on stderr, never a traceback; 3 if it is the platform's, else 2."""
    from toolkiln.errors import InputError, ToolkilnError
    from toolkiln.surfaces.cli.logs import logs_told

    try:
        with logs_told():
            yield
    except ToolkilnError as error:
        _complain(error.message, error.hint)
        status = 2 if isinstance(error, InputError) or error.code in _MENDABLE else 3
        raise typer.Exit(status) from error
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk that is full, a folder that is not ours
        _give_up_output()
        _complain(str(error), "check the file or folder; `TOOLKILN_STATE` moves the state folder")
        raise typer.Exit(3) from error


def _give_up_output() -> None:
    """Let go of what stdout could not take, so that the interpreter does not try again."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, hint: str | None) -> None:
    from toolkiln.surfaces.cli.terminal import say

    say(f"error: {message}", err=True)
    if hint:
        say(f"\nhint: {hint}", err=True)
