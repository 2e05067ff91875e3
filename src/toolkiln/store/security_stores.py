"""SQL stores of sessions, API keys, rate buckets and tool settings.

A token bucket starts full, refills at its rate and loses a token per use; a clock that is set
back adds nothing, one that is set ahead at most fills it. Methods block and are thread-safe; all
raise StoreError when the database fails.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from sqlalchemy import (
    Connection,
    Double,
    Integer,
    String,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    update,
)

from toolkiln.errors import InputError, NotFound, TooLate, nearest_hint
from toolkiln.model.identity import Caller, KeyRecord, SessionRecord
from toolkiln.model.policy import Draw, Rate
from toolkiln.store.codec import decode_guard, hash_of, write_json
from toolkiln.store.database import Database, Pruner
from toolkiln.store.tables import AnyText, buckets, keys, sessions, settings

# Rounding tolerance: a caller that waited the returned time must get its token.
_ROUNDING = 1e-6


class SqlBuckets:
    """Token buckets by name, shared by all processes."""

    def __init__(self, database: Database, pruner: Pruner) -> None:
        self._database = database
        self._pruner = pruner
        self._add = database.insert(buckets).on_conflict_do_nothing()
        self._set = database.upsert(buckets)
        # Ordered, to avoid deadlocks.
        self._locked = (
            select(buckets)
            .where(buckets.c.key.in_(bindparam("the_keys", type_=String, expanding=True)))
            .order_by(buckets.c.key)
            .with_for_update()
        )

    def take(self, draws: Sequence[Draw]) -> float:
        """Take a token from each bucket; returns 0, or the seconds to wait if one is empty."""
        rates = {hash_of([draw.bucket]): draw.rate for draw in draws}
        for rate in rates.values():
            if not (0 < rate.count < inf and 0 < rate.seconds < inf):
                raise InputError(f"{rate.count} in {rate.seconds} s is not a valid rate")
        if not rates:
            return 0.0
        self._pruner.when_due()
        while (wait := self._try_take(rates)) is None:
            pass
        return wait

    def _try_take(self, rates: Mapping[str, Rate]) -> float | None:
        """Take as `take`; None if missing buckets had to be created first."""
        with self._database.transaction() as connection:
            rows = connection.execute(self._locked, {"the_keys": sorted(rates)}).all()
            now = self._database.read_time(connection)
            missing = sorted(rates.keys() - {row.key for row in rows})
            if missing:
                connection.execute(self._add, [_full(key, rates[key], now) for key in missing])
                return None
            levels = {row.key: _level(row, rates[row.key], now) for row in rows}
            refused = any(level < 1 - _ROUNDING for level in levels.values())
            tokens = 0 if refused else 1
            changed = [
                _row(row.key, levels[row.key] - tokens, rates[row.key], now)
                for row in rows
                if tokens or row.at > now  # the clock was set back: count from the new time
            ]
            if changed:
                connection.execute(self._set, changed)
        if not refused:
            return 0.0
        return max((1 - level) / _per_second(rates[key]) for key, level in levels.items())


def _per_second(rate: Rate) -> float:
    return rate.count / rate.seconds


def _level(row: Any, rate: Rate, now: float) -> float:
    with decode_guard("a rate bucket"):
        filled: float = row.level + max(0.0, now - row.at) * _per_second(rate)
        return min(filled, float(rate.count))


def _row(key: str, level: float, rate: Rate, now: float) -> dict[str, Any]:
    full_in = (rate.count - level) / _per_second(rate)
    return {"key": key, "level": level, "at": now, "kept_until": now + full_in}


def _full(key: str, rate: Rate, now: float) -> dict[str, Any]:
    # Kept for a while, or it could be pruned before its first use.
    return {**_row(key, float(rate.count), rate, now), "kept_until": now + rate.seconds}


EXPIRED_SECONDS = 86_400.0
"""How long an expired session is kept, for calls that started before."""

_LAST_USED_SECONDS = 60.0  # a key's last use is recorded at most this often
_MIN_PREFIX = 4

_TOKEN = bindparam("the_token", type_=String)
_SECONDS = bindparam("seconds", type_=Double)
_KEY_ID = bindparam("the_key_id", type_=AnyText)
_END_BY_KEY = delete(sessions).where(sessions.c.key_id == _KEY_ID)


class SqlSessions:
    """Sessions by the hash of their token."""

    def __init__(self, database: Database, pruner: Pruner) -> None:
        self._database = database
        self._pruner = pruner
        now = database.now
        # A session from the future is invalid: the clock was set back by an unknown amount.
        is_valid = and_(sessions.c.created <= now, sessions.c.expires > now)
        validity = {
            "granted": _SECONDS,
            "expires": now + _SECONDS,
            "kept_until": now + _SECONDS + EXPIRED_SECONDS,
        }
        self._put = database.upsert(sessions, created=now, **validity)
        key = select(keys.c.revoked).where(keys.c.id == _KEY_ID)
        # A concurrent revocation waits for this lock, and then finds the session.
        self._key = key.with_for_update(read=True)
        columns = select(
            sessions.c.trace_id,
            sessions.c.key_id,
            sessions.c.caller,
            sessions.c.granted,
            (sessions.c.expires - now).label("remaining"),
        )
        self._get = columns.where(
            sessions.c.token == _TOKEN, sessions.c.created <= now, sessions.c.kept_until > now
        )
        self._settle = (
            update(sessions)
            .where(sessions.c.token == _TOKEN, sessions.c.expires <= now)
            .values(expires=sessions.c.created, granted=0.0)
        )
        self._renew = update(sessions).where(sessions.c.token == _TOKEN, is_valid).values(validity)
        self._end = delete(sessions).where(sessions.c.token == _TOKEN)
        by_trace_id = sessions.c.trace_id == bindparam("the_trace_id")
        self._by_trace_id = columns.where(by_trace_id, is_valid)
        self._end_by_trace_id = delete(sessions).where(by_trace_id, is_valid)
        self._end_by_key = _END_BY_KEY.returning(is_valid)
        self._alive = (
            columns.where(is_valid)
            .order_by(sessions.c.created.desc(), sessions.c.token)
            .limit(bindparam("at_most", type_=Integer))
        )

    def put(self, token_hash: str, session: SessionRecord, seconds: float) -> None:
        """Store a session that is valid for this many seconds."""
        self._pruner.when_due()
        row = {
            "token": token_hash,
            "trace_id": session.trace_id,
            "key_id": session.key_id,
            "caller": write_json("a session", dict(session.caller)),
            "seconds": _check_seconds(seconds),
        }
        with self._database.transaction() as connection:
            if session.key_id is not None:
                revoked = connection.scalar(self._key, {"the_key_id": session.key_id})
                if revoked is not None:
                    raise InputError("the key was revoked", hint="request another key")
            connection.execute(self._put, self._database.values(**row))

    def get(self, token_hash: str, *, running: bool = False) -> tuple[SessionRecord, float] | None:
        """Return a valid session and its remaining seconds.

        With `running`, also a session that expired less than a day ago, with 0 seconds.
        """
        row = self._database.read_one(self._get, the_token=token_hash)
        if row is None:
            return None
        session, left = _session(row)
        if left == 0 and row.granted > 0:
            # Stored, so that setting the clock back does not revive it.
            self._database.change(self._settle, the_token=token_hash)
        return (session, left) if left > 0 or running else None

    def renew(self, token_hash: str, seconds: float) -> bool:
        """Extend a valid session to this many seconds from now; False if it expired."""
        _check_seconds(seconds)
        return self._database.change(self._renew, the_token=token_hash, seconds=seconds) > 0

    def end(self, token_hash: str) -> bool:
        """End a session, including for running calls; False if it is unknown."""
        return self._database.change(self._end, the_token=token_hash) > 0

    def end_by_trace_id(self, trace_id: str) -> SessionRecord | None:
        """End a valid session by its public id; None if it is unknown."""
        parameters = self._database.values(the_trace_id=trace_id)
        with self._database.transaction() as connection:
            row = connection.execute(self._by_trace_id, parameters).first()
            connection.execute(self._end_by_trace_id, parameters)
        return None if row is None else _session(row)[0]

    def end_by_key(self, key_id: str) -> int:
        """End all sessions of an API key; returns how many were valid."""
        with self._database.transaction() as connection:
            parameters = self._database.values(the_key_id=key_id)
            return sum(connection.scalars(self._end_by_key, parameters))

    def alive(self, limit: int = 100) -> list[tuple[SessionRecord, float]]:
        """Return the valid sessions, newest first, with their remaining seconds."""
        rows = self._database.read(self._alive, at_most=max(0, min(limit, 10_000)))
        return [_session(row) for row in rows]


class SqlApiKeys:
    """API keys by hash."""

    def __init__(self, database: Database) -> None:
        self._database = database
        now = database.now
        add = database.insert(keys)
        self._add = add.on_conflict_do_nothing(
            index_elements=[keys.c.name_key], index_where=keys.c.revoked.is_(None)
        ).returning(keys.c.id)
        used = keys.c.last_used
        is_stale = or_(used.is_(None), used <= now - _LAST_USED_SECONDS, used > now)
        is_valid = and_(
            keys.c.revoked.is_(None), or_(keys.c.expires.is_(None), keys.c.expires > now)
        )
        is_match = and_(keys.c.hash == bindparam("the_hash", type_=String), is_valid)
        self._find = select(keys, is_stale.label("stale")).where(is_match)
        self._use = update(keys).where(is_match).values(last_used=now).returning(keys)
        self._any = select(keys.c.id).where(is_valid).limit(1)
        self._all = select(keys).order_by(keys.c.created.desc(), keys.c.id)
        until = now + bindparam("the_keep", type_=Double)
        self._retire = (
            update(keys)
            .where(keys.c.id == _KEY_ID, keys.c.revoked.is_(None))
            .values(
                name=bindparam("the_name", type_=AnyText),
                name_key=bindparam("the_name_key", type_=String),
                expires=case((keys.c.expires < until, keys.c.expires), else_=until),
            )
        )
        self._revoke = (
            update(keys)
            .where(keys.c.id == _KEY_ID, keys.c.revoked.is_(None))
            .values(revoked=now)
            .returning(keys)
        )

    def add(self, key: KeyRecord, key_hash: str) -> None:
        """Store a key."""
        with self._database.transaction() as connection:
            if connection.scalar(self._add, _key_row(key, key_hash)) is None:
                hint = "choose another name, or revoke the other key first"
                raise InputError(f"a key named {key.name[:100]!r} already exists", hint=hint)

    def find(self, key_hash: str) -> KeyRecord | None:
        """Return a valid key; its use is recorded once a minute."""
        row = self._database.read_one(self._find, the_hash=key_hash)
        if row is not None and row.stale:
            with self._database.transaction() as connection:
                parameters = self._database.values(the_hash=key_hash)
                row = connection.execute(self._use, parameters).one_or_none()
        return None if row is None else _key(row)

    def revoke(self, name: str) -> KeyRecord:
        """Revoke a key, given its id, name or id prefix, and end its sessions.

        Raises:
            NotFound: no key matches.
            TooLate: the key is already revoked.
            InputError: several keys match.
        """
        with self._database.transaction() as connection:
            key_id = _select_key(name, self._read_all(connection)).id
            parameters = self._database.values(the_key_id=key_id)
            row = connection.execute(self._revoke, parameters).one_or_none()
            if row is None:
                raise TooLate(f"the key {name[:100]!r} is already revoked")
            connection.execute(_END_BY_KEY, {"the_key_id": key_id})
        return _key(row)

    def rotate(
        self, name: str, create: Callable[[KeyRecord], tuple[KeyRecord, str]], keep: float
    ) -> KeyRecord:
        """Replace a key, given its id, name or id prefix, and return the new one.

        `create` makes the new key and its hash from the old one. The new key takes over the name;
        the old one expires after `keep` seconds.
        """
        with self._database.transaction() as connection:
            old = _select_key(name, self._read_all(connection))
            if old.revoked is not None:
                raise TooLate(f"the key {name[:100]!r} is already revoked")
            key, key_hash = create(old)
            old_name = f"{old.name} (replaced by {key.id})"
            parameters = self._database.values(
                the_key_id=old.id,
                the_name=old_name,
                the_name_key=hash_of([old_name]),
                the_keep=keep,
            )
            connection.execute(self._retire, parameters)
            connection.execute(self._add, _key_row(key, key_hash))
        return key

    def any_valid(self) -> bool:
        """Return whether a key exists that is neither revoked nor expired."""
        with self._database.transaction(reading=True) as connection:
            return connection.scalar(self._any, self._database.values()) is not None

    def _read_all(self, connection: Connection) -> list[KeyRecord]:
        return [_key(row) for row in connection.execute(self._all)]

    def list(self) -> list[KeyRecord]:
        """Return all keys, newest first, including revoked and expired ones."""
        with self._database.transaction(reading=True) as connection:
            return self._read_all(connection)


def _check_seconds(seconds: float) -> float:
    if not 0 < seconds < inf:
        raise InputError(f"a session cannot be valid for {seconds} s")
    return seconds


def _session(row: Any) -> tuple[SessionRecord, float]:
    with decode_guard("a session"):
        caller = Caller.model_validate(json.loads(row.caller))
        left = max(0.0, min(row.remaining, row.granted))
        return SessionRecord(trace_id=row.trace_id, caller=caller, key_id=row.key_id), left


def _key_row(key: KeyRecord, key_hash: str) -> dict[str, Any]:
    caller = write_json("a key", dict(key.caller))
    return {**dict(key), "caller": caller, "hash": key_hash, "name_key": hash_of([key.name])}


def _key(row: Any) -> KeyRecord:
    with decode_guard("an API key"):
        fields = {name: getattr(row, name) for name in KeyRecord.model_fields}
        return KeyRecord.model_validate({**fields, "caller": json.loads(row.caller)})


def _select_key(name: str, candidates: Sequence[KeyRecord]) -> KeyRecord:
    active = [key for key in candidates if key.revoked is None]
    matches = (
        [key for key in candidates if key.id == name]
        or [key for key in active if key.name == name]
        or [key for key in active if key.id.startswith(name) and len(name) >= _MIN_PREFIX]
    )
    if len(matches) == 1:
        return matches[0]
    shown = repr(name[:100])
    if matches:
        ids = ", ".join(key.id for key in matches[:5])
        raise InputError(f"several keys begin with {shown}", hint=f"choose one of {ids}")
    hint = nearest_hint(name[:100], [name for key in active for name in (key.name, key.id)])
    raise NotFound(f"no key {shown}", hint=hint or "see `toolkiln keys list`")


_KEY = bindparam("the_key", type_=String)
_WRITE_LOCK = int.from_bytes(b"settings")
"""Advisory lock that serialises writers on PostgreSQL."""


class SqlToolSettings:
    """Settings of each tool: the operator's and each user's."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._save = database.upsert(settings)
        self._remove = delete(settings).where(settings.c.key == _KEY)
        self._read = select(settings.c.content).where(settings.c.key == _KEY)

    def read(self, tool: str, user: str = "") -> dict[str, Any]:
        """Return the operator's settings of a tool, or those of a user."""
        with self._database.transaction(reading=True) as connection:
            return self._values(connection, tool, user)

    def change(
        self, tool: str, edit: Callable[[dict[str, Any]], Mapping[str, Any]], user: str = ""
    ) -> None:
        """Replace the settings by the result of `edit`, under a lock."""
        with self._database.transaction() as connection:
            if self._database.postgres:
                connection.execute(select(func.pg_advisory_xact_lock(_WRITE_LOCK)))
            values = dict(edit(self._values(connection, tool, user)))
            content = write_json(f"the settings of {tool[:100]!r}", values)
            row = {"key": hash_of([tool, user]), "tool": tool, "user": user, "content": content}
            if values:
                connection.execute(self._save, row)
            else:
                connection.execute(self._remove, {"the_key": row["key"]})

    def _values(self, connection: Connection, tool: str, user: str) -> dict[str, Any]:
        text = connection.scalar(self._read, {"the_key": hash_of([tool, user])})
        with decode_guard(f"the settings of {tool[:100]!r}"):
            return {} if text is None else dict(json.loads(text))
