"""Commands that read tools without running them: exit codes, two streams, never a traceback."""

import json
import os
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tables import each_row

from .conftest import BOUND, COMMAND, Shell

DIALECTS = ["function", "decorated", "constants", "toolkit", "base_tool", "open_webui"]
FORMS = ["openai", "openai-strict", "anthropic", "anthropic-strict", "gemini", "mcp"]
GOOD = '''
from toolkiln import tool

@tool(read_only=True)
def convert(amount: float, to: str = "EUR") -> float:
    """Convert an amount of money to another currency at the rate of the day.

    Args:
        amount: How much to convert.
        to: The currency to convert to.

    Examples:
        >>> convert(3)
        4
    """
    return amount
'''
NOTES = '''
from toolkiln import prompt, resource


@prompt
def review() -> str:
    """Ask for a review of what is there."""
    return "Look"


@resource("notes://{name}")
def note(name: str) -> str:
    """A note, by name.

    Args:
        name: The name.
    """
    return name
'''


@pytest.fixture
def bare(tmp_path: Path) -> Shell:
    """An empty working folder."""
    return Shell(tmp_path, {"TOOLKILN_DEV": "0"})


@pytest.fixture
def folder(bare: Shell) -> Shell:
    """A working folder with one good tool in `tools/`."""
    write(bare, "tools/convert.py", GOOD)
    return bare


def write(shell: Shell, name: str, content: str | bytes) -> None:
    file = shell.folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


class TestNew:
    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_what_it_writes_passes_a_strict_check_and_can_be_imported(
        self, bare: Shell, dialect: str
    ) -> None:
        made = bare.run("new", "longest_words", "--dialect", dialect)
        checked = bare.invoke("check", "--strict")
        (listed,) = bare.invoke("list", "--json", "--all").json()
        file = bare.folder / "tools" / "longest_words.py"
        imported = subprocess.run([sys.executable, file], capture_output=True)

        assert (made.code, made.out) == (0, "tools/longest_words.py\n")
        assert (checked.code, checked.out) == (0, "")
        assert (listed["name"], listed["dialect"]) == ("longest_words", dialect)
        assert imported.returncode == 0

    @pytest.mark.parametrize("name", ["a", "tool", "run", "main", "list", "x_tool", "a" * 40])
    def test_awkward_names_pass_too(self, bare: Shell, name: str) -> None:
        for dialect in DIALECTS:
            made = bare.invoke("new", name, "--dialect", dialect, "--tools", dialect)

            if made.code == 0:
                assert bare.invoke("check", "--strict", dialect).code == 0
                listed = bare.invoke("list", "--json", "--all", "--tools", dialect).json()
                assert [tool["name"] for tool in listed] == [name]
            else:
                assert made.code == 2
                assert "hint:" in made.err

    def test_a_name_that_cannot_be_one_is_refused(self, bare: Shell) -> None:
        names = ["", "a b", "A", "1a", "a-b", "../a", "a/b", "def", "a" * 41, "größe", "a\nb", "_a"]
        for name in names:
            bare.refused("new", name)

        assert list(bare.folder.rglob("*.py")) == []

    def test_an_existing_file_is_never_overwritten(self, folder: Shell) -> None:
        folder.refused("new", "convert")

        assert (folder.folder / "tools" / "convert.py").read_text() == GOOD

    def test_an_unknown_dialect_is_answered_with_the_nearest(self, bare: Shell) -> None:
        assert "'toolkit'" in bare.refused("new", "a", "--dialect", "toolkits")


