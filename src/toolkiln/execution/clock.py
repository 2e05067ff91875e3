"""The wall clock of one call: it rests while the call's own caller is asked something."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Rings once, after so many seconds in which it did not rest."""

    __slots__ = ("_due", "_left", "_ring", "_timer")

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._due = 0.0
        self._ring: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds until it rings."""
        if self._timer is None:
            return self._left
        return self._due - asyncio.get_running_loop().time()

    def start(self, ring: Callable[[], None]) -> None:
        """Let it run."""
        self._ring = ring
        self._run(ring)

    def stop(self) -> None:
        """Never ring."""
        self._hold()
        self._ring = None

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Stand still as long as the block runs."""
        self._hold()
        try:
            yield
        finally:
            if self._ring is not None and self._timer is None:
                self._run(self._ring)

    def _run(self, ring: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._left
        self._timer = loop.call_at(self._due, ring)

    def _hold(self) -> None:
        if self._timer is not None:
            self._left = self.left
            self._timer.cancel()
            self._timer = None
