"""`toolkiln call`: arguments from the command line, a call, its result on the terminal.

What the tool prints goes to stderr as it comes, what it gives to stdout at the end.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import typer

from toolkiln.app import KEY_VARIABLE, OWN, TOKEN_VARIABLE, Kiln, SessionToken
from toolkiln.errors import BackendError, InputError
from toolkiln.model import CallError, Event, FileState, Result, Severity, Status, Task
from toolkiln.surfaces.cli.arguments import parse_arguments
from toolkiln.surfaces.cli.opening import authenticate, open_kiln
from toolkiln.surfaces.cli.pending import Pending
from toolkiln.surfaces.cli.questioning import ask, is_somebody_there
from toolkiln.surfaces.cli.terminal import Live, print_json, say

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
_POLL = 0.02
_NOT_THERE = ("unknown_tool", "not_admitted", "disabled", "manifest_unusable")
"""Errors whose message says itself which tool is meant, or that it could be any."""


@dataclass(frozen=True)
class Options:
    """What the command line says beside the tool and its arguments."""

    as_json: bool
    workspace: str
    token: str | None
    call_id: str | None
    timeout: float | None
    prompt: str | None
    files: Path | None
    tools: Path | None
    redis: str | None = None
    dev: bool = False


def call(name: str, given: list[str], options: Options) -> int:
    """Run a tool and print the result; the exit status says how it ended."""
    _check(options)
    with open_kiln(options.tools, options.redis, dev=options.dev) as kiln:
        session = authenticate(kiln, options.token)
        shown: dict[str, Any] = {} if session is OWN else {"called": name}
        if session is OWN:
            _tell_pending_change(kiln, name, options)
            session = kiln.guarding.operator_in(options.workspace)
        arguments = parse_arguments(kiln, name, given)
        with Live(quiet=options.as_json) as live, Pending(kiln, session) as pending:

            def observe(event: Event) -> None:
                if event.kind == "pending":
                    pending.tell(event.text)
                else:
                    live.observe(event)

            asking = {"ask": ask, "asks": ("form",)} if is_somebody_there() else {}
            result: Result = kiln.call_sync(
                name,
                arguments,
                call_id=options.call_id,
                session=session,
                timeout=options.timeout,
                prompt=options.prompt,
                observe=observe,
                **asking,
                **shown,
            )
        return report(result, options.files, as_json=options.as_json)


def start_in_background(name: str, given: list[str], options: Options) -> int:
    """Leave the call to a process of its own, and print the id to ask for it by."""
    _check(options)
    if options.files is not None:
        raise InputError(
            "--files does not go with --background",
            hint="write it behind `toolkiln task await` or `toolkiln task check`",
        )
    task_id = options.call_id or os.urandom(8).hex()
    opened = open_kiln(options.tools, options.redis, dev=options.dev)
    with opened as kiln, TemporaryFile() as arguments:
        session = authenticate(kiln, options.token)
        if kiln.path is None:
            return _leave_to_the_fleet(kiln, name, given, task_id, session, options)
        if session is OWN:
            _tell_pending_change(kiln, name, options)
        arguments.write(json.dumps(parse_arguments(kiln, name, given)).encode())
        arguments.seek(0)
        known = _known(kiln, task_id, session)
        if known is not None and not (known.result and known.result.is_open):
            return _earlier(known, name, given, options)
        with TemporaryFile() as out, TemporaryFile() as err:
            child = subprocess.Popen(  # noqa: S603
                _command(name, task_id, options),
                stdin=arguments, stdout=out, stderr=err, start_new_session=True,
                env=_environment(session),
            )  # fmt: skip
            # Nobody is told an id that cannot be asked for: the child claims it first, or ends.
            while (started := _known(kiln, task_id, session)) == known and child.poll() is None:
                time.sleep(_POLL)
            if started == known:
                started = _known(kiln, task_id, session)
            if started is None or started == known:
                return report(_last_words(out, err), None, as_json=options.as_json)
    return _told(started, options)


def _leave_to_the_fleet(
    kiln: Kiln,
    name: str,
    given: list[str],
    task_id: str,
    session: SessionToken,
    options: Options,
) -> int:
    """Workers see the call out, whether this process is there or not."""
    begun: Result | Task = kiln.call_sync(
        name,
        parse_arguments(kiln, name, given),
        call_id=task_id,
        session=kiln.guarding.operator_in(options.workspace) if session is OWN else session,
        timeout=options.timeout,
        background=True,
    )
    if isinstance(begun, Result):
        return report(begun, None, as_json=options.as_json)
    return _told(begun, options)


def _told(task: Task, options: Options) -> int:
    if options.as_json:
        say(task.model_dump_json(indent=2))
    else:
        typer.echo(task.id)
        typer.echo(f"next: `toolkiln task await {task.id}`", err=True)
    return 0


def report(result: Result, files: Path | None, *, as_json: bool) -> int:
    """Print a result, keep the files that came with it, and give the exit status.

    Raises:
        InputError: a file cannot be written.
    """
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        print_result(result)
    keep_files(result, files, quiet=as_json)
    return EXIT_STATUS[result.status]


def print_result(result: Result) -> None:
    """What the tool gave on stdout, what else is to be said on stderr."""
    if result.error is not None:
        _print_error(result.tool, result.error)
    elif result.text:
        say(result.text, newline=not result.text.endswith("\n"))
    for note in result.notes:
        say(f"note: {note}", err=True)
    for message in result.messages:
        say(f"message: {json.dumps(message, ensure_ascii=False)}", err=True)
    if result.injected_tools:
        say(f"note: the tool offers {', '.join(result.injected_tools)}", err=True)
    cut = result.truncation
    if cut is not None and cut.handle:
        shown = f"{cut.shown:,} of {cut.total:,} characters are shown"
        say(f"note: {shown}; the whole: `toolkiln output {cut.handle}`", err=True)


def keep_files(result: Result, folder: Path | None, *, quiet: bool) -> None:
    """Write what the tool handed over, or say that it can be had.

    Raises:
        InputError: a file cannot be written.
    """
    for file in result.files:
        if folder is not None:
            say(f"file: {_saved(file.data, folder, file.name)}", err=True)
        elif not quiet:
            size = f"{len(file.data):,} bytes"
            say(f"note: the tool sent {file.name!r} ({size}); --files FOLDER keeps it", err=True)


def _print_error(tool: str, error: CallError) -> None:
    first, *more = error.message.split("\n")
    about = "" if error.code in _NOT_THERE else f"{tool}: "
    lines = [f"error: {about}{first}", *(f"       {line}" for line in more)]
    say("\n".join(lines), err=True)
    if error.traceback:
        say(f"\n{error.traceback}", err=True)
    wait = error.retry_after
    again = "" if wait is None else f"try again in {max(wait, 0.1):.1f} s"
    if hint := "; ".join(filter(None, (again, error.hint))):
        say(f"\nhint: {hint}", err=True)


def _tell_pending_change(kiln: Kiln, name: str, options: Options) -> None:
    """Say on stderr that the tool's file differs from the version that runs."""
    try:
        status = kiln.catalog.pending(name) if kiln.path is not None else None
    except InputError:  # the call itself says why nothing is served
        return
    if status is None or status.state is FileState.REJECTED:
        return
    file = kiln.catalog.root / status.file
    runs = f"the admitted version (v{status.admission.version})" if status.admission else ""
    if any(finding.severity is Severity.ERROR for finding in status.findings):
        say(
            f"note: {file} has errors, so {runs} runs; `toolkiln check {file}` lists them", err=True
        )
    elif status.state is FileState.PROPOSED:
        say(
            f"note: {file} holds a proposal; {runs} runs; "
            f"`toolkiln diff {name}` shows it, `toolkiln admit {file}` admits it",
            err=True,
        )
    else:
        where = "" if options.tools is None else f"--tools {options.tools} "
        say(
            f"note: {file} differs from {runs}, which runs; "
            f"`toolkiln admit {file}` admits the file, "
            f"`toolkiln call --dev {where}{name}` runs it without admission",
            err=True,
        )


