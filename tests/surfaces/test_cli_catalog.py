"""From a file to a tool that is served: add and admit, each with its exit status."""

import subprocess
from pathlib import Path

import pytest

from .conftest import (
    ADMITTED,
    BOUND,
    COMMAND,
    GREET,
    KIT,
    POLITE,
    Shell,
    entries,
    manifest,
    states,
    write,
)

ASKING = '''from pathlib import Path

from toolkiln import tool


@tool(network=["example.com"], workspace="write", capabilities=["files"])
def keep(text: str) -> int:
    """Keep a text in the workspace for later.

    Args:
        text: What to keep.
    """
    return Path("/workspace/kept.txt").write_text(text)
'''


class TestFromNewToCallable:
    def test_a_person_is_led_from_a_first_file_to_its_first_call(self, tmp_path: Path) -> None:
        desk = Shell(tmp_path, {"TOOLKILN_DEV": "0"})
        desk.run("new", "longest_words")

        refused = desk.refused("call", "longest_words", "text=a bc")
        asked = desk.run("admit", "tools", stdin=b"y\n")
        called = desk.run("call", "longest_words", "text=a bc")

        assert refused.startswith("error: nothing is served from tools: no tool has been admitted")
        assert "`toolkiln admit tools`" in refused.partition("hint: ")[2]
        assert asked.code == 0
        assert asked.out.endswith("admitted: tools/longest_words.py v1: longest_words\n")
        assert (called.code, called.out) == (0, '["bc", "a"]\n')

    def test_a_tool_beside_admitted_ones_says_that_it_is_not(self, admitted: Shell) -> None:
        write(admitted, "kit.py", KIT)

        error = admitted.refused("call", "open_drawer", "number=1")

        assert "open_drawer is not admitted: tools/kit.py is new" in error
        assert "`toolkiln admit tools/kit.py`" in error

    def test_list_and_show_mark_what_is_not_admitted(self, desk: Shell) -> None:
        listed, shown = desk.invoke("list"), desk.invoke("show", "greet")

        assert (listed.code, shown.code) == (0, 0)
        assert listed.out == "  greet  Greet a person by name.\n"
        assert '"name": "greet"' in shown.out
        for done in (listed, shown):
            assert "note: nothing is served from tools" in done.err
            assert "toolkiln admit tools" in done.err

    def test_list_counts_the_files_that_are_not_served_as_they_are(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE)
        write(admitted, "kit.py", KIT)

        done = admitted.invoke("list")

        assert done.out == "  greet  Greet a person by name.\n"
        assert done.err == "note: 2 files are not served as on disk; see `toolkiln status`\n"


