"""Runs the pages about security: their files, programs and terminal sessions, in order.

What differs from run to run (ids, hashes, times, numbers) is compared by its form alone, and
what a page calls by some id is, in the commands that follow, what this run called so.
"""

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from preloaded import command
from test_docs import ROOT, called, page, parsed, strings
from toolkiln.model.catalog import Action
from toolkiln.security.sessions import account_name

_BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.M)
_ASSIGNED = re.compile(r"(\w+)=\$\((.+)\)")
_ID = re.compile(r"\b[0-9a-f]{12,64}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PATH = re.compile(r"(?<=  )\S*/(?=secrets\.toml)")
_LOOKS = ("toolkiln approvals list", "toolkiln audit list")
"""What shows something that another process is about to do."""
_PATIENCE = 30.0


class Terminal:
    """A person who types the commands of a page, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folders = (command().parent, Path(sys.executable).parent)  # Debian has no `python`
        path = os.pathsep.join((*map(str, folders), os.environ["PATH"]))
        kept = {key: text for key, text in os.environ.items() if not key.startswith("TOOLKILN_")}
        self.environ = {**kept, "PATH": path, "TOOLKILN_STATE": str(folder / "state")}
        self._ids: dict[str, str] = {}

    def type(self, command: str, expected: str) -> None:
        """Run a command; it has to print what the page says."""
        command = _ID.sub(lambda found: self._ids.get(found[0], found[0]), command)
        deadline = time.monotonic() + _PATIENCE
        said = self.run(command)
        while comparable(said) != comparable(expected) and command.startswith(_LOOKS):
            assert time.monotonic() < deadline, said
            said = self.run(command)
        assert comparable(said) == comparable(expected)
        self._ids |= zip(_ID.findall(shown(expected)), _ID.findall(shown(said)), strict=True)

    def run(self, command: str) -> str:
        """What a command prints; what is assigned goes to a variable."""
        assigned = _ASSIGNED.fullmatch(command)
        done = subprocess.run(
            ["bash", "-c", assigned[2] if assigned else command],
            cwd=self.folder,
            env=self.environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if assigned else subprocess.STDOUT,
        )
        if assigned is None:
            return done.stdout
        self.environ[assigned[1]] = done.stdout.strip()
        return done.stderr


def shown(text: str) -> str:
    """Without the records of starts: whether there is one depends on how long a call takes."""
    return "".join(line for line in text.splitlines(True) if "  started" not in line)


def comparable(text: str) -> str:
    """What does not differ from run to run."""
    text = re.sub(rf"(?<![\w/]){re.escape(account_name())}\b", "ops", shown(text))
    text = _PATH.sub("…/", text)
    for form, name in ((_ID, "ID"), (_TIME, "TIME"), (_NUMBER, "N")):
        text = form.sub(name, text)
    return re.sub(" +", " ", text)


@pytest.mark.parametrize("name", ["security", "operators"])
def test_pages_about_security_show_what_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path)
    monkeypatch.chdir(tmp_path)
    for variable in [key for key in os.environ if key.startswith("TOOLKILN_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TOOLKILN_STATE", terminal.environ["TOOLKILN_STATE"])

    for language, block in _BLOCK.findall(page(name)):
        if language == "console":
            for command, expected in _COMMAND.findall(block):
                terminal.type(command, expected)
        elif file := _FILE.match(block):
            (tmp_path / file[1]).parent.mkdir(exist_ok=True)
            (tmp_path / file[1]).write_text(block, "utf-8")
        else:
            exec(block, {"__name__": "__main__"})

    assert capfd.readouterr() == ("", "")


def test_every_act_of_the_audit_is_documented_and_every_documented_act_exists() -> None:
    table = page("security").split("| act | recorded when |")[1]
    cells = re.findall(r"^\| (`.+?) \|", table.split("\n\n")[0], re.M)

    assert sorted(re.findall(r"`([\w.]+)`", " ".join(cells))) == sorted(acts_in_source())


def acts_in_source() -> set[str]:
    """Acts in the source: arguments of calls that create records, and acts of operations."""
    places = {
        "AuditRecord": 1, "act": 0, "queue": 0, "record": 0,
        "require": 2, "_act": 0, "_admin": 1, "_asked": 1, "_decide": 0, "_require": 1,
    }  # fmt: skip
    found = {*get_args(Action)} - {"dev"}  # only in the history: no person decides
    for file in (ROOT / "src" / "toolkiln").rglob("*.py"):
        for node in ast.walk(parsed(file)):
            match node:
                case ast.Call() if called(node) == "operation":
                    given = {keyword.arg: keyword.value for keyword in node.keywords}
                    if "privilege" in given:
                        found.update(strings(given.get("act", node.args[0])))
                case ast.Call() if (place := places.get(called(node))) is not None:
                    for value in node.args[place : place + 1]:
                        found.update(strings(value))
                case ast.Assign(targets=[ast.Name(id="PRUNE" | "act")], value=value):
                    found.update(strings(value))
    return found
