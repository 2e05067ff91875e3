"""A running `toolkiln serve`, and a client that can send anything to it."""

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from ..conftest import BOUND, Shell

TOOLS = '''import time
from pathlib import Path

from toolkiln import Context, tool


@tool(read_only=True)
def greet(name: str) -> str:
    """Greet a person by name."""
    return f"Hello {name}"


@tool(read_only=True)
def repeat(text: str, times: int) -> list[str]:
    """Give back a text so many times."""
    return [text] * times


@tool(read_only=True)
def announce(name: str, ctx: Context) -> str:
    """Greet a person by another tool, loudly."""
    return ctx.call("greet", name=name).upper()


@tool(workspace="write")
def linger(name: str, seconds: float) -> str:
    """Leave a line in a file, wait, and leave another one."""
    with Path(f"/workspace/{name}").open("a") as file:
        file.write("begun\\\\n")
        file.flush()
        time.sleep(seconds)
        file.write("ended\\\\n")
    return "done"
'''.replace("\\\\n", "\\n")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""In every request of an MCP client of 2026-07-28."""
SETTINGS = '[grants.linger]\nworkspace = "write"\n'


class Served:
    """A server in a process of its own."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.shell = shell
        self.process = shell.start("serve", "--port", "0", *arguments)
        self.err: list[str] = []
        self.start_up = ""
        """The newest start-up token."""
        self.token = ""
        """The session of the local person, who signed in with the start-up link."""
        self._has_url = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._has_url.wait(BOUND) or self.process.poll() is not None:
            raise AssertionError(self.end() or self.err)
        if self.start_up:
            answer = self.ask_plainly("GET", f"/ui/login?token={self.start_up}")
            assert answer.status == 303, answer.text
            self.token = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.err.append(line.rstrip("\n"))
            if found := re.search(r"/ui/login\?token=(\S+)", line):
                self.start_up = found[1]
            if found := re.match(r"MCP  http://(.+):(\d+)/mcp", line):  # the last that it says
                self.host, self.port = found[1].strip("[]"), int(found[2])
                self._has_url.set()
        self._has_url.set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(BOUND)
        self._reader.join(BOUND)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def connect(self) -> socket.socket:
        """A connection, for bytes that are no correct HTTP."""
        return socket.create_connection((self.host, self.port), timeout=BOUND)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Answer":
        """One request on a connection of its own, by default the local person's."""
        given = bearer(self.token) if self.token else {}
        return self.ask_plainly(method, path, body, {**given, **(headers or {})})

    def ask_plainly(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Answer":
        """One request with these headers only: an anonymous caller's, if there is no credential."""
        connection = HTTPConnection(self.host, self.port, timeout=BOUND)
        try:
            given = dict(headers or {})
            data = body
            if body is not None and not isinstance(body, bytes):
                data = json.dumps(body)
                given.setdefault("Content-Type", "application/json")
            before = self.start_up
            connection.request(method, path, data, given)
            answer = Answer(connection.getresponse())
        finally:
            connection.close()
        if before and path.endswith(f"?token={before}") and "set-cookie" in answer.headers:
            until(lambda: self.start_up != before, "the next link")  # each works once
        return answer

    def call(self, tool: str, headers: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """The Result of a call."""
        path = f"/v1/tools/{tool}/call"
        return self.ask("POST", path, {"arguments": arguments}, headers).json()

    def call_over_mcp(
        self, tool: str, meta: Mapping[str, str], *, anonymous: bool = False, **arguments: Any
    ) -> Any:
        """What a client of 2026-07-28 gets, in one request."""
        params = {"name": tool, "arguments": arguments, "_meta": META | dict(meta)}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        ask = self.ask_plainly if anonymous else self.ask
        text = ask("POST", "/mcp", body, headers).text
        return json.loads(text.rpartition("data: ")[2])

    def written(self, name: str) -> str:
        """What calls wrote to a file of the workspace that all from this machine share."""
        files = (self.shell.folder / "state" / "workspaces").glob(f"default-*/files/{name}")
        return "".join(file.read_text() for file in files)

    def metric(self, line: str) -> float:
        """The value of a series."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.ask("GET", "/metrics").text, re.M)
        return float(found[1]) if found else 0.0

    def peak(self) -> int:
        """Bytes that the server has used at most."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.M)
        assert found is not None
        return int(found[1]) * 1024

    def descriptors(self) -> int:
        """How many the server has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


class Answer:
    """What came back."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem."""
        assert self.headers["content-type"] == "application/problem+json"
        found = self.json()
        assert found["status"] == self.status
        return str(found["code"])


def bearer(key: str) -> dict[str, str]:
    """The header of a caller with a key."""
    return {"Authorization": f"Bearer {key}"}


def make_keys(shell: Shell, *users: str) -> list[str]:
    """API keys of users, without privileges."""
    created = (shell.invoke("keys", "create", user, "--user", user) for user in users)
    return [done.out.strip() for done in created]


def make_shell(folder: Path, settings: str = SETTINGS, **variables: str) -> Shell:
    """A folder with tools to be served."""
    (folder / "tools").mkdir()
    (folder / "tools" / "tools.py").write_text(TOOLS)
    (folder / "toolkiln.toml").write_text(settings)
    return Shell(folder, variables)


@contextmanager
def serving(shell: Shell, *arguments: str) -> Iterator[Served]:
    """A server that ends with the block."""
    served = Served(shell, *arguments)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
            served.wait()


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait for something, with a bound."""
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def received(connection: socket.socket) -> bytes:
    """Everything that comes until the other side closes."""
    found = b""
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found
