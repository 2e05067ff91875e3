"""A database of version 1 becomes one of version 2 in place, and keeps what it held."""

import hashlib
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from toolkiln.model import Caller, Result, Status
from toolkiln.store import Store

from .archivist import ADMITTED, content
from .conftest import Opener, count_rows, execute, halted, running, wait_until_blocked
from .test_processes import go

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


def sha256(parts: list[str | None]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@pytest.fixture
def old_place(place: str) -> str:
    """A database of version 1 that holds a result and an output."""
    postgres = "://" in place
    if not postgres:
        Path(place).parent.mkdir()
        execute(place, "PRAGMA journal_mode=WAL")
    told = {
        "bytes": "BYTEA" if postgres else "BLOB",
        "double": "DOUBLE PRECISION" if postgres else "DOUBLE",
        "key": sha256([None, None, "c1"]),
        "scope": sha256([None, None]),
        "now": time.time(),
        "later": time.time() + 3600,
        "result": RESULT.model_dump_json(),
        **{
            text: f"'\\x{text.encode().hex()}'" if postgres else f"x'{text.encode().hex()}'"
            for text in ("c1", "greet", "f", "hello")
        },
    }
    for statement in VERSION_1:
        execute(place, statement.format(**told))
    return place


def assert_complete(store: Store) -> None:
    """Nothing of the old data is lost, and all that is new works."""
    task = store.task(NOBODY, "c1")
    assert task
    assert task.result == RESULT
    assert store.read_output(NOBODY, "abc", 0, 10).text == "hello"
    version = store.archive.keep("c", content(), ADMITTED)
    assert store.archive.history_of_tool("c", "greet") == [version]
    store.archive.add_usage("c", "greet", "hello", "2026-01-01T00:00:00Z")
    assert store.archive.usages("c") == {"greet": ("hello",)}


def test_an_old_database_is_completed_and_loses_nothing(old_place: str, opened: Opener) -> None:
    assert_complete(opened(old_place))
    assert_complete(opened(old_place))
    assert count_rows(old_place, "toolkiln_schema WHERE version = 2") == 1


def test_processes_that_open_an_old_database_at_once_all_succeed(
    old_place: str, opened: Opener
) -> None:
    with ExitStack() as stack:
        openers = [stack.enter_context(running(old_place, "open")) for _ in range(4)]

        assert go(openers) == ["ready\n"] * 4
    assert_complete(opened(old_place))
    assert count_rows(old_place, "toolkiln_schema") == 1


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_whoever_opens_a_database_that_is_being_completed_waits(
    old_place: str, opened: Opener
) -> None:
    with halted(old_place, "open", "COMMIT") as first, ThreadPoolExecutor(1) as pool:
        second: Future[object] = pool.submit(opened, old_place)
        wait_until_blocked(old_place, second)
        first.communicate()

        assert isinstance(second.result(timeout=60), Store)
    assert_complete(opened(old_place))


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE toolkiln_versions", "UPDATE toolkiln_schema", "COMMIT"]
)
def test_a_process_killed_on_the_way_leaves_the_old_database(
    old_place: str, opened: Opener, statement: str
) -> None:
    with halted(old_place, "open", statement) as doomed:
        doomed.kill()

    assert count_rows(old_place, "toolkiln_schema WHERE version = 1") == 1
    assert_complete(opened(old_place))
