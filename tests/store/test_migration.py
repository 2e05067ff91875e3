"""A database of an older version becomes one of version 3 in place, and keeps what it held."""

import hashlib
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from toolkiln.model.call import Result, Status
from toolkiln.model.identity import Caller, SessionRecord
from toolkiln.model.policy import Draw, Rate
from toolkiln.store.store import Store

from .archivist import ADMITTED, content
from .conftest import Opener, count_rows, execute, halted, together, wait_until_blocked

NOBODY = Caller()
RESULT = Result(call_id="c1", tool="greet", status=Status.OK, value=1)

# As Toolkiln created them then; nothing of this may follow the code.
VERSION_1 = [
    """CREATE TABLE toolkiln_schema (version INTEGER NOT NULL)""",
    """CREATE TABLE toolkiln_calls (
        key VARCHAR(64) NOT NULL, scope VARCHAR(64) NOT NULL, call_id {bytes} NOT NULL,
        tool {bytes} NOT NULL, fingerprint {bytes} NOT NULL, owner {bytes} NOT NULL,
        token VARCHAR(32) NOT NULL, attempt INTEGER NOT NULL, started {double} NOT NULL,
        leased_until {double} NOT NULL, kept_until {double} NOT NULL, cancel BOOLEAN NOT NULL,
        progress {bytes} NOT NULL, result TEXT, PRIMARY KEY (key))""",
    "CREATE INDEX toolkiln_calls_of_a_caller ON toolkiln_calls (scope, started)",
    "CREATE INDEX toolkiln_calls_to_forget ON toolkiln_calls (kept_until)",
    """CREATE TABLE toolkiln_outputs (
        handle VARCHAR(64) NOT NULL, scope VARCHAR(64) NOT NULL, total INTEGER NOT NULL,
        kept_until {double} NOT NULL, PRIMARY KEY (handle))""",
    "CREATE INDEX toolkiln_outputs_to_forget ON toolkiln_outputs (kept_until)",
    """CREATE TABLE toolkiln_output_chunks (
        handle VARCHAR(64) NOT NULL, number INTEGER NOT NULL, text {bytes} NOT NULL,
        PRIMARY KEY (handle, number))""",
    "INSERT INTO toolkiln_schema VALUES (1)",
    """INSERT INTO toolkiln_calls VALUES ('{key}', '{scope}', {c1}, {greet}, {f}, {f}, 'token',
        1, {now}, {now}, {later}, '0', {f}, '{result}')""",
    "INSERT INTO toolkiln_outputs VALUES ('abc', '{scope}', 5, {later})",
    "INSERT INTO toolkiln_output_chunks VALUES ('abc', 0, {hello})",
]
VERSION_2 = [
    """CREATE TABLE toolkiln_versions (
        id {serial} NOT NULL, key VARCHAR(64) NOT NULL, number INTEGER NOT NULL,
        file {bytes} NOT NULL, digest {bytes} NOT NULL, action {bytes} NOT NULL,
        "by" {bytes} NOT NULL, at {bytes} NOT NULL, tools {bytes} NOT NULL, note {bytes} NOT NULL,
        PRIMARY KEY (id))""",
    "CREATE UNIQUE INDEX toolkiln_versions_of_a_file ON toolkiln_versions (key, number)",
    """CREATE TABLE toolkiln_contents (
        key VARCHAR(64) NOT NULL, reading {bytes} NOT NULL, sources {bytes} NOT NULL,
        PRIMARY KEY (key))""",
    """CREATE TABLE toolkiln_declarations (
        tool VARCHAR(64) NOT NULL, key VARCHAR(64) NOT NULL, PRIMARY KEY (tool, key))""",
    """CREATE TABLE toolkiln_usages (
        id {serial} NOT NULL, catalog VARCHAR(64) NOT NULL, key VARCHAR(64) NOT NULL,
        tool {bytes} NOT NULL, prompt {bytes} NOT NULL, at {bytes} NOT NULL, PRIMARY KEY (id))""",
    "CREATE INDEX toolkiln_usages_of_a_catalog ON toolkiln_usages (catalog)",
    "CREATE INDEX toolkiln_usages_of_a_tool ON toolkiln_usages (key)",
    "UPDATE toolkiln_schema SET version = 2",
    """INSERT INTO toolkiln_usages (catalog, key, tool, prompt, at)
        VALUES ('{catalog}', '{tool_key}', {greet}, {old}, {f})""",
    """INSERT INTO toolkiln_versions (key, number, file, digest, action, "by", at, tools, note)
        VALUES ('{file_key}', 1, {greet_py}, {f}, {admit}, {f}, {f}, {no_tools}, {f})""",
]
VERSION_3 = [
    """CREATE TABLE toolkiln_approvals (
        id VARCHAR(12) NOT NULL, call_key VARCHAR(64) NOT NULL, fingerprint {bytes} NOT NULL,
        session_key VARCHAR(64), arguments_key VARCHAR(64), remember_key VARCHAR(64),
        remembered_until {double}, kept_until {double} NOT NULL, tool {bytes} NOT NULL,
        digest {bytes} NOT NULL, "user" {bytes} NOT NULL, session {bytes} NOT NULL,
        call_id {bytes} NOT NULL, why {bytes} NOT NULL, approve_own BOOLEAN NOT NULL,
        created {double} NOT NULL, expires {double} NOT NULL, state VARCHAR(16) NOT NULL,
        decided_by {bytes} NOT NULL, decided {double}, reason {bytes} NOT NULL,
        remember VARCHAR(16), arguments {bytes} NOT NULL, edited {bytes}, PRIMARY KEY (id))""",
    "UPDATE toolkiln_schema SET version = 3",
    """INSERT INTO toolkiln_approvals VALUES ('abcdef', '{key}', {f}, NULL, NULL, NULL, NULL,
        {later}, {greet}, {f}, {f}, {f}, {c1}, {f}, '{yes}', {now}, {later}, 'rejected', {f},
        {now}, {f}, NULL, {no_arguments}, NULL)""",
    """INSERT INTO toolkiln_approvals VALUES ('fedcba', '{key}', {f}, NULL, NULL, NULL, NULL,
        {later}, {greet}, {f}, {f}, {f}, {c1}, {f}, '{no}', {now}, {later}, 'rejected', {f},
        {now}, {f}, NULL, {no_arguments}, NULL)""",
]


