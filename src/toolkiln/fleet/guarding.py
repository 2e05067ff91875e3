"""Sessions and rates in Redis, for processes on several machines; as `store.guarding` has them.

The server's clock is the only one, and each act is one script. It remembers; it decides
nothing: who gets a session, and what a refused call is told, is `execution`'s business.

What a Redis without persistence loses in a restart, or by eviction: its sessions, so that
their callers are denied until they get others, and the state of its buckets, which are full
again. Whoever can write to it is the trusted side (see the package).
"""

import json
from collections.abc import Sequence
from math import ceil, inf
from typing import Any

from pydantic import BaseModel

from toolkiln.errors import InputError, NotAllowed
from toolkiln.fleet import keys
from toolkiln.fleet.connection import Connection
from toolkiln.model import Draw, Session
from toolkiln.store import StoreError


class RedisSessions:
    """Sessions by the hash of their token.

    A record is kept for a day after its session expired, for calls that run meanwhile.
    """

    def __init__(self, connection: Connection) -> None:
        """A user with a namespace of its own can look sessions up, by their tokens."""
        self._user = connection.namespace
        self._script = connection.script("sessions")

    def put(self, token_hash: str, session: Session, seconds: float) -> None:
        """Keep a session that holds for so long.

        Raises:
            InputError: it would not hold.
            StoreError: Redis failed, or the agent's state is not plain JSON.
        """
        index = "" if session.key_id is None else keys.sessions_of_key(session.key_id)
        name = session.trace_id.encode("utf-8", "surrogatepass")
        given = _write(session), _milliseconds(seconds), index, name
        self._do("put", keys.session(token_hash), *given)

    def get(self, token_hash: str, *, running: bool = False) -> tuple[Session, float] | None:
        """The session and the seconds that it has left; None if it does not hold.

        `running`: also one that expired and was not ended, with 0 s, for calls under way.

        Raises:
            StoreError: Redis failed, or the record is damaged.
        """
        found = self._script([], ["get", keys.SESSIONS, keys.session(token_hash)])
        if found is None or (found[1] == 0 and not running):
            return None
        return _read(found[0]), found[1] / 1000

    def renew(self, token_hash: str, seconds: float) -> bool:
        """Let a session hold for so long from now; False if it holds no more.

        Raises:
            InputError: it would not hold.
            StoreError: Redis failed.
        """
        return bool(self._do("renew", keys.session(token_hash), _milliseconds(seconds)))

    def end(self, token_hash: str) -> bool:
        """Let a session hold no longer, also for running calls; False if there is none.

        Raises:
            StoreError: Redis failed.
        """
        return bool(self._do("end", keys.session(token_hash)))

    def end_named(self, trace_id: str) -> Session | None:
        """End a session that holds, by its public name; None if there is none.

        Raises:
            StoreError: Redis failed, or the record is damaged.
        """
        name = trace_id.encode("utf-8", "surrogatepass")
        found = self._run([keys.SESSIONS], ["end_named", name])
        return None if found is None else _read(found)

    def end_of_key(self, key_id: str) -> int:
        """End every session that an API key made; how many of them still held.

        Raises:
            StoreError: Redis failed; some may have been ended.
        """
        total, forgotten = 0, 1
        while forgotten:
            forgotten, held = self._do("end_of_key", keys.sessions_of_key(key_id))
            total += held
        return total

    def alive(self, limit: int = 100) -> list[tuple[Session, float]]:
        """The sessions that hold, newest first, with the seconds that they have left.

        Raises:
            StoreError: Redis failed, or a record is damaged.
        """
        answer = self._run([keys.SESSIONS], ["alive", limit])
        pairs = zip(answer[::2], answer[1::2], strict=True)
        return [(_read(text), left / 1000) for text, left in pairs]

    def _do(self, act: str, key: str, *arguments: str | bytes | int) -> Any:
        return self._run([keys.SESSIONS, key], [act, *arguments])

    def _run(self, touched: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        if self._user:
            raise NotAllowed(
                f"the Redis user {self._user!r} may not create, change or list sessions",
                hint="create a session at a trusted front (`toolkiln sessions create`) and "
                "pass its token",
            )
        return self._script(touched, arguments)


class RedisBuckets:
    """Token buckets: full at first, refilled steadily, gone from Redis when full again.

    A clock that is set back counts as no time passed, and goes on from there.
    """

    def __init__(self, connection: Connection) -> None:
        self._run = connection.script("take")

    def take(self, draws: Sequence[Draw]) -> float:
        """Take a token from each bucket and say 0, or none and say in how many seconds.

        Raises:
            InputError: a rate is not positive.
            StoreError: Redis failed; after a timeout the tokens may be gone.
        """
        rates = {keys.bucket(draw.bucket): draw.rate for draw in draws}
        for rate in rates.values():
            if not (0 < rate.count < inf and 0 < rate.seconds < inf):
                raise InputError(f"{rate.count} in {rate.seconds} s is no rate")
        if not rates:
            return 0.0
        sizes = [size for rate in rates.values() for size in (rate.count, rate.seconds * 1e6)]
        return int(self._run(list(rates), sizes)) / 1000


def _milliseconds(seconds: float) -> int:
    if not 0 < seconds < inf:
        raise InputError(f"a session cannot hold for {seconds} s")
    return ceil(seconds * 1000)


def _write(session: Session) -> bytes:
    try:
        # Neither pydantic's JSON, which refuses lone surrogates, nor ASCII, in which a pair
        # of them would come back as one character.
        text = json.dumps(dict(session), ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "the agent's state must be plain JSON"
        raise StoreError(f"a session cannot be kept: {error}", hint=hint) from None
    return text.encode("utf-8", "surrogatepass")


def _read(data: bytes | None) -> Session:
    try:
        return Session.model_validate(json.loads(data or b""))
    except (ValueError, RecursionError):
        raise StoreError(
            "a kept session cannot be read",
            hint="another version of Toolkiln wrote it, or it is damaged; make another session",
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")
