"""A client's reply stream: what it is told, in order, from where it left off.

One stream per client process, bounded, and gone some time after the client is. Which call
a reply belongs to is `client`'s business.
"""

import logging
from contextlib import suppress

from toolkiln.fleet import bodies, keys, wire
from toolkiln.fleet.queue import is_believed
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.signatures import Verifier
from toolkiln.fleet.wire import Malformed, Reply
from toolkiln.store import StoreError

_MOST_READ = 256
# Entries that were read and are still there; deleting each at once would cost a command.
_TRIM_AFTER = 64
_START = "0-0"
_log = logging.getLogger(__name__)


class Replies:
    """What one client is told."""

    def __init__(
        self, pipe: Pipe, waiting: Pipe, reply_to: str, trusted: Verifier | None = None
    ) -> None:
        """`waiting` is a connection for nothing but this, as its reads block.

        Replies that no `trusted` worker signed are ignored.
        """
        self._trusted = trusted
        self._has_warned = False
        self._pipe, self._waiting = pipe, waiting
        self._stream = keys.replies(reply_to)
        self._last = _START
        self._read = 0
        self._connects = 0

    async def next(self, block_ms: int) -> list[Reply]:
        """What came since the last time; waits for the first, none if nothing came.

        Raises:
            StoreError: Redis failed; nothing is skipped, and the next try goes on.
        """
        if self._connects != self._waiting.connects:
            await self._begin_again()
        options = ("COUNT", _MOST_READ, "BLOCK", block_ms)
        answer = await self._waiting.command(
            "XREAD", *options, "STREAMS", self._stream, self._last, wait=block_ms / 1000
        )
        entries = answer[0][1] if answer else []
        if self._read and (not entries or self._read > _TRIM_AFTER):
            await self._trim()
        replies: list[Reply] = []
        for _, fields in entries:
            # Whoever writes nonsense here is no worker of ours; those who wait ask by themselves.
            with suppress(Malformed):
                replies.extend(wire.replies_from_wire(fields[1]))
        resolved = [
            reply if reply.kind != "stored" else await bodies.resolve(self._pipe, reply)
            for reply in replies
            if self._is_believed(reply)
        ]
        if entries:
            self._last = entries[-1][0].decode()
            self._read += len(entries)
        return resolved

    def _is_believed(self, reply: Reply) -> bool:
        if is_believed(self._trusted, reply):
            return True
        if not self._has_warned:
            _log.warning("replies are ignored: no worker of `worker_keys` signed them")
            self._has_warned = True
        return False

    async def close(self) -> None:
        """Delete the stream.

        Raises:
            StoreError: Redis failed; the stream expires by itself.
        """
        await self._pipe.command("DEL", self._stream)

    async def _begin_again(self) -> None:
        """Read from the start if the server is one that has not come as far as the last one."""
        connects = self._waiting.connects
        try:
            said = await self._waiting.command("XINFO", "STREAM", self._stream)
        except StoreError as error:
            if "no such key" not in error.message:
                raise
            self._last = _START
        else:
            about = dict(zip(said[::2], said[1::2], strict=True))
            if place(about[b"last-generated-id"].decode()) < place(self._last):
                self._last = _START
        self._connects = connects

    async def _trim(self) -> None:
        milliseconds, _, number = self._last.partition("-")
        # What is not trimmed this time is trimmed the next.
        with suppress(StoreError):
            after = f"{milliseconds}-{int(number) + 1}"
            await self._pipe.command("XTRIM", self._stream, "MINID", after)
            self._read = 0


def place(entry: str) -> tuple[int, int]:
    """Return the order of an entry in its stream."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)