def _check(options: Options) -> None:
    if options.call_id is not None and not 0 < len(options.call_id) <= 200:
        raise InputError("--id is empty or longer than 200 characters")
    if options.timeout is not None and not options.timeout > 0:
        raise InputError("--timeout is not above zero")


def _known(kiln: Kiln, task_id: str, session: SessionToken) -> Task | None:
    try:
        return kiln.run_sync(kiln.check_task(task_id, session))
    except InputError:
        return None


def _earlier(known: Task, name: str, given: list[str], options: Options) -> int:
    if known.state in ("running", "pending"):
        raise InputError(
            f"a call with the id {known.id!r} is running already",
            hint=f"wait for it with `toolkiln task await {known.id}`",
        )
    return call(name, given, options)


def _command(name: str, task_id: str, options: Options) -> list[str]:
    # -P: nothing of the current folder is imported.
    command = [sys.executable, "-P", "-m", "toolkiln.surfaces.cli", "call", "--json"]
    command += [f"--id={task_id}", f"--session={options.workspace}"]
    if options.tools is not None:
        command.append(f"--tools={options.tools}")
    if options.dev:
        command.append("--dev")
    if options.timeout is not None:
        command.append(f"--timeout={options.timeout}")
    if options.prompt is not None:
        command.append(f"--prompt={options.prompt}")
    return [*command, "--", name, "-"]


def _environment(session: SessionToken) -> dict[str, str]:
    """Return the environment of a process that acts in the same session.

    Other users of the machine see command lines, but not the environment.
    """
    if not isinstance(session, str):  # the operator's, who has no credential
        return dict(os.environ)
    others = {name: text for name, text in os.environ.items() if name != KEY_VARIABLE}
    return {**others, TOKEN_VARIABLE: session}


def _last_words(out: IO[bytes], err: IO[bytes]) -> Result:
    """The result of a call that ended without being remembered."""
    for stream in (out, err):
        stream.seek(0)
    try:
        return Result.model_validate_json(out.read())
    except ValueError:
        said = err.read().decode("utf-8", "replace").strip()
        raise BackendError(f"the call could not be started: {said[-1000:]}") from None


def _saved(data: bytes, folder: Path, name: str) -> Path:
    target = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as handle:
            handle.write(data)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{str(target)!r} cannot be written: {why}", hint="name another folder with --files"
        ) from error
    return target
