"""Every block of the README is executed: console blocks compared, Python blocks run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# (\S+/\S+\.py)\n")
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.M)


class Block(NamedTuple):
    """A fenced block: its language and what is in it."""

    language: str
    text: str


BLOCKS = [Block(*match) for match in _BLOCK.findall(TEXT)]


def test_readme_stays_under_150_lines() -> None:
    assert len(TEXT.splitlines()) < 150


def test_first_screen_names_the_two_commands_that_set_everything_up() -> None:
    screen = "\n".join(TEXT.splitlines()[:24])

    assert "`make run`" in screen
    assert "`make test`" in screen


def test_every_block_can_be_executed() -> None:
    assert {block.language for block in BLOCKS} == {"python", "console"}


def test_blocks_do_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("TOOLKILN_TOOLS", raising=False)
    monkeypatch.setenv("TOOLKILN_STATE", str(tmp_path / "state"))
    for block in BLOCKS:
        file = _FILE.match(block.text)
        if block.language == "console":
            for command, expected in _COMMAND.findall(block.text):
                assert output_of(shlex.split(command), tmp_path) == expected
        elif file:
            path = tmp_path / file[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text, "utf-8")
        else:
            assert output_of([sys.executable, "-c", block.text], tmp_path) == ""


def test_links_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#]+)", TEXT)

    assert [target for target in targets if not (ROOT / target).exists()] == []


def output_of(command: list[str], folder: Path) -> str:
    """What a command prints in a folder, errors in between."""
    done = subprocess.run(
        command,
        cwd=folder,
        text=True,
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert (done.returncode != 0) == done.stdout.startswith("error: "), done.stdout
    return done.stdout
