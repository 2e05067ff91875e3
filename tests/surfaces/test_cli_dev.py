"""`toolkiln dev` as a person runs it: edit, read the line, press Ctrl-C."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from urllib.request import urlopen

import pytest

from .conftest import ADMITTED, BOUND, COMMAND, Shell

GREET = 'def greet(name: str) -> str:\n    """Greet."""\n    return name\n'
ASKING = '''from toolkiln import tool


@tool(network=["api.example.org", "example.com"], workspace="write")
def fetch(name: str) -> str:
    """Fetch."""
    return name
'''


class Session:
    """A running `toolkiln dev`, line by line."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.process = shell.start("dev", *(arguments or ("--no-serve",)))
        self.out: list[str] = []
        self.err: list[str] = []
        self._lines: Queue[str] = Queue()
        self._readers = [
            threading.Thread(target=self._read, args=pair)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str], lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))
            self._lines.put(lines[-1])

    def until(self, pattern: str) -> str:
        """Waits for a line, on stdout or stderr."""
        while True:
            try:
                line = self._lines.get(timeout=BOUND)
            except Empty:
                raise AssertionError(f"no {pattern!r} in {self.out + self.err}") from None
            if re.search(pattern, line):
                return line

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Sends a signal and waits for the end."""
        self.process.send_signal(number)
        code = self.process.wait(BOUND)
        for reader in self._readers:
            reader.join(BOUND)
        return code


Develop = Callable[..., Session]


@pytest.fixture
def here(tmp_path: Path) -> Shell:
    (tmp_path / "tools").mkdir()
    return Shell(tmp_path)


@pytest.fixture
def develop(here: Shell) -> Iterator[Develop]:
    started: list[Session] = []

    def start(*arguments: str) -> Session:
        started.append(Session(here, *arguments))
        return started[-1]

    yield start
    for session in started:
        session.process.kill()
        session.end()
        for stream in (session.process.stdout, session.process.stderr):
            assert stream is not None
            stream.close()


def test_each_edit_is_one_line_on_stdout_and_everything_else_is_on_stderr(
    here: Shell, develop: Develop
) -> None:
    file = here.folder / "tools" / "greet.py"
    (here.folder / "tools" / "other.py").write_text(GREET.replace("greet", "other"))
    session = develop()
    session.until("1 tool of tools")

    file.write_text(GREET)
    session.until(r"^\+")
    file.write_text(GREET.replace("Greet", "Greet again"))
    session.until("^~")
    file.unlink()
    session.until("^-")
    code = session.end()

    assert code == 0
    assert session.out[0] == "+ greet (dev)"
    assert re.fullmatch(r"~ greet \(dev\)  \d+ ms", session.out[1])
    assert session.out[2:] == ["- greet"]
    assert session.err == ["1 tool of tools; Ctrl-C ends it"]
    assert not (here.folder / "tools" / "_manifest.json").exists()


def test_a_signal_ends_it_well(here: Shell, develop: Develop) -> None:
    (here.folder / "tools" / "greet.py").write_text(GREET)
    session = develop()
    session.until("1 tool")

    code = session.end(signal.SIGTERM)

    assert code == 0
    assert len(session.err) == 1


def test_a_missing_folder_waits_for_the_first_tool(here: Shell, develop: Develop) -> None:
    tools = here.folder / "tools"
    tools.rmdir()
    session = develop()
    session.until("^waiting: ")

    tools.mkdir()
    (tools / "greet.py").write_text(GREET)
    session.until(re.escape("+ greet (dev)"))

    assert session.end() == 0


def test_errors_and_missing_rights_are_shown_with_relative_paths(
    here: Shell, develop: Develop
) -> None:
    (here.folder / "toolkiln.toml").write_text('[grants.fetch]\nnetwork = ["example.com"]\n')
    file = here.folder / "tools" / "greet.py"
    file.write_text("def greet(:\n")
    session = develop()
    session.until("fix:")
    at_start = list(session.out)

    file.write_text(GREET)
    session.until(r"^\+ greet")
    (here.folder / "tools" / "fetch.py").write_text(ASKING)
    missing = session.until("not granted")
    file.write_text("def again(:\n")
    session.until("def again")
    session.end()

    checked = here.run("check").out.splitlines()
    assert at_start[0].startswith("tools/greet.py:1")
    assert missing == "  fetch is not granted network api.example.org, workspace write"
    assert next(line for line in session.out if "again" in line) in checked
    assert "- greet" not in session.out


def test_a_manifest_that_was_tampered_with_is_reported_with_what_to_do(
    here: Shell, develop: Develop
) -> None:
    (here.folder / "tools" / "greet.py").write_text(GREET)
    manifest = here.folder / "tools" / "_manifest.json"
    assert here.run(*ADMITTED).code == 0
    good = manifest.read_bytes()
    session = develop()
    session.until("1 tool")

    manifest.write_bytes(good.replace(b'"format": 1', b'"format": 2'))
    session.until(re.escape("~ greet (dev)"))
    finding = session.until("manifest-unusable")
    fix = session.until("fix:")
    manifest.write_bytes(good)
    session.until(re.escape("~ greet (v1)"))

    assert finding.startswith("tools/_manifest.json:")
    assert "toolkiln admit --reset" in fix


def test_tools_are_served_as_they_are_edited_and_nothing_is_admitted(
    here: Shell, develop: Develop
) -> None:
    file = here.folder / "tools" / "greet.py"
    manifest = file.with_name("_manifest.json")
    file.write_text(GREET)
    assert here.run(*ADMITTED).code == 0
    sealed = manifest.read_bytes()
    session = develop("--port", "0")
    url = re.sub("^MCP +(.*)/mcp$", r"\1", session.until("^MCP"))

    with urlopen(f"{url}/v1/tools/greet") as answer:
        before = json.load(answer)
    file.write_text(GREET.replace("Greet", "Greet again"))
    session.until(r"^~ greet")
    with urlopen(f"{url}/v1/tools/greet") as answer:
        after = json.load(answer)
    code = session.end()

    assert code == 0
    assert (before["dev"], before["version"], before["description"]) == (False, 1, "Greet.")
    assert (after["dev"], after["version"], after["description"]) == (True, None, "Greet again.")
    assert manifest.read_bytes() == sealed
    assert len(here.invoke("history", "greet", "--json").json()) == 1
    assert session.err[2].startswith(f"Page {url}/ui/login?token=")
    assert [*session.err[:2], *session.err[3:]] == [
        "1 tool of tools; Ctrl-C ends it",
        "auth: anonymous callers allowed (127.0.0.1, no API keys)",
        "     (this link signs you in, once; keep it private)",
        f"HTTP {url}/v1, described at {url}/docs",
        f"MCP  {url}/mcp",
    ]


def test_a_port_that_is_taken_is_left_to_its_owner(here: Shell, develop: Develop) -> None:
    (here.folder / "tools" / "greet.py").write_text(GREET)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (here.folder / "toolkiln.toml").write_text(f"port = {port}\n")
        session = develop("--tools", "tools")
        note = session.until("^note")
        url = session.until("^HTTP")
        named = here.run("dev", "--port", str(port))

    assert note.startswith(f"note: cannot listen on 127.0.0.1 port {port}")
    assert f":{port}/" not in url
    assert named.code == 2


def test_a_reader_that_goes_ends_it_without_a_traceback(here: Shell) -> None:
    reading, writing = os.pipe()
    (here.folder / "tools" / "greet.py").write_text(GREET)
    process = subprocess.Popen(
        [COMMAND, "dev", "--port", "0"],
        cwd=here.folder, env=here.environ(), stdout=writing, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writing)
    with process:
        assert process.stderr is not None
        talk = process.stderr.readline()
        os.close(reading)
        (here.folder / "tools" / "greet.py").unlink()
        code = process.wait(BOUND)
        talk += process.stderr.read()

    assert code > 0
    assert "Traceback" not in talk


def test_as_a_plain_function_it_ends_with_ctrl_c_on_a_terminal(here: Shell) -> None:
    (here.folder / "tools" / "greet.py").write_text(GREET)
    code = "from toolkiln.surfaces.cli.serve import dev; dev()"
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=here.folder, env=here.environ(), stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True, preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        os.close(slave)
        seen = b""
        while b"Ctrl-C" not in seen:
            seen += os.read(master, 4096)
        process.send_signal(signal.SIGINT)
        status = process.wait(BOUND)
    os.close(master)

    assert status == 0
    assert b"Traceback" not in seen


BROWSER = f"""#!{sys.executable}
import http.client, os, pathlib, re, sys, urllib.parse

