"""`toolkiln call`: arguments from the command line, a call, its result on the terminal.

What the tool prints goes to stderr as it comes, what it gives to stdout at the end.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from toolkiln.app import Kiln
from toolkiln.config import Settings, load
from toolkiln.errors import InputError
from toolkiln.model import Caller, Event, Result, Status, ToolSpec

EXIT_STATUS = {
    Status.OK: 0,
    Status.FAILED: 1,
    Status.TIMEOUT: 1,
    Status.KILLED: 1,
    Status.CANCELLED: 1,
    Status.INVALID: 2,
    Status.DENIED: 2,
    Status.UNAVAILABLE: 3,
}


@dataclass(frozen=True)
class Options:
    """What the command line says beside the tool and its arguments."""

    as_json: bool
    session: str
    call_id: str | None
    timeout: float | None
    files: Path | None
    tools: Path | None


def settings() -> Settings:
    """The settings for work in the current folder."""
    return load(Path.cwd(), os.environ)


def call(name: str, given: list[str], options: Options) -> int:
    """Run a tool and print the result; the exit status says how it ended."""
    with Kiln(options.tools, settings=settings()) as kiln, _live(options) as observe:
        result: Result = kiln.call_sync(
            name,
            parse_arguments(kiln.tool(name), given),
            call_id=options.call_id,
            caller=Caller(session=options.session),
            timeout=options.timeout,
            observe=observe,
        )
    _save_files(result, options.files)
    print_result(result, as_json=options.as_json)
    return EXIT_STATUS[result.status]


def start_in_background(name: str, given: list[str], options: Options) -> None:
    """Leave the call to a process of its own, and print the id to ask for it by."""
    with Kiln(options.tools, settings=settings()) as kiln:
        arguments = parse_arguments(kiln.tool(name), given)
        kiln.check_arguments(name, arguments)
    task_id = options.call_id or os.urandom(8).hex()
    command = [sys.executable, "-m", "toolkiln.surfaces.cli", "call", name, json.dumps(arguments)]
    command += ["--id", task_id, "--session", options.session, "--json"]
    if options.tools is not None:
        command += ["--tools", str(options.tools)]
    if options.timeout is not None:
        command += ["--timeout", str(options.timeout)]
    nothing = subprocess.DEVNULL
    subprocess.Popen(  # noqa: S603
        command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    typer.echo(task_id)
    typer.echo(f"next: `toolkiln task await {task_id}`", err=True)


def parse_arguments(spec: ToolSpec, given: list[str]) -> Any:
    """The arguments of a call: one JSON object, or pairs whose values fit the schema.

    Raises:
        InputError: they are neither.
    """
    if given == ["-"]:
        return sys.stdin.read()
    if len(given) == 1 and given[0].lstrip().startswith("{"):
        return given[0]
    properties = spec.parameters.get("properties", {})
    return dict(_pair(text, properties) for text in given)


def _pair(text: str, properties: dict[str, Any]) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(
            f"{text!r} is neither a JSON object nor key=value",
            hint="""write city=Paris days=3, or '{"city": "Paris", "days": 3}'""",
        )
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{value[1:]!r} cannot be read: {error}") from error
    if properties.get(name, {}).get("type") == "string":
        return name, value
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def print_result(result: Result, *, as_json: bool) -> None:
    """What the tool gave on stdout, what else is to be said on stderr."""
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    if result.error is not None:
        typer.echo(f"error: {result.tool}: {result.error.message}", err=True)
        if result.error.hint:
            typer.echo(f"\nhint: {result.error.hint}", err=True)
    else:
        typer.echo(result.text)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    if result.truncation is not None and result.truncation.handle:
        typer.echo(f"note: the rest: `toolkiln output {result.truncation.handle}`", err=True)


def _save_files(result: Result, folder: Path | None) -> None:
    for file in result.files:
        if folder is None:
            size = f"{len(file.data):,} bytes"
            typer.echo(f"note: the tool sent {file.name!r} ({size}); keep it: --files .", err=True)
            continue
        target = folder / file.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as handle:
                handle.write(file.data)
        except OSError as error:
            raise InputError(f"{str(target)!r} cannot be written: {error.strerror}") from error
        typer.echo(f"file: {target}", err=True)


@contextmanager
def _live(options: Options) -> Iterator[Any]:
    """Show what a running call tells: output as it comes, progress on a terminal."""
    if options.as_json or not sys.stderr.isatty():
        yield _echo if not options.as_json else _ignore
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:

        def observe(event: Event) -> None:
            if event.kind == "progress":
                status.update(event.described)
            else:
                _echo(event)

        yield observe


def _echo(event: Event) -> None:
    if event.kind != "progress":
        typer.echo(event.text, err=True, nl=event.kind == "log")


def _ignore(event: Event) -> None:
    pass
