"""A client's reply stream: what it is told, in order, from where it left off.

One stream per client process, bounded, and gone some time after the client is. Which call
a reply belongs to is `client`'s business.
"""

from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.wire import Reply


class Replies:
    """What one client is told."""

    def __init__(self, pipe: Pipe, waiting: Pipe, reply_to: str) -> None:
        """`waiting` is a connection for nothing but this, as its reads block."""
        self._pipe, self._waiting, self._reply_to = pipe, waiting, reply_to

    async def next(self, block_ms: int) -> list[Reply]:
        """What came since the last time; waits for the first, none if nothing came.

        Raises:
            StoreError: Redis failed; nothing is skipped, and the next try goes on.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Delete the stream."""
        raise NotImplementedError
