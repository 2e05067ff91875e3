"""The audit: writer, reader and audited administrative acts.

A writer thread writes most records in batches, at most `interval` seconds late; records that
must exist before something happens are committed. If writing fails, the records are kept and
retried; after a while the writer accepts no more, and calls that cannot be audited are refused.
`store` has the log itself.
"""

import atexit
import logging
import os
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from toolkiln.errors import InputError, NotAllowed, ToolkilnError
from toolkiln.model.audit import AuditRecord, ChainedRecord
from toolkiln.model.identity import Caller, Privilege
from toolkiln.security.redaction import line
from toolkiln.security.sessions import SessionToken

if TYPE_CHECKING:
    from toolkiln.model.audit import AuditFilter, Verification
    from toolkiln.security.security import Security
    from toolkiln.store.audit_log import AuditLog

_log = logging.getLogger(__name__)

DAY = 86_400.0
_MAX_TEXT = 500
_MAX_ARGUMENTS = 2_000
_MAX_QUEUE = 10_000
_BUSY_QUEUE = 5_000
_MAX_DELAY = 10.0
_MAX_PAUSE = 2.0
_MIN_KEY = 16


class AuditFailed(ToolkilnError):
    """The audit log cannot be written, so the action is refused."""

    code: ClassVar[str] = "audit_failed"


def sanitized(record: AuditRecord) -> AuditRecord:
    """Return a record whose texts are single printable lines of bounded length."""
    at, duration = record.at, record.duration
    if not isfinite(at) or not (duration is None or isfinite(duration)):
        record = record._replace(at=at if isfinite(at) else 0.0, duration=None)
    texts, arguments = record[1:-2], record.arguments
    together = "".join(texts) + arguments
    if len(together) <= _MAX_TEXT and together.isprintable():
        return record
    lines = (line(text, _MAX_TEXT) for text in texts)
    arguments = line(arguments, _MAX_ARGUMENTS)
    return AuditRecord._make((record.at, *lines, record.duration, arguments))


def audit_key(setting: str, state: Path) -> bytes:
    """Return the key of the hash chain: the setting, or the content of `audit.key`.

    The file is created if it does not exist.
    """
    if setting:
        if len(setting) < _MIN_KEY:
            hint = "use 32 random bytes: python -c 'import secrets; print(secrets.token_hex())'"
            raise InputError(f"audit_key has fewer than {_MIN_KEY} characters", hint=hint)
        return setting.encode("utf-8", "surrogateescape")
    file = state / "audit.key"
    try:
        with suppress(FileNotFoundError):
            return _read_key(file)
        _create_key(file)
        return _read_key(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"the audit key {str(file)!r} cannot be used: {reason}",
            hint="make it a private file of this user with at least 16 characters, "
            "or set audit_key",
        ) from None


def _read_key(file: Path) -> bytes:
    with file.open("rb") as opened:
        if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
            raise InputError(
                f"the audit key {str(file)!r} is readable by others",
                hint="chmod 600 it; if others may have read it, start a new log with a new key",
            )
        text = opened.read(1000).strip()
    if len(text) < _MIN_KEY:
        raise ValueError("it is too short")
    return text


