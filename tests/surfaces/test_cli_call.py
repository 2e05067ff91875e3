"""`toolkiln call`: arguments as people write them, two streams, true exit statuses."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tables import each_row

from .conftest import ADMITTED, BOUND, COMMAND, Shell, token

SETTINGS = """
[grants.waiting]
workspace = "read"
"""
TOOLS = {
    "kinds.py": '''
from typing import Literal
from toolkiln import tool

@tool
def kinds(
    word: str = "", maybe: str | None = None, number: int = 0, share: float | None = None,
    flag: bool = False, words: list[str] | None = None, either: int | str = 0,
    choice: Literal["1", "2"] = "1", whatever=None, **more: int,
) -> dict:
    """Return what was given."""
    given = {k: v for k, v in locals().items() if k != "more"}
    usual = dict(word="", maybe=None, number=0, share=None, flag=False, words=None, either=0,
                 choice="1", whatever=None)
    return {k: v for k, v in given.items() if v != usual[k] or type(v) != type(usual[k])} | more
''',
    "outcomes.py": r'''
import os
import secrets
import time
from toolkiln import Context, ToolError, tool

@tool
def nothing() -> None:
    """Return nothing."""

@tool
def hostile() -> str:
    """Print what plays tricks on a terminal."""
    print("\x1b]0;title\x07\x1b[31mred\x9b2J", end="")
    return "\x1b[2Jcleared"

@tool
def halfway() -> None:
    """Fail in the middle of a line."""
    print("half", end="")
    raise ValueError("a secret")

@tool
def says_no() -> None:
    """Say no."""
    raise ToolError("not on \x1b[5mSundays")

@tool(timeout=0.2)
def endless() -> None:
    """Never end."""
    time.sleep(60)

@tool(timeout=60)
def long(seconds: float = 60) -> str:
    """Take a while."""
    print("started", flush=True)
    time.sleep(seconds)
    return "rested"

@tool(memory="64MB")
def greedy() -> None:
    """Take memory."""
    bytearray(1 << 30)

@tool(network=["example.com"])
def online() -> None:
    """Go out."""

@tool
def random() -> str:
    """Return something that is never the same."""
    return secrets.token_hex()

@tool
def size(text: str, ctx: Context) -> int:
    """Measure a text, in the unit that the request names."""
    return len(text.encode() if ctx.request.get("unit") == "bytes" else text)

@tool(return_char_limit=1000)
def lengthy() -> str:
    """Return a long text."""
    return "head" + "é" * 5000 + "tail"

@tool
def sender(ctx: Context) -> str:
    """Hand over a file, a message and tools."""
    (ctx.workdir / "a.txt").write_text("content")
    ctx.send_file("a.txt")
    ctx.send_message({"kind": "card"})
    ctx.inject_tools("random")
    ctx.log("a line of the log")
    return "sent"

@tool
def working(ctx: Context) -> str:
    """Report progress."""
    ctx.report_progress(1, 2, "half\nway \x1b[31m")
    return "worked"

@tool(timeout=60, workspace="read")
def waiting() -> str:
    """Wait for a file."""
    while not os.path.exists("/workspace/go"):
        time.sleep(0.02)
    return "gone"
''',
}


class TestArguments:
    @each_row(
        "given, expected",
        [
            ([], {}),
            (["word=Paris"], {"word": "Paris"}),
            (["word=5"], {"word": "5"}),
            (['word="5"'], {"word": '"5"'}),
            (["word=null"], {"word": "null"}),
            (["word=a=b=c"], {"word": "a=b=c"}),
            (["word= größe → \"x\" 'y' "], {"word": " größe → \"x\" 'y' "}),
            (["maybe="], {"maybe": ""}),
            (["maybe=5"], {"maybe": "5"}),
            (["maybe=NaN"], {"maybe": "NaN"}),
            (["number=-3", "share=1e3", "flag=true"], {"number": -3, "share": 1e3, "flag": True}),
            (['words=["a", "b"]'], {"words": ["a", "b"]}),
            (["either=5"], {"either": 5}),
            (["either=five"], {"either": "five"}),
            (["choice=2"], {"choice": "2"}),
            (['whatever={"a": [1]}'], {"whatever": {"a": [1]}}),
            (["whatever=plain"], {"whatever": "plain"}),
            (["other=7"], {"other": 7}),
            (['{"word": "Paris", "number": 3}'], {"word": "Paris", "number": 3}),
            (["\n {}"], {}),
            (["@arguments.json"], {"word": "from a file"}),
            (["word=@word.txt"], {"word": "Zeile 1\nZeile 2\n"}),
            (["-"], {"word": "from stdin"}),
        ],
    )
    def test_what_is_written_reaches_the_tool(
        self, shell: Shell, given: list[str], expected: dict[str, Any]
    ) -> None:
        (shell.folder / "arguments.json").write_text('{"word": "from a file"}')
        (shell.folder / "word.txt").write_text("Zeile 1\nZeile 2\n")

        done = shell.invoke("call", "kinds", "--json", *given, stdin='{"word": "from stdin"}')

        assert done.code == 0, done
        assert done.json()["value"] == expected
        assert done.json()["notes"] == []

    @each_row(
        "given, reason",
        [
            (["word"], "'word' is neither a JSON object nor key=value"),
            (["=x"], "neither"),
            (["word=a", "word=b"], "'word' is given twice"),
            (['{"word": "a", "word": "b"}'], "'word' is given twice"),
            (['{"word": "a",}'], "line 1 column 14"),
            (["{"], "not valid JSON"),
            (["[" * 100_000], "nested too deeply"),
            (["[1]"], "not a JSON object"),
            (['{"word": "a"}', "number=3"], "neither"),
            (["-", "number=3"], "neither"),
            (["@missing.json"], "No such file"),
            (["word=@tools"], "Is a directory"),
            (["word=@nul\0.txt"], "cannot be read"),
            (["word=@latin.txt"], "not UTF-8 text"),
            (["number=three"], "number: 'three' is not an integer"),
            (["number=1e400"], "number: "),
            (["words=[1]"], "words[0]: 1 is not a string"),
            (["choice=3"], "choice: "),
            (['{"word": "\\ud800"}'], "surrogate"),
            (['{"number": NaN}'], "number: "),
            (["-"], "stdin: not valid JSON"),
            *(([os.fsdecode(raw)], "") for raw in (b"word=\xff", b"{\xff", b"\xff", b"word=@\xff")),
        ],
    )
    def test_what_cannot_be_understood_is_a_clear_error(
        self, shell: Shell, given: list[str], reason: str
    ) -> None:
        (shell.folder / "latin.txt").write_bytes("größe".encode("latin-1"))

        assert reason in shell.refused("call", "kinds", *given)

    def test_stdin_that_is_no_text_is_a_clear_error(self, shell: Shell) -> None:
        done = shell.run("call", "kinds", "-", stdin=b'{"word": "\xff"}')

        assert (done.code, done.out) == (2, "")
        assert "stdin is not UTF-8 text" in done.err

    def test_every_wrong_argument_is_named_and_the_nearest_known_one(self, shell: Shell) -> None:
        error = shell.refused("call", "size", "txt=a", "more=1")

        lines = error.splitlines()
        assert lines[0].startswith("error: size: ")
        assert {"txt", "more", "text"} <= {line.split(":")[-2].strip() for line in lines[:3]}
        assert "hint: did you mean 'text'?" in error

    def test_an_unknown_tool_is_answered_with_the_nearest(self, shell: Shell) -> None:
        assert "did you mean 'random'" in shell.refused("call", "randon")

    @each_row(
        "options",
        [
            ["--timeout", "0"],
            ["--timeout", "-1"],
            ["--timeout", "nan"],
            ["--timeout", "soon"],
            ["--id", ""],
            ["--id", "x" * 201],
            ["--background", "--files", "."],
            ["--request", "[1]"],
            ["--request", "room"],
        ],
    )
    def test_options_that_make_no_sense_are_refused(self, shell: Shell, options: list[str]) -> None:
        done = shell.invoke("call", "random", *options)

        assert (done.code, done.out) == (2, "")
        assert options[0] in done.err


class TestResults:
    def test_results_go_to_stdout_and_prints_to_stderr_unless_json_has_both(
        self, shell: Shell
    ) -> None:
        done = shell.run("call", "long", "seconds=0")
        as_json = shell.invoke("call", "long", "seconds=0", "--json")

        result = as_json.json()
        assert (done.code, done.out, done.err) == (0, "rested\n", "started\n")
        assert (as_json.code, as_json.err) == (0, "")
        assert (result["status"], result["value"]) == ("ok", "rested")
        assert result["stdout"] == "started\n"
        assert result["sandbox"] in ("A", "B", "C")

    @each_row(
        "tool, code, error",
        [
            ("says_no", 1, "tool_error"),
            ("halfway", 1, "exception"),
            ("endless", 1, "timeout"),
            ("greedy", 1, "memory_limit"),
            ("online", 2, "not_granted"),
            ("size", 2, "invalid_arguments"),
        ],
    )
    def test_the_exit_status_says_how_it_ended(
        self, shell: Shell, tool: str, code: int, error: str
    ) -> None:
        done = shell.invoke("call", tool, "--json")

        assert done.code == code
        assert done.json()["error"]["code"] == error

    def test_an_error_begins_a_line_of_its_own_and_shows_what_was_raised(
        self, shell: Shell
    ) -> None:
        done = shell.invoke("call", "halfway")

        assert shell.refused("call", "online").startswith("error: online: ")
        assert done.err.startswith("half\nerror: halfway: ValueError in line ")
        assert "of outcomes.py: a secret\n\nTraceback (most recent call last):\n" in done.err
        assert done.err.endswith('    raise ValueError("a secret")\nValueError: a secret\n')

    def test_with_a_token_an_exception_is_hidden_and_the_setting_named(self, shell: Shell) -> None:
        admitted = shell.having(TOOLKILN_DEV="false")
        admitted.invoke(*ADMITTED)

        done = admitted.invoke("call", "halfway", "--token", token(admitted, "ann"))

        assert done.err.startswith("half\nerror: halfway: ValueError in line ")
        assert "secret" not in done.err
        assert "show_exceptions" in done.err
        assert "TOOLKILN_SHOW_EXCEPTIONS" in done.err

    def test_a_tool_that_returns_nothing_prints_nothing(self, shell: Shell) -> None:
        done = shell.invoke("call", "nothing")

        assert (done.code, done.out, done.err) == (0, "", "")

    def test_a_session_has_a_workspace_of_its_own(self, shell: Shell) -> None:
        done = shell.invoke("call", "waiting", "--session", "empty", "--timeout", "0.3")

        assert done.code == 1
        assert "0.3 s" in done.err

    def test_without_a_home_the_state_is_kept_here(self, tmp_path: Path) -> None:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "lone.py").write_text('def lone(): "Be alone."')
        bare = {"PATH": os.environ["PATH"], "TOOLKILN_DEV": "1"}

        done = subprocess.run(
            [COMMAND, "call", "lone", "--id", "1"],
            cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=BOUND,
        )  # fmt: skip

        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / ".toolkiln").is_dir()


class TestWhatComesBesideAResult:
    def test_what_a_tool_sends_is_reported(self, shell: Shell) -> None:
        done = shell.invoke("call", "sender")

        assert done.out == "sent\n"
        assert "a line of the log\n" in done.err
        assert "'a.txt' (7 bytes); --files FOLDER saves it" in done.err
        assert done.err.count('message: {"kind": "card"}') == 1
        assert done.err.count("offers random") == 1
        lines = ("file: a.txt (text/plain, 7 bytes)", "message: ", "offers ", "a line of the log")
        places = [done.err.index(line) for line in lines]
        assert places == sorted(places)  # while the call runs, in order

    def test_files_are_kept_on_request_and_never_overwritten(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        folder = tmp_path / "new" / "folder"
        first = shell.invoke("call", "sender", "--files", str(folder))
        (folder / "a.txt").write_text("mine")
        second = shell.invoke("call", "sender", "--files", str(folder))

        assert first.code == 0
        assert f"file: {folder / 'a.txt'}" in first.err
        assert (second.code, second.out) == (2, "sent\n")
        assert "File exists" in second.err
        assert (folder / "a.txt").read_text() == "mine"

    def test_the_whole_of_a_cut_output_is_a_command_away(self, shell: Shell) -> None:
        done = shell.invoke("call", "lengthy")
        handle = shell.invoke("call", "lengthy", "--json").json()["truncation"]["handle"]
        page = shell.invoke("output", handle, "--offset", "5003", "--limit", "3")
        rest = shell.invoke("output", handle, "--offset", "5004", "--json")

        assert len(done.out) <= 1001
        assert "of 5,008 characters are shown; read all with `toolkiln output " in done.err
        assert (page.out, page.code) == ("éta\n", 0)
        assert "continue with --offset 5006" in page.err
        assert (rest.json()["text"], rest.json()["next_offset"]) == ("tail", None)

    def test_a_page_that_cannot_be_is_a_clear_error(self, shell: Shell) -> None:
        for options in (["--offset", "-1"], ["--limit", "0"], []):
            assert "hint: " in shell.refused("output", "nonsense", *options)


class TestTerminals:
    def test_tools_cannot_play_tricks_on_a_terminal(self, shell: Shell) -> None:
        code, seen = shell.on_terminal("call", "hostile")
        refused, complaint = shell.on_terminal("call", "says_no")

        assert (code, refused) == (0, 1)
        assert r"\x1b]0;title\x07\x1b[31mred\x9b2J" + "\n" in seen
        assert r"\x1b[2Jcleared" in seen
        assert "\x1b" not in seen + complaint

    def test_files_and_pipes_get_what_the_tool_wrote_without_progress(self, shell: Shell) -> None:
        done, working = shell.run("call", "hostile"), shell.run("call", "working")

        assert done.out == "\x1b[2Jcleared\n"
        assert done.err == "\x1b]0;title\x07\x1b[31mred\x9b2J\n"
        assert (working.out, working.err) == ("worked\n", "")

    def test_progress_is_shown_on_a_terminal_and_erased(self, shell: Shell) -> None:
        code, seen = shell.on_terminal("call", "working")

        assert code == 0
        assert r"[##########          ] half way \x1b[31m (1 of 2)" in seen
        assert seen.endswith("\r\x1b[2Kworked\n")

    def test_a_character_that_a_terminal_does_not_know_is_no_problem(self, shell: Shell) -> None:
        done = shell.having(PYTHONIOENCODING="latin-1").run("call", "kinds", "word=→")

        assert (done.code, done.out) == (0, '{"word": "\\u2192"}\n')

    @pytest.mark.parametrize(
        ("streams", "code", "error"),
        [
            ("0>&-", 0, ""),
            ("1>&-", 0, ""),
            ("2>&-", 0, ""),
            (">/dev/full", 3, "error: "),
        ],
    )
    def test_a_closed_stream_is_no_problem_and_a_full_disk_an_error(
        self, shell: Shell, streams: str, code: int, error: str
    ) -> None:
        done = subprocess.run(
            ["sh", "-c", f'"$0" call kinds word=x {streams}', COMMAND],
            cwd=shell.folder, env=shell.environ(), capture_output=True, text=True, timeout=BOUND,
        )  # fmt: skip

        assert done.returncode == code
        assert done.stderr.startswith(error)
        assert ("No space left" in done.stderr) == (code == 3)
        assert "Traceback" not in done.stdout + done.stderr


class TestInterruption:
    @pytest.mark.parametrize(
        ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
    )
    def test_everything_ends_with_the_command(
        self, shell: Shell, number: signal.Signals, code: int
    ) -> None:
        process = shell.start("call", "long")
        assert process.stderr is not None
        assert process.stderr.readline() == "started\n"
        below = {pid: os.pidfd_open(pid) for pid in descendants(process.pid)}

        process.send_signal(number)
        out, err = process.communicate(timeout=BOUND)

        assert below
        assert (process.returncode, out, err) == (code, "", "")
        for descriptor in below.values():
            ended, _, _ = select.select([descriptor], [], [], BOUND)
            os.close(descriptor)
            assert ended

    def test_an_interrupted_call_with_an_id_is_remembered_as_cancelled(self, shell: Shell) -> None:
        process = shell.start("call", "long", "--id", "interrupted")
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=BOUND)

        again = shell.invoke("call", "long", "--id", "interrupted", "--json")

        assert again.json()["status"] == "cancelled"


def descendants(pid: int) -> Iterator[int]:
    """The processes below one."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def test_the_same_id_gives_the_first_result_and_other_arguments_a_conflict(shell: Shell) -> None:
    first = shell.run("call", "random", "--id", "once")
    second = shell.invoke("call", "random", "--id", "once")

    assert first.out == second.out != shell.invoke("call", "random").out
    assert "use a fresh id" in shell.refused("call", "size", "text=b", "--id", "once")


