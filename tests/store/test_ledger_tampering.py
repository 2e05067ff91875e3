"""Any change of the audit log without its key is detected."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditFilter, AuditRecord, Verification
from toolkiln.store.audit_log import open_audit_log

from .conftest import execute

KEY = b"0123456789abcdef"
ROWS = 6
RECORDS = [
    AuditRecord(float(n), "call", "ok", f"user{n}", tool="t", duration=n / 7) for n in range(1, 7)
]
COPY = """INSERT INTO toolkiln_audit SELECT {seq}, at, act, outcome, "user", agent, session,
surface, tool, digest, call_id, parent, detail, duration, arguments, hash
FROM toolkiln_audit WHERE seq = {of}"""


def verified(place: str | Path) -> Verification:
    with closing(open_audit_log(place, KEY)) as log:
        return log.verify()


def filled(place: str | Path) -> None:
    with closing(open_audit_log(place, KEY)) as log:
        log.append(RECORDS)


@pytest.fixture
def ledger(place: str) -> str:
    """A log of six rows, and copies of its tables."""
    filled(place)
    for table in ("audit", "audit_head"):
        execute(place, f"CREATE TABLE copy_of_{table} AS SELECT * FROM toolkiln_{table}")
    return place


def restore(ledger: str) -> None:
    """Undo all changes of a log."""
    for table in ("audit", "audit_head"):
        execute(ledger, f"DELETE FROM toolkiln_{table}")
        execute(ledger, f"INSERT INTO toolkiln_{table} SELECT * FROM copy_of_{table}")


@each_row(
    "statements, problem",
    [
        ("UPDATE toolkiln_audit SET outcome = 'denied' WHERE seq = 3", "row 3 was edited"),
        ("UPDATE toolkiln_audit SET \"user\" = '' WHERE seq = 1", "row 1 was edited"),
        ("UPDATE toolkiln_audit SET duration = NULL WHERE seq = 6", "row 6 was edited"),
        ("UPDATE toolkiln_audit SET at = at + 0.0000001 WHERE seq = 2", "row 2 was edited"),
        ("UPDATE toolkiln_audit SET hash = 'x' WHERE seq = 6", "does not end at row"),
        ("UPDATE toolkiln_audit SET detail = 'a' || chr(10) || 'b' WHERE seq = 2", "row 2 was"),
        ("DELETE FROM toolkiln_audit WHERE seq = 1", "row 1 is missing"),
        ("DELETE FROM toolkiln_audit WHERE seq <= 3", "rows 1 to 3 are missing"),
        ("DELETE FROM toolkiln_audit WHERE seq = 3", "row 3 is missing"),
        ("DELETE FROM toolkiln_audit WHERE seq = 6", "row 6 is missing"),
        ("DELETE FROM toolkiln_audit", "rows 1 to 6 are missing"),
        ("DELETE FROM toolkiln_audit_head", "the head is missing"),
        ("DELETE FROM toolkiln_audit; DELETE FROM toolkiln_audit_head", "the head is missing"),
        ("UPDATE toolkiln_audit_head SET seq = 5", "the head was edited"),
        ("UPDATE toolkiln_audit_head SET seal = hash", "the head was edited"),
        ("UPDATE toolkiln_audit_head SET key_id = 'x'", "the head was edited"),
        (
            "DELETE FROM toolkiln_audit WHERE seq = 6; UPDATE toolkiln_audit_head SET seq = 5, "
            "hash = (SELECT hash FROM toolkiln_audit WHERE seq = 5)",
            "the head was edited",
        ),
        (
            "INSERT INTO toolkiln_audit_head SELECT * FROM toolkiln_audit_head",
            "there are several heads",
        ),
        (COPY.format(seq=7, of=6), "row 7 was edited or inserted"),
        (COPY.format(seq=0, of=1), "row 0 is duplicated or precedes the first row"),
        (COPY.format(seq=-3, of=1), "row -3 is duplicated or precedes the first row"),
        (
            "UPDATE toolkiln_audit SET seq = -1 WHERE seq = 2;"
            "UPDATE toolkiln_audit SET seq = 2 WHERE seq = 3;"
            "UPDATE toolkiln_audit SET seq = 3 WHERE seq = -1",
            "row 2 was edited or inserted",
        ),
        (
            'UPDATE toolkiln_audit SET act = act || chr(10) || outcome, outcome = "user" '
            "WHERE seq = 2",
            "row 2 was edited or inserted",
        ),
        (
            "DELETE FROM toolkiln_audit WHERE seq = 3;"
            "UPDATE toolkiln_audit SET seq = seq - 1 WHERE seq > 3",
            "row 3 was edited or inserted",
        ),
    ],
)
def test_tampering_is_found(ledger: str, statements: str, problem: str) -> None:
    restore(ledger)
    if "://" not in ledger:
        statements = statements.replace("chr(10)", "char(10)")

    for statement in statements.split(";"):
        execute(ledger, statement)

    found = verified(ledger)
    assert not found.ok
    assert problem in " ".join(found.problems)
    assert len(found.problems) <= 5


@each_row(
    "statement",
    [
        "UPDATE toolkiln_audit_head SET seq = 5",
        "UPDATE toolkiln_audit_head SET hash = seal",
        "DELETE FROM toolkiln_audit_head",
        "INSERT INTO toolkiln_audit_head SELECT * FROM toolkiln_audit_head",
    ],
)
def test_nothing_is_appended_to_a_head_that_was_edited(ledger: str, statement: str) -> None:
    restore(ledger)
    execute(ledger, statement)

    with closing(open_audit_log(ledger, KEY)) as log:
        with pytest.raises(StoreError, match="its head is wrong") as caught:
            log.append(RECORDS)
        with pytest.raises(StoreError, match="its head is wrong"):
            log.prune(3.0, "ann")

        assert "verify" in (caught.value.hint or "")
        assert log.verify().count == ROWS


def test_appending_does_not_hide_rows_removed_before(place: str) -> None:
    filled(place)
    execute(place, "DELETE FROM toolkiln_audit WHERE seq >= 5")

    filled(place)

    assert verified(place).problems == ("rows 5 to 6 are missing",)


def test_an_older_copy_shows_against_a_noted_head_only(tmp_path: Path) -> None:
    file, copy = tmp_path / "audit.db", tmp_path / "copy.db"
    filled(file)
    shutil.copy(file, copy)
    filled(file)
    noted = verified(file)

    with closing(open_audit_log(copy, KEY)) as log:
        assert log.verify().ok
        assert not log.verify((noted.last, noted.head)).ok


def test_a_forged_prune_record_excuses_no_missing_row(place: str) -> None:
    filled(place)
    execute(
        place,
        "UPDATE toolkiln_audit SET act = 'audit.prune', detail = 'removed up to 2:' || "
        "(SELECT hash FROM toolkiln_audit WHERE seq = 2) WHERE seq = 5",
    )
    execute(place, "DELETE FROM toolkiln_audit WHERE seq <= 2")

    assert verified(place).problems == ("row 5 was edited or inserted",)


def test_a_prune_record_excuses_only_the_rows_that_it_names(place: str) -> None:
    filled(place)
    with closing(open_audit_log(place, KEY)) as log:
        log.prune(3.0, "ann")
    assert verified(place).ok

    execute(place, "DELETE FROM toolkiln_audit WHERE seq = 3")

    assert verified(place).problems == ("rows 1 to 3 are missing",)


def test_many_problems_are_counted_not_listed(place: str) -> None:
    for _ in range(10):
        filled(place)
    execute(place, "UPDATE toolkiln_audit SET detail = 'x'")

    found = verified(place)

    assert len(found.problems) == 21
    assert found.problems[-1] == "and 40 further problems"


@each_row("value", ["x'ff'", "CAST(x'ff' AS TEXT)", "CAST('ok' AS BLOB)"])
def test_a_value_that_is_no_text_is_found_and_not_shown(tmp_path: Path, value: str) -> None:
    file = tmp_path / "audit.db"
    filled(file)
    execute(str(file), f"UPDATE toolkiln_audit SET outcome = {value} WHERE seq = 2")

    assert verified(file).problems == ("row 2 was edited or inserted",)
    if "TEXT" not in value:
        with (
            closing(open_audit_log(file, KEY)) as log,
            pytest.raises(StoreError, match="see row 2"),
        ):
            list(log.entries(AuditFilter()))


def test_rows_in_a_table_without_a_key_are_found_when_doubled(tmp_path: Path) -> None:
    file = str(tmp_path / "audit.db")
    filled(file)
    execute(file, "CREATE TABLE loose AS SELECT * FROM toolkiln_audit")
    execute(file, "DROP TABLE toolkiln_audit")
    execute(file, "ALTER TABLE loose RENAME TO toolkiln_audit")
    assert verified(file).ok

    execute(file, "INSERT INTO toolkiln_audit SELECT * FROM toolkiln_audit WHERE seq = 4")

    assert verified(file).problems == ("row 4 is duplicated or precedes the first row",)


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """A log of six rows, to be copied."""
    with TemporaryDirectory() as folder:
        filled(Path(folder, "audit.db"))
        yield Path(folder, "audit.db")


def changed(template: Path, statement: str, *parameters: Any) -> Verification:
    with TemporaryDirectory() as folder:
        file = Path(shutil.copy(template, folder))
        with closing(sqlite3.connect(file)) as connection, connection:
            before = list(connection.execute("SELECT * FROM toolkiln_audit ORDER BY seq"))
            connection.execute(statement, parameters)
            after = list(connection.execute("SELECT * FROM toolkiln_audit ORDER BY seq"))
        found = verified(file)
        assert found.ok == (repr(before) == repr(after))
        return found


row = st.integers(1, ROWS)
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["ok", "", "t", "call"])
numbers = st.none() | st.floats(allow_nan=False) | st.sampled_from([1 / 7, 1.0, 2.0])


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seq=row)
def test_any_change_to_any_column_is_found(template: Path, data: st.DataObject, seq: int) -> None:
    column = data.draw(st.sampled_from([*AuditRecord._fields, "hash"]))
    values = numbers if column in {"at", "duration"} else texts | st.binary()
    value = data.draw(values.filter(lambda value: value is not None or column == "duration"))

    changed(template, f'UPDATE toolkiln_audit SET "{column}" = ? WHERE seq = ?', value, seq)


@settings(max_examples=30, deadline=None)
@given(kept=st.sets(row))
def test_any_removal_is_found(template: Path, kept: set[int]) -> None:
    changed(template, f"DELETE FROM toolkiln_audit WHERE seq NOT IN ({','.join(map(str, kept))})")


@settings(max_examples=30, deadline=None)
@given(one=row, other=row, is_whole=st.booleans())
def test_any_swap_is_found(template: Path, one: int, other: int, is_whole: bool) -> None:
    columns = [*AuditRecord._fields, *(["hash"] if is_whole else [])]
    names = ", ".join(f'"{name}"' for name in columns)

    changed(
        template,
        f"UPDATE toolkiln_audit SET ({names}) = (SELECT {names} FROM toolkiln_audit AS t "
        "WHERE t.seq = ?1 + ?2 - toolkiln_audit.seq) WHERE seq IN (?1, ?2)",
        one,
        other,
    )


@settings(max_examples=30, deadline=None)
@given(seq=st.integers(-(2**63), 2**63 - 1).filter(lambda n: not 1 <= n <= ROWS), of=row)
def test_any_insertion_is_found(template: Path, seq: int, of: int) -> None:
    found = changed(template, COPY.format(seq=seq, of=of))

    assert not found.ok
