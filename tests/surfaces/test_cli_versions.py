"""Decisions about admitted files: status, reject, history, rollback, switches, remove."""

import os
import pty
import signal
import subprocess

import pytest

from .conftest import ADMITTED, BOUND, GREET, KIT, POLITE, Shell, manifest, states, write


class TestReject:
    def test_a_new_file_that_is_rejected_no_longer_waits(self, desk: Shell) -> None:
        done = desk.invoke("reject", "tools/greet.py")

        assert (done.code, done.out) == (0, "rejected: tools/greet.py: it is not served\n")
        assert desk.invoke("status").code == 0
        assert desk.invoke("admit").err == "nothing to admit\n"
        assert "tools/greet.py is rejected" in desk.refused("call", "greet", "name=x")

    def test_a_rejected_change_leaves_the_admitted_version_and_rejecting_that_withdraws_it(
        self, admitted: Shell
    ) -> None:
        write(admitted, "greet.py", POLITE)
        change = admitted.invoke("reject", "tools/greet.py", "--json")
        called = admitted.invoke("call", "greet", "name=Ada")
        write(admitted, "greet.py", GREET)
        version = admitted.invoke("reject", "tools/greet.py")
        admitted.refused("call", "greet", "name=Ada")
        again = admitted.invoke(*ADMITTED, "tools/greet.py")

        assert change.json() == {"file": "tools/greet.py", "served": True}
        assert called.out == "Hello Ada\n"
        assert "it is not served" in version.out
        assert (again.code, states(admitted)) == (0, {"greet.py": "admitted"})

    def test_a_file_that_is_gone_is_forgotten(self, admitted: Shell) -> None:
        (admitted.folder / "tools" / "greet.py").unlink()
        write(admitted, "kit.py", KIT)
        admitted.invoke(*ADMITTED)

        missing = admitted.invoke("status")
        done = admitted.invoke("reject", "tools/greet.py")

        assert missing.code == 1
        assert "missing   tools/greet.py" in missing.out
        assert "`toolkiln reject FILE` removes" in missing.err
        assert done.code == 0
        assert states(admitted) == {"kit.py": "admitted"}

    def test_an_unknown_file_cannot_be_rejected(self, admitted: Shell) -> None:
        for name in ("tools/nope.py", "tools", "nope/nope.py", "nope.py"):
            admitted.refused("reject", name)


class TestStatus:
    def test_status_is_a_check_for_ci(self, desk: Shell) -> None:
        new = desk.invoke("status")
        desk.invoke(*ADMITTED)
        admitted = desk.invoke("status")
        write(desk, "greet.py", POLITE)
        changed = desk.invoke("status")

        assert (new.code, new.out) == (1, "new       tools/greet.py  greet\n")
        assert "no tool has been admitted" in new.err
        assert admitted.code == 0
        assert admitted.out.startswith("admitted  tools/greet.py  v1 by ")
        assert changed.code == 1
        assert changed.out.startswith("changed   tools/greet.py  v1 by ")
        assert changed.err == "hint: `toolkiln admit` shows what is new, and asks\n"

    def test_a_file_that_cannot_be_read_says_why(self, admitted: Shell) -> None:
        write(admitted, "broken.py", "def (")

        done = admitted.invoke("status")

        assert done.code == 1
        assert "new       tools/broken.py  this is not valid Python" in done.out

    def test_a_taken_name_is_reported(self, admitted: Shell) -> None:
        write(admitted, "second.py", GREET)

        done, status = admitted.invoke(*ADMITTED), admitted.invoke("status")

        assert done.out == "admitted: tools/second.py v1: none of its tools\n"
        assert "note: 'greet' is a tool of greet.py already" in done.err
        assert "tools/second.py:5: 'greet' is a tool of greet.py already" in status.err
        assert admitted.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"

    def test_colours_are_for_terminals(self, desk: Shell) -> None:
        piped, (code, shown) = desk.run("status"), desk.on_terminal("status")
        asked = desk.run("admit", stdin=b"n\n")

        assert "\x1b" not in piped.out + piped.err + asked.out + asked.err
        assert code == 1
        assert "\x1b[33mnew" in shown


