"""Queue of one pool: a Redis stream of calls with a consumer group, and its consumers.

Each change is one Lua script, atomic and safe to repeat when its reply is lost. `steps` decides
what happens to a call. Callers use `enqueue`, `call_states` and `cancel`, workers the rest. All
methods raise StoreError when Redis fails.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import structs

from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet import keys, wire
from toolkiln.fleet.connection import Batch, BatchDone, Part, RedisClock, RedisPipe, pairs
from toolkiln.fleet.delivery import (
    Accepted,
    Admission,
    AlreadyRunning,
    CallState,
    Consumer,
    ControlMessage,
    Counts,
    Delivery,
    DeliveryConflict,
    Ending,
    Finished,
    Overloaded,
    body_reference,
    entry_order,
    read_delivery,
    resolve_reply,
)
from toolkiln.fleet.message_auth import Signer, Verifier, leaf_of
from toolkiln.fleet.steps import LONG_MS, START_BY_MS, horizon_ms
from toolkiln.fleet.wire import INLINE_LIMIT, CallReply, Envelope, Malformed, Proof

REPLIES_KEPT_MS = 15 * 60 * 1000
"""How long a reply stream is kept without new replies."""
MAX_REPLIES = 10_000
"""Approximate maximum length of a reply stream; an entry contains several replies."""
MAX_CONTROL = 1000
"""Approximate maximum length of a control stream."""
Cursors = tuple[str, str]
"""Last ids read from the control stream of operators and fronts, and from that of clients."""
RETRY_AFTER = 1.0
"""Seconds after which a rejected call may be retried."""

# Longer than any call: a record that expires during its call would let it run twice.
_RECORD_MS = 2 * LONG_MS
_MAX_PENDING = 10_000
_NO_RECORD = "-"
_log = logging.getLogger(__name__)
UNVERIFIED = b"unverified"
"""End code of a call whose remembered reply no trusted worker signed."""


class Queue:
    """Calls of one pool."""

    def __init__(
        self,
        pipe: RedisPipe,
        pool: str,
        *,
        waiting: RedisPipe | None = None,
        signer: Signer | None = None,
        trusted: Verifier | None = None,
        most_waiting: int = 10_000,
        oldest_waiting_ms: int = 60_000,
    ) -> None:
        """`waiting` is a connection for `read` alone, which blocks; callers need none.

        `signer` signs the replies of workers; remembered replies count only if a `trusted` worker
        signed them.
        """
        self.pool = pool
        self.consumers = PoolConsumers(pipe, pool)
        self.counts = Counts()
        self._pipe, self._waiting = pipe, waiting or pipe
        self._signer, self._trusted = signer, trusted
        self._limits = (most_waiting, oldest_waiting_ms)
        self._stream = keys.calls(pool)
        self._enqueue, self._finish = pipe.script("enqueue"), pipe.script("finish")
        self._requeue, self._renew = pipe.script("requeue"), pipe.script("renew")
        self._cancel, self._call_states = pipe.script("cancel"), pipe.script("states")
        self._remember, self._current = pipe.script("remember"), pipe.script("current")
        self._enqueues: Batch[tuple[Part, ...], Any] = Batch(self._send_enqueues)
        self._finishes: Batch[_Finish, int] = Batch(self._send_finishes)
        self._clock = RedisClock(pipe)
        self._restarts = {
            connection: RestartTracker(connection, pool) for connection in (pipe, self._waiting)
        }

    async def enqueue(self, envelope: Envelope) -> Admission:
        """Add a call, or return the state of an equal one.

        Raises:
            Unreachable: with `sent`, the call may have been accepted; retrying is safe.
            InputError: the call is too large.
        """
        answer = await self._enqueues.add(_enqueue_arguments(envelope))
        return await self.read_admission(envelope, answer)

    def enqueue_nowait(
        self, envelope: Envelope, otherwise: Callable[[Any], None], *, last: bool
    ) -> None:
        """Add a call without waiting.

        `otherwise` gets the reply, for `read_admission`, unless the call is accepted. `last` as in
        `Batch.put`.
        """

        def on_reply(answer: Any) -> None:
            if not _is_entry(answer):
                otherwise(answer)

        self._enqueues.put(_enqueue_arguments(envelope), on_reply, last=last)

    def _send_enqueues(self, calls: Sequence[tuple[Part, ...]], done: BatchDone[Any]) -> None:
        def on_reply(answer: Any) -> None:
            # Out of memory: the first write was rejected, so nothing was written.
            is_full = isinstance(answer, StoreError) and "OOM" in answer.message
            done([b"overloaded"] * len(calls) if is_full else answer)

        records = [str(call[0]) for call in calls]
        limits = (*self._limits, _RECORD_MS)
        arguments = [part for call in calls for part in call[1:]]
        self._enqueue.start([self._stream, *records], [keys.GROUP, *limits, *arguments], on_reply)

    async def read_admission(self, envelope: Envelope, answer: Any) -> Admission:
        """Interpret a reply that `enqueue_nowait` passed on; raises if it is an exception."""
        if isinstance(answer, Exception):
            raise answer
        if _is_entry(answer):
            return Accepted(answer.decode())
        if answer == b"running":
            return AlreadyRunning()
        if answer == b"conflict":
            return DeliveryConflict()
        if answer == b"overloaded":
            return Overloaded(RETRY_AFTER)
        if answer == b"lost":
            return Finished(CallReply(envelope.record, "end", b"lost"))
        return Finished(await self._remembered(envelope.record, answer[1]))

    async def _remembered(self, record: str, data: bytes | None) -> CallReply | None:
        if not data:
            return None
        reply = wire.reply_from_wire(data)
        if reply.record != record or not is_trusted(self._trusted, reply):
            return CallReply(record, "end", UNVERIFIED)
        return await resolve_reply(self._pipe, reply)

    async def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        """Take up to `count` calls, waiting for the first; unreadable ones are dead-lettered.

        After a StoreError, `pending` returns calls that were taken meanwhile.
        """
        block = ("BLOCK", block_ms)
        answer = await self._read(self._waiting, consumer, ">", count, block, block_ms / 1000)
        return await self._deliveries(self._waiting, answer)

    async def pending(self, consumer: str) -> list[Delivery]:
        """Return all calls that this consumer holds, as after a reconnect."""
        entries = await self._read(self._pipe, consumer, "0", _MAX_PENDING)
        return await self._deliveries(self._pipe, entries)

    async def _read(
        self,
        pipe: RedisPipe,
        consumer: str,
        after: str,
        count: int,
        block: Sequence[Part] = (),
        wait: float = 0.0,
    ) -> list[Any]:
        options = ("GROUP", keys.GROUP, consumer, "COUNT", count, *block)
        command = ("XREADGROUP", *options, "STREAMS", self._stream, after)
        await self._restarts[pipe].check()
        try:
            answer = await pipe.command(*command, wait=wait)
        except StoreError as error:
            if "NOGROUP" not in error.message:
                raise
            await self._restarts[pipe].check(force=True)  # the server was flushed
            answer = await pipe.command(*command, wait=wait)
        return answer[0][1] if answer else []

    async def _deliveries(self, pipe: RedisPipe, entries: Sequence[Any]) -> list[Delivery]:
        deliveries, tracker = [], self._restarts[pipe]
        if entries:
            await tracker.check()
        for entry, fields in entries:
            if fields is None:
                # The entry was deleted; its caller sees the call as missing.
                await self._pipe.command("XACK", self._stream, keys.GROUP, entry)
                continue
            entry_fields = pairs(fields)
            try:
                delivery = await read_delivery(self._pipe, entry.decode(), entry_fields)
            except Malformed as error:
                await self._bury_unreadable(entry.decode(), entry_fields, error.message)
                continue
            if tracker.is_doubtful(delivery.entry):
                delivery = structs.replace(delivery, doubtful=True)
            deliveries.append(delivery)
        return await self._current_of(deliveries) if deliveries else deliveries

    async def _current_of(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the deliveries that their call records name, and delete the others.

        A copied entry names a call that has ended or has another entry.
        """
        records = [keys.record(delivery.record) for delivery in deliveries]
        answers = await self._current(records, [delivery.entry for delivery in deliveries])
        current = []
        for delivery, answer in zip(deliveries, answers, strict=True):
            if answer == 0:
                _log.warning(
                    "dropped an entry of %s: its call has ended or has another entry",
                    delivery.envelope.tool,
                )
                await self._pipe.command("XACK", self._stream, keys.GROUP, delivery.entry)
                await self._pipe.command("XDEL", self._stream, delivery.entry)
            else:
                is_cancelled = answer == 2
                current.append(
                    structs.replace(delivery, cancelled=True) if is_cancelled else delivery
                )
        return current

    async def _bury_unreadable(
        self, entry: str, entry_fields: dict[bytes, bytes], why: str
    ) -> None:
        self.counts.poison += 1
        record = wire.record_of(entry_fields.get(b"record", b"")) or _NO_RECORD
        reply = CallReply(record, "end", b"poison", Proof(b"", entry))
        horizon = horizon_ms("poison", remember=False)
        await self._finishes.add(_Finish(entry, reply, (horizon, 0, "", why, "", "", b"")))

    async def finish(self, ending: Ending) -> bool:
        """End a call and notify its callers; False if it already ended or was requeued.

        Works when Redis is out of memory.

        Raises:
            Unreachable: with `sent`, the call may have ended; retrying is safe.
            InputError: the result is too large.
        """
        return await self._finishes.add(self._finish_arguments(ending, "")) == 1

    def finish_nowait(
        self, ending: Ending, done: Callable[[int | Exception], None], *, last: bool
    ) -> None:
        """End a call without waiting; `done` gets 1, 0 or the exception.

        `last` as in `Batch.put`.
        """
        self._finishes.put(self._finish_arguments(ending, ""), done, last=last)

    async def bury(self, delivery: Delivery, why: str) -> bool:
        """End a call as poison and add it to the dead letters; False as in `finish`."""
        ending = Ending(delivery, "end", b"poison")
        return await self._finishes.add(self._finish_arguments(ending, why)) == 1

    def _finish_arguments(self, ending: Ending, why: str) -> "_Finish":
        delivery, kind, body, is_open = ending
        envelope = delivery.envelope
        reply = CallReply(envelope.record, kind, body)
        data = wire.reply_to_wire(reply)
        is_large = len(data) > INLINE_LIMIT
        if is_large:
            reply = CallReply(envelope.record, "stored", body_reference(data))
        if self._signer is not None:
            reply = structs.replace(
                reply, proof=Proof(wire.reply_subject(envelope), delivery.entry)
            )
        code = body.decode() if kind == "end" else None
        rest = (
            horizon_ms(code, remember=envelope.remember),
            2 if is_open else int(envelope.remember),
            keys.replies(envelope.reply_to) if envelope.reply_to else "",
            why,
            keys.body(envelope.record, "call") if delivery.stored else "",
            keys.body(envelope.record, "result") if is_large else "",
            data if is_large else b"",
        )
        return _Finish(delivery.entry, reply, rest)

    def _send_finishes(self, endings: Sequence["_Finish"], done: BatchDone[int]) -> None:
        records = [keys.record(ending.reply.record) for ending in endings]
        limits = (REPLIES_KEPT_MS, MAX_REPLIES, LONG_MS)
        replies = self._signed([ending.reply for ending in endings])
        arguments = [
            part
            for ending, reply in zip(endings, replies, strict=True)
            for part in (ending.entry, wire.reply_to_wire(reply), *ending.rest)
        ]
        touched = [self._stream, keys.dead(self.pool), *records]
        self._finish.start(touched, [keys.GROUP, *limits, *arguments], done)

    def _signed(self, replies: Sequence[CallReply]) -> Sequence[CallReply]:
        if self._signer is None:
            return [
                reply if reply.proof is None else structs.replace(reply, proof=None)
                for reply in replies
            ]
        leaves = [leaf_of(wire.signed_part(reply)) for reply in replies]
        return [
            structs.replace(reply, proof=structs.replace(reply.proof, signature=one, path=path))
            for reply, (one, path) in zip(replies, self._signer.sign_all(leaves), strict=True)
            if reply.proof is not None
        ]

    async def requeue(self, delivery: Delivery, tries: int) -> bool:
        """Requeue a call for another worker; False if it already ended or was requeued."""
        touched = [self._stream, keys.record(delivery.record)]
        return bool(await self._requeue(touched, [keys.GROUP, delivery.entry, tries]))

    async def renew(self, consumer: str, entries: Sequence[str]) -> list[bool]:
        """Renew the leases of a consumer's calls; False for each call that it lost."""
        answers = await self._renew([self._stream], [keys.GROUP, consumer, *entries])
        return [answer == 1 for answer in answers]

    async def claim_abandoned(
        self, consumer: str, cursor: str, idle_ms: int, count: int = 100
    ) -> tuple[str, list[Delivery]]:
        """Claim calls idle for this long; returns the next cursor, `0-0` at the end."""
        command = ("XAUTOCLAIM", self._stream, keys.GROUP, consumer, idle_ms, cursor)
        try:
            answer = await self._pipe.command(*command, "COUNT", count)
        except StoreError as error:
            if "NOGROUP" not in error.message:
                raise
            return "0-0", []
        # Redis 6.2 returns null for a deleted entry and keeps it pending.
        entries = [entry for entry in answer[1] if entry is not None and entry[1] is not None]
        if len(entries) < len(answer[1]):
            await self._forget_deleted(consumer)
        return answer[0].decode(), await self._deliveries(self._pipe, entries)

    async def _forget_deleted(self, consumer: str) -> None:
        held = await self._read(self._pipe, consumer, "0", _MAX_PENDING)
        await self._deliveries(self._pipe, [entry for entry in held if entry[1] is None])

    async def cancel(
        self, record: str, *, for_others: bool = False
    ) -> Literal["cancelled", "asked", "done", "unknown"]:
        """End a waiting call, or ask the workers to cancel a running one.

        `for_others`: other processes may await the call. With signatures they trust only workers,
        so a worker has to end it even if it is still waiting.
        """
        by_worker = self._trusted is not None and for_others
        answer = await self._withdraw(
            record, "cancelled", self.consumers.control_stream, by_worker=by_worker
        )
        return "cancelled" if answer == "ended" else answer

    async def is_cancelled(self, record: str) -> bool:
        """Return whether the call's record, writable by its client only, requests a cancel."""
        return bool(await self._pipe.command("HEXISTS", keys.record(record), "cancel"))

    async def withdraw(self, record: str, code: str) -> bool:
        """End a call with a code such as `no_worker`, unless a live worker has it."""
        answer: str = await self._withdraw(record, code, "")
        return answer == "ended"

    async def _withdraw(
        self, record: str, code: str, control: str, *, by_worker: bool = False
    ) -> Any:
        answer = await self._cancel(*cancel_arguments(record, code, control, by_worker=by_worker))
        return answer.decode()

    async def call_states(self, records: Sequence[str]) -> list[CallState]:
        """Return the states of calls of any pool; one script reads them, so pass some hundreds."""
        answers = await self._call_states(list(map(keys.record, records)), [keys.GROUP, ""])
        return [
            CallState(state.decode(), age, await self._remembered(record, reply))
            for record, (state, age, reply) in zip(records, answers, strict=True)
        ]

    async def remember(self, record: str) -> bool:
        """Keep the result of a running call; False if it has ended."""
        return bool(await self._remember([keys.record(record)], []))

    async def send(self, reply_to: str, replies: Sequence[CallReply]) -> None:
        """Send events to one caller; where workers sign, each needs a proof."""
        stream, data = keys.replies(reply_to), wire.replies_to_wire(self._signed(replies))
        # Not in a separate task: replies must stay in order.
        await self._pipe.command("XADD", stream, "MAXLEN", "~", MAX_REPLIES, "*", "replies", data)
        await self._pipe.command("PEXPIRE", stream, REPLIES_KEPT_MS)

    async def now_ms(self) -> int:
        """Return the time of the Redis clock."""
        return await self._clock.now_ms()


