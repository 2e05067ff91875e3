"""Redis store of calls: results by id, tasks and outputs, like `store.Store`.

Any process of a fleet can look up a call by its id, or page through its output. Calls that run in
this process are claimed under a lease, as in `Store`. Calls of workers are only registered: their
state and result are read from the queue's records. All times are of the Redis clock.

A result of more than `wire.BODY_LIMIT` bytes cannot be stored. Redis without persistence loses
everything in a restart.
"""

import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from toolkiln.errors import InputError, StoreError
from toolkiln.fleet import delivery, keys
from toolkiln.fleet.address import RedisClient
from toolkiln.fleet.message_auth import Verifier
from toolkiln.fleet.queue import UNVERIFIED, cancel_arguments, is_trusted
from toolkiln.fleet.wire import (
    CallReply,
    Malformed,
    end_result,
    reply_from_wire,
    reply_to_wire,
    result_from_wire,
    result_to_wire,
)
from toolkiln.model.call import (
    KEEP_SECONDS,
    OUTPUT_CHARACTERS,
    Busy,
    Call,
    Claim,
    Claimed,
    Done,
    IdConflict,
    Lease,
    OutputPage,
    Result,
    Task,
)
from toolkiln.model.identity import Caller
from toolkiln.store.codec import check_page_bounds, decode_guard, key_of, output_not_found, scope_of

_MICRO = 1_000_000
_PROGRESS_CHARACTERS = 2_000
_MAX_TASKS = 1_000
_MAX_WRITTEN = 10_000
_CHUNK = 65_536
"""Characters of an output in one field."""


