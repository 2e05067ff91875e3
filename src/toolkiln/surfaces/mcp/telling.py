"""What a running call tells its client: progress and log lines, in order, never too many.

A tool may report faster than a client reads: of what waits to be sent only the newest
messages are kept, so that a chatty tool costs neither memory nor time.
"""

import asyncio
from collections import deque
from math import isfinite
from typing import Any

from mcp.server.context import ServerRequestContext

from toolkiln.model import Event

_MOST_WAITING = 100
_STEP = 0.001


class Telling:
    """Sends the events of one call; nothing is started before there is one."""

    def __init__(self, context: ServerRequestContext[Any, Any], tool: str) -> None:
        self.context = context
        """The request that is told; an approval in between makes it another one."""
        self._tool = tool
        self._waiting: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._sending: asyncio.Task[None] | None = None
        self._progress = 0.0

    def __call__(self, event: Event) -> None:
        """Take an event; called from the event loop."""
        if event.kind not in ("progress", "log"):
            return
        self._waiting.append(event)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def finish(self) -> None:
        """Wait until everything is sent: a result is the last that a client hears of a call."""
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        while self._waiting:
            event, session = self._waiting.popleft(), self.context.session
            if event.kind == "log":
                await session.send_log_message(
                    "info", event.text, self._tool, self.context.request_id
                )
            else:
                total = event.total if event.total is None or isfinite(event.total) else None
                await session.report_progress(self._next(event), total, event.text or None)

    def _next(self, event: Event) -> float:
        """How far it is: by the protocol more than the last time, whatever the tool says."""
        done = event.done
        if done is None or not isfinite(done) or done <= self._progress:
            done = self._progress + (1 if event.total is None and done is None else _STEP)
        self._progress = done
        return done
