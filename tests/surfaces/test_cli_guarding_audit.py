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

from .conftest import GREET, Shell

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
def told(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A state in which a few things happened."""
    recorded = shell.having(TOOLKILN_STATE=str(tmp_path_factory.mktemp("told")))
    recorded.invoke("keys", "create", FORMULA, "--user", "ann")
    for user, tool in (("ann", "greet"), ("eve", "greet"), ("ann", "fail")):
        held = recorded.invoke("sessions", "create", user).out.strip()
        given = ["name=Ada"] if tool == "greet" else []
        recorded.invoke("call", tool, *given, "--token", held)
    recorded.invoke("call", "no\nsuch\x1b[2J tool")
    return recorded


@pytest.fixture
def copied(told: Shell, tmp_path: Path) -> Shell:
    """A copy of that, to be changed."""
    shutil.copytree(told.variables["TOOLKILN_STATE"], tmp_path / "state")
    return told.having(TOOLKILN_STATE=str(tmp_path / "state"))


def listed(shell: Shell, *options: str) -> list[dict[str, object]]:
    done = shell.invoke("audit", "list", "--json", *options)
    assert done.code == 0, done
    found: list[dict[str, object]] = done.json()
    return found


def edit(shell: Shell, statement: str) -> None:
    """Do to the audit what nobody should."""
    file = Path(shell.variables["TOOLKILN_STATE"]) / "audit.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)


class TestList:
    def test_records_are_listed_newest_first(self, told: Shell) -> None:
        done = told.invoke("audit", "list")

        titles, *rows = done.out.splitlines()
        assert titles.split() == [
            "seq", "time", "user", "act", "tool", "outcome", "took", "detail",
        ]  # fmt: skip
        places = [int(row.split()[0]) for row in rows]
        assert places == sorted(places, reverse=True)
        assert places[-1] == 1

    @pytest.mark.parametrize(
        ("options", "fits"),
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
        self, told: Shell, options: list[str], fits: Callable[[dict[str, object]], bool]
    ) -> None:
        found = listed(told, *options)

        assert found
        assert all(map(fits, found))

    @pytest.mark.parametrize(
        "options",
        [["--user=nobody"], ["--since=2999-01-01T00:00:00+02:00"], ["--until=2h"], ["--tool=x*"]],
    )
    def test_nothing_found_is_no_failure(self, told: Shell, options: list[str]) -> None:
        done = told.invoke("audit", "list", *options)

        assert (done.code, done.out, done.err) == (0, "", "no records\n")

    def test_a_session_is_followed_by_its_public_id(self, told: Shell) -> None:
        (denied,) = listed(told, "--outcome=denied", "--user=eve")

        found = listed(told, "--session", str(denied["session"]))

        assert denied in found
        assert {record["user"] for record in found} == {"eve"}

    def test_moments_are_utc_unless_they_say_otherwise(self, told: Shell) -> None:
        everything = listed(told)

        assert listed(told, "--since", "1970-01-01") == everything
        assert listed(told, "--until", "1970-01-01") == []
        assert listed(told, "--since", "1970-01-01T00:00:00Z", "--until", "1w") == []

    def test_no_more_are_listed_than_wanted(self, told: Shell) -> None:
        done = told.invoke("audit", "list", "--limit", "2")

        assert len(done.out.splitlines()) == 3
        assert "--limit shows more" in done.err

    @pytest.mark.parametrize(
        "options",
        [["--since", "yesterday"], ["--until", ""], ["--since", "9" * 12 + "w"],
         ["--since", "2026-13-01"], ["--limit", "0"], ["--limit", "x"], ["--since", "1h\n"]],
    )  # fmt: skip
    def test_what_cannot_be_asked_is_a_clear_error(self, told: Shell, options: list[str]) -> None:
        done = told.invoke("audit", "list", *options)

        assert (done.code, done.out) == (2, "")

    def test_no_name_forges_a_row(self, told: Shell) -> None:
        out = told.invoke("audit", "list").out

        assert len(out.splitlines()) == len(listed(told)) + 1
        assert "\x1b" not in out


class TestExport:
    def test_lines_of_json_hold_place_and_hash(self, told: Shell) -> None:
        done = told.invoke("audit", "export")

        records = [json.loads(line) for line in done.out.splitlines()]
        assert records == listed(told)[::-1]
        assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
        assert all(len(record["hash"]) == 64 for record in records)
        assert done.err == f"{len(records)} records\n"

    def test_a_file_is_for_its_owner_only(self, told: Shell, tmp_path: Path) -> None:
        file = tmp_path / "audit.jsonl"

        done = told.invoke("audit", "export", str(file), "--user", "eve")

        assert (done.code, done.out) == (0, "")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert {json.loads(line)["user"] for line in file.read_text().splitlines()} == {"eve"}

    def test_csv_is_no_formula_for_a_spreadsheet(self, told: Shell, tmp_path: Path) -> None:
        held = told.invoke("sessions", "create", FORMULA).out.strip()
        told.invoke("call", "greet", "name=Ada", "--token", held)

        out = told.invoke("audit", "export", "--format", "csv", "--user", FORMULA).out

        titles, *rows = csv.reader(out.splitlines())
        users = [row[titles.index("user")] for row in rows]
        assert users
        assert set(users) == {f"'{FORMULA}"}

    @pytest.mark.parametrize("place", ["taken", "no/where", "."])
    def test_nothing_is_overwritten(self, told: Shell, tmp_path: Path, place: str) -> None:
        (tmp_path / "taken").write_text("mine")

        done = told.invoke("audit", "export", str(tmp_path / place))

        assert (done.code, done.out) == (2, "")
        assert (tmp_path / "taken").read_text() == "mine"

    def test_half_an_export_is_none(self, copied: Shell, tmp_path: Path) -> None:
        edit(copied, "UPDATE toolkiln_audit SET detail = x'ff' WHERE seq = 3")

        done = copied.invoke("audit", "export", str(tmp_path / "audit.jsonl"))

        assert done.code == 3
        assert "see row 3" in done.err
        assert not (tmp_path / "audit.jsonl").exists()

    def test_there_are_two_formats(self, told: Shell) -> None:
        assert told.invoke("audit", "export", "--format", "xml").code == 2


class TestVerify:
    def test_an_intact_log_prints_its_head(self, told: Shell) -> None:
        newest = listed(told)[0]

        done = told.invoke("audit", "verify")

        assert done.code == 0
        first, second = done.out.splitlines()
        assert first == f"intact: {newest['seq']} records, 1 to {newest['seq']}"
        assert second == f"head: {newest['seq']}:{newest['hash']}"

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("UPDATE toolkiln_audit SET user = 'ann' WHERE seq = 2", "row 2 was edited"),
            ("UPDATE toolkiln_audit SET at = at + 1 WHERE seq = 2", "row 2 was edited"),
            ("DELETE FROM toolkiln_audit WHERE seq = 2", "row 2 is missing"),
            ("DELETE FROM toolkiln_audit WHERE seq <= 2", "rows 1 to 2 are missing"),
            (
                "DELETE FROM toolkiln_audit WHERE seq = (SELECT max(seq) FROM toolkiln_audit)",
                " is missing",
            ),
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

    def test_two_rows_that_changed_places_are_found(self, copied: Shell) -> None:
        for old, new in ((2, -1), (3, 2), (-1, 3)):
            edit(copied, f"UPDATE toolkiln_audit SET seq = {new} WHERE seq = {old}")

        assert copied.invoke("audit", "verify").code == 1

    def test_an_older_copy_is_detected_with_an_earlier_head(
        self, copied: Shell, told: Shell
    ) -> None:
        copied.invoke("keys", "create", "later", "--user", "ann")
        head = copied.invoke("audit", "verify").out.splitlines()[1].removeprefix("head: ")

        assert copied.invoke("audit", "verify", "--head", head).code == 0
        older = told.invoke("audit", "verify", "--head", head)
        assert older.code == 1
        assert "before the expected row" in older.out

    @pytest.mark.parametrize("head", ["", "1", "1:xyz", "x:" + "0" * 64, "-1:" + "0" * 64])
    def test_a_head_that_is_none_is_a_clear_error(self, told: Shell, head: str) -> None:
        done = told.invoke("audit", "verify", f"--head={head}")

        assert (done.code, done.out) == (2, "")

    def test_a_file_that_is_no_database_is_a_failure_of_the_platform(self, copied: Shell) -> None:
        file = Path(copied.variables["TOOLKILN_STATE"]) / "audit.db"
        file.write_bytes(b"nonsense" * 1000)

        for command in (["list"], ["verify"], ["export"], ["prune", "--older-than=1", "--yes"]):
            done = copied.invoke("audit", *command)
            assert (done.code, done.out) == (3, ""), command


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

    @pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 2)])
    def test_it_asks_first(self, copied: Shell, answer: str, code: int) -> None:
        count = len(listed(copied))

        done = copied.invoke("audit", "prune", "--older-than", "0", stdin=answer)

        assert done.code == code
        assert (len(listed(copied)) == count) == (code != 0)

    @pytest.mark.parametrize(
        "options", [["--older-than=-1"], ["--older-than=nan"], ["--older-than=1e9"], []]
    )
    def test_a_time_that_is_none_is_a_clear_error(self, told: Shell, options: list[str]) -> None:
        assert told.invoke("audit", "prune", "--yes", *options).code == 2

    def test_json_does_not_prompt(self, told: Shell) -> None:
        assert told.invoke("audit", "prune", "--older-than=0", "--json").code == 2
