"""The worker: takes calls from a pool's queue, has them run, and ends each of them once.

It knows neither tools nor sessions: what a call means is for the function that performs it.
Leases are renewed by another process (`keeper`), which this one tells in a table what it
holds, and which tells it over a channel what it has lost. Decisions are in `steps`.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from toolkiln.errors import InputError
from toolkiln.fleet.deliveries import Ask, Delivery, Ending
from toolkiln.fleet.leases import WAITING, Leases
from toolkiln.fleet.questioning import ANSWER
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.steps import (
    Bury,
    End,
    Requeue,
    Run,
    before_leaving,
    leaves_open,
    next_step,
)
from toolkiln.fleet.sweeper import carry_out
from toolkiln.fleet.telling import Telling
from toolkiln.fleet.wire import BODY_LIMIT, Envelope, result_to_wire
from toolkiln.model import CallError, Event, Result, Status
from toolkiln.store import StoreError

BLOCK_MS = 2000
"""How long a read waits for calls; so long does a worker take to see that it is to stop."""
_BEAT = 0.5
_CLOCK = 5.0
"""Seconds between looks at Redis's clock."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LAST_WORDS = 10.0
"""Seconds that a worker which leaves tries to tell Redis what became of its calls."""
_ALONE_AFTER = 60.0
"""Seconds that a call which has to run alone waits for the others to end."""
_AROUND = 1000
"""Bytes that a reply has beside a result."""
_log = logging.getLogger(__name__)

Observe = Callable[[Event], None]
Perform = Callable[[Envelope, float | None, Observe | None], Awaitable[Result | End]]
"""Runs a call, with the seconds that are left for it and somebody who wants to hear of it."""
Trace = Callable[[str, str, float], AbstractContextManager[None]]
"""Makes what runs meanwhile part of a trace: its traceparent, the pool, the seconds waited."""
Limit = Callable[[Envelope], float]
"""The most seconds for which a call may keep the event loop from going on."""


@dataclass(slots=True)
class _Run:
    """A call that is being performed."""

    delivery: Delivery
    task: "asyncio.Task[None] | None" = None
    """None until it has begun: a task that is cancelled before does not even begin."""
    why: Literal["", "cancelled", "taken", "leaving"] = ""
    """Why it was cancelled."""
    is_alone: bool = False
    """Whether it waits for the others to end, and no other begins beside it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of."""

    queue: Queue
    consumer: str
    leases: Leases
    channel: socket.socket
    """Leads to the keeper; not blocking."""
    perform: Perform
    limit: Limit
    telling: Telling
    asked: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    """What else to do when workers are asked to: by the word, with whom or what it is about."""
    block_ms: int = BLOCK_MS
    trace: Trace | None = None


