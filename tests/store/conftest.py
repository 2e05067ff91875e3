"""A store of each kind: an SQLite file, and a schema of its own on a private PostgreSQL."""

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from store.servers import postgres_server
from toolkiln.store.store import Store, open_store


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that lives as long as the session."""
    # Not pytest's own folder, which the server's user may not enter; short for the socket.
    folders = tempfile.TemporaryDirectory(prefix="toolkiln-pg-", dir="/tmp")
    with folders as folder, postgres_server(folder) as url:
        yield url


_schemas = count()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """An empty place on the server."""
    name = f"s{next(_schemas)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres}&options={quote(f'-csearch_path={name}')}"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be opened: each kind in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "state" / "store.db")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def clock() -> Clock:
    """The time of the stores under test."""
    return Clock()


Opener = Callable[..., Store]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens stores and closes them at the end."""
    stores: list[Store] = []

    def open_one(place: str | Path, clock: Clock | None = None) -> Store:
        stores.append(open_store(place, clock=clock))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(place: str, opened: Opener, clock: Clock) -> Store:
    """An empty store of each kind, with the clock of the test."""
    return opened(place, clock)


def execute(place: str, statement: str) -> None:
    """Execute a statement without the store."""
    if "://" in place:
        with psycopg.connect(place) as connection:
            connection.execute(statement)
    else:
        with closing(sqlite3.connect(place)) as file, file:
            file.execute(statement)


def damage(place: str, table: str, column: str, data: bytes) -> None:
    """Overwrite a column of all rows with these bytes."""
    value = f"'\\x{data.hex()}'" if "://" in place else f"x'{data.hex()}'"
    execute(place, f"UPDATE toolkiln_{table} SET {column} = {value}")


def count_rows(place: str, table: str) -> int:
    """Count the rows of a table without the store."""
    statement = f"SELECT count(*) FROM {table}"
    if "://" in place:
        with psycopg.connect(place) as connection:
            row = connection.execute(statement).fetchone()
    else:
        with closing(sqlite3.connect(place)) as file:
            row = file.execute(statement).fetchone()
    assert row
    return int(row[0])


@contextmanager
def running(*arguments: str, script: str = "claimant.py") -> Iterator["subprocess.Popen[str]"]:
    """Another process that uses the store, dead at the end."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: "subprocess.Popen[str]") -> str:
    """Return the next line that a process prints."""
    assert process.stdout
    return process.stdout.readline().rstrip("\n")


def kill(process: "subprocess.Popen[str]") -> list[str]:
    """Kill a process, and return the lines that it printed until then and nothing has read."""
    process.kill()
    assert process.stdout
    return process.stdout.read().splitlines()


def go_on(process: "subprocess.Popen[str]") -> None:
    """Write the line that a process waits for."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def together(place: str, script: str, *commands: Sequence[str]) -> list[str]:
    """Run processes of a script that start at one moment; return what each of them prints."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(running(place, *command, script=script)) for command in commands
        ]
        assert [next_line(process) for process in processes] == ["waiting"] * len(processes)
        for process in processes:
            go_on(process)
        printed = [process.communicate(timeout=300)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes)
    return printed


@contextmanager
def halted(place: str, task: str, statement: str) -> Iterator["subprocess.Popen[str]"]:
    """A process of `archivist` that halts before this statement."""
    with running(place, task, statement, script="archivist.py") as process:
        assert next_line(process) == "halted"
        yield process


def wait_until_blocked(postgres_url: str, work: "Future[object]") -> None:
    """Wait until a connection waits for a lock, or the work is done."""
    statement = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for _ in range(600):
            row = connection.execute(statement).fetchone()
            if (row and row[0]) or wait([work], timeout=0.05).done:
                return
    raise AssertionError("no connection waits for a lock")
