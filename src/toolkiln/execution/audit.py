"""The recorder: gets audit records into the ledger soon, cheaply, and never silently not.

Most records wait in memory for a thread that writes them at most `interval` later; what
has to be there before something happens is committed. When writing fails, records are kept
and tried again, and after a while nothing further is accepted, so that what cannot be
recorded does not happen. What records say is decided by `guard`, how they are kept by
`store`.
"""

import asyncio
import atexit
import logging
import os
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.execution.redaction import line
from toolkiln.model import AuditRecord

if TYPE_CHECKING:
    from toolkiln.store import Ledger

_log = logging.getLogger(__name__)

_LONGEST_TEXT = 500
_LONGEST_ARGUMENTS = 2_000
_MOST_WAITING = 10_000
_MANY_WAITING = 5_000
_LONGEST_WAIT = 10.0
_LONGEST_PAUSE = 2.0
_SHORTEST_KEY = 16


class AuditFailed(ToolkilnError):
    """What is to be recorded cannot be, so it must not happen."""

    code: ClassVar[str] = "audit_failed"


def clean(record: AuditRecord) -> AuditRecord:
    """The record with each text as one printable line of bounded length."""
    at, duration = record.at, record.duration
    if not isfinite(at) or not (duration is None or isfinite(duration)):
        record = record._replace(at=at if isfinite(at) else 0.0, duration=None)
    texts, arguments = record[1:-2], record.arguments
    together = "".join(texts) + arguments
    if len(together) <= _LONGEST_TEXT and together.isprintable():
        return record
    lines = (line(text, _LONGEST_TEXT) for text in texts)
    arguments = line(arguments, _LONGEST_ARGUMENTS)
    return AuditRecord._make((record.at, *lines, record.duration, arguments))


