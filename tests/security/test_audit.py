"""What is recorded gets into the ledger, or what it would record does not happen."""

import gc
import logging
import math
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.errors import InputError, StoreError, ToolkilnError
from toolkiln.model.audit import AuditFilter, AuditRecord
from toolkiln.security.audit import AuditFailed, AuditWriter, audit_key, sanitized
from toolkiln.store.audit_log import open_audit_log

KEY = b"0123456789abcdef"


def record(call_id: str = "", **fields: Any) -> AuditRecord:
    return AuditRecord(1.0, "call", "ok", call_id=call_id)._replace(**fields)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit.db"


Make = Callable[..., AuditWriter]


@pytest.fixture
def recorder_of() -> Iterator[Make]:
    """Makes recorders and closes them at the end."""
    made: list[AuditWriter] = []

    def make(open_one: Callable[[], Any], interval: float = 0.01) -> AuditWriter:
        made.append(AuditWriter(open_one, interval=interval))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()


@pytest.fixture
def recorder(file: Path, recorder_of: Make) -> AuditWriter:
    """One that writes to `file` on request, or after an hour."""
    return recorder_of(lambda: open_audit_log(file, KEY), interval=3600.0)


def written(file: Path) -> list[AuditRecord]:
    if not file.exists():
        return []
    with closing(open_audit_log(file, KEY)) as ledger:
        assert ledger.verify().problems == ()
        return [entry.record for entry in ledger.entries(AuditFilter(), newest_first=False)]


def ids(file: Path) -> list[str]:
    return [record.call_id for record in written(file)]


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


