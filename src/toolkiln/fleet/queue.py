"""A pool's calls in Redis: in, out, ended, handed on. Moves bytes and decides nothing.

Each act is one script, atomic and safe to repeat where an answer may be lost; what to do
with a call is decided in `steps`. Keys are in `keys`, the scripts in `lua/`, the values in
`deliveries`. Callers use `enqueue`, `standing` and `cancel`, workers the rest; replies are
read with `replies`, and workers are looked after with `crew`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import structs

from toolkiln.fleet import bodies, keys, wire
from toolkiln.fleet.batch import Answered, Batch
from toolkiln.fleet.clock import Clock
from toolkiln.fleet.counts import Counts
from toolkiln.fleet.crew import MOST_ASKS, Crew
from toolkiln.fleet.deliveries import (
    Accepted,
    Admission,
    Ask,
    Conflict,
    Consumer,
    Delivery,
    Ending,
    Finished,
    Overloaded,
    Running,
    Standing,
    read_delivery,
)
from toolkiln.fleet.link import Part
from toolkiln.fleet.lives import Lives
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.signatures import Signer, Verifier, leaf_of
from toolkiln.fleet.steps import LONG_MS, START_BY_MS, horizon_ms
from toolkiln.fleet.wire import Envelope, Malformed, Proof, Reply
from toolkiln.store import StoreError

__all__ = [
    "Accepted",
    "Admission",
    "Ask",
    "Conflict",
    "Consumer",
    "Delivery",
    "Ending",
    "Finished",
    "Overloaded",
    "Queue",
    "Running",
    "Standing",
]

REPLIES_KEPT_MS = 15 * 60 * 1000
"""How long what a client was told waits for it."""
MOST_REPLIES = 10_000
"""How many entries wait for a client at most, roughly; each holds several replies."""
RETRY_AFTER = 1.0
"""Seconds after which a call that was not accepted may be tried again."""

# Longer than any call: what is forgotten while it runs could run twice.
_LIVE_MS = 2 * LONG_MS
_MOST_OWN = 10_000
_MOST_RECORDS = 500
_NOBODY = "-"
_log = logging.getLogger(__name__)
UNVERIFIED = b"unverified"
"""The end of a call whose remembered reply no trusted worker signed (`endings`)."""


class Queue:
    """The calls of one pool."""

    def __init__(
        self,
        pipe: Pipe,
        pool: str,
        *,
        waiting: Pipe | None = None,
        signer: Signer | None = None,
        trusted: Verifier | None = None,
        most_waiting: int = 10_000,
        oldest_waiting_ms: int = 60_000,
    ) -> None:
        """`waiting` is a connection for nothing but `read`, which blocks; callers need none.

        `signer` signs what workers reply; of remembered replies, only those that `trusted`
        workers signed are believed.
        """
        self.pool = pool
        self.crew = Crew(pipe, pool)
        """Its workers."""
        self.counts = Counts()
        self._pipe, self._waiting = pipe, waiting or pipe
        self._signer, self._trusted = signer, trusted
        self._limits = (most_waiting, oldest_waiting_ms)
        self._stream = keys.calls(pool)
        self._enqueue, self._finish = pipe.script("enqueue"), pipe.script("finish")
        self._requeue, self._renew = pipe.script("requeue"), pipe.script("renew")
        self._cancel, self._standing = pipe.script("cancel"), pipe.script("standing")
        self._remember, self._current = pipe.script("remember"), pipe.script("current")
        self._putting: Batch[tuple[Part, ...], Any] = Batch(self._put)
        self._ending: Batch[_Ended, int] = Batch(self._end)
        self._clock = Clock(pipe)
        self._lives = {each: Lives(each, pool) for each in (pipe, self._waiting)}

    async def enqueue(self, envelope: Envelope) -> Admission:
        """Put a call in, or say what became of the same one; with others of the same moment.

        Raises:
            Unreachable: with `sent`, it may have been accepted; asking again is safe.
            StoreError: Redis failed.
            InputError: the call is too large.
        """
        return await self.admission(envelope, await self._putting.add(_entered(envelope)))

    def enqueue_soon(
        self, envelope: Envelope, otherwise: Callable[[Any], None], *, last: bool
    ) -> None:
        """As `enqueue`, for those who wait for no task: unless the call is accepted,
        `otherwise` gets something of which `admission` says what it means. `last`: `Batch.put`.

        Raises:
            InputError: the call is too large.
        """

        def answered(answer: Any) -> None:
            if not _is_entry(answer):
                otherwise(answer)

        self._putting.put(_entered(envelope), answered, last=last)

    def _put(self, calls: Sequence[tuple[Part, ...]], done: Answered[Any]) -> None:
        def answered(answer: Any) -> None:
            # The first write was refused, so that there was none.
            full = isinstance(answer, StoreError) and "OOM" in answer.message
            done([b"overloaded"] * len(calls) if full else answer)

        records = [str(call[0]) for call in calls]
        limits = (*self._limits, _LIVE_MS)
        arguments = [part for call in calls for part in call[1:]]
        self._enqueue.start([self._stream, *records], [keys.GROUP, *limits, *arguments], answered)

    async def admission(self, envelope: Envelope, answer: Any) -> Admission:
        """What an answer to `enqueue_soon` means.

        Raises:
            StoreError: as `enqueue`.
        """
        if isinstance(answer, Exception):
            raise answer
        if _is_entry(answer):
            return Accepted(answer.decode())
        if answer == b"running":
            return Running()
        if answer == b"conflict":
            return Conflict()
        if answer == b"overloaded":
            return Overloaded(RETRY_AFTER)
        if answer == b"lost":
            return Finished(Reply(envelope.record, "end", b"lost"))
        return Finished(await self._remembered(envelope.record, answer[1]))

    async def _remembered(self, record: str, data: bytes | None) -> Reply | None:
        if not data:
            return None
        reply = wire.reply_from_wire(data)
        if reply.record != record or not is_believed(self._trusted, reply):
            return Reply(record, "end", UNVERIFIED)
        return await bodies.resolve(self._pipe, reply)

    async def read(self, consumer: str, count: int, block_ms: int) -> list[Delivery]:
        """Take up to so many calls, waiting for the first; what cannot be read is buried.

        Raises:
            StoreError: Redis failed; what was taken meanwhile is found with `own`.
        """
        block = ("BLOCK", block_ms)
        answer = await self._read(self._waiting, consumer, ">", count, block, block_ms / 1000)
        return await self._deliveries(self._waiting, answer)

    async def own(self, consumer: str) -> list[Delivery]:
        """All that this consumer holds already, for after a reconnect.

        Raises:
            StoreError: Redis failed.
        """
        entries = await self._read(self._pipe, consumer, "0", _MOST_OWN)
        return await self._deliveries(self._pipe, entries)

    async def _read(
        self,
        pipe: Pipe,
        consumer: str,
        after: str,
        count: int,
        block: Sequence[Part] = (),
        wait: float = 0.0,
    ) -> list[Any]:
        who = ("GROUP", keys.GROUP, consumer, "COUNT", count, *block)
        command = ("XREADGROUP", *who, "STREAMS", self._stream, after)
        await self._lives[pipe].look()
        try:
            answer = await pipe.command(*command, wait=wait)
        except StoreError as error:
            if "NOGROUP" not in error.message:
                raise
            await self._lives[pipe].look(again=True)  # somebody emptied the server
            answer = await pipe.command(*command, wait=wait)
        return answer[0][1] if answer else []

    async def _deliveries(self, pipe: Pipe, entries: Sequence[Any]) -> list[Delivery]:
        taken, lives = [], self._lives[pipe]
        if entries:
            await lives.look()
        for entry, fields in entries:
            if fields is None:
                # Somebody deleted it; whoever asked finds it missing.
                await self._pipe.command("XACK", self._stream, keys.GROUP, entry)
                continue
            said = dict(zip(fields[::2], fields[1::2], strict=True))
            try:
                delivery = await read_delivery(self._pipe, entry.decode(), said)
            except Malformed as error:
                await self._bury_unread(entry.decode(), said, error.message)
                continue
            if lives.is_doubtful(delivery.entry):
                delivery = structs.replace(delivery, doubtful=True)
            taken.append(delivery)
        return await self._current_of(taken) if taken else taken

    async def _current_of(self, taken: Sequence[Delivery]) -> list[Delivery]:
        """Return the deliveries that the records of their calls name, and drop the others.

        A copy of an entry names a call that has ended, or that another entry stands for.
        """
        records = [keys.record(delivery.record) for delivery in taken]
        answers = await self._current(records, [delivery.entry for delivery in taken])
        current = []
        for delivery, answer in zip(taken, answers, strict=True):
            if answer == 0:
                _log.warning(
                    "an entry of %s is dropped: its call has ended, or has another entry",
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

    async def _bury_unread(self, entry: str, said: dict[bytes, bytes], why: str) -> None:
        self.counts.poison += 1
        record = wire.record_of(said.get(b"record", b"")) or _NOBODY
        reply = Reply(record, "end", b"poison", Proof(b"", entry))
        horizon = horizon_ms("poison", remember=False)
        await self._ending.add(_Ended(entry, reply, (horizon, 0, "", why, "", "", b"")))

    async def finish(self, ending: Ending) -> bool:
        """End a call and tell all who asked; False if it was ended or handed on before.

        With others of the same moment. Works when Redis has no memory left.

        Raises:
            Unreachable: with `sent`, it may have been done; asking again is safe.
            StoreError: Redis failed.
            InputError: the result is too large.
        """
        return await self._ending.add(self._ended(ending, "")) == 1

    def finish_soon(
        self, ending: Ending, done: Callable[[int | Exception], None], *, last: bool
    ) -> None:
        """As `finish`, for those who wait for no task; `done` gets 1, 0 or the exception.

        `last`: `Batch.put`.

        Raises:
            InputError: the result is too large.
        """
        self._ending.put(self._ended(ending, ""), done, last=last)

    async def bury(self, delivery: Delivery, why: str) -> bool:
        """End a call as poison and keep it with the dead letters; False as in `finish`.

        Raises:
            StoreError: Redis failed.
        """
        ending = Ending(delivery, "end", b"poison")
        return await self._ending.add(self._ended(ending, why)) == 1

    def _ended(self, ending: Ending, why: str) -> "_Ended":
        delivery, kind, body, is_open = ending
        envelope = delivery.envelope
        reply = Reply(envelope.record, kind, body)
        data = wire.reply_to_wire(reply)
        large = bodies.is_large(data)
        if large:
            reply = bodies.stored(reply, data)
        if self._signer is not None:
            reply = structs.replace(reply, proof=Proof(wire.about(envelope), delivery.entry))
        code = body.decode() if kind == "end" else None
        rest = (
            horizon_ms(code, remember=envelope.remember),
            2 if is_open else int(envelope.remember),
            keys.replies(envelope.reply_to) if envelope.reply_to else "",
            why,
            keys.body(envelope.record, "call") if delivery.stored else "",
            keys.body(envelope.record, "result") if large else "",
            data if large else b"",
        )
        return _Ended(delivery.entry, reply, rest)

    def _end(self, endings: Sequence["_Ended"], done: Answered[int]) -> None:
        records = [keys.record(ending.reply.record) for ending in endings]
        limits = (REPLIES_KEPT_MS, MOST_REPLIES, LONG_MS)
        replies = self._signed([ending.reply for ending in endings])
        arguments = [
            part
            for ending, reply in zip(endings, replies, strict=True)
            for part in (ending.entry, wire.reply_to_wire(reply), *ending.rest)
        ]
        where = [self._stream, keys.dead(self.pool), *records]
        self._finish.start(where, [keys.GROUP, *limits, *arguments], done)

    def _signed(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """Sign replies of one moment together."""
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
        """Hand a call on to another worker; False if it was ended or handed on before.

        Raises:
            StoreError: Redis failed.
        """
        where = [self._stream, keys.record(delivery.record)]
        return bool(await self._requeue(where, [keys.GROUP, delivery.entry, tries]))

    async def renew(self, consumer: str, entries: Sequence[str]) -> list[bool]:
        """Say that this consumer is at work on its calls; False for one that it lost.

        Raises:
            StoreError: Redis failed.
        """
        answers = await self._renew([self._stream], [keys.GROUP, consumer, *entries])
        return [answer == 1 for answer in answers]

    async def abandoned(
        self, consumer: str, cursor: str, idle_ms: int, count: int = 100
    ) -> tuple[str, list[Delivery]]:
        """Take over calls that nobody renewed for so long; where to go on, `0-0` at the end.

        Raises:
            StoreError: Redis failed.
        """
        command = ("XAUTOCLAIM", self._stream, keys.GROUP, consumer, idle_ms, cursor)
        try:
            answer = await self._pipe.command(*command, "COUNT", count)
        except StoreError as error:
            if "NOGROUP" not in error.message:
                raise
            return "0-0", []
        # Redis 6.2 says nothing of an entry that somebody deleted, and keeps it pending.
        entries = [entry for entry in answer[1] if entry is not None and entry[1] is not None]
        if len(entries) < len(answer[1]):
            await self._forget_deleted(consumer)
        return answer[0].decode(), await self._deliveries(self._pipe, entries)

    async def _forget_deleted(self, consumer: str) -> None:
        held = await self._read(self._pipe, consumer, "0", _MOST_OWN)
        await self._deliveries(self._pipe, [entry for entry in held if entry[1] is None])

    async def cancel(
        self, record: str, *, for_others: bool = False
    ) -> Literal["cancelled", "asked", "done", "unknown"]:
        """End a call that waits, or ask the workers to stop one that runs.

        `for_others`: other processes may await it. They believe what workers sign, so that a
        worker has to end it, also if it waits.

        Raises:
            StoreError: Redis failed.
        """
        by_worker = self._trusted is not None and for_others
        answer = await self._withdraw(record, "cancelled", self.crew.requests, by_worker=by_worker)
        return "cancelled" if answer == "ended" else answer

    async def is_cancelled(self, record: str) -> bool:
        """Whether the record of a call, which only its own client can write, says so.

        Raises:
            StoreError: Redis failed.
        """
        return bool(await self._pipe.command("HEXISTS", keys.record(record), "cancel"))

    async def withdraw(self, record: str, code: str) -> bool:
        """End a call for a reason such as `no_worker`, if none has it, or none that goes on.

        Raises:
            StoreError: Redis failed.
        """
        answer: str = await self._withdraw(record, code, "")
        return answer == "ended"

    async def _withdraw(
        self, record: str, code: str, control: str, *, by_worker: bool = False
    ) -> Any:
        answer = await self._cancel(*withdrawal(record, code, control, by_worker=by_worker))
        return answer.decode()

    async def standing(self, records: Sequence[str]) -> list[Standing]:
        """How calls stand, of any pool.

        Raises:
            StoreError: Redis failed.
        """
        return await self._stand(records, "")

    async def attach(self, record: str, reply_to: str) -> Standing:
        """Tell this stream too when a call ends; how the call stands.

        Raises:
            StoreError: Redis failed.
        """
        [standing] = await self._stand([record], keys.replies(reply_to))
        return standing

    async def _stand(self, records: Sequence[str], asker: str) -> list[Standing]:
        found = []
        for start in range(0, len(records), _MOST_RECORDS):
            some = records[start : start + _MOST_RECORDS]
            answers = await self._standing(list(map(keys.record, some)), [keys.GROUP, asker])
            for record, (state, age, reply) in zip(some, answers, strict=True):
                remembered = await self._remembered(record, reply)
                found.append(Standing(state.decode(), age, remembered))
        return found

    async def remember(self, record: str) -> bool:
        """Have the result of a call kept that is under way; False if it has ended."""
        return bool(await self._remember([keys.record(record)], []))

    async def tell(self, reply_to: str, replies: Sequence[Reply]) -> None:
        """Send events to one caller; where workers sign, each has a proof that says of what.

        Raises:
            StoreError: Redis failed.
        """
        where, data = keys.replies(reply_to), wire.replies_to_wire(self._signed(replies))
        # Not from a task of its own: what is sent after this must not come before it.
        await self._pipe.command("XADD", where, "MAXLEN", "~", MOST_REPLIES, "*", "replies", data)
        await self._pipe.command("PEXPIRE", where, REPLIES_KEPT_MS)

    async def now_ms(self) -> int:
        """Redis's clock, asked for now and then and else reckoned.

        Raises:
            StoreError: Redis failed.
        """
        return await self._clock.now_ms()


def _entered(envelope: Envelope) -> tuple[Part, ...]:
    """What `enqueue.lua` gets of one call, its record first."""
    data = wire.envelope_to_wire(envelope)
    large = bodies.is_large(data)
    return (
        keys.record(envelope.record),
        wire.fingerprint(envelope) if envelope.remember else "",
        keys.replies(envelope.reply_to) if envelope.reply_to else "",
        envelope.timeout_ms or 0,
        int(envelope.repeatable),
        envelope.record,
        bodies.reference(data) if large else data,
        keys.body(envelope.record, "call") if large else "",
        data if large else b"",
    )


class _Ended(NamedTuple):
    """What `finish.lua` gets of one call; its reply is signed with others of the moment."""

    entry: str
    reply: Reply
    rest: tuple[Part, ...]


def is_believed(trusted: Verifier | None, reply: Reply) -> bool:
    """Return whether a worker that is trusted sent a reply; about which call is for its reader."""
    if trusted is None:
        return True
    proof = reply.proof
    return proof is not None and trusted.is_proven(
        leaf_of(wire.signed_part(reply)), proof.signature, proof.path
    )


def _is_entry(answer: Any) -> bool:
    """Return whether `enqueue.lua` accepted a call: then it answers with the entry."""
    return isinstance(answer, bytes) and answer[:1].isdigit()


def withdrawal(
    record: str, code: str, control: str, *, by_worker: bool = False
) -> tuple[list[str], list[Part]]:
    """The keys and arguments of `cancel.lua`; `control` is the stream to ask on, or empty.

    `by_worker`: a call that waits is left for a worker to end.
    """
    reply = wire.reply_to_wire(Reply(record, "end", code.encode()))
    horizon = horizon_ms(code, remember=False), horizon_ms(code, remember=True)
    told = (REPLIES_KEPT_MS, MOST_REPLIES)
    return (
        [keys.record(record), keys.body(record, "call")],
        [
            keys.GROUP,
            reply,
            *horizon,
            *told,
            control,
            MOST_ASKS,
            record,
            START_BY_MS,
            int(by_worker),
        ],
    )