def audit_key(setting: str, state: Path) -> bytes:
    """The key that seals the audit: the setting, or what `audit.key` in a folder holds.

    Raises:
        InputError: it is too short, or others can read the file, or it cannot be read or made.
    """
    if setting:
        if len(setting) < _SHORTEST_KEY:
            hint = "take 32 random bytes: python -c 'import secrets; print(secrets.token_hex())'"
            raise InputError(f"audit_key has less than {_SHORTEST_KEY} characters", hint=hint)
        return setting.encode("utf-8", "surrogateescape")
    file = state / "audit.key"
    try:
        return _key_in(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise _unusable(file, error) from None
    try:
        _make_key(file)
        return _key_in(file)
    except (OSError, ValueError) as error:
        raise _unusable(file, error) from None


def _key_in(file: Path) -> bytes:
    with file.open("rb") as opened:
        if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
            raise InputError(
                f"the audit's key {str(file)!r} can be read by others",
                hint="chmod 600 it; if others may have read it, begin another log with another key",
            )
        text = opened.read(1000).strip()
    if len(text) < _SHORTEST_KEY:
        raise ValueError("it is too short")
    return text


def _make_key(file: Path) -> None:
    """It appears complete, and only where there is none: processes may start at once."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(os.urandom(32).hex() + "\n")
            opened.flush()
            os.fsync(descriptor)
        os.link(unfinished, file)
    except FileExistsError:
        pass  # another process was faster: its key is the key
    finally:
        unfinished.unlink(missing_ok=True)


def _unusable(file: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    hint = "make it a private file of this user with at least 16 characters, or set audit_key"
    return InputError(f"the audit's key {str(file)!r} cannot be used: {reason}", hint=hint)


class Recorder:
    """Takes records from any thread; one thread of its own writes them.

    A record may be written twice if a server fails while it commits; never not at all.
    """

    def __init__(self, open_ledger: "Callable[[], Ledger]", *, interval: float = 0.25) -> None:
        """`open_ledger` is called once there is something to write, and after failures."""
        self._open_ledger = open_ledger
        self._interval = interval
        self._is_closed = False
        self._ledger: Ledger | None = None
        self._begin_empty()
        atexit.register(self.close)
        after_fork = weakref.WeakMethod(self._begin_empty)
        os.register_at_fork(after_in_child=lambda: (method := after_fork()) and method())

    def _begin_empty(self) -> None:
        """As at first; also in a forked child, whose parent writes what was waiting."""
        # A child may neither use nor close the connection of its parent: it only keeps it.
        self._inherited, self._ledger = self._ledger, None
        self._is_open = False
        self._has_failed = False
        self._queue: deque[AuditRecord] = deque()
        self._unwritten: list[AuditRecord] = []
        self._younger: dict[Hashable, Callable[[], AuditRecord]] = {}
        self._older: dict[Hashable, Callable[[], AuditRecord]] = {}
        self._writing = threading.Lock()
        self._starting = threading.Lock()
        self._nudged = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_awake = False
        self._since = 0.0  # when the oldest unwritten record was first tried; 0: there is none
        self._reason = "it is slow"

    async def caught_up(self) -> None:
        """Makes sure that there is a ledger which can be written, and is not far behind.

        Raises:
            AuditFailed: there is none.
        """
        if self.must_wait:
            await asyncio.to_thread(self.flush)

    @property
    def must_wait(self) -> bool:
        """Whether nothing was written yet, or so much waits that calls have to wait, too."""
        return not self._is_open or len(self._queue) > _MANY_WAITING

    def ready(self) -> None:
        """Returns if records are accepted.

        Raises:
            AuditFailed: too many are waiting, or for too long.
        """
        if self._since and (
            (self._has_failed and len(self._queue) + len(self._unwritten) > _MOST_WAITING)
            or time.monotonic() - self._since > _LONGEST_WAIT
        ):
            raise self._failure()

    def add(self, record: AuditRecord) -> None:
        """Takes a record, to be written soon.

        Raises:
            AuditFailed: it was not taken.
        """
        self.ready()
        self._queue.append(record)
        if not self._is_awake:
            self._wake()

    def begin(self, key: Hashable, started: Callable[[], AuditRecord]) -> None:
        """Notes a call that starts; should it take long, what `started` gives is recorded.

        Raises:
            AuditFailed: it must not start.
        """
        self.ready()
        self._younger[key] = started
        if not self._is_awake:
            self._wake()

    def end(self, key: Hashable, record: AuditRecord) -> None:
        """Takes the record of a call that ended: in any case, since it did happen."""
        self._forget(key)
        self._queue.append(record)
        if not self._is_awake:
            self._wake()

    def commit(self, record: AuditRecord, key: Hashable = None) -> None:
        """Returns once this record and all before it are written.

        `key`: that of the call whose start it records, which then needs no other record.

        Raises:
            AuditFailed: it is not recorded, and will not be.
        """
        self.ready()
        if not self._write(last=[record]):
            raise self._failure()
        self._forget(key)

    def flush(self) -> None:
        """Returns once everything taken so far is written.

        Raises:
            AuditFailed: it is not; it is kept, and tried again.
        """
        if not self._write():
            raise self._failure()

    def close(self) -> None:
        """Writes what is left and stops; what cannot be written is logged as lost."""
        self._is_closed = True
        atexit.unregister(self.close)
        self._closing.set()
        self._nudged.set()
        with self._starting:
            if self._thread is not None:
                self._thread.join()
        if self._queue or self._unwritten:
            self._write()
        with self._writing:
            lost, self._unwritten = self._unwritten, []
            self._drop_ledger()
        for record in lost:
            _log.critical("an audit record is lost (%s): %s", self._reason, clean(record))

    def _forget(self, key: Hashable) -> None:
        if self._younger.pop(key, None) is None:
            self._older.pop(key, None)

    def _failure(self) -> AuditFailed:
        hint = "nothing runs that cannot be recorded: mend the audit log, then try again"
        return AuditFailed(f"the audit cannot be written: {self._reason}", hint=hint)

    def _wake(self) -> None:
        """The slow way, for what comes first after a while."""
        if self._is_closed:
            self.close()  # a straggler is written at once
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self._thread.start()
        self._nudged.set()

    def _run(self) -> None:
        failures = 0
        while not self._is_closed:
            # In this order: whoever adds something either is seen here or sees us asleep.
            self._is_awake = False
            if not (self._queue or self._unwritten or self._younger or self._older):
                self._nudged.wait()
            self._is_awake = True
            self._nudged.clear()
            pause = min(self._interval * 2**failures, _LONGEST_PAUSE)
            self._closing.wait(max(self._interval, pause))
            failures = 0 if self._write(is_tick=True) else min(failures + 1, 10)
        self._is_awake = False

    def _write(self, last: Sequence[AuditRecord] = (), *, is_tick: bool = False) -> bool:
        """Write all that waits, and `last`, which is not kept if that fails."""
        with self._writing:
            waiting = self._unwritten
            self._since = self._since or time.monotonic()
            try:
                if is_tick:
                    waiting += [started() for started in self._lasting()]
                while self._queue:
                    waiting.append(self._queue.popleft())
                if waiting or last or not is_tick:
                    if self._ledger is None:
                        self._ledger = self._open_ledger()
                    self._ledger.append([clean(record) for record in (*waiting, *last)])
                    self._is_open = True
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be lost
                self._reason = line(str(error) or type(error).__name__, _LONGEST_TEXT)
                self._has_failed = True
                if is_tick:  # whoever else asked is told
                    _log.error("the audit cannot be written: %s", self._reason)
                self._drop_ledger()
                if not waiting:  # nobody will try again: the next to come has to
                    self._since = 0.0
                return False
            self._unwritten = []
            self._has_failed = False
            self._since = 0.0
            return True

    def _lasting(self) -> list[Callable[[], AuditRecord]]:
        """The calls that were already running at the last tick, and of which nobody knows."""
        lasting = list(self._older.values())
        self._older, self._younger = self._younger, {}
        return lasting

    def _drop_ledger(self) -> None:
        """The next attempt opens it afresh: the file may have been mended or replaced."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