class Flaky:
    """A ledger that fails on request."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.records: list[AuditRecord] = []
        self.is_broken = is_broken
        self.attempts = 0
        self.opened = 0

    def open(self) -> "Flaky":
        self.opened += 1
        return self

    def append(self, records: Sequence[AuditRecord]) -> None:
        self.attempts += 1
        if self.is_broken:
            raise StoreError("the disk is on fire", hint="put it out")
        self.records += records

    def close(self) -> None:
        pass

    @property
    def ids(self) -> list[str]:
        return [record.call_id for record in self.records]


@pytest.fixture
def broken() -> Flaky:
    """A ledger that fails until a test repairs it."""
    return Flaky(is_broken=True)


@pytest.fixture
def stuck(recorder_of: Make, broken: Flaky) -> AuditWriter:
    """One that writes to `broken` on request, or after an hour."""
    return recorder_of(broken.open, interval=3600.0)


def test_many_are_written_at_once(recorder_of: Make) -> None:
    ledger = Flaky()
    recorder = recorder_of(ledger.open, interval=0.1)

    for number in range(1000):
        recorder.add(record(str(number)))

    wait_until(lambda: len(ledger.records) == 1000)
    assert ledger.attempts < 100
    assert ledger.ids == [str(number) for number in range(1000)]


def test_commit_flush_and_close_write_what_waits(file: Path, recorder: AuditWriter) -> None:
    recorder.add(record("c1"))
    recorder.commit(record("c2"))
    assert ids(file) == ["c1", "c2"]

    recorder.add(record("c3"))
    recorder.flush()
    assert ids(file) == ["c1", "c2", "c3"]

    recorder.add(record("c4"))
    recorder.close()
    recorder.close()
    assert ids(file) == ["c1", "c2", "c3", "c4"]


def test_only_records_make_a_file_even_after_closing(file: Path, recorder: AuditWriter) -> None:
    recorder.close()
    assert not file.exists()

    recorder.add(record("c1"))
    recorder.end("x", record("c2"))

    assert ids(file) == ["c1", "c2"]


def test_only_a_long_call_leaves_a_record_of_its_start(file: Path, recorder_of: Make) -> None:
    recorder = recorder_of(lambda: open_audit_log(file, KEY))
    recorder.begin("short", lambda: record("short", outcome="started"))
    recorder.end("short", record("short"))
    recorder.begin("long", lambda: record("long", outcome="started"))

    wait_until(lambda: ids(file) == ["short", "long"])
    recorder.end("long", record("long"))
    recorder.flush()

    assert [r.outcome for r in written(file)] == ["ok", "started", "ok"]


def test_a_committed_start_is_not_recorded_again(recorder_of: Make) -> None:
    ledger = Flaky()
    recorder = recorder_of(ledger.open)
    recorder.begin("k", lambda: record("twice"))
    recorder.begin("other", lambda: record("other"))

    recorder.commit(record("once"), "k")

    wait_until(lambda: len(ledger.records) == 2)
    assert set(ledger.ids) == {"once", "other"}


def test_texts_are_cleaned_on_the_way(file: Path, recorder: AuditWriter) -> None:
    recorder.add(record("a\nb\x1b[31m\0\ud800\u202e", detail="x" * 100_000, duration=math.inf))

    recorder.flush()

    (kept,) = written(file)
    assert kept.call_id == "a\\nb\\x1b[31m\\x00\\ud800\\u202e"
    assert len(kept.detail) == 500
    assert kept.detail.endswith("x…[+99515 chars]")
    assert kept.duration is None


def test_a_clean_record_stays_as_it_is() -> None:
    plain = record("c1", user="Jürgen", duration=0.5, arguments='{"x": 1}')

    assert sanitized(plain) is plain
    assert len(sanitized(record(arguments="x" * 5000)).arguments) == 2000
    assert sanitized(record(at=math.nan)).at == 0.0


def test_what_fails_is_tried_again_in_order(recorder_of: Make, broken: Flaky) -> None:
    recorder = recorder_of(broken.open)

    recorder.add(record("c1"))
    wait_until(lambda: broken.attempts >= 2)
    recorder.add(record("c2"))
    broken.is_broken = False

    wait_until(lambda: broken.ids == ["c1", "c2"])
    assert broken.opened >= 2


def test_commit_that_fails_raises_and_is_never_written(stuck: AuditWriter, broken: Flaky) -> None:
    stuck.add(record("kept"))

    with pytest.raises(AuditFailed, match="the disk is on fire") as caught:
        stuck.commit(record("refused"))
    broken.is_broken = False
    stuck.flush()

    assert isinstance(caught.value, ToolkilnError)
    assert caught.value.code == "audit_failed"
    assert caught.value.hint
    assert broken.ids == ["kept"]


def test_a_log_that_cannot_be_opened_is_reported_at_once(tmp_path: Path, recorder_of: Make) -> None:
    (tmp_path / "file").touch()
    with closing(open_audit_log(tmp_path / "other.db", b"another key of some length")) as ledger:
        ledger.append([record()])

    for place, why in (("file/audit.db", "cannot be created"), ("other.db", "another key")):
        recorder = recorder_of(partial(open_audit_log, tmp_path / place, KEY))
        with pytest.raises(AuditFailed, match=why):
            recorder.flush()
        with pytest.raises(AuditFailed, match=why):
            recorder.commit(record())


def test_calls_wait_until_the_log_was_opened(recorder_of: Make, broken: Flaky) -> None:
    recorder = recorder_of(broken.open)

    with pytest.raises(AuditFailed):
        recorder.flush()
    assert recorder.must_flush
    broken.is_broken = False
    recorder.flush()

    assert not recorder.must_flush


def test_too_many_waiting_records_stop_further_ones(
    stuck: AuditWriter, broken: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.security.audit._MAX_QUEUE", 3)
    for number in range(4):
        stuck.add(record(str(number)))
    with pytest.raises(AuditFailed):
        stuck.flush()

    for act in (
        stuck.ready,
        lambda: stuck.add(record("refused")),
        lambda: stuck.begin("k", record),
        lambda: stuck.commit(record("refused")),
    ):
        with pytest.raises(AuditFailed, match="the disk is on fire"):
            act()
    stuck.end("k", record("happened"))
    broken.is_broken = False
    stuck.flush()

    stuck.ready()
    assert broken.ids == ["0", "1", "2", "3", "happened"]


def test_a_long_delay_stops_records(stuck: AuditWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck.add(record("c1"))
    with pytest.raises(AuditFailed):
        stuck.flush()
    stuck.ready()

    monkeypatch.setattr("toolkiln.security.audit._MAX_DELAY", -1.0)

    with pytest.raises(AuditFailed):
        stuck.ready()


def test_a_commit_that_failed_long_ago_does_not_stop_later_ones(
    recorder_of: Make, broken: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.security.audit._MAX_DELAY", -1.0)
    recorder = recorder_of(broken.open)
    with pytest.raises(AuditFailed):
        recorder.commit(record("refused"))
    broken.is_broken = False

    recorder.commit(record("c1"))

    assert broken.ids == ["c1"]


def test_a_ledger_that_hangs_stops_further_records(
    recorder_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()

    class Hanging(Flaky):
        def append(self, records: Sequence[AuditRecord]) -> None:
            is_inside.set()
            may_go_on.wait(20)
            super().append(records)

    ledger = Hanging()
    recorder = recorder_of(ledger.open)
    recorder.add(record("c1"))
    assert is_inside.wait(60)
    recorder.add(record("c2"))
    monkeypatch.setattr("toolkiln.security.audit._MAX_DELAY", -1.0)

    with pytest.raises(AuditFailed):
        recorder.add(record("c3"))
    may_go_on.set()
    recorder.flush()

    assert ledger.ids == ["c1", "c2"]


def test_what_is_lost_is_logged(stuck: AuditWriter, caplog: pytest.LogCaptureFixture) -> None:
    stuck.add(record("c1\nforged line"))

    stuck.close()

    (lost,) = [entry for entry in caplog.records if entry.levelno == logging.CRITICAL]
    assert "c1\\\\nforged line" in lost.getMessage()
    assert "the disk is on fire" in lost.getMessage()


def test_a_record_that_cannot_be_made_does_not_stop_the_others(recorder_of: Make) -> None:
    ledger = Flaky()
    recorder = recorder_of(ledger.open)
    recorder.begin("k", lambda: AuditRecord(1 / 0, "call", "never"))

    recorder.add(record("c1"))
    wait_until(lambda: ledger.records)
    recorder.add(record("c2"))

    wait_until(lambda: len(ledger.records) == 2)


def test_a_log_moved_away_is_followed_by_another(file: Path, recorder: AuditWriter) -> None:
    recorder.commit(record("c1"))
    away = file.parent.rename(file.parent.with_name("away"))
    with pytest.raises(AuditFailed, match="removed or replaced"):
        recorder.commit(record("c2"))

    recorder.commit(record("c3"))

    assert ids(file) == ["c3"]
    assert ids(away / file.name) == ["c1"]


def test_a_log_moved_in_part_is_not_followed_by_another(file: Path, recorder: AuditWriter) -> None:
    recorder.commit(record("c1"))
    away = file.rename(file.with_name("away.db"))
    with pytest.raises(AuditFailed, match="removed or replaced"):
        recorder.commit(record("c2"))
    with pytest.raises(AuditFailed, match="its write-ahead log exists"):
        recorder.commit(record("c3"))

    away.rename(file)
    recorder.commit(record("c4"))

    assert ids(file) == ["c1", "c4"]


def test_threads_lose_nothing(file: Path, recorder_of: Make) -> None:
    recorder = recorder_of(lambda: open_audit_log(file, KEY))

    def work(name: int) -> None:
        for number in range(100):
            key = f"{name}-{number}"
            recorder.begin(key, lambda: record("started", outcome="started"))
            if number % 20 == 0:
                recorder.commit(record(f"{key}-commit"), key)
            recorder.end(key, record(key))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    recorder.close()

    ended = [call_id for call_id in ids(file) if call_id.count("-") == 1]
    assert sorted(ended) == sorted(f"{name}-{n}" for name in range(8) for n in range(100))
    assert sum(call_id.endswith("commit") for call_id in ids(file)) == 40


Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def start(file: Path, start_python: Start) -> Start:
    """Starts `recording.py` for `file`; it is killed at the end."""
    source = Path(__file__).with_name("recording.py").read_text()
    return partial(start_python, source, file)


def line(process: Process) -> str:
    assert process.stdout
    return process.stdout.readline()


def test_processes_share_a_chain_and_lose_nothing_when_they_end(file: Path, start: Start) -> None:
    processes = [start("add", "200") for _ in range(3)]
    assert {line(process) for process in processes} == {"waiting\n"}

    for process in processes:
        process.communicate("go\n", timeout=60)

    assert sorted(map(int, ids(file))) == sorted([*range(200)] * 3)


def test_a_killed_process_loses_at_most_its_last_second(file: Path, start: Start) -> None:
    process = start("stream")
    output = [line(process)]
    while float(output[-1].split()[1]) - float(output[0].split()[1]) < 1.5:
        output.append(line(process))
    killed = time.time()
    process.kill()

    older = {line.split()[0] for line in output if float(line.split()[1]) < killed - 1.0}
    assert len(older) > 10
    assert older <= set(ids(file))


def test_a_killed_process_leaves_the_start_of_a_long_call(file: Path, start: Start) -> None:
    process = start("run")
    assert line(process) == "begun\n"
    wait_until(lambda: written(file))

    process.kill()

    (kept,) = written(file)
    assert (kept.outcome, kept.tool) == ("started", "endless")


def test_a_forked_child_records_its_own_and_nothing_twice(file: Path, start: Start) -> None:
    assert start("fork").wait(timeout=60) == 0

    assert sorted(ids(file)) == ["1", "2"]
    assert len({r.user for r in written(file)}) == 2


def test_a_recorder_that_was_closed_can_be_forgotten(file: Path) -> None:
    recorder = AuditWriter(lambda: open_audit_log(file, KEY))
    recorder.commit(record())
    recorder.close()
    remembered = weakref.ref(recorder)

    del recorder
    gc.collect()

    assert remembered() is None


def test_a_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    start = threading.Barrier(8)

    def make(_: int) -> bytes:
        start.wait(60)
        return audit_key("", state)

    with ThreadPoolExecutor(8) as threads:
        keys = list(threads.map(make, range(8)))

    (key,) = set(keys)
    assert audit_key("", state) == key
    assert len(key) == 64
    assert (state / "audit.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in state.iterdir()] == ["audit.key"]


def test_a_key_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "audit.key").mkdir()

    for state in (tmp_path / "file", tmp_path):
        with pytest.raises(InputError, match="cannot be used"):
            audit_key("", state)


def test_a_key_from_the_settings_needs_no_file_and_a_certain_length(tmp_path: Path) -> None:
    assert audit_key("a key from the settings", tmp_path) == b"a key from the settings"
    with pytest.raises(InputError, match="audit_key"):
        audit_key("hunter2", tmp_path)

    assert list(tmp_path.iterdir()) == []


@each_row(
    "content, mode, why, hint",
    [
        *(("k" * 64, mode, "by others", "chmod 600") for mode in (0o640, 0o604, 0o660, 0o666)),
        *((content, 0o600, "too short", "private file") for content in ("", "short", "\n" * 100)),
    ],
)
def test_a_key_that_others_can_read_or_that_is_too_short_is_refused(
    tmp_path: Path, content: str, mode: int, why: str, hint: str
) -> None:
    (tmp_path / "audit.key").write_text(content)
    (tmp_path / "audit.key").chmod(mode)

    with pytest.raises(InputError, match=why) as caught:
        audit_key("", tmp_path)

    assert hint in (caught.value.hint or "")
