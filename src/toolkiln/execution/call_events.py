"""Call events: the state of a running call, and the one way to observe it.

The gateway creates one `RunningCall` per call. Observers that subscribe to `CallEvents` get
its start, its events and its end. Events are masked before any observer gets them. The
audit is no observer: `gateway` writes it, because a call that cannot be recorded must not run.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from toolkiln.model.audit import AuditRecord
from toolkiln.model.call import Call, CallError, Event, Result, Status
from toolkiln.model.identity import Caller
from toolkiln.model.spec import ToolSpec
from toolkiln.security.guard import NO_MASK
from toolkiln.security.masking import Mask, MaskedStream
from toolkiln.security.redaction import redacted_arguments

_STREAMS = ("stdout", "stderr")
_MISSING = frozenset({"ImportError", "ModuleNotFoundError"})
"""Exceptions whose text names what cannot be imported, and nothing else."""
_EXCEPTIONS = frozenset({"exception", "import_failed", "crashed", "exited", "signalled"})
_log = logging.getLogger(__name__)


class CallObserver:
    """Observer of calls; each method runs in the task of the call and must not block.

    What it raises is logged and does not affect the call.
    """

    def started(self, call: "RunningCall", /) -> None:
        """Handle the start of a call."""

    def event(self, call: "RunningCall", event: Event, /) -> None:
        """Handle an event of a running call."""

    def ended(self, call: "RunningCall", result: Result | None, /) -> None:
        """Handle the end of a call; the result is None if the task of the call was cancelled."""


class EventCallback(CallObserver):
    """Observer that passes the events of a call to a function."""

    def __init__(self, function: Callable[[Event], None]) -> None:
        self._function = function

    def event(self, _: "RunningCall", event: Event, /) -> None:
        """Call the function."""
        self._function(event)


class _Subscription(NamedTuple):
    observer: CallObserver
    passive: bool


class CallEvents:
    """Subscriptions to the calls of one gateway."""

    def __init__(self) -> None:
        self.subscriptions: tuple[_Subscription, ...] = ()

    def subscribe(
        self, observer: CallObserver, *, call: "RunningCall | None" = None, passive: bool = False
    ) -> Callable[[], None]:
        """Subscribe to one call, or to all that start from here on, including nested ones.

        A fleet front requests no events from workers for `passive` subscribers. Returns a
        function that unsubscribes; calls that have started are still reported to their end.
        """
        target = self if call is None else call
        subscription = _Subscription(observer, passive)
        target.subscriptions = (*target.subscriptions, subscription)

        def unsubscribe() -> None:
            target.subscriptions = tuple(s for s in target.subscriptions if s is not subscription)

        return unsubscribe

    def open(
        self,
        call: Call,
        observers: tuple[CallObserver, ...] = (),
        mask: Mask = NO_MASK,
        parent: "RunningCall | None" = None,
    ) -> "RunningCall":
        """Create the state of a call, with its own observers and those of all calls."""
        running = RunningCall(call, mask, parent)
        running.subscriptions = self.subscriptions
        if observers:
            running.subscriptions += tuple(_Subscription(o, passive=False) for o in observers)
        return running


class RunningCall:
    """State of one call from its start to its end."""

    __slots__ = (
        "_arguments", "_canceller", "_cancels", "_clock", "_masked", "_task", "at", "call",
        "caller", "detail", "digest", "emitted", "final_record", "is_waiting", "mask", "parent",
        "progress", "spec", "subscriptions",
    )  # fmt: skip

    def __init__(
        self, call: Call, mask: Mask = NO_MASK, parent: "RunningCall | None" = None
    ) -> None:
        """`mask` covers the secrets of the calls that this call is nested in."""
        self.call = call
        self.mask = mask
        self.parent = parent
        self._clock = time.perf_counter()
        self.at = time.time()
        self.subscriptions: tuple[_Subscription, ...] = ()
        self.caller: Caller | None = None
        """None until the session is looked up."""
        self.spec: ToolSpec | None = None
        """None until the tool is found, and always for a tool made up for this call."""
        self.digest = ""
        """Version of the tool, once that is found."""
        self.detail = ""
        """Remarks for the audit."""
        self.progress = ""
        """Latest progress that the tool reported."""
        self.emitted = 0
        """Number of events so far."""
        self.is_waiting = False
        """Whether the call waits for an approval."""
        self.final_record: AuditRecord | None = None
        """Audit record of the ended call."""
        self._arguments = ""
        self._canceller = ""
        self._cancels = 0
        self._task: asyncio.Task[object] | None = None
        self._masked = None if mask is NO_MASK else _MaskedEvents(mask, self._publish)

    @property
    def duration(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._clock

    @property
    def is_followed(self) -> bool:
        """Whether anyone needs the events of this call; for a nested one the caller may."""
        return self.parent is not None or any(not s.passive for s in self.subscriptions)

    def note(self, remark: str) -> None:
        """Add a remark to the audit record."""
        self.detail = f"{self.detail}; {remark}" if self.detail else remark

    def start(self) -> None:
        """Report the start, from the task of the call."""
        self._task = asyncio.current_task()
        self._notify(lambda observer: observer.started(self))

    def add_secrets(self, mask: Mask) -> None:
        """Mask events with the secrets of this call too."""
        self._masked = _MaskedEvents(self.mask.joined(mask), self._publish)

    def emit(self, event: Event) -> None:
        """Mask an event and report it."""
        if self._masked is None:
            self._publish(event)
        else:
            self._masked.feed(event)

    def flush(self, *, cut: bool) -> None:
        """Report output held back for masking; `cut`: the tool printed more than was reported."""
        if self._masked is not None:
            self._masked.flush(cut=cut or bool(self.mask))

    def end(self, result: Result | None) -> None:
        """Report the end; further events are dropped."""
        self.flush(cut=True)
        if self._cancels:  # the tool mistook it for something else
            self._uncancel()
        self._task = None  # it may keep far more of the result alive than observers need
        self._notify(lambda observer: observer.ended(self, result))
        self.subscriptions = ()

    def cancel(self, by: str) -> None:
        """Cancel the call on behalf of a user."""
        if self._task is not None:
            self._canceller = by
            self._cancels += 1  # the tool may have swallowed an earlier one
            self._task.cancel()

    def cancellation(self) -> CallError | None:
        """Return who cancelled the call; None if the task around it is cancelled."""
        if not self._cancels or self._uncancel() > 0:
            return None
        return CallError(code="cancelled", message=f"{self._canceller} cancelled this call")

    def _uncancel(self) -> int:
        """Take our cancellations back; return how many others the task has."""
        assert self._task is not None
        while self._cancels:
            self._cancels -= 1
            self._task.uncancel()
        return self._task.cancelling()

    def _publish(self, event: Event) -> None:
        if event.kind == "progress":
            self.progress = event.described
        self.emitted += 1
        event = event.model_copy(update={"number": self.emitted})
        self._notify(lambda observer: observer.event(self, event))
        # A person can only approve what the surface of the outer call reports.
        if self.parent is not None and event.kind == "pending":
            self.parent.emit(event)

    def _notify(self, report: Callable[[CallObserver], None]) -> None:
        for subscription in self.subscriptions:
            try:
                report(subscription.observer)
            except Exception:  # noqa: BLE001 - the observer's fault; the call continues
                _log.exception("an observer of a call of %s failed", self.call.tool)

    def set_arguments(self, arguments: object) -> None:
        """Add the arguments to the audit record, redacted and masked."""
        # Masked before they are cut, too: the beginning of a cut value would remain.
        self._arguments = self.mask.text(redacted_arguments(self.mask.value(arguments)))

    def audit_record(self) -> AuditRecord:
        """Return the audit record of the call while it runs."""
        return self._record("started", self.detail, None)

    def finish(self, result: Result | None) -> AuditRecord:
        """Set and return the audit record of the ended call; None: it was cancelled."""
        outcome, detail = "cancelled" if result is None else "ok", self.detail
        error = None if result is None else result.error
        if result is not None and error is not None:
            text = f"{error.code}: {_without_text(error)}"
            detail = f"{detail}; {text}" if detail else text
            is_exception = result.status is Status.FAILED and error.code in _EXCEPTIONS
            outcome = "exception" if is_exception else result.status.value
        duration = time.perf_counter() - self._clock
        self.final_record = record = self._record(outcome, detail, duration)
        return record

    def _record(self, outcome: str, detail: str, duration: float | None) -> AuditRecord:
        call, caller, tool = self.call, self.caller, self.call.tool
        if self.mask is not NO_MASK:
            tool, detail = self.mask.text(tool), self.mask.text(detail)
        user = (caller.who, caller.agent_id or "", caller.session) if caller else ("", "", "")
        return AuditRecord(
            self.at, "call", outcome, *user, call.surface, tool, self.digest, call.id,
            call.parent or "", detail, duration, self._arguments,
        )  # fmt: skip


def _without_text(error: CallError) -> str:
    """Return what the audit records of an error: of an exception its type and line only."""
    parts = error.message.split(": ")
    if error.code == "exception":
        return parts[0]
    if error.code == "import_failed" and error.type not in _MISSING:
        return ": ".join(parts[:2])
    return error.message


class _MaskedEvents:
    """Masks events, however the output is split into pieces."""

    def __init__(self, mask: Mask, publish: Callable[[Event], None]) -> None:
        self._mask = mask
        self._publish = publish
        self._streams = {name: MaskedStream(mask) for name in _STREAMS}

    def feed(self, event: Event) -> None:
        if event.kind in self._streams:
            text = self._streams[event.kind].feed(event.text)
            if not text:
                return
        else:
            text = self._mask.text(event.text)
        value = event.value if event.kind != "message" else self._mask.value(event.value)
        self._publish(event.model_copy(update={"text": text, "value": value}))

    def flush(self, *, cut: bool) -> None:
        for kind in _STREAMS:
            if text := self._streams[kind].end(cut=cut):
                self._publish(Event(kind=kind, text=text))  # type: ignore[arg-type]
