"""Who works on a pool's calls: its consumers, what they are asked for, how much there is to do.

Calls themselves are `queue`'s business.
"""

from typing import Any

from toolkiln.fleet import keys
from toolkiln.fleet.deliveries import Ask, Consumer
from toolkiln.fleet.resp import Pipe
from toolkiln.store import StoreError

MOST_ASKS = 1000
"""How many entries the stream of what is asked for has at most, roughly."""
Last = tuple[str, str]
"""Up to where was read what operators and fronts asked for, and what clients did."""


class Crew:
    """The workers of one pool, as Redis knows them."""

    def __init__(self, pipe: Pipe, pool: str) -> None:
        self._pipe = pipe
        self._stream, self._control = keys.calls(pool), keys.control(pool)
        self._asks = keys.asks(pool)
        self.requests = self._asks if pipe.address.namespace else self._control
        """The stream that this process asks on."""
        self._retire = pipe.script("retire")

    async def ask(self, ask: Ask) -> None:
        """Ask all workers of the pool for something.

        Raises:
            StoreError: Redis failed.
        """
        limit = ("MAXLEN", "~", MOST_ASKS)
        await self._pipe.command("XADD", self.requests, *limit, "*", "ask", ask.ask, "of", ask.of)

    async def asked(self, last: Last | None, block_ms: int, pipe: Pipe) -> tuple[Last, list[Ask]]:
        """What was asked since `last` (at first None), over a connection that may wait.

        Raises:
            StoreError: Redis failed.
        """
        streams = self._control, self._asks
        if last is None:  # once: what comes between two readings must not be missed
            newest = [await pipe.command("XREVRANGE", s, "+", "-", "COUNT", 1) for s in streams]
            control, client = [one[0][0].decode() if one else "0-0" for one in newest]
            last = control, client
        options = ("COUNT", MOST_ASKS, "BLOCK", block_ms)
        answer = await pipe.command(
            "XREAD", *options, "STREAMS", *streams, *last, wait=block_ms / 1000
        )
        places, asks = dict(zip(streams, last, strict=True)), []
        for name, entries in answer or ():
            stream = name.decode()
            asks += [
                Ask(
                    fields[1].decode(errors="replace"),
                    fields[3].decode(errors="replace"),
                    stream == self._asks,
                )
                for _, fields in entries
                if len(fields) == 4
            ]
            places[stream] = entries[-1][0].decode()
        return (places[self._control], places[self._asks]), asks

    async def consumers(self) -> list[Consumer]:
        """All that read, or once read, from the queue.

        Raises:
            StoreError: Redis failed.
        """
        return [
            Consumer(one[b"name"].decode(errors="replace"), one[b"pending"], one[b"idle"])
            for one in await self._about("CONSUMERS", keys.GROUP)
        ]

    async def retire(self, consumer: str) -> bool:
        """Forget a consumer if it holds nothing.

        Raises:
            StoreError: Redis failed.
        """
        return bool(await self._retire([self._stream], [keys.GROUP, consumer]))

    async def depth(self) -> tuple[int, int]:
        """How many calls wait, and how many are held by workers.

        Raises:
            StoreError: Redis failed.
        """
        length = await self._pipe.command("XLEN", self._stream)
        held = sum(one[b"pending"] for one in await self._about("GROUPS"))
        return max(0, length - held), held

    async def oldest(self, now_ms: int) -> float:
        """How many seconds the first call has been waiting, 0 if none waits.

        Raises:
            StoreError: Redis failed.
        """
        groups = await self._about("GROUPS")
        after = groups[0][b"last-delivered-id"] if groups else b"0-0"
        waits = await self._pipe.command("XRANGE", self._stream, b"(" + after, "+", "COUNT", 1)
        return max(0, now_ms - int(waits[0][0].partition(b"-")[0])) / 1000 if waits else 0.0

    async def _about(self, what: str, *of: str) -> list[dict[bytes, Any]]:
        try:
            answer = await self._pipe.command("XINFO", what, self._stream, *of)
        except StoreError as error:
            if "no such key" not in error.message and "NOGROUP" not in error.message:
                raise
            return []
        return [dict(zip(one[::2], one[1::2], strict=True)) for one in answer]