def _create_key(file: Path) -> None:
    """Create the key atomically, unless it exists: processes may start concurrently."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(os.urandom(32).hex() + "\n")
            opened.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # created by another process
            os.link(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


class AuditWriter:
    """Accepts records from any thread and writes them in a thread of its own.

    A record may be written twice if the database fails during a commit, but is never lost. All
    methods but `end` and `close` raise AuditFailed if a record is not accepted or not written.
    """

    def __init__(self, open_audit_log: "Callable[[], AuditLog]", *, interval: float = 0.25) -> None:
        """`open_audit_log` is called before the first write and after failures."""
        self._open_log = open_audit_log
        self._interval = interval
        self._is_closed = False
        self._audit_log: AuditLog | None = None
        self._reset()
        atexit.register(self.close)
        after_fork = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (method := after_fork()) and method())

    def _reset(self) -> None:
        """Start empty; also in a forked child, because the parent writes its own records."""
        # A child may neither use nor close its parent's connection: keep a reference to it.
        self._inherited, self._audit_log = self._audit_log, None
        self._is_open = False
        self._has_failed = False
        self._queue: deque[AuditRecord] = deque()
        self._unwritten: list[AuditRecord] = []
        self._new_calls: dict[Hashable, Callable[[], AuditRecord]] = {}
        self._running_calls: dict[Hashable, Callable[[], AuditRecord]] = {}
        """Calls that were already running at the last write."""
        self._write_lock = threading.Lock()
        self._start_lock = threading.Lock()
        self._wake_up = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_awake = False
        self._failing_since = 0.0  # first attempt to write the oldest unwritten record, or 0
        self._reason = "it is slow"

    @property
    def must_flush(self) -> bool:
        """Whether calls must wait for `flush`: nothing was written yet, or the queue is long."""
        return not self._is_open or len(self._queue) > _BUSY_QUEUE

    def ready(self) -> None:
        """Check that the writer accepts records."""
        if self._failing_since and (
            (self._has_failed and len(self._queue) + len(self._unwritten) > _MAX_QUEUE)
            or time.monotonic() - self._failing_since > _MAX_DELAY
        ):
            raise self._failure()

    def add(self, record: AuditRecord) -> None:
        """Queue a record."""
        self.ready()
        self._queue.append(record)
        if not self._is_awake:
            self._wake()

    def begin(self, key: Hashable, started: Callable[[], AuditRecord]) -> None:
        """Register the start of a call; `started` builds its record if the call takes long."""
        self.ready()
        self._new_calls[key] = started
        if not self._is_awake:
            self._wake()

    def end(self, key: Hashable, record: AuditRecord) -> None:
        """Queue the record of a call that ended, even if the writer accepts no others."""
        self._forget(key)
        self._queue.append(record)
        if not self._is_awake:
            self._wake()

    def commit(self, record: AuditRecord, key: Hashable = None) -> None:
        """Write this record and all before it.

        `key`: the call whose start this records, which then needs no other start record.
        """
        self.ready()
        if not self._write(last=[record]):
            raise self._failure()
        self._forget(key)

    def flush(self) -> None:
        """Write all queued records."""
        if not self._write():
            raise self._failure()

    def close(self) -> None:
        """Write the remaining records and stop; records that cannot be written are logged."""
        self._is_closed = True
        atexit.unregister(self.close)
        self._closing.set()
        self._wake_up.set()
        with self._start_lock:
            if self._thread is not None:
                self._thread.join()
        if self._queue or self._unwritten:
            self._write()
        with self._write_lock:
            lost, self._unwritten = self._unwritten, []
            self._close_log()
        for record in lost:
            _log.critical("an audit record is lost (%s): %s", self._reason, sanitized(record))

    def _forget(self, key: Hashable) -> None:
        if self._new_calls.pop(key, None) is None:
            self._running_calls.pop(key, None)

    def _failure(self) -> AuditFailed:
        hint = "calls that cannot be audited are refused: repair the audit log, then try again"
        return AuditFailed(f"the audit log cannot be written: {self._reason}", hint=hint)

    def _wake(self) -> None:
        if self._is_closed:
            self.close()  # writes the late record at once
            return
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self._thread.start()
        self._wake_up.set()

    def _run(self) -> None:
        failures = 0
        while not self._is_closed:
            # In this order: a thread that adds a record is seen below, or sees `_is_awake` false.
            self._is_awake = False
            if not (self._queue or self._unwritten or self._new_calls or self._running_calls):
                self._wake_up.wait()
            self._is_awake = True
            self._wake_up.clear()
            pause = min(self._interval * 2**failures, _MAX_PAUSE)
            self._closing.wait(max(self._interval, pause))
            failures = 0 if self._write(is_tick=True) else min(failures + 1, 10)
        self._is_awake = False

    def _write(self, last: Sequence[AuditRecord] = (), *, is_tick: bool = False) -> bool:
        """Write all waiting records, and `last`, which is not kept if that fails."""
        with self._write_lock:
            waiting = self._unwritten
            self._failing_since = self._failing_since or time.monotonic()
            try:
                if is_tick:  # calls that were running at the last tick get a start record, once
                    started = list(self._running_calls.values())
                    self._running_calls, self._new_calls = self._new_calls, {}
                    waiting += [new_record() for new_record in started]
                while self._queue:
                    waiting.append(self._queue.popleft())
                if waiting or last or not is_tick:
                    if self._audit_log is None:
                        self._audit_log = self._open_log()
                    self._audit_log.append([sanitized(record) for record in (*waiting, *last)])
                    self._is_open = True
            except Exception as error:  # noqa: BLE001 - no failure may lose records
                self._reason = line(str(error) or type(error).__name__, _MAX_TEXT)
                self._has_failed = True
                if is_tick:  # other callers get an exception
                    _log.error("the audit log cannot be written: %s", self._reason)
                self._close_log()
                if not waiting:  # nothing to retry: the next record has to try
                    self._failing_since = 0.0
                return False
            self._unwritten = []
            self._has_failed = False
            self._failing_since = 0.0
            return True

    def _close_log(self) -> None:
        """Close the log; the next write reopens it, as the file may have been replaced."""
        if self._audit_log is not None:
            self._audit_log.close()
            self._audit_log = None


class AuditReader:
    """Reads, verifies and prunes the audit log, including records of other processes."""

    def __init__(self, open_audit_log: "Callable[[], AuditLog]", security: "Security") -> None:
        self._open = open_audit_log
        self._security = security

    def entries(self, query: "AuditFilter", limit: int | None = 100) -> Iterator[ChainedRecord]:
        """Return matching records, newest first."""
        return self._flushed().entries(query, limit)

    def export(self, query: "AuditFilter") -> Iterator[ChainedRecord]:
        """Return all matching records, oldest first."""
        return self._flushed().entries(query, None, newest_first=False)

    def verify(self, expected: tuple[int, str] | None = None) -> "Verification":
        """Verify the hash chain.

        `expected` is a head noted elsewhere: it reveals a log that was truncated and sealed
        again by someone who has the key.
        """
        return self._flushed().verify(expected)

    def prune(self, days: float, session: SessionToken) -> int:
        """Remove older records; the remaining log can still be verified."""
        admin = self._security.require(session, Privilege.ADMIN, "audit.prune")
        self._security.recorder.flush()
        return self._audit_log.prune(time.time() - days * DAY, admin.who)

    def close(self) -> None:
        """Close the log."""
        if audit_log := self.__dict__.get("_audit_log"):
            audit_log.close()

    def _flushed(self) -> "AuditLog":
        with suppress(AuditFailed):  # a log that cannot be written may still be read
            self._security.recorder.flush()
        return self._audit_log

    @cached_property
    def _audit_log(self) -> "AuditLog":
        return self._open()


_surface: ContextVar[str | None] = ContextVar("_surface", default=None)


class AuditedActions:
    """Records the administrative acts done through one Kiln.

    An act that cannot be recorded must not happen: each method raises AuditFailed.
    """

    def __init__(self, recorder: AuditWriter, surface: str) -> None:
        """`surface` is the default; `through` overrides it."""
        self._recorder = recorder
        self._surface = surface

    @property
    def surface(self) -> str:
        """The surface of the current act."""
        return _surface.get() or self._surface

    @contextmanager
    def through(self, surface: str) -> Iterator[None]:
        """Set the surface for acts of the current task."""
        token = _surface.set(surface)
        try:
            yield
        finally:
            _surface.reset(token)

    @contextmanager
    def audited(self, act: str, caller: Caller | str, /, **fields: Any) -> Iterator[None]:
        """Record the start and the outcome of an administrative act."""
        started = time.perf_counter()
        self._commit(act, "started", caller, fields)
        try:
            yield
        except BaseException as error:  # record the outcome of any failure, then re-raise
            outcome = "denied" if isinstance(error, NotAllowed) else "failed"
            detail = f"{fields.get('detail', '')} {error}".strip()
            fields |= {"detail": detail, "duration": time.perf_counter() - started}
            self._commit(act, outcome, caller, fields)
            raise
        self._commit(act, "ok", caller, {**fields, "duration": time.perf_counter() - started})

    def record(self, act: str, caller: Caller, **fields: Any) -> None:
        """Record an act without duration."""
        self._commit(act, "ok", caller, fields)

    def denied(self, act: str, caller: Caller | str, why: str) -> None:
        """Record a denied act."""
        self._commit(act, "denied", caller, {"detail": why})

    def queue(self, act: str, outcome: str, caller: Caller | str = "", **fields: Any) -> None:
        """Record an act without waiting until the record is written."""
        self._recorder.add(self._new(act, outcome, caller, fields))

    def _commit(
        self, act: str, outcome: str, caller: Caller | str, fields: Mapping[str, Any]
    ) -> None:
        self._recorder.commit(self._new(act, outcome, caller, fields))

    def _new(
        self, act: str, outcome: str, caller: Caller | str, fields: Mapping[str, Any]
    ) -> AuditRecord:
        if isinstance(caller, str):
            by = {"user": caller}
        else:
            by = {"user": caller.who, "session": caller.session, "agent": caller.agent_id or ""}
        return AuditRecord(time.time(), act, outcome, **{**by, "surface": self.surface, **fields})
