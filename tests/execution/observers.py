"""What tests of calls share: sessions, waiting, an observer. Not a test itself."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from toolkiln.execution.call_events import CallObserver, RunningCall
from toolkiln.execution.executor import ExecutionOutcome
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Result, Status
from toolkiln.model.identity import Caller

SOON = 30.0
"""Seconds; far more than anything here takes."""


def open_session(kiln: Kiln, user: str, **identity: Any) -> str:
    """Create a session and return its token."""
    return kiln.security.sessions.create(user, **identity).token


def local_session(kiln: Kiln, **identity: Any) -> str:
    """Create a local session and return its token."""
    return kiln.security.sessions.local(Caller(**identity))


def code(result: Result | ExecutionOutcome) -> tuple[Status, str | None]:
    """Return how a call ended, and the code of its error."""
    return result.status, result.error.code if result.error else None


def space(kiln: Kiln, workspace: str = "default") -> Path:
    """Return the folder that calls see as /workspace."""
    return kiln.engine.workspaces.open(workspace, writable=True).folder


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.005)


async def until_still(file: Path) -> None:
    """Wait until a file is no longer written that was written every few milliseconds."""
    async with asyncio.timeout(SOON):
        seen = 0
        while seen != (seen := file.stat().st_mtime_ns):
            await asyncio.sleep(0.2)


def change_calls(state: Path, statement: str) -> None:
    """Run a statement on the table of calls in a store, whose name it has as `{}`."""
    with closing(sqlite3.connect(state / "store.db")) as store, store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master")]
        store.execute(statement.format(next(name for name in tables if name.endswith("calls"))))


class RecordingObserver(CallObserver):
    """Records everything it gets; `has_ended` is set with the first end."""

    def __init__(self) -> None:
        self.calls: list[RunningCall] = []
        self.events: list[tuple[str, Event]] = []
        self.results: list[tuple[str, str | None, Result | None]] = []
        """Name in the request, name of the tool, result."""
        self.has_ended = asyncio.Event()

    def started(self, call: RunningCall, /) -> None:
        """Record a call."""
        self.calls.append(call)

    def event(self, call: RunningCall, event: Event, /) -> None:
        """Record an event."""
        self.events.append((call.call.tool, event))

    def ended(self, call: RunningCall, result: Result | None, /) -> None:
        """Record an end."""
        self.results.append((call.call.tool, call.spec.name if call.spec else None, result))
        self.has_ended.set()
