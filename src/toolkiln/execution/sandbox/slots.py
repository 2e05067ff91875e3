"""How many calls a sandbox runs at once, whose turn is next, and how busy it is.

One caller may use every slot while no other caller waits. A slot that becomes free goes to the
waiting caller with the fewest running calls, and a few slots more are kept for callers that run
nothing, so that long calls of one caller never make another wait for their end.
"""

import asyncio
from collections import Counter, deque
from contextlib import suppress
from typing import NamedTuple


class Load(NamedTuple):
    """How busy a sandbox is."""

    mode: str
    running: int
    """Calls that run."""
    waiting: int
    """Calls that wait for others to end."""
    workers: int
    """Processes that are kept warm, busy or not."""
    spare: int
    """Those of them that wait for a call."""


class Slots:
    """Slots for calls, shared fairly among callers."""

    def __init__(self, most: int, first: int) -> None:
        """`most` are for every caller; `first` more are for callers that run nothing yet."""
        self._most = most
        self._first = first
        self._taken: Counter[str] = Counter()
        """Slots by caller."""
        self._turns: dict[str, deque[asyncio.Future[None]]] = {}
        """Calls that wait, by caller; the caller that waits longest comes first."""
        self.running = 0

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return sum(map(len, self._turns.values()))

    async def take(self, who: str, *, is_nested: bool) -> None:
        """Wait for a slot for a caller, to be given back in the same way.

        A call that waits for another one keeps its slot, so that the other must not need one.
        """
        if not is_nested:
            if who in self._turns or not self._has_room(who):
                await self._turn(who)
            else:
                self._taken[who] += 1
        self.running += 1

    def give_back(self, who: str, *, is_nested: bool) -> None:
        """Let the next one in."""
        self.running -= 1
        if not is_nested:
            self._leave(who)

    def _has_room(self, who: str) -> bool:
        taken = self._taken.total()
        return taken < self._most or (taken < self._most + self._first and not self._taken[who])

    async def _turn(self, who: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self._leave(who)
            else:
                self._forget(who, turn)
            raise

    def _leave(self, who: str) -> None:
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]
        while self._turns:
            following = min(self._turns, key=lambda one: self._taken[one])
            if not self._has_room(following):
                return
            turn = self._turns[following][0]
            self._forget(following, turn)
            if not turn.done():
                self._taken[following] += 1
                turn.set_result(None)

    def _forget(self, who: str, turn: "asyncio.Future[None]") -> None:
        """Remove a turn; its caller goes behind the other callers."""
        turns = self._turns.pop(who, None)
        if turns is None:
            return
        with suppress(ValueError):
            turns.remove(turn)
        if turns:
            self._turns[who] = turns
