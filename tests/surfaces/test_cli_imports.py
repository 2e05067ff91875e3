"""`toolkiln import`: foreign files become files that wait for an admission, and a report."""

import json
import os
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tables import each_row

from .conftest import ADMITTED, GREET, Shell, entries, states

WEATHER = '''"""
title: Weather
author_url: https://author.example
requirements: icalendar
"""

import os

import requests
import geopy
import unheard_of
import util
from icalendar import Calendar
from open_webui.models.files import FileModel, Files


class Tools:
    def get_weather(self, city: str, file: FileModel | None = None) -> str:
        """Return the weather of a city as the service prints it.

        :param city: The name of the city.
        """
        Files.get_file_by_id(city)
        os.environ["KEY"]
        return requests.get("https://api.weather.example/v1").text
'''
PLAIN = '''import util


def double(number: int) -> int:
    """Return twice a number, as the helper computes it.

    Args:
        number: The number.
    """
    return util.twice(number)
'''
HELPER = '''def twice(number: int) -> int:
    """Return twice a number."""
    return 2 * number
'''


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files to a folder that is not the tools'."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def rows(shell: Shell, *arguments: str) -> dict[str, dict[str, Any]]:
    """The report of an import, by the name of the original."""
    done = shell.invoke("import", "--json", *arguments)
    return {Path(row["source"]).name: row for row in done.json()["files"]}


@pytest.fixture
def old(desk: Shell) -> Path:
    return put(
        desk.folder / "old",
        {
            "weather.py": WEATHER,
            "parts/double.py": PLAIN,
            "parts/util.py": HELPER,
            "util.py": HELPER,
            "settings.py": "COLOR = 1\n",
            "requirements.txt": "geopy==2.4\n",
        },
    )


def test_a_folder_is_copied_with_its_helpers_and_waits_for_an_admission(
    desk: Shell, old: Path
) -> None:
    done = desk.invoke("import", "old")

    assert done.code == 0, done
    assert "copied: old/weather.py -> tools/weather.py (Open WebUI)\n  with: util.py\n" in done.out
    assert "  works: double\n" in done.out
    assert "  works in part once its packages are listed: get_weather\n" in done.out
    assert "no tools: old/settings.py\n3 files: 1 skipped, 2 copied\n" in done.err
    assert done.err.endswith("next: `toolkiln admit` shows the files, and asks\n")
    assert states(desk) == {
        "greet.py": "new",
        "parts/double.py": "new",
        "weather.py": "new",
    }
    assert (desk.folder / "tools/weather.py").read_text() == WEATHER
    assert not (desk.folder / "tools/requirements.txt").exists()
    assert desk.invoke(*ADMITTED, "tools/parts/double.py").code == 0
    called = desk.run("call", "double", "number=21")
    assert (called.code, called.out) == (0, "42\n"), called


def test_the_report_says_what_differs_and_which_packages_are_needed(desk: Shell, old: Path) -> None:
    row = rows(desk, "--dry-run", "old")["weather.py"]

    differences = [(item["line"], item["message"]) for item in row["differences"]]
    packages = {
        item["module"]: (item["requirement"], item["is_listed"]) for item in row["packages"]
    }
    hosts = 'declares its hosts (network = ["api.weather.example"] in [tool.toolkiln])'
    expected = {
        9: f"import requests: a call has no network until the file {hosts}",
        23: "open_webui.models.files.Files is a placeholder: a call that uses it fails",
        24: "os.environ: a call gets none of the server's variables",
    }
    assert [line for line, _ in differences] == [*expected]
    assert all(message.startswith(expected[line]) for line, message in differences)
    assert packages == {
        "requests": ("requests", True),
        "geopy": ("geopy==2.4", False),
        "unheard_of": (None, False),
        "icalendar": ("icalendar", True),
    }
    assert (row["outcome"], row["file"], row["framework"]) == ("copied", "weather.py", "Open WebUI")
    assert not (desk.folder / "tools/weather.py").exists()


def test_the_report_says_which_functions_are_left_out(desk: Shell) -> None:
    source = PLAIN.replace("import util", "from typing import Callable")
    source += '\n\ndef visit(each: Callable) -> int:\n    """Visit all of them."""\n'
    source += "\n\ndef main() -> None:\n    print(double(1))\n"
    put(desk.folder / "old", {"double.py": source})

    done = desk.invoke("import", "old/double.py")

    assert done.code == 0
    assert "  works: double\n" in done.out
    assert "  left out: visit, line 13: parameter 'each': a model cannot pass" in done.out
    assert "  left out: line 17: 'main' is not a tool" in done.out