class TestAdmit:
    def test_what_is_new_is_shown_before_the_question(self, desk: Shell) -> None:
        write(desk, "greet.py", ASKING)

        done = desk.run("admit", "--no-probe", stdin=b"y\n")

        shown, _, answer = done.out.partition("admitted: ")
        assert done.code == 0
        assert "\n+def keep(text: str) -> int:\n" in shown
        assert "keep asks for network example.com; capabilities files; workspace write" in shown
        assert answer == "tools/greet.py v1: keep\n"
        assert "admit tools/greet.py? [y/N] " in done.err

    def test_of_a_change_only_what_differs_is_shown(self, admitted: Shell) -> None:
        text = POLITE.replace("name: Who is greeted.", "other: Another one.")
        write(admitted, "greet.py", text.replace("read_only=True", 'network=["example.com"]'))

        done = admitted.invoke("admit", "--no-probe", stdin="n\n")

        assert '-    return f"Hello {name}"\n' in done.out
        assert '+    return f"Good day, {name}"\n' in done.out
        assert "tools/greet.py:5: warning[undescribed-parameter] parameter 'name'" in done.out
        assert "greet asks for network example.com\n" in done.out
        assert "\n+from toolkiln" not in done.out

    def test_anything_but_yes_leaves_the_file_as_it_is(self, desk: Shell) -> None:
        for answer in (b"n\n", b"\n", b"no\n", b"never\n", b"\xff\n"):
            done = desk.invoke("admit", stdin=answer)

            assert done.code == 1
            assert "not admitted: tools/greet.py\n" in done.err
        assert not manifest(desk).exists()
        assert desk.invoke("admit", "tools/greet.py", stdin="n\n").code == 1
        assert states(desk)["greet.py"] == "new"

    def test_each_file_is_asked_about(self, desk: Shell) -> None:
        write(desk, "kit.py", KIT)

        done = desk.invoke("admit", "--no-probe", stdin="n\nYES\n")

        assert done.code == 1
        assert states(desk) == {"greet.py": "new", "kit.py": "admitted"}

    @pytest.mark.parametrize("stdin", ["</dev/null", "<&-"])
    def test_without_an_answer_nothing_is_admitted(self, desk: Shell, stdin: str) -> None:
        done = subprocess.run(
            f"exec {COMMAND} admit {stdin}",
            shell=True, cwd=desk.folder, env=desk.environ(), capture_output=True, timeout=BOUND,
        )  # fmt: skip

        assert done.returncode == 2
        assert b"error: no answer on stdin\n\nhint: use --yes to skip the prompt\n" in done.stderr
        assert not manifest(desk).exists()

    def test_a_named_file_is_admitted_where_no_answer_can_come(self, desk: Shell) -> None:
        done = desk.run("admit", "--no-probe", "tools/greet.py")

        assert done.code == 0
        assert "diff a/greet.py b/greet.py" in done.out
        assert "[y/N]" not in done.err
        assert states(desk)["greet.py"] == "admitted"

    def test_a_named_file_does_not_wait_for_a_silent_pipe(self, desk: Shell) -> None:
        with desk.start("admit", "--no-probe", "tools/greet.py", stdin=subprocess.PIPE) as process:
            assert process.wait(BOUND) == 0

        assert states(desk)["greet.py"] == "admitted"

    def test_admitting_twice_finds_nothing_to_admit(self, admitted: Shell) -> None:
        before = manifest(admitted).read_bytes()

        done = admitted.invoke("admit", "-y")

        assert (done.code, done.out, done.err) == (0, "", "nothing to admit\n")
        assert manifest(admitted).read_bytes() == before

    def test_an_example_that_fails_is_refused_unless_it_is_not_probed(self, desk: Shell) -> None:
        write(desk, "greet.py", GREET.replace("'Hello Ada'", "'Bye'"))

        probed, unprobed = desk.invoke("admit", "--yes"), desk.invoke(*ADMITTED)

        assert (probed.code, probed.out) == (1, "")
        assert "tools/greet.py:12: error[example-fails]" in probed.err
        assert "refused: tools/greet.py: " in probed.err
        assert (unprobed.code, unprobed.out) == (0, "admitted: tools/greet.py v1: greet\n")

    def test_a_tool_whose_example_fails_is_named_wherever_its_file_is(self, desk: Shell) -> None:
        text = GREET.replace("Hello Ada", "Hello Bob") + "\n\n" + GREET.replace("greet", "praise")
        write(desk, "greet.py", text)

        admitted = desk.run("admit", "--yes")
        shown = [desk.invoke(command) for command in ("status", "check")]
        refused = desk.refused("call", "greet", "name=Ada")
        unprobed = desk.run(*ADMITTED, "tools/greet.py")

        said = "'greet' is not served: an example fails: greet(\"Ada\") gives 'Hello Ada', not"
        assert (admitted.code, unprobed.code) == (0, 0)
        assert admitted.out.endswith("admitted: tools/greet.py v1: praise\n")
        for text in (admitted.err, *(done.out + done.err for done in shown), refused):
            assert said in text
        assert "greet" not in unprobed.out.replace("greet.py", "")

    def test_a_file_with_errors_is_refused_unasked_and_the_others_admitted(
        self, desk: Shell
    ) -> None:
        write(desk, "broken.py", "def broken(")

        done = desk.invoke("admit", "--no-probe", stdin="y\n")

        assert done.code == 1
        assert "admit tools/broken.py?" not in done.err
        assert "tools/broken.py:1: error[syntax-error]" in done.err
        assert "refused: tools/broken.py: " in done.err
        assert done.out.endswith("admitted: tools/greet.py v1: greet\n")

    def test_a_file_without_tools_is_left_out_unless_it_is_named(self, admitted: Shell) -> None:
        write(admitted, "data.py", "RATES = {}\n")

        unnamed, named = admitted.invoke("admit"), admitted.invoke(*ADMITTED, "tools/data.py")

        assert (unnamed.code, unnamed.err) == (0, "nothing to admit\n")
        assert named.code == 1
        assert "declares no tool" in named.err
        assert admitted.invoke("status").code == 0

    def test_warnings_and_rights_are_shown_without_a_question(self, desk: Shell) -> None:
        write(desk, "keep.py", ASKING.replace("        text: What to keep.\n", ""))

        done = desk.invoke(*ADMITTED, "tools/keep.py")

        assert done.out == "admitted: tools/keep.py v1: keep\n"
        assert "tools/keep.py:7: warning[undescribed-parameter]" in done.err
        assert "note: keep requests network example.com; workspace write, which is not" in done.err
        assert "`toolkiln admit --grant tools/keep.py`" in done.err

    def test_json_has_every_stage_and_refusal_and_needs_yes_or_a_name(self, desk: Shell) -> None:
        unsure = desk.refused("admit", "--json")
        done = desk.invoke("admit", "--no-probe", "--json", "tools/greet.py")
        write(desk, "greet.py", "def (")
        refused = desk.invoke(*ADMITTED, "--json")

        report = done.json()["greet.py"]
        assert "add --yes" in unsure
        assert (done.code, done.err) == (0, "")
        assert (report["success"], report["version"]) == (True, 1)
        assert {stage["stage"] for stage in report["stages"]} >= {"findings", "write", "search"}
        assert refused.code == 1
        assert refused.json()["greet.py"]["validation_errors"][0]["rule"] == "syntax-error"

    def test_files_and_folders_are_admitted_without_their_neighbours(self, desk: Shell) -> None:
        write(desk, "desk/kit.py", KIT)
        write(desk, "desks.py", 'def desks() -> int:\n    """Count the desks."""\n    return 1\n')

        done = desk.invoke(*ADMITTED, "tools/greet.py", "tools/desk", "tools/greet.py")

        assert done.code == 0
        assert done.out.count("tools/greet.py") == 1
        assert states(desk) == {
            "desk/kit.py": "admitted", "desks.py": "new", "greet.py": "admitted",
        }  # fmt: skip

    @pytest.mark.parametrize("name", ["größe", "a b", "$(reboot)", "-x", "a\nb"])
    def test_odd_file_names_are_files_like_others(self, desk: Shell, name: str) -> None:
        (desk.folder / "tools" / "greet.py").rename(desk.folder / "tools" / f"{name}.py")

        assert desk.invoke(*ADMITTED, "--", f"tools/{name}.py").code == 0
        assert set(states(desk).values()) == {"admitted"}

    def test_the_tools_folder_may_be_the_current_one(self, desk: Shell) -> None:
        inside = Shell(desk.folder / "tools", {**desk.variables, "TOOLKILN_TOOLS": "."})

        done = inside.invoke(*ADMITTED, "greet.py")

        assert done.out == "admitted: greet.py v1: greet\n"

    def test_packages_that_the_folder_lists_are_listed(self, desk: Shell) -> None:
        source = "import bs4\nimport later\n" + GREET.replace("greet", "count")
        write(desk, "below/count.py", source)

        def unlisted() -> list[str]:
            files = desk.invoke("check", "--json").json()["files"]
            files += desk.invoke("status", "--json").json()
            found = [finding for file in files for finding in file["findings"]]
            return [f["message"].split("'")[1] for f in found if f["rule"] == "unlisted-import"]

        before = unlisted()
        write(desk, "requirements.txt", "# packages\nBeautifulSoup4[lxml]>=4  # parser\n")
        after = unlisted()

        assert before == ["bs4", "later", "bs4", "later"]
        assert after == ["later", "later"]


