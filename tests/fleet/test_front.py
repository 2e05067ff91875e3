"""Commands and servers in front of a fleet: `--redis`, and the setting that says the same."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from typer.testing import CliRunner, Result

from tables import each_row
from toolkiln.surfaces.cli.app import app

from .contract_tools import WRITTEN
from .workers import BOUND, until

COMMAND = [sys.executable, "-m", "toolkiln.surfaces.cli"]
HALVE = '''
def halve(number: float) -> float:
    """Halve a number."""
    return number / 2
'''
RunAs = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without tools, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKILN_STATE", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def run_as(contract_fleet: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> RunAs:
    """Run a command in front of the fleet that the settings name."""
    monkeypatch.setenv("TOOLKILN_FLEET", contract_fleet)
    return run


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, arguments, env={**os.environ, **variables})


def loaded(done: Result) -> Any:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.usefixtures("here")
def test_commands_use_the_tools_of_a_fleet(contract_fleet: str) -> None:
    listed, shown, found, called, unknown, failing = (
        run(*command, "--redis", contract_fleet)
        for command in (
            ("list", "--json"),
            ("show", "add", "--as", "schema"),
            ("search", "sum of two numbers"),
            ("call", "add", "left=40"),
            ("call", "ad"),
            ("call", "divide", "dividend=1", "divisor=0"),
        )
    )

    assert {"add", "divide"} <= {tool["name"] for tool in loaded(listed)}
    assert loaded(shown)["required"] == ["left"]
    assert "add" in found.stdout
    assert (called.exit_code, called.stdout) == (0, "42\n")
    assert (unknown.exit_code, failing.exit_code) == (2, 1)
    assert "did you mean 'add'?" in unknown.stderr
    assert "nothing can be divided by 0" in failing.stderr


def test_the_setting_says_the_same_to_all_commands_but_for_named_tools(
    run_as: RunAs, here: Path, contract_fleet: str
) -> None:
    (here / "mine.py").write_text(WRITTEN, "utf-8")

    begun = run_as("call", "last", "seconds=0.3", "--background")
    ended = run_as("task", "await", begun.stdout.strip())
    page = run_as("docs", "show", "add")
    named = run_as("show", "triple", "--tools", "mine.py")
    both = run_as("call", "triple", "number=2", "--tools", "mine.py", "--redis", contract_fleet)

    assert (begun.exit_code, ended.exit_code, ended.stdout) == (0, 0, "lasted\n")
    assert "Add two whole numbers" in page.stdout
    assert named.exit_code == 0, named.stderr
    assert both.exit_code == 2
    assert "drop --tools" in both.stderr


@pytest.mark.usefixtures("here")
@each_row(
    "url, status, said",
    [("redis://127.0.0.1:1", 3, "the server is running"), ("http://x", 2, "redis://HOST")],
)
def test_a_fleet_that_cannot_be_reached_is_an_error(url: str, status: int, said: str) -> None:
    result = run("call", "add", "left=1", "--redis", url)

    assert result.exit_code == status
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def client(contract_fleet: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of `toolkiln serve` in front of a fleet."""
    folder = tmp_path_factory.mktemp("front")
    with subprocess.Popen(
        [*COMMAND, "serve", "--redis", contract_fleet, "--port", "0"],
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
            assert f"of {contract_fleet}/0" in said[0]
            link = next(line for line in said if line.startswith("Page ")).split()[1]
            with httpx.Client(base_url=found[1], timeout=BOUND) as opened:
                assert opened.get(link).status_code == 303  # the client keeps the cookie
                opened.headers["X-Toolkiln-Page"] = "1"
                yield opened
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait(BOUND) == 0
        finally:
            process.kill()


def test_a_server_offers_a_fleet_over_http(client: httpx.Client) -> None:
    ready = client.get("/readyz").json()
    tools = client.get("/v1/tools").json()["items"]
    details = client.get("/v1/tools/add").json()
    called = client.post("/v1/tools/add/call", json={"arguments": {"left": 40}}).json()
    sent = client.post("/v1/tools/send_out/call", json={}).json()
    metrics = client.get("/metrics").text

    assert ready == {
        "ready": True,
        "checks": {"catalog": "ok", "store": "ok", "fleet": "ok", "server": "ok"},
    }
    assert "add" in {tool["name"] for tool in tools}
    assert details["parameters"]["required"] == ["left"]
    assert (called["status"], called["value"]) == ("ok", 42)
    assert (sent["injected_tools"], len(sent["files"])) == (["add"], 1)
    assert 'toolkiln_tool_calls_total{outcome="ok",surface="http",tool="add"} 1.0' in metrics


def test_a_call_at_a_worker_is_watched_and_stopped_from_the_front(client: httpx.Client) -> None:
    lasting = {"arguments": {"seconds": 100}, "background": True}
    task = client.post("/v1/tools/last/call", json=lasting).json()
    place = f"/v1/runs/{task['id']}"

    before = client.get(place).json()
    after = client.post(f"{place}/cancel").json()
    ended = client.get(f"/v1/calls/{task['id']}", params={"wait": 60}).json()

    assert (before["tool"], before["status"], before["surface"]) == ("last", "running", "http")
    assert before["caller"] == after["caller"] != ""
    assert after["status"] == ended["result"]["status"] == "cancelled"


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_clients_of_both_eras_are_asked_by_tools_of_a_fleet(
    client: httpx.Client, era: str
) -> None:
    forms: list[Any] = []

    async def fill_in(context: Any, params: Any) -> ElicitResult:
        forms.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with Client(f"{client.base_url}/mcp", mode=era, elicitation_callback=fill_in) as asked:
        added = await asked.call_tool("add", {"left": 1})
        given = await asked.call_tool("introduce", {})
    async with Client(f"{client.base_url}/mcp", mode=era) as mute:
        refused = mute.call_tool("introduce", {})
        if era == "legacy":
            text = (await refused).content[0].text  # type: ignore[union-attr]
        else:
            with pytest.raises(MCPError) as raised:
                await refused
            text = str(raised.value)

    values = ["accept", {"name": "Ada", "age": 7}, [True, False, False]]
    assert added.structured_content == {"result": 3}
    assert given.structured_content == {"result": values}
    assert forms == ["Who are you?"]
    assert "it does not declare elicitation" in text


def test_tools_are_changed_over_http(client: httpx.Client) -> None:
    place, better = "/v1/tools/halve", HALVE.replace("number / 2", "number * 0.5")

    made = client.put(place, json={"source": HALVE}, headers={"if-none-match": "*"})
    called = client.post(f"{place}/call", json={"arguments": {"number": 3}})
    late = client.put(place, json={"source": better}, headers={"if-match": '"0000"'})
    changed = client.put(place, json={"source": better}, headers={"if-match": made.headers["etag"]})
    off = client.patch(place, json={"enabled": False})
    seen, listed = client.get(place), client.get("/v1/tools", params={"enabled": "false"})
    client.patch(place, json={"enabled": True})
    back = client.post(f"{place}/rollback", json={"version": 1})
    shown = client.get(f"{place}/versions/2", params={"since": "1"})
    gone, missing = client.delete(place), client.get(place)

    assert (made.status_code, called.json()["value"]) == (201, 1.5)
    assert (late.status_code, changed.status_code, missing.status_code) == (412, 200, 404)
    assert (off.json()["enabled"], off.json()["version"]) == (False, 2)
    assert (seen.json()["enabled"], seen.json()["file"]) == (False, "halve.py")
    assert [tool["name"] for tool in listed.json()["items"]] == ["halve"]
    assert (back.status_code, back.headers["etag"]) == (200, made.headers["etag"])
    assert "+    return number * 0.5" in shown.json()["diff"]
    assert gone.json()["tools"] == ["halve"]


def test_a_source_is_run_over_http_once_for_a_key_and_not_kept(client: httpx.Client) -> None:
    body, other = ({"source": HALVE, "arguments": {"number": number}} for number in (5, 7))
    key = {"idempotency-key": "halved"}

    events = client.post("/v1/run", json=body, headers={"accept": "text/event-stream"})
    wrong = client.post("/v1/run", json={"source": "x = 1"})
    read = client.post("/v1/schema", json={"source": HALVE})
    first, again, reused = (
        client.post("/v1/run", json=given, headers=key) for given in (body, body, other)
    )

    assert "event: result" in events.text
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "the source declares no tool")
    assert read.json()["tools"][0]["name"] == "halve"
    assert (first.json()["tool"], first.json()["value"]) == ("halve", 2.5)
    assert first.json()["timing"] == again.json()["timing"]
    assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
    assert client.get("/v1/tools/halve").status_code == 404