def test_the_report_says_what_to_use_for_what_a_context_lacks(desk: Shell) -> None:
    source = """
        # /// script
        # [tool.toolkiln]
        # network = ["example.com"]
        # ///
        import urllib.request
        from tool_context import ToolContext

        def recall(topic: str, ctx: ToolContext) -> str:
            '''Return what was said about a topic in this channel.'''
            ctx.sent_files.append(topic)
            return ctx.redis.get(topic)
    """
    put(desk.folder / "old", {"recall.py": dedent(source)})

    row = rows(desk, "old/recall.py")["recall.py"]

    assert (row["framework"], row["outcome"]) == ("Stargazer", "copied")
    assert [(item["line"], item["message"]) for item in row["differences"]] == [
        (
            12,
            "ctx.redis is not available in the sandbox: keep files with "
            '@tool(workspace="write"), or reach a service with network=[…]',
        )
    ]


def test_the_report_says_which_members_of_a_class_are_placeholders(desk: Shell) -> None:
    source = """
        from core.agentpress.tool import Tool, execution_flow
        from core.sandbox.tool_base import SandboxToolsBase

        class NotesTool(SandboxToolsBase):
            def __init__(self, project_id: str, thread_manager, limit: int = 3):
                super().__init__(project_id, thread_manager)
                self.manager = thread_manager
                self.limit = limit

            @execution_flow("continue")
            def count(self, text: str):
                \"\"\"Count the words of a text, up to a limit.\"\"\"
                return self.success_response(min(self.limit, len(text.split())))

            async def keep(self, text: str):
                \"\"\"Keep a text in the thread.\"\"\"
                await self.sandbox.fs.upload_file(text)
                return await self._add(text)

            async def _add(self, text: str):
                return await self.manager.add_message(text)
    """
    put(desk.folder / "old", {"notes.py": dedent(source)})

    row = rows(desk, "old/notes.py", "--dry-run")["notes.py"]
    done = desk.invoke("import", "old/notes.py")

    members = [item["message"].partition(":")[0] for item in row["differences"]]
    assert members == [
        "self.sandbox is a placeholder for Suna's sandbox",
        "self.manager is a placeholder for the parameter 'thread_manager' of __init__",
    ]
    assert [item["tools"] for item in row["differences"]] == [["keep"], ["keep"]]
    assert "  works: count\n  works in part: keep\n  differs: line 18: self.san" in done.out


@pytest.mark.parametrize(
    "head",
    [b"", b"\xef\xbb\xbf", b"#!/usr/bin/env python\r\n# coding: latin-1\r\n# \xe9\r\n"],
)
def test_packages_are_listed_in_the_copy_on_request(desk: Shell, head: bytes) -> None:
    source = head + PLAIN.replace("import util", "import httpx, yaml").encode()
    put(desk.folder / "old", {"double.py": source, "requirements.txt": "httpx>=0.27\n"})

    done = desk.invoke("import", "old/double.py", "--add-requirements")

    copy = (desk.folder / "tools/double.py").read_bytes()
    assert done.code == 0
    assert "  needs: httpx>=0.27\n  needs: pyyaml\n" in done.out
    end = b"\r\n" if head.endswith(b"\r\n") else b"\n"
    lines = (b"# /// script", b'# dependencies = ["httpx>=0.27", "pyyaml"]', b"# ///", b"", b"")
    assert copy.replace(end.join(lines), b"") == source != copy
    assert (desk.folder / "old/double.py").read_bytes() == source
    assert rows(desk, "tools/double.py")["double.py"]["packages"][0]["is_listed"]


@pytest.mark.parametrize(
    ("files", "outcome", "reason"),
    [
        ({"x.py": "def broken("}, "refused", "it has an error"),
        ({"x.py": b'def f():\n    """\xff"""'}, "refused", "it has an error"),
        ({"x.py": "COLOR = 1"}, "refused", "it declares no tool"),
        ({"_x.py": PLAIN.replace("import util", "")}, "refused", "a private file or a test"),
        ({"x.py": GREET}, "refused", "it has an error"),
        ({"greet.py": GREET + "\n"}, "refused", "tools/greet.py exists with other content"),
        ({"greet.py": GREET}, "unchanged", ""),
        ({"x.py": PLAIN.replace("import util", "")}, "copied", ""),
        ({"x.py": PLAIN, "util.py": HELPER}, "refused", "tools/util.py exists with other content"),
        (
            {"x.py": PLAIN.replace("import util", "import pip\nfrom .a import b")},
            "refused",
            "error",
        ),
    ],
)
def test_what_cannot_be_copied_is_refused_with_the_reason(
    desk: Shell, files: dict[str, str | bytes], outcome: str, reason: str
) -> None:
    put(desk.folder / "tools", {"util.py": "def twice(): ...\n"})
    put(desk.folder / "old", files)
    name = next(iter(files))
    before = {file: file.read_bytes() for file in (desk.folder / "tools").iterdir()}

    done = desk.invoke("import", f"old/{name}", "--json")

    (row,) = done.json()["files"]
    assert (row["outcome"], done.code) == (outcome, 1 if outcome == "refused" else 0), row
    assert reason in row["reason"]
    if outcome != "copied":
        assert before == {file: file.read_bytes() for file in (desk.folder / "tools").iterdir()}


