"""Commands and servers in front of a fleet: `--redis`, and the setting that says the same."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from typer.testing import CliRunner, Result

from toolkiln.surfaces.cli import app

from .contract_tools import SETTINGS, SOURCE, WRITTEN
from .servers import Server
from .workers import BOUND, worker

COMMAND = [sys.executable, "-m", "toolkiln.surfaces.cli"]
ACCEPT = {"accept": "application/json, text/event-stream"}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.fixture(scope="module")
def fleet(shared_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a fleet with one worker."""
    with closing(shared_server.client()) as client:
        client.flushall()
    folder = tmp_path_factory.mktemp("worker")
    (folder / "tools").mkdir()
    (folder / "tools" / "contract.py").write_text(SOURCE, "utf-8")
    (folder / "toolkiln.toml").write_text(SETTINGS, "utf-8")
    with worker(shared_server.url, folder / "tools"):
        yield shared_server.url


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without tools, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKILN_STATE", str(tmp_path / "state"))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.usefixtures("here")
def test_commands_use_the_tools_of_a_fleet(fleet: str) -> None:
    listed = run("list", "--json", "--redis", fleet)
    shown = run("show", "add", "--as", "schema", "--redis", fleet)
    found = run("search", "sum of two numbers", "--redis", fleet)
    called = run("call", "add", "left=40", "--redis", fleet)

    assert {"add", "divide"} <= {tool["name"] for tool in json.loads(listed.stdout)}
    assert json.loads(shown.stdout)["required"] == ["left"]
    assert "add" in found.stdout
    assert (called.exit_code, called.stdout) == (0, "42\n")


@pytest.mark.usefixtures("here")
def test_a_call_that_is_wrong_ends_as_it_does_over_a_folder(fleet: str) -> None:
    unknown = run("call", "ad", "--redis", fleet)
    failing = run("call", "divide", "dividend=1", "divisor=0", "--redis", fleet)

    assert unknown.exit_code == 2
    assert "did you mean 'add'?" in unknown.stderr
    assert failing.exit_code == 1
    assert "nothing can be divided by 0" in failing.stderr


@pytest.mark.usefixtures("here")
def test_the_setting_says_the_same_to_all_commands(
    fleet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKILN_FLEET", fleet)

    begun = run("call", "last", "seconds=0.3", "--background")
    ended = run("task", "await", begun.stdout.strip())
    page = run("docs", "show", "add")

    assert (begun.exit_code, ended.exit_code, ended.stdout) == (0, 0, "lasted\n")
    assert "Add two whole numbers" in page.stdout


def test_named_tools_are_those_of_a_folder(
    fleet: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "mine.py").write_text(WRITTEN, "utf-8")
    monkeypatch.setenv("TOOLKILN_FLEET", fleet)

    checked = run("show", "triple", "--tools", "mine.py")
    both = run("call", "triple", "number=2", "--tools", "mine.py", "--redis", fleet)

    assert checked.exit_code == 0, checked.stderr
    assert both.exit_code == 2
    assert "drop --tools" in both.stderr


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("url", "status", "said"),
    [("redis://127.0.0.1:1", 3, "is the server running"), ("http://x", 2, "redis://HOST")],
)
def test_a_fleet_that_is_not_there_is_said_so(url: str, status: int, said: str) -> None:
    result = run("call", "add", "left=1", "--redis", url)

    assert result.exit_code == status
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def client(fleet: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of `toolkiln serve` in front of a fleet."""
    folder = tmp_path_factory.mktemp("front")
    with subprocess.Popen(
        [*COMMAND, "serve", "--redis", fleet, "--port", "0"],
        cwd=folder, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TOOLKILN_STATE": str(folder / "state")},
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            said: list[str] = []
            while not (found := re.match(r"HTTP (\S+)/v1", (said or [""])[-1])):
                line = process.stderr.readline()
                assert line, said
                said.append(line)
            assert f"of {fleet}/0" in said[0]
            with httpx.Client(base_url=found[1], timeout=BOUND) as opened:
                yield opened
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait(BOUND) == 0
        finally:
            process.kill()


def test_a_server_offers_a_fleet_over_http_and_mcp(client: httpx.Client) -> None:
    ready = client.get("/readyz").json()
    tools = client.get("/v1/tools").json()["items"]
    details = client.get("/v1/tools/add").json()
    called = client.post("/v1/tools/add/call", json={"arguments": {"left": 40}}).json()
    sent = client.post("/v1/tools/send_out/call", json={}).json()
    refused = client.post("/v1/run", json={"source": WRITTEN, "arguments": {"number": 1}})
    metrics = client.get("/metrics").text
    over_mcp = mcp_call(client, "add", {"left": 1})
    versions = client.get("/v1/tools/add/versions")

    assert ready == {
        "ready": True,
        "checks": {"catalog": "ok", "store": "ok", "fleet": "ok", "server": "ok"},
    }
    assert "add" in {tool["name"] for tool in tools}
    assert details["parameters"]["required"] == ["left"]
    assert (called["status"], called["value"]) == ("ok", 42)
    assert (sent["injected_tools"], len(sent["files"])) == (["add"], 1)
    assert refused.status_code == 400
    assert 'toolkiln_tool_calls_total{outcome="ok",surface="http",tool="add"} 1.0' in metrics
    assert over_mcp["result"]["structuredContent"] == {"result": 3}
    assert versions.status_code == 400
    assert "worker" in versions.json()["detail"]


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_clients_of_both_eras_are_asked_by_tools_of_a_fleet(
    client: httpx.Client, era: str
) -> None:
    forms: list[Any] = []

    async def fill_in(context: Any, params: Any) -> ElicitResult:
        forms.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with Client(f"{client.base_url}/mcp", mode=era, elicitation_callback=fill_in) as asked:
        given = await asked.call_tool("introduce", {})
    async with Client(f"{client.base_url}/mcp", mode=era) as mute:
        refused = mute.call_tool("introduce", {})
        if era == "legacy":
            told = (await refused).content[0].text  # type: ignore[union-attr]
        else:
            with pytest.raises(MCPError) as raised:
                await refused
            told = str(raised.value)

    values = ["accept", {"name": "Ada", "age": 7}, [True, False, False]]
    assert given.structured_content == {"result": values}
    assert forms == ["Who are you?"]
    assert "it does not declare elicitation" in told


def test_a_tool_is_written_over_http_and_called_at_once(client: httpx.Client) -> None:
    written = client.put("/v1/tools/triple", json={"source": WRITTEN})
    called = client.post("/v1/tools/triple/call", json={"arguments": {"number": 2}}).json()

    assert written.status_code in (200, 201), written.text
    assert called["value"] == 6


def mcp_call(client: httpx.Client, tool: str, arguments: dict[str, Any]) -> Any:
    """The answer to a call over MCP."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    hello = client.post("/mcp", json=body, headers=ACCEPT)
    headers = {**ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
    client.post(
        "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers
    )
    asked = {**body, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    text = client.post("/mcp", json=asked, headers=headers).text
    return json.loads(text if text.startswith("{") else text.rpartition("data: ")[2])


def test_mcp_clients_start_a_process_in_front_of_a_fleet(fleet: str, here: Path) -> None:
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"left": 40}},
        },
    ]
    with subprocess.Popen(
        [*COMMAND, "mcp", "--redis", fleet],
        cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for request in requests:
                process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answers = (json.loads(line) for line in process.stdout)
            answer = next(one for one in answers if one.get("id") == 2)
            process.stdin.close()
            assert process.wait(BOUND) == 0
        finally:
            process.kill()

    assert answer["result"]["structuredContent"] == {"result": 42}
