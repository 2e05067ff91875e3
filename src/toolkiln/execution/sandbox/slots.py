"""How many calls a sandbox runs at once, and how busy it is."""

import asyncio
from typing import NamedTuple


class Load(NamedTuple):
    """How busy a sandbox is."""

    mode: str
    running: int
    """Calls that run."""
    waiting: int
    """Calls that wait for others to end."""
    workers: int
    """Processes that are kept warm, busy or not."""
    spare: int
    """Those of them that wait for a call."""


class Slots:
    """So many calls at once; the others wait for their turn, first come first served."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self.running = 0
        self.waiting = 0

    async def take(self, *, is_nested: bool) -> None:
        """Wait for a slot, to be given back in the same way.

        A call that waits for another one keeps its slot, so that the other must not need one.
        """
        if not is_nested:
            self.waiting += 1
            try:
                await self._free.acquire()
            finally:
                self.waiting -= 1
        self.running += 1

    def give_back(self, *, is_nested: bool) -> None:
        """Let the next one in."""
        self.running -= 1
        if not is_nested:
            self._free.release()
