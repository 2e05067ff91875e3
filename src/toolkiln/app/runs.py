"""The book of runs: the calls of this process that run, and the last that ended.

It is kept while somebody serves, in memory and bounded: what is older, or ran elsewhere, is
for the audit to tell. Of a call it keeps what the audit would record, the arguments redacted
in the same way, what the call told and the beginning of what it gave. Who may look at which
run is decided by `history`, which goes on with the audit.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from toolkiln.execution import ConcealedEvents, Gateway, Trail, clean, described_arguments
from toolkiln.model import (
    AuditRecord,
    Caller,
    CallError,
    Event,
    LogLevel,
    Result,
    Timing,
    Truncation,
    unobserved,
)

MOST_ENDED = 1_000
_MOST_EVENTS = 200
_LONGEST_EVENT = 2_000
_LONGEST_LOG = 20_000
"""Characters of all events of a run."""
_LONGEST_TEXT = 50_000
_MOST_UNTOLD = 1_000

Observe = Callable[[Event], None]
Identify = Callable[[str | None, bool], Caller | None]
"""Who holds a session, as far as that is known without asking anybody; for a nested call?"""


class Told(NamedTuple):
    """What a call told, and when."""

    at: float
    kind: Literal["progress", "log", "stdout", "stderr", "pending"]
    text: str
    level: LogLevel | None


class Given(NamedTuple):
    """What is kept of a result."""

    text: str | None = None
    """The beginning."""
    length: int = 0
    """Characters of the whole text that the caller got."""
    error: CallError | None = None
    truncation: Truncation | None = None
    isolation: str = ""
    timing: Timing = Timing()
    notes: tuple[str, ...] = ()


NOTHING = Given()


class Run:
    """One call in the book."""

    __slots__ = (
        "_book", "_by", "_cancels", "_concealed", "_over", "_record", "_size", "_task", "_trail",
        "approval", "arguments", "given", "left_out", "progress", "started", "told",
    )  # fmt: skip

    def __init__(self, book: "Runs", trail: Trail) -> None:
        self._book = book
        self._trail: Trail | None = trail
        self._task = asyncio.current_task()
        self._record: AuditRecord | None = None
        self._by = ""
        self._cancels = 0
        # Of the secrets of calls that this one was made from its own events know nothing.
        self._concealed = ConcealedEvents(trail.mask, self._hear) if trail.mask else None
        self._over: asyncio.Event | None = None
        self._size = 0
        self.started = trail.at
        self.arguments = trail.mask.text(
            described_arguments(trail.mask.value(trail.call.arguments))
        )
        """JSON without secrets, cut."""
        self.told: deque[Told] | tuple[Told, ...] = ()  # most calls tell nothing
        self.left_out = 0
        """Events that were told and are not kept."""
        self.progress = ""
        self.approval: str | None = None
        """The id of the request that a person was asked with."""
        self.given = NOTHING
        """Nothing, too, if it was cancelled with everything around it."""

    @property
    def record(self) -> AuditRecord:
        """What the audit records of it."""
        if self._record is not None:
            return clean(self._record)
        assert self._trail is not None
        return clean(self._trail.started())

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._trail is not None

    @property
    def status(self) -> str:
        """`running`, `pending` while a person is asked, or how it ended."""
        if self._trail is not None:
            return "pending" if self._trail.is_waiting else "running"
        return status_of(self.record)

    def observing(self, observe: Observe) -> Observe:
        """An observer that passes on to the call's own."""
        hear = self._hear if self._concealed is None else self._concealed.observe
        if observe is unobserved:
            return hear

        def pass_on(event: Event) -> None:
            hear(event)
            observe(event)

        return pass_on

    async def stop(self, by: str, patience: float) -> None:
        """Cancel it on behalf of somebody, and wait for its end as long as patience lasts."""
        if self._trail is None or self._task is None:
            return
        self._by = by
        self._cancels += 1  # a tool may have swallowed the last one
        self._task.cancel()
        self._over = self._over or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._over.wait()

    def stopped(self) -> CallError | None:
        """Why the call was cancelled, if that was to stop this one and nothing around it."""
        if not self._cancels or self._taken_back() > 0:
            return None
        return CallError(code="cancelled", message=f"{self._by} cancelled this call")

    def _taken_back(self) -> int:
        """How many cancellations of the task are left without ours."""
        assert self._task is not None
        while self._cancels:
            self._cancels -= 1
            self._task.uncancel()
        return self._task.cancelling()

    def end(self, record: AuditRecord, result: Result | None) -> None:
        """It ended; None: with everything around it."""
        if self._concealed is not None:
            self._concealed.end(cut=True)
        trail, self._trail, self._record = self._trail, None, record
        assert trail is not None
        if self._cancels:  # the tool took it for something else
            self._taken_back()
        self._task = None  # which may hold far more of the result than is kept here
        if result is not None:
            masked, error = partial(trail.mask.text, cut=True), result.error
            if error is not None and trail.mask:
                texts = {name: getattr(error, name) for name in ("message", "hint", "traceback")}
                said = {name: masked(text) for name, text in texts.items() if text is not None}
                error = error.model_copy(update=said)
            text = masked(result.text)
            self.given = Given(
                text[:_LONGEST_TEXT], len(text), error, result.truncation, result.sandbox,
                result.timing, tuple(map(masked, result.notes)) if result.notes else (),
            )  # fmt: skip
        if self._over is not None:
            self._over.set()
        self._book.ended(self, record.user)

    def _hear(self, event: Event) -> None:
        if self._trail is None:
            return
        text = event.described if event.kind == "progress" else event.text
        told = Told(time.time(), event.kind, text[:_LONGEST_EVENT], event.level)
        if not isinstance(self.told, deque):
            self.told = deque()
        kept = self.told
        if event.kind == "progress":
            self.progress = told.text
            if kept and kept[-1].kind == "progress":  # else it would push out everything else
                self._size -= len(kept.pop().text)
        elif event.kind == "pending":
            self.approval = event.text
        kept.append(told)
        self._size += len(told.text)
        while len(kept) > _MOST_EVENTS or self._size > _LONGEST_LOG:
            self._size -= len(kept.popleft().text)
            self.left_out += 1
        self._book.changed(self)


