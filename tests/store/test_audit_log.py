"""The audit log over an SQLite file and over PostgreSQL: appending, reading, pruning, faults."""

import math
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditFilter, AuditRecord, ChainedRecord
from toolkiln.store.audit_log import AuditLog, open_audit_log

from .auditor import KEY
from .conftest import Clock, count_rows, execute, kill, next_line, running, together
from .test_faults import refusal

ALL = AuditFilter()


def record(at: float = 1.0, **fields: Any) -> AuditRecord:
    return AuditRecord(at, "call", "ok")._replace(**fields)


@pytest.fixture
def log(place: str, clock: Clock) -> Iterator[AuditLog]:
    """An empty log of each kind."""
    opened = open_audit_log(place, KEY, clock=clock)
    yield opened
    opened.close()


def seqs(entries: Iterator[ChainedRecord]) -> list[int]:
    return [entry.seq for entry in entries]


def test_what_is_appended_is_read_back_exactly(log: AuditLog) -> None:
    records = [
        AuditRecord(1731778885.1234567, "call", "ok", "ann", "a", "s", "cli", "t", "d", "c", "p",
                    "detail", 0.1 + 0.2, '{"x": "ü — 漢字 🎉"}'),
        record(5e-324, duration=1.7976931348623157e308),
        record(-0.0, duration=-0.0),
        record(7, duration=3),
        record(math.nextafter(1e9, 2e9), duration=None),
    ]  # fmt: skip

    log.append(records)

    entries = list(log.entries(ALL, newest_first=False))
    assert [entry.record for entry in entries] == records
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
    assert log.verify().ok


def test_a_chain_goes_on_after_reopening(place: str, log: AuditLog) -> None:
    log.append([record(), record()])
    log.close()
    again = open_audit_log(place, KEY)

    again.append([record()])

    found = again.verify()
    assert (found.ok, found.count, found.last) == (True, 3, 3)
    assert found.head == next(again.entries(ALL)).hash
    assert len({entry.hash for entry in again.entries(ALL)}) == 3  # of equal records
    again.close()


def test_another_key_is_refused_and_writes_nothing(place: str, log: AuditLog) -> None:
    log.append([record()])
    with closing(open_audit_log(place, b"another key of some length")) as stranger:
        for write in (
            lambda: stranger.append([record()]),
            lambda: stranger.append([]),
            lambda: stranger.prune(math.inf, "me"),
        ):
            with pytest.raises(StoreError, match="sealed with another key") as caught:
                write()
            assert "audit_key" in (caught.value.hint or "")
        assert "audit_key" in " ".join(stranger.verify().problems)

    assert (log.verify().problems, log.verify().count) == ((), 1)


@each_row(
    "bad",
    [
        record(math.nan),
        record(math.inf),
        record(duration=math.nan),
        record(detail="two\nlines"),
        record(user="\ud800"),
        record(user=None),
        record(arguments=b"bytes"),
        record(10**400),
    ],
)
def test_a_record_that_cannot_be_read_back_is_refused_with_its_batch(
    log: AuditLog, bad: AuditRecord
) -> None:
    before = log.verify().count
    with pytest.raises(StoreError, match="cannot store a record"):
        log.append([record(), bad, record()])

    assert log.verify().count == before
    log.append([record()])
    assert log.verify().ok


def test_entries_are_filtered(log: AuditLog) -> None:
    log.append(
        [
            record(1.0, user="ann", tool="read_file", outcome="ok", session="s1"),
            record(2.0, user="bob", tool="read_mail", outcome="denied", session="s2"),
            record(3.0, user="ann", tool="write[1]", act="admit", session="s1"),
        ]
    )

    def found(**wanted: object) -> list[int]:
        return seqs(log.entries(AuditFilter.model_validate(wanted)))

    assert found() == [3, 2, 1]
    assert found(user="ann") == [3, 1]
    assert found(user="") == []
    assert found(tool="read_file") == [1]
    assert found(tool="read_*") == [2, 1]
    assert found(tool="write[[]1]") == [3]
    assert found(tool="READ_*") == []
    assert found(outcome="denied") == [2]
    assert found(act="admit") == [3]
    assert found(session="s1", user="bob") == []
    assert found(since=2.0) == [3, 2]
    assert found(until=2.0) == [1]
    assert found(since=2.0, until=3.0) == [2]
    assert found(since=9.0) == []
    assert found(user="ann' OR '1'='1") == []


