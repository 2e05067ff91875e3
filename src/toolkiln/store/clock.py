"""The store's time: the database's on PostgreSQL, where hosts meet; the host's on SQLite.

It may stand still, jump ahead or be set back; what that means is said where it is used.
"""

import time
from collections.abc import Callable

from sqlalchemy import ColumnElement, Connection, Double, bindparam, cast, extract, func, select

from toolkiln.store.database import Database


class StoreClock:
    """Tells the time to statements and to Python."""

    def __init__(self, database: Database, clock: Callable[[], float] | None) -> None:
        """`clock` replaces the time that the store would take."""
        self._clock = clock or (None if database.postgres else time.time)
        self.now: ColumnElement[float] = bindparam("now", type_=Double)
        """For statements, which are run with `values()`."""
        if self._clock is None:
            # Not clock_timestamp(): being volatile it would keep prune from its index.
            self.now = cast(extract("epoch", func.statement_timestamp()), Double)

    def values(self) -> dict[str, float]:
        """What a statement with `now` has to be told."""
        return {} if self._clock is None else {"now": self._clock()}

    def read(self, connection: Connection) -> float:
        """The time, on PostgreSQL by a statement of its own: after the locks of earlier ones."""
        if self._clock is not None:
            return self._clock()
        return connection.execute(select(self.now)).scalar_one()
