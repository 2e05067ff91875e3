"""Watching calls: what the gateway tells of each to whoever keeps a book of them.

A listener only hears that a call began and how it ended. Who watches one hears what it tells
meanwhile, too, and may stop it. `app.runs` is the book.
"""

from collections.abc import Callable
from typing import Protocol

from toolkiln.execution.guard import Trail
from toolkiln.execution.observing import Observe
from toolkiln.model import AuditRecord, CallError, Result


class Watched(Protocol):
    """One call as long as it runs; nothing here may wait or raise."""

    def observing(self, observe: Observe) -> Observe:
        """An observer that passes on to the call's own."""
        ...

    def stopped(self) -> CallError | None:
        """Why the call was cancelled, if that was to stop this one and nothing around it."""
        ...

    def end(self, record: AuditRecord, result: Result | None) -> None:
        """It ended; None: with everything around it."""
        ...


Watch = Callable[[Trail], Watched]
"""Told of every call when it begins."""