class TestBackground:
    def test_a_task_is_awaited_from_another_process(self, shell: Shell) -> None:
        started = shell.run("call", "waiting", "--background", "--session", "tasks")
        task = started.out.strip()
        checked = shell.invoke("task", "check", task)
        impatient = shell.invoke("task", "await", task, "--timeout", "0.05")
        (workspace,) = (shell.folder / "state" / "workspaces").glob("tasks-*")
        (workspace / "files" / "go").touch()
        awaited = shell.run("task", "await", task)
        listed = shell.invoke("task", "list").out
        as_json = shell.invoke("task", "check", task, "--json")

        assert started.code == 0
        assert f"toolkiln task await {task}" in started.err
        assert (checked.code, checked.out) == (0, "running\n")
        assert (impatient.code, impatient.out) == (0, "running\n")
        assert (awaited.code, awaited.out) == (0, "gone\n")
        assert f"{task}  done     waiting" in listed
        assert as_json.json()["result"]["value"] == "gone"

    def test_a_task_is_cancelled_from_another_process(self, shell: Shell) -> None:
        task = shell.run("call", "long", "--background", "--json").json()["id"]

        cancelled = shell.run("task", "cancel", task)
        checked = shell.invoke("task", "check", task)

        assert cancelled.code == 0
        assert "cancelled" in cancelled.err
        assert checked.code == 1

    @pytest.mark.parametrize("arguments", [["size", "txt=1"], ["online"], ["nonsense"]])
    def test_a_call_that_cannot_start_is_no_task(self, shell: Shell, arguments: list[str]) -> None:
        shell.refused("call", *arguments, "--background")

    def test_arguments_may_be_larger_than_a_command_line(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        (tmp_path / "text").write_text("é" * 300_000)

        more = ("--background", "--request", '{"unit": "bytes"}')
        task = shell.run("call", "size", f"text=@{tmp_path / 'text'}", *more).out.strip()

        assert shell.invoke("task", "await", task).out == "600000\n"

    def test_an_id_that_is_taken_is_not_started_again(self, shell: Shell) -> None:
        first = shell.run("call", "long", "--background", "--id", "mine")
        running = shell.invoke("call", "long", "--background", "--id", "mine")
        shell.invoke("task", "cancel", "mine")
        ended = shell.invoke("call", "long", "--background", "--id", "mine")

        assert first.out == "mine\n"
        assert (running.code, running.out) == (2, "")
        assert "is already running" in running.err
        assert (ended.code, ended.out) == (1, "")
        assert "cancelled" in ended.err

    def test_files_come_with_the_result_of_a_task(self, shell: Shell, tmp_path: Path) -> None:
        task = shell.run("call", "sender", "--background").out.strip()

        awaited = shell.run("task", "await", task)
        kept = shell.invoke("task", "check", task, "--files", str(tmp_path / "kept"), "--json")

        assert "--files FOLDER saves it" in awaited.err
        assert kept.code == 0
        assert (tmp_path / "kept" / "a.txt").read_text() == "content"

    def test_nothing_of_the_current_folder_is_imported(self, shell: Shell) -> None:
        for name in ("typer.py", "toolkiln.py", "json.py"):
            (shell.folder / name).write_text("raise SystemExit('imported')")

        done = shell.run("call", "random", "--background")

        for name in ("typer.py", "toolkiln.py", "json.py"):
            (shell.folder / name).unlink()
        assert done.code == 0
        assert len(shell.run("task", "await", done.out.strip()).out) == 65
