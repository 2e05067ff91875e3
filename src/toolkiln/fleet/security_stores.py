"""Redis stores of sessions, rate buckets and approvals, shared by several machines.

All times are of the Redis clock, and each change is one script. `security` decides who gets a
session. All methods raise StoreError when Redis fails or a record is damaged.

Redis without persistence, or with eviction, may lose sessions, whose callers then have to sign in
again, and buckets, which are then full. Processes that can write here are trusted.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from toolkiln.errors import InputError, NotAllowed, StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.address import RedisClient, open_redis
from toolkiln.model.identity import SessionRecord
from toolkiln.model.policy import Approval, ApprovalVerdict, Draw, Remember
from toolkiln.store import rules
from toolkiln.store.codec import decode_guard, hash_of, write_json

if TYPE_CHECKING:
    from toolkiln.fleet.call_store import RedisCallStore
    from toolkiln.store.approvals import SqlApprovals
    from toolkiln.store.security_stores import SqlBuckets
    from toolkiln.store.store import Store


class RedisSessions:
    """Sessions by the hash of their token; see `security.sessions.SessionStore`.

    A session is kept for a day after it expires, for running calls.
    """

    def __init__(self, connection: RedisClient) -> None:
        """A restricted Redis user can only look up sessions by their tokens."""
        self._user = connection.namespace
        self._script = connection.script("sessions")

    def put(self, token_hash: str, session: SessionRecord, seconds: float) -> None:
        index = "" if session.key_id is None else keys.sessions_of_key(session.key_id)
        name = session.trace_id.encode("utf-8", "surrogatepass")
        values = _write(session), _milliseconds(seconds), index, name
        self._run_for_key("put", keys.session(token_hash), *values)

    def get(self, token_hash: str, *, running: bool = False) -> tuple[SessionRecord, float] | None:
        found = self._script([], ["get", keys.SESSIONS, keys.session(token_hash)])
        if found is None or (found[1] == 0 and not running):
            return None
        return _read(found[0]), found[1] / 1000

    def renew(self, token_hash: str, seconds: float) -> bool:
        return bool(self._run_for_key("renew", keys.session(token_hash), _milliseconds(seconds)))

    def end(self, token_hash: str) -> bool:
        return bool(self._run_for_key("end", keys.session(token_hash)))

    def end_by_trace_id(self, trace_id: str) -> SessionRecord | None:
        name = trace_id.encode("utf-8", "surrogatepass")
        found = self._run([keys.SESSIONS], ["end_named", name])
        return None if found is None else _read(found)

    def end_by_key(self, key_id: str) -> int:
        total, deleted = 0, 1
        while deleted:
            deleted, valid = self._run_for_key("end_of_key", keys.sessions_of_key(key_id))
            total += valid
        return total

    def alive(self, limit: int = 100) -> list[tuple[SessionRecord, float]]:
        answer = self._run([keys.SESSIONS], ["alive", limit])
        pairs = zip(answer[::2], answer[1::2], strict=True)
        return [(_read(text), left / 1000) for text, left in pairs]

    def _run_for_key(self, action: str, key: str, *arguments: str | bytes | int) -> Any:
        return self._run([keys.SESSIONS, key], [action, *arguments])

    def _run(self, touched: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        if self._user:
            raise NotAllowed(
                f"the Redis user {self._user!r} may not create, change or list sessions",
                hint="create a session at a trusted front (`toolkiln sessions create`) and "
                "pass its token",
            )
        return self._script(touched, arguments)


class RedisBuckets:
    """Token buckets: full at first, refilled steadily, deleted from Redis when full.

    A clock that is set back counts as no time passed. After a timeout the tokens may be gone.
    """

    def __init__(self, connection: RedisClient) -> None:
        self._run = connection.script("take")

    def take(self, draws: Sequence[Draw]) -> float:
        rates = {keys.bucket(draw.bucket): draw.rate for draw in draws}
        for rate in rates.values():
            if not (0 < rate.count < inf and 0 < rate.seconds < inf):
                raise InputError(f"{rate.count} in {rate.seconds} s is not a valid rate")
        if not rates:
            return 0.0
        sizes = [size for rate in rates.values() for size in (rate.count, rate.seconds * 1e6)]
        return int(self._run(list(rates), sizes)) / 1000


def _milliseconds(seconds: float) -> int:
    if not 0 < seconds < inf:
        raise InputError(f"a session cannot be valid for {seconds} s")
    return ceil(seconds * 1000)


def _write(session: SessionRecord) -> bytes:
    try:
        # Not pydantic's JSON, which rejects lone surrogates, nor ASCII, in which a surrogate
        # pair would decode to one character.
        text = json.dumps(dict(session), ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "the agent's state must be plain JSON"
        raise StoreError(f"a session cannot be stored: {error}", hint=hint) from None
    return text.encode("utf-8", "surrogatepass")


def _read(data: bytes | None) -> SessionRecord:
    try:
        return SessionRecord.model_validate(json.loads(data or b""))
    except (ValueError, RecursionError):
        raise StoreError(
            "a stored session cannot be read",
            hint="another version of Toolkiln wrote it, or it is damaged; create another session",
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")


_MAX_ROWS = 10_000
_MICRO = 1_000_000
_TIMES = ("created", "expires", "decided")


class RedisApprovals:
    """Approvals by id, or by a prefix of at least six characters; see `ApprovalStore`."""

    def __init__(self, connection: RedisClient, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces the server's time."""
        self._script = connection.script("approvals")
        self._clock = clock

    def ask(
        self,
        request: Approval,
        fingerprint: str,
        call_key: str,
        remember_keys: Mapping[Remember, str] | None = None,
    ) -> Approval:
        """Store a request, or return that of the same call; Redis assigns id, times and state."""
        request_fields = request.model_dump(exclude={"id", "state", "self_approved", *_TIMES})
        remember_keys = remember_keys or {}
        remember_indexes = [
            _remembered(remember_keys[kind]) if kind in remember_keys else ""
            for kind in rules.REMEMBER_SECONDS
        ]
        wait = round((request.expires - request.created) * _MICRO)
        row = self._run(
            "ask",
            secrets.token_hex(6),
            _bytes(write_json("the arguments of a call", request_fields)),
            _bytes(fingerprint),
            wait,
            *remember_indexes,
            extra_keys=[keys.approvals_of_call(call_key)],
        )
        return _approval(row)

    def get(self, approval_id: str) -> Approval | None:
        if not rules.ID_OR_PREFIX.fullmatch(approval_id):
            return None
        found = [_approval(row) for row in self._run("get", approval_id)]
        if len(found) > 1:
            raise rules.several_approvals(approval_id, [approval.id for approval in found])
        return found[0] if found else None

    def decide(self, approval_id: str, verdict: ApprovalVerdict) -> Approval:
        rules.check_verdict(verdict)
        found = self.get(approval_id)
        if found is None:
            raise rules.no_approval(approval_id)
        answer = {
            "decided_by": verdict.by,
            "reason": verdict.reason,
            "edited": verdict.arguments,
            "remember": verdict.remember,
        }
        remember = verdict.remember
        seconds = rules.REMEMBER_SECONDS[remember] if remember else 0
        result = self._run(
            "decide",
            found.id,
            "approved" if verdict.approve else "rejected",
            _bytes(write_json("the arguments", answer)),
            remember or "",
            round(seconds * _MICRO),
        )
        if result is None:
            assert remember is not None
            raise rules.not_remembered(remember)
        is_first, *row = result
        if not row:
            raise rules.no_approval(approval_id)
        decided = _approval(row[0])
        if not is_first:
            raise rules.too_late(decided)
        return decided

    def use(self, approval_id: str, fingerprint: str) -> Approval | None:
        row = self._run("use", self._full_id(approval_id), _bytes(fingerprint))
        return None if row is None else _approval(row)

    def withdraw(self, approval_id: str) -> bool:
        return bool(self._run("withdraw", self._full_id(approval_id)))

    def remembered(self, keys: Sequence[str]) -> Approval | None:
        row = self._run("remembered", extra_keys=[_remembered(key) for key in keys])
        return None if row is None else _approval(row)

    def forget(self, approval_id: str) -> bool:
        return bool(self._run("forget", self._full_id(approval_id)))

    def of_call(self, call_key: str) -> list[Approval]:
        rows = self._run("of_call", extra_keys=[keys.approvals_of_call(call_key)])
        return [_approval(row) for row in rows]

    def list(self, states: Sequence[str] = ("pending",), limit: int = 100) -> list[Approval]:
        at_most = max(0, min(limit, _MAX_ROWS))
        return [_approval(row) for row in self._run("list", at_most, *map(_bytes, states))]

    def _full_id(self, approval_id: str) -> str:
        found = self.get(approval_id)
        return found.id if found else ""

    def _run(
        self, action: str, *arguments: str | bytes | int, extra_keys: Sequence[str] = ()
    ) -> Any:
        now = "" if self._clock is None else str(round(self._clock() * _MICRO))
        return self._script(
            [keys.APPROVALS, keys.APPROVAL_IDS, *extra_keys], [action, now, *arguments]
        )


