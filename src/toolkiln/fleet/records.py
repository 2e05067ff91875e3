"""What outlives a call, in Redis: results by id, tasks, outputs; as `store.Store` has them.

So that any process of a fleet can ask for a call by its id, or page through what it gave.
Calls that this process makes by itself are claimed here, under a lease, as in the store.
Calls that a worker makes are only noted: how they stand, and what came of them, is read
from their records in the queue. The server's clock is the only one.

A result of more than `wire.BODY_LIMIT` bytes cannot be kept. A Redis without persistence
loses in a restart what it remembers.
"""

import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from toolkiln.errors import InputError
from toolkiln.fleet import bodies, keys
from toolkiln.fleet.connection import Connection
from toolkiln.fleet.endings import ended
from toolkiln.fleet.queue import UNVERIFIED, is_believed, withdrawal
from toolkiln.fleet.signatures import Verifier
from toolkiln.fleet.wire import (
    Malformed,
    Reply,
    reply_from_wire,
    reply_to_wire,
    result_from_wire,
    result_to_wire,
)
from toolkiln.model import Call, Caller, Result, Task
from toolkiln.store import (
    KEEP_SECONDS,
    OUTPUT_CHARACTERS,
    Busy,
    Claim,
    Claimed,
    Conflict,
    Done,
    Lease,
    OutputPage,
    StoreError,
    intact,
    key_of,
    no_output,
    page_bounds,
    scope_of,
)

_MICRO = 1_000_000
_PROGRESS_CHARACTERS = 2_000
_MOST_TASKS = 1_000
_MOST_WRITTEN = 10_000
_CHUNK = 65_536
"""Characters of a kept text in one field."""


