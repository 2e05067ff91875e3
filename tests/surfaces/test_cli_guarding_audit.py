"""The audit on the command line: looked up, exported, verified, pruned."""

import csv
import json
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import time

import pytest

from tables import each_row

from .conftest import GREET, Shell, token

SETTINGS = """
[[rules]]
effect = "deny"
users = ["eve"]
"""
TOOLS = {
    "greet.py": GREET,
    "fail.py": '''
from toolkiln import tool

@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no")
''',
}
FORMULA = "=HYPERLINK(1)"


@pytest.fixture(scope="module")
def recorded(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A state in which a few things happened."""
    fresh = shell.having(TOOLKILN_STATE=str(tmp_path_factory.mktemp("recorded")))
    fresh.invoke("keys", "create", FORMULA, "--user", "ann")
    for user, tool in (("ann", "greet"), ("eve", "greet"), ("ann", "fail")):
        given = ["name=Ada"] if tool == "greet" else []
        fresh.invoke("call", tool, *given, "--token", token(fresh, user))
    fresh.invoke("call", "no\nsuch\x1b[2J tool")
    return fresh


@pytest.fixture
def copied(recorded: Shell, tmp_path: Path) -> Shell:
    """A copy of that, to be changed."""
    shutil.copytree(recorded.variables["TOOLKILN_STATE"], tmp_path / "state")
    return recorded.having(TOOLKILN_STATE=str(tmp_path / "state"))


def listed(shell: Shell, *options: str) -> list[dict[str, object]]:
    done = shell.invoke("audit", "list", "--json", *options)
    assert done.code == 0, done
    found: list[dict[str, object]] = done.json()
    return found


def edit(shell: Shell, statement: str) -> None:
    """Tamper with the audit log."""
    file = Path(shell.variables["TOOLKILN_STATE"]) / "audit.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)


class TestList:
    def test_records_are_listed_newest_first(self, recorded: Shell) -> None:
        done = recorded.invoke("audit", "list")

        titles, *rows = done.out.splitlines()
        assert titles.split() == [
            "seq", "time", "user", "act", "tool", "outcome", "took", "detail",
        ]  # fmt: skip
        places = [int(row.split()[0]) for row in rows]
        assert places == sorted(places, reverse=True)
        assert places[-1] == 1
        assert len(rows) == len(listed(recorded))
        assert "\x1b" not in done.out

    @each_row(
        "options, fits",
        [
            (["--user", "eve"], lambda r: r["user"] == "eve"),
            (["--tool", "gr*"], lambda r: r["tool"] == "greet"),
            (["--tool", "fail"], lambda r: r["tool"] == "fail"),
            (["--outcome", "denied"], lambda r: r["outcome"] == "denied" and r["user"] == "eve"),
            (["--outcome", "exception"], lambda r: r["tool"] == "fail"),
            (["--act", "key.create"], lambda r: FORMULA in str(r["detail"])),
            (["--act=call", "--user=ann", "--outcome=ok"], lambda r: r["tool"] == "greet"),
            (["--since", "1h"], lambda r: True),
            (["--until", "2999-01-01"], lambda r: True),
        ],
    )
    def test_what_is_asked_for_is_found(
        self, recorded: Shell, options: list[str], fits: Callable[[dict[str, object]], bool]
    ) -> None:
        found = listed(recorded, *options)

        assert found
        assert all(map(fits, found))

    def test_nothing_found_is_no_failure(self, recorded: Shell) -> None:
        later = "--since=2999-01-01T00:00:00+02:00"
        for option in ("--user=unknown", later, "--until=2h", "--tool=x*"):
            done = recorded.invoke("audit", "list", option)

            assert (done.code, done.out, done.err) == (0, "", "no records\n")

    def test_a_session_is_followed_by_its_public_id(self, recorded: Shell) -> None:
        (denied,) = listed(recorded, "--outcome=denied", "--user=eve")

        found = listed(recorded, "--session", str(denied["session"]))

        assert denied in found
        assert {record["user"] for record in found} == {"eve"}

    def test_moments_are_utc_unless_they_say_otherwise(self, recorded: Shell) -> None:
        everything = listed(recorded)

        assert listed(recorded, "--since", "1970-01-01") == everything
        assert listed(recorded, "--until", "1970-01-01") == []
        assert listed(recorded, "--since", "1970-01-01T00:00:00Z", "--until", "1w") == []

    def test_no_more_are_listed_than_wanted(self, recorded: Shell) -> None:
        done = recorded.invoke("audit", "list", "--limit", "2")

        assert len(done.out.splitlines()) == 3
        assert "--limit shows more" in done.err

    def test_what_cannot_be_asked_is_a_clear_error(self, recorded: Shell) -> None:
        for option in (
            "--since=yesterday", "--until=", f"--since={'9' * 12}w", "--since=2026-13-01",
            "--limit=0", "--limit=x", "--since=1h\n",
        ):  # fmt: skip
            done = recorded.invoke("audit", "list", option)

            assert (done.code, done.out) == (2, "")


class TestExport:
    def test_lines_of_json_hold_place_and_hash(self, recorded: Shell) -> None:
        done = recorded.invoke("audit", "export")

        records = [json.loads(line) for line in done.out.splitlines()]
        assert records == listed(recorded)[::-1]
        assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
        assert all(len(record["hash"]) == 64 for record in records)
        assert done.err == f"{len(records)} records\n"

    def test_a_file_is_for_its_owner_only(self, recorded: Shell, tmp_path: Path) -> None:
        file = tmp_path / "audit.jsonl"

        done = recorded.invoke("audit", "export", str(file), "--user", "eve")

        assert (done.code, done.out) == (0, "")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert {json.loads(line)["user"] for line in file.read_text().splitlines()} == {"eve"}

    def test_csv_is_no_formula_for_a_spreadsheet(self, recorded: Shell, tmp_path: Path) -> None:
        recorded.invoke("call", "greet", "name=Ada", "--token", token(recorded, FORMULA))

        out = recorded.invoke("audit", "export", "--format", "csv", "--user", FORMULA).out

        titles, *rows = csv.reader(out.splitlines())
        users = [row[titles.index("user")] for row in rows]
        assert users
        assert set(users) == {f"'{FORMULA}"}

    def test_nothing_is_overwritten(self, recorded: Shell, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("mine")

        for place in ("taken", "no/where", "."):
            recorded.refused("audit", "export", str(tmp_path / place))

        assert (tmp_path / "taken").read_text() == "mine"

    def test_half_an_export_is_none(self, copied: Shell, tmp_path: Path) -> None:
        edit(copied, "UPDATE toolkiln_audit SET detail = x'ff' WHERE seq = 3")

        done = copied.invoke("audit", "export", str(tmp_path / "audit.jsonl"))

        assert done.code == 3
        assert "see row 3" in done.err
        assert not (tmp_path / "audit.jsonl").exists()

    def test_there_are_two_formats(self, recorded: Shell) -> None:
        assert recorded.invoke("audit", "export", "--format", "xml").code == 2


class TestVerify:
    def test_an_intact_log_prints_its_head(self, recorded: Shell) -> None:
        newest = listed(recorded)[0]

        done = recorded.invoke("audit", "verify")

        assert done.code == 0
        first, second = done.out.splitlines()
        assert first == f"intact: {newest['seq']} records, 1 to {newest['seq']}"
        assert second == f"head: {newest['seq']}:{newest['hash']}"

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("UPDATE toolkiln_audit SET user = 'ann' WHERE seq = 2", "row 2 was edited"),
            ("DELETE FROM toolkiln_audit WHERE seq <= 2", "rows 1 to 2 are missing"),
            ("UPDATE toolkiln_audit SET hash = '\x1b[2J' || x'0a' WHERE seq = 2", "row 2"),
        ],
    )
    def test_tampering_is_detected(self, copied: Shell, statement: str, problem: str) -> None:
        edit(copied, statement)

        done = copied.invoke("audit", "verify")

        assert done.code == 1
        first, *_, last = done.out.splitlines()
        assert first.startswith("problem: ")
        assert problem in first
        assert last.startswith("not intact: ")
        assert "\x1b" not in done.out
        assert copied.invoke("audit", "verify", "--json").json()["ok"] is False

    def test_an_older_copy_is_detected_with_an_earlier_head(
        self, copied: Shell, recorded: Shell
    ) -> None:
        copied.invoke("keys", "create", "later", "--user", "ann")
        head = copied.invoke("audit", "verify").out.splitlines()[1].removeprefix("head: ")

        assert copied.invoke("audit", "verify", "--head", head).code == 0
        older = recorded.invoke("audit", "verify", "--head", head)
        assert older.code == 1
        assert "before the expected row" in older.out

    def test_a_head_that_is_none_is_a_clear_error(self, recorded: Shell) -> None:
        for head in ("", "1", "1:xyz", "x:" + "0" * 64, "-1:" + "0" * 64):
            recorded.refused("audit", "verify", f"--head={head}")

    def test_a_file_that_is_no_database_is_a_failure_of_the_platform(self, copied: Shell) -> None:
        file = Path(copied.variables["TOOLKILN_STATE"]) / "audit.db"
        file.write_bytes(b"nonsense" * 1000)

        for command in (["list"], ["verify"], ["export"], ["prune", "--older-than=1", "--yes"]):
            copied.refused("audit", *command, code=3)


class TestPrune:
    def test_what_is_left_can_be_verified(self, copied: Shell) -> None:
        count = len(listed(copied))

        done = copied.invoke("audit", "prune", "--older-than", "0", "--yes")

        assert (done.code, done.out) == (0, f"removed: {count - 1} records\n")
        assert copied.invoke("audit", "verify").code == 0
        assert len(listed(copied, "--act", "audit.prune")) == 1

    def test_what_is_not_old_stays(self, copied: Shell) -> None:
        before = listed(copied)

        done = copied.invoke("audit", "prune", "--older-than", "1", "--yes", "--json")

        assert (done.code, done.json()) == (0, {"removed": 0})
        assert listed(copied) == before
        assert all(float(str(record["at"])) <= time() for record in before)

    def test_it_asks_first(self, copied: Shell) -> None:
        count = len(listed(copied))

        for answer, code in (("n\n", 1), ("\n", 1), ("", 2), ("y\n", 0)):
            done = copied.invoke("audit", "prune", "--older-than", "0", stdin=answer)

            assert done.code == code
            assert (len(listed(copied)) == count) == (code != 0)

    def test_a_time_that_is_none_or_json_without_yes_is_an_error(self, recorded: Shell) -> None:
        for option in ("--older-than=-1", "--older-than=nan", "--older-than=1e9", "--yes"):
            assert recorded.invoke("audit", "prune", "--yes", option).code == 2
        assert recorded.invoke("audit", "prune", "--older-than=0", "--json").code == 2
