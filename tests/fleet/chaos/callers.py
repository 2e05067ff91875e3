"""Those who make calls while everything dies, and write down what became of each. Not a test."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from toolkiln import Kiln
from toolkiln.errors import NotFound, StoreError
from toolkiln.model.call import Result, Status, Task

from ..workers import code_of
from .calamities import Fleet

PATIENCE = 150.0
"""Seconds after which a call that has no end counts as silence."""
TOOLS = ("act", "redo", "box_act", "box_redo")
NOT_RUN = ("store_failed", "overloaded", "no_worker", "stale")
"""Ends after which a call may be tried again, whatever it does."""
Kind = Literal["plain", "long", "observed", "deadline", "cancelled", "background", "twice"]
KINDS: dict[Kind, int] = {
    "plain": 10,
    "long": 2,
    "observed": 3,
    "deadline": 2,
    "cancelled": 2,
    "background": 2,
    "twice": 3,
}
"""Kinds of calls, and how often each is made."""


@dataclass
class Entry:
    """One call, and every end that its caller got."""

    mark: str
    tool: str
    kind: Kind
    ends: list[Result] = field(default_factory=list)
    trouble: str = ""
    """Why there is no end, where the call was not accepted."""
    is_forgotten: bool = False
    """Whether Redis, where it may, has forgotten it."""

    @property
    def is_once(self) -> bool:
        return self.tool.endswith("act")


class Ledger:
    """All calls that were made."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def new(self, tool: str, kind: Kind) -> Entry:
        entry = Entry(f"m{len(self.entries)}", tool, kind)
        self.entries.append(entry)
        return entry

    def summary(self) -> Counter[str]:
        """How calls ended, those apart that may run twice."""
        return Counter(
            f"{'once' if entry.is_once else 'again'} {code_of(end) or end.status}"
            for entry in self.entries
            for end in entry.ends
        )

    def complaints(self, fleet: Fleet, *, may_forget: bool) -> list[str]:
        """Whatever is not as it was promised; Redis may have forgotten some calls."""
        found = []
        for entry in self.entries:
            traces, wanted = fleet.traces(entry.mark), 2 if entry.kind == "twice" else 1
            said = [(str(end.status), code_of(end)) for end in entry.ends]
            about = f"{entry.mark} ({entry.tool}, {entry.kind}) began {traces}: {said}"
            is_excused = entry.trouble or (may_forget and entry.is_forgotten)
            if len(entry.ends) != wanted and not is_excused:
                found.append(f"it has {len(entry.ends)} ends: {about}")
            if entry.is_once and len(traces) > 1:
                found.append(f"it ran twice: {about}")
            for end in entry.ends:
                if end.status is Status.OK and (end.value != entry.mark or not traces):
                    found.append(f"that is no result of its own: {end.value}, {about}")
                if entry.is_once and traces and code_of(end) in NOT_RUN:
                    found.append(f"it has run all the same: {about}")
                if end.status is Status.CANCELLED and entry.kind != "cancelled":
                    found.append(f"its caller did not cancel it: {about}")
                if end.status in (Status.DENIED, Status.INVALID, Status.FAILED):
                    found.append(f"nothing was wrong with it: {about}, {end.error}")
        return found


class Callers:
    """Two processes' worth of callers, who make calls until `stop`."""

    def __init__(
        self, kilns: tuple[Kiln, Kiln], session: str, ledger: Ledger, chance: random.Random
    ) -> None:
        self._kilns, self._session = kilns, session
        self._ledger, self._chance = ledger, chance
        self._is_over = False

    def stop(self) -> None:
        """Begin no more calls."""
        self._is_over = True

    async def call_on(self) -> None:
        """Make one call after the other."""
        while not self._is_over:
            [kind] = self._chance.choices(list(KINDS), list(KINDS.values()))
            entry = self._ledger.new(self._chance.choice(TOOLS), kind)
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._make(entry)
            except TimeoutError:
                pass  # its entry has no end
            except StoreError as error:
                entry.trouble = error.message
            except NotFound:
                entry.is_forgotten = True
            await asyncio.sleep(self._chance.uniform(0, 0.2))

    async def _make(self, entry: Entry) -> None:
        kiln, other = self._chance.sample(self._kilns, 2)
        is_long = entry.kind == "long"
        seconds = self._chance.uniform(3, 8) if is_long else self._chance.expovariate(4)
        given = {"mark": entry.mark, "seconds": round(seconds, 3)}
        made = partial(kiln.call, entry.tool, given, session=self._session)
        match entry.kind:
            case "plain" | "long":
                entry.ends.append(await made())
            case "observed":
                entry.ends.append(await made(observe=lambda _: None))
            case "deadline":
                entry.ends.append(await made(timeout=self._chance.uniform(0.05, 3)))
            case "twice":
                again = partial(other.call, entry.tool, given, session=self._session)
                calls = (each(call_id=entry.mark) for each in (made, again))
                entry.ends.extend(await asyncio.gather(*calls))
            case "background" | "cancelled":
                task = await made(call_id=entry.mark, background=True)
                entry.ends.append(
                    task if isinstance(task, Result) else await self._end_of(entry, other, task)
                )

    async def _end_of(self, entry: Entry, kiln: Kiln, task: Task) -> Result:
        """The end of a call in the background, as another process sees it."""
        if entry.kind == "cancelled":
            await asyncio.sleep(self._chance.uniform(0, 0.5))
            await _insist(partial(kiln.tasks.cancel, task.id, self._session))
        while task.result is None:
            task = await _insist(partial(kiln.tasks.wait, task.id, self._session, timeout=10))
        return task.result


async def _insist(ask: Callable[[], Awaitable[Task]]) -> Task:
    """What is said of a task, asked for as often as it takes while Redis is gone."""
    while True:
        try:
            return await ask()
        except StoreError:
            await asyncio.sleep(0.2)
