"""Consumers of a pool, their control messages, and detection of Redis restarts."""

from typing import Any

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet import keys
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Consumer, ControlMessage, entry_order

MAX_CONTROL = 1000
"""Approximate maximum length of a control stream."""
Cursors = tuple[str, str]
"""Last ids read from the control stream of operators and fronts, and from that of clients."""


class PoolConsumers:
    """Workers of one pool, as Redis knows them."""

    def __init__(self, pipe: RedisPipe, pool: str) -> None:
        self._pipe = pipe
        self._stream, self._control = keys.calls(pool), keys.control(pool)
        self._client_control = keys.asks(pool)
        self.control_stream = self._client_control if pipe.address.namespace else self._control
        """The control stream that this process writes to."""
        self._retire = pipe.script("retire")

    async def send_control(self, message: ControlMessage) -> None:
        """Send a control message to all workers of the pool."""
        limit = ("MAXLEN", "~", MAX_CONTROL)
        await self._pipe.command(
            "XADD", self.control_stream, *limit, "*", "ask", message.command, "of", message.target
        )

    async def read_control(
        self, cursors: Cursors | None, block_ms: int, pipe: RedisPipe
    ) -> tuple[Cursors, list[ControlMessage]]:
        """Read control messages after `cursors` (None at first), on a blocking connection."""
        streams = self._control, self._client_control
        if cursors is None:  # only once: later reads must not skip messages
            newest = [await pipe.command("XREVRANGE", s, "+", "-", "COUNT", 1) for s in streams]
            control, client = [item[0][0].decode() if item else "0-0" for item in newest]
            cursors = control, client
        options = ("COUNT", MAX_CONTROL, "BLOCK", block_ms)
        answer = await pipe.command(
            "XREAD", *options, "STREAMS", *streams, *cursors, wait=block_ms / 1000
        )
        ids, messages = dict(zip(streams, cursors, strict=True)), []
        for name, entries in answer or ():
            stream = name.decode()
            messages += [
                ControlMessage(
                    fields[1].decode(errors="replace"),
                    fields[3].decode(errors="replace"),
                    stream == self._client_control,
                )
                for _, fields in entries
                if len(fields) == 4
            ]
            ids[stream] = entries[-1][0].decode()
        return (ids[self._control], ids[self._client_control]), messages

    async def members(self) -> list[Consumer]:
        """Return all consumers of the group, including former ones."""
        return [
            Consumer(item[b"name"].decode(errors="replace"), item[b"pending"], item[b"idle"])
            for item in await self._info("CONSUMERS", keys.GROUP)
        ]

    async def retire(self, consumer: str) -> bool:
        """Delete a consumer unless it has pending calls."""
        return bool(await self._retire([self._stream], [keys.GROUP, consumer]))

    async def depth(self) -> tuple[int, int]:
        """Return the numbers of waiting and of running calls."""
        length = await self._pipe.command("XLEN", self._stream)
        running = sum(item[b"pending"] for item in await self._info("GROUPS"))
        return max(0, length - running), running

    async def oldest(self, now_ms: int) -> float:
        """Return how many seconds the first call has been waiting, 0 if none waits."""
        groups = await self._info("GROUPS")
        after = groups[0][b"last-delivered-id"] if groups else b"0-0"
        first = await self._pipe.command("XRANGE", self._stream, b"(" + after, "+", "COUNT", 1)
        return max(0, now_ms - int(first[0][0].partition(b"-")[0])) / 1000 if first else 0.0

    async def _info(self, subcommand: str, *arguments: str) -> list[dict[bytes, Any]]:
        try:
            answer = await self._pipe.command("XINFO", subcommand, self._stream, *arguments)
        except StoreError as error:
            if "no such key" not in error.message and "NOGROUP" not in error.message:
                raise
            return []
        return [dict(zip(item[::2], item[1::2], strict=True)) for item in answer]


class RestartTracker:
    """Detects restarts of Redis that may have lost deliveries, for one connection and pool.

    A call that was queued before such a restart may have run already.
    """

    def __init__(self, pipe: RedisPipe, pool: str) -> None:
        self._pipe = pipe
        self._open = pipe.script("open")
        self._keys = [keys.calls(pool), keys.lives(pool)]
        self._checked = -1
        self._boundary: tuple[int, int] = (0, 0)

    async def check(self, *, force: bool = False) -> None:
        """Create the consumer group, and detect a restart, after each reconnect."""
        connects = self._pipe.connects
        if connects == self._checked and not force:
            return
        boundary = await self._open(self._keys, [keys.GROUP, int(await self._syncs_always())])
        self._checked, self._boundary = connects, entry_order(boundary.decode())

    async def _syncs_always(self) -> bool:
        try:
            config = await self._pipe.command("CONFIG", "GET", "appendfsync")
        except Unreachable:
            raise
        except StoreError:  # no permission: assume that it may lose data
            return False
        return bool(config[1:] == [b"always"])

    def is_doubtful(self, entry: str) -> bool:
        """Return whether a call may have run before Redis lost its delivery."""
        return self._boundary > (0, 0) and entry_order(entry) <= self._boundary
