"""What `toolkiln worker` does: one process that supervises, and one that runs tools.

The first starts the second as the same command with `--kept`, which says what the two share.
"""

import asyncio
import gc
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from toolkiln.app import Kept, Kiln, Post, Station, join_fleet, kept_by_parent, new_loop
from toolkiln.app import supervise as keep_running
from toolkiln.config import project_settings
from toolkiln.errors import InputError
from toolkiln.surfaces.cli.opening import open_folder
from toolkiln.surfaces.cli.terminal import talk
from toolkiln.surfaces.tracing import Tracing, exporter, is_traced


class Options(NamedTuple):
    """What the command was given."""

    redis: str | None
    pool: str
    slots: int
    health_port: int | None
    tools: Path | None
    dev: bool
    lease: float
    frozen: float


def supervise(options: Options) -> int:
    """Keep a process at work that runs tools; the exit status of the last."""
    post = _post(options)
    talk(f"worker {post.name}, pool {post.pool}; Ctrl-C ends it")

    async def start(consumer: str, table: int, channel: int) -> Process:
        kept = f"{consumer},{table},{channel},{os.getpid()}"
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "toolkiln.surfaces.cli", "worker", *_said(options),
            "--kept", kept,
            pass_fds=(table, channel),
            start_new_session=True,  # Ctrl-C is for this process, which passes it on
        )  # fmt: skip

    status = asyncio.run(keep_running(post, start, _heed, os.environ))
    return status if status >= 0 else 128 - status


def perform(options: Options, kept: str) -> int:
    """Run tools, for the process that started this one."""
    post, shared = _post(options), kept_by_parent(kept)
    kiln = open_folder(options.tools, dev=options.dev)
    join_fleet(kiln, post.url)
    post = replace(post, name=shared.worker)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_perform(kiln, post, shared, options.health_port))
    return 0


async def _perform(kiln: Kiln, post: Post, shared: Kept, health_port: int | None) -> None:
    def ready() -> None:
        gc.freeze()  # what a start has made stays: it need not be gone through again and again
        count = len(kiln.specs)
        talk(f"ready: {count:,} tool{'' if count == 1 else 's'}, {post.slots} calls at once")
        if unadmitted := sum(map(kiln.is_dev, kiln.specs)):
            talk(f"note: dev: {unadmitted:,} of them served as on disk, without an admission")

    tracing = Tracing(exporter(kiln.settings)) if is_traced(kiln.settings) else None
    station = Station(kiln, post, shared, tracing.queued if tracing else None)
    _heed(station.stop)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kiln)
        if tracing is not None:
            await stack.enter_async_context(tracing.watching(kiln))
        if health_port is not None:
            from toolkiln.surfaces.http.health import Health
            from toolkiln.surfaces.http.server import listening, url_of

            listener = stack.enter_context(listening(kiln.settings.host, health_port))
            health = Health(kiln, {"fleet": station.check})
            health.metrics.watch_worker(lambda: station.figures)
            await stack.enter_async_context(health.answering(listener))
            talk(f"health {url_of(listener)}/readyz")
        await station.run(ready)


def _heed(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _post(options: Options) -> Post:
    known = project_settings(options.tools)
    url = options.redis or known.fleet or known.redis
    if not url:
        raise InputError(
            "there is no fleet to work for", hint="name its Redis: --redis redis://HOST:PORT"
        )
    return Post(
        url,
        options.pool,
        options.slots,
        options.lease,
        worker_key=known.worker_key,
        frozen=options.frozen,
    )


def _said(options: Options) -> list[str]:
    """The options again, for a process in the same folder."""
    said = ["--pool", options.pool, "--slots", str(options.slots), "--lease", str(options.lease)]
    said += ["--redis", options.redis] if options.redis else []
    said += ["--health-port", str(options.health_port)] if options.health_port is not None else []
    said += ["--tools", str(options.tools)] if options.tools else []
    return [*said, *(["--dev"] if options.dev else [])]
