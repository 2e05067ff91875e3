"""What the audit's ledger promises, over an SQLite file and over PostgreSQL."""

import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditFilter, AuditRecord, ChainedRecord
from toolkiln.store.audit_log import AuditLog, open_audit_log

from .conftest import Clock, count_rows, execute

KEY = b"0123456789abcdef"
ALL = AuditFilter()


def record(at: float = 1.0, **fields: Any) -> AuditRecord:
    return AuditRecord(at, "call", "ok")._replace(**fields)


@pytest.fixture
def ledger(place: str, clock: Clock) -> Iterator[AuditLog]:
    """An empty ledger of each kind."""
    opened = open_audit_log(place, KEY, clock=clock)
    yield opened
    opened.close()


def seqs(entries: Iterator[ChainedRecord]) -> list[int]:
    return [entry.seq for entry in entries]


def test_what_is_appended_is_read_back_exactly(ledger: AuditLog) -> None:
    records = [
        AuditRecord(1731778885.1234567, "call", "ok", "ann", "a", "s", "cli", "t", "d", "c", "p",
                    "detail", 0.1 + 0.2, '{"x": "ü — 漢字 🎉"}'),
        record(5e-324, duration=1.7976931348623157e308),
        record(-0.0, duration=-0.0),
        record(7, duration=3),
        record(math.nextafter(1e9, 2e9), duration=None),
    ]  # fmt: skip

    ledger.append(records)

    entries = list(ledger.entries(ALL, newest_first=False))
    assert [entry.record for entry in entries] == records
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
    assert ledger.verify().ok


def test_an_empty_ledger_verifies(ledger: AuditLog) -> None:
    found = ledger.verify()

    assert (found.ok, found.count, found.first, found.last) == (True, 0, 0, 0)
    assert list(ledger.entries(ALL)) == []


def test_a_chain_goes_on_after_reopening(place: str, ledger: AuditLog) -> None:
    ledger.append([record(), record()])
    ledger.close()
    again = open_audit_log(place, KEY)

    again.append([record()])

    found = again.verify()
    assert (found.ok, found.count, found.last) == (True, 3, 3)
    assert found.head == next(again.entries(ALL)).hash
    again.close()


def test_equal_records_have_different_hashes(ledger: AuditLog) -> None:
    ledger.append([record()] * 3)

    assert len({entry.hash for entry in ledger.entries(ALL)}) == 3


def test_another_key_is_refused_and_writes_nothing(place: str, ledger: AuditLog) -> None:
    ledger.append([record()])
    stranger = open_audit_log(place, b"another key of some length")

    with pytest.raises(StoreError, match="sealed with another key") as caught:
        stranger.append([record()])
    with pytest.raises(StoreError, match="sealed with another key"):
        stranger.append([])
    with pytest.raises(StoreError, match="sealed with another key"):
        stranger.prune(math.inf, "me")

    assert "audit_key" in (caught.value.hint or "")
    assert "audit_key" in " ".join(stranger.verify().problems)
    assert ledger.verify().count == 1
    assert ledger.verify().ok
    stranger.close()


@pytest.mark.parametrize(
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
def test_a_record_that_would_not_come_back_is_refused_with_its_batch(
    ledger: AuditLog, bad: AuditRecord
) -> None:
    with pytest.raises(StoreError, match="cannot store a record"):
        ledger.append([record(), bad, record()])

    assert ledger.verify().count == 0
    ledger.append([record()])
    assert ledger.verify().ok


def test_entries_are_filtered(ledger: AuditLog) -> None:
    ledger.append(
        [
            record(1.0, user="ann", tool="read_file", outcome="ok", session="s1"),
            record(2.0, user="bob", tool="read_mail", outcome="denied", session="s2"),
            record(3.0, user="ann", tool="write[1]", act="admit", session="s1"),
        ]
    )

    def found(**wanted: object) -> list[int]:
        return seqs(ledger.entries(AuditFilter.model_validate(wanted)))

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


def test_entries_come_in_either_order_and_as_many_as_wanted(ledger: AuditLog) -> None:
    ledger.append([record(float(number), tool=f"t{number % 2}") for number in range(1, 1201)])

    assert seqs(ledger.entries(ALL, 3)) == [1200, 1199, 1198]
    assert seqs(ledger.entries(ALL, 0)) == []
    assert seqs(ledger.entries(ALL, 3, newest_first=False)) == [1, 2, 3]
    assert seqs(ledger.entries(ALL)) == list(range(1200, 0, -1))
    assert seqs(ledger.entries(ALL, newest_first=False)) == list(range(1, 1201))
    assert seqs(ledger.entries(AuditFilter(tool="t[0]"), 1000)) == list(range(1200, 0, -2))


def test_times_that_jump_hide_no_record(ledger: AuditLog) -> None:
    ledger.append([record(at) for at in (5.0, 1.0, 9.0, 2.0, 6.0)])

    assert seqs(ledger.entries(AuditFilter(since=5.0))) == [5, 3, 1]
    assert seqs(ledger.entries(AuditFilter(until=5.0))) == [4, 2]


def test_a_reader_on_the_way_neither_blocks_nor_sees_later_records(ledger: AuditLog) -> None:
    ledger.append([record()] * 1100)
    entries = ledger.entries(ALL)
    first = next(entries)

    ledger.append([record()] * 10)

    assert [first.seq, *seqs(entries)] == list(range(1100, 0, -1))
    assert ledger.verify().count == 1110


def test_threads_append_to_one_chain(ledger: AuditLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ledger.append([record(float(n))] * 3), range(60)))

    found = ledger.verify()
    assert (found.ok, found.count) == (True, 180)