class TestCheck:
    def test_a_good_tool_passes(self, folder: Shell) -> None:
        done = folder.run("check")

        assert (done.code, done.out) == (0, "")
        assert "1 tool in 1 file" in done.err
        assert "safe" not in done.err.lower()

    def test_warnings_pass_unless_strict_and_errors_fail(self, folder: Shell) -> None:
        write(folder, "warned.py", "def f(x): ...")
        write(folder, "bad.py", "KEY = 'ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8'\ndef f(): ...")

        assert folder.invoke("check", "warned.py").code == 0
        assert folder.invoke("check", "warned.py", "--strict").code == 1
        assert folder.invoke("check", "bad.py").code == 1

    @pytest.mark.parametrize("before", ["", "def f():\n\t", "def f():\n    "])
    def test_a_finding_is_shown_with_source_caret_and_fix(self, folder: Shell, before: str) -> None:
        write(folder, "bad.py", f"x = 1\n{before}y = = 2\n")

        done = folder.invoke("check", "bad.py")

        lines = done.out.splitlines()
        at = next(n for n, line in enumerate(lines) if line.endswith("y = = 2"))
        assert done.code == 1
        assert lines[at + 1].index("^") == lines[at].index("= 2")
        assert f"bad.py:{2 + bool(before)}:" in done.out
        assert "fix: " in done.out

    def test_json_has_the_whole_report(self, folder: Shell) -> None:
        write(folder, "warned.py", "def f(x): ...")

        report = folder.invoke("check", "--json", "warned.py", "tools").json()

        assert set(report) == {"files", "summary"}
        assert [Path(file["path"]).name for file in report["files"]] == ["warned.py", "convert.py"]
        first = report["files"][0]
        assert first["tools"][0]["health"]["level"] == "NON_STRICT_ONLY"
        assert {"rule", "severity", "message", "line", "fix"} <= set(first["findings"][0])
        assert report["summary"]["tools"] == 2

    def test_every_tool_has_its_health(self, folder: Shell) -> None:
        schema = "TOOL_PARAMETERS = {'type': 'nonsense'}"
        write(folder, "bad.py", f"TOOL_NAME = 'f'\n{schema}\ndef run(): ...")

        done = folder.invoke("check", "--json", "bad.py")

        assert done.code == 1
        assert done.json()["files"][0]["tools"][0]["health"]["level"] == "INVALID"

    def test_two_files_with_one_tool_name_are_an_error(self, folder: Shell) -> None:
        write(folder, "tools/other.py", GOOD)

        done = folder.invoke("check")

        assert done.code == 1
        assert "duplicate-name" in done.out

    def test_a_file_named_twice_is_checked_once(self, folder: Shell) -> None:
        done = folder.invoke("check", "--json", "tools", "tools/convert.py", "./tools/convert.py")

        assert done.code == 0
        assert done.json()["summary"]["files"] == 1

    def test_control_characters_do_not_reach_the_terminal(self, folder: Shell) -> None:
        write(folder, "bad.py", "x = = '\x1b[2J\u202e'\n")

        done = folder.invoke("check", "bad.py")

        assert "\x1b[2J" not in done.out + done.err
        assert "\u202e" not in done.out + done.err


KIT = """
from toolkiln import method_metadata, tool, tool_metadata

@tool_metadata(display_name="Zoo", weight=1, visible=True)
class Zoo:
    @method_metadata()
    def zebra(self): "Look at the zebra for a while."
    @method_metadata(visible=False)
    def ape(self): "Look at the ape for a while."

@tool_metadata(display_name="Attic")
class Attic:
    @method_metadata()
    def dust(self): "Look at the dust for a while."

@tool(weight=5)
def zulu(): "Do the last thing first."

@tool
def beta(): "Do the second thing."

@tool
def alpha(): "Do the first thing."
"""


class TestList:
    @pytest.fixture
    def kit(self, bare: Shell) -> Shell:
        write(bare, "tools/kit.py", KIT)
        return bare

    def test_tools_are_grouped_and_ordered_by_weight_then_name(self, kit: Shell) -> None:
        done = kit.run("list", "--all")
        listed = [tool["name"] for tool in kit.invoke("list", "--json", "--all").json()]

        words = [line.split()[0] for line in done.out.splitlines() if line.strip()]
        for names in (words, listed):
            assert [w for w in names if w in {"zulu", "alpha", "beta"}] == ["zulu", "alpha", "beta"]
            assert names.index("ape") + 1 == names.index("zebra")
        assert words.index("Zoo") + 1 == words.index("ape")
        assert words.index("Attic") + 1 == words.index("dust")
        assert words.index("Zoo") < words.index("Attic")

    def test_hidden_tools_are_counted_and_shown_on_request(self, kit: Shell) -> None:
        done = kit.invoke("list")
        listed = kit.invoke("list", "--json").json()

        assert "zebra" in done.out
        assert "ape" not in done.out
        assert "dust" not in done.out
        assert "2 hidden" in done.err
        assert "--all" in done.err
        assert "hidden" not in kit.invoke("list", "--all").err
        assert {tool["name"] for tool in listed} == {"zulu", "alpha", "beta", "zebra"}

    def test_helpers_are_no_tools(self, folder: Shell) -> None:
        write(folder, "tools/shared.py", "def helper(): ...")
        write(folder, "tools/convert.py", "import shared\n" + GOOD)

        (listed,) = folder.invoke("list", "--json").json()

        assert listed["name"] == "convert"

    def test_values_that_json_does_not_know_do_not_break_it(self, folder: Shell) -> None:
        defaults = "x: float = 1e999, y: str = '\\ud800', z: bytes = b'\\xff'"
        write(folder, "tools/odd.py", f"def odd({defaults}): 'Do \\udfff it.'")

        for command in (["list", "--json"], ["check", "--json"], ["show", "odd"]):
            folder.run(*command).json()