class TestGrant:
    def test_rights_that_are_granted_can_be_used(self, desk: Shell) -> None:
        file = write(desk, "keep.py", ASKING)
        desk.invoke(*ADMITTED, str(file))

        refused = desk.refused("call", "keep", "text=abc")
        granted = desk.invoke("admit", "--grant", "--no-probe", str(file), stdin="y\n")
        called = desk.invoke("call", "keep", "text=abc")
        plain = desk.invoke("admit", "--grant", "--no-probe", "tools/greet.py", stdin="y\n")

        assert "[grants.keep]" in refused
        assert "keep asks for network example.com" in granted.out
        assert "and grant that? [y/N]" in granted.err
        assert "not granted" not in granted.err
        assert entries(desk)["keep.py"]["rights"] == {
            "keep": {"network": ["example.com"], "workspace": "write"}
        }
        assert (called.code, called.out) == (0, "3\n")
        assert "and grant that" not in plain.err
        assert "rights" not in entries(desk)["greet.py"]

    @pytest.mark.parametrize("tool", ["keep", '"*"'])
    def test_what_the_settings_grant_is_not_called_missing(self, desk: Shell, tool: str) -> None:
        hosts = 'network = ["*.example.com", "example.com"]'
        (desk.folder / "toolkiln.toml").write_text(
            f'[grants.{tool}]\n{hosts}\nworkspace = "write"\n'
        )
        write(desk, "keep.py", ASKING.replace('["example.com"]', '["a.example.com"]'))

        done = desk.invoke(*ADMITTED, "tools/keep.py")

        assert (done.code, done.err) == (0, "")


