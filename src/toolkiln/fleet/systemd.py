"""Notifications to systemd: readiness, and signs of life for its watchdog (`sd_notify`)."""

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

_SECONDS = 1.0
"""How long a service manager that does not read may block."""


class Notifier:
    """Sends notifications to the service manager that started this process, if there is one."""

    def __init__(self, variables: MutableMapping[str, str]) -> None:
        """Take what systemd sets out of the variables of this process: children do not need it."""
        address = variables.pop("NOTIFY_SOCKET", "")
        microseconds = variables.pop("WATCHDOG_USEC", "")
        watched = variables.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        # A name in the abstract namespace begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._period = int(microseconds) / 1e6 if watched and microseconds.isdigit() else 0.0

    def send(self, state: str) -> None:
        """Send a state such as `READY=1`. A service manager that does not listen is ignored."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SECONDS)
                sender.sendto(state.encode(), self._address)

    async def keep_alive(self) -> None:
        """Send signs of life, twice per watchdog period, until it is cancelled."""
        while self._period:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self._period / 2)
