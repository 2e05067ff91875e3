"""What a running call said last, noted for those who ask for it by its id.

At most once a second, and never in the way of the call: what cannot be noted is not.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from toolkiln.errors import ToolkilnError
from toolkiln.model import Event

_BEAT = 1.0


class Progress:
    """Passes on what one call tells, and notes its progress."""

    def __init__(self, note: Callable[[str], object], observe: Callable[[Event], None]) -> None:
        """`note` may block, and raise what Toolkiln raises."""
        self._note = note
        self._observe = observe
        self._latest: str | None = None
        self._noting: asyncio.Task[None] | None = None

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if event.kind == "progress":
            self._latest = event.described
            if self._noting is None:
                self._noting = asyncio.create_task(self._go_on())
        self._observe(event)

    def stop(self) -> None:
        """Note nothing more: the call has ended."""
        if self._noting is not None:
            self._noting.cancel()

    async def _go_on(self) -> None:
        while self._latest is not None:
            text, self._latest = self._latest, None
            with suppress(ToolkilnError):
                await asyncio.to_thread(self._note, text)
            await asyncio.sleep(_BEAT)
        self._noting = None