class TestShow:
    @each_row("form", FORMS)
    def test_every_provider_gets_its_payload(self, folder: Shell, form: str) -> None:
        done = folder.invoke("show", "convert", "--as", form)

        assert done.code == 0
        assert "convert" in json.dumps(done.json())
        assert "amount" in json.dumps(done.json())

    def test_without_a_provider_a_tool_is_shown_as_a_model_sees_it_or_a_part_of_it(
        self, folder: Shell
    ) -> None:
        shown = folder.run("show", "convert").json()
        schema = folder.invoke("show", "convert", "--as", "schema").json()
        documentation = folder.invoke("show", "convert", "--as", "docs").out

        assert set(shown) == {"name", "description", "parameters"}
        assert schema["required"] == ["amount"]
        assert "Convert an amount" in documentation
        assert ">>> convert(3)" in documentation

    def test_a_toolkit_is_shown_with_its_methods_as_declared(self, bare: Shell) -> None:
        write(bare, "tools/kit.py", KIT)

        shown = bare.run("show", "Zoo").json()
        refusal = bare.refused("show", "Zoo", "--as", "docs")

        assert (shown["name"], shown["display_name"]) == ("Zoo", "Zoo")
        assert [method["name"] for method in shown["methods"]] == ["zebra", "ape"]
        assert [method["visible"] for method in shown["methods"]] == [True, False]
        assert "Zoo is a toolkit" in refusal

    def test_an_unknown_tool_or_form_is_answered_with_the_nearest(self, folder: Shell) -> None:
        assert "'convert'" in folder.refused("show", "convrt")
        assert "'openai'" in folder.refused("show", "convert", "--as", "openia")

    def test_tools_may_be_a_file_or_a_folder(self, folder: Shell) -> None:
        for where in ("tools", "tools/convert.py", "./tools/"):
            assert folder.invoke("show", "convert", "--tools", where).code == 0


def test_prompts_and_resources_are_listed_and_shown_as_what_they_are(folder: Shell) -> None:
    write(folder, "tools/notes.py", NOTES)

    listed = folder.invoke("list").out
    everything = folder.invoke("list", "--json").json()
    shown = folder.invoke("show", "note").json()

    assert "(prompt)" in listed
    assert "(resource notes://{name})" in listed
    assert {one["name"]: one["role"] for one in everything} == {
        "convert": "tool", "review": "prompt", "note": "resource"
    }  # fmt: skip
    assert (shown["role"], shown["uri"]) == ("resource", "notes://{name}")
    assert "is a prompt" in folder.refused("show", "review", "--as", "openai")


class TestSettings:
    def test_the_setting_says_where_the_tools_are(self, folder: Shell) -> None:
        (folder.folder / "tools").rename(folder.folder / "mine")
        write(folder, "toolkiln.toml", "tools = 'mine'")

        assert folder.invoke("list").code == 0
        assert folder.having(TOOLKILN_TOOLS="nowhere").invoke("list").code == 2

    @pytest.mark.parametrize("content", [b"tools = ", b"\xff", b"nonsense = 1", b"tools = 3"])
    def test_a_broken_setting_is_a_clear_error(self, folder: Shell, content: bytes) -> None:
        write(folder, "toolkiln.toml", content)

        for command in (["list"], ["check"], ["show", "x"], ["new", "x"]):
            error = folder.refused(*command)

            assert "toolkiln.toml" in error
            assert "hint:" in error


