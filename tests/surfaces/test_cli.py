"""The command line, as a person runs it: exit codes, two streams, never a traceback.

`run` starts a real process: every command, what `new` writes in every dialect, and whatever
depends on streams, encodings, signals, memory or exit. `invoke` stays in this process, where an
exception that gets out fails the test: half a second less for each of the many inputs.
"""

import json
import os
import resource
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolkiln.surfaces.cli.app import app

COMMAND = Path(sys.executable).with_name("toolkiln")
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


@dataclass(frozen=True)
class Done:
    """What a command said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


NOTES = '''
from toolkiln import prompt, resource


@prompt
def review() -> str:
    """Ask for a review of what is there."""
    return "Look"


@resource("notes://{name}")
def note(name: str) -> str:
    """A note of somebody's, by name.

    Args:
        name: The name.
    """
    return name
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with one good tool in `tools/`."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "convert.py").write_text(GOOD)
    return tmp_path


def _limit_memory() -> None:
    """Keep a command that gets it wrong from taking the machine down with it."""
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))


def run(folder: Path, *arguments: str | bytes | Path, **environ: str) -> Done:
    """Run the command in a process of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TOOLKILN_")}
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env=clean | {"NO_COLOR": "1", "TOOLKILN_STATE": str(folder / "state")} | environ,
        capture_output=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        preexec_fn=_limit_memory,
    )
    out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    assert "Traceback" not in err
    assert "Traceback" not in out
    return Done(done.returncode, out, err)


def invoke(folder: Path, *arguments: str) -> Done:
    """Run the command in this process, where an exception that gets out fails the test."""
    clean: dict[str, str | None] = {k: None for k in os.environ if k.startswith("TOOLKILN_")}
    ours = {"NO_COLOR": "1", "TOOLKILN_STATE": str(folder / "state")}
    with chdir(folder):
        done = CliRunner().invoke(app, arguments, env=clean | ours, catch_exceptions=False)
    return Done(done.exit_code, done.stdout, done.stderr)


class TestNew:
    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_what_it_writes_passes_a_strict_check(self, tmp_path: Path, dialect: str) -> None:
        made = run(tmp_path, "new", "longest_words", "--dialect", dialect)
        checked = invoke(tmp_path, "check", "--strict")
        listed = invoke(tmp_path, "list", "--json", "--all")

        assert made.code == 0
        assert made.out.strip() == "tools/longest_words.py"
        assert (checked.code, checked.out) == (0, "")
        assert [tool["name"] for tool in listed.json()] == ["longest_words"]
        assert listed.json()[0]["dialect"] == dialect

    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_what_it_writes_can_be_imported(self, tmp_path: Path, dialect: str) -> None:
        invoke(tmp_path, "new", "longest_words", "--dialect", dialect)

        file = tmp_path / "tools" / "longest_words.py"
        assert subprocess.run([sys.executable, file], capture_output=True).returncode == 0

    @pytest.mark.parametrize("dialect", DIALECTS)
    @pytest.mark.parametrize("name", ["a", "tool", "run", "main", "list", "x_tool", "a" * 40])
    def test_awkward_names_pass_too(self, tmp_path: Path, name: str, dialect: str) -> None:
        made = invoke(tmp_path, "new", name, "--dialect", dialect)

        if made.code == 0:
            assert invoke(tmp_path, "check", "--strict").code == 0
            listed = invoke(tmp_path, "list", "--json", "--all").json()
            assert [tool["name"] for tool in listed] == [name]
        else:
            assert made.code == 2
            assert "hint:" in made.err

    @pytest.mark.parametrize(
        "name", ["", "a b", "A", "1a", "a-b", "../a", "a/b", "def", "a" * 41, "größe", "a\nb", "_a"]
    )
    def test_a_name_that_cannot_be_one_is_refused(self, tmp_path: Path, name: str) -> None:
        done = invoke(tmp_path, "new", name)

        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: ")
        assert list(tmp_path.rglob("*.py")) == []

    def test_an_existing_file_is_never_overwritten(self, folder: Path) -> None:
        done = run(folder, "new", "convert")

        assert done.code == 2
        assert (folder / "tools" / "convert.py").read_text() == GOOD

    def test_an_unknown_dialect_is_answered_with_the_nearest(self, tmp_path: Path) -> None:
        done = invoke(tmp_path, "new", "a", "--dialect", "toolkits")

        assert done.code == 2
        assert "'toolkit'" in done.err

    def test_tools_may_be_elsewhere(self, tmp_path: Path) -> None:
        invoke(tmp_path, "new", "a", "--tools", "mine")

        assert (tmp_path / "mine" / "a.py").is_file()


