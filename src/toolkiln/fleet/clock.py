"""Redis's clock, the only one between machines, reckoned from ours between two looks at it."""

from time import monotonic

from toolkiln.fleet.resp import Pipe

_LOOK_AFTER_SECONDS = 10.0


class Clock:
    """What time it is at the server."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._looked = -_LOOK_AFTER_SECONDS
        self._was = 0

    async def now_ms(self) -> int:
        """Milliseconds; a clock that was set is noticed within seconds.

        Raises:
            StoreError: Redis failed.
        """
        passed = monotonic() - self._looked
        if passed >= _LOOK_AFTER_SECONDS:
            seconds, microseconds = await self._pipe.command("TIME")
            self._was = int(seconds) * 1000 + int(microseconds) // 1000
            self._looked, passed = monotonic(), 0.0
        return self._was + int(passed * 1000)