class Follower:
    """What somebody who follows runs was not told yet."""

    def __init__(self, came: Callable[[], None]) -> None:
        self._came = came
        self._runs: dict[Run, None] = {}
        self._lost = 0

    def add(self, run: Run) -> None:
        """Something of a run is another."""
        self._runs[run] = None
        if len(self._runs) > _MOST_UNTOLD:
            del self._runs[next(iter(self._runs))]
            self._lost += 1
        self._came()

    def take(self) -> tuple[list[Run], int]:
        """The runs to tell of, as they came, and how many earlier ones are left out."""
        taken, lost = list(self._runs), self._lost
        self._runs.clear()
        self._lost = 0
        return taken, lost


class Runs:
    """The runs of one Kiln; everything happens in one event loop."""

    def __init__(self, identify: Identify) -> None:
        self._identify = identify
        self._running: dict[Run, None] = {}
        self._ended: dict[str, deque[Run]] = {}
        """By user, the oldest first."""
        self._count = 0
        """How many ended ones are kept."""
        self._followers: tuple[Follower, ...] = ()
        self.kept_since = time.time()
        """All calls that began later are in the book."""

    @contextmanager
    def watching(self, gateway: Gateway) -> Iterator[None]:
        """Keep the book of a gateway's calls as long as the block runs."""
        self.kept_since = time.time()
        gateway.watch(self._begin)
        try:
            yield
        finally:
            gateway.watch(None)

    @contextmanager
    def following(self, came: Callable[[], None]) -> Iterator[Follower]:
        """Collect what changes; `came` is called with each change, and must not wait."""
        follower = Follower(came)
        self._followers = (*self._followers, follower)
        try:
            yield follower
        finally:
            self._followers = tuple(one for one in self._followers if one is not follower)

    @property
    def all(self) -> list[Run]:
        """Those that run and those that ended, in no order."""
        return [*self._running, *chain.from_iterable(self._ended.values())]

    def ended(self, run: Run, user: str) -> None:
        """Keep a run of a user that has ended; the oldest of the user with the most may go."""
        self._running.pop(run, None)
        self._ended.setdefault(user, deque()).append(run)
        self._count += 1
        if self._count > MOST_ENDED:
            most = max(self._ended, key=lambda one: len(self._ended[one]))
            oldest = self._ended[most].popleft()
            if not self._ended[most]:
                del self._ended[most]
            self._count -= 1
            self.kept_since = max(self.kept_since, oldest.started)
        self.changed(run)

    def changed(self, run: Run) -> None:
        """Tell those who follow."""
        for follower in self._followers:
            follower.add(run)

    def _begin(self, trail: Trail) -> Run:
        trail.caller = self._identify(trail.call.session, trail.call.depth > 0)
        run = Run(self, trail)
        self._running[run] = None
        self.changed(run)
        return run


def status_of(record: AuditRecord) -> str:
    """How a call ended, in the words of results."""
    return "failed" if record.outcome == "exception" else record.outcome


def mark_of(record: AuditRecord) -> tuple[float, str]:
    """What a call is told apart by: ids are chosen by callers, and may come again."""
    return record.at, record.call_id
