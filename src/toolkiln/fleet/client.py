"""Client of a fleet: sends calls and returns exactly one Result for each.

One task reads the process's reply stream; another checks calls that take long, so that none waits
forever when Redis or all workers are gone. Which tool a call names, and who may call it, is
decided elsewhere.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from toolkiln.errors import InputError, StoreError, ToolkilnError, Unreachable
from toolkiln.fleet import delivery, keys, wire
from toolkiln.fleet.connection import Batch, BatchDone, RedisPipe, pairs
from toolkiln.fleet.delivery import Accepted, Admission, DeliveryConflict, Finished, Overloaded
from toolkiln.fleet.message_auth import FleetKeys, Verifier, seal
from toolkiln.fleet.questions import QuestionHandlers
from toolkiln.fleet.queue import UNVERIFIED, Queue, is_trusted
from toolkiln.fleet.steps import START_BY_MS
from toolkiln.fleet.wire import (
    CallReply,
    Envelope,
    Malformed,
    Observe,
    end_result,
    event_from_wire,
    result_from_wire,
)
from toolkiln.model.call import CallError, Result, Status
from toolkiln.store.rules import REDIS_WAIT_SECONDS


class Waiter:
    """One caller that awaits the end of a call."""

    __slots__ = ("_wakeup", "observe", "reply", "timer")

    def __init__(self, wakeup: "asyncio.Future[Any]", observe: Observe | None) -> None:
        self._wakeup = wakeup
        self.observe = observe
        self.reply: CallReply | None = None
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, reply: CallReply) -> None:
        """Set the reply, unless there is one."""
        if self.reply is None:
            self.reply = reply
            self.wake(None)

    def wake(self, value: Any) -> None:
        """Wake the waiting task with this value."""
        if not self._wakeup.done():
            self._wakeup.set_result(value)

    async def sleep(self) -> Any:
        """Wait for `wake` and return its value."""
        return await self._wakeup

    async def end(self) -> CallReply:
        """Wait for the reply."""
        while self.reply is None:
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        return self.reply

    def stop_timer(self) -> None:
        """Remove the time limit."""
        if self.timer is not None:
            self.timer.cancel()


class PendingCall:
    """A call in flight; several callers may await it."""

    __slots__ = (
        "entry", "envelope", "event", "is_ours", "is_remembered", "misses", "since", "subject",
        "waiters",
    )  # fmt: skip

    def __init__(self, envelope: Envelope, now: float) -> None:
        self.envelope = envelope
        self.since = now
        self.waiters: list[Waiter] = []
        self.is_ours = True
        """Whether this process enqueued it: then it is cancelled when no caller here awaits it."""
        self.is_remembered = envelope.remember
        self.misses = 0
        """How many checks in a row did not find it."""
        self.event = 0
        """Number of the latest event: a worker repeats those whose arrival is uncertain."""
        self.subject = b""
        """What signed replies to it name (`wire.reply_subject`)."""
        self.entry = (0, 0)
        """Sort key of its first entry: replies to earlier entries belong to another call."""


_READ_COUNT = 256
# Read entries are trimmed in batches, to save commands.
_TRIM_AFTER = 64
_STREAM_START = "0-0"


class ReplyStream:
    """Stream of replies to one client process.

    It is bounded, and expires some time after the client is gone.
    """

    def __init__(
        self, pipe: RedisPipe, waiting: RedisPipe, reply_to: str, trusted: Verifier | None = None
    ) -> None:
        """`waiting` is a connection for blocking reads.

        Replies that no `trusted` worker signed are ignored.
        """
        self._trusted = trusted
        self._has_warned = False
        self._pipe, self._waiting = pipe, waiting
        self._stream = keys.replies(reply_to)
        self._last = _STREAM_START
        self._read = 0
        self._connects = 0

    async def next(self, block_ms: int) -> list[CallReply]:
        """Return new replies, waiting for the first; empty after a timeout."""
        if self._connects != self._waiting.connects:
            await self._resume()
        options = ("COUNT", _READ_COUNT, "BLOCK", block_ms)
        answer = await self._waiting.command(
            "XREAD", *options, "STREAMS", self._stream, self._last, wait=block_ms / 1000
        )
        entries = answer[0][1] if answer else []
        if self._read and (not entries or self._read > _TRIM_AFTER):
            await self._trim()
        replies: list[CallReply] = []
        for _, fields in entries:
            # Not from a worker of this fleet. Calls in flight are checked anyway.
            with suppress(Malformed):
                replies.extend(wire.replies_from_wire(fields[1]))
        resolved = [
            await delivery.resolve_reply(self._pipe, reply)
            for reply in replies
            if self._is_trusted(reply)
        ]
        if entries:
            self._last = entries[-1][0].decode()
            self._read += len(entries)
        return resolved

    def _is_trusted(self, reply: CallReply) -> bool:
        if is_trusted(self._trusted, reply):
            return True
        if not self._has_warned:
            _log.warning("ignoring replies that no worker of `worker_keys` signed")
            self._has_warned = True
        return False

    async def close(self) -> None:
        """Delete the stream."""
        await self._pipe.command("DEL", self._stream)

    async def _resume(self) -> None:
        """Read from the start if the new server is behind the last one."""
        connects = self._waiting.connects
        try:
            answer = await self._waiting.command("XINFO", "STREAM", self._stream)
        except StoreError as error:
            if "no such key" not in error.message:
                raise
            self._last = _STREAM_START
        else:
            newest = pairs(answer)[b"last-generated-id"].decode()
            if delivery.entry_order(newest) < delivery.entry_order(self._last):
                self._last = _STREAM_START
        self._connects = connects

    async def _trim(self) -> None:
        milliseconds, _, number = self._last.partition("-")
        with suppress(StoreError):  # retried later
            after = f"{milliseconds}-{int(number) + 1}"
            await self._pipe.command("XTRIM", self._stream, "MINID", after)
            self._read = 0


_BLOCK_MS = 5000
_CHECK_SECONDS = 2.0
"""Seconds between checks of calls that take longer than that."""
_GRACE_SECONDS = 1.0
"""Seconds after a call's time limit in which its worker may still reply."""
_REDIS_LOST_SECONDS = 60.0
"""Seconds without Redis after which calls in flight count as lost."""
_REPLICA_MS = 1000
"""How long a replica may take to receive a call."""
_PAUSE = 0.05
_STATE_BATCH = 500
_log = logging.getLogger(__name__)


