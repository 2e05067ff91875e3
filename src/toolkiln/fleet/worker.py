"""Worker: takes calls from a pool's queue, runs them, and ends each exactly once.

It knows neither tools nor sessions; a `RunCall` function runs the calls. Another process renews
the leases (`leases`): the worker lists its calls in a shared table, and is notified of lost ones
over a channel. `steps` decides what happens to calls.
"""

import asyncio
import logging
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Literal
from weakref import WeakValueDictionary

from msgspec.structs import replace

from toolkiln.errors import InputError, StoreError, Unreachable
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import ControlMessage, Delivery, Ending
from toolkiln.fleet.leases import NOT_STARTED, LeaseTable, apply_step
from toolkiln.fleet.questions import ANSWER
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.steps import Begin, Bury, End, Requeue, before_leaving, leaves_open, next_step
from toolkiln.fleet.wire import (
    BODY_LIMIT,
    CallReply,
    Envelope,
    Observe,
    Proof,
    event_to_wire,
    reply_subject,
    result_to_wire,
)
from toolkiln.model.call import CallError, Event, Result, Status

BLOCK_MS = 2000
"""How long a read waits for calls, and so how long a worker takes to notice a stop."""
_BEAT_SECONDS = 0.5
_CLOCK_SECONDS = 5.0
"""Seconds between reads of the Redis clock."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LEAVE_SECONDS = 10.0
"""Seconds that a stopping worker tries to end or requeue its calls."""
_ALONE_SECONDS = 60.0
"""Seconds that a call which must run alone waits for the others to end."""
_REPLY_OVERHEAD = 1000
"""Bytes of a reply besides its result."""
_log = logging.getLogger(__name__)

RunCall = Callable[[Envelope, float | None, Observe | None], Awaitable[Result | End]]
"""Runs a call, given its remaining seconds and an observer of its events."""
Trace = Callable[[str, str, float], AbstractContextManager[None]]
"""Opens a span, given a traceparent, the pool and the seconds that the call waited."""
Limit = Callable[[Envelope], float]
"""Returns how many seconds a call may block the event loop."""


_EVENT_PAUSE = 0.05
"""Seconds between batches to one caller."""
_MAX_EVENTS, _MAX_CHARACTERS = 200, 200_000
"""Maximum unsent events of one call, and their characters; more are dropped."""
_SEND_SECONDS = 10.0
"""Seconds that events wait for Redis."""
_ATTEMPT_NUMBERS = 10**9
"""Numbers of the events of one attempt: those of a later attempt are larger."""


class EventPublisher:
    """Sends the events of one worker's calls to their callers.

    Events are sent in batches a few times per second, and only the last progress of a batch. While
    Redis is unreachable they are sent again; clients ignore repeated numbers. A question is sent
    at once, after the call's earlier events.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._unsent: dict[str, dict[str, _Batch]] = defaultdict(dict)
        """By reply stream and record."""
        self._subjects: dict[str, bytes] = {}
        """By record: the subject of signed replies (`reply_subject`)."""
        self._senders: dict[str, asyncio.Task[None]] = {}
        """By reply stream."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By reply stream: a batch that is sent again stays before the next."""

    def observer(self, envelope: Envelope, tries: int = 0) -> Observe:
        """Return an observer that publishes the events of one call."""
        first, reply_to, record = tries * _ATTEMPT_NUMBERS, envelope.reply_to, envelope.record
        subject = self._subjects[record] = reply_subject(envelope)

        def observe(event: Event) -> None:
            self._subjects[record] = subject
            if event.number:
                event = event.model_copy(update={"number": first + event.number})
            self._unsent[reply_to].setdefault(record, _Batch()).add(event)
            if reply_to not in self._senders:
                self._senders[reply_to] = asyncio.create_task(self._run(reply_to))

        return observe

    async def flush(self, envelope: Envelope) -> None:
        """Send all events of a call; its end must not overtake them."""
        reply_to, record = envelope.reply_to, envelope.record
        async with self._lock(reply_to):
            batch = self._unsent[reply_to].pop(record, _Batch())
            await self._send_events(reply_to, {record: batch})
        self._subjects.pop(record, None)
        if not self._unsent[reply_to] and reply_to not in self._senders:
            del self._unsent[reply_to]

    async def send(self, envelope: Envelope, reply: CallReply, target: str = "") -> None:
        """Send another message about a call at once, after its events; `target` as in `Proof`."""
        await self.flush(envelope)
        proof = Proof(reply_subject(envelope), target)
        await self._queue.send(envelope.reply_to, [replace(reply, proof=proof)])

    async def _run(self, reply_to: str) -> None:
        try:
            while reply_to in self._unsent:
                async with self._lock(reply_to):
                    await self._send_events(reply_to, self._unsent.pop(reply_to, {}))
                await asyncio.sleep(_EVENT_PAUSE)
        finally:
            del self._senders[reply_to]

    def _lock(self, reply_to: str) -> asyncio.Lock:
        return self._locks.setdefault(reply_to, asyncio.Lock())

    async def _send_events(self, reply_to: str, events: "dict[str, _Batch]") -> None:
        replies = [
            CallReply(record, "event", event_to_wire(event), Proof(self._subjects.get(record, b"")))
            for record, batch in events.items()
            for event in batch.events
        ]
        until = time.monotonic() + _SEND_SECONDS
        while replies:
            try:
                await self._queue.send(reply_to, replies)
                return
            except StoreError as error:
                if not isinstance(error, Unreachable) or time.monotonic() >= until:
                    _log.warning("cannot send %d events: %s", len(replies), error.message)
                    return
            await asyncio.sleep(_EVENT_PAUSE)