def test_odd_files_of_a_folder_are_refused_in_one_line_each(desk: Shell) -> None:
    names = "\n".join(f"from open_webui import a{n}\na{n}.b" for n in range(30))
    old = put(
        desk.folder / "old",
        {
            "deep.py": "x = " + "[" * 5_000 + "]" * 5_000,
            "nul.py": "def f(): pass\0",
            "big.py": "#" * 5_000_000,
            "many.py": f"{names}\n\n\n{PLAIN.replace('import util', '')}",
        },
    )
    os.mkfifo(old / "pipe.py")
    (old / "loop").symlink_to(old)
    (old / "dangling.py").symlink_to(old / "nowhere")

    done = desk.invoke("import", "old")

    refused = [line.split()[1] for line in done.out.splitlines() if line.startswith("refused")]
    assert done.code == 1
    assert refused == [f"old/{name}.py" for name in ("big", "dangling", "deep", "nul", "pipe")]
    assert done.out.count("  differs: ") == 21
    assert "  differs: 10 more; --json has all\n" in done.out


def test_one_refused_file_does_not_stop_the_others(desk: Shell, old: Path) -> None:
    put(old, {"broken.py": "def broken(", "clash/util.py": "twice = 1\n", "clash/y.py": PLAIN})

    done = desk.invoke("import", "old", "old/clash")

    assert done.code == 1
    assert "refused: old/broken.py (plain Python): it has an error\n  line 1: error[syntax-er" in (
        done.out
    )
    assert "copied: old/parts/double.py" in done.out
    assert states(desk)["weather.py"] == "new"


def test_other_content_is_replaced_or_goes_elsewhere_on_request(admitted: Shell) -> None:
    put(admitted.folder / "old", {"greet.py": GREET.replace("Hello", "Good day")})

    elsewhere = admitted.invoke("import", "old/greet.py", "--into", "polite")
    replaced = admitted.invoke("import", "old/greet.py", "--overwrite")

    assert elsewhere.code == 1  # the name is taken
    assert "'greet' is a tool of tools/greet.py already" in elsewhere.out
    assert (replaced.code, replaced.out.split(":")[0]) == (0, "replaced")
    assert states(admitted) == {"greet.py": "changed"}
    assert entries(admitted)["greet.py"]["version"] == 1


def test_files_do_not_leave_the_tools_folder(desk: Shell) -> None:
    put(desk.folder / "old", {"x.py": PLAIN.replace("import util", "")})
    outside = put(desk.folder / "outside", {"keep": ""})
    (desk.folder / "tools/linked").symlink_to(outside)

    through = rows(desk, "old/x.py", "--into", "linked")["x.py"]

    assert "a link out of the tools folder" in through["reason"]
    assert [file.name for file in outside.iterdir()] == ["keep"]
    for folder in ("..", "/tmp", "_private", "tests"):
        assert "cannot be a folder of tools" in desk.refused("import", "old/x.py", "--into", folder)


@each_row(
    "arguments, error",
    [
        (["import", "missing"], "there is no file or folder 'missing'"),
        (["import", "empty"], "there is no Python file in 'empty'"),
        (["import", "many"], "many has more than 2,000 Python files"),
        (["import", "tools", "--tools", "tools/greet.py"], "only tools/greet.py is served"),
    ],
)
def test_an_import_that_cannot_start_says_why(
    desk: Shell, arguments: list[str], error: str
) -> None:
    (desk.folder / "empty").mkdir(exist_ok=True)
    put(desk.folder / "many", {f"m{n}.py": "" for n in range(2_001 if "many" in arguments else 1)})

    assert error in desk.refused(*arguments)


def test_a_folder_without_tools_is_an_error_after_its_report(desk: Shell) -> None:
    put(desk.folder / "old", {"data.py": "COLOR = 1\n"})

    done = desk.invoke("import", "old", "--json")

    assert done.code == 2
    assert json.loads(done.out)["files"][0]["outcome"] == "skipped"
    assert done.err == (
        "error: there is no tool in old\n\nhint: name the files or folders with the tools\n"
    )


def test_a_requirements_file_that_cannot_be_used_is_noted(desk: Shell, old: Path) -> None:
    put(old, {"requirements.txt": "-r other.txt\n"})

    done = desk.invoke("import", "old")

    assert done.code == 0
    assert "note: old/requirements.txt:1: " in done.err
    assert "needs: geopy (not listed in the file)" in done.out