class TestVersions:
    @pytest.fixture
    def changed(self, admitted: Shell) -> Shell:
        write(admitted, "greet.py", POLITE)
        assert admitted.invoke(*ADMITTED).code == 0
        return admitted

    def test_history_lists_versions_newest_first_and_marks_the_served_one(
        self, changed: Shell
    ) -> None:
        done = changed.run("history", "greet")
        as_json = changed.invoke("history", "greet", "--json").json()

        newest, oldest = done.out.splitlines()
        assert newest.startswith("* v2 ")
        assert oldest.startswith("  v1 ")
        assert " admit by " in oldest
        assert [(v["number"], v["served"]) for v in as_json] == [(2, True), (1, False)]

    def test_versions_are_named_by_number_or_digest(self, changed: Shell) -> None:
        _, first = changed.invoke("history", "greet", "--json").json()

        for old in ("1", "v1", first["digest"][:8]):
            done = changed.invoke("diff", "greet", old, "2")

            assert done.code == 0
            assert '-    return f"Hello {name}"\n+    return f"Good day, {name}"\n' in done.out

    def test_two_equal_versions_have_no_diff(self, changed: Shell) -> None:
        done = changed.invoke("diff", "greet", "2", "2")

        assert (done.code, done.out, done.err) == (0, "", "the versions are equal\n")

    def test_an_unknown_version_is_answered_with_those_that_exist(self, changed: Shell) -> None:
        for version in ("3", "0", "-1", "v", "", "abc", "9" * 50, "ffffffff", "²"):
            error = changed.refused("diff", "--", "greet", "1", version)
            assert "hint: there are 2, 1" in error
        assert "hint: there are 2, 1" in changed.refused("rollback", "greet", "3")

    def test_an_unknown_tool_is_answered_with_the_nearest(self, changed: Shell) -> None:
        for command in ("history great", "diff great 1 2", "rollback great 1", "diff great"):
            assert "did you mean 'greet'?" in changed.refused(*command.split())

    def test_rolling_back_serves_and_writes_the_earlier_version(self, changed: Shell) -> None:
        done = changed.run("rollback", "greet", "1")

        assert (done.code, done.out) == (0, "greet: v3 is served, back to version 1\n")
        assert (changed.folder / "tools" / "greet.py").read_text() == GREET
        assert changed.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"
        assert changed.invoke("rollback", "greet", "2", "--json").json()["number"] == 4
        assert "greet is at version 4 already" in changed.refused("rollback", "greet", "4")

    def test_unadmitted_edits_are_not_overwritten_without_a_question(self, changed: Shell) -> None:
        edited = write(changed, "greet.py", POLITE + "# precious\n")

        unsure = changed.refused("rollback", "greet", "1", "--json")
        called_off = changed.invoke("rollback", "greet", "1", stdin="n\n")
        kept = edited.read_text()
        done = changed.invoke("rollback", "greet", "1", "--yes")

        assert "--yes" in unsure
        assert (called_off.code, called_off.out) == (1, "")
        assert "has unadmitted changes" in called_off.err
        assert kept.endswith("# precious\n")
        assert (done.code, edited.read_text()) == (0, GREET)


