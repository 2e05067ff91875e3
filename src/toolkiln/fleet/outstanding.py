"""A client's calls that are out, and those who await them; what they are told is `client`'s."""

import asyncio
from collections.abc import Callable
from typing import Any

from toolkiln.fleet.wire import Envelope, Reply
from toolkiln.model import Event

Observe = Callable[[Event], None]


class Waiter:
    """One who awaits the end of a call."""

    __slots__ = ("_woken", "observe", "reply", "timer")

    def __init__(self, woken: "asyncio.Future[Any]", observe: Observe | None) -> None:
        self._woken = woken
        self.observe = observe
        self.reply: Reply | None = None
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, reply: Reply) -> None:
        """End the waiting, unless something has ended it before."""
        if self.reply is None:
            self.reply = reply
            self.wake(None)

    def wake(self, said: Any) -> None:
        """Have whoever sleeps go on, with this."""
        if not self._woken.done():
            self._woken.set_result(said)

    async def sleep(self) -> Any:
        """What somebody was woken with."""
        return await self._woken

    async def end(self) -> Reply:
        """The reply, when it is there."""
        while self.reply is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        return self.reply

    def rest(self) -> None:
        """Wait for however long it takes."""
        if self.timer is not None:
            self.timer.cancel()


class Out:
    """A call that is out, under its record; several may wait for it."""

    __slots__ = (
        "about", "entry", "envelope", "is_ours", "is_remembered", "misses", "since", "waiters",
    )  # fmt: skip

    def __init__(self, envelope: Envelope, now: float) -> None:
        self.envelope = envelope
        self.since = now
        self.waiters: list[Waiter] = []
        self.is_ours = True
        """Whether it was put into the queue from here: then it ends if nobody here awaits it."""
        self.is_remembered = envelope.remember
        self.misses = 0
        """How many looks in a row found nothing of it."""
        self.about = b""
        """What signed replies to it name (`wire.about`)."""
        self.entry = (0, 0)
        """Where it is in the queue at the earliest: replies to earlier entries are not to it."""