def _enqueue_arguments(envelope: Envelope) -> tuple[Part, ...]:
    """Return the arguments of `enqueue.lua` for one call, its record first."""
    data = wire.envelope_to_wire(envelope)
    is_large = len(data) > INLINE_LIMIT
    return (
        keys.record(envelope.record),
        wire.fingerprint(envelope) if envelope.remember else "",
        keys.replies(envelope.reply_to) if envelope.reply_to else "",
        envelope.timeout_ms or 0,
        int(envelope.repeatable),
        envelope.record,
        body_reference(data) if is_large else data,
        keys.body(envelope.record, "call") if is_large else "",
        data if is_large else b"",
    )


class _Finish(NamedTuple):
    """Arguments of `finish.lua` for one call; replies of a batch are signed together."""

    entry: str
    reply: CallReply
    rest: tuple[Part, ...]


def is_trusted(trusted: Verifier | None, reply: CallReply) -> bool:
    """Return whether a trusted worker signed a reply; the reader checks which call it is about."""
    if trusted is None:
        return True
    proof = reply.proof
    return proof is not None and trusted.is_proven(
        leaf_of(wire.signed_part(reply)), proof.signature, proof.path
    )


def _is_entry(answer: Any) -> bool:
    """Return whether `enqueue.lua` accepted a call and returned its entry id."""
    return isinstance(answer, bytes) and answer[:1].isdigit()


