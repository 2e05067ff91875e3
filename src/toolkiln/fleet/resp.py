"""One connection to Redis that many tasks share, over asyncio and hiredis.

Commands that are issued in one turn of the loop leave in one write, and answers come back
in order. It reconnects by itself, and tries nothing again that the server may have run:
whoever asked gets `Unreachable` and decides. A read that blocks holds up all that is behind
it, so those have a Pipe of their own.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from toolkiln.fleet.address import Address
from toolkiln.store import StoreError

Part = bytes | str | int
"""A part of a command."""
Script = Callable[[Sequence[str], Sequence[Part]], Awaitable[Any]]
"""Runs on the server, all of it or nothing, with keys and arguments."""


class Unreachable(StoreError):
    """The server could not be reached, or went away."""

    def __init__(self, message: str, *, sent: bool, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        """Whether the server may have run the command."""


class Pipe:
    """A connection to a server, which comes back after it was lost."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connects = 0
        """How often it has connected: more than before means that it was lost meanwhile."""

    async def open(self) -> None:
        """Connect.

        Raises:
            StoreError: the server cannot be reached or used.
        """
        raise NotImplementedError

    async def command(self, *parts: Part, wait: float = 0.0) -> Any:
        """Run a command; bytes, integers, None and lists come back.

        `wait` are the seconds that the server may take because the command blocks.

        Raises:
            Unreachable: there is no connection, or it was lost before the answer came.
            StoreError: the server refused.
        """
        raise NotImplementedError

    def script(self, name: str) -> Script:
        """A script of the folder `lua`; it raises as `command` does."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of the server; what waits for an answer gets Unreachable."""
        raise NotImplementedError
