"""Events of running calls, and announcements to the whole fleet.

Events are sent in batches a few times per second, and only the last progress of a batch; those
that cannot be sent are dropped. A question is sent at once, after the call's earlier events.
"""

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from toolkiln.errors import StoreError
from toolkiln.fleet import keys, wire
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.wire import CallReply, Envelope, Observe, event_to_wire
from toolkiln.model.call import Event

if TYPE_CHECKING:
    from toolkiln.fleet.connection import RedisPipe

_PAUSE = 0.05
"""Seconds between batches to one caller."""
_MAX_EVENTS, _MAX_CHARACTERS = 200, 200_000
"""Maximum unsent events of one call, and their characters; more are dropped."""
_log = logging.getLogger(__name__)


class EventPublisher:
    """Events of one worker's calls."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._unsent: dict[str, dict[str, list[Event]]] = defaultdict(dict)
        """By reply stream and record."""
        self._subjects: dict[str, bytes] = {}
        """By record: the subject of signed replies (`wire.reply_subject`)."""
        self._senders: dict[str, asyncio.Task[None]] = {}
        """By reply stream."""

    def observer(self, envelope: Envelope) -> Observe:
        """Return an observer that publishes the events of one call."""
        reply_to, record = envelope.reply_to, envelope.record
        subject = self._subjects[record] = wire.reply_subject(envelope)

        def observe(event: Event) -> None:
            self._subjects[record] = subject
            events = self._unsent[reply_to].setdefault(record, [])
            if events and event.kind == events[-1].kind == "progress":
                events[-1] = event
            elif event.kind == "pending" or not _is_full(events):
                events.append(event)
            if reply_to not in self._senders:
                self._senders[reply_to] = asyncio.create_task(self._run(reply_to))

        return observe

    async def flush(self, envelope: Envelope) -> None:
        """Send all events of a call; its end must not overtake them."""
        reply_to, record = envelope.reply_to, envelope.record
        await self._send_events(reply_to, {record: self._unsent[reply_to].pop(record, [])})
        self._subjects.pop(record, None)
        if not self._unsent[reply_to] and reply_to not in self._senders:
            del self._unsent[reply_to]

    async def send(self, envelope: Envelope, reply: CallReply, target: str = "") -> None:
        """Send another message about a call at once, after its events; `target` as in `Proof`."""
        await self.flush(envelope)
        proof = wire.Proof(wire.reply_subject(envelope), target)
        await self._queue.send(envelope.reply_to, [replace(reply, proof=proof)])

    async def _run(self, reply_to: str) -> None:
        try:
            while events := self._unsent.pop(reply_to, None):
                await self._send_events(reply_to, events)
                await asyncio.sleep(_PAUSE)
        finally:
            del self._senders[reply_to]

    async def _send_events(self, reply_to: str, events: dict[str, list[Event]]) -> None:
        replies = [
            CallReply(
                record, "event", event_to_wire(event), wire.Proof(self._subjects.get(record, b""))
            )
            for record, batch in events.items()
            for event in batch
        ]
        if not replies:
            return
        try:
            await self._queue.send(reply_to, replies)
        except StoreError as error:
            _log.warning("cannot send %d events: %s", len(replies), error.message)


def _is_full(events: list[Event]) -> bool:
    return len(events) >= _MAX_EVENTS or sum(len(event.text) for event in events) >= _MAX_CHARACTERS


Announcement = Literal["catalog", "config"]
"""`catalog`: tools or permissions have changed. `config`: workers reload their settings."""


async def announce(pipe: "RedisPipe", kind: Announcement) -> None:
    """Notify every process of the fleet."""
    await pipe.command("XADD", keys.ANNOUNCEMENTS, "MAXLEN", "~", 100, "*", "kind", kind)


class Announcements:
    """Announcements since `begin`, on a connection of its own; missing one does no harm."""

    def __init__(self, pipe: "RedisPipe") -> None:
        self._pipe = pipe
        self._cursor: bytes | None = None

    async def begin(self) -> None:
        """Start listening; does nothing the second time."""
        if self._cursor is None:
            newest = await self._pipe.command("XREVRANGE", keys.ANNOUNCEMENTS, "+", "-", "COUNT", 1)
            self._cursor = newest[0][0] if newest else b"0-0"

    async def wait(self, seconds: float) -> set[str]:
        """Return the kinds announced since the last call; empty after a timeout."""
        await self.begin()
        assert self._cursor is not None
        block = ("BLOCK", round(seconds * 1000))
        found = await self._pipe.command(
            "XREAD", *block, "STREAMS", keys.ANNOUNCEMENTS, self._cursor, wait=seconds
        )
        if not found:
            return set()
        ((_, entries),) = found
        self._cursor = entries[-1][0]
        return {fields[1].decode("utf-8", "replace") for _, fields in entries if fields}
