"""Commands that look after what calls leave: tasks, outputs, environments, workspaces."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer

from toolkiln.app import Kiln
from toolkiln.config import places
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Privilege, Task, ToolSpec
from toolkiln.surfaces.cli.calling import EXIT_STATUS, keep_files, print_result
from toolkiln.surfaces.cli.opening import authenticate, open_folder, open_kiln, require
from toolkiln.surfaces.cli.tables import one_line
from toolkiln.surfaces.cli.terminal import Live, print_json, say

_STOPPING = 10.0
"""Seconds within which a process hears that its task is to stop."""
_MOST_DAYS = 36_500.0


def doctor(tools: Path | None, *, as_json: bool) -> int:
    """Print the project's files and every sandbox mode; exit status 1 if no mode works."""
    with open_folder(tools) as kiln:
        assert kiln.path is not None
        project = places(kiln.settings, kiln.path)
        diagnosis = kiln.run_sync(kiln.doctor())
    if as_json:
        print_json({"project": project, **diagnosis.model_dump(mode="json")})
    else:
        for name, value in project.items():
            say(f"{name:<12} {value}")
        say("")
        for line in diagnosis.lines():
            typer.echo(line.rstrip())
    return 0 if diagnosis.mode else 1


def task_list(token: str | None, *, as_json: bool) -> None:
    """Print the remembered calls."""
    with open_kiln() as kiln:
        tasks = kiln.run_sync(kiln.tasks(authenticate(kiln, token)))
    if as_json:
        print_json([task.model_dump(mode="json") for task in tasks])
        return
    for task in tasks:
        say(one_line(f"{task.id}  {task.state:<8} {task.tool}  {task.progress}".rstrip()))


def task_check(task_id: str, files: Path | None, token: str | None, *, as_json: bool) -> int:
    """Print how a task stands."""
    with open_kiln() as kiln:
        task = kiln.run_sync(kiln.check_task(task_id, authenticate(kiln, token)))
    return _print_task(task, files, as_json=as_json)


def task_await(
    task_id: str, timeout: float | None, files: Path | None, token: str | None, *, as_json: bool
) -> int:
    """Wait for a task and print how it ended."""
    if timeout is not None and not timeout >= 0:
        raise InputError("--timeout is below zero")
    with open_kiln() as kiln:
        session = authenticate(kiln, token)
        task = kiln.run_sync(kiln.await_task(task_id, session, timeout=timeout))
    return _print_task(task, files, as_json=as_json)


def task_cancel(task_id: str, token: str | None, *, as_json: bool) -> int:
    """Stop a task, and print how it ended."""
    with open_kiln() as kiln:
        session = authenticate(kiln, token)
        kiln.run_sync(kiln.cancel_task(task_id, session))
        task = kiln.run_sync(kiln.await_task(task_id, session, timeout=_STOPPING))
    _print_task(task, None, as_json=as_json)
    return 1 if task.state in ("running", "pending") else 0


def read_output(handle: str, offset: int, limit: int, token: str | None, *, as_json: bool) -> None:
    """Print a page of an output that was cut."""
    with open_kiln() as kiln:
        session = authenticate(kiln, token)
        reading = kiln.read_output(handle, session, offset=offset, limit=limit)
        page = kiln.run_sync(reading)
    if as_json:
        print_json(page.model_dump(mode="json"))
        return
    say(page.text, newline=not page.text.endswith("\n"))
    if page.next_offset is not None:
        more = f"--offset {page.next_offset}"
        typer.echo(f"note: {page.total:,} characters in all; go on with {more}", err=True)


def env_list(*, as_json: bool) -> None:
    """Print the environments."""
    with open_folder() as kiln:
        require(kiln, Privilege.ADMIN, "environment.list")
        entries = kiln.run_sync(kiln.engine.environments.entries())
    if as_json:
        print_json([entry.model_dump(mode="json") for entry in entries])
        return
    for entry in entries:
        packages = ", ".join(f"{name} {version}" for name, version in entry.packages.items())
        used = entry.last_used.strftime("%Y-%m-%d %H:%M")
        say(f"{entry.key[:12]}  {entry.size / 1e6:8.1f} MB  used {used}  {packages}")


def env_build(names: list[str], tools: Path | None, *, as_json: bool) -> int:
    """Build what tools need; the exit status is 1 if that fails for one of them."""

    def build(kiln: Kiln, name: str, live: Live) -> tuple[str, dict[str, Any]]:
        built = kiln.run_sync(kiln.engine.build_environment(name, live.report))
        if built is None:
            return "needs no packages", {"key": None, "packages": {}}
        packages = ", ".join(f"{package} {version}" for package, version in built.packages.items())
        return f"{built.key[:12]}  {packages}", {"key": built.key, "packages": built.packages}

    return _for_each(names, tools, build, as_json=as_json)