def test_a_request_without_the_privilege_is_refused_by_the_worker(client: httpx.Client) -> None:
    made = client.post("/v1/sessions", json={"user_id": "ann"}).json()["token"]
    ann = {"authorization": f"Bearer {made}"}

    proposed = client.put("/v1/tools/halve", json={"source": HALVE}, headers=ann)
    refused = client.patch("/v1/tools/add", json={"enabled": False}, headers=ann)
    unseen = client.get("/v1/tools/be_hidden/versions", headers=ann)

    assert (proposed.status_code, proposed.json()["proposed"]) == (202, True)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert (unseen.status_code, unseen.json()["code"]) == (404, "unknown_tool")


async def test_mcp_clients_start_a_process_in_front_of_a_fleet(
    contract_fleet: str, here: Path
) -> None:
    own = {**os.environ, "TOOLKILN_STATE": str(here / "state")}
    arguments = [*COMMAND[1:], "mcp", "--redis", contract_fleet]
    process = StdioServerParameters(command=COMMAND[0], args=arguments, env=own, cwd=here)

    async with Client(stdio_client(process)) as client:
        called = await client.call_tool("add", {"left": 40})

    assert called.structured_content == {"result": 42}


# Identities: keys are in the store, sessions in Redis


FLEET_COMMANDS = (
    "fleet status", "fleet drain --pool none", "fleet reload", "fleet dead-letters list",
    "fleet dead-letters retry --all", "fleet dead-letters drop --all",
)  # fmt: skip


