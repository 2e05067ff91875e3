"""An observer of calls for tests."""

import asyncio

from toolkiln.execution.call_events import CallObserver, RunningCall
from toolkiln.model.call import Event, Result


class RecordingObserver(CallObserver):
    """Records everything it gets; `has_ended` is set with the first end."""

    def __init__(self) -> None:
        self.calls: list[RunningCall] = []
        self.events: list[tuple[str, Event]] = []
        self.results: list[tuple[str, str | None, Result | None]] = []
        """Name in the request, name of the tool, result."""
        self.has_ended = asyncio.Event()

    def started(self, call: RunningCall, /) -> None:
        """Record a call."""
        self.calls.append(call)

    def event(self, call: RunningCall, event: Event, /) -> None:
        """Record an event."""
        self.events.append((call.call.tool, event))

    def ended(self, call: RunningCall, result: Result | None, /) -> None:
        """Record an end."""
        self.results.append((call.call.tool, call.spec.name if call.spec else None, result))
        self.has_ended.set()
