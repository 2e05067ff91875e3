"""The caller's side of the fleet: calls go out, and each comes back as exactly one Result.

One reply stream for all calls of a process, read by one task; another looks after calls that
are out for long, so that none is waited for in vain when Redis or all workers are gone. Which
tool a call means, and who may make it, is decided elsewhere: what is handed over is sent.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.fleet import wire
from toolkiln.fleet.answers import Answers
from toolkiln.fleet.batch import Answered, Batch
from toolkiln.fleet.deliveries import Accepted, Admission, Conflict, Finished, Overloaded
from toolkiln.fleet.endings import ended
from toolkiln.fleet.identity import FleetKeys, seal
from toolkiln.fleet.outstanding import Observe, Out, Waiter
from toolkiln.fleet.queue import UNVERIFIED, Queue
from toolkiln.fleet.replies import Replies, place
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.steps import START_BY_MS
from toolkiln.fleet.wire import Envelope, Malformed, Reply, event_from_wire, result_from_wire
from toolkiln.model import CallError, Result, Status
from toolkiln.store import PATIENCE as _PATIENCE
from toolkiln.store import Unreachable

_BLOCK_MS = 5000
_LOOK = 2.0
"""Seconds between two looks at calls that are out for longer than that."""
_GRACE = 1.0
"""Seconds after a call's own time in which its worker may still say what became of it."""
_AWAY = 60.0
"""Seconds without Redis after which calls that are out count as lost."""
_COPY_MS = 1000
"""How long a replica may take to have a call."""
_PAUSE = 0.05
_TOGETHER = 500
_log = logging.getLogger(__name__)


