"""Commands for workers and the administration of a fleet.

`toolkiln worker` is two processes: one supervises, the other runs tools. The first starts the
second as the same command with `--kept`, which names what the two share.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import DevOption, JsonOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import (
    counted,
    print_json,
    print_outcome,
    print_table,
    say,
    talk,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from toolkiln.fleet.supervisor import WorkerConfig
    from toolkiln.fleet.worker_process import WorkerHandle
    from toolkiln.kiln import Kiln
    from toolkiln.model.system import DeadLetter, FleetReport
    from toolkiln.operations.operation import Operation

RedisOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The fleet's Redis. Default: the setting.", show_default=False
    ),
]
PoolOption = Annotated[str, typer.Option(metavar="NAME", help="Only this pool.")]
LettersArgument = Annotated[
    list[str] | None, typer.Argument(help="The ids of dead letters.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="Select all.")]
_LIST_HINT = "`toolkiln fleet dead-letters list` lists them"


class WorkerOptions(NamedTuple):
    """The options of `toolkiln worker`."""

    redis: str | None
    pool: str
    slots: int
    health_port: int | None
    tools: Path | None
    dev: bool
    lease: float
    frozen: float


@command(app)
def worker(
    redis: RedisOption = None,
    pool: Annotated[
        str, typer.Option(help="The pool whose calls it runs.", metavar="NAME")
    ] = "default",
    slots: Annotated[int, typer.Option(help="Concurrent calls.", min=1, max=10_000)] = 32,
    health_port: Annotated[
        int | None,
        typer.Option(
            help="Serve /healthz, /readyz and /metrics on this port; 0: any free port.",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = None,
    tools: ToolsOption = None,
    dev: DevOption = False,
    lease: Annotated[float, typer.Option(hidden=True)] = 10.0,
    frozen: Annotated[float, typer.Option(hidden=True)] = 30.0,
    kept: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run calls for a fleet, until it is stopped."""
    options = WorkerOptions(redis, pool, slots, health_port, tools, dev, lease, frozen)
    if kept:
        _run_worker(options, kept)
    else:
        raise typer.Exit(_supervise(options))


def _supervise(options: WorkerOptions) -> int:
    """Keep a worker process running; return the exit status of the last one."""
    import asyncio
    import os
    import sys

    from toolkiln.fleet.supervisor import supervise
    from toolkiln.surfaces.cli.session import handle_signals

    config = _config(options)
    talk(f"worker {config.name}, pool {config.pool}; Ctrl-C ends it")

    async def start(consumer: str, table: int, channel: int) -> "Process":
        kept = f"{consumer},{table},{channel},{os.getpid()}"
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "toolkiln.surfaces.cli", "worker", *_arguments(options),
            "--kept", kept,
            pass_fds=(table, channel),
            start_new_session=True,  # this process forwards Ctrl-C
        )  # fmt: skip

    status = asyncio.run(supervise(config, start, handle_signals, os.environ))
    return status if status >= 0 else 128 - status


def _run_worker(options: WorkerOptions, kept: str) -> None:
    import asyncio
    import logging
    from dataclasses import replace

    from toolkiln.fleet.call_runner import CALL_LOG
    from toolkiln.fleet.worker_process import handle_from_parent, join_fleet, new_loop
    from toolkiln.surfaces.cli.session import open_folder

    CALL_LOG.setLevel(logging.INFO)
    config, handle = _config(options), handle_from_parent(kept)
    kiln = open_folder(options.tools, dev=options.dev)
    join_fleet(kiln.services, config.url)
    config = replace(config, name=handle.worker)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_work(kiln, config, handle, options.health_port))


