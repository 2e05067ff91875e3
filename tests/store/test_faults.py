"""Faults of databases: one sentence with a hint, and no password."""

import os
import shutil
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tables import each_row
from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditRecord
from toolkiln.model.call import Call, Claimed, Result, Status
from toolkiln.model.identity import Caller, KeyRecord, SessionRecord
from toolkiln.store.audit_log import open_audit_log
from toolkiln.store.store import Store, open_store

from .archivist import ADMITTED, content
from .auditor import KEY
from .conftest import Opener, count_rows, damage, execute

NOBODY = Caller()


@contextmanager
def writer(kind: str, place: str | Path) -> Iterator[Callable[[], object]]:
    """Open a store or an audit log; yields a function that writes to it."""
    if kind == "store":
        with closing(open_store(place)) as store:
            yield lambda: store.save_output(NOBODY, "text")
    else:
        with closing(open_audit_log(place, KEY)) as log:
            yield lambda: log.append([AuditRecord(1.0, "call", "ok")])


each_kind = pytest.mark.parametrize("kind", ["store", "audit log"])


def refusal(place: str | Path, kind: str = "store") -> StoreError:
    with pytest.raises(StoreError) as caught, writer(kind, place) as write:
        write()
    assert caught.value.code == "store_failed"
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def claimed(store: Store, call_id: str = "c1") -> Claimed:
    call = Call(tool="t", id=call_id)
    claim = store.claim(call, caller=NOBODY, fingerprint="f", owner="me", lease_seconds=60)
    assert isinstance(claim, Claimed)
    return claim


@each_kind
@each_row(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://me:hunter2@127.0.0.1:notaport/db",
        "postgresql://me:hunter2@127.0.0.1:99999999/db",
        "postgresql://me:hun@hunter2@127.0.0.1:1/db",
        "postgresql://me:hun@hunter2/x@127.0.0.1:1/db",
        "postgresql://me:hunter2@/db?host=/nowhere",
        "postgresql://me@/db?host=/nowhere&password=hunter2",
        "postgresql://me:hunter2@/db?nonsense=1",
        "postgresql://me:hunter2@[::1/db",
        "postgresql://me:hunter2@h\0st/db",
        "postgresql://me:hunter2@\ud800/db",
        "postgresql://me:hunter2@a..b/db",
        "postgres://me:hunter2@nowhere.invalid/db",
        "mysql://me:hunter2@127.0.0.1/db",
        "redis://:hunter2@127.0.0.1",
        "sqlite+aiosqlite:///hunter2",
    ],
)
def test_a_wrong_url_is_refused_without_the_password(kind: str, url: str) -> None:
    error = refusal(url, kind)

    assert "hunter2" not in "".join(traceback.format_exception(error))


@each_kind
def test_a_read_only_database_is_refused(kind: str, postgres_url: str) -> None:
    with writer(kind, postgres_url) as write:
        write()

    url = postgres_url + "%20-cdefault_transaction_read_only%3Don"

    assert "read-only" in refusal(url, kind).message


@each_kind
def test_a_broken_connection_is_replaced(kind: str, postgres_url: str) -> None:
    with writer(kind, postgres_url) as write:
        write()
        execute(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'toolkiln' AND pid <> pg_backend_pid()",
        )

        write()

    table = "toolkiln_outputs" if kind == "store" else "toolkiln_audit"
    assert count_rows(postgres_url, table) == 2


