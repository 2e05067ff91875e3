"""What a running call tells its client: progress and log lines, in order, never too many.

A tool may report faster than a client reads: of what waits to be sent only the newest
messages are kept, so that a chatty tool costs neither memory nor time.
"""

import asyncio
from collections import deque
from math import isfinite

from mcp.server.connection import allowed_log_levels
from mcp_types import LoggingMessageNotification, LoggingMessageNotificationParams

from toolkiln.model import Event
from toolkiln.surfaces.mcp.connections import wants_log
from toolkiln.surfaces.mcp.requests import Context, is_modern

_MOST_WAITING = 100
_STEP = 0.001


class Telling:
    """Sends the events of one call; nothing is started before there is one."""

    def __init__(self, context: Context, tool: str) -> None:
        self._context = context
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
            event, session = self._waiting.popleft(), self._context.session
            if event.kind == "log":
                await self._log(event)
            else:
                total = event.total if event.total is None or isfinite(event.total) else None
                await session.report_progress(self._next(event), total, event.text or None)

    async def _log(self, event: Event) -> None:
        context, level = self._context, event.level or "info"
        if is_modern(context):
            is_wanted = level in allowed_log_levels(context.protocol_version, context.meta)
        else:
            is_wanted = wants_log(context, level)
        if not is_wanted:
            return
        params = LoggingMessageNotificationParams(level=level, data=event.text, logger=self._tool)
        await context.session.send_notification(
            LoggingMessageNotification(params=params), context.request_id
        )

    def _next(self, event: Event) -> float:
        """How far it is: by the protocol more than the last time, whatever the tool says."""
        done = event.done
        if done is None or not isfinite(done) or done <= self._progress:
            done = self._progress + (1 if event.total is None and done is None else _STEP)
        self._progress = done
        return done
