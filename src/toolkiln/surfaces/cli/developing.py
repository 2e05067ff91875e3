"""`toolkiln dev`: serve a folder as it is, and tell what becomes of each edit.

Changes and findings go to stdout; how many tools there are, why nothing is served and what
concerns watching itself go to stderr. What is served is decided by the catalog.
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing, suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path

from toolkiln.app import Change, Kiln, Report
from toolkiln.model import Grant, Reading
from toolkiln.surfaces.cli import output
from toolkiln.surfaces.cli.opening import open_kiln
from toolkiln.surfaces.cli.terminal import say

_talk = partial(say, err=True)


def dev(tools: Path | None) -> int:
    """Print what changes until somebody interrupts, which is the way to end it."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    with open_kiln(tools, dev=True) as kiln, suppress(asyncio.CancelledError):
        kiln.run_sync(_watch(kiln))
    return 0


async def _watch(kiln: Kiln) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    is_first = True
    async with aclosing(kiln.watch(_talk)) as changes:
        async for change in changes:
            _print(kiln, change, is_first=is_first)
            is_first = False


def _print(kiln: Kiln, change: Change, *, is_first: bool) -> None:
    if is_first:
        count = len(change.snapshot.tools)
        _talk(f"{count:,} tool{'' if count == 1 else 's'} of {kiln.path}; Ctrl-C ends it")
    if change.error is not None:
        _talk(f"waiting: {change.error.message}")
        if change.error.hint:
            _talk(f"hint: {change.error.hint}")
        return
    arrived = (*change.added, *change.changed)
    for name in () if is_first else arrived:
        version = change.snapshot.served[name].admission.version
        if name in change.changed:
            say(f"~ {name} (v{version})  {change.seconds * 1000:.0f} ms")
        else:
            say(f"+ {name} (v{version})")
    for name in change.removed:
        say(f"- {name}")
    for name in arrived:
        if missing := ", ".join(_not_granted(kiln, change, name)):
            say(f"  {name} is not granted {missing}")
    for path, findings in change.refused.items():
        reading = Reading(path=path, digest="", findings=findings)
        output.print_report(Report(reading=reading, health={}))


def _not_granted(kiln: Kiln, change: Change, name: str) -> Iterator[str]:
    """What a tool asks for and does not get."""
    asked, served = change.snapshot.tools[name].rights, change.snapshot.served[name]
    grants = kiln.settings.grants
    given = grants.get(name, grants.get("*"))
    grant = (
        served.admission.rights.get(name, Grant())
        if given is None
        else Grant.model_validate(dict(given))
    )
    if hosts := [host for host in asked.network if not _covers(grant.network, host)]:
        yield f"network {', '.join(hosts)}"
    if asked.workspace and grant.workspace not in (asked.workspace, "write"):
        yield f"workspace {asked.workspace}"
    if not asked.sandbox and grant.sandbox:
        yield "to run without the sandbox"


def _covers(granted: tuple[str, ...], host: str) -> bool:
    return any(host == g or (g.startswith("*.") and host.endswith(g[1:])) for g in granted)
