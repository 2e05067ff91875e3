"""The audit's ledger under several processes, sudden death, and a disk that does not play along."""

import os
import sqlite3
import traceback
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tables import each_row
from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditFilter, AuditRecord
from toolkiln.store.audit_log import open_audit_log

from .auditor import KEY
from .conftest import execute, running

RECORD = AuditRecord(1.0, "call", "ok")


def refusal(place: str | Path) -> StoreError:
    with pytest.raises(StoreError) as caught, closing(open_audit_log(place, KEY)) as ledger:
        ledger.append([RECORD])
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def test_processes_that_begin_one_ledger_at_once_make_one_chain(place: str) -> None:
    with ExitStack() as stack:
        writers = [
            stack.enter_context(running(place, "append", "20", script="auditor.py"))
            for _ in range(4)
        ]
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == "waiting\n"
        for writer in writers:
            assert writer.stdin
            writer.stdin.write("go\n")
            writer.stdin.flush()
        codes = [writer.wait(timeout=60) for writer in writers]

    assert codes == [0] * 4
    with closing(open_audit_log(place, KEY)) as ledger:
        found = ledger.verify()
        assert (found.problems, found.count) == ((), 400)


def test_a_killed_writer_leaves_whole_batches_and_a_valid_chain(place: str) -> None:
    with running(place, "stream", script="auditor.py") as writer:
        assert writer.stdout
        said = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        said += map(int, writer.stdout.read().split())

    with closing(open_audit_log(place, KEY)) as ledger:
        found = ledger.verify()
        assert found.problems == ()
        assert found.count % 5 == 0
        assert found.count >= 5 * len(said)
        ledger.append([RECORD])
        assert ledger.verify().ok


def test_a_full_disk_is_said_and_nothing_is_half_written(tmp_path: Path) -> None:
    file = str(tmp_path / "audit.db")
    with running(file, "fill", "200000", script="auditor.py") as writer:
        assert writer.stdout
        number, message, hint = writer.stdout.read().splitlines()

    assert "disk" in message
    assert "disk" in hint or "space" in hint
    with closing(open_audit_log(file, KEY)) as ledger:
        found = ledger.verify()
        assert (found.problems, found.count) == ((), 5 * int(number))
        ledger.append([RECORD])
        assert ledger.verify().ok


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    file.write_text("dear diary" * 1000)

    assert "not a database" in refusal(file).message
    assert file.read_text() == "dear diary" * 1000


def test_an_empty_file_is_not_taken_for_a_ledger_without_records(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    file.touch()

    assert "no such table" in refusal(file).message


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    with closing(open_audit_log(file, KEY)) as ledger:
        ledger.append([RECORD] * 2000)
    with file.open("r+b") as raw:
        raw.seek(8192)
        raw.write(b"\xff" * (file.stat().st_size - 8192))

    with closing(open_audit_log(file, KEY)) as ledger:
        with pytest.raises(StoreError, match="malformed"):
            ledger.verify()
        with pytest.raises(StoreError, match="malformed"):
            list(ledger.entries(AuditFilter()))
        with pytest.raises(StoreError, match="malformed") as caught:
            ledger.append([RECORD])

    assert caught.value.hint


def test_a_locked_file_is_said_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.db"
    monkeypatch.setattr("toolkiln.store.audit_drivers._BUSY_SECONDS", 0.05)
    with (
        closing(open_audit_log(file, KEY)) as ledger,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="locked"):
            ledger.append([RECORD])

        assert ledger.verify().ok
        other.execute("ROLLBACK")
        ledger.append([RECORD])
        assert ledger.verify().count == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    open_audit_log(file, KEY).close()
    file.chmod(0o400)

    assert "is not writable" in refusal(file).message


def test_a_database_that_refuses_to_be_written_is_said(postgres_url: str) -> None:
    with closing(open_audit_log(postgres_url, KEY)) as ledger:
        ledger.append([RECORD])

    url = postgres_url + "%20-cdefault_transaction_read_only%3Don"

    assert "read-only" in refusal(url).message


@each_row("is_replaced", [False, True])
def test_a_file_that_vanished_is_not_written_to_unseen(tmp_path: Path, is_replaced: bool) -> None:
    file = tmp_path / "state" / "audit.db"
    with closing(open_audit_log(file, KEY)) as ledger:
        ledger.append([RECORD])
        file.parent.rename(tmp_path / "away")
        if is_replaced:
            open_audit_log(file, KEY).close()

        with pytest.raises(StoreError, match="removed or replaced"):
            ledger.append([RECORD])


def test_no_file_is_begun_beside_the_write_ahead_log_of_another(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    with closing(open_audit_log(file, KEY)) as ledger:
        ledger.append([RECORD])
        away = file.rename(tmp_path / "away.db")

        assert "write-ahead log" in refusal(file).message

        away.rename(file)
        ledger.append([RECORD])
        assert ledger.verify().count == 2


def test_a_broken_connection_is_replaced(postgres_url: str) -> None:
    with closing(open_audit_log(postgres_url, KEY)) as ledger:
        ledger.append([RECORD])
        execute(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'toolkiln' AND pid <> pg_backend_pid()",
        )

        ledger.append([RECORD])

        assert ledger.verify().count == 2


@each_row(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://me:hunter2@127.0.0.1:notaport/db",
        "mysql://me:hunter2@127.0.0.1/db",
    ],
)
def test_a_wrong_url_is_refused_without_the_password(url: str) -> None:
    error = refusal(url)

    assert "hunter2" not in "".join(traceback.format_exception(error))


@each_row("name", ["", ".", "fifo", "/dev/null", "file/below.db", "a\0b", "x" * 300, "\ud800/x.db"])
def test_a_path_that_cannot_be_a_file_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    os.mkfifo("fifo")

    refusal(name)


@each_row("name", [":memory:", "file:x.db?mode=memory", "a b?c#d%20.db", "é.db"])
def test_a_path_is_a_file_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with closing(open_audit_log(name, KEY)) as ledger:
        ledger.append([RECORD])
        assert ledger.verify().count == 1

    assert Path(name).is_file()


def test_a_sqlite_url_is_a_path(tmp_path: Path) -> None:
    open_audit_log(f"sqlite:///{tmp_path}/x.db", KEY).close()

    assert (tmp_path / "x.db").is_file()
