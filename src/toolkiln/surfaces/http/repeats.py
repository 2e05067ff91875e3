"""`Idempotency-Key` for what is no call: the same request again gets the same answer.

Answers are kept in this process, for a while and only so many: a client that tries again
after a connection broke finds them, one that asks another server or after a restart does
not. Calls have a memory in the store instead, by their ids.
"""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from toolkiln.surfaces.http.operations import Answer
from toolkiln.surfaces.http.problems import Refused

_LONGEST_KEY = 180
_MOST = 1000
_SECONDS = 600.0

_Kept = tuple[float, bytes, "asyncio.Future[Answer]"]


class Repeats:
    """The latest answers, by key and caller."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Hashable, ...], _Kept] = OrderedDict()
        """By the key, its caller and the rest of whose it is."""

    async def once(
        self,
        key: str,
        whose: tuple[Hashable, ...],
        what: bytes,
        handle: Callable[[], Awaitable[Answer]],
    ) -> Answer:
        """The answer to the first request with this key; what failed may be tried again.

        `whose` begins with the caller.

        Raises:
            Refused: the key cannot be one, or came with another request; `what` tells them apart.
        """
        now, digest, place = time.monotonic(), hashlib.sha256(what).digest(), (key, *whose)
        while True:
            self._forget(now)
            if (known := self._kept.get(place)) is None:
                break
            if known[1] != digest:
                hint = "make up another key for another request"
                raise Refused(
                    "key_reused", "this Idempotency-Key came with another request", hint=hint
                )
            await asyncio.wait((known[2],))
            if not known[2].cancelled():
                return known[2].result()
        first: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._kept[place] = now, digest, first
        try:
            answer = await handle()
        except BaseException:  # whatever it is, it was not done: the next one tries
            del self._kept[place]
            first.cancel()
            raise
        first.set_result(answer)
        return answer

    def _forget(self, now: float) -> None:
        """Drop what is too old, and the oldest of the caller with the most if there are too many.

        Nothing that is still running is dropped.
        """
        while self._kept:
            place, (since, _, answer) = next(iter(self._kept.items()))
            if now - since <= _SECONDS or not answer.done():
                break
            del self._kept[place]
        if len(self._kept) < _MOST:
            return
        ended = [place for place, (_, _, answer) in self._kept.items() if answer.done()]
        callers = Counter(place[1] for place in ended)
        most = callers.most_common(1)
        if most:
            del self._kept[next(place for place in ended if place[1] == most[0][0])]


def checked_key(key: str | None) -> str | None:
    """An `Idempotency-Key`.

    Raises:
        Refused: it cannot be one.
    """
    if key is None or (0 < len(key) <= _LONGEST_KEY and all("!" <= one <= "~" for one in key)):
        return key
    raise Refused(
        "bad_request",
        f"an Idempotency-Key has 1 to {_LONGEST_KEY} printable ASCII characters, and no blanks",
    )
