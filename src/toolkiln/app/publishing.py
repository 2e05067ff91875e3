"""What a worker's Kiln tells the fleet of its tools, and when: at the start and after changes.

How that is written down and sealed is `fleet.publisher`'s business.
"""

import asyncio
import logging
import os
import time
from contextlib import suppress
from typing import Any

from toolkiln.app.kiln import Kiln
from toolkiln.app.live import PERMISSIONS
from toolkiln.errors import ToolkilnError
from toolkiln.fleet import (
    REFRESH_SECONDS,
    Announcements,
    Publisher,
)

_PAUSE = 1.0
_LOOK = 0.5
"""Seconds in which a settings file that was announced is read again."""
_log = logging.getLogger(__name__)


class Publishing:
    """Keeps what the fleet knows of one Kiln up to date."""

    def __init__(self, kiln: Kiln, to: Publisher) -> None:
        self._kiln = kiln
        self._to = to
        self._is_due = asyncio.Event()

    def again(self) -> None:
        """Publish what has changed, soon."""
        self._is_due.set()

    async def publish(self) -> int:
        """Publish what there is; the number of the catalog.

        Raises:
            ToolkilnError: there is nothing to serve, or Redis failed.
        """
        snapshot, grants = await asyncio.to_thread(self._kiln.engine.published)
        return await self._to.publish(snapshot, grants, self._permissions())

    async def follow(self, news: Announcements) -> None:
        """Publish after every change, and say that we are there, until it is cancelled."""
        forget = self._kiln.changes.listen(lambda _: self.again())
        hearing = asyncio.create_task(self._hear(news))
        due = time.monotonic() + REFRESH_SECONDS
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_due.wait(), due - time.monotonic())
                try:
                    if self._is_due.is_set():
                        self._is_due.clear()
                        await self.publish()
                    else:
                        await self._to.refresh()
                        due = time.monotonic() + REFRESH_SECONDS
                except ToolkilnError as error:
                    _log.warning("the tools cannot be published: %s", error.message)
                    await asyncio.sleep(_PAUSE)
                    self.again()
        finally:
            forget()
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, news: Announcements) -> None:
        """Heed what is announced to all of the fleet."""
        while True:
            try:
                told = await news.wait(REFRESH_SECONDS)
            except ToolkilnError:  # Redis may have lost all when it is back
                await asyncio.sleep(_PAUSE)
                self.again()
                continue
            if "config" in told:
                await asyncio.sleep(_LOOK)
                self.again()

    def _permissions(self) -> dict[str, Any]:
        settings = self._kiln.guarding.live.current()
        return {name: getattr(settings, name) for name in PERMISSIONS}


def publisher_id(kiln: Kiln) -> str:
    """What the tools of a Kiln are published under: this machine, their folder, its functions.

    The same after a restart, and another one's for programs with other functions.
    """
    folder = "" if kiln.path is None else str(kiln.path.absolute())
    functions = sorted(f"{spec.path}:{spec.name}" for spec in kiln.engine.functions())
    return "|".join((os.uname().nodename, folder, *functions))