def env_upgrade(names: list[str], tools: Path | None, *, as_json: bool) -> int:
    """Lock newer packages for tools whose examples pass on them; 1 if those of one do not."""

    def upgrade(kiln: Kiln, name: str, live: Live) -> tuple[str, dict[str, Any]]:
        candidate, complaint = kiln.run_sync(kiln.engine.upgrade_environment(name, live.report))
        if candidate is None:
            return "needs no packages", {"changes": {}}
        if not candidate.changes:
            return "is up to date", {"changes": {}}
        told = ", ".join(
            f"{package} {old or '-'} → {new or '-'}"
            for package, (old, new) in candidate.changes.items()
        )
        if complaint is not None:
            said = f"kept as it is: the examples fail on {told}"
            return said, {"changes": candidate.changes, "error": complaint}
        return told, {"changes": candidate.changes}

    return _for_each(names, tools, upgrade, as_json=as_json)


def env_prune(days: float, *, as_json: bool) -> None:
    """Remove what nobody used for so long."""
    if not 0 <= days <= _MOST_DAYS:
        raise InputError(f"--older-than is not between 0 and {_MOST_DAYS:g} days")
    with open_folder() as kiln:
        admin = kiln.guarding.caller(require(kiln, Privilege.ADMIN, "environment.prune"))
        detail = f"unused for {days:g} days"
        kiln.guarding.record("environment.prune", admin, detail=detail)
        removed = kiln.run_sync(kiln.engine.environments.prune(timedelta(days=days)))
    if as_json:
        print_json([entry.model_dump(mode="json") for entry in removed])
        return
    size = sum(entry.size for entry in removed) / 1e6
    typer.echo(f"removed {_count(len(removed), 'environment')}, {size:.1f} MB")


def workspace_list(*, as_json: bool) -> None:
    """Print the workspaces."""
    with open_folder() as kiln:
        require(kiln, Privilege.ADMIN, "workspace.list")
        found = kiln.engine.workspaces.list()
    if as_json:
        print_json([asdict(item) for item in found])
        return
    for item in found:
        say(f"{item.session}  {_count(item.files, 'file')}  {item.bytes:,} bytes")


def workspace_export(session: str, folder: Path, *, as_json: bool) -> None:
    """Copy a workspace out."""
    with open_folder() as kiln:
        require(kiln, Privilege.ADMIN, "workspace.export")
        exported = kiln.engine.workspaces.export(session, folder)
    if as_json:
        print_json(asdict(exported))
        return
    typer.echo(f"{_count(exported.files, 'file')} to {folder}")
    for name in exported.left_out:
        say(f"left behind: {name}", err=True)


def workspace_clear(session: str) -> None:
    """Remove a workspace."""
    with open_folder() as kiln:
        require(kiln, Privilege.ADMIN, "workspace.clear")
        kiln.engine.workspaces.clear(session)
    say(f"cleared: {session}", err=True)


def _for_each(
    names: list[str],
    tools: Path | None,
    work: Callable[[Kiln, str, Live], tuple[str, dict[str, Any]]],
    *,
    as_json: bool,
) -> int:
    """Do something for each tool; one that fails does not keep the others from it."""
    told: list[dict[str, Any]] = []
    with open_folder(tools) as kiln:
        require(kiln, Privilege.ADMIN, "environment.build")
        for spec in _chosen(kiln, names):
            try:
                with Live(quiet=as_json) as live:
                    said, data = work(kiln, spec.name, live)
            except ToolkilnError as error:
                said, data = "failed", {"error": error.message, "hint": error.hint}
            told.append({"tool": spec.name, **data})
            if as_json:
                continue
            say(f"{spec.name}: {said}")
            if "error" in data:
                say(f"error: {spec.name}: {data['error']}", err=True)
            if data.get("hint"):
                say(f"\nhint: {data['hint']}", err=True)
    if as_json:
        print_json(told)
    return 1 if any("error" in item for item in told) else 0


def _chosen(kiln: Kiln, names: list[str]) -> list[ToolSpec]:
    return [kiln.tool(name) for name in names] or list(kiln.specs.values())


def _print_task(task: Task, files: Path | None, *, as_json: bool) -> int:
    if as_json:
        print_json(task.model_dump(mode="json"))
    elif task.result is not None:
        print_result(task.result)
    else:
        say(f"{task.state}: {task.progress}" if task.progress else task.state)
        if task.state == "pending":
            say("hint: a person has to approve it, see `toolkiln approvals list`", err=True)
    if task.result is None:
        return 3 if task.state == "lost" else 0
    keep_files(task.result, files, quiet=as_json)
    return EXIT_STATUS[task.result.status]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