class TestSwitches:
    @pytest.fixture
    def kit(self, admitted: Shell) -> Shell:
        write(admitted, "kit.py", KIT)
        assert admitted.invoke(*ADMITTED).code == 0
        return admitted

    def test_a_disabled_tool_is_neither_listed_nor_called(self, kit: Shell) -> None:
        off = kit.run("disable", "greet")
        called, listed = kit.refused("call", "greet", "name=Ada"), kit.invoke("list")
        kit.invoke("enable", "greet")

        assert (off.code, off.out) == (0, "disabled: greet\n")
        assert "hint: `toolkiln enable greet`" in called
        assert "  greet " not in listed.out
        assert listed.err == "note: disabled: greet\n"
        assert kit.invoke("call", "greet", "name=Ada").code == 0

    def test_a_toolkit_goes_with_its_methods(self, kit: Shell) -> None:
        kit.invoke("disable", "Desk")
        off = kit.invoke("list").err
        kit.invoke("enable", "Desk")

        assert off == "note: disabled: close_drawer, open_drawer\n"
        assert kit.invoke("list").err == ""

    def test_one_method_goes_alone(self, kit: Shell) -> None:
        for name in ("Desk.open_drawer", "open_drawer"):
            kit.invoke("disable", name)

            assert kit.invoke("list").err == "note: disabled: open_drawer\n"
            kit.invoke("enable", name)
        assert kit.invoke("list").err == ""

    def test_core_tools_refuse_to_be_disabled(self, admitted: Shell) -> None:
        write(admitted, "greet.py", GREET.replace("read_only", "is_core"))
        admitted.invoke(*ADMITTED)

        error = admitted.refused("disable", "greet")

        assert "greet is a core tool and cannot be disabled" in error
        assert admitted.invoke("list").err == ""

    def test_an_unknown_name_is_answered_with_the_nearest(self, kit: Shell) -> None:
        for command in ("enable", "disable"):
            assert "did you mean 'Desk'?" in kit.refused(command, "Desc")


def test_ctrl_c_at_a_question_decides_nothing(desk: Shell) -> None:
    with desk.start("admit", stdin=subprocess.PIPE) as process:
        assert process.stderr is not None
        asked = ""
        while "[y/N]" not in asked:
            asked += process.stderr.read(1)

        process.send_signal(signal.SIGINT)

        assert process.wait(BOUND) == 130
        assert process.stderr.read().strip() == ""
    assert not manifest(desk).exists()


def test_ctrl_d_at_a_question_about_a_named_file_decides_nothing(desk: Shell) -> None:
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"\x04")
    try:
        done = desk.start("admit", "--no-probe", "tools/greet.py", stdin=terminal)
        with done as process:
            assert process.wait(BOUND) == 2
            assert process.stderr is not None
            assert "no answer on stdin" in process.stderr.read()
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert not manifest(desk).exists()


class TestRemove:
    def test_a_tool_goes_with_its_file_and_comes_back(self, admitted: Shell) -> None:
        file = admitted.folder / "tools" / "greet.py"

        done = admitted.invoke("remove", "greet", "--yes")
        was_there = file.exists()
        back = admitted.invoke("rollback", "greet", "1", "--yes")

        brings = "`toolkiln rollback greet 1` brings it back"
        assert (done.code, done.out) == (0, f"removed: tools/greet.py; {brings}\n")
        assert (was_there, back.code, file.read_text()) == (False, 0, GREET)

    def test_nothing_goes_before_the_answer_is_yes(self, admitted: Shell) -> None:
        done = admitted.invoke("remove", "greet", stdin="n\n")

        assert done.code == 1
        assert "remove tools/greet.py (greet)? [y/N]" in done.err
        assert states(admitted) == {"greet.py": "admitted"}

    def test_other_tools_of_the_file_go_only_if_that_is_said(self, desk: Shell) -> None:
        write(desk, "kit.py", KIT)
        desk.invoke(*ADMITTED)

        refused = desk.refused("remove", "open_drawer", "--yes")
        done = desk.invoke("remove", "open_drawer", "--yes", "--with-others", "--json")

        assert "close_drawer" in refused
        assert done.json()["tools"] == ["open_drawer", "close_drawer"]

    def test_an_unknown_tool_is_answered_with_the_nearest(self, admitted: Shell) -> None:
        assert "did you mean 'greet'?" in admitted.refused("remove", "gret", "--yes")
