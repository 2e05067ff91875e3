"""Commands for calls: call a tool, look up background calls, read outputs.

While a tool runs, its output goes to stderr; its result goes to stdout at the end.
"""

import os
import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from toolkiln.errors import BackendError, InputError
from toolkiln.surfaces.cli.app import (
    DevOption,
    FilesOption,
    JsonOption,
    RedisOption,
    TokenOption,
    ToolsOption,
    app,
    command,
)
from toolkiln.surfaces.cli.terminal import ProgressDisplay, one_line, print_json, print_sent, say

if TYPE_CHECKING:
    from toolkiln.kiln import Kiln
    from toolkiln.model.call import CallError, Event, Result, Task
    from toolkiln.security.sessions import SessionToken

EXIT_STATUS = {
    "ok": 0,
    "failed": 1,
    "timeout": 1,
    "killed": 1,
    "cancelled": 1,
    "invalid": 2,
    "denied": 2,
    "unavailable": 3,
}
"""By the status of a result."""
_POLL_SECONDS = 0.02
_CANCEL_SECONDS = 10.0
"""Seconds within which another process stops its call."""
_WITHOUT_TOOL = ("unknown_tool", "not_admitted", "disabled", "manifest_unusable")
"""Codes of errors whose message names the tool, or is about all tools."""

TaskArgument = Annotated[str, typer.Argument(help="The id that the call printed.")]

task_app = typer.Typer(help="Manage background calls.", no_args_is_help=True)
app.add_typer(task_app, name="task")


@dataclass(frozen=True)
class CallCommand:
    """A `toolkiln call`, as parsed."""

    tool: str
    arguments: list[str]
    as_json: bool
    workspace: str
    token: str | None
    call_id: str | None
    timeout: float | None
    prompt: str | None
    request: dict[str, Any]
    files: Path | None
    tools: Path | None
    redis: str | None
    dev: bool


@command(app)
def call(
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="['{json}' | @FILE | - | key=value …]",
            help="A JSON object, inline, in a file or on stdin, or pairs; key=@FILE reads a file.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    session: Annotated[
        str, typer.Option(help="The session whose workspace the call uses.", metavar="NAME")
    ] = "default",
    token: TokenOption = None,
    call_id: Annotated[
        str | None,
        typer.Option("--id", help="Run once: the same id returns the first result again."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Maximum seconds to wait.", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="The prompt that the tool answers, for search to learn from.", show_default=False
        ),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(
            help="What the tool may know of the request, as a JSON object; it is unverified.",
            metavar="JSON",
            show_default=False,
        ),
    ] = None,
    files: FilesOption = None,
    background: Annotated[
        bool, typer.Option("--background", help="Print a task id and leave the call running.")
    ] = False,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Run a tool in the sandbox and print its result."""
    if call_id is not None and not 0 < len(call_id) <= 200:
        raise InputError("--id is empty or longer than 200 characters")
    if timeout is not None and not timeout > 0:
        raise InputError("--timeout is not above zero")
    said = {} if request is None else _decode_object(request, "--request")
    options = CallCommand(
        tool, arguments or [], as_json, session, token, call_id, timeout, prompt, said,
        files, tools, redis, dev,
    )  # fmt: skip
    raise typer.Exit(_start_in_background(options) if background else _call(options))


@command(task_app, "list")
def task_list(token: TokenOption = None, as_json: JsonOption = False) -> None:
    """List stored calls, newest first."""
    from toolkiln.operations import calls
    from toolkiln.operations.operation import PageQuery
    from toolkiln.surfaces.cli.session import run_operation

    tasks = run_operation(calls.list_calls, PageQuery(), token=token).items
    if as_json:
        print_json([task.model_dump(mode="json") for task in tasks])
        return
    for task in tasks:
        say(one_line(f"{task.id}  {task.state:<8} {task.tool}  {task.progress}".rstrip()))


@command(task_app, "check")
def task_check(
    task_id: TaskArgument,
    files: FilesOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of a task, with its result if it has ended."""
    from toolkiln.operations import calls
    from toolkiln.surfaces.cli.session import run_operation

    task = run_operation(calls.get_call, calls.GetCall(id=task_id), token=token)
    raise typer.Exit(_print_task(task, files, as_json=as_json))


