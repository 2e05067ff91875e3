"""What became of files: how they stand, reject, look back, switch on and off."""

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
        assert "tools/greet.py is rejected" in desk.invoke("call", "greet", "name=x").err

    def test_of_a_change_that_is_rejected_the_admitted_version_stays(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE)

        done = admitted.invoke("reject", "tools/greet.py", "--json")

        assert done.json() == {"file": "tools/greet.py", "served": True}
        assert states(admitted) == {"greet.py": "rejected"}
        assert admitted.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"

    def test_an_admitted_version_is_withdrawn_and_can_come_back(self, admitted: Shell) -> None:
        done = admitted.invoke("reject", "tools/greet.py")
        refused = admitted.invoke("call", "greet", "name=Ada")
        again = admitted.invoke(*ADMITTED, "tools/greet.py")

        assert "it is not served" in done.out
        assert refused.code == 2
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

    @pytest.mark.parametrize("name", ["tools/nope.py", "tools", "nope/nope.py", "nope.py"])
    def test_what_never_was_cannot_be_rejected(self, admitted: Shell, name: str) -> None:
        done = admitted.invoke("reject", name)

        assert (done.code, done.out) == (2, "")


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

    def test_a_file_that_cannot_be_read_waits_for_being_mended(self, admitted: Shell) -> None:
        write(admitted, "broken.py", "def (")

        done = admitted.invoke("status")

        assert done.code == 1
        assert "new       tools/broken.py  this is not valid Python" in done.out

    def test_a_taken_name_is_told(self, admitted: Shell) -> None:
        write(admitted, "second.py", GREET)

        done, told = admitted.invoke(*ADMITTED), admitted.invoke("status")

        assert done.out == "admitted: tools/second.py v1: none of its tools\n"
        assert "note: 'greet' is a tool of greet.py already" in done.err
        assert "tools/second.py:5: 'greet' is a tool of greet.py already" in told.err
        assert admitted.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"

    def test_colours_are_for_terminals(self, desk: Shell) -> None:
        piped, (code, shown) = desk.run("status"), desk.on_terminal("status")

        assert "\x1b" not in piped.out + piped.err
        assert code == 1
        assert "\x1b[33mnew" in shown

    def test_a_diff_has_colours_on_terminals_only(self, desk: Shell) -> None:
        piped = desk.run("admit", stdin=b"n\n")

        assert "\x1b" not in piped.out + piped.err


class TestVersions:
    @pytest.fixture
    def changed(self, admitted: Shell) -> Shell:
        write(admitted, "greet.py", POLITE)
        assert admitted.invoke(*ADMITTED).code == 0
        return admitted

    def test_a_changed_file_goes_on_being_served_as_admitted(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE)

        before = admitted.run("call", "greet", "name=Ada").out
        admitted.invoke(*ADMITTED)
        after = admitted.run("call", "greet", "name=Ada").out

        assert (before, after) == ("Hello Ada\n", "Good day, Ada\n")

    def test_history_lists_versions_newest_first_and_marks_the_served_one(
        self, changed: Shell
    ) -> None:
        done = changed.run("history", "greet")
        told = changed.invoke("history", "greet", "--json").json()

        newest, oldest = done.out.splitlines()
        assert newest.startswith("* v2 ")
        assert oldest.startswith("  v1 ")
        assert " admit by " in oldest
        assert [(v["number"], v["served"]) for v in told] == [(2, True), (1, False)]

    @pytest.mark.parametrize("old", ["1", "v1", "digest"])
    def test_versions_are_named_by_number_or_digest(self, changed: Shell, old: str) -> None:
        digests = {v["number"]: v["digest"] for v in changed.invoke(
            "history", "greet", "--json").json()}  # fmt: skip

        done = changed.invoke("diff", "greet", digests[1][:8] if old == "digest" else old, "2")

        assert done.code == 0
        assert '-    return f"Hello {name}"\n+    return f"Good day, {name}"\n' in done.out

    def test_two_equal_versions_have_no_diff(self, changed: Shell) -> None:
        done = changed.invoke("diff", "greet", "2", "2")

        assert (done.code, done.out, done.err) == (0, "", "the versions are equal\n")

    @pytest.mark.parametrize("version", ["3", "0", "-1", "v", "", "abc", "9" * 50, "ffffffff", "²"])
    def test_a_version_that_never_was_is_answered_with_those_that_are(
        self, changed: Shell, version: str
    ) -> None:
        for command in (["diff", "--", "greet", "1"], ["rollback", "--", "greet"]):
            done = changed.invoke(*command, version)

            assert (done.code, done.out) == (2, "")
            assert "hint: there are 2, 1" in done.err

    @pytest.mark.parametrize(
        "command", [["history", "great"], ["diff", "great", "1", "2"], ["rollback", "great", "1"]]
    )
    def test_a_tool_that_never_was_is_answered_with_the_nearest(
        self, changed: Shell, command: list[str]
    ) -> None:
        done = changed.invoke(*command)

        assert done.code == 2
        assert "did you mean 'greet'?" in done.err

    def test_rolling_back_serves_and_writes_the_earlier_version(self, changed: Shell) -> None:
        done = changed.run("rollback", "greet", "1")

        assert (done.code, done.out) == (0, "greet: v3 is served, back to version 1\n")
        assert (changed.folder / "tools" / "greet.py").read_text() == GREET
        assert changed.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"
        assert changed.invoke("rollback", "greet", "2", "--json").json()["number"] == 4

    def test_rolling_back_to_what_is_served_is_an_error(self, changed: Shell) -> None:
        done = changed.invoke("rollback", "greet", "2")

        assert done.code == 2
        assert "greet is at version 2 already" in done.err

    def test_edits_that_nobody_admitted_are_not_overwritten_unasked(self, changed: Shell) -> None:
        edited = write(changed, "greet.py", POLITE + "# precious\n")

        unsure = changed.invoke("rollback", "greet", "1", "--json")
        called_off = changed.invoke("rollback", "greet", "1", stdin="n\n")
        kept = edited.read_text()
        done = changed.invoke("rollback", "greet", "1", "--yes")

        assert (unsure.code, unsure.out) == (2, "")
        assert (called_off.code, called_off.out) == (1, "")
        assert "has unadmitted changes" in called_off.err
        assert kept.endswith("# precious\n")
        assert (done.code, edited.read_text()) == (0, GREET)

    def test_a_file_that_was_deleted_is_written_back(self, changed: Shell) -> None:
        (changed.folder / "tools" / "greet.py").unlink()

        done = changed.invoke("rollback", "greet", "1")

        assert done.code == 0
        assert (changed.folder / "tools" / "greet.py").read_text() == GREET