class FleetClient:
    """Client of a fleet, for one event loop."""

    def __init__(
        self, pipe: RedisPipe, waiting: RedisPipe, key: FleetKeys, *, durable: bool = False
    ) -> None:
        """`waiting` is a connection for the replies alone.

        With `durable`, a call that reaches no replica of Redis in time is withdrawn.
        """
        self._pipe = pipe
        self._waiting = waiting
        self._key = key
        self.reply_to = f"{pipe.address.user}:{secrets.token_hex(12)}"
        """Name of the reply stream; its prefix lets an ACL separate users."""
        self.questions = QuestionHandlers(pipe, key)
        """Handlers of the questions that calls ask."""
        self._replies = ReplyStream(pipe, waiting, self.reply_to, key.trusted)
        self._queues: dict[str, Queue] = {}
        self._replication: Batch[None, bool] | None = (
            Batch(self._wait_for_replica) if durable else None
        )
        self._pending: dict[str, PendingCall] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._is_detached = False

    async def open(self) -> None:
        """Connect, and start to read replies."""
        await asyncio.gather(self._pipe.open(), self._waiting.open())
        self._tasks = [
            asyncio.create_task(self._read_replies()),
            asyncio.create_task(self._watch_calls()),
        ]

    async def call(self, envelope: Envelope, observe: Observe | None = None) -> Result:
        """Make a call and wait for its end; cancel the awaiting task to cancel the call.

        The envelope has this client's `reply_to` and no seal. Failures are Results, not exceptions.
        `observe` must not raise.
        """
        record, loop = envelope.record, asyncio.get_running_loop()
        pending = self._pending.get(record)
        is_first = pending is None
        if pending is None:
            pending = self._pending[record] = PendingCall(envelope, loop.time())
        waiter = Waiter(loop.create_future(), observe)
        pending.waiters.append(waiter)
        if envelope.timeout_ms is not None:
            seconds = envelope.timeout_ms / 1000 + _GRACE_SECONDS
            waiter.timer = loop.call_later(seconds, self._give_up, pending, waiter, "timeout")
        try:
            refusal = await self._enter(envelope, pending, waiter, is_first=is_first)
            if refusal is not None:
                return refusal
            return self._result(envelope, waiter.reply or await waiter.end())
        except asyncio.CancelledError:
            self._abandon(pending, waiter)
            raise
        finally:
            waiter.stop_timer()
            self._drop(pending, waiter)

    async def remember(self, record: str) -> None:
        """Keep the result of a running call for lookups by id."""
        pending = self._pending.get(record)
        if pending is not None and await self._queue(pending.envelope.pool).remember(record):
            pending.is_remembered = True

    async def check(self) -> None:
        """Ping Redis."""
        await self._pipe.command("PING")

    def detach(self) -> None:
        """Let calls with caller-chosen ids continue when no caller here awaits them."""
        self._is_detached = True

    async def close(self) -> None:
        """Cancel the calls of this client that are still awaited, and disconnect."""
        for pending in list(self._pending.values()):
            for waiter in list(pending.waiters):
                self._give_up(pending, waiter, "cancelled")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._background:
            await asyncio.wait(self._background, timeout=_GRACE_SECONDS)
        await self.questions.close()
        if self._tasks:
            with suppress(ToolkilnError):  # it expires anyway
                await self._replies.close()
        self._tasks = []
        await asyncio.gather(self._pipe.close(), self._waiting.close())

    async def _enter(
        self, envelope: Envelope, pending: PendingCall, waiter: Waiter, *, is_first: bool
    ) -> Result | None:
        """Enqueue a call; None if its reply will come or has come."""
        queue, sealed = self._queue(envelope.pool), self._sealed(envelope)
        if is_first and self._key.trusted is not None:
            pending.subject = wire.reply_subject(sealed)
        admission: Admission | Result
        may_be_ours = False
        try:
            if is_first and not envelope.remember and self._replication is None:
                # A fresh id: any reply is to this call, so its acceptance need not wake the task.
                queue.enqueue_nowait(sealed, waiter.wake, last=len(self._pending) == 1)
                answer = await waiter.sleep()
                if waiter.reply is not None:
                    return None
                admission = await queue.read_admission(sealed, answer)
            else:
                admission = await queue.enqueue(sealed)
        except Unreachable as error:
            may_be_ours = error.sent and not envelope.remember
            admission = await self._retry_enqueue(sealed, error, waiter)
        except InputError as error:  # too large
            refusal = CallError(code=error.code, message=error.message, hint=error.hint)
            return _refused(envelope, Status.INVALID, refusal)
        except ToolkilnError as error:
            return _failed(envelope, error)
        if isinstance(admission, Result):
            return admission
        if isinstance(admission, Overloaded):
            after = admission.retry_after
            return end_result(
                "overloaded", call_id=envelope.id, tool=envelope.tool, retry_after=after
            )
        if isinstance(admission, DeliveryConflict):
            return _refused(envelope, Status.INVALID, _CONFLICT)
        if isinstance(admission, Finished) and admission.reply is not None:
            waiter.settle(self._checked(pending, admission.reply))
        elif is_first:
            pending.is_ours = may_be_ours or isinstance(admission, Accepted)
            if isinstance(admission, Accepted):
                pending.entry = delivery.entry_order(admission.entry)
            if pending.is_ours and self._replication is not None:
                await self._require_replica(envelope, self._replication)
        return None

    async def _require_replica(self, envelope: Envelope, replication: "Batch[None, bool]") -> None:
        """Withdraw a call that no replica has, unless a worker has already taken it."""
        with suppress(ToolkilnError):  # `_watch_calls` finds out
            if not await replication.add(None):
                await self._end_call(envelope, "no_replica")

    async def _end_call(self, envelope: Envelope, code: str) -> None:
        """End a call that no worker has."""
        if await self._queue(envelope.pool).withdraw(envelope.record, code):
            self._handle(_end(envelope.record, code))

    def _wait_for_replica(self, calls: Sequence[None], done: "BatchDone[bool]") -> None:
        async def ask() -> None:
            connects = self._pipe.connects
            try:
                replicas = await self._pipe.command("WAIT", 1, _REPLICA_MS, wait=_REPLICA_MS / 1000)
            except ToolkilnError as error:
                done(error)
            else:
                done([replicas > 0 and connects == self._pipe.connects] * len(calls))

        task = asyncio.create_task(ask())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _retry_enqueue(
        self, sealed: Envelope, error: Unreachable, waiter: Waiter
    ) -> Admission | Result:
        """Retry a call that Redis may not have received, within the call's time limit.

        A call that may have arrived but is missing may have run before Redis lost it: it is sent
        again only if a second run does no harm.
        """
        limit = sealed.timeout_ms
        seconds = REDIS_WAIT_SECONDS if limit is None else min(REDIS_WAIT_SECONDS, limit / 1000)
        queue, until, pause = self._queue(sealed.pool), time.monotonic() + seconds, _PAUSE
        may_have_arrived = error.sent
        while time.monotonic() < until and waiter.reply is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
            try:
                if may_have_arrived and not sealed.repeatable:
                    (state,) = await queue.call_states([sealed.record])
                    if state.state == "missing":
                        return end_result("lost", call_id=sealed.id, tool=sealed.tool)
                return await queue.enqueue(sealed)
            except Unreachable as retry_error:
                error = retry_error
                may_have_arrived = may_have_arrived or retry_error.sent
            except ToolkilnError as failure:
                return _failed(sealed, failure)
        if waiter.reply is not None:
            return self._result(sealed, waiter.reply)
        if may_have_arrived:
            return end_result("lost", call_id=sealed.id, tool=sealed.tool)
        return _failed(sealed, error)

    def _result(self, envelope: Envelope, reply: CallReply) -> Result:
        if reply.kind == "result":
            try:
                return result_from_wire(reply.body)
            except Malformed as error:
                _log.error("the result of a call of %s cannot be read: %s", envelope.tool, error)
                return end_result("lost", call_id=envelope.id, tool=envelope.tool)
        code = reply.body.decode("ascii", "replace")
        return end_result(code, call_id=envelope.id, tool=envelope.tool)

    def _give_up(self, pending: PendingCall, waiter: Waiter, code: str) -> None:
        self._abandon(pending, waiter)
        waiter.settle(_end(pending.envelope.record, code))

    def _abandon(self, pending: PendingCall, waiter: Waiter) -> None:
        """Cancel a call that no caller awaits any more."""
        continues = self._is_detached and pending.is_remembered
        if waiter.reply is not None or len(pending.waiters) > 1 or not pending.is_ours or continues:
            return
        task = asyncio.create_task(self._cancel(pending.envelope, for_others=pending.is_remembered))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _cancel(self, envelope: Envelope, *, for_others: bool) -> None:
        with suppress(ToolkilnError):  # it runs to its end, without a reader
            await self._queue(envelope.pool).cancel(envelope.record, for_others=for_others)

    def _is_about(self, pending: PendingCall, reply: CallReply) -> bool:
        """Return whether a signed reply answers this call, not an earlier attempt."""
        if self._key.trusted is None:
            return True
        proof = reply.proof
        if proof is None or proof.subject != pending.subject:
            return False
        return (
            reply.kind not in ("result", "end")
            or delivery.entry_order(proof.target) >= pending.entry
        )

    def _checked(self, pending: PendingCall, reply: CallReply) -> CallReply:
        """Return a remembered reply, or an end with code `unverified`."""
        is_unknown = reply.kind == "end" and reply.body in (b"lost", UNVERIFIED)
        if is_unknown or self._is_about(pending, reply):
            return reply
        return CallReply(reply.record, "end", UNVERIFIED)

    def _drop(self, pending: PendingCall, waiter: Waiter) -> None:
        pending.waiters.remove(waiter)
        if not pending.waiters:
            record = pending.envelope.record
            if self._pending.get(record) is pending:
                del self._pending[record]

    def _sealed(self, envelope: Envelope) -> Envelope:
        return replace(envelope, seal=seal(self._key, envelope))

    def _queue(self, pool: str) -> Queue:
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = Queue(self._pipe, pool, trusted=self._key.trusted)
        return queue

    async def _read_replies(self) -> None:
        pause = _PAUSE
        while True:
            try:
                replies = await self._replies.next(_BLOCK_MS)
            except ToolkilnError as error:
                _log.debug("cannot read replies: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)
                continue
            pause = _PAUSE
            for reply in replies:
                pending = self._pending.get(reply.record)
                if pending is None or self._is_about(pending, reply):
                    self._handle(reply)

    def _handle(self, reply: CallReply) -> None:
        pending = self._pending.get(reply.record)
        if reply.kind in ("question", "withdrawn"):
            for waiter in pending.waiters if pending is not None else ():
                waiter.stop_timer()  # as for an approval
            self.questions.handle(reply)
            return
        if pending is None:
            return  # late: its caller got another result, or is gone
        if reply.kind != "event":
            for waiter in pending.waiters:
                waiter.settle(reply)
            return
        try:
            event = event_from_wire(reply.body)
        except Malformed as error:
            _log.error("an event of %s cannot be read: %s", pending.envelope.tool, error)
            return
        if 0 < event.number <= pending.event:
            return
        pending.event = max(pending.event, event.number)
        for waiter in pending.waiters:
            if event.kind == "pending":
                waiter.stop_timer()  # a person may take any time
            if waiter.observe is not None:
                waiter.observe(event)

    async def _watch_calls(self) -> None:
        """Check the state of calls that take long."""
        last_success = time.monotonic()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                overdue = self._overdue()
                for start in range(0, len(overdue), _STATE_BATCH):
                    await self._check_calls(overdue[start : start + _STATE_BATCH])
                last_success = time.monotonic()
            except ToolkilnError as error:
                if time.monotonic() - last_success > _REDIS_LOST_SECONDS:
                    _log.error("ending calls as lost: %s", error)
                    for pending in self._overdue():
                        self._handle(_end(pending.envelope.record, "lost"))

    def _overdue(self) -> list[PendingCall]:
        threshold = asyncio.get_running_loop().time() - _CHECK_SECONDS
        return [pending for pending in self._pending.values() if pending.since < threshold]

    async def _check_calls(self, batch: list[PendingCall]) -> None:
        """Check calls together, or one by one if one of them is malformed."""
        try:
            await self._check_states(batch)
        except Malformed as error:
            if len(batch) == 1:
                _log.error("a call of %s is lost: %s", batch[0].envelope.tool, error)
                self._handle(_end(batch[0].envelope.record, "lost"))
            else:
                for pending in batch:
                    await self._check_calls([pending])

    async def _check_states(self, batch: list[PendingCall]) -> None:
        states = await self._queue(batch[0].envelope.pool).call_states(
            [pending.envelope.record for pending in batch]
        )
        for pending, state in zip(batch, states, strict=True):
            if state.reply is not None:
                self._handle(self._checked(pending, state.reply))
            elif state.state in ("done", "missing"):
                pending.misses += 1
                if pending.misses > 1:  # at the first check, the reply may be on its way
                    await self._resend(pending, state.state)
            else:
                pending.misses = 0
                if state.age_ms > START_BY_MS:  # no worker takes or renews it
                    code = "no_worker" if state.state == "waiting" else "lost"
                    await self._end_call(pending.envelope, code)

    async def _resend(self, pending: PendingCall, state: str) -> None:
        """Make a call again that Redis has lost, or end it as lost."""
        envelope = pending.envelope
        if state == "missing" and envelope.repeatable and pending.is_ours:
            admission = await self._queue(envelope.pool).enqueue(self._sealed(envelope))
            if not isinstance(admission, Overloaded | DeliveryConflict):
                pending.misses, pending.event = 0, 0
                pending.since = asyncio.get_running_loop().time()
                return
        self._handle(_end(envelope.record, "lost"))


_CONFLICT = CallError(
    code="conflict",
    message="this call id belongs to a call with another tool, version or arguments",
    hint="use a fresh id for a different call",
)


def _end(record: str, code: str) -> CallReply:
    return CallReply(record, "end", code.encode())


def _failed(envelope: Envelope, error: ToolkilnError) -> Result:
    failure = CallError(code=error.code, message=error.message, hint=error.hint, retryable=True)
    return _refused(envelope, Status.UNAVAILABLE, failure)


def _refused(envelope: Envelope, status: Status, error: CallError) -> Result:
    text = f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    return Result(call_id=envelope.id, tool=envelope.tool, status=status, error=error, text=text)