class TestCheck:
    def test_a_good_tool_passes(self, folder: Path) -> None:
        done = run(folder, "check")

        assert (done.code, done.out) == (0, "")
        assert "1 tool in 1 file" in done.err
        assert "safe" not in (done.out + done.err).lower()

    def test_warnings_pass_unless_strict(self, folder: Path) -> None:
        (folder / "warned.py").write_text("def f(x): ...")

        assert invoke(folder, "check", "warned.py").code == 0
        assert invoke(folder, "check", "warned.py", "--strict").code == 1

    def test_errors_fail(self, folder: Path) -> None:
        (folder / "bad.py").write_text("KEY = 'ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8'\ndef f(): ...")

        assert run(folder, "check", "bad.py").code == 1

    def test_one_bad_file_among_good_ones_fails_and_the_rest_is_read(self, folder: Path) -> None:
        (folder / "tools" / "bad.py").write_text("def (")

        done = invoke(folder, "check", "--json")

        assert done.code == 1
        assert done.json()["summary"]["files"] == 2
        assert done.json()["summary"]["tools"] == 1

    def test_a_finding_is_shown_with_source_caret_and_fix(self, folder: Path) -> None:
        (folder / "bad.py").write_text("x = 1\ny = = 2\n")

        done = invoke(folder, "check", "bad.py")

        assert done.code == 1
        assert "bad.py:2:5" in done.out
        lines = done.out.splitlines()
        at = next(n for n, line in enumerate(lines) if line.endswith("y = = 2"))
        assert lines[at + 1].index("^") == lines[at].index("= 2")
        assert "fix: " in done.out

    @pytest.mark.parametrize("indent", ["\t", "    "])
    def test_the_caret_points_at_the_mistake_behind_tabs(self, folder: Path, indent: str) -> None:
        (folder / "bad.py").write_text(f"def f():\n{indent}y = = 2\n")

        lines = invoke(folder, "check", "bad.py").out.splitlines()

        at = next(n for n, line in enumerate(lines) if line.endswith("y = = 2"))
        assert lines[at + 1].index("^") == lines[at].index("= 2")

    def test_json_has_the_whole_report(self, folder: Path) -> None:
        (folder / "warned.py").write_text("def f(x): ...")

        report = invoke(folder, "check", "--json", "warned.py", "tools").json()

        assert set(report) == {"files", "summary"}
        assert [Path(file["path"]).name for file in report["files"]] == ["warned.py", "convert.py"]
        first = report["files"][0]
        assert first["tools"][0]["health"]["level"] == "NON_STRICT_ONLY"
        assert {"rule", "severity", "message", "line", "fix"} <= set(first["findings"][0])
        assert report["summary"]["tools"] == 2

    def test_every_tool_has_its_health(self, folder: Path) -> None:
        (folder / "bad.py").write_text(
            "TOOL_NAME = 'f'\nTOOL_PARAMETERS = {'type': 'nonsense'}\ndef run(): ..."
        )

        done = invoke(folder, "check", "--json", "bad.py")

        assert done.code == 1
        assert done.json()["files"][0]["tools"][0]["health"]["level"] == "INVALID"

    def test_two_files_with_one_tool_name_are_an_error(self, folder: Path) -> None:
        (folder / "tools" / "other.py").write_text(GOOD)

        done = invoke(folder, "check")

        assert done.code == 1
        assert "duplicate-name" in done.out

    def test_a_file_named_twice_is_checked_once(self, folder: Path) -> None:
        done = invoke(folder, "check", "--json", "tools", "tools/convert.py", "./tools/convert.py")

        assert done.code == 0
        assert done.json()["summary"]["files"] == 1

    def test_control_characters_do_not_reach_the_terminal(self, folder: Path) -> None:
        (folder / "bad.py").write_text("x = = '\x1b[2J\u202e'\n")

        done = invoke(folder, "check", "bad.py")

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
    def kit(self, tmp_path: Path) -> Path:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "kit.py").write_text(KIT)
        return tmp_path

    def test_tools_are_grouped_and_ordered_by_weight_then_name(self, kit: Path) -> None:
        done = run(kit, "list", "--all")

        words = [line.split()[0] for line in done.out.splitlines() if line.strip()]
        assert [w for w in words if w in {"zulu", "alpha", "beta"}] == ["zulu", "alpha", "beta"]
        assert words.index("Zoo") + 1 == words.index("ape")
        assert words.index("ape") + 1 == words.index("zebra")
        assert words.index("Attic") + 1 == words.index("dust")
        assert words.index("Zoo") < words.index("Attic")

    def test_hidden_tools_are_counted_and_shown_on_request(self, kit: Path) -> None:
        done = invoke(kit, "list")

        assert "zebra" in done.out
        assert "ape" not in done.out
        assert "dust" not in done.out
        assert "2 hidden" in done.err
        assert "--all" in done.err
        assert "hidden" not in invoke(kit, "list", "--all").err

    def test_json_is_ordered_alike(self, kit: Path) -> None:
        shown = [tool["name"] for tool in invoke(kit, "list", "--json").json()]
        everything = [tool["name"] for tool in invoke(kit, "list", "--json", "--all").json()]

        assert set(shown) == {"zulu", "alpha", "beta", "zebra"}
        assert [n for n in everything if n in {"zulu", "alpha", "beta"}] == [
            "zulu",
            "alpha",
            "beta",
        ]
        assert everything.index("ape") < everything.index("zebra")

    def test_helpers_are_no_tools(self, folder: Path) -> None:
        (folder / "tools" / "shared.py").write_text("def helper(): ...")
        (folder / "tools" / "convert.py").write_text("import shared\n" + GOOD)

        assert [tool["name"] for tool in invoke(folder, "list", "--json").json()] == ["convert"]

    def test_values_that_json_does_not_know_do_not_break_it(self, folder: Path) -> None:
        (folder / "tools" / "odd.py").write_text(
            "def odd(x: float = 1e999, y: str = '\\ud800', z: bytes = b'\\xff'): 'Do \\udfff it.'"
        )

        for command in (["list", "--json"], ["check", "--json"], ["show", "odd"]):
            done = run(folder, *command)
            done.json()