def test_pruning_removes_the_oldest_and_says_so(ledger: AuditLog, clock: Clock) -> None:
    ledger.append([record(float(number)) for number in range(1, 11)])

    removed = ledger.prune(6.0, "ann")

    assert removed == 5
    found = ledger.verify()
    assert (found.ok, found.first, found.last, found.count) == (True, 6, 11, 6)
    newest = next(ledger.entries(ALL)).record
    assert (newest.act, newest.user, newest.at) == ("audit.prune", "ann", clock.now)


def test_pruning_again_and_again_keeps_the_chain(ledger: AuditLog, clock: Clock) -> None:
    for before in range(1, 8):
        clock.now = float(before)
        ledger.append([record(float(before)), record(float(before))])

        ledger.prune(float(before), "ann")

        assert ledger.verify().problems == ()
    assert ledger.verify().first > 10


def test_pruning_that_was_denied_does_not_hide_what_was_pruned_before(ledger: AuditLog) -> None:
    ledger.append([record(float(number)) for number in range(1, 6)])
    ledger.prune(3.0, "ann")

    ledger.append([record(7.0, act="audit.prune", outcome="denied", detail="lacks ADMIN")])

    assert ledger.verify().problems == ()
    assert ledger.prune(4.0, "ann") == 1


def test_pruning_what_is_not_there_leaves_no_trace(ledger: AuditLog) -> None:
    assert ledger.prune(5.0, "ann") == 0
    ledger.append([record(7.0)])

    assert ledger.prune(5.0, "ann") == 0
    assert ledger.verify().count == 1


def test_the_newest_record_is_never_pruned(ledger: AuditLog) -> None:
    ledger.append([record(1.0), record(2.0), record(3.0)])

    assert ledger.prune(math.inf, "ann") == 2
    assert seqs(ledger.entries(ALL)) == [4, 3]
    assert ledger.verify().ok


def test_a_clock_that_jumped_back_makes_pruning_remove_less_not_more(ledger: AuditLog) -> None:
    ledger.append([record(at) for at in (1.0, 9.0, 2.0, 3.0)])

    assert ledger.prune(5.0, "ann") == 1
    assert seqs(ledger.entries(ALL, newest_first=False)) == [2, 3, 4, 5]


def test_many_records_are_pruned_in_steps(
    ledger: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.store.audit_log._PRUNE_BATCH", 10)
    ledger.append([record(1.0)] * 35 + [record(2.0)] * 5)

    assert ledger.prune(2.0, "ann") == 35
    found = ledger.verify()
    assert (found.ok, found.first) == (True, 36)


def test_a_time_made_older_by_hand_gets_no_record_pruned(place: str, ledger: AuditLog) -> None:
    ledger.append([record(1.0), record(100.0), record(101.0)])
    execute(place, "UPDATE toolkiln_audit SET at = 1.0 WHERE seq = 2")

    with pytest.raises(StoreError, match="tampered with and is not pruned: row 2"):
        ledger.prune(50.0, "ann")

    assert count_rows(place, "toolkiln_audit") == 3


def test_a_noted_head_is_found_again(ledger: AuditLog) -> None:
    ledger.append([record(1.0), record(2.0)])
    noted = ledger.verify()
    ledger.append([record(3.0), record(4.0)])

    assert ledger.verify((noted.last, noted.head)).ok
    assert ledger.verify((4, ledger.verify().head)).ok
    assert ledger.verify((0, "0" * 64)).ok
    assert ledger.verify((2, "f" * 64)).problems == ("row 2 differs from the expected one",)
    assert "ends at row 4, before the expected row 5" in ledger.verify((5, noted.head)).problems[0]


def test_a_noted_head_may_have_been_pruned(ledger: AuditLog) -> None:
    ledger.append([record(1.0), record(2.0), record(3.0)])
    hashes = {entry.seq: entry.hash for entry in ledger.entries(ALL)}
    ledger.prune(3.0, "ann")

    assert ledger.verify((1, hashes[1])).ok
    assert ledger.verify((2, hashes[2])).ok
    assert "row 2, which was pruned" in ledger.verify((2, hashes[1])).problems[0]


def test_the_ledger_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "audit.db"

    ledger = open_audit_log(file, KEY)
    ledger.append([record()])

    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert Path(f"{file}-wal").stat().st_mode & 0o777 == 0o600
    ledger.close()
    assert [path.name for path in file.parent.iterdir()] == ["audit.db"]


def test_a_ledger_in_a_file_needs_no_sqlalchemy(tmp_path: Path) -> None:
    code = """
import sys
from toolkiln.model.audit import AuditFilter, Verification
from toolkiln.store.audit_log import AuditLog, open_audit_log
from toolkiln.errors import StoreError
ledger = open_audit_log(sys.argv[1], b"0123456789abcdef")
from toolkiln.model.audit import AuditRecord
ledger.append([AuditRecord(1.0, "call", "ok")])
assert ledger.verify().ok
print([name for name in ("sqlalchemy", "psycopg", "asyncio") if name in sys.modules])
"""

    command = [sys.executable, "-c", code, str(tmp_path / "audit.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("[]\n", "")