class RedisCallStore:
    """Calls by caller and id; see `execution.idempotency.CallStore`. Methods are thread-safe.

    All block, and raise StoreError when Redis fails or a record is damaged.
    """

    def __init__(
        self,
        connection: RedisClient,
        clock: Callable[[], float] | None = None,
        trusted: Verifier | None = None,
    ) -> None:
        """`clock` replaces the server's time.

        With `trusted`, a result counts only if one of these workers signed it or this object wrote
        it, because any client could have written others.
        """
        self.namespace = connection.namespace
        """Key prefix of a restricted Redis user; empty without restrictions."""
        self._trusted = trusted
        self._written: dict[bytes, None] = {}
        """Digests of results that this object wrote, oldest first."""
        self._records = connection.script("records")
        self._outputs = connection.script("outputs")
        self._cancel = connection.script("cancel")
        self._clock = clock

    def key(self, caller: Caller, call_id: str) -> str:
        """Return the key of a caller's call."""
        return self._namespaced(key_of(caller, call_id))

    def _namespaced(self, name: str) -> str:
        return f"{self.namespace}:{name}" if self.namespace else name

    def claim(
        self, call: Call, *, caller: Caller, fingerprint: str, owner: str, lease_seconds: float
    ) -> Claim:
        key, token = self.key(caller, call.id), secrets.token_hex(16)
        state, *fields = self._run(
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
            return Claimed(key=key, token=token, attempt=fields[0])
        if state == b"conflict":
            return IdConflict()
        if state == b"done":
            return Done(result=self._result(key, fields[0], call.id, call.tool))
        return Busy(owner=_text(fields[0]), remaining=int(fields[1]) / _MICRO)

    def note(self, caller: Caller, call: Call) -> None:
        """Register a queued call, so that it can be found by its id and listed."""
        names = _bytes(call.id), _bytes(call.tool)
        self._run("note", self.key(caller, call.id), *names, scope=scope_of(caller))

    def renew(self, claim: Claimed, lease_seconds: float) -> Lease:
        lease = _micro(lease_seconds), _micro(KEEP_SECONDS)
        cancel = self._run("renew", claim.key, claim.token, *lease)
        if cancel is None:
            return Lease.LOST
        return Lease.CANCEL if cancel else Lease.HELD

    def finish(self, claim: Claimed, result: Result, keep_seconds: float = KEEP_SECONDS) -> bool:
        return self._end(claim, result, keep_seconds, "done")

    def release(self, claim: Claimed, result: Result) -> bool:
        return self._end(claim, result, KEEP_SECONDS, "free")

    def set_progress(self, claim: Claimed, text: str) -> bool:
        return self.note_progress(claim.key, text, claim.token)

    def note_progress(self, record: str, text: str, token: str = "") -> bool:
        """Store the progress of a call; without a token, of a registered call of the queue."""
        progress = _bytes(text[:_PROGRESS_CHARACTERS])
        return bool(self._run("progress", record, token, progress))

    def request_cancel(self, caller: Caller, call_id: str) -> bool:
        record = self.key(caller, call_id)
        answer = self._run("cancel", record)
        if not isinstance(answer, bytes):
            return answer is not None
        stream, by_worker = answer.decode(), self._trusted is not None
        control = keys.asks_of(stream) if self.namespace else keys.control_of(stream)
        outcome = self._cancel(*cancel_arguments(record, "cancelled", control, by_worker=by_worker))
        return outcome in (b"ended", b"asked")

    def task(self, caller: Caller, call_id: str) -> Task | None:
        record = self.key(caller, call_id)
        row = self._run("task", record)
        return None if row is None else self._task(record, row)

    def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        limit = max(0, min(limit, _MAX_TASKS))
        rows = self._run("tasks", self._namespaced(""), limit, scope=scope_of(caller))
        return [self._task("", row) for row in rows]

    def save_output(self, caller: Caller, text: str, keep_seconds: float = KEEP_SECONDS) -> str:
        """Store a text; the caller's oldest outputs beyond `OUTPUT_CHARACTERS` are removed."""
        handle = secrets.token_hex(16)
        starts = range(0, len(text), _CHUNK)
        chunks = [_bytes(text[start : start + _CHUNK]) for start in starts]
        scope = scope_of(caller)
        properties = scope, len(text), _micro(keep_seconds)
        bounds = keys.outputs_of(self._namespaced(scope)), OUTPUT_CHARACTERS
        self._outputs([], ["keep", self._now, keys.output(handle), *properties, *bounds, *chunks])
        return handle

    def read_output(self, caller: Caller, handle: str, offset: int, limit: int) -> OutputPage:
        check_page_bounds(offset, limit)
        last = 1 << 62  # Lua represents larger numbers inexactly
        first = min(offset, last) // _CHUNK
        chunk_range = first, min(offset + limit - 1, last) // _CHUNK
        key = keys.output(handle)
        page = self._outputs([], ["read", self._now, key, scope_of(caller), *chunk_range])
        if page is None:
            raise output_not_found()
        total, *chunks = page
        start = min(offset, total)
        end = min(start + limit, total)
        skipped = start - first * _CHUNK
        text = "".join(map(_text, chunks))[skipped : skipped + end - start] if chunks else ""
        next_offset = end if end < total else None
        return OutputPage(text=text, offset=start, total=total, next_offset=next_offset)

    def close(self) -> None:
        """Do nothing: the connection belongs to its creator."""

    def _end(self, claim: Claimed, result: Result, seconds: float, state: str) -> bool:
        try:
            body = result_to_wire(result)
        except InputError as error:
            text = f"the result of call {result.call_id!r} cannot be stored: {error.message}"
            raise StoreError(text, hint=error.hint) from None
        reply = reply_to_wire(CallReply(claim.key, "result", body))
        if self._trusted is not None:
            self._written[sha256(reply).digest()] = None
            if len(self._written) > _MAX_WRITTEN:
                del self._written[next(iter(self._written))]
        end = reply, _micro(seconds), state
        return bool(self._run("finish", claim.key, claim.token, *end))

    def _task(self, record: str, row: Sequence[bytes]) -> Task:
        with decode_guard("the record of a call"):
            call_id, tool, state, progress, started, reply = row
            names = _text(call_id), _text(tool)
            result = self._result(record, reply, *names) if reply else None
            return Task.model_validate(
                {
                    "id": names[0],
                    "tool": names[1],
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
                raise Malformed("it belongs to another call")
            is_own = sha256(data).digest() in self._written
            if reply.record != record or not (is_own or is_trusted(self._trusted, reply)):
                return end_result(UNVERIFIED.decode(), call_id=call_id, tool=tool)
            if reply.kind == "stored":
                reply = self._stored(record, reply)
            if reply.kind == "result":
                return result_from_wire(reply.body)
        except Malformed as error:
            raise StoreError(
                "a stored result cannot be read",
                hint="another version of Toolkiln wrote it, or it is damaged; "
                "repeat the call under another id",
            ) from error
        return end_result(reply.body.decode("ascii", "replace"), call_id=call_id, tool=tool)

    def _stored(self, record: str, reply: CallReply) -> CallReply:
        data = self._outputs([], ["body", "", keys.body(record, "result")])
        page = (
            reply_from_wire(data) if data and delivery.body_reference(data) == reply.body else None
        )
        return page or CallReply(record, "end", b"lost")

    @property
    def _now(self) -> str:
        return "" if self._clock is None else str(_micro(self._clock()))

    def _run(self, action: str, record: str, *arguments: str | bytes | int, scope: str = "") -> Any:
        claims = keys.claims_of(self._namespaced(scope))
        touched = [keys.claim(record), claims, keys.record(record)]
        if not self.namespace:
            touched.append(keys.approvals_of_call(record))
        return self._records(touched, [action, self._now, *arguments])


def _micro(seconds: float) -> int:
    return round(seconds * _MICRO)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