def made(run_as: RunAs, *arguments: str) -> str:
    done = run_as(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


@each_row(
    "variable, secret", [("TOOLKILN_TOKEN", "ts_unknown"), ("TOOLKILN_API_KEY", "tk_unknown")]
)
def test_a_wrong_credential_is_refused(run_as: RunAs, variable: str, secret: str) -> None:
    for command in ("list", "call add left=1", "task list", *FLEET_COMMANDS):
        done = run_as(*command.split(), **{variable: secret})

        assert (done.exit_code, done.stdout) == (2, ""), command
        assert variable in done.stderr
        assert "unknown" in done.stderr


def test_looking_after_a_fleet_takes_admin(run_as: RunAs) -> None:
    bob = made(run_as, "sessions", "create", "bob")
    ann = made(run_as, "keys", "create", "k", "--user", "ann", "--privilege", "ADMIN")

    refused = {command: run_as(*command.split(), TOOLKILN_TOKEN=bob) for command in FLEET_COMMANDS}
    state = loaded(run_as("fleet", "status", "--json", TOOLKILN_API_KEY=ann))

    for command, done in refused.items():
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert "bob may not do this: it requires the privilege ADMIN" in done.stderr
    assert len(state["workers"]) == 1


@pytest.mark.parametrize("how", ["token", "key"])
def test_a_call_runs_at_the_worker_for_the_user(run_as: RunAs, how: str) -> None:
    if how == "token":
        acting = {"TOOLKILN_TOKEN": made(run_as, "sessions", "create", "carol")}
    else:
        acting = {"TOOLKILN_API_KEY": made(run_as, "keys", "create", "k", "--user", "carol")}

    called = run_as("call", "count_runs", "--json", **acting)
    begun = run_as("call", "count_runs", "--id", f"carols-{how}", "--background", **acting)
    ended = run_as("task", "await", f"carols-{how}", "--json", **acting)

    assert loaded(called)["value"]["user"] == "carol"
    assert begun.exit_code == 0, begun.stderr
    assert loaded(ended)["result"]["value"]["user"] == "carol"
    assert run_as("task", "check", f"carols-{how}").exit_code == 2


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_an_approval_is_recorded_for_the_person_who_gave_it(run_as: RunAs, answer: str) -> None:
    bob = made(run_as, "keys", "create", "b", "--user", "bob")
    ann = made(run_as, "keys", "create", "a", "--user", "ann", "--privilege", "APPROVE")
    call_id = f"bobs-{answer}"
    run_as("call", "delete_all", "what=x", "--id", call_id, "--background", TOOLKILN_API_KEY=bob)

    def asked() -> list[Any]:
        listed = loaded(run_as("approvals", "list", "--json", TOOLKILN_API_KEY=ann))
        return [one for one in listed if one["call_id"] == call_id]

    waiting = until(asked)

    done = run_as("approvals", answer, waiting[0]["id"], TOOLKILN_API_KEY=ann)

    assert done.exit_code == 0, done.stderr
    shown = loaded(run_as("approvals", "show", waiting[0]["id"], "--json", TOOLKILN_API_KEY=bob))
    assert (shown["user"], shown["decided_by"]) == ("bob", "ann")
    (record,) = loaded(run_as("audit", "list", f"--act={answer}", "--outcome=ok", "--json"))
    assert (record["user"], record["call_id"]) == ("ann", call_id)
    run_as("task", "await", call_id, TOOLKILN_API_KEY=bob)
