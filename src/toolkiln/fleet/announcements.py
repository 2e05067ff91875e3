"""What every process of the fleet has to know at once, such as that the catalog has changed.

A stream rather than a channel: whoever was cut off for a moment hears of it later. Nothing
depends on hearing of it: those who listen look from time to time anyway.
"""

from typing import TYPE_CHECKING, Literal

from toolkiln.fleet import keys

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe

Announcement = Literal["catalog", "config"]
"""`catalog`: tools or permissions have changed. `config`: workers are to read theirs again."""


async def announce(pipe: "Pipe", kind: Announcement) -> None:
    """Tell every process of the fleet at once.

    Raises:
        StoreError: Redis failed.
    """
    await pipe.command("XADD", keys.ANNOUNCEMENTS, "MAXLEN", "~", 100, "*", "kind", kind)


class Announcements:
    """What is announced from `begin` on.

    Needs a connection of its own, as it blocks. One that was lost meanwhile is no harm.
    """

    def __init__(self, pipe: "Pipe") -> None:
        self._pipe = pipe
        self._last: bytes | None = None

    async def begin(self) -> None:
        """Hear of what comes from now on; does nothing the second time.

        Raises:
            StoreError: Redis failed.
        """
        if self._last is None:
            newest = await self._pipe.command("XREVRANGE", keys.ANNOUNCEMENTS, "+", "-", "COUNT", 1)
            self._last = newest[0][0] if newest else b"0-0"

    async def wait(self, seconds: float) -> set[str]:
        """The kinds of what was announced since the last time; none if nothing is for so long.

        Raises:
            StoreError: Redis failed.
        """
        await self.begin()
        assert self._last is not None
        block = ("BLOCK", round(seconds * 1000))
        found = await self._pipe.command(
            "XREAD", *block, "STREAMS", keys.ANNOUNCEMENTS, self._last, wait=seconds
        )
        if not found:
            return set()
        ((_, told),) = found
        self._last = told[-1][0]
        return {fields[1].decode("utf-8", "replace") for _, fields in told if fields}
