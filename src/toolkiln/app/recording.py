"""Administrative acts, and the record that each of them leaves.

One record when an act starts, which must be written or nothing happens, and one for how it
ended. What the acts are is for those who carry them out.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from toolkiln.errors import NotAllowed
from toolkiln.execution import Recorder
from toolkiln.model import AuditRecord, Caller

_through: ContextVar[str | None] = ContextVar("_through", default=None)


class Recording:
    """Records what people do through one Kiln."""

    def __init__(self, recorder: Recorder, surface: str) -> None:
        """`surface` is what they come through, unless `through` says otherwise."""
        self._recorder = recorder
        self._surface = surface

    @property
    def surface(self) -> str:
        """What is done at this moment is done through this."""
        return _through.get() or self._surface

    @contextmanager
    def through(self, surface: str) -> Iterator[None]:
        """Say that what is done meanwhile, by this task, came through another surface."""
        before = _through.set(surface)
        try:
            yield
        finally:
            _through.reset(before)

    @contextmanager
    def act(self, what: str, caller: Caller | str, /, **fields: Any) -> Iterator[None]:
        """Record an administrative act around doing it.

        Raises:
            AuditFailed: it cannot be recorded, and is not done.
        """
        started = time.perf_counter()
        self._record(what, "started", caller, fields)
        try:
            yield
        except BaseException as error:  # whatever it is, it is recorded and goes on
            denied = isinstance(error, NotAllowed)
            detail = f"{fields.get('detail', '')} {error}".strip()
            told = {**fields, "detail": detail, "duration": time.perf_counter() - started}
            self._record(what, "denied" if denied else "failed", caller, told)
            raise
        self._record(what, "ok", caller, {**fields, "duration": time.perf_counter() - started})

    def record(self, what: str, caller: Caller, **fields: Any) -> None:
        """Record an act that has no end of its own.

        Raises:
            AuditFailed: it cannot be recorded.
        """
        self._record(what, "ok", caller, fields)

    def denied(self, what: str, caller: Caller | str, why: str) -> None:
        """Record that somebody tried what they may not.

        Raises:
            AuditFailed: it cannot be recorded.
        """
        self._record(what, "denied", caller, {"detail": why})

    def _record(
        self, what: str, outcome: str, caller: Caller | str, fields: Mapping[str, Any]
    ) -> None:
        who = caller if isinstance(caller, str) else caller.who
        session = "" if isinstance(caller, str) else caller.session
        agent = "" if isinstance(caller, str) else caller.agent_id or ""
        known = {"user": who, "session": session, "agent": agent, "surface": self.surface}
        self._recorder.commit(AuditRecord(time.time(), what, outcome, **{**known, **fields}))
