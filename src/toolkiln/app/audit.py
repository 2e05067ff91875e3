"""The audit, for people: look it up, verify it, export it, let go of what is old."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from toolkiln.app.own import SessionToken
from toolkiln.execution import AuditFailed
from toolkiln.model import AuditEntry, Privilege

if TYPE_CHECKING:
    from toolkiln.app.guarding import Guarding
    from toolkiln.store import AuditFilter, Ledger, Verification

DAY = 86_400.0


class Audit:
    """What was recorded, in this process and in others."""

    def __init__(self, open_ledger: "Callable[[], Ledger]", guarding: "Guarding") -> None:
        self._open = open_ledger
        self._guarding = guarding

    def entries(self, wanted: "AuditFilter", limit: int | None = 100) -> Iterator[AuditEntry]:
        """Records that fit, newest first."""
        self._flush()
        return self._ledger.entries(wanted, limit)

    def export(self, wanted: "AuditFilter") -> Iterator[AuditEntry]:
        """All records that fit, oldest first."""
        self._flush()
        return self._ledger.entries(wanted, None, newest_first=False)

    def verify(self, expected: tuple[int, str] | None = None) -> "Verification":
        """Whether every record is where it was put and says what it said.

        `expected` is a head that was noted elsewhere: it tells a log that was cut short and
        sealed again by somebody who has the key.
        """
        self._flush()
        return self._ledger.verify(expected)

    def prune(self, days: float, session: SessionToken) -> int:
        """Remove records that are older; the rest stays verifiable.

        Raises:
            NotAllowed: whoever holds the session has no ADMIN.
        """
        admin = self._guarding.require(session, Privilege.ADMIN, "audit.prune")
        self._guarding.recorder.flush()
        return self._ledger.prune(time.time() - days * DAY, admin.who)

    def close(self) -> None:
        """Let go of the log."""
        if ledger := self.__dict__.get("_ledger"):
            ledger.close()

    def _flush(self) -> None:
        with suppress(AuditFailed):  # a log that cannot be written may still be read
            self._guarding.recorder.flush()

    @cached_property
    def _ledger(self) -> "Ledger":
        return self._open()