async def _work(
    kiln: "Kiln", config: "WorkerConfig", handle: "WorkerHandle", health_port: int | None
) -> None:
    import gc
    from contextlib import AsyncExitStack

    from toolkiln.fleet.worker_process import WorkerProcess
    from toolkiln.surfaces.cli.session import handle_signals, note_unadmitted
    from toolkiln.surfaces.tracing import Tracing, exporter, is_traced

    def ready() -> None:
        gc.freeze()  # objects made by the start stay: collections need not visit them
        count = len(kiln.services.registry.specs)
        talk(f"ready: {counted(count, 'tool')}, {config.slots} calls at once")
        note_unadmitted(kiln)

    tracing = Tracing(exporter(kiln.settings)) if is_traced(kiln.settings) else None
    process = WorkerProcess(kiln.services, config, handle, tracing.queued if tracing else None)
    handle_signals(process.stop)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kiln)
        if tracing is not None:
            await stack.enter_async_context(tracing.running(kiln))
        if health_port is not None:
            from toolkiln.surfaces.http.health import HealthServer
            from toolkiln.surfaces.http.server import open_listener, url_of

            listener = stack.enter_context(open_listener(kiln.settings.host, health_port))
            health = HealthServer(kiln, {"fleet": process.check})
            health.metrics.watch_worker(lambda: process.metrics)
            await stack.enter_async_context(health.running(listener))
            talk(f"health {url_of(listener)}/readyz")
        await process.run(ready)


def _config(options: WorkerOptions) -> "WorkerConfig":
    from toolkiln.config import project_settings
    from toolkiln.fleet.supervisor import WorkerConfig

    settings = project_settings(options.tools)
    return WorkerConfig(
        _url(options.redis or settings.fleet or settings.redis),
        options.pool,
        options.slots,
        options.lease,
        worker_key=settings.worker_key,
        frozen=options.frozen,
    )


def _arguments(options: WorkerOptions) -> list[str]:
    """Return the options as arguments, for a process in the same folder."""
    words = ["--pool", options.pool, "--slots", str(options.slots), "--lease", str(options.lease)]
    words += ["--redis", options.redis] if options.redis else []
    words += ["--health-port", str(options.health_port)] if options.health_port is not None else []
    words += ["--tools", str(options.tools)] if options.tools else []
    return [*words, *(["--dev"] if options.dev else [])]


fleet_app = typer.Typer(help="Manage a fleet of workers.", no_args_is_help=True)
app.add_typer(fleet_app, name="fleet")
letters_app = typer.Typer(help="Manage calls that were given up.", no_args_is_help=True)
fleet_app.add_typer(letters_app, name="dead-letters")


@command(fleet_app, "status")
def fleet_status(redis: RedisOption = None, as_json: JsonOption = False) -> None:
    """Show fleet status: queued calls, running calls, workers."""
    from toolkiln.operations import system
    from toolkiln.operations.operation import Nothing

    report: FleetReport = _run(redis, system.fleet_status, Nothing())
    if as_json:
        print_json(report.model_dump(mode="json"))
        return
    tools = counted(report.tools, "tool")
    say(f"{report.server}: Redis {report.version}, {report.memory / 1e6:,.1f} MB, {tools}")
    _print_pools(report)
    _print_workers(report)
    for refused in report.refused:
        talk(
            f"warning: a worker on {refused.host}, pool {refused.pool}, refused to start "
            f"{_time(refused.seconds)} ago: {refused.why}"
        )
    for warning in report.warnings:
        talk(f"warning: {warning}")


@command(fleet_app, "keygen")
def fleet_keygen(as_json: JsonOption = False) -> None:
    """Print a new key pair: a key for workers to sign with, and one to verify."""
    from toolkiln.fleet.message_auth import generate_worker_keys

    private, public = generate_worker_keys()
    if as_json:
        print_json({"worker_key": private, "worker_keys": [public]})
        return
    say(f'worker_key = "{private}"')
    say(f'worker_keys = ["{public}"]')
    talk("worker_key is for workers only; worker_keys is for workers and clients")