class TestShow:
    @pytest.mark.parametrize("form", FORMS)
    def test_every_provider_gets_its_payload(self, folder: Path, form: str) -> None:
        done = invoke(folder, "show", "convert", "--as", form)

        assert done.code == 0
        assert "convert" in json.dumps(done.json())
        assert "amount" in json.dumps(done.json())

    def test_by_default_it_is_exactly_what_a_model_sees(self, folder: Path) -> None:
        assert set(run(folder, "show", "convert").json()) == {"name", "description", "parameters"}

    def test_the_schema_alone(self, folder: Path) -> None:
        assert invoke(folder, "show", "convert", "--as", "schema").json()["required"] == ["amount"]

    def test_the_documentation(self, folder: Path) -> None:
        done = invoke(folder, "show", "convert", "--as", "docs")

        assert "Convert an amount" in done.out
        assert ">>> convert(3)" in done.out

    def test_an_unknown_tool_is_answered_with_the_nearest(self, folder: Path) -> None:
        done = run(folder, "show", "convrt")

        assert (done.code, done.out) == (2, "")
        assert "'convert'" in done.err

    def test_an_unknown_form_is_answered_with_the_nearest(self, folder: Path) -> None:
        done = invoke(folder, "show", "convert", "--as", "openia")

        assert done.code == 2
        assert "'openai'" in done.err

    @pytest.mark.parametrize("where", ["tools", "tools/convert.py", "./tools/"])
    def test_tools_may_be_a_file_or_a_folder(self, folder: Path, where: str) -> None:
        assert invoke(folder, "show", "convert", "--tools", where).code == 0


class TestRoles:
    def test_prompts_and_resources_are_listed_and_shown_as_what_they_are(
        self, folder: Path
    ) -> None:
        (folder / "tools" / "notes.py").write_text(NOTES)

        listed = invoke(folder, "list")
        everything = invoke(folder, "list", "--json").json()
        shown = invoke(folder, "show", "note").json()
        refused = invoke(folder, "show", "review", "--as", "openai")

        assert "(prompt)" in listed.out
        assert "(resource notes://{name})" in listed.out
        assert {one["name"]: one["role"] for one in everything} == {
            "convert": "tool", "review": "prompt", "note": "resource"
        }  # fmt: skip
        assert (shown["role"], shown["uri"]) == ("resource", "notes://{name}")
        assert (refused.code, "is a prompt" in refused.err) == (2, True)