file = pathlib.Path(urllib.parse.urlsplit(sys.argv[1]).path)
link = urllib.parse.urlsplit(re.search('url=(http[^"]+)', file.read_text())[1])
token = link.query.removeprefix("token=").encode()
assert len(token) > 40
lines = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
modes = [oct(path.stat().st_mode & 0o777)[2:] for path in (file, file.parent)]
connection = http.client.HTTPConnection(link.netloc)
connection.request("GET", link.path + "?" + link.query)
led = connection.getresponse().headers["location"]
print("opened", sys.argv[1], flush=True)
leaks = sum(token in line for line in lines)
print("modes", *modes, end=f", in {{leaks}} command lines, to {{led}}\\n", flush=True)
"""
"""Opens the address that it is given as a browser would, and looks where the token is."""


@pytest.mark.parametrize("option", [None, "--no-open"])
def test_on_a_desktop_the_page_opens_unless_an_option_forbids_it(
    tmp_path: Path, option: str | None
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "greet.py").write_text(GREET)
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    desktop = Shell(tmp_path, {"DISPLAY": ":4711", "BROWSER": f"{browser} %s"})
    options = ("--port", "0", *([option] if option else []))
    marker = b"MCP " if option else b"to /ui/"

    code, said = desktop.typed([(marker, b"\x03")], "dev", *options)

    assert code == 0
    assert ("opened " in said) == (option is None)
    if option is None:
        assert "modes 600 700, in 0 command lines, to /ui/" in said
        file = re.search(r"opened file://(\S+)", said)
        assert file is not None
        assert not Path(file[1]).parent.exists()