class TestSwitches:
    @pytest.fixture
    def kit(self, admitted: Shell) -> Shell:
        write(admitted, "kit.py", KIT)
        assert admitted.invoke(*ADMITTED).code == 0
        return admitted

    def test_a_disabled_tool_is_neither_listed_nor_called(self, kit: Shell) -> None:
        off = kit.run("disable", "greet")
        called, listed = kit.invoke("call", "greet", "name=Ada"), kit.invoke("list")
        kit.invoke("enable", "greet")

        assert (off.code, off.out) == (0, "disabled: greet\n")
        assert called.code == 2
        assert "hint: `toolkiln enable greet`" in called.err
        assert "  greet " not in listed.out
        assert listed.err == "note: disabled: greet\n"
        assert kit.invoke("call", "greet", "name=Ada").code == 0

    def test_a_toolkit_goes_with_its_methods(self, kit: Shell) -> None:
        kit.invoke("disable", "Desk")
        off = kit.invoke("list").err
        kit.invoke("enable", "Desk")

        assert off == "note: disabled: close_drawer, open_drawer\n"
        assert kit.invoke("list").err == ""

    @pytest.mark.parametrize("name", ["Desk.open_drawer", "open_drawer"])
    def test_one_method_goes_alone(self, kit: Shell, name: str) -> None:
        kit.invoke("disable", name)

        assert kit.invoke("call", "open_drawer", "number=1").code == 2
        assert kit.invoke("call", "close_drawer", "number=1").out == "1\n"

    def test_core_tools_refuse_to_be_disabled(self, admitted: Shell) -> None:
        write(admitted, "greet.py", GREET.replace("read_only", "is_core"))
        admitted.invoke(*ADMITTED)

        done = admitted.invoke("disable", "greet")

        assert done.code == 2
        assert "greet is a core tool and cannot be disabled" in done.err
        assert admitted.invoke("call", "greet", "name=Ada").code == 0

    @pytest.mark.parametrize("command", ["enable", "disable"])
    def test_a_name_that_is_none_is_answered_with_the_nearest(
        self, kit: Shell, command: str
    ) -> None:
        done = kit.invoke(command, "Desc")

        assert done.code == 2
        assert "did you mean 'Desk'?" in done.err


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


def test_no_help_of_a_command_is_cut(desk: Shell) -> None:
    done = desk.having(COLUMNS="80").run("--help")

    assert "..." not in done.out.partition("Commands:")[2]


class TestRemove:
    def test_a_tool_goes_with_its_file_and_comes_back(self, admitted: Shell) -> None:
        file = admitted.folder / "tools" / "greet.py"

        done = admitted.invoke("remove", "greet", "--yes")
        was_there = file.exists()
        back = admitted.invoke("rollback", "greet", "1", "--yes")

        brings = "`toolkiln rollback greet 1` brings it back"
        assert (done.code, done.out) == (0, f"removed: tools/greet.py; {brings}\n")
        assert (was_there, back.code, file.read_text()) == (False, 0, GREET)

    def test_nothing_goes_before_somebody_says_yes(self, admitted: Shell) -> None:
        done = admitted.invoke("remove", "greet", stdin="n\n")

        assert done.code == 1
        assert "remove tools/greet.py (greet)? [y/N]" in done.err
        assert states(admitted) == {"greet.py": "admitted"}

    def test_other_tools_of_the_file_go_only_if_that_is_said(self, desk: Shell) -> None:
        write(desk, "kit.py", KIT)
        desk.invoke(*ADMITTED)

        refused = desk.invoke("remove", "open_drawer", "--yes")
        done = desk.invoke("remove", "open_drawer", "--yes", "--with-others", "--json")

        assert (refused.code, refused.out) == (2, "")
        assert "close_drawer" in refused.err
        assert done.json()["tools"] == ["open_drawer", "close_drawer"]

    def test_what_is_not_there_is_told_with_the_nearest_name(self, admitted: Shell) -> None:
        done = admitted.invoke("remove", "gret", "--yes")

        assert (done.code, done.out) == (2, "")
        assert "did you mean 'greet'?" in done.err