class TestSettings:
    def test_the_setting_says_where_the_tools_are(self, folder: Path) -> None:
        (folder / "tools").rename(folder / "mine")
        (folder / "toolkiln.toml").write_text("tools = 'mine'")

        assert run(folder, "list").code == 0
        assert run(folder, "list", TOOLKILN_TOOLS="nowhere").code == 2

    @pytest.mark.parametrize("content", [b"tools = ", b"\xff", b"nonsense = 1", b"tools = 3"])
    def test_a_broken_setting_is_a_clear_error(self, folder: Path, content: bytes) -> None:
        (folder / "toolkiln.toml").write_bytes(content)

        commands = (["list"], ["check"], ["show", "x"], ["new", "x"])
        for done in (invoke(folder, *command) for command in commands):
            assert (done.code, done.out) == (2, "")
            assert "toolkiln.toml" in done.err
            assert "hint:" in done.err


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


class TestBadInput:
    @pytest.mark.parametrize("kind", BAD_FILES)
    def test_a_bad_file_is_a_clear_finding(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / "bad.py").write_bytes(BAD_FILES[kind])

        done = invoke(tmp_path, "check", "bad.py")
        as_json = invoke(tmp_path, "check", "bad.py", "--json")

        assert done.code == as_json.code == 1
        assert "bad.py" in done.out
        assert "fix: " in done.out
        assert len(done.out) < 10_000
        assert as_json.json()["summary"]["findings"]["error"] >= 1

    @pytest.mark.parametrize("command", [["list"], ["show", "x"]])
    @pytest.mark.parametrize("kind", ["binary", "syntax", "brackets", "nulls", "not utf-8"])
    def test_a_catalog_of_bad_files_alone_is_a_clear_error(
        self, tmp_path: Path, kind: str, command: list[str]
    ) -> None:
        (tmp_path / "bad.py").write_bytes(BAD_FILES[kind])

        done = invoke(tmp_path, *command, "--tools", "bad.py")

        assert (done.code, done.out) == (2, "")
        assert "error: " in done.err
        assert "toolkiln check" in done.err

    def test_a_bad_file_does_not_hide_that_it_was_left_out(self, folder: Path) -> None:
        (folder / "tools" / "bad.py").write_text("def (")

        done = invoke(folder, "list")

        assert done.code == 0
        assert "convert" in done.out
        assert "bad.py" in done.err

    def test_a_file_of_50_megabytes_is_refused_unread(self, tmp_path: Path) -> None:
        with (tmp_path / "big.py").open("wb") as file:
            file.truncate(50_000_000)

        done = run(tmp_path, "check", "big.py")

        assert done.code == 1
        assert "50,000,000" in done.out

    @pytest.mark.parametrize(
        "command",
        [["check", "nope.py"], ["list", "--tools", "nope"], ["show", "x", "--tools", "no"]],
    )
    def test_a_missing_path_is_a_clear_error(self, tmp_path: Path, command: list[str]) -> None:
        done = invoke(tmp_path, *command)

        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: ")
        assert "hint:" in done.err

    @pytest.mark.parametrize("command", [["check"], ["list"], ["show", "x"]])
    def test_no_tools_folder_is_a_clear_error(self, tmp_path: Path, command: list[str]) -> None:
        done = invoke(tmp_path, *command)

        assert done.code == 2
        assert "toolkiln new" in done.err

    @pytest.mark.parametrize("content", [{}, {"a.txt": ""}, {"test_a.py": ""}, {"_a.py": ""}])
    def test_a_folder_without_python_files_is_a_clear_error(
        self, tmp_path: Path, content: dict[str, str]
    ) -> None:
        (tmp_path / "tools").mkdir()
        for name, text in content.items():
            (tmp_path / "tools" / name).write_text(text)

        for done in (invoke(tmp_path, "check"), invoke(tmp_path, "list")):
            assert done.code == 2
            assert "tools" in done.err

    @pytest.mark.parametrize("source", ["", "x = 1\n", "class A: ...\n"])
    def test_a_folder_of_files_without_tools_says_so(self, tmp_path: Path, source: str) -> None:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "a.py").write_text(source)

        listed, checked = invoke(tmp_path, "list"), invoke(tmp_path, "check")

        assert listed.code == 2
        assert "no tool" in listed.err
        assert "no tool" in (checked.out + checked.err) or "0 tools" in checked.err

    def test_a_good_path_beside_a_missing_one_is_still_an_error(self, folder: Path) -> None:
        assert invoke(folder, "check", "tools", "nope.py").code == 2

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_file_is_a_clear_finding(self, folder: Path) -> None:
        (folder / "tools" / "convert.py").chmod(0)

        assert run(folder, "check").code == 1

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_folder_is_not_called_clean(self, folder: Path) -> None:
        (folder / "tools" / "more").mkdir(mode=0)

        assert run(folder, "check").code != 0

    def test_a_loop_of_links_ends(self, folder: Path) -> None:
        (folder / "tools" / "loop").symlink_to(folder / "tools")
        (folder / "tools" / "self.py").symlink_to(folder / "tools" / "self.py")

        done = invoke(folder, "check", "--json")

        assert done.json()["summary"]["tools"] == 1
        assert invoke(folder, "check", "tools/self.py").code in (1, 2)

    @pytest.mark.parametrize("name", ["a\nb.py", "a b.py", "ü.py", "-a.py", "a'b.py", "[a].py"])
    def test_odd_file_names_are_no_problem(self, folder: Path, name: str) -> None:
        (folder / "tools" / name).write_text("def other(x): ...")

        done = invoke(folder, "check")

        assert done.code == 0
        assert all("fix:" in part or not part.strip() for part in done.out.split("\n\n"))
        assert len(invoke(folder, "check", "--json").json()["files"]) == 2

    def test_a_file_name_that_is_no_text_is_a_finding_and_leaves_the_others(
        self, folder: Path
    ) -> None:
        Path(os.fsdecode(os.fsencode(folder / "tools") + b"/\xff.py")).write_text(
            "def other(x): ..."
        )

        checked, listed = run(folder, "check"), run(folder, "list")

        assert checked.code == 1
        assert "the file's name is not UTF-8" in checked.out
        assert len(run(folder, "check", "--json").json()["files"]) == 2
        assert (listed.code, listed.out.split()[0]) == (0, "convert")

    def test_a_terminal_that_only_knows_ascii_is_no_problem(self, folder: Path) -> None:
        (folder / "tools" / "bad.py").write_text("def größe(x): 'Wie groß → ist es?'")

        for command in (["check"], ["list"], ["show", "convert"]):
            run(folder, *command, PYTHONIOENCODING="ascii", LC_ALL="C")

    @pytest.mark.parametrize("where", ["/dev/null", "/dev/zero"])
    def test_a_device_is_a_clear_error(self, tmp_path: Path, where: str) -> None:
        assert run(tmp_path, "list", "--tools", where).code == 2

    def test_a_pipe_without_a_writer_is_not_waited_for(self, folder: Path) -> None:
        os.mkfifo(folder / "tools" / "pipe.py")

        done = run(folder, "check")

        assert done.code == 1
        assert "pipe.py" in done.out

    @pytest.mark.parametrize(
        "arguments", [["nonsense"], ["check", "--nonsense"], ["show"], ["new"]]
    )
    def test_a_wrong_command_line_is_status_2(self, tmp_path: Path, arguments: list[str]) -> None:
        assert run(tmp_path, *arguments).code == 2

    def test_a_reader_that_leaves_early_is_no_problem(self, tmp_path: Path) -> None:
        (tmp_path / "many.py").write_text(
            "".join(f"def f{n}(x, y, z): ...\n" for n in range(2_000))
        )
        reading, writing = os.pipe()
        os.close(reading)

        done = subprocess.run(
            [COMMAND, "check", "many.py"], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE,
            timeout=60,
        )  # fmt: skip
        os.close(writing)

        assert b"Traceback" not in done.stderr
        assert b"BrokenPipe" not in done.stderr
        assert done.returncode not in (0, 2)

    def test_many_files_are_read_without_running_them(self, tmp_path: Path) -> None:
        (tmp_path / "tools").mkdir()
        trap = tmp_path / "trap"
        (tmp_path / "tools" / "a.py").write_text(
            f"open({str(trap)!r}, 'w')\nraise SystemExit(7)\ndef f(): ..."
        )

        for command in (["check"], ["list"], ["show", "f"]):
            run(tmp_path, *command)

        assert not trap.exists()


def test_help_is_there_for_every_command(tmp_path: Path) -> None:
    for command in ([], ["new"], ["check"], ["list"], ["show"]):
        done = run(tmp_path, *command, "--help")
        assert done.code == 0
        assert "Usage" in done.out


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    done = invoke(tmp_path, "--version")

    assert (done.code, done.out, done.err) == (0, f"toolkiln {version('toolkiln')}\n", "")