def test_entries_come_in_either_order_and_as_many_as_wanted(log: AuditLog) -> None:
    log.append([record(float(number), tool=f"t{number % 2}") for number in range(1, 1201)])

    assert seqs(log.entries(ALL, 3)) == [1200, 1199, 1198]
    assert seqs(log.entries(ALL, 0)) == []
    assert seqs(log.entries(ALL, 3, newest_first=False)) == [1, 2, 3]
    assert seqs(log.entries(ALL)) == list(range(1200, 0, -1))
    assert seqs(log.entries(ALL, newest_first=False)) == list(range(1, 1201))
    assert seqs(log.entries(AuditFilter(tool="t[0]"), 1000)) == list(range(1200, 0, -2))


def test_times_that_jump_hide_no_record(log: AuditLog) -> None:
    log.append([record(at) for at in (5.0, 1.0, 9.0, 2.0, 6.0)])

    assert seqs(log.entries(AuditFilter(since=5.0))) == [5, 3, 1]
    assert seqs(log.entries(AuditFilter(until=5.0))) == [4, 2]


def test_a_reader_on_the_way_neither_blocks_nor_sees_later_records(log: AuditLog) -> None:
    log.append([record()] * 1100)
    entries = log.entries(ALL)
    first = next(entries)

    log.append([record()] * 10)

    assert [first.seq, *seqs(entries)] == list(range(1100, 0, -1))
    assert log.verify().count == 1110


def test_threads_append_to_one_chain(log: AuditLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: log.append([record(float(n))] * 3), range(60)))

    found = log.verify()
    assert (found.problems, found.count) == ((), 180)


@pytest.mark.parametrize(
    ("times", "before", "removed", "left"),
    [
        (range(1, 11), 6, 5, range(6, 12)),
        ([], 5, 0, []),
        ([7], 5, 0, [1]),
        ([1, 2, 3], math.inf, 2, [3, 4]),
        ([1, 9, 2, 3], 5, 1, [2, 3, 4, 5]),
    ],
    ids=["the oldest", "of nothing", "nothing old enough", "never the newest", "up to a later one"],
)
def test_pruning_removes_the_oldest_and_says_so(
    log: AuditLog, clock: Clock, times: list[int], before: float, removed: int, left: list[int]
) -> None:
    log.append([record(float(at)) for at in times])

    assert log.prune(before, "ann") == removed
    found = log.verify()
    assert (found.problems, found.count) == ((), len(left))
    entries = list(log.entries(ALL, newest_first=False))
    assert [entry.seq for entry in entries] == list(left)
    prunes = [entry.record for entry in entries if entry.record.act == "audit.prune"]
    assert [(found.user, found.at) for found in prunes] == [("ann", clock.now)] * (removed > 0)


def test_pruning_again_and_again_keeps_the_chain(log: AuditLog, clock: Clock) -> None:
    for before in map(float, range(1, 8)):
        clock.now = before
        log.append([record(before)] * 2)

        log.prune(before, "ann")

        assert log.verify().problems == ()
    assert log.verify().first > 10


def test_pruning_that_was_denied_does_not_hide_what_was_pruned_before(log: AuditLog) -> None:
    log.append([record(float(number)) for number in range(1, 6)])
    log.prune(3.0, "ann")

    log.append([record(7.0, act="audit.prune", outcome="denied", detail="lacks ADMIN")])

    assert log.verify().problems == ()
    assert log.prune(4.0, "ann") == 1


