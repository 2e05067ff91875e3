"""What an operator looks after: retention of the audit, and who may give what away."""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from execution.observers import open_session
from toolkiln import Context, Kiln, ToolError
from toolkiln.config import Settings
from toolkiln.errors import NotAllowed
from toolkiln.model.audit import AuditFilter, AuditRecord
from toolkiln.security.audit import AuditWriter, audit_key
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR
from toolkiln.store.audit_log import open_audit_log

DAY = 86_400.0


async def double(number: int) -> int:
    """Double a number.

    Args:
        number: Which one.
    """
    return number * 2


def descend(ctx: Context) -> int:
    """Call itself, as deep as that goes."""
    try:
        return int(ctx.call("descend")) + 1
    except ToolError:
        return 1


def made(folder: Path, **settings: object) -> Kiln:
    given = Settings(state=folder, **settings)  # type: ignore[arg-type]
    return Kiln(functions=[double, descend], settings=given)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def aged(folder: Path, *days: float) -> None:
    """Write records of earlier days."""
    with closing(open_audit_log(folder / "audit.db", audit_key("", folder))) as ledger:
        ledger.append([AuditRecord(time.time() - d * DAY, "call", "ok", tool="old") for d in days])


@pytest.mark.parametrize(("keep", "left"), [(0, 4), (5, 2), (30, 4)])
async def test_records_are_kept_as_long_as_configured(tmp_path: Path, keep: int, left: int) -> None:
    aged(tmp_path, 20, 10, 4, 1)

    async with made(tmp_path, audit_days=keep) as kiln:
        await kiln.call("double", {"number": 1})
        old = list(kiln.security.audit.entries(AuditFilter(tool="old")))
        verified = kiln.security.audit.verify()

    assert len(old) == left
    assert verified.problems == ()


async def test_log_whose_head_was_edited_is_not_written_but_can_be_verified(tmp_path: Path) -> None:
    aged(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / "audit.db")) as database:
        database.execute("UPDATE toolkiln_audit_head SET seq = 7")
        database.commit()

    async with made(tmp_path) as kiln:
        result = await kiln.call("double", {"number": 1})
        verified = kiln.security.audit.verify()

    assert (result.status, result.error and result.error.code) == ("unavailable", "audit_failed")
    assert verified.problems


async def test_sessions_and_keys_get_no_privilege_their_creator_lacks(tmp_path: Path) -> None:
    async with made(tmp_path) as kiln:
        admin = open_session(kiln, "ann", privileges=["ADMIN"])

        with pytest.raises(NotAllowed, match="APPROVE"):
            kiln.security.create_session("bob", session=admin, privileges=["APPROVE"])
        with pytest.raises(NotAllowed, match="APPROVE"):
            kiln.security.keys.create("k", KeyScope("bob", privileges=["APPROVE"]), admin)
        assert kiln.security.keys.list() == []
        kiln.security.create_session("bob", session=admin, privileges=["ADMIN", "PAYMENTS"])
        denied = list(kiln.security.audit.entries(AuditFilter(outcome="denied")))

    assert {entry.record.act for entry in denied} == {"session.create", "key.create"}


async def test_a_session_is_recorded_with_its_rights(tmp_path: Path) -> None:
    settings = {"privileges": {"group:staff": ("APPROVE",)}}
    async with made(tmp_path, **settings) as kiln:
        session = kiln.security.sessions.create("ann", groups=["staff"], tools=["double"])
        key = kiln.security.keys.create("ci", KeyScope("bot", groups=["staff"]), LOCAL_OPERATOR)
        kiln.security.keys.session(key.text)
        opened = list(kiln.security.audit.entries(AuditFilter(act="session.open")))

    assert [entry.record.detail for entry in opened] == [
        f"groups staff; key {key.key.id}",
        "groups staff; privileges APPROVE; tools double",
    ]
    assert opened[-1].record.session == session.trace_id


async def test_the_state_folder_can_be_passed_by_the_user_of_sandboxes_and_read_by_none(
    tmp_path: Path, usual_umask: None
) -> None:
    for first in ("session", "call", "secret"):
        state = tmp_path / first
        async with made(state) as kiln:
            if first == "session":
                kiln.security.sessions.create("ann")
            elif first == "call":
                await kiln.call("double", {"number": 1})
            else:
                kiln.security.set_secret("NAME", "value")
            folder, *files = state, *state.iterdir()

        private = 0o711 if os.geteuid() == 0 else 0o700  # root's sandboxes pass through it
        assert folder.stat().st_mode & 0o777 == private
        assert files
        assert all(file.stat().st_mode & 0o077 == 0 for file in files if file.exists())


async def test_calls_that_come_faster_than_they_are_recorded_wait_and_are_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[AuditWriter] = []
    flush = AuditWriter.flush

    def wait(writer: AuditWriter) -> None:
        waits.append(writer)
        flush(writer)

    monkeypatch.setattr("toolkiln.security.audit._BUSY_QUEUE", 2)
    monkeypatch.setattr(AuditWriter, "flush", wait)

    async with made(tmp_path) as kiln:
        results = [await kiln.call("double", {"number": 1}) for _ in range(200)]
        verified = kiln.security.audit.verify()
        # On a busy machine a call may last so long that its start is recorded as well.
        entries = kiln.security.audit.export(AuditFilter(outcome="ok"))
        ended = Counter(entry.record.call_id for entry in entries)

    assert {result.status for result in results} == {"ok"}
    assert verified.ok
    assert ended == Counter(result.call_id for result in results)
    assert len(waits) > 5


async def test_a_call_that_goes_too_deep_is_recorded_like_any_other(tmp_path: Path) -> None:
    async with made(tmp_path) as kiln:
        result = await kiln.call("descend")
        rows = [e.record for e in kiln.security.audit.entries(AuditFilter(tool="descend"))]

    (denied,) = [row for row in rows if row.outcome == "denied"]
    assert len([row for row in rows if row.outcome == "ok"]) == result.value
    assert denied.detail.startswith("nesting_limit")
    assert denied.parent in {row.call_id for row in rows}
    assert denied.user