def cancel_arguments(
    record: str, code: str, control: str, *, by_worker: bool = False
) -> tuple[list[str], list[Part]]:
    """Return the keys and arguments of `cancel.lua`.

    `control` is the stream for a cancel request, or empty. `by_worker` leaves a waiting call for
    a worker to end.
    """
    reply = wire.reply_to_wire(CallReply(record, "end", code.encode()))
    horizon = horizon_ms(code, remember=False), horizon_ms(code, remember=True)
    reply_limits = (REPLIES_KEPT_MS, MAX_REPLIES)
    return (
        [keys.record(record), keys.body(record, "call")],
        [
            keys.GROUP,
            reply,
            *horizon,
            *reply_limits,
            control,
            MAX_CONTROL,
            record,
            START_BY_MS,
            int(by_worker),
        ],
    )


class PoolConsumers:
    """Workers of one pool, as Redis knows them."""

    def __init__(self, pipe: RedisPipe, pool: str) -> None:
        self._pipe = pipe
        self._stream, self._control = keys.calls(pool), keys.control(pool)
        self._client_control = keys.asks(pool)
        self.control_stream = self._client_control if pipe.address.namespace else self._control
        """The control stream that this process writes to."""
        self._retire = pipe.script("retire")

    async def send_control(self, message: ControlMessage) -> None:
        """Send a control message to all workers of the pool."""
        limit = ("MAXLEN", "~", MAX_CONTROL)
        await self._pipe.command(
            "XADD", self.control_stream, *limit, "*", "ask", message.command, "of", message.target
        )

    async def read_control(
        self, cursors: Cursors | None, block_ms: int, pipe: RedisPipe
    ) -> tuple[Cursors, list[ControlMessage]]:
        """Read control messages after `cursors` (None at first), on a blocking connection."""
        streams = self._control, self._client_control
        if cursors is None:  # only once: later reads must not skip messages
            newest = [await pipe.command("XREVRANGE", s, "+", "-", "COUNT", 1) for s in streams]
            control, client = [item[0][0].decode() if item else "0-0" for item in newest]
            cursors = control, client
        options = ("COUNT", MAX_CONTROL, "BLOCK", block_ms)
        answer = await pipe.command(
            "XREAD", *options, "STREAMS", *streams, *cursors, wait=block_ms / 1000
        )
        ids, messages = dict(zip(streams, cursors, strict=True)), []
        for name, entries in answer or ():
            stream = name.decode()
            messages += [
                ControlMessage(
                    fields[1].decode(errors="replace"),
                    fields[3].decode(errors="replace"),
                    stream == self._client_control,
                )
                for _, fields in entries
                if len(fields) == 4
            ]
            ids[stream] = entries[-1][0].decode()
        return (ids[self._control], ids[self._client_control]), messages

    async def members(self) -> list[Consumer]:
        """Return all consumers of the group, including former ones."""
        return [
            Consumer(item[b"name"].decode(errors="replace"), item[b"pending"], item[b"idle"])
            for item in await self._info("CONSUMERS", keys.GROUP)
        ]

    async def retire(self, consumer: str) -> bool:
        """Delete a consumer unless it has pending calls."""
        return bool(await self._retire([self._stream], [keys.GROUP, consumer]))

    async def depth(self) -> tuple[int, int]:
        """Return the numbers of waiting and of running calls."""
        length = await self._pipe.command("XLEN", self._stream)
        running = sum(item[b"pending"] for item in await self._info("GROUPS"))
        return max(0, length - running), running

    async def oldest(self, now_ms: int) -> float:
        """Return how many seconds the first call has been waiting, 0 if none waits."""
        groups = await self._info("GROUPS")
        after = groups[0][b"last-delivered-id"] if groups else b"0-0"
        first = await self._pipe.command("XRANGE", self._stream, b"(" + after, "+", "COUNT", 1)
        return max(0, now_ms - int(first[0][0].partition(b"-")[0])) / 1000 if first else 0.0

    async def _info(self, subcommand: str, *arguments: str) -> list[dict[bytes, Any]]:
        try:
            answer = await self._pipe.command("XINFO", subcommand, self._stream, *arguments)
        except StoreError as error:
            if "no such key" not in error.message and "NOGROUP" not in error.message:
                raise
            return []
        return [pairs(item) for item in answer]


class RestartTracker:
    """Detects restarts of Redis that may have lost deliveries, for one connection and pool.

    A call that was queued before such a restart may have run already.
    """

    def __init__(self, pipe: RedisPipe, pool: str) -> None:
        self._pipe = pipe
        self._open = pipe.script("open")
        self._keys = [keys.calls(pool), keys.lives(pool)]
        self._checked = -1
        self._boundary: tuple[int, int] = (0, 0)

    async def check(self, *, force: bool = False) -> None:
        """Create the consumer group, and detect a restart, after each reconnect."""
        connects = self._pipe.connects
        if connects == self._checked and not force:
            return
        boundary = await self._open(self._keys, [keys.GROUP, int(await self._syncs_always())])
        self._checked, self._boundary = connects, entry_order(boundary.decode())

    async def _syncs_always(self) -> bool:
        try:
            config = await self._pipe.command("CONFIG", "GET", "appendfsync")
        except Unreachable:
            raise
        except StoreError:  # no permission: assume that it may lose data
            return False
        return bool(config[1:] == [b"always"])

    def is_doubtful(self, entry: str) -> bool:
        """Return whether a call may have run before Redis lost its delivery."""
        return self._boundary > (0, 0) and entry_order(entry) <= self._boundary