class Worker:
    """Performs the calls of one pool, as many at once as its table of leases has slots."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._queue, self._leases, self._telling = parts.queue, parts.leases, parts.telling
        self._runs: dict[str, _Run] = {}
        """By entry: what is being performed, and can be cancelled."""
        self._held: dict[str, int] = {}
        """By entry, with its slot: what has not ended in Redis, as far as we know."""
        self._ending: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._alone = 0
        """How many calls that have to run alone it holds."""
        self._changed = asyncio.Event()
        """Set when a call has ended or was cancelled, for those that wait to be alone."""
        self._is_leaving = False
        self._has_read, self._has_left = asyncio.Event(), asyncio.Event()
        self._unwanted: dict[str, float] = {}
        """By record: what is to be cancelled, should it still come, and until when."""
        self._offset = 0.0
        """What to add to the monotonic clock, in milliseconds, for Redis's."""

    @property
    def running(self) -> int:
        """How many calls it holds."""
        return len(self._held)

    async def run(self, control: Pipe) -> None:
        """Take calls until `leave` is called; `control` is a connection of its own.

        Raises:
            StoreError: Redis cannot be used at the start.
        """
        await self._set_clock()
        beside = [
            asyncio.create_task(work)
            for work in (self._beat(), self._follow_clock(), self._listen(), self._heed(control))
        ]
        try:
            await self._read()
            self._has_read.set()
            await self._has_left.wait()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def leave(self, grace: float) -> None:
        """Take no more calls, hand back what has not begun, and let what runs end in time.

        What has not ended then is cancelled, and handed on or ended as its kind demands.
        """
        self._is_leaving = True
        self._room.set()
        if grace:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty(), grace)
        self.hurry()
        await self._has_read.wait()
        try:
            await asyncio.wait_for(self._empty(), _LAST_WORDS)
        except TimeoutError:
            _log.error("%d calls could not be handed on: others will find them", len(self._held))
            for task in self._ending:
                task.cancel()
        self._has_left.set()

    def hurry(self) -> None:
        """Do not wait for what runs: see that others run it, or that it ends as lost."""
        for run in list(self._runs.values()):
            self._cancel(run, "leaving")

    async def _read(self) -> None:
        pause, is_new = _FIRST_PAUSE, False
        queue, consumer, block_ms = self._queue, self._parts.consumer, self._parts.block_ms
        half = (self._leases.slots + 1) // 2  # so that callers hear of some while others run
        while not self._is_leaving:
            if not self._leases.free or self._alone:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                if is_new:  # what was on its way to us when the connection broke
                    known = set(self._held)  # before asking: what ends meanwhile is told as ours
                    missed = [d for d in await queue.own(consumer) if d.entry not in known]
                    deliveries = missed[: self._leases.free]
                    is_new = len(deliveries) < len(missed)
                else:
                    deliveries = await queue.read(consumer, min(self._leases.free, half), block_ms)
            except StoreError as error:
                if not is_new:
                    _log.warning("calls cannot be read: %s", error.message)
                is_new = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            for delivery in deliveries:
                self._take(delivery)

    def _take(self, delivery: Delivery) -> None:
        """Begin a call, or see that it ends without."""
        entry, now = delivery.entry, time.monotonic()
        step: Run | Requeue | End | Bury = next_step(delivery, self._now_ms())
        if self._unwanted and self._unwanted.pop(delivery.record, 0.0) > now:
            step = End("cancelled")
        elif self._is_leaving:
            step = before_leaving(delivery, self._now_ms(), begun=False)
        if isinstance(step, Run):
            run = self._runs[entry] = _Run(delivery, is_alone=step.is_alone)
            self._alone += run.is_alone
            until = now + self._parts.limit(delivery.envelope)
            slot = self._leases.hold(entry, WAITING if run.is_alone else until)
            asyncio.create_task(self._perform(run, slot))  # noqa: RUF006 - the run keeps it
        else:
            slot = self._leases.hold(entry, inf)
            self._see_to(delivery, slot, step)
        self._held[entry] = slot

    async def _perform(self, run: _Run, slot: int) -> None:
        """A call from start to end."""
        delivery, left, observe = run.delivery, None, None
        envelope = delivery.envelope
        if run.is_alone:
            await self._until_alone(run)
            if not run.why:
                self._leases.begin(slot, time.monotonic() + self._parts.limit(envelope))
        if delivery.deadline_ms is not None:
            left = max(1, delivery.deadline_ms - self._now_ms()) / 1000
        if envelope.events and envelope.reply_to:
            observe = self._telling.about(envelope)
        step: Result | Requeue | End | Bury | None
        try:
            if not run.why:
                run.task = asyncio.current_task()
                self._queue.counts.started += 1
                with self._within(delivery):
                    step = await self._parts.perform(envelope, left, observe)
            else:
                step = self._after_cancelling(run, begun=False)
        except asyncio.CancelledError:
            step = self._after_cancelling(run, begun=True)
        except Exception:  # noqa: BLE001 - the platform's own fault; the call must end all the same
            _log.exception("a call of %s could not be performed", envelope.tool)
            step = End("lost")
        del self._runs[delivery.entry]  # nothing is left to be cancelled
        self._alone -= run.is_alone
        if observe is not None:
            await self._telling.told(envelope)
        if isinstance(step, Result):
            self._finish(delivery, slot, step)
        else:
            self._see_to(delivery, slot, step)

    def _within(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Make a call part of the trace of its caller, if both are traced."""
        traceparent, trace = delivery.envelope.traceparent, self._parts.trace
        if traceparent is None or trace is None:
            return nullcontext()
        waited = max(0, self._now_ms() - int(delivery.entry.partition("-")[0]))
        return trace(traceparent, delivery.envelope.pool, waited / 1000)

    async def _until_alone(self, run: _Run) -> None:
        """Wait until no other call runs in this process, or this one is cancelled.

        A call that runs for very long, or waits for a person, does not hold it up for ever.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALONE_AFTER):
                while not run.why and self._has_others():
                    self._changed.clear()
                    await self._changed.wait()
        run.task = asyncio.current_task()  # at once: two that wait must not begin together

    def _has_others(self) -> bool:
        """Whether other calls run here, or have ended and Redis does not know of it yet."""
        waiting = [one for one in self._runs.values() if one.is_alone and one.task is None]
        return len(self._held) > len(waiting)

    def _after_cancelling(self, run: _Run, *, begun: bool) -> Requeue | End | Bury | None:
        match run.why:
            case "taken":
                return None
            case "leaving":
                return before_leaving(run.delivery, self._now_ms(), begun=begun)
            case _:
                return End("cancelled")

    def _finish(self, delivery: Delivery, slot: int, result: Result) -> None:
        """End a call with its result, with others of the same moment, without a task of its own."""

        def done(answer: int | Exception) -> None:
            if isinstance(answer, Exception):
                self._see_to(delivery, slot, result)
            else:
                self._forget(delivery, slot)

        self._queue.finish_soon(_ending(delivery, result), done, last=not self._runs)

    def _see_to(
        self, delivery: Delivery, slot: int, step: Result | Requeue | End | Bury | None
    ) -> None:
        task = asyncio.create_task(self._end(delivery, slot, step))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(
        self, delivery: Delivery, slot: int, step: Result | Requeue | End | Bury | None
    ) -> None:
        """Do what is to be done about a call, however long Redis takes, and forget it."""
        pause = _FIRST_PAUSE
        while step is not None:
            try:
                if isinstance(step, Result):
                    await self._queue.finish(_ending(delivery, step))
                else:
                    await carry_out(self._queue, delivery, step)
                break
            except StoreError as error:
                _log.warning("a call of %s cannot be ended yet: %s", delivery.envelope.tool, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        self._forget(delivery, slot)

    def _forget(self, delivery: Delivery, slot: int) -> None:
        del self._held[delivery.entry]
        self._leases.release(slot)
        self._room.set()
        self._changed.set()

    async def _empty(self) -> None:
        """Once nothing is held any more."""
        while self._held:
            self._room.clear()
            await self._room.wait()

    def _cancel(self, run: _Run, why: Literal["cancelled", "taken", "leaving"]) -> None:
        if not run.why:
            run.why = why
            if run.task is not None:
                run.task.cancel()
            self._changed.set()

    async def _listen(self) -> None:
        """Stop calls whose leases are lost: others have them now."""
        loop, rest = asyncio.get_running_loop(), b""
        while heard := await loop.sock_recv(self._parts.channel, 4096):
            *lines, rest = (rest + heard).split(b"\n")
            for line in lines:
                if run := self._runs.get(line.decode("ascii", "replace")):
                    _log.warning("the lease of a call of %s is lost", run.delivery.envelope.tool)
                    self._cancel(run, "taken")

    async def _heed(self, control: Pipe) -> None:
        """Do what workers are asked to do."""
        last, pause = None, _FIRST_PAUSE
        while True:
            try:
                last, asks = await self._queue.crew.asked(last, BLOCK_MS, control)
            except StoreError:  # reading says so already
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            for ask in asks:
                if ask.is_client:
                    await self._heed_client(ask)
                elif ask.ask == "cancel":
                    self._cancel_record(ask.of)
                elif act := self._parts.asked.get(ask.ask):
                    act(ask.of)

    async def _heed_client(self, ask: Ask) -> None:
        """Do what a client asks for a call of its own that runs here, and nothing else."""
        if all(run.delivery.record != ask.of for run in self._runs.values()):
            return
        if ask.ask == ANSWER and ANSWER in self._parts.asked:
            self._parts.asked[ANSWER](ask.of)
        elif ask.ask == "cancel":
            with suppress(StoreError):  # then it runs to its end
                if await self._queue.is_cancelled(ask.of):
                    self._cancel_record(ask.of)

    def _cancel_record(self, record: str) -> None:
        now = time.monotonic()
        self._unwanted = {some: until for some, until in self._unwanted.items() if until > now}
        runs = [run for run in self._runs.values() if run.delivery.record == record]
        for run in runs:
            self._cancel(run, "cancelled")
        if not runs:  # another worker's, or on its way to us
            self._unwanted[record] = now + BLOCK_MS / 1000

    async def _beat(self) -> None:
        while True:
            self._leases.beat()
            await asyncio.sleep(_BEAT)

    async def _follow_clock(self) -> None:
        while True:
            await asyncio.sleep(_CLOCK)
            with suppress(StoreError):  # it goes on by itself meanwhile
                await self._set_clock()

    async def _set_clock(self) -> None:
        self._offset = await self._queue.now_ms() - time.monotonic() * 1000

    def _now_ms(self) -> int:
        return round(time.monotonic() * 1000 + self._offset)


def _ending(delivery: Delivery, result: Result) -> Ending:
    return Ending(delivery, "result", _body(result), leaves_open(result))


def _body(result: Result) -> bytes:
    """A result as it travels, or one that says why it cannot."""
    try:
        data = result_to_wire(result)
        if len(data) <= BODY_LIMIT - _AROUND:
            return data
        problem = InputError("the result is too large to be sent")
    except InputError as error:
        problem = error
    failed = Result(
        call_id=result.call_id,
        tool=result.tool,
        digest=result.digest,
        status=Status.FAILED,
        text=f"error: {problem.message}",
        error=CallError(code="unsendable_result", message=problem.message, hint=problem.hint),
        sandbox=result.sandbox,
        timing=result.timing,
    )
    return result_to_wire(failed)
