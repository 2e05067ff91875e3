"""Where sessions, approvals, rates and calls of a Kiln are kept: in its store, or in Redis."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkiln.execution import ApprovalBook, BucketBook, CallBook, SessionBook
    from toolkiln.fleet import Connection
    from toolkiln.store import Store


class Books:
    """The books of one Kiln, opened with their first use."""

    def __init__(
        self, redis: str, store: "Callable[[], Store]", worker_keys: Sequence[str] = ()
    ) -> None:
        """With an empty `redis` everything is in the store.

        `worker_keys` are those whose results in Redis are believed; empty: all are.
        """
        self._url = redis
        self._worker_keys = worker_keys
        self._store = store

    def sessions(self) -> "SessionBook":
        """Who may make calls."""
        if self._redis is None:
            return self._store().sessions
        from toolkiln.fleet import RedisSessions

        return RedisSessions(self._redis)

    def approvals(self) -> "ApprovalBook":
        """What waits for a person; a client of its own may not decide about that."""
        if self._redis is None or self._redis.namespace:
            return self._store().approvals
        from toolkiln.fleet import RedisApprovals

        return RedisApprovals(self._redis)

    def buckets(self) -> "BucketBook":
        """How often something may still happen."""
        if self._redis is None or self._redis.namespace:
            return self._store().buckets
        from toolkiln.fleet import RedisBuckets

        return RedisBuckets(self._redis)

    def calls(self) -> "CallBook":
        """Calls with ids of their callers', and outputs that were cut."""
        if self._redis is None:
            return self._store()
        from toolkiln.fleet import RedisRecords, Verifier

        trusted = Verifier(self._worker_keys) if self._worker_keys else None
        return RedisRecords(self._redis, trusted=trusted)

    def close(self) -> None:
        """Let go of what is open."""
        if connection := self.__dict__.get("_redis"):
            connection.close()

    @cached_property
    def _redis(self) -> "Connection | None":
        if not self._url:
            return None
        from toolkiln.fleet import open_redis

        return open_redis(self._url)