def _remembered(key: str) -> str:
    return keys.remembered(hash_of([key]))


def _approval(row: Any) -> Approval:
    with decode_guard("an approval"):
        approval_id, request, state, *times, answer = row
        request_fields = json.loads(request.decode("utf-8", "surrogatepass"))
        verdict_fields = json.loads(answer.decode("utf-8", "surrogatepass")) if answer else {}
        timestamps = {
            name: int(time) / _MICRO for name, time in zip(_TIMES, times, strict=True) if time
        }
        assigned = {"id": approval_id.decode(), "state": state.decode(), **timestamps}
        return Approval.model_validate({**request_fields, **verdict_fields, **assigned})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class RedisStores:
    """Stores of sessions, approvals, rates and calls in the Redis of a fleet.

    A restricted client keeps approvals and rates in its local store: it may not decide about
    those of others.
    """

    def __init__(
        self, url: str, store: "Callable[[], Store]", worker_keys: Sequence[str] = ()
    ) -> None:
        """`worker_keys` verify results; empty: all results are trusted."""
        self._url = url
        self._store = store
        self._worker_keys = worker_keys

    def sessions(self) -> "RedisSessions":
        return RedisSessions(self._redis)

    def approvals(self) -> "RedisApprovals | SqlApprovals":
        return self._store().approvals if self._redis.namespace else RedisApprovals(self._redis)

    def rates(self) -> "RedisBuckets | SqlBuckets":
        return self._store().buckets if self._redis.namespace else RedisBuckets(self._redis)

    def calls(self) -> "RedisCallStore":
        from toolkiln.fleet.call_store import RedisCallStore
        from toolkiln.fleet.message_auth import Verifier

        trusted = Verifier(self._worker_keys) if self._worker_keys else None
        return RedisCallStore(self._redis, trusted=trusted)

    def close(self) -> None:
        if connection := self.__dict__.get("_redis"):
            connection.close()

    @cached_property
    def _redis(self) -> RedisClient:
        return open_redis(self._url)