BAD_FILES = {
    "binary": bytes(range(256)) * 100,
    "elf": b"\x7fELF\x02\x01\x01" + b"\0" * 100,
    "syntax": b"def (:\n",
    "brackets": b"x = " + b"(" * 10_000 + b")" * 10_000,
    "minus": b"x = " + b"-" * 100_000 + b"1",
    "nulls": b"x = 1\n\0\0\0",
    "not utf-8": b"x = '\xff\xfe'\n",
    "no such coding": b"# coding: klingon\n",
    "utf-16": "def f(): ...".encode("utf-16"),
    "utf-32": "def f(): ...".encode("utf-32"),
    "wrong coding": b"# coding: ascii\nx = '\xe9'\n",
    "two codings": b"\xef\xbb\xbf# coding: latin-1\nx = 1\n",
    "no text coding": b"# coding: hex\n6162",
    "surrogates": b"x = '\xed\xa0\x80'\n",
    "one long line": b"x = '" + b"a" * 4_000_000,
}


def limit_memory() -> None:
    """Keep a command that reads without end from taking the machine down."""
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))


class TestBadInput:
    @pytest.mark.parametrize("kind", BAD_FILES)
    def test_a_bad_file_is_a_clear_finding_and_no_catalog(self, bare: Shell, kind: str) -> None:
        write(bare, "bad.py", BAD_FILES[kind])

        done = bare.invoke("check", "bad.py")

        assert done.code == 1
        assert "bad.py" in done.out
        assert "fix: " in done.out
        assert len(done.out) < 10_000
        assert "toolkiln check" in bare.refused("list", "--tools", "bad.py")

    def test_a_bad_file_does_not_hide_the_others_nor_that_it_was_left_out(
        self, folder: Shell
    ) -> None:
        write(folder, "tools/bad.py", "def (")

        checked, listed = folder.invoke("check", "--json"), folder.invoke("list")

        summary = checked.json()["summary"]
        assert (checked.code, summary["files"], summary["tools"]) == (1, 2, 1)
        assert summary["findings"]["error"] >= 1
        assert listed.code == 0
        assert "convert" in listed.out
        assert "bad.py" in listed.err
        assert "toolkiln check" in folder.refused("show", "x", "--tools", "tools/bad.py")

    def test_a_file_of_50_megabytes_is_refused_unread(self, bare: Shell) -> None:
        with (bare.folder / "big.py").open("wb") as file:
            file.truncate(50_000_000)

        done = bare.run("check", "big.py")

        assert done.code == 1
        assert "50,000,000" in done.out

    @each_row(
        "command, hint",
        [
            (["check", "nope.py"], "hint:"),
            (["list", "--tools", "nope"], "hint:"),
            (["show", "x", "--tools", "no"], "hint:"),
            (["check"], "toolkiln new"),
            (["list"], "toolkiln new"),
            (["show", "x"], "toolkiln new"),
        ],
    )
    def test_a_missing_file_or_folder_is_a_clear_error(
        self, bare: Shell, command: list[str], hint: str
    ) -> None:
        assert hint in bare.refused(*command)

    def test_a_good_path_beside_a_missing_one_is_still_an_error(self, folder: Shell) -> None:
        assert folder.invoke("check", "tools", "nope.py").code == 2

    @pytest.mark.parametrize("name", [None, "a.txt", "test_a.py", "_a.py"])
    def test_a_folder_without_python_files_is_a_clear_error(
        self, bare: Shell, name: str | None
    ) -> None:
        (bare.folder / "tools").mkdir()
        if name:
            write(bare, f"tools/{name}", "")

        for command in ("check", "list"):
            assert "tools" in bare.refused(command)

    @pytest.mark.parametrize("source", ["", "x = 1\n", "class A: ...\n"])
    def test_a_folder_of_files_without_tools_says_so(self, bare: Shell, source: str) -> None:
        write(bare, "tools/a.py", source)

        checked = bare.invoke("check")

        assert "no tool" in bare.refused("list")
        assert "no tool" in (checked.out + checked.err) or "0 tools" in checked.err

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_file_or_folder_is_not_called_clean(self, folder: Shell) -> None:
        (folder.folder / "tools" / "more").mkdir(mode=0)
        assert folder.run("check").code != 0

        (folder.folder / "tools" / "more").rmdir()
        (folder.folder / "tools" / "convert.py").chmod(0)
        assert folder.run("check").code == 1

    def test_a_loop_of_links_ends(self, folder: Shell) -> None:
        (folder.folder / "tools" / "loop").symlink_to(folder.folder / "tools")
        (folder.folder / "tools" / "self.py").symlink_to(folder.folder / "tools" / "self.py")

        done = folder.invoke("check", "--json")

        assert done.json()["summary"]["tools"] == 1
        assert folder.invoke("check", "tools/self.py").code in (1, 2)

    def test_odd_file_names_are_no_problem(self, folder: Shell) -> None:
        for name in ("a\nb.py", "a b.py", "ü.py", "-a.py", "a'b.py", "[a].py"):
            write(folder, f"tools/{name}", "def other(x): ...")

            done = folder.invoke("check")

            assert done.code == 0
            assert all("fix:" in part or not part.strip() for part in done.out.split("\n\n"))
            assert len(folder.invoke("check", "--json").json()["files"]) == 2
            (folder.folder / "tools" / name).unlink()

    def test_a_file_name_that_is_no_text_is_a_finding_and_leaves_the_others(
        self, folder: Shell
    ) -> None:
        write(folder, os.fsdecode(b"tools/\xff.py"), "def other(x): ...")

        checked, listed = folder.run("check"), folder.run("list")

        assert checked.code == 1
        assert "the file's name is not UTF-8" in checked.out
        assert len(folder.run("check", "--json").json()["files"]) == 2
        assert (listed.code, listed.out.split()[0]) == (0, "convert")

    def test_a_terminal_that_only_knows_ascii_is_no_problem(self, folder: Shell) -> None:
        write(folder, "tools/bad.py", "def größe(x): 'Wie groß → ist es?'")

        for command in (["check"], ["list"], ["show", "convert"]):
            folder.having(PYTHONIOENCODING="ascii", LC_ALL="C").run(*command)

    @pytest.mark.parametrize("where", ["/dev/null", "/dev/zero"])
    def test_a_device_is_a_clear_error(self, bare: Shell, where: str) -> None:
        done = subprocess.run(
            [COMMAND, "list", "--tools", where],
            cwd=bare.folder, env=bare.environ(), capture_output=True, timeout=BOUND,
            preexec_fn=limit_memory,
        )  # fmt: skip

        assert done.returncode == 2
        assert b"Traceback" not in done.stderr

    def test_a_pipe_without_a_writer_is_not_waited_for(self, folder: Shell) -> None:
        os.mkfifo(folder.folder / "tools" / "pipe.py")

        done = folder.run("check")

        assert done.code == 1
        assert "pipe.py" in done.out

    def test_a_wrong_command_line_is_status_2(self, bare: Shell) -> None:
        for arguments in (["nonsense"], ["check", "--nonsense"], ["show"], ["new"]):
            bare.misused(*arguments)

    def test_a_reader_that_leaves_early_is_no_problem(self, bare: Shell) -> None:
        write(bare, "many.py", "".join(f"def f{n}(x, y, z): ...\n" for n in range(2_000)))
        reading, writing = os.pipe()
        os.close(reading)

        done = subprocess.run(
            [COMMAND, "check", "many.py"],
            cwd=bare.folder, env=bare.environ(), stdout=writing, stderr=subprocess.PIPE,
            timeout=BOUND,
        )  # fmt: skip
        os.close(writing)

        assert b"Traceback" not in done.stderr
        assert b"BrokenPipe" not in done.stderr
        assert done.returncode not in (0, 2)

    def test_files_are_read_without_running_them(self, bare: Shell) -> None:
        trap = bare.folder / "trap"
        write(bare, "tools/a.py", f"open({str(trap)!r}, 'w')\nraise SystemExit(7)\ndef f(): ...")

        for command in (["check"], ["list"], ["show", "f"]):
            bare.run(*command)

        assert not trap.exists()


def test_the_version_is_that_of_the_package(bare: Shell) -> None:
    done = bare.invoke("--version")

    assert (done.code, done.out, done.err) == (0, f"toolkiln {version('toolkiln')}\n", "")