class TestWhereFilesBelong:
    def test_a_file_outside_the_tools_is_not_admitted_where_it_is(self, desk: Shell) -> None:
        (desk.folder / "stray.py").write_text(GREET)

        for command in (["admit", "--yes"], ["reject"]):
            error = desk.refused(*command, "stray.py")

            assert "stray.py is not in the tools folder tools" in error
            assert "--tools" in error
            assert "toolkiln add" in error
        assert not (desk.folder / "_manifest.json").exists()

    def test_the_folder_that_admits_a_file_is_found(self, desk: Shell) -> None:
        (desk.folder / "tools").rename(desk.folder / "others")
        (desk.folder / "others" / "kits").mkdir()
        (desk.folder / "others" / "kits" / "kit.py").write_text(KIT)
        desk.invoke(*ADMITTED, "others")

        (desk.folder / "others" / "kits" / "kit.py").write_text(KIT + "\n# more\n")
        done = desk.invoke(*ADMITTED, "others/kits/kit.py")

        assert done.code == 0
        assert "kit.py v2: " in done.out
        assert not (desk.folder / "others" / "kits" / "_manifest.json").exists()

    def test_one_file_can_be_a_catalog(self, desk: Shell) -> None:
        (desk.folder / "lone.py").write_text(GREET)
        (desk.folder / "other.py").write_text(KIT)
        at = ("--tools", "lone.py")

        before = desk.invoke("call", "greet", "name=Ada", *at)
        done = desk.having(TOOLKILN_TOOLS="lone.py").invoke(*ADMITTED, "lone.py")
        called = desk.invoke("call", "greet", "name=Ada", *at)
        status = desk.invoke("status", *at)

        assert before.code == 2
        assert done.out == "admitted: lone.py v1: greet\n"
        assert called.out == "Hello Ada\n"
        assert (status.code, status.out.count("\n")) == (0, 1)

    def test_what_is_not_there_cannot_be_admitted(self, desk: Shell) -> None:
        for name in ("nope.py", "tools/nope.py", "nope/nope", "x" * 300):
            assert desk.refused("admit", "--yes", name).startswith("error: there is no file")

    def test_a_loop_of_links_is_no_file(self, desk: Shell) -> None:
        (desk.folder / "tools" / "loop").symlink_to("loop")

        for command in ("admit", "reject"):
            for name in ("tools/loop", "tools/loop/x.py"):
                assert desk.invoke(command, name).code in (1, 2)


