"""Token buckets: how often something may still happen, counted over all processes.

A bucket is full at first, fills up at its rate and gives a token for each use. Which
buckets a call draws from is `execution`'s business. Methods block and are thread-safe; all
raise StoreError when the database fails.

A clock that is set back adds nothing to a bucket, and the bucket fills up from that time
on; one that is set ahead makes it full at most.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from sqlalchemy import String, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.errors import InputError
from toolkiln.model import Draw, Rate
from toolkiln.store.clock import StoreClock
from toolkiln.store.database import Database
from toolkiln.store.pruning import Pruner
from toolkiln.store.records import hash_of, intact
from toolkiln.store.schema import buckets

# Less of a token is rounding: whoever waited as long as they were told must be let through.
_ROUNDING = 1e-6


class Buckets:
    """The buckets of one database, by their names."""

    def __init__(self, database: Database, clock: StoreClock, pruner: Pruner) -> None:
        self._database = database
        self._clock = clock
        self._pruner = pruner
        add = (postgresql if database.postgres else sqlite).insert(buckets)
        self._add = add.on_conflict_do_nothing()
        fresh = add.excluded
        self._set = add.on_conflict_do_update(
            index_elements=[buckets.c.key],
            set_={"level": fresh.level, "at": fresh.at, "kept_until": fresh.kept_until},
        )
        # In order: two takers of the same buckets must not wait for each other.
        self._locked = (
            select(buckets)
            .where(buckets.c.key.in_(bindparam("the_keys", type_=String, expanding=True)))
            .order_by(buckets.c.key)
            .with_for_update()
        )

    def take(self, draws: Sequence[Draw]) -> float:
        """Takes a token from each bucket and says 0, or none and says in how many seconds.

        Raises:
            InputError: a rate is not positive.
        """
        rates = {hash_of([draw.bucket]): draw.rate for draw in draws}
        for rate in rates.values():
            if not (0 < rate.count < inf and 0 < rate.seconds < inf):
                raise InputError(f"{rate.count} in {rate.seconds} s is no rate")
        if not rates:
            return 0.0
        self._pruner.when_due()
        while (wait := self._taken(rates)) is None:
            pass
        return wait

    def _taken(self, rates: Mapping[str, Rate]) -> float | None:
        """As `take`; None: some buckets were not there yet, so there was nothing to lock."""
        with self._database.transaction() as connection:
            rows = connection.execute(self._locked, {"the_keys": sorted(rates)}).all()
            now = self._clock.read(connection)
            missing = sorted(rates.keys() - {row.key for row in rows})
            if missing:
                connection.execute(self._add, [_full(key, rates[key], now) for key in missing])
                return None
            levels = {row.key: _level(row, rates[row.key], now) for row in rows}
            refused = any(level < 1 - _ROUNDING for level in levels.values())
            taken = 0 if refused else 1
            changed = [
                _row(row.key, levels[row.key] - taken, rates[row.key], now)
                for row in rows
                if taken or row.at > now  # the clock was set back: it counts from there on
            ]
            if changed:
                connection.execute(self._set, changed)
        if not refused:
            return 0.0
        return max((1 - level) / _per_second(rates[key]) for key, level in levels.items())


def _per_second(rate: Rate) -> float:
    return rate.count / rate.seconds


def _level(row: Any, rate: Rate, now: float) -> float:
    with intact("a rate bucket"):
        filled: float = row.level + max(0.0, now - row.at) * _per_second(rate)
        return min(filled, float(rate.count))


def _row(key: str, level: float, rate: Rate, now: float) -> dict[str, Any]:
    full_in = (rate.count - level) / _per_second(rate)
    return {"key": key, "level": level, "at": now, "kept_until": now + full_in}


def _full(key: str, rate: Rate, now: float) -> dict[str, Any]:
    # Kept for a while, else it could be pruned before it is used.
    return {**_row(key, float(rate.count), rate, now), "kept_until": now + rate.seconds}