@each_kind
@each_row("name", ["", ".", "fifo", "/dev/null", "file/below.db", "a\0b", "x" * 300, "\ud800/x.db"])
def test_a_path_that_cannot_be_a_file_is_refused(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    os.mkfifo("fifo")

    refusal(name, kind)


@each_kind
@each_row(
    "name",
    [":memory:", "file:x.db?mode=memory", "a b?c#d%20.db", "é.db", "sqlite:///{tmp_path}/x.db"],
)
def test_a_path_is_a_file_whatever_its_name(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = name.format(tmp_path=tmp_path)
    with writer(kind, name) as write:
        write()

    assert Path(name.removeprefix("sqlite:///")).is_file()


@each_kind
def test_a_file_that_is_no_database_is_refused_and_left_alone(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("dear diary" * 1000)

    assert "not a database" in refusal(file, kind).message
    assert file.read_text() == "dear diary" * 1000


@each_kind
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file_is_refused(kind: str, tmp_path: Path) -> None:
    with writer(kind, tmp_path / "x.db") as write:
        write()
    (tmp_path / "x.db").chmod(0o400)

    assert "is not writable" in refusal(tmp_path / "x.db", kind).message


def test_an_unknown_role_or_database_is_named(postgres_url: str) -> None:
    assert "stranger" in refusal(postgres_url.replace("toolkiln@", "stranger:hunter2@")).message
    assert "nowhere" in refusal(postgres_url.replace("/postgres?", "/nowhere?")).message


def test_a_role_without_rights_is_reported(postgres: str) -> None:
    execute(postgres, "CREATE ROLE weak LOGIN")

    assert "permission denied" in refusal(postgres.replace("toolkiln@", "weak@")).message


def test_missing_psycopg_is_reported(tmp_path: Path) -> None:
    script = """if True:
        import sys
        sys.modules["psycopg"] = None
        from toolkiln.errors import StoreError
        from toolkiln.store.store import open_store
        open_store(sys.argv[1]).close()
        try:
            open_store("postgresql://me@127.0.0.1/db")
        except StoreError as error:
            print(error.message, error.hint)
    """
    command = [sys.executable, "-c", script, str(tmp_path / "works.db")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "psycopg" in printed
    assert "toolkiln[postgres]" in printed


def test_a_link_to_a_file_that_is_not_there_yet_is_followed(tmp_path: Path, opened: Opener) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "target")
    claimed(opened(tmp_path / "link"))

    assert (tmp_path / "folder" / "target").stat().st_mode & 0o777 == 0o600


def test_only_the_user_may_read_the_files_and_one_is_left(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "new" / "store.db")
        claimed(store)
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    store.close()

    files = {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert modes == {"new": 0o700, **files}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["store.db"]


def test_an_empty_file_becomes_a_store_and_a_truncated_one_does_not(
    tmp_path: Path, opened: Opener
) -> None:
    file = tmp_path / "empty"
    file.touch()
    claimed(opened(file))

    opened(tmp_path / "store.db").close()
    os.truncate(tmp_path / "store.db", 5000)
    refusal(tmp_path / "store.db")


def test_a_damaged_file_is_reported(tmp_path: Path, opened: Opener) -> None:
    file = tmp_path / "store.db"
    store = opened(file)
    store.save_output(NOBODY, "x" * 500_000)
    claimed(store)
    store.close()
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (file.stat().st_size - 4096))

    with pytest.raises(StoreError, match="malformed") as caught:
        claimed(opened(file), "c2")
    assert caught.value.hint


def test_a_file_that_vanished_does_not_break_the_service(tmp_path: Path, opened: Opener) -> None:
    file = tmp_path / "store.db"
    store = opened(file)
    claimed(store)
    store.close()
    file.unlink()

    with pytest.raises(StoreError, match="no such table"):
        claimed(store)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE toolkiln_schema SET version = 5",
        "DELETE FROM toolkiln_schema",
        "INSERT INTO toolkiln_schema VALUES (1)",
    ],
)
def test_a_schema_of_another_version_is_refused(place: str, opened: Opener, change: str) -> None:
    opened(place).close()
    execute(place, change)

    assert "schema" in refusal(place).message


def test_a_result_that_cannot_be_read_is_reported(place: str, opened: Opener) -> None:
    store = opened(place)
    store.finish(claimed(store), Result(call_id="c1", tool="t", status=Status.OK))

    for kept in ("{}", "[]", "nonsense", '{"files": [1]}', '{"files": [], "x": 1}'):
        execute(place, f"UPDATE toolkiln_calls SET result = '{kept}'")
        with pytest.raises(StoreError, match="cannot be read"):
            claimed(store)
        with pytest.raises(StoreError, match="cannot be read"):
            store.task(NOBODY, "c1")
    assert [task.state for task in store.tasks(NOBODY)] == ["done"]


TOKEN = "a" * 64


def keep_in(table: str, store: Store) -> list[Callable[[], object]]:
    """Keep a row in a table; return all ways to read it."""
    if table == "sessions":
        store.sessions.put(TOKEN, SessionRecord(trace_id="t", caller=NOBODY), 300)
        return [lambda: store.sessions.get(TOKEN), store.sessions.alive]
    if table == "keys":
        key = KeyRecord(id="k1", name="bot", caller=NOBODY, created_by="op", created=1.0)
        store.keys.add(key, TOKEN)
        return [lambda: store.keys.find(TOKEN), store.keys.list]
    if table == "settings":
        store.tool_settings.change("t", lambda _: {"a": 1})
        return [lambda: store.tool_settings.read("t")]
    store.archive.add("c", content(), ADMITTED)
    return [lambda: store.archive.history("c", "greet.py")]


@each_row(
    "table, column, data",
    [
        ("sessions", "caller", b"nonsense"),
        ("sessions", "caller", b"[]"),
        ("sessions", "caller", b'{"groups": 1}'),
        ("sessions", "caller", b'{"unknown": 1}'),
        ("sessions", "caller", b"\xff"),
        ("keys", "caller", b"bot"),
        ("settings", "content", b"{"),
        ("settings", "content", b"1"),
        ("settings", "content", b"\xff"),
        ("versions", "tools", b"rubbish"),
        ("versions", "tools", b"1"),
        ("versions", "action", b"unheard"),
    ],
)
def test_a_damaged_row_is_reported(
    store: Store, place: str, table: str, column: str, data: bytes
) -> None:
    execute(place, f"DELETE FROM toolkiln_{table}")
    reads = keep_in(table, store)
    damage(place, table, column, data)

    for read in reads:
        with pytest.raises(StoreError, match=r"cannot be read|not valid") as caught:
            read()
        assert caught.value.hint


def test_a_text_that_cannot_be_read_is_reported(tmp_path: Path, opened: Opener) -> None:
    store = opened(tmp_path / "store.db")
    claimed(store)
    execute(str(tmp_path / "store.db"), "UPDATE toolkiln_calls SET progress = x'ff'")

    with pytest.raises(StoreError, match="not valid"):
        store.task(NOBODY, "c1")


def in_a_mount(tmp_path: Path, script: str) -> str:
    """What a script prints that runs with a file system of 1 MB at argv[1]."""
    unshare = [shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--mount"]
    mount = 'mount -t tmpfs -o size=1m none "$1"'
    try:
        subprocess.run(
            [*unshare, "sh", "-c", mount, "sh", str(tmp_path)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not make a mount namespace")
    run = f'{mount} && exec "$2" -c "$3" "$1"'
    command = [*unshare, "sh", "-c", run, "sh", str(tmp_path), sys.executable, script]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


SCRIPT = """if True:
    import os, subprocess, sys
    from toolkiln.model.call import Call, Result
    from toolkiln.model.catalog import Arrival, VersionContent
    from toolkiln.model.identity import Caller
    from toolkiln.model.source import Reading
    from toolkiln.errors import StoreError
    from toolkiln.store.store import open_store
    folder = sys.argv[1]
    arrival = Arrival(action="admit", by="me", at="2026-01-01T00:00:00Z")
    def version(digest, source):
        reading = Reading(path="a.py", digest=digest)
        return VersionContent(file="a.py", reading=reading, sources={"a.py": source})
    def claim(store, id):
        call, lease = Call(tool="t", id=id), {"fingerprint": "f", "owner": "o", "lease_seconds": 60}
        return store.claim(call, caller=Caller(), **lease)
    def attempt(action, *arguments):
        try:
            print(type(action(*arguments)).__name__)
        except StoreError as error:
            print(f"{error.message} | {error.hint}")
"""


def test_a_full_disk_is_reported_and_survived(tmp_path: Path) -> None:
    printed = in_a_mount(
        tmp_path,
        SCRIPT
        + """
    store = open_store(folder + "/store.db")
    first = claim(store, "c1")
    attempt(store.save_output, Caller(), "x" * 5_000_000)
    big = Result(call_id="c1", tool="t", status="ok", text="x" * 5_000_000)
    attempt(store.finish, first, big)
    attempt(store.archive.add, "c", version("big", os.urandom(5_000_000)), arrival)
    print(store.archive.history("c", "a.py"), store.archive.sources("big", "a.py"))
    attempt(store.archive.add, "c", version("small", b"x"), arrival)
    attempt(store.finish, first, big.model_copy(update={"text": "small"}))
    attempt(claim, store, "c1")
    attempt(claim, store, "c2")
    open(folder + "/junk", "wb").write(b"x" * 100)
    attempt(open_store, folder + "/more/store.db")
""",
    ).splitlines()

    assert all("disk is full | free some space" in line for line in printed[:3])
    assert printed[3:8] == ["[] None", "Version", "bool", "Done", "Claimed"]
    assert len(printed) == 9


def test_a_read_only_disk_is_reported(tmp_path: Path) -> None:
    printed = in_a_mount(
        tmp_path,
        SCRIPT
        + """
    open_store(folder + "/store.db").close()
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    attempt(open_store, folder + "/store.db")
    attempt(open_store, folder + "/other.db")
    attempt(open_store, folder + "/new/other.db")
""",
    ).splitlines()

    assert all("|" in line and not line.endswith("None") for line in printed)
    assert "is not writable" in printed[0]
    assert "Read-only file system" in printed[1]
    assert len(printed) == 3
