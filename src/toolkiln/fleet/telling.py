"""What running calls tell before they end, on its way to their callers.

Events leave a few times a second, those of a moment together, and of the progress of a call
only the last: a tool may report more often than anybody can read. What cannot be sent is
dropped; the result says what matters. What a call asks (`questions`) leaves at once, behind
all that it told before.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from msgspec.structs import replace

from toolkiln.fleet import wire
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.wire import Envelope, Reply, event_to_wire
from toolkiln.model import Event
from toolkiln.store import StoreError

_PAUSE = 0.05
"""Seconds between two sendings to one caller."""
_MOST, _MOST_TEXT = 200, 200_000
"""Events of one call that wait, and characters; further ones are dropped."""
_log = logging.getLogger(__name__)


class Telling:
    """The events of one worker's calls."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: dict[str, dict[str, list[Event]]] = defaultdict(dict)
        """By caller's stream and record."""
        self._about: dict[str, bytes] = {}
        """By record: what signed replies name (`wire.about`)."""
        self._sending: dict[str, asyncio.Task[None]] = {}
        """By caller's stream."""

    def about(self, envelope: Envelope) -> Callable[[Event], None]:
        """An observer of one call."""
        reply_to, record = envelope.reply_to, envelope.record
        about = self._about[record] = wire.about(envelope)

        def observe(event: Event) -> None:
            self._about[record] = about
            events = self._waiting[reply_to].setdefault(record, [])
            if events and event.kind == events[-1].kind == "progress":
                events[-1] = event
            elif event.kind == "pending" or not _is_full(events):
                events.append(event)
            if reply_to not in self._sending:
                self._sending[reply_to] = asyncio.create_task(self._send(reply_to))

        return observe

    async def told(self, envelope: Envelope) -> None:
        """Once all events of a call are sent: its end must not come before them."""
        reply_to, record = envelope.reply_to, envelope.record
        await self._tell(reply_to, {record: self._waiting[reply_to].pop(record, [])})
        self._about.pop(record, None)
        if not self._waiting[reply_to] and reply_to not in self._sending:
            del self._waiting[reply_to]

    async def tell(self, envelope: Envelope, reply: Reply, of: str = "") -> None:
        """Send something else about a call at once, after its events so far; `of` as in `Proof`.

        Raises:
            StoreError: Redis failed.
        """
        await self.told(envelope)
        proof = wire.Proof(wire.about(envelope), of)
        await self._queue.tell(envelope.reply_to, [replace(reply, proof=proof)])

    async def _send(self, reply_to: str) -> None:
        try:
            while waiting := self._waiting.pop(reply_to, None):
                await self._tell(reply_to, waiting)
                await asyncio.sleep(_PAUSE)
        finally:
            del self._sending[reply_to]

    async def _tell(self, reply_to: str, events: dict[str, list[Event]]) -> None:
        replies = [
            Reply(record, "event", event_to_wire(event), wire.Proof(self._about.get(record, b"")))
            for record, some in events.items()
            for event in some
        ]
        if not replies:
            return
        try:
            await self._queue.tell(reply_to, replies)
        except StoreError as error:
            _log.warning("%d events could not be sent: %s", len(replies), error.message)


def _is_full(events: list[Event]) -> bool:
    return len(events) >= _MOST or sum(len(event.text) for event in events) >= _MOST_TEXT
