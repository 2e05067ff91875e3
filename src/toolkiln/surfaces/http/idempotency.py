"""Idempotency keys: a repeated request gets the response to the first one."""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from toolkiln.surfaces.http.adapter import HandlerResponse
from toolkiln.surfaces.http.problems import HttpProblem

_MAX_KEY_LENGTH = 180
_MAX_ENTRIES = 1000
_TTL_SECONDS = 600.0

_Entry = tuple[float, bytes, "asyncio.Future[HandlerResponse]"]
"""When the request came, the digest of its content, and its response."""


def validate_key(key: str | None) -> str | None:
    """Return the value of an `Idempotency-Key` header.

    Raises:
        HttpProblem: the key is empty, too long, or not printable ASCII.
    """
    if key is None or (0 < len(key) <= _MAX_KEY_LENGTH and all("!" <= char <= "~" for char in key)):
        return key
    raise HttpProblem(
        "bad_request",
        f"an Idempotency-Key has 1 to {_MAX_KEY_LENGTH} printable ASCII characters without spaces",
    )


class IdempotencyCache:
    """The latest responses, by idempotency key and caller."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Hashable, ...], _Entry] = OrderedDict()

    async def once(
        self,
        key: str,
        scope: tuple[Hashable, ...],
        content: bytes,
        handle: Callable[[], Awaitable[HandlerResponse]],
    ) -> HandlerResponse:
        """Handle the first request with a key; repeat its response for later ones.

        Keys are unique within a scope, which starts with the caller. A request that failed can
        be repeated.

        Raises:
            HttpProblem: the key was used for a request with other content.
        """
        now, digest, entry_key = time.monotonic(), hashlib.sha256(content).digest(), (key, *scope)
        while True:
            self._evict(now)
            if (entry := self._entries.get(entry_key)) is None:
                break
            if entry[1] != digest:
                raise HttpProblem(
                    "key_reused",
                    "this Idempotency-Key was used for another request",
                    hint="use a new key for each request",
                )
            await asyncio.wait((entry[2],))
            if not entry[2].cancelled():
                return entry[2].result()
        first: asyncio.Future[HandlerResponse] = asyncio.get_running_loop().create_future()
        self._entries[entry_key] = now, digest, first
        try:
            response = await handle()
        except BaseException:  # also a cancellation: the next request with the key tries again
            del self._entries[entry_key]
            first.cancel()
            raise
        first.set_result(response)
        return response

    def _evict(self, now: float) -> None:
        """Remove expired entries; if the cache is full, the oldest of the caller with the most.

        Entries of running requests stay.
        """
        while self._entries:
            entry_key, (created, _, response) = next(iter(self._entries.items()))
            if now - created <= _TTL_SECONDS or not response.done():
                break
            del self._entries[entry_key]
        if len(self._entries) < _MAX_ENTRIES:
            return
        finished = [key for key, (_, _, response) in self._entries.items() if response.done()]
        if finished:
            [(caller, _)] = Counter(key[1] for key in finished).most_common(1)
            del self._entries[next(key for key in finished if key[1] == caller)]