@command(task_app, "await")
def task_await(
    task_id: TaskArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Maximum seconds to wait.", show_default=False)
    ] = None,
    files: FilesOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a task has ended."""
    from toolkiln.operations import calls
    from toolkiln.surfaces.cli.session import run_operation

    if timeout is not None and not timeout >= 0:
        raise InputError("--timeout is below zero")
    request = calls.AwaitCall(id=task_id, timeout=timeout)
    task = run_operation(calls.await_call, request, token=token)
    raise typer.Exit(_print_task(task, files, as_json=as_json))


@command(task_app, "cancel")
def task_cancel(
    task_id: TaskArgument, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Stop a task."""
    from toolkiln.operations import calls
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln() as kiln:
        session = authenticate(kiln, token)
        kiln.run_operation_sync(calls.cancel_call, calls.CallRef(id=task_id), session)
        request = calls.AwaitCall(id=task_id, timeout=_CANCEL_SECONDS)
        task = kiln.run_operation_sync(calls.await_call, request, session)
    _print_task(task, None, as_json=as_json)
    raise typer.Exit(1 if task.state in ("running", "pending") else 0)


@command(app, "output")
def read_output(
    handle: Annotated[str, typer.Argument(help="The handle that a truncated output names.")],
    offset: Annotated[int, typer.Option(help="The character to start from.")] = 0,
    limit: Annotated[int, typer.Option(help="Maximum number of characters.")] = 20_000,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print more of a truncated output."""
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln() as kiln:
        session = authenticate(kiln, token)
        reading = kiln.tasks.read_output(handle, session, offset=offset, limit=limit)
        page = kiln.services.wait(reading)
    if as_json:
        print_json(page.model_dump(mode="json"))
        return
    say(page.text, newline=not page.text.endswith("\n"))
    if page.next_offset is not None:
        more = f"--offset {page.next_offset}"
        say(f"note: {page.total:,} characters in total; continue with {more}", err=True)


def _call(options: CallCommand) -> int:
    """Run a tool and print the result; returns the exit status."""
    from toolkiln.security.sessions import LOCAL_OPERATOR
    from toolkiln.surfaces.cli.prompts import ApprovalPrompt, ask, has_terminal
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    more: dict[str, Any] = {"ask": ask, "asks": ("form",)} if has_terminal() else {}
    with open_kiln(options.tools, options.redis, dev=options.dev) as kiln:
        session = authenticate(kiln, options.token)
        if session is LOCAL_OPERATOR:
            _note_unadmitted_change(kiln, options)
            session = kiln.security.operator_in(options.workspace)
        else:
            more["called"] = options.tool
        arguments = parse_arguments(kiln, options.tool, options.arguments)
        display = ProgressDisplay(quiet=options.as_json)
        with display, ApprovalPrompt(kiln, session) as prompt:

            def observe(event: "Event") -> None:
                if event.kind == "pending":
                    prompt.show(event.text)
                else:
                    display.observe(event)

            result: Result = kiln.call_sync(
                options.tool,
                arguments,
                call_id=options.call_id,
                session=session,
                timeout=options.timeout,
                prompt=options.prompt,
                request=options.request,
                observe=observe,
                **more,
            )
        return _print_result(result, options.files, as_json=options.as_json, shown=display.shown)


def _start_in_background(options: CallCommand) -> int:
    """Start the call in another process or at a worker, and print its id."""
    import json
    from subprocess import Popen
    from tempfile import TemporaryFile
    from time import sleep

    from toolkiln.security.sessions import LOCAL_OPERATOR
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    if options.files is not None:
        raise InputError(
            "--files cannot be combined with --background",
            hint="pass it to `toolkiln task await` or `toolkiln task check`",
        )
    task_id = options.call_id or os.urandom(8).hex()
    opened = open_kiln(options.tools, options.redis, dev=options.dev)
    with opened as kiln, TemporaryFile() as stdin:
        session = authenticate(kiln, options.token)
        if kiln.services.path is None:
            return _start_at_worker(kiln, task_id, session, options)
        if session is LOCAL_OPERATOR:
            _note_unadmitted_change(kiln, options)
        arguments = parse_arguments(kiln, options.tool, options.arguments)
        stdin.write(json.dumps(arguments).encode())
        stdin.seek(0)
        earlier = _find_task(kiln, task_id, session)
        if earlier is not None and not (earlier.result and earlier.result.is_open):
            if earlier.state not in ("running", "pending"):
                return _call(options)
            raise InputError(
                f"a call with the id {earlier.id!r} is already running",
                hint=f"wait for it with `toolkiln task await {earlier.id}`",
            )
        with TemporaryFile() as out, TemporaryFile() as err:
            child = Popen(  # noqa: S603
                _child_command(task_id, options),
                stdin=stdin, stdout=out, stderr=err, start_new_session=True,
                env=_child_environment(session),
            )  # fmt: skip
            # The id is printed only once it can be looked up: the child claims it, or ends.
            while (task := _find_task(kiln, task_id, session)) == earlier and child.poll() is None:
                sleep(_POLL_SECONDS)
            if task == earlier:
                task = _find_task(kiln, task_id, session)
            if task is None or task == earlier:
                return _print_result(_child_result(out, err), None, as_json=options.as_json)
    return _print_task_id(task, options)


def _start_at_worker(
    kiln: "Kiln", task_id: str, session: "SessionToken", options: CallCommand
) -> int:
    """Send the call to a fleet, where it continues without this process."""
    from toolkiln.model.call import Result
    from toolkiln.security.sessions import LOCAL_OPERATOR

    if session is LOCAL_OPERATOR:
        session = kiln.security.operator_in(options.workspace)
    started: Result | Task = kiln.call_sync(
        options.tool,
        parse_arguments(kiln, options.tool, options.arguments),
        call_id=task_id,
        session=session,
        timeout=options.timeout,
        request=options.request,
        background=True,
    )
    if isinstance(started, Result):
        return _print_result(started, None, as_json=options.as_json)
    return _print_task_id(started, options)


def _print_task_id(task: "Task", options: CallCommand) -> int:
    if options.as_json:
        say(task.model_dump_json(indent=2))
    else:
        say(task.id)
        say(f"next: `toolkiln task await {task.id}`", err=True)
    return 0


def _print_task(task: "Task", files: Path | None, *, as_json: bool) -> int:
    if as_json:
        print_json(task.model_dump(mode="json"))
    elif task.result is not None:
        _print_text(task.result)
    else:
        say(f"{task.state}: {task.progress}" if task.progress else task.state)
        if task.state == "pending":
            say("hint: a person has to approve it, see `toolkiln approvals list`", err=True)
    if task.result is None:
        return 3 if task.state == "lost" else 0
    _save_files(task.result, files, quiet=as_json)
    return EXIT_STATUS[task.result.status]


def _print_result(
    result: "Result", files: Path | None, *, as_json: bool, shown: Container[object] = ()
) -> int:
    """Print a result, except what was `shown`, save its files, and return the exit status."""
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        _print_text(result, shown)
    _save_files(result, files, quiet=as_json)
    return EXIT_STATUS[result.status]


def _print_text(result: "Result", shown: Container[object] = ()) -> None:
    """Print the text on stdout; errors and notes on stderr."""
    if result.error is not None:
        _print_error(result.tool, result.error)
    elif result.text:
        say(result.text, newline=not result.text.endswith("\n"))
    for note in result.notes:
        say(f"note: {note}", err=True)
    print_sent(result, shown)
    cut = result.truncation
    if cut is not None and cut.handle:
        part = f"{cut.shown:,} of {cut.total:,} characters are shown"
        say(f"note: {part}; read all with `toolkiln output {cut.handle}`", err=True)


def _print_error(tool: str, error: "CallError") -> None:
    first, *more = error.message.split("\n")
    prefix = "" if error.code in _WITHOUT_TOOL else f"{tool}: "
    lines = [f"error: {prefix}{first}", *(f"       {line}" for line in more)]
    say("\n".join(lines), err=True)
    if error.traceback:
        say(f"\n{error.traceback}", err=True)
    wait = error.retry_after
    again = "" if wait is None else f"try again in {max(wait, 0.1):.1f} s"
    if hint := "; ".join(filter(None, (again, error.hint))):
        say(f"\nhint: {hint}", err=True)


def _save_files(result: "Result", folder: Path | None, *, quiet: bool) -> None:
    """Write the files that the tool sent, or note that there are some."""
    for file in result.files:
        if folder is not None:
            say(f"file: {_save_file(file.data, folder, file.name)}", err=True)
        elif not quiet:
            size = f"{len(file.data):,} bytes"
            say(f"note: the tool sent {file.name!r} ({size}); --files FOLDER saves it", err=True)


def _save_file(data: bytes, folder: Path, name: str) -> Path:
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


def _note_unadmitted_change(kiln: "Kiln", options: CallCommand) -> None:
    """Print to stderr that the tool's file differs from the version that runs."""
    from toolkiln.model.catalog import FileState
    from toolkiln.model.source import Severity

    try:
        status = kiln.catalog.pending(options.tool) if kiln.services.path is not None else None
    except InputError:  # the call itself says why nothing is served
        return
    if status is None or status.state is FileState.REJECTED:
        return
    file, tool = kiln.catalog.root / status.file, options.tool
    version = f"the admitted version (v{status.admission.version})" if status.admission else ""
    if any(finding.severity is Severity.ERROR for finding in status.findings):
        note = f"{file} has errors, so {version} runs; `toolkiln check {file}` lists them"
    elif status.state is FileState.PROPOSED:
        note = (
            f"{file} holds a proposal; {version} runs; "
            f"`toolkiln diff {tool}` shows it, `toolkiln admit {file}` admits it"
        )
    else:
        folder = "" if options.tools is None else f"--tools {options.tools} "
        note = (
            f"{file} differs from {version}, which runs; "
            f"`toolkiln admit {file}` admits the file, "
            f"`toolkiln call --dev {folder}{tool}` runs it without admission"
        )
    say(f"note: {note}", err=True)


def _find_task(kiln: "Kiln", task_id: str, session: "SessionToken") -> "Task | None":
    try:
        return kiln.services.wait(kiln.tasks.get(task_id, session))
    except InputError:
        return None


def _child_command(task_id: str, options: CallCommand) -> list[str]:
    import json

    # -P: nothing of the current folder is imported.
    arguments = [sys.executable, "-P", "-m", "toolkiln.surfaces.cli", "call", "--json"]
    arguments += [f"--id={task_id}", f"--session={options.workspace}"]
    if options.tools is not None:
        arguments.append(f"--tools={options.tools}")
    if options.dev:
        arguments.append("--dev")
    if options.timeout is not None:
        arguments.append(f"--timeout={options.timeout}")
    if options.prompt is not None:
        arguments.append(f"--prompt={options.prompt}")
    if options.request:
        arguments.append(f"--request={json.dumps(options.request)}")
    return [*arguments, "--", options.tool, "-"]


def _child_environment(session: "SessionToken") -> dict[str, str]:
    """Return the environment of a process that acts in the same session.

    Other users of the machine see command lines, but not the environment.
    """
    from toolkiln.security.sessions import KEY_VARIABLE, TOKEN_VARIABLE

    if not isinstance(session, str):  # the operator's, who has no credential
        return dict(os.environ)
    others = {name: text for name, text in os.environ.items() if name != KEY_VARIABLE}
    return {**others, TOKEN_VARIABLE: session}


def _child_result(out: IO[bytes], err: IO[bytes]) -> "Result":
    """Return the result of a call that ended without being stored."""
    from toolkiln.model.call import Result

    for stream in (out, err):
        stream.seek(0)
    try:
        return Result.model_validate_json(out.read())
    except ValueError:
        text = err.read().decode("utf-8", "replace").strip()
        raise BackendError(f"the call could not be started: {text[-1000:]}") from None


_FORMS = """write city=Paris days=3, or '{"city": "Paris", "days": 3}', or @FILE, or - for stdin"""


def parse_arguments(kiln: "Kiln", tool: str, words: list[str]) -> dict[str, Any]:
    """Return the arguments of a call: JSON where it fits the schema of the tool, else texts."""
    if len(words) == 1 and (value := parse_object(words[0])) is not None:
        return value
    texts = parse_pairs(words)
    try:
        spec = kiln.tool(tool)
    except (InputError, BackendError):  # the gateway decides what the caller learns, and records it
        return dict(texts)
    from toolkiln.schema.arguments import parse_texts

    return parse_texts(spec, texts)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object: inline, in `@FILE`, or on stdin as `-`; None if it is none."""
    if text == "-":
        return _decode_object(_read_stdin(), "stdin")
    if text.startswith("@"):
        return _decode_object(_read_text(text[1:]), text[1:])
    if text.lstrip().startswith(("{", "[")):
        return _decode_object(text, "the arguments")
    return None


def parse_pairs(words: list[str]) -> dict[str, str]:
    """Return the texts of `key=value` and `key=@FILE` by key."""
    return _unique(map(_parse_pair, words))


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} is neither a JSON object nor key=value", hint=_FORMS)
    return name, _read_text(value[1:]) if value.startswith("@") else value


def _decode_object(text: str, origin: str) -> dict[str, Any]:
    import json

    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        raise InputError(f"{origin}: not valid JSON: {why}", hint=_FORMS) from error
    if not isinstance(value, dict):
        raise InputError(f"{origin}: not a JSON object", hint=_FORMS)
    return value


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a mapping, and refuse duplicates."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            hint = f"""for several values write {name}='["one", "two"]'"""
            raise InputError(f"{name!r} is given twice", hint=hint)
        found[name] = value
    return found


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputError("stdin is closed", hint=_FORMS)
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is not UTF-8 text: {error}") from error


def _read_text(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"{name!r} cannot be read: {why}",
            hint="a text that starts with @ is written in a JSON object",
        ) from error
