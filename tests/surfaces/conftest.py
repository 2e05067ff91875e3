"""The command as a person runs it: in a process of its own, on a pipe or on a terminal."""

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import termios
from collections.abc import Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from preloaded import REAL, command
from toolkiln.surfaces.cli.app import app

COMMAND = REAL
BOUND = 60.0
"""Seconds that anything may take before a test gives up."""
ADMITTED = ("admit", "--yes", "--no-probe")
GREET = '''from toolkiln import tool


@tool(read_only=True)
def greet(name: str) -> str:
    """Greet a person by name.

    Args:
        name: Who is greeted.

    Examples:
        >>> greet("Ada")
        'Hello Ada'
    """
    return f"Hello {name}"
'''
POLITE = GREET.replace("Hello", "Good day,")
KIT = '''from toolkiln import tool_metadata


@tool_metadata(display_name="Desk", description="Things of a desk.", visible=True)
class Desk:
    def open_drawer(self, number: int) -> int:
        """Open a drawer of the desk.

        Args:
            number: Which one, from above.
        """
        return number

    def close_drawer(self, number: int) -> int:
        """Close a drawer of the desk.

        Args:
            number: Which one, from above.
        """
        return number
'''


@dataclass(frozen=True)
class Done:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@dataclass(frozen=True)
class Shell:
    """A working folder with tools, a state of its own, and the command."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        # Without a screen no browser opens on the desktop of the person who runs the tests.
        ours = ("TOOLKILN_", "UV_", "PIP_", "DISPLAY", "WAYLAND_DISPLAY")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        state = {"TOOLKILN_STATE": str(self.folder / "state"), "NO_COLOR": "1"}
        # Admission has tests of its own; the others serve what is on disk.
        return {**clean, **state, "TOOLKILN_DEV": "1", **self.variables}

    def run(self, *arguments: str | bytes | Path, stdin: bytes = b"") -> Done:
        """Run the command in a process of its own, which has imported everything."""
        done = subprocess.run(
            [command(), *arguments],
            cwd=self.folder,
            env=self.environ(),
            input=stdin,
            capture_output=True,
            timeout=BOUND,
        )
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        assert "Traceback" not in out + err
        return Done(done.returncode, out, err)

    def invoke(self, *arguments: str, stdin: str | bytes = "") -> Done:
        """Run the command in this process, where an exception that gets out fails the test."""
        known = self.environ()
        missing = {name: None for name in os.environ if name not in known}
        with chdir(self.folder):
            done = CliRunner().invoke(
                app, arguments, input=stdin, env={**known, **missing}, catch_exceptions=False
            )
        return Done(done.exit_code, done.stdout, done.stderr)

    def refused(self, *arguments: str, stdin: str | bytes = "", code: int = 2) -> str:
        """The error of a command that fails and prints nothing else."""
        done = self.invoke(*arguments, stdin=stdin)
        assert (done.code, done.out) == (code, ""), done
        assert done.err.startswith("error: "), done
        return done.err

    def misused(self, *arguments: str) -> str:
        """The error of a command with options or arguments that it does not take."""
        done = self.invoke(*arguments)
        assert (done.code, done.out) == (2, ""), done
        assert done.err.startswith("Usage: "), done
        return done.err

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """Start the command; the test ends it."""
        return subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A run in the background of a shell ignores it, and would hand that down.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def on_terminal(self, *arguments: str) -> tuple[int, str]:
        """Run the command on a terminal: its exit status, and everything that it wrote there."""
        return self.typed((), *arguments)

    def typed(
        self, replies: Iterable[tuple[bytes, Any]], *arguments: str, ahead: bytes = b""
    ) -> tuple[int, str]:
        """Run the command on a terminal of its own, and type each reply once its marker is there.

        A reply may be a function that gives it. `ahead` is typed before anything is there.
        """

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        master, slave = pty.openpty()
        os.write(master, ahead)
        with subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ(),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=own_terminal,
        ) as process:
            os.close(slave)
            seen, at = b"", 0
            try:
                for marker, reply in replies:
                    while marker not in seen[at:]:
                        seen += os.read(master, 4096)
                    at = len(seen)
                    os.write(master, reply() if callable(reply) else reply)
                while data := os.read(master, 4096):
                    seen += data
            except OSError:  # the way Linux says that the other side has closed
                pass
            os.close(master)
            return process.wait(BOUND), seen.decode("utf-8", "replace").replace("\r\n", "\n")

    def having(self, **variables: str) -> "Shell":
        """The same with further variables."""
        return Shell(self.folder, {**self.variables, **variables})


@pytest.fixture(scope="module")
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with the TOOLS and the SETTINGS of the test module."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "tools").mkdir()
    for name, source in request.module.TOOLS.items():
        (folder / "tools" / name).write_text(source, "utf-8")
    (folder / "toolkiln.toml").write_text(request.module.SETTINGS, "utf-8")
    return Shell(folder)


@pytest.fixture
def fresh(shell: Shell, tmp_path: Path) -> Shell:
    """The tools of the test module with an empty state."""
    return shell.having(TOOLKILN_STATE=str(tmp_path / "state"))


@pytest.fixture
def desk(tmp_path: Path) -> Shell:
    """A folder with one tool, which is not admitted."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "greet.py").write_text(GREET)
    return Shell(tmp_path, {"TOOLKILN_DEV": "0"})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one tool is admitted, for copies."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "tools").mkdir()
    (folder / "tools" / "greet.py").write_text(GREET)
    assert Shell(folder, {"TOOLKILN_DEV": "0"}).invoke(*ADMITTED).code == 0
    return folder


@pytest.fixture
def admitted(template: Path, tmp_path: Path) -> Shell:
    """A folder in which one tool is admitted."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Shell(tmp_path, {"TOOLKILN_DEV": "0"})


def token(shell: Shell, user: str, *options: str) -> str:
    """Open a session; its token."""
    done = shell.invoke("sessions", "create", user, *options)
    assert done.code == 0, done
    return done.out.strip()


def write(desk: Shell, name: str, source: str) -> Path:
    """Put a file into the tools' folder."""
    file = desk.folder / "tools" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, "utf-8")
    return file


def manifest(desk: Shell) -> Path:
    """The manifest of the tools' folder."""
    return desk.folder / "tools" / "_manifest.json"


def entries(desk: Shell) -> dict[str, dict[str, object]]:
    """What is admitted, by file."""
    found = json.loads(manifest(desk).read_text())["files"]
    assert isinstance(found, dict)
    return found


def states(desk: Shell) -> dict[str, str]:
    """The state of each file."""
    return {item["file"]: item["state"] for item in desk.invoke("status", "--json").json()}