def sha256(parts: list[str | None]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@pytest.fixture(params=[1, 2, 3])
def old_version(request: pytest.FixtureRequest) -> int:
    """Each that there was."""
    version: int = request.param
    return version


@pytest.fixture
def old_place(place: str, old_version: int) -> str:
    """A database of that version: a result and an output, from 2 a history, from 3 approvals."""
    postgres = "://" in place
    if not postgres:
        Path(place).parent.mkdir()
        execute(place, "PRAGMA journal_mode=WAL")
    fields = {
        "bytes": "BYTEA" if postgres else "BLOB",
        "double": "DOUBLE PRECISION" if postgres else "DOUBLE",
        "serial": "SERIAL" if postgres else "INTEGER",
        "key": sha256([None, None, "c1"]),
        "scope": sha256([None, None]),
        "catalog": sha256(["old"]),
        "tool_key": sha256(["old", "greet"]),
        "file_key": sha256(["old", "greet.py"]),
        "now": time.time(),
        "later": time.time() + 3600,
        "result": RESULT.model_dump_json(),
    }
    others = {"greet_py": "greet.py", "no_tools": "[]", "no_arguments": "{}"}
    for text in ("c1", "greet", "f", "hello", "old", "admit", *others):
        data = others.get(text, text).encode().hex()
        fields[text] = f"'\\x{data}'" if postgres else f"x'{data}'"
    fields |= {"yes": "1", "no": "0"}
    for statement in chain(*(VERSION_1, VERSION_2, VERSION_3)[:old_version]):
        execute(place, statement.format(**fields))
    return place


def assert_complete(store: Store) -> None:
    """Nothing of the old data is lost, and all that is new works."""
    task = store.task(NOBODY, "c1")
    assert task
    assert task.result == RESULT
    assert store.read_output(NOBODY, "abc", 0, 10).text == "hello"
    version = store.archive.add("c", content(), ADMITTED)
    assert store.archive.history_of_tool("c", "greet") == [version]
    store.archive.add_usage("c", "greet", "hello", "2026-01-01T00:00:00Z")
    assert store.archive.usages("c") == {"greet": ("hello",)}
    store.sessions.put("a" * 64, SessionRecord(trace_id="t", caller=NOBODY), 60)
    assert store.sessions.get("a" * 64)
    assert store.keys.list() == []
    assert store.approvals.list() == []  # none that waits
    assert store.tool_settings.read("t") == {}
    assert store.buckets.take([Draw("b", Rate(100, 1))]) == 0


def test_an_old_database_is_completed_and_loses_nothing(old_place: str, opened: Opener) -> None:
    assert_complete(opened(old_place))
    assert_complete(opened(old_place))
    assert count_rows(old_place, "toolkiln_schema WHERE version = 4") == 1


@pytest.mark.parametrize("old_version", [2], indirect=True)
def test_the_history_of_version_2_is_kept(old_place: str, opened: Opener) -> None:
    archive = opened(old_place).archive

    assert archive.usages("old") == {"greet": ("old",)}
    assert [version.number for version in archive.history("old", "greet.py")] == [1]


@pytest.mark.parametrize("old_version", [3], indirect=True)
def test_the_approvals_of_version_3_are_kept(old_place: str, opened: Opener) -> None:
    approvals = opened(old_place).approvals

    found = {approval.id: approval.approve_own for approval in approvals.list(("rejected",))}

    assert found == {"abcdef": True, "fedcba": None}


@pytest.mark.faults
def test_processes_that_open_an_old_database_at_once_all_succeed(
    old_place: str, opened: Opener
) -> None:
    assert together(old_place, "claimant.py", *[("open",)] * 4) == ["ready\n"] * 4

    assert_complete(opened(old_place))
    assert count_rows(old_place, "toolkiln_schema") == 1


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_opening_a_database_that_is_being_upgraded_waits(old_place: str, opened: Opener) -> None:
    with halted(old_place, "open", "COMMIT") as first, ThreadPoolExecutor(1) as pool:
        second: Future[object] = pool.submit(opened, old_place)
        wait_until_blocked(old_place, second)
        first.communicate()

        assert isinstance(second.result(timeout=60), Store)
    assert_complete(opened(old_place))


@pytest.mark.faults
@pytest.mark.parametrize("statement", ["changes", "UPDATE toolkiln_schema", "COMMIT"])
def test_a_process_killed_on_the_way_leaves_the_old_database(
    old_place: str, old_version: int, opened: Opener, statement: str
) -> None:
    if statement == "changes":
        begins = "ALTER TABLE" if old_version == 3 else "CREATE TABLE"
        statement = f"{begins} toolkiln_approvals"
    with halted(old_place, "open", statement) as doomed:
        doomed.kill()

    assert count_rows(old_place, f"toolkiln_schema WHERE version = {old_version}") == 1
    assert_complete(opened(old_place))