def test_many_records_are_pruned_in_steps(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkiln.store.audit_log._PRUNE_BATCH", 10)
    log.append([record(1.0)] * 35 + [record(2.0)] * 5)

    assert log.prune(2.0, "ann") == 35
    found = log.verify()
    assert (found.ok, found.first) == (True, 36)


def test_a_time_made_older_by_hand_gets_no_record_pruned(place: str, log: AuditLog) -> None:
    log.append([record(1.0), record(100.0), record(101.0)])
    execute(place, "UPDATE toolkiln_audit SET at = 1.0 WHERE seq = 2")

    with pytest.raises(StoreError, match="tampered with and is not pruned: row 2"):
        log.prune(50.0, "ann")

    assert count_rows(place, "toolkiln_audit") == 3


def test_a_noted_head_is_found_again(log: AuditLog) -> None:
    log.append([record(1.0), record(2.0)])
    noted = log.verify()
    log.append([record(3.0), record(4.0)])

    assert log.verify((noted.last, noted.head)).ok
    assert log.verify((4, log.verify().head)).ok
    assert log.verify((0, "0" * 64)).ok
    assert log.verify((2, "f" * 64)).problems == ("row 2 differs from the expected one",)
    assert "ends at row 4, before the expected row 5" in log.verify((5, noted.head)).problems[0]


def test_a_noted_head_may_have_been_pruned(log: AuditLog) -> None:
    log.append([record(1.0), record(2.0), record(3.0)])
    hashes = {entry.seq: entry.hash for entry in log.entries(ALL)}
    log.prune(3.0, "ann")

    assert log.verify((1, hashes[1])).ok
    assert log.verify((2, hashes[2])).ok
    assert "row 2, which was pruned" in log.verify((2, hashes[1])).problems[0]


def test_the_log_is_private_and_leaves_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "state" / "audit.db"

    with closing(open_audit_log(file, KEY)) as log:
        log.append([record()])

        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        assert Path(f"{file}-wal").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["audit.db"]


def test_a_log_in_a_file_needs_no_sqlalchemy(tmp_path: Path) -> None:
    code = """
import sys
from toolkiln.model.audit import AuditRecord
from toolkiln.store.audit_log import open_audit_log
log = open_audit_log(sys.argv[1], b"0123456789abcdef")
log.append([AuditRecord(1.0, "call", "ok")])
assert log.verify().ok
print([name for name in ("sqlalchemy", "psycopg", "asyncio") if name in sys.modules])
"""

    command = [sys.executable, "-c", code, str(tmp_path / "audit.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_processes_that_create_one_log_concurrently_make_one_chain(place: str) -> None:
    together(place, "auditor.py", *[("append", "20")] * 4)

    with closing(open_audit_log(place, KEY)) as log:
        found = log.verify()
        assert (found.problems, found.count) == ((), 400)


def test_a_killed_writer_leaves_whole_batches_and_a_valid_chain(place: str) -> None:
    with running(place, "stream", script="auditor.py") as writer:
        printed = [next_line(writer) for _ in range(20)]
        printed += kill(writer)

    with closing(open_audit_log(place, KEY)) as log:
        found = log.verify()
        assert found.problems == ()
        assert found.count % 5 == 0
        assert found.count >= 5 * len(printed)
        log.append([record()])
        assert log.verify().ok


def test_a_full_disk_is_reported_and_no_batch_is_written_in_part(tmp_path: Path) -> None:
    file = str(tmp_path / "audit.db")
    with running(file, "fill", "200000", script="auditor.py") as writer:
        number, message, hint = writer.communicate()[0].splitlines()

    assert "disk" in message
    assert "disk" in hint or "space" in hint
    with closing(open_audit_log(file, KEY)) as log:
        found = log.verify()
        assert (found.problems, found.count) == ((), 5 * int(number))
        log.append([record()])
        assert log.verify().ok


def test_an_empty_file_is_not_an_empty_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    file.touch()

    assert "no such table" in refusal(file, "audit log").message


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    with closing(open_audit_log(file, KEY)) as log:
        log.append([record()] * 2000)
    with file.open("r+b") as raw:
        raw.seek(8192)
        raw.write(b"\xff" * (file.stat().st_size - 8192))

    with closing(open_audit_log(file, KEY)) as log:
        with pytest.raises(StoreError, match="malformed"):
            log.verify()
        with pytest.raises(StoreError, match="malformed"):
            list(log.entries(AuditFilter()))
        with pytest.raises(StoreError, match="malformed") as caught:
            log.append([record()])

    assert caught.value.hint


def test_a_locked_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.db"
    monkeypatch.setattr("toolkiln.store.audit_drivers._BUSY_SECONDS", 0.05)
    with (
        closing(open_audit_log(file, KEY)) as log,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="locked"):
            log.append([record()])

        assert log.verify().ok
        other.execute("ROLLBACK")
        log.append([record()])
        assert log.verify().count == 1


@each_row("is_replaced", [False, True])
def test_a_file_that_vanished_is_not_written_to_unseen(tmp_path: Path, is_replaced: bool) -> None:
    file = tmp_path / "state" / "audit.db"
    with closing(open_audit_log(file, KEY)) as log:
        log.append([record()])
        file.parent.rename(tmp_path / "away")
        if is_replaced:
            open_audit_log(file, KEY).close()

        with pytest.raises(StoreError, match="removed or replaced"):
            log.append([record()])


def test_no_file_is_begun_beside_the_write_ahead_log_of_another(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    with closing(open_audit_log(file, KEY)) as log:
        log.append([record()])
        away = file.rename(tmp_path / "away.db")

        assert "write-ahead log" in refusal(file, "audit log").message

        away.rename(file)
        log.append([record()])
        assert log.verify().count == 2