class Client:
    """Makes calls in a fleet, for one event loop."""

    def __init__(self, pipe: Pipe, waiting: Pipe, key: FleetKeys, *, durable: bool = False) -> None:
        """`waiting` is a connection for the replies alone; `key` is the fleet's.

        `durable`: a call that no replica of Redis has in time is taken back.
        """
        self._pipe = pipe
        self._waiting = waiting
        self._key = key
        self.reply_to = f"{pipe.address.user}:{secrets.token_hex(12)}"
        """The stream that replies go to; an ACL can give each user their own."""
        self.answers = Answers(pipe, key)
        """Who is asked what calls ask."""
        self._replies = Replies(pipe, waiting, self.reply_to, key.trusted)
        self._queues: dict[str, Queue] = {}
        self._copying: Batch[None, bool] | None = Batch(self._await_copy) if durable else None
        self._out: dict[str, Out] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._beside: set[asyncio.Task[None]] = set()
        self._is_detached = False

    async def open(self) -> None:
        """Connect, and begin to take replies.

        Raises:
            StoreError: the server cannot be reached or used.
        """
        await asyncio.gather(self._pipe.open(), self._waiting.open())
        self._tasks = [
            asyncio.create_task(self._take_replies()),
            asyncio.create_task(self._look_after()),
        ]

    async def call(self, envelope: Envelope, observe: Observe | None = None) -> Result:
        """Have a call made, and wait for its end; to stop it, cancel the task that awaits this.

        The envelope names our `reply_to`, and comes without a seal. Never raises for what
        becomes of it, as `observe` must not.
        """
        record, loop = envelope.record, asyncio.get_running_loop()
        out = self._out.get(record)
        is_first = out is None
        if out is None:
            out = self._out[record] = Out(envelope, loop.time())
        waiter = Waiter(loop.create_future(), observe)
        out.waiters.append(waiter)
        if envelope.timeout_ms is not None:
            seconds = envelope.timeout_ms / 1000 + _GRACE
            waiter.timer = loop.call_later(seconds, self._give_up, out, waiter, "timeout")
        try:
            refusal = await self._enter(envelope, out, waiter, is_first=is_first)
            if refusal is not None:
                return refusal
            return self._result(envelope, waiter.reply or await waiter.end())
        except asyncio.CancelledError:
            self._forsake(out, waiter)
            raise
        finally:
            waiter.rest()
            self._drop(out, waiter)

    async def remember(self, record: str) -> None:
        """Have the result of a call that is out kept for whoever asks by its id.

        Raises:
            StoreError: Redis failed.
        """
        out = self._out.get(record)
        if out is not None and await self._queue(out.envelope.pool).remember(record):
            out.is_remembered = True

    async def check(self) -> None:
        """See that Redis answers.

        Raises:
            StoreError: it does not.
        """
        await self._pipe.command("PING")

    def detach(self) -> None:
        """Let calls with their callers' own ids go on when nobody here awaits them any more."""
        self._is_detached = True

    async def close(self) -> None:
        """Take no more replies; calls that are still awaited end, if they are ours to end."""
        for out in list(self._out.values()):
            for waiter in list(out.waiters):
                self._give_up(out, waiter, "cancelled")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._beside:
            await asyncio.wait(self._beside, timeout=_GRACE)
        await self.answers.close()
        if self._tasks:
            with suppress(ToolkilnError):  # else it expires
                await self._replies.close()
        self._tasks = []
        await asyncio.gather(self._pipe.close(), self._waiting.close())

    async def _enter(
        self, envelope: Envelope, out: Out, waiter: Waiter, *, is_first: bool
    ) -> Result | None:
        """Put a call into the queue; None if its reply is on the way, or there."""
        queue, sent = self._queue(envelope.pool), self._sealed(envelope)
        if is_first and self._key.trusted is not None:
            out.about = wire.about(sent)
        admission: Admission | Result
        may_be_ours = False
        try:
            if is_first and not envelope.remember and self._copying is None:
                # A fresh id: whatever comes under it is about this call, and that it was
                # accepted is no reason to wake anybody.
                queue.enqueue_soon(sent, waiter.wake, last=len(self._out) == 1)
                answer = await waiter.sleep()
                if waiter.reply is not None:
                    return None
                admission = await queue.admission(sent, answer)
            else:
                admission = await queue.enqueue(sent)
        except Unreachable as error:
            may_be_ours = error.sent and not envelope.remember
            admission = await self._insist(sent, error, waiter)
        except InputError as error:  # too large
            refusal = CallError(code=error.code, message=error.message, hint=error.hint)
            return _refused(envelope, Status.INVALID, refusal)
        except ToolkilnError as error:
            return _failed(envelope, error)
        if isinstance(admission, Result):
            return admission
        if isinstance(admission, Overloaded):
            after = admission.retry_after
            return ended("overloaded", call_id=envelope.id, tool=envelope.tool, retry_after=after)
        if isinstance(admission, Conflict):
            return _refused(envelope, Status.INVALID, _CONFLICT)
        if isinstance(admission, Finished) and admission.reply is not None:
            waiter.settle(self._checked(out, admission.reply))
        elif is_first:
            out.is_ours = may_be_ours or isinstance(admission, Accepted)
            if isinstance(admission, Accepted):
                out.entry = place(admission.entry)
            if out.is_ours and self._copying is not None:
                await self._see_copied(envelope, self._copying)
        return None

    async def _see_copied(self, envelope: Envelope, copying: "Batch[None, bool]") -> None:
        """Take a call back that no replica has; one that a worker has by now goes on."""
        with suppress(ToolkilnError):  # what became of it is seen by who looks after calls
            if not await copying.add(None):
                await self._end_ourselves(envelope, "no_replica")

    async def _end_ourselves(self, envelope: Envelope, code: str) -> None:
        """End a call that no worker has; others learn it from Redis, and we from the answer."""
        if await self._queue(envelope.pool).withdraw(envelope.record, code):
            self._told(_end(envelope.record, code))

    def _await_copy(self, calls: Sequence[None], done: "Answered[bool]") -> None:
        """One question for all calls that were accepted on this connection just now."""

        async def ask() -> None:
            connects = self._pipe.connects
            try:
                have = await self._pipe.command("WAIT", 1, _COPY_MS, wait=_COPY_MS / 1000)
            except ToolkilnError as error:
                done(error)
            else:
                done([have > 0 and connects == self._pipe.connects] * len(calls))

        task = asyncio.create_task(ask())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _insist(
        self, sent: Envelope, error: Unreachable, waiter: Waiter
    ) -> Admission | Result:
        """Retry a call that Redis may not have received, within the time limit of the call.

        What may have arrived and is not there may also have run before Redis forgot it: it is
        sent again only if a second run does no harm.
        """
        limit = sent.timeout_ms
        patience = _PATIENCE if limit is None else min(_PATIENCE, limit / 1000)
        queue, until, pause = self._queue(sent.pool), time.monotonic() + patience, _PAUSE
        may_be_there = error.sent
        while time.monotonic() < until and waiter.reply is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
            try:
                if may_be_there and not sent.repeatable:
                    (standing,) = await queue.standing([sent.record])
                    if standing.state == "missing":
                        return ended("lost", call_id=sent.id, tool=sent.tool)
                return await queue.enqueue(sent)
            except Unreachable as again:
                error = again
                may_be_there = may_be_there or again.sent
            except ToolkilnError as failure:
                return _failed(sent, failure)
        if waiter.reply is not None:
            return self._result(sent, waiter.reply)
        if may_be_there:
            return ended("lost", call_id=sent.id, tool=sent.tool)
        return _failed(sent, error)

    def _result(self, envelope: Envelope, reply: Reply) -> Result:
        if reply.kind == "result":
            try:
                return result_from_wire(reply.body)
            except Malformed as error:
                _log.error("the result of a call of %s is lost: %s", envelope.tool, error)
                return ended("lost", call_id=envelope.id, tool=envelope.tool)
        code = reply.body.decode("ascii", "replace")
        return ended(code, call_id=envelope.id, tool=envelope.tool)

    def _give_up(self, out: Out, waiter: Waiter, code: str) -> None:
        self._forsake(out, waiter)
        waiter.settle(_end(out.envelope.record, code))

    def _forsake(self, out: Out, waiter: Waiter) -> None:
        """See that a call ends which nobody awaits any more."""
        lasts = self._is_detached and out.is_remembered
        if waiter.reply is not None or len(out.waiters) > 1 or not out.is_ours or lasts:
            return
        task = asyncio.create_task(self._cancel(out.envelope, for_others=out.is_remembered))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _cancel(self, envelope: Envelope, *, for_others: bool) -> None:
        with suppress(ToolkilnError):  # then it runs to its end, and nobody is told
            await self._queue(envelope.pool).cancel(envelope.record, for_others=for_others)

    def _is_about(self, out: Out, reply: Reply) -> bool:
        """Return whether a signed reply answers what was sent, and not an earlier try of it."""
        if self._key.trusted is None:
            return True
        proof = reply.proof
        if proof is None or proof.about != out.about:
            return False
        return reply.kind not in ("result", "end") or place(proof.of) >= out.entry

    def _checked(self, out: Out, reply: Reply) -> Reply:
        """Return a remembered reply, or an end that says why it is not believed."""
        is_unknown = reply.kind == "end" and reply.body in (b"lost", UNVERIFIED)
        if is_unknown or self._is_about(out, reply):
            return reply
        return Reply(reply.record, "end", UNVERIFIED)

    def _drop(self, out: Out, waiter: Waiter) -> None:
        out.waiters.remove(waiter)
        if not out.waiters:
            record = out.envelope.record
            if self._out.get(record) is out:
                del self._out[record]

    def _sealed(self, envelope: Envelope) -> Envelope:
        return replace(envelope, seal=seal(self._key, envelope))

    def _queue(self, pool: str) -> Queue:
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = Queue(self._pipe, pool, trusted=self._key.trusted)
        return queue

    async def _take_replies(self) -> None:
        pause = _PAUSE
        while True:
            try:
                replies = await self._replies.next(_BLOCK_MS)
            except ToolkilnError as error:
                _log.debug("replies could not be read: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1.0)
                continue
            pause = _PAUSE
            for reply in replies:
                out = self._out.get(reply.record)
                if out is None or self._is_about(out, reply):
                    self._told(reply)

    def _told(self, reply: Reply) -> None:
        out = self._out.get(reply.record)
        if reply.kind in ("question", "withdrawn"):
            for waiter in out.waiters if out is not None else ():
                waiter.rest()  # as for an approval
            self.answers.told(reply)
            return
        if out is None:
            return  # late: its caller was told something else, or has gone
        if reply.kind != "event":
            for waiter in out.waiters:
                waiter.settle(reply)
            return
        try:
            event = event_from_wire(reply.body)
        except Malformed as error:
            _log.error("an event of %s cannot be read: %s", out.envelope.tool, error)
            return
        for waiter in out.waiters:
            if event.kind == "pending":
                waiter.rest()  # a person takes the time that they take
            if waiter.observe is not None:
                waiter.observe(event)

    async def _look_after(self) -> None:
        """Ask now and then how calls stand that have been out for some time."""
        reached = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK)
            try:
                for some in _portions(self._overdue()):
                    await self._look_at_each(some)
                reached = time.monotonic()
            except ToolkilnError as error:
                if time.monotonic() - reached > _AWAY:
                    _log.error("calls are given up: %s", error)
                    for out in self._overdue():
                        self._told(_end(out.envelope.record, "lost"))

    def _overdue(self) -> list[Out]:
        before = asyncio.get_running_loop().time() - _LOOK
        return [out for out in self._out.values() if out.since < before]

    async def _look_at_each(self, some: list[Out]) -> None:
        """Look at calls together, or one by one where something about one cannot be read."""
        try:
            await self._look_at(some)
        except Malformed as error:
            if len(some) == 1:
                _log.error("a call of %s is lost: %s", some[0].envelope.tool, error)
                self._told(_end(some[0].envelope.record, "lost"))
            else:
                for out in some:
                    await self._look_at_each([out])

    async def _look_at(self, some: list[Out]) -> None:
        standings = await self._queue(some[0].envelope.pool).standing(
            [out.envelope.record for out in some]
        )
        for out, standing in zip(some, standings, strict=True):
            if standing.reply is not None:
                self._told(self._checked(out, standing.reply))
            elif standing.state in ("done", "missing"):
                out.misses += 1
                if out.misses > 1:  # not only on its way to us at the first look
                    await self._replace(out, standing.state)
            else:
                out.misses = 0
                if standing.age_ms > START_BY_MS:  # nor is there a worker to see to it
                    code = "no_worker" if standing.state == "waiting" else "lost"
                    await self._end_ourselves(out.envelope, code)

    async def _replace(self, out: Out, state: str) -> None:
        """Make a call again of which Redis knows nothing, or give it up."""
        envelope = out.envelope
        if state == "missing" and envelope.repeatable and out.is_ours:
            admission = await self._queue(envelope.pool).enqueue(self._sealed(envelope))
            if not isinstance(admission, Overloaded | Conflict):
                out.misses, out.since = 0, asyncio.get_running_loop().time()
                return
        self._told(_end(envelope.record, "lost"))


_CONFLICT = CallError(
    code="conflict",
    message="this call id belongs to a call with another tool, version or arguments",
    hint="use a fresh id for a different call",
)


def _end(record: str, code: str) -> Reply:
    return Reply(record, "end", code.encode())


def _failed(envelope: Envelope, error: ToolkilnError) -> Result:
    failure = CallError(code=error.code, message=error.message, hint=error.hint, retryable=True)
    return _refused(envelope, Status.UNAVAILABLE, failure)


def _refused(envelope: Envelope, status: Status, error: CallError) -> Result:
    text = f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    return Result(call_id=envelope.id, tool=envelope.tool, status=status, error=error, text=text)


def _portions(some: list[Out]) -> Iterator[list[Out]]:
    rest = iter(some)
    while part := list(islice(rest, _TOGETHER)):
        yield part
