"""Commands that look after what calls leave: tasks, outputs, environments, workspaces."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer

from toolkiln.app import Kiln
from toolkiln.model import Task, ToolSpec
from toolkiln.surfaces.cli.calling import EXIT_STATUS, print_result, settings


def doctor(*, as_json: bool) -> int:
    """Print every mode with its layers; the exit status is 1 if no full one works."""
    with _kiln() as kiln:
        report = kiln.run_sync(kiln.doctor())
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        for line in report.lines():
            typer.echo(line)
    return 0 if report.mode else 1


def task_list(*, as_json: bool) -> None:
    """Print the remembered calls."""
    with _kiln() as kiln:
        tasks = kiln.run_sync(kiln.tasks())
    if as_json:
        typer.echo(json.dumps([task.model_dump(mode="json") for task in tasks], indent=2))
    for task in tasks if not as_json else ():
        typer.echo(f"{task.id}  {task.state:<8} {task.tool}  {task.progress}".rstrip())


def task_check(task_id: str, *, as_json: bool) -> int:
    """Print how a task stands."""
    with _kiln() as kiln:
        return _print_task(kiln.run_sync(kiln.check_task(task_id)), as_json=as_json)


def task_await(task_id: str, timeout: float | None, *, as_json: bool) -> int:
    """Wait for a task and print how it ended."""
    with _kiln() as kiln:
        return _print_task(
            kiln.run_sync(kiln.await_task(task_id, timeout=timeout)), as_json=as_json
        )


def task_cancel(task_id: str, *, as_json: bool) -> int:
    """Stop a task; it may take a second until its process hears of it."""
    with _kiln() as kiln:
        kiln.run_sync(kiln.cancel_task(task_id))
        return _print_task(kiln.run_sync(kiln.await_task(task_id, timeout=10)), as_json=as_json)


def read_output(handle: str, offset: int, limit: int, *, as_json: bool) -> None:
    """Print a page of an output that was cut."""
    with _kiln() as kiln:
        page = kiln.run_sync(kiln.read_output(handle, offset=offset, limit=limit))
    if as_json:
        typer.echo(json.dumps(page.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    typer.echo(page.text)
    if page.next_offset is not None:
        more = f"--offset {page.next_offset}"
        typer.echo(f"note: {page.total:,} characters in all; go on with {more}", err=True)


def env_list(*, as_json: bool) -> None:
    """Print the environments."""
    with _kiln() as kiln:
        entries = kiln.run_sync(kiln.engine.environments.entries())
    if as_json:
        typer.echo(json.dumps([entry.model_dump(mode="json") for entry in entries], indent=2))
        return
    for entry in entries:
        packages = ", ".join(f"{name} {version}" for name, version in entry.packages.items())
        used = entry.last_used.strftime("%Y-%m-%d %H:%M")
        typer.echo(f"{entry.key[:12]}  {entry.size / 1e6:8.1f} MB  used {used}  {packages}")


def env_build(names: list[str], tools: Path | None) -> None:
    """Build what tools need."""
    with _kiln(tools) as kiln:
        for spec in _chosen(kiln, names):
            with _progress(spec.name) as report:
                built = kiln.run_sync(kiln.build_environment(spec.name, report))
            said = built.key[:12] if built else "needs no packages"
            typer.echo(f"{spec.name}: {said}")


def env_upgrade(names: list[str], tools: Path | None) -> int:
    """Lock newer packages for tools whose examples pass on them."""
    kept = False
    with _kiln(tools) as kiln:
        for spec in _chosen(kiln, names):
            with _progress(spec.name) as report:
                candidate, complaint = kiln.run_sync(kiln.upgrade_environment(spec.name, report))
            if candidate is None:
                typer.echo(f"{spec.name}: needs no packages")
            elif not candidate.changes:
                typer.echo(f"{spec.name}: is up to date")
            elif complaint is None:
                typer.echo(f"{spec.name}: {_changes(candidate.changes)}")
            else:
                kept = True
                typer.echo(f"{spec.name}: kept, its examples fail on {_changes(candidate.changes)}")
                typer.echo(complaint, err=True)
    return 1 if kept else 0


def env_prune(days: float) -> None:
    """Remove what nobody used for so long."""
    with _kiln() as kiln:
        removed = kiln.run_sync(kiln.engine.environments.prune(timedelta(days=days)))
    size = sum(entry.size for entry in removed) / 1e6
    typer.echo(f"removed {len(removed)} environments, {size:.1f} MB")


def workspace_list(*, as_json: bool) -> None:
    """Print the workspaces."""
    with _kiln() as kiln:
        found = kiln.engine.workspaces.list()
    if as_json:
        typer.echo(json.dumps([asdict(item) for item in found], indent=2))
        return
    for item in found:
        typer.echo(f"{item.session}  {item.files:,} files  {item.bytes:,} bytes")


def workspace_export(session: str, folder: Path) -> None:
    """Copy a workspace out."""
    with _kiln() as kiln:
        exported = kiln.engine.workspaces.export(session, folder)
    typer.echo(f"{exported.files} files to {folder}")
    for name in exported.left_out:
        typer.echo(f"left behind: {name}", err=True)


def workspace_clear(session: str) -> None:
    """Remove a workspace."""
    with _kiln() as kiln:
        kiln.engine.workspaces.clear(session)


def _kiln(tools: Path | None = None) -> Kiln:
    return Kiln(tools, settings=settings())


def _chosen(kiln: Kiln, names: list[str]) -> list[ToolSpec]:
    return [kiln.tool(name) for name in names] or list(kiln.tools.values())


def _print_task(task: Task, *, as_json: bool) -> int:
    if as_json:
        typer.echo(json.dumps(task.model_dump(mode="json"), indent=2, ensure_ascii=False))
    elif task.result is not None:
        print_result(task.result, as_json=False)
    else:
        typer.echo(f"{task.state}: {task.progress}" if task.progress else task.state)
    return EXIT_STATUS[task.result.status] if task.result else 0


def _changes(changes: dict[str, tuple[str | None, str | None]]) -> str:
    return ", ".join(f"{name} {old or '-'} → {new or '-'}" for name, (old, new) in changes.items())


@contextmanager
def _progress(title: str) -> Iterator[Any]:
    """A bar on a terminal while packages are resolved, fetched and installed."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=None)

        def report(stage: str, done: int | None, total: int | None) -> None:
            progress.update(bar, description=f"{title}: {stage}", completed=done or 0, total=total)

        yield report
