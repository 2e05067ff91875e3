"""The lives of a server: which calls it may have forgotten to have given to a worker.

A Redis that restarts, or a replica that takes over, may go back in time: a call that has run
waits again. Whether it has run nobody can tell, so that one which must not run twice is not
begun then (`steps`). Only a server that syncs its log with every write forgets nothing: with
`everysec`, what it answered in the last seconds may be in its own memory alone. A server is
looked at once for each connection to it.
"""

from toolkiln.fleet import keys
from toolkiln.fleet.resp import Pipe
from toolkiln.store import StoreError, Unreachable

_Place = tuple[int, int]


class Lives:
    """What one connection knows of its server, for one pool."""

    def __init__(self, pipe: Pipe, pool: str) -> None:
        self._pipe = pipe
        self._open = pipe.script("open")
        self._keys = [keys.calls(pool), keys.lives(pool)]
        self._looked = -1
        self._upto: _Place = (0, 0)

    async def look(self, *, again: bool = False) -> None:
        """See to it that the pool can be read from, and whether the server is another one.

        Raises:
            StoreError: Redis failed.
        """
        connects = self._pipe.connects
        if connects == self._looked and not again:
            return
        upto = await self._open(self._keys, [keys.GROUP, int(await self._syncs_always())])
        self._looked, self._upto = connects, _place(upto.decode())

    async def _syncs_always(self) -> bool:
        try:
            said = await self._pipe.command("CONFIG", "GET", "appendfsync")
        except Unreachable:
            raise
        except StoreError:  # not for this user to ask; then it may forget something
            return False
        return bool(said[1:] == [b"always"])

    def is_doubtful(self, entry: str) -> bool:
        """Whether a call may have run before the server forgot it."""
        return self._upto > (0, 0) and _place(entry) <= self._upto


def _place(entry: str) -> _Place:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)
