"""The wall clock of one call: it rests while the call's own caller is asked something."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Rings once, after so many seconds in which it did not rest."""

    __slots__ = ("_due", "_left", "_loop", "_ring", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._due = self._loop.time() + seconds
        self._left: float | None = None
        """While it rests."""
        self._ring: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds until it rings, or would if anybody wanted it to."""
        return self._due - self._loop.time() if self._left is None else self._left

    def start(self, ring: Callable[[], None]) -> None:
        """Let it ring, all its seconds from here on."""
        self._ring = ring
        self._run(self._seconds)

    def stop(self) -> None:
        """Never ring."""
        self._ring = None
        if self._timer is not None:
            self._timer.cancel()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Stand still as long as the block runs."""
        if self._left is not None:  # it rests already
            yield
            return
        self._left = left = self.left
        if self._timer is not None:
            self._timer.cancel()
        try:
            yield
        finally:
            self._left = None
            self._run(left)

    def _run(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        if self._ring is not None:
            self._timer = self._loop.call_at(self._due, self._ring)
