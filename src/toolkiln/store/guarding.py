"""Sessions, and the API keys that make them, as they are written down.

Tokens and keys come as hashes: nothing here can be used to make a call. What somebody may
do is `execution`'s business. Methods block and are thread-safe; all raise StoreError when
the database fails or a row is damaged.
"""

import json
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from sqlalchemy import (
    Double,
    Integer,
    String,
    and_,
    bindparam,
    case,
    delete,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.errors import InputError, NotFound, TooLate, nearest_hint
from toolkiln.model import ApiKey, Caller, Session
from toolkiln.store.clock import StoreClock
from toolkiln.store.database import Database
from toolkiln.store.pruning import Pruner
from toolkiln.store.records import hash_of, intact, write_json
from toolkiln.store.schema import AnyText, keys, sessions

EXPIRED_SECONDS = 86_400.0
"""How long an expired session is known, for the calls that began before."""

_USED_SECONDS = 60.0  # a key's last use is noted no more often
_SHORTEST_PREFIX = 4

_TOKEN = bindparam("the_token", type_=String)
_SECONDS = bindparam("seconds", type_=Double)
_KEY_ID = bindparam("the_key_id", type_=AnyText)
_END_OF_KEY = delete(sessions).where(sessions.c.key_id == _KEY_ID)


class Sessions:
    """Sessions by the hash of their token."""

    def __init__(self, database: Database, clock: StoreClock, pruner: Pruner) -> None:
        self._database = database
        self._clock = clock
        self._pruner = pruner
        now = clock.now
        # One from the future does not hold: the clock was set back, by who knows how much.
        holds = and_(sessions.c.created <= now, sessions.c.expires > now)
        granted = {
            "granted": _SECONDS,
            "expires": now + _SECONDS,
            "kept_until": now + _SECONDS + EXPIRED_SECONDS,
        }
        add = (postgresql if database.postgres else sqlite).insert(sessions)
        add = add.values(created=now, **granted)
        self._put = add.on_conflict_do_update(
            index_elements=[sessions.c.token],
            set_={c.name: add.excluded[c.name] for c in sessions.c if not c.primary_key},
        )
        key = select(keys.c.revoked).where(keys.c.id == _KEY_ID)
        self._key = key.with_for_update(read=True)  # a revocation waits, and finds the session
        shown = select(
            sessions.c.trace_id,
            sessions.c.key_id,
            sessions.c.caller,
            sessions.c.granted,
            (sessions.c.expires - now).label("remaining"),
        )
        self._get = shown.where(
            sessions.c.token == _TOKEN, sessions.c.created <= now, sessions.c.kept_until > now
        )
        self._settle = (
            update(sessions)
            .where(sessions.c.token == _TOKEN, sessions.c.expires <= now)
            .values(expires=sessions.c.created, granted=0.0)
        )
        self._renew = update(sessions).where(sessions.c.token == _TOKEN, holds).values(granted)
        self._end = delete(sessions).where(sessions.c.token == _TOKEN)
        named = sessions.c.trace_id == bindparam("the_trace_id")
        self._named = shown.where(named, holds)
        self._end_named = delete(sessions).where(named, holds)
        self._end_of_key = _END_OF_KEY.returning(holds)
        self._alive = (
            shown.where(holds)
            .order_by(sessions.c.created.desc(), sessions.c.token)
            .limit(bindparam("at_most", type_=Integer))
        )

    def put(self, token_hash: str, session: Session, seconds: float) -> None:
        """Keeps a session that holds for so long.

        Raises:
            InputError: the key that it was made with is revoked, or it would not hold.
        """
        self._pruner.when_due()
        row = {
            "token": token_hash,
            "trace_id": session.trace_id,
            "key_id": session.key_id,
            "caller": write_json("a session", dict(session.caller)),
            "seconds": _checked(seconds),
        }
        with self._database.transaction() as connection:
            if session.key_id is not None:
                revoked = connection.scalar(self._key, {"the_key_id": session.key_id})
                if revoked is not None:
                    raise InputError("the key was revoked", hint="ask for another")
            connection.execute(self._put, {**row, **self._clock.values()})

    def get(self, token_hash: str, *, running: bool = False) -> tuple[Session, float] | None:
        """A session that holds, and for how many seconds still.

        With `running` also one that expired less than a day ago but was not ended, with 0.
        """
        which = {"the_token": token_hash}
        with self._database.transaction(reading=True) as connection:
            row = connection.execute(self._get, {**which, **self._clock.values()}).one_or_none()
        if row is None:
            return None
        session, left = _session(row)
        if left == 0 and row.granted > 0:
            # For good: a clock that is set back later must not revive it.
            with self._database.transaction() as connection:
                connection.execute(self._settle, {**which, **self._clock.values()})
        return (session, left) if left > 0 or running else None

    def renew(self, token_hash: str, seconds: float) -> bool:
        """Lets a session hold for so long from now on; False if it does not hold any more."""
        which = {"the_token": token_hash, "seconds": _checked(seconds)}
        with self._database.transaction() as connection:
            return connection.execute(self._renew, {**which, **self._clock.values()}).rowcount > 0

    def end(self, token_hash: str) -> bool:
        """Ends a session, also for calls that run; False if there is none."""
        with self._database.transaction() as connection:
            return connection.execute(self._end, {"the_token": token_hash}).rowcount > 0

    def end_named(self, trace_id: str) -> Session | None:
        """Ends a session that holds, by its public name; None if there is none."""
        which = {"the_trace_id": trace_id, **self._clock.values()}
        with self._database.transaction() as connection:
            row = connection.execute(self._named, which).first()
            connection.execute(self._end_named, which)
        return None if row is None else _session(row)[0]

    def end_of_key(self, key_id: str) -> int:
        """Ends all sessions that a key made; says how many of them still held."""
        with self._database.transaction() as connection:
            which = {"the_key_id": key_id, **self._clock.values()}
            return sum(connection.scalars(self._end_of_key, which))

    def alive(self, limit: int = 100) -> list[tuple[Session, float]]:
        """The sessions that hold, newest first, and for how many seconds still."""
        with self._database.transaction(reading=True) as connection:
            at_most = {"at_most": max(0, min(limit, 10_000)), **self._clock.values()}
            rows = connection.execute(self._alive, at_most).all()
        return [_session(row) for row in rows]


class Keys:
    """API keys by their hash."""

    def __init__(self, database: Database, clock: StoreClock) -> None:
        self._database = database
        self._clock = clock
        now = clock.now
        add = (postgresql if database.postgres else sqlite).insert(keys)
        self._add = add.on_conflict_do_nothing(
            index_elements=[keys.c.name_key], index_where=keys.c.revoked.is_(None)
        ).returning(keys.c.id)
        used = keys.c.last_used
        stale = or_(used.is_(None), used <= now - _USED_SECONDS, used > now)
        holds = and_(keys.c.revoked.is_(None), or_(keys.c.expires.is_(None), keys.c.expires > now))
        valid = and_(keys.c.hash == bindparam("the_hash", type_=String), holds)
        self._find = select(keys, stale.label("stale")).where(valid)
        self._use = update(keys).where(valid).values(last_used=now).returning(keys)
        self._any = select(keys.c.id).where(holds).limit(1)
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

    def add(self, key: ApiKey, key_hash: str) -> None:
        """Keeps a key.

        Raises:
            InputError: another that is not revoked has its name.
        """
        with self._database.transaction() as connection:
            if connection.scalar(self._add, _row(key, key_hash)) is None:
                hint = "choose another name, or revoke the other key first"
                raise InputError(f"there is a key named {key.name[:100]!r}", hint=hint)

    def find(self, key_hash: str) -> ApiKey | None:
        """The key, if it is neither revoked nor expired; its use is noted once a minute."""
        which = {"the_hash": key_hash}
        with self._database.transaction(reading=True) as connection:
            row = connection.execute(self._find, {**which, **self._clock.values()}).one_or_none()
        if row is not None and row.stale:
            with self._database.transaction() as connection:
                row = connection.execute(self._use, {**which, **self._clock.values()}).one_or_none()
        return None if row is None else _key(row)

    def revoke(self, which: str) -> ApiKey:
        """Makes a key, by its id, its name or the beginning of its id, useless for good.

        Its sessions end with it.

        Raises:
            NotFound: there is none.
            TooLate: it was revoked before.
            InputError: several fit.
        """
        with self._database.transaction() as connection:
            known = [_key(row) for row in connection.execute(self._all)]
            chosen = {"the_key_id": _chosen(which, known).id}
            row = connection.execute(self._revoke, {**chosen, **self._clock.values()}).one_or_none()
            if row is None:
                raise TooLate(f"the key {which[:100]!r} is revoked already")
            connection.execute(_END_OF_KEY, chosen)
        return _key(row)

    def rotate(
        self, which: str, made: Callable[[ApiKey], tuple[ApiKey, str]], keep: float
    ) -> ApiKey:
        """Replace a key, by its id, name or the beginning of its id; returns the new one.

        `made` makes the new key, and its hash, from the old one. The old key expires after
        `keep` seconds, and gives its name to the new one.

        Raises:
            NotFound: there is none.
            TooLate: it was revoked before.
            InputError: several fit.
        """
        with self._database.transaction() as connection:
            known = [_key(row) for row in connection.execute(self._all)]
            old = _chosen(which, known)
            if old.revoked is not None:
                raise TooLate(f"the key {which[:100]!r} is revoked already")
            key, key_hash = made(old)
            name = f"{old.name} (replaced by {key.id})"
            values = {
                "the_key_id": old.id,
                "the_name": name,
                "the_name_key": hash_of([name]),
                "the_keep": keep,
            }
            connection.execute(self._retire, {**values, **self._clock.values()})
            connection.execute(self._add, _row(key, key_hash))
        return key

    def any_valid(self) -> bool:
        """Return whether there is a key that is neither revoked nor expired."""
        with self._database.transaction(reading=True) as connection:
            return connection.scalar(self._any, self._clock.values()) is not None

    def list(self) -> list[ApiKey]:
        """All keys, newest first, also those that are revoked or expired."""
        with self._database.transaction(reading=True) as connection:
            return [_key(row) for row in connection.execute(self._all)]


def _checked(seconds: float) -> float:
    if not 0 < seconds < inf:
        raise InputError(f"a session cannot hold for {seconds} s")
    return seconds


def _session(row: Any) -> tuple[Session, float]:
    with intact("a session"):
        caller = Caller.model_validate(json.loads(row.caller))
        left = max(0.0, min(row.remaining, row.granted))
        return Session(trace_id=row.trace_id, caller=caller, key_id=row.key_id), left


def _row(key: ApiKey, key_hash: str) -> dict[str, Any]:
    caller = write_json("a key", dict(key.caller))
    return {**dict(key), "caller": caller, "hash": key_hash, "name_key": hash_of([key.name])}


def _key(row: Any) -> ApiKey:
    with intact("an API key"):
        fields = {name: getattr(row, name) for name in ApiKey.model_fields}
        return ApiKey.model_validate({**fields, "caller": json.loads(row.caller)})


def _chosen(which: str, known: Sequence[ApiKey]) -> ApiKey:
    held = [key for key in known if key.revoked is None]
    fitting = (
        [key for key in known if key.id == which]
        or [key for key in held if key.name == which]
        or [key for key in held if key.id.startswith(which) and len(which) >= _SHORTEST_PREFIX]
    )
    if len(fitting) == 1:
        return fitting[0]
    shown = repr(which[:100])
    if fitting:
        ids = ", ".join(key.id for key in fitting[:5])
        raise InputError(f"several keys begin with {shown}", hint=f"choose one of {ids}")
    hint = nearest_hint(which[:100], [name for key in held for name in (key.name, key.id)])
    raise NotFound(f"there is no key {shown}", hint=hint or "see `toolkiln keys list`")