@command(fleet_app, "clear-catalog")
def fleet_clear_catalog(
    redis: RedisOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the prompt.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the published catalog, so that workers with other keys can publish theirs."""
    from toolkiln.operations import system
    from toolkiln.operations.operation import Nothing

    if not yes:
        raise InputError(
            "callers see no tools until the workers have published theirs again",
            hint="use --yes to clear the catalog",
        )
    count = _run(redis, system.clear_catalog, Nothing())
    print_outcome({"tools": count}, f"cleared: {counted(count, 'tool')}", as_json=as_json)


@command(fleet_app, "drain")
def fleet_drain(
    worker: Annotated[
        str, typer.Argument(help="Its name. Default: all of --pool.", show_default=False)
    ] = "",
    pool: PoolOption = "",
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask workers to take no more calls, finish the running ones, and exit."""
    from toolkiln.operations import system

    workers = _run(redis, system.drain_fleet, system.DrainFleet(worker=worker, pool=pool))
    if as_json:
        print_json([worker.name for worker in workers])
        return
    for draining in workers:
        say(f"draining: {draining.name}, {draining.running} running")


@command(fleet_app, "reload")
def fleet_reload(redis: RedisOption = None, as_json: JsonOption = False) -> None:
    """Ask all workers to reload their settings and tools."""
    from toolkiln.operations import system
    from toolkiln.operations.operation import Nothing

    count = _run(redis, system.reload_fleet, Nothing())
    print_outcome(
        {"asked": count}, f"asked {count} worker{'' if count == 1 else 's'}", as_json=as_json
    )


@command(letters_app, "list")
def letters_list(
    pool: PoolOption = "", redis: RedisOption = None, as_json: JsonOption = False
) -> None:
    """List the calls that were given up, newest first."""
    from dataclasses import asdict

    from toolkiln.operations import system

    request = system.DeadLetterQuery(pool=pool)
    letters: list[DeadLetter] = _run(redis, system.list_dead_letters, request)
    if as_json:
        print_json([asdict(letter) for letter in letters])
        return
    if not letters:
        talk("no dead letters")
        return
    print_table(
        ("id", "pool", "age", "tool", "call", "tries", "why"),
        [
            (
                letter.id,
                letter.pool,
                _time(letter.seconds),
                letter.tool or "?",
                letter.call_id,
                str(letter.tries),
                letter.why,
            )
            for letter in letters
        ],
    )


@command(letters_app, "retry")
def letters_retry(
    ids: LettersArgument = None,
    everything: AllOption = False,
    pool: PoolOption = "",
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run calls again that were given up. Their callers get no second reply."""
    from toolkiln.operations import system

    request = _letters(ids, pool, everything=everything)
    _print_letters("tried again", _run(redis, system.retry_dead_letters, request), as_json=as_json)


@command(letters_app, "drop")
def letters_drop(
    ids: LettersArgument = None,
    everything: AllOption = False,
    pool: PoolOption = "",
    redis: RedisOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete calls that were given up."""
    from toolkiln.operations import system

    request = _letters(ids, pool, everything=everything)
    _print_letters("dropped", _run(redis, system.drop_dead_letters, request), as_json=as_json)


def _run(redis: str | None, operation: "Operation[Any, Any]", request: Any) -> Any:
    from toolkiln.config import project_settings
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    settings = project_settings()
    with open_kiln(redis=_url(redis or settings.fleet or settings.redis)) as kiln:
        return kiln.run_operation_sync(operation, request, authenticate(kiln))


def _url(url: str | None) -> str:
    if not url:
        raise InputError("there is no fleet", hint="name its Redis: --redis redis://HOST:PORT")
    return url


def _letters(ids: list[str] | None, pool: str, *, everything: bool) -> Any:
    from toolkiln.operations import system

    if bool(ids) == everything:
        raise InputError("name dead letters by their ids, or use --all", hint=_LIST_HINT)
    return system.DeadLetterRefs(ids=tuple(ids or ()), pool=pool)


def _print_letters(what: str, letters: "list[DeadLetter]", *, as_json: bool) -> None:
    if as_json:
        print_json([letter.id for letter in letters])
        return
    for letter in letters:
        say(f"{what}: {letter.id} {letter.tool}".rstrip())


def _print_pools(report: "FleetReport") -> None:
    if not report.pools:
        return
    say("")
    print_table(
        ("pool", "workers", "slots", "running", "waiting", "oldest", "dead letters"),
        [
            (
                pool.name,
                f"{sum(worker.pool == pool.name for worker in report.workers)}",
                f"{sum(worker.slots for worker in report.workers if worker.pool == pool.name)}",
                f"{pool.running:,}",
                f"{pool.waiting:,}",
                _time(pool.oldest) if pool.waiting else "",
                f"{pool.dead:,}",
            )
            for pool in report.pools
        ],
    )


def _print_workers(report: "FleetReport") -> None:
    if not report.workers:
        talk("no workers: start one with `toolkiln worker`")
        return
    say("")
    print_table(
        ("worker", "pool", "state", "running", "up", "version", "host", "pid"),
        [
            (
                worker.name,
                worker.pool,
                worker.state,
                f"{worker.running} of {worker.slots}",
                _time(worker.seconds),
                worker.version,
                worker.host,
                str(worker.pid),
            )
            for worker in report.workers
        ],
    )


def _time(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
