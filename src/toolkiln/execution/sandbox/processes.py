"""What a launcher starts and how it is seen from outside: a job, a process, its end.

Launchers are the modes: `fork_server` is A, `one_shot` B and C. None of them knows what
is said on a job's socket; that is `conversation`'s business.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolkiln.execution.executor import Bounds, Workspace
from toolkiln.execution.network import Endpoint


@dataclass(frozen=True, slots=True)
class Job:
    """A process to be: what it sees and what it may use."""

    version: Path
    """The folder with the tool's file and helpers."""
    site: Path | None
    workspace: Workspace | None
    network: bool
    bounds: Bounds
    extra_processes: int = 0
    """A template counts as one, too."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where it listens for plain sockets, if it has a network."""


@dataclass(frozen=True, slots=True)
class View:
    """Where a process finds things."""

    tool: str
    site: str | None
    base: str
    """Where pydantic lies."""
    workspace: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its wait status, as a parent sees it, and what it used."""

    status: int
    cpu: float | None = None
    memory: int | None = None
    out_of_memory: bool = False
    trouble: str = ""
    """Why the platform, not the tool, is to blame."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs, or has ended."""

    ended: asyncio.Future[Ended]
    kill: Callable[[], None]


class Launcher(Protocol):
    """Starts processes without rights."""

    mode: str
    start_seconds: float
    """What a fresh process costs before it can import anything."""

    async def ready(self) -> None:
        """Start what must run first.

        Raises:
            BackendError: it does not.
        """
        ...

    def spawn(self, job: Job, descriptors: tuple[int, int, int]) -> Process:
        """Start a process that speaks on the first descriptor and prints on the others."""
        ...

    def view(self, job: Job) -> View:
        """Where that process finds its things."""
        ...

    async def close(self) -> None:
        """End everything."""
        ...

    def kill(self) -> None:
        """End everything, from any thread; for when the event loop has ended."""
        ...