class _Batch:
    """Unsent events of one call."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._characters = 0

    def add(self, event: Event) -> None:
        """Add an event, unless the batch is full."""
        if self.events and event.kind == self.events[-1].kind == "progress":
            self.events[-1] = event
            return
        is_full = len(self.events) >= _MAX_EVENTS or self._characters >= _MAX_CHARACTERS
        if event.kind == "pending" or not is_full:
            self.events.append(event)
            self._characters += event.size


@dataclass(slots=True)
class _Run:
    """A call that is running, or about to."""

    delivery: Delivery
    task: "asyncio.Task[None] | None" = None
    """None until it has started: a task cancelled before that would never run."""
    why: Literal["", "cancelled", "taken", "leaving"] = ""
    """Why it was cancelled."""
    is_alone: bool = False
    """Whether it waits for the other calls to end, and none starts beside it."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """Dependencies of a worker."""

    queue: Queue
    consumer: str
    leases: LeaseTable
    channel: socket.socket
    """Non-blocking channel to the lease keeper."""
    run_call: RunCall
    limit: Limit
    events: EventPublisher
    handlers: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    """Handlers of control messages by command; they get the target."""
    block_ms: int = BLOCK_MS
    trace: Trace | None = None


class Worker:
    """Runs the calls of one pool, as many at once as the lease table has slots."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._queue, self._leases, self._events = parts.queue, parts.leases, parts.events
        self._runs: dict[str, _Run] = {}
        """Running calls by entry, which can be cancelled."""
        self._held: dict[str, int] = {}
        """Lease slots by entry, of calls whose end Redis has not confirmed."""
        self._ending: set[asyncio.Task[None]] = set()
        self._has_room = asyncio.Event()
        self._alone = 0
        """Number of held calls that must run alone."""
        self._changed = asyncio.Event()
        """Set when a call has ended or was cancelled, for calls that must run alone."""
        self._is_leaving = False
        self._has_read, self._has_left = asyncio.Event(), asyncio.Event()
        self._cancelled: dict[str, float] = {}
        """By record: calls to cancel if they still arrive, and until when."""
        self._offset = 0.0
        """Milliseconds to add to the monotonic clock for the Redis clock."""

    @property
    def running(self) -> int:
        """Number of calls that it holds."""
        return len(self._held)

    async def run(self, control: RedisPipe) -> None:
        """Take calls until `leave` is called; `control` is a separate connection."""
        await self._set_clock()
        beside = [
            asyncio.create_task(work)
            for work in (
                self._beat(),
                self._follow_clock(),
                self._follow_leases(),
                self._follow_control(control),
            )
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
        """Stop taking calls, requeue those that have not started, and wait for running ones.

        Calls that still run after `grace` seconds are cancelled, then requeued or ended.
        """
        self._is_leaving = True
        self._has_room.set()
        if grace:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty(), grace)
        self.stop_now()
        await self._has_read.wait()
        try:
            await asyncio.wait_for(self._empty(), _LEAVE_SECONDS)
        except TimeoutError:
            _log.error("leaving %d calls to other workers", len(self._held))
            for task in self._ending:
                task.cancel()
        self._has_left.set()

    def stop_now(self) -> None:
        """Cancel running calls at once; they are requeued or end as lost."""
        for run in list(self._runs.values()):
            self._cancel(run, "leaving")

    async def _read(self) -> None:
        pause, is_reconnected = _FIRST_PAUSE, False
        queue, consumer, block_ms = self._queue, self._parts.consumer, self._parts.block_ms
        half = (self._leases.slots + 1) // 2  # so that some replies leave while other calls run
        while not self._is_leaving:
            if not self._leases.free or self._alone:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            try:
                if is_reconnected:  # calls delivered when the connection broke
                    known = set(self._held)  # first: calls may end while `pending` runs
                    missing = [d for d in await queue.pending(consumer) if d.entry not in known]
                    deliveries = missing[: self._leases.free]
                    is_reconnected = len(deliveries) < len(missing)
                else:
                    deliveries = await queue.read(consumer, min(self._leases.free, half), block_ms)
            except StoreError as error:
                if not is_reconnected:
                    _log.warning("cannot read calls: %s", error.message)
                is_reconnected = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            for delivery in deliveries:
                self._take(delivery)

    def _take(self, delivery: Delivery) -> None:
        entry, now = delivery.entry, time.monotonic()
        step: Begin | Requeue | End | Bury = next_step(delivery, self._now_ms())
        if self._cancelled and self._cancelled.pop(delivery.record, 0.0) > now:
            step = End("cancelled")
        elif self._is_leaving:
            step = before_leaving(delivery, self._now_ms(), begun=False)
        if isinstance(step, Begin):
            run = self._runs[entry] = _Run(delivery, is_alone=step.is_alone)
            self._alone += run.is_alone
            until = now + self._parts.limit(delivery.envelope)
            slot = self._leases.hold(entry, NOT_STARTED if run.is_alone else until)
            asyncio.create_task(self._run_call(run, slot))  # noqa: RUF006 - the run references it
        else:
            slot = self._leases.hold(entry, inf)
            self._end_soon(delivery, slot, step)
        self._held[entry] = slot

    async def _run_call(self, run: _Run, slot: int) -> None:
        delivery, remaining, observe = run.delivery, None, None
        envelope = delivery.envelope
        if run.is_alone:
            await self._until_alone(run)
            if not run.why:
                self._leases.begin(slot, time.monotonic() + self._parts.limit(envelope))
        if delivery.deadline_ms is not None:
            remaining = max(1, delivery.deadline_ms - self._now_ms()) / 1000
        if envelope.events and envelope.reply_to:
            observe = self._events.observer(envelope, delivery.tries)
        step: Result | Requeue | End | Bury | None
        try:
            if not run.why:
                run.task = asyncio.current_task()
                self._queue.counts.started += 1
                with self._trace_context(delivery):
                    step = await self._parts.run_call(envelope, remaining, observe)
            else:
                step = self._step_after_cancel(run, begun=False)
        except asyncio.CancelledError:
            step = self._step_after_cancel(run, begun=True)
        except Exception:  # noqa: BLE001 - a bug in the platform; the call must end anyway
            _log.exception("running a call of %s failed", envelope.tool)
            step = End("lost")
        del self._runs[delivery.entry]  # nothing left to cancel
        self._alone -= run.is_alone
        if observe is not None:
            await self._events.flush(envelope)
        if isinstance(step, Result):
            self._finish(delivery, slot, step)
        else:
            self._end_soon(delivery, slot, step)

    def _trace_context(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Return a context that joins the caller's trace, if both sides are traced."""
        traceparent, trace = delivery.envelope.traceparent, self._parts.trace
        if traceparent is None or trace is None:
            return nullcontext()
        waited = max(0, self._now_ms() - int(delivery.entry.partition("-")[0]))
        return trace(traceparent, delivery.envelope.pool, waited / 1000)

    async def _until_alone(self, run: _Run) -> None:
        """Wait until no other call runs in this process, or this one is cancelled.

        Bounded, because another call may run very long or wait for a person.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALONE_SECONDS):
                while not run.why and self._has_others():
                    self._changed.clear()
                    await self._changed.wait()
        run.task = asyncio.current_task()  # at once: two waiting calls must not start together

    def _has_others(self) -> bool:
        """Return whether other calls run here, or ended without Redis knowing yet."""
        waiting = [run for run in self._runs.values() if run.is_alone and run.task is None]
        return len(self._held) > len(waiting)

    def _step_after_cancel(self, run: _Run, *, begun: bool) -> Requeue | End | Bury | None:
        match run.why:
            case "taken":
                return None
            case "leaving":
                return before_leaving(run.delivery, self._now_ms(), begun=begun)
            case _:
                return End("cancelled")

    def _finish(self, delivery: Delivery, slot: int, result: Result) -> None:
        """End a call with its result, batched with others and without a task of its own."""

        def done(answer: int | Exception) -> None:
            if isinstance(answer, Exception):
                self._end_soon(delivery, slot, result)
            else:
                self._release(delivery, slot)

        self._queue.finish_nowait(_ending(delivery, result), done, last=not self._runs)

    def _end_soon(
        self, delivery: Delivery, slot: int, step: Result | Requeue | End | Bury | None
    ) -> None:
        task = asyncio.create_task(self._end(delivery, slot, step))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(
        self, delivery: Delivery, slot: int, step: Result | Requeue | End | Bury | None
    ) -> None:
        """Apply a step to a call, retrying while Redis fails, and release the call."""
        pause = _FIRST_PAUSE
        while step is not None:
            try:
                if isinstance(step, Result):
                    await self._queue.finish(_ending(delivery, step))
                else:
                    await apply_step(self._queue, delivery, step)
                break
            except StoreError as error:
                _log.warning("cannot end a call of %s yet: %s", delivery.envelope.tool, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        self._release(delivery, slot)

    def _release(self, delivery: Delivery, slot: int) -> None:
        del self._held[delivery.entry]
        self._leases.release(slot)
        self._has_room.set()
        self._changed.set()

    async def _empty(self) -> None:
        while self._held:
            self._has_room.clear()
            await self._has_room.wait()

    def _cancel(self, run: _Run, why: Literal["cancelled", "taken", "leaving"]) -> None:
        if not run.why:
            run.why = why
            if run.task is not None:
                run.task.cancel()
            self._changed.set()

    async def _follow_leases(self) -> None:
        """Cancel calls whose leases are lost: other workers have them."""
        loop, buffer = asyncio.get_running_loop(), b""
        while data := await loop.sock_recv(self._parts.channel, 4096):
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                if run := self._runs.get(line.decode("ascii", "replace")):
                    _log.warning("lost the lease of a call of %s", run.delivery.envelope.tool)
                    self._cancel(run, "taken")

    async def _follow_control(self, control: RedisPipe) -> None:
        """Handle control messages."""
        cursors, pause = None, _FIRST_PAUSE
        while True:
            try:
                cursors, messages = await self._queue.consumers.read_control(
                    cursors, BLOCK_MS, control
                )
            except StoreError:  # `_read` logs it
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            for message in messages:
                if message.from_client:
                    await self._handle_client(message)
                elif message.command == "cancel":
                    self._cancel_record(message.target)
                elif handler := self._parts.handlers.get(message.command):
                    handler(message.target)

    async def _handle_client(self, message: ControlMessage) -> None:
        """Handle a client's message if it is about its own call and that runs here."""
        if all(run.delivery.record != message.target for run in self._runs.values()):
            return
        if message.command == ANSWER and ANSWER in self._parts.handlers:
            self._parts.handlers[ANSWER](message.target)
        elif message.command == "cancel":
            with suppress(StoreError):  # it runs to its end
                if await self._queue.is_cancelled(message.target):
                    self._cancel_record(message.target)

    def _cancel_record(self, record: str) -> None:
        now = time.monotonic()
        self._cancelled = {key: until for key, until in self._cancelled.items() if until > now}
        runs = [run for run in self._runs.values() if run.delivery.record == record]
        for run in runs:
            self._cancel(run, "cancelled")
        if not runs:  # another worker's, or still to arrive
            self._cancelled[record] = now + BLOCK_MS / 1000

    async def _beat(self) -> None:
        while True:
            self._leases.beat()
            await asyncio.sleep(_BEAT_SECONDS)

    async def _follow_clock(self) -> None:
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            with suppress(StoreError):  # keep the last offset
                await self._set_clock()

    async def _set_clock(self) -> None:
        self._offset = await self._queue.now_ms() - time.monotonic() * 1000

    def _now_ms(self) -> int:
        return round(time.monotonic() * 1000 + self._offset)


def _ending(delivery: Delivery, result: Result) -> Ending:
    return Ending(delivery, "result", _body(result), leaves_open(result))


def _body(result: Result) -> bytes:
    """Encode a result, or a failure that says why it cannot be sent."""
    try:
        data = result_to_wire(result)
        if len(data) <= BODY_LIMIT - _REPLY_OVERHEAD:
            return data
        problem = InputError("the result is too large to send")
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
