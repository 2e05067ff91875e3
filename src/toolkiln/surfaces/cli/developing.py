"""`toolkiln dev`: serve a folder as it is, and tell what becomes of each edit.

Changes and findings go to stdout; how many tools there are, why nothing is served and what
concerns watching itself go to stderr. What is served is decided by the catalog.
"""

import asyncio
import signal
import sys
from contextlib import aclosing, suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path

from toolkiln.app import Change, Kiln, Report
from toolkiln.model import Reading
from toolkiln.surfaces.cli import output
from toolkiln.surfaces.cli.opening import open_kiln
from toolkiln.surfaces.cli.rights import not_granted
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
        if missing := ", ".join(not_granted(kiln, name)):
            say(f"  {name} is not granted {missing}")
    for path, findings in change.refused.items():
        reading = Reading(path=path, digest="", findings=findings)
        output.print_report(Report(reading=reading, health={}))