class TestAdd:
    def test_a_file_is_copied_tried_out_and_callable(self, desk: Shell) -> None:
        (desk.folder / "draft.py").write_text(GREET.replace("greet", "salute"))

        done = desk.run("add", "draft.py", "--name", "salute")

        assert (done.code, done.out) == (0, "admitted: tools/salute.py v1: salute\n")
        assert desk.invoke("call", "salute", "name=Ada").out == "Hello Ada\n"

    def test_the_folder_is_made_if_need_be(self, tmp_path: Path) -> None:
        desk = Shell(tmp_path, {"TOOLKILN_DEV": "0"})
        (tmp_path / "greet.py").write_text(GREET)

        done = desk.invoke("add", "greet.py", "--json")

        assert (done.code, done.json()["functions_registered"]) == (0, ["greet"])
        assert desk.invoke("status").code == 0

    def test_a_description_becomes_the_docstring(self, desk: Shell) -> None:
        (desk.folder / "add_up.py").write_text("def add_up(a: int, b: int) -> int:\n return a + b")

        desk.invoke("add", "add_up.py", "--description", "Add two numbers.")

        assert "add_up  Add two numbers." in desk.invoke("list").out

    def test_an_existing_file_is_replaced_only_on_demand(self, admitted: Shell) -> None:
        (admitted.folder / "draft.py").write_text(POLITE)

        refused = admitted.invoke("add", "draft.py", "--name", "greet")
        done = admitted.invoke("add", "draft.py", "--name", "greet", "--overwrite")

        assert refused.code == 1
        assert "hint: --overwrite replaces tools/greet.py" in refused.err
        assert (done.code, done.out) == (0, "admitted: tools/greet.py v2: greet\n")

    def test_a_file_of_the_tools_is_not_copied_onto_itself(self, desk: Shell) -> None:
        assert "`toolkiln admit tools/greet.py`" in desk.refused("add", "tools/greet.py")

    def test_what_is_no_good_is_refused_and_not_copied(self, admitted: Shell) -> None:
        failing = GREET.replace("greet", "hail").replace("'Hello Ada'", "1")
        for source, reason in (
            ("def (", "draft.py:1: error[syntax-error]"),
            ("x = 1", "declares no tool"),
            (GREET, "'greet' is a tool of greet.py already"),
            (failing, "error[example-fails]"),
        ):
            (admitted.folder / "draft.py").write_text(source)

            done = admitted.invoke("add", "draft.py")

            assert (done.code, done.out) == (1, "")
            assert reason in done.err
            assert not (admitted.folder / "tools" / "draft.py").exists()

    def test_names_that_are_no_file_names_are_refused(self, desk: Shell) -> None:
        (desk.folder / "draft.py").write_text(GREET)
        before = sorted(desk.folder.rglob("*.py"))

        for name in ("../up", "a/b", "con", "größe", "x" * 300, ".hidden"):
            assert desk.invoke("add", "draft.py", f"--name={name}").code == 1

        assert sorted(desk.folder.rglob("*.py")) == before
        assert desk.invoke("add", "draft.py", "--name=").code == 0  # the name of the file

    def test_what_cannot_be_read_is_a_clear_error(self, desk: Shell) -> None:
        for name in ("nope.py", "tools"):
            assert f"{name} cannot be read" in desk.refused("add", name)