class RedisRecords:
    """Calls by their callers' ids; methods block and are thread-safe.

    All raise StoreError when Redis fails or a record is damaged.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float] | None = None,
        trusted: Verifier | None = None,
    ) -> None:
        """`clock` replaces the server's time.

        With `trusted` workers, a result is believed that one of them signed, or that this
        object wrote: any client could have written the others.
        """
        self.namespace = connection.namespace
        """How keys of the user's own begin; empty if it may use those of all users."""
        self._trusted = trusted
        self._written: dict[bytes, None] = {}
        """The digests of results that this object wrote, the oldest first."""
        self._records = connection.script("records")
        self._outputs = connection.script("outputs")
        self._cancel = connection.script("cancel")
        self._clock = clock

    def key(self, caller: Caller, call_id: str) -> str:
        """What a call of this caller is known by."""
        return self._own(key_of(caller, call_id))

    def _own(self, name: str) -> str:
        return f"{self.namespace}:{name}" if self.namespace else name

    def claim(
        self, call: Call, *, caller: Caller, fingerprint: str, owner: str, lease_seconds: float
    ) -> Claim:
        """Asks to run a call: of all who ask for one id at once, one is told `Claimed`.

        `fingerprint` stands for all that makes two calls the same; `owner` is shown to those
        who have to wait.
        """
        key, token = self.key(caller, call.id), secrets.token_hex(16)
        state, *told = self._run(
            "claim",
            key,
            _bytes(fingerprint),
            _bytes(owner),
            token,
            _micro(lease_seconds),
            _micro(KEEP_SECONDS),
            _bytes(call.id),
            _bytes(call.tool),
            scope=scope_of(caller),
        )
        if state == b"claimed":
            return Claimed(key=key, token=token, attempt=told[0])
        if state == b"conflict":
            return Conflict()
        if state == b"done":
            return Done(result=self._result(key, told[0], call.id, call.tool))
        return Busy(owner=_text(told[0]), remaining=int(told[1]) / _MICRO)

    def note(self, caller: Caller, call: Call) -> None:
        """Lets a call that goes into the queue be found by its id, and listed."""
        about = _bytes(call.id), _bytes(call.tool)
        self._run("note", self.key(caller, call.id), *about, scope=scope_of(caller))

    def renew(self, claim: Claimed, lease_seconds: float) -> Lease:
        """Extends the lease from now on; says whether to go on, to stop, or that it is lost."""
        lease = _micro(lease_seconds), _micro(KEEP_SECONDS)
        cancel = self._run("renew", claim.key, claim.token, *lease)
        if cancel is None:
            return Lease.LOST
        return Lease.CANCEL if cancel else Lease.HELD

    def finish(self, claim: Claimed, result: Result, keep_seconds: float = KEEP_SECONDS) -> bool:
        """Records how the call ended. Only the first result of the current owner counts.

        False: it ended before, was released, or another took over; `task` and `claim` tell.
        """
        return self._end(claim, result, keep_seconds, "done")

    def release(self, claim: Claimed, result: Result) -> bool:
        """Records how the call ended and gives the id free again, since nothing ran.

        The result is there for those who were told the id, until somebody claims it anew.
        False if the claim was lost.
        """
        return self._end(claim, result, KEEP_SECONDS, "free")

    def set_progress(self, claim: Claimed, text: str) -> bool:
        """Notes the last thing that the tool reported, cut to 2,000 characters."""
        return self._progress(claim.key, claim.token, text)

    def note_progress(self, record: str, text: str) -> bool:
        """The same for a call of the queue that was noted."""
        return self._progress(record, "", text)

    def _progress(self, record: str, token: str, text: str) -> bool:
        said = _bytes(text[:_PROGRESS_CHARACTERS])
        return bool(self._run("progress", record, token, said))

    def request_cancel(self, caller: Caller, call_id: str) -> bool:
        """Asks the owner of a running call to stop it; False if it is not running."""
        record = self.key(caller, call_id)
        asked = self._run("cancel", record)
        if not isinstance(asked, bytes):
            return asked is not None
        stream, by_worker = asked.decode(), self._trusted is not None
        control = keys.asks_of(stream) if self.namespace else keys.control_of(stream)
        answer = self._cancel(*withdrawal(record, "cancelled", control, by_worker=by_worker))
        return answer in (b"ended", b"asked")

    def task(self, caller: Caller, call_id: str) -> Task | None:
        """What became of a call of this caller; None if there is none, or none any more."""
        record = self.key(caller, call_id)
        row = self._run("task", record)
        return None if row is None else self._task(record, row)

    def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """The caller's calls, the newest first, without their results; at most 1,000."""
        at_most = max(0, min(limit, _MOST_TASKS))
        rows = self._run("tasks", self._own(""), at_most, scope=scope_of(caller))
        return [self._task("", row) for row in rows]

    def keep_output(self, caller: Caller, text: str, keep_seconds: float = KEEP_SECONDS) -> str:
        """Keeps a text for paging; the handle cannot be guessed and serves this caller only.

        The caller's oldest outputs go when there are more than `OUTPUT_CHARACTERS`.
        """
        handle = secrets.token_hex(16)
        starts = range(0, len(text), _CHUNK)
        chunks = [_bytes(text[start : start + _CHUNK]) for start in starts]
        scope = scope_of(caller)
        about = scope, len(text), _micro(keep_seconds)
        bounds = keys.outputs_of(self._own(scope)), OUTPUT_CHARACTERS
        self._outputs([], ["keep", self._now, keys.output(handle), *about, *bounds, *chunks])
        return handle

    def read_output(self, caller: Caller, handle: str, offset: int, limit: int) -> OutputPage:
        """A page of a kept text; an offset behind the end gives an empty one.

        Raises:
            NotFound: the handle is unknown, expired or another caller's.
            InputError: there is no such page.
        """
        page_bounds(offset, limit)
        last = 1 << 62  # a larger number has no exact form there
        first = min(offset, last) // _CHUNK
        wanted = first, min(offset + limit - 1, last) // _CHUNK
        where = keys.output(handle)
        found = self._outputs([], ["read", self._now, where, scope_of(caller), *wanted])
        if found is None:
            raise no_output()
        total, *chunks = found
        start = min(offset, total)
        end = min(start + limit, total)
        skipped = start - first * _CHUNK
        text = "".join(map(_text, chunks))[skipped : skipped + end - start] if chunks else ""
        next_offset = end if end < total else None
        return OutputPage(text=text, offset=start, total=total, next_offset=next_offset)

    def close(self) -> None:
        """Nothing is open: the connection is whoever made it's."""

    def _end(self, claim: Claimed, result: Result, seconds: float, state: str) -> bool:
        try:
            body = result_to_wire(result)
        except InputError as error:
            text = f"the result of call {result.call_id!r} cannot be kept: {error.message}"
            raise StoreError(text, hint=error.hint) from None
        reply = reply_to_wire(Reply(claim.key, "result", body))
        if self._trusted is not None:
            self._written[sha256(reply).digest()] = None
            if len(self._written) > _MOST_WRITTEN:
                del self._written[next(iter(self._written))]
        ended = reply, _micro(seconds), state
        return bool(self._run("finish", claim.key, claim.token, *ended))

    def _task(self, record: str, row: Sequence[bytes]) -> Task:
        with intact("the record of a call"):
            call_id, tool, state, progress, started, reply = row
            about = _text(call_id), _text(tool)
            result = self._result(record, reply, *about) if reply else None
            return Task.model_validate(
                {
                    "id": about[0],
                    "tool": about[1],
                    "state": state.decode(),
                    "result": result,
                    "progress": _text(progress),
                    "started": int(started) / _MICRO,
                }
            )

    def _result(self, record: str, data: bytes, call_id: str, tool: str) -> Result:
        try:
            reply = reply_from_wire(data)
            if reply.record != record and self._trusted is None:
                raise Malformed("it is the result of another call")
            is_own = sha256(data).digest() in self._written
            if reply.record != record or not (is_own or is_believed(self._trusted, reply)):
                return ended(UNVERIFIED.decode(), call_id=call_id, tool=tool)
            if reply.kind == "stored":
                reply = self._stored(record, reply)
            if reply.kind == "result":
                return result_from_wire(reply.body)
        except Malformed as error:
            raise StoreError(
                "a kept result cannot be read",
                hint="another version of Toolkiln wrote it, or it is damaged; "
                "repeat the call under another id",
            ) from error
        return ended(reply.body.decode("ascii", "replace"), call_id=call_id, tool=tool)

    def _stored(self, record: str, reply: Reply) -> Reply:
        data = self._outputs([], ["body", "", keys.body(record, "result")])
        found = reply_from_wire(data) if data and bodies.reference(data) == reply.body else None
        return found or Reply(record, "end", b"lost")

    @property
    def _now(self) -> str:
        return "" if self._clock is None else str(_micro(self._clock()))

    def _run(self, act: str, record: str, *arguments: str | bytes | int, scope: str = "") -> Any:
        of_caller = keys.claims_of(self._own(scope))
        touched = [keys.claim(record), of_caller, keys.record(record)]
        if not self.namespace:
            touched.append(keys.approvals_of_call(record))
        return self._records(touched, [act, self._now, *arguments])


def _micro(seconds: float) -> int:
    return round(seconds * _MICRO)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
