"""Whom commands in front of a fleet act for: keys are in the store, sessions in Redis."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolkiln.surfaces.cli.app import app

from .contract_tools import SETTINGS, SOURCE
from .servers import Server
from .workers import until, worker

FLEET_COMMANDS = (
    "fleet status", "fleet drain --pool none", "fleet reload", "fleet dead-letters list",
    "fleet dead-letters retry --all", "fleet dead-letters drop --all",
)  # fmt: skip
RunAs = Callable[..., Result]


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
def run(contract_fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunAs:
    """Run a command in front of the fleet, in a folder without tools."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKILN_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TOOLKILN_FLEET", contract_fleet)

    def invoke(*arguments: str, **variables: str) -> Result:
        return CliRunner().invoke(app, arguments, env={**os.environ, **variables})

    return invoke


def made(run: RunAs, *arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def loaded(done: Result) -> Any:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", ["list", "call add left=1", "task list", *FLEET_COMMANDS])
@pytest.mark.parametrize(
    "wrong", [{"TOOLKILN_TOKEN": "ts_unknown"}, {"TOOLKILN_API_KEY": "tk_unknown"}]
)
def test_a_wrong_credential_is_refused(run: RunAs, command: str, wrong: dict[str, str]) -> None:
    done = run(*command.split(), **wrong)

    assert (done.exit_code, done.stdout) == (2, "")
    assert next(iter(wrong)) in done.stderr
    assert "unknown" in done.stderr


@pytest.mark.parametrize("command", FLEET_COMMANDS)
def test_looking_after_a_fleet_takes_admin(run: RunAs, command: str) -> None:
    bob = made(run, "sessions", "create", "bob")

    done = run(*command.split(), TOOLKILN_TOKEN=bob)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "bob may not do this: it requires the privilege ADMIN" in done.stderr


@pytest.mark.parametrize("how", ["token", "key"])
def test_a_call_runs_at_the_worker_for_the_user(run: RunAs, how: str) -> None:
    if how == "token":
        acting = {"TOOLKILN_TOKEN": made(run, "sessions", "create", "carol")}
    else:
        acting = {"TOOLKILN_API_KEY": made(run, "keys", "create", "k", "--user", "carol")}

    called = run("call", "count_runs", "--json", **acting)
    begun = run("call", "count_runs", "--id", f"carols-{how}", "--background", **acting)
    ended = run("task", "await", f"carols-{how}", "--json", **acting)

    assert loaded(called)["value"]["user"] == "carol"
    assert begun.exit_code == 0, begun.stderr
    assert loaded(ended)["result"]["value"]["user"] == "carol"
    assert run("task", "check", f"carols-{how}").exit_code == 2


def test_an_administrator_looks_after_a_fleet(run: RunAs) -> None:
    key = made(run, "keys", "create", "k", "--user", "ann", "--privilege", "ADMIN")

    state = loaded(run("fleet", "status", "--json", TOOLKILN_API_KEY=key))

    assert len(state["workers"]) == 1


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_an_approval_is_recorded_for_the_person_who_gave_it(run: RunAs, answer: str) -> None:
    bob = made(run, "keys", "create", "b", "--user", "bob")
    ann = made(run, "keys", "create", "a", "--user", "ann", "--privilege", "APPROVE")
    call_id = f"bobs-{answer}"
    run("call", "delete_all", "what=x", "--id", call_id, "--background", TOOLKILN_API_KEY=bob)

    def asked() -> list[Any]:
        listed = loaded(run("approvals", "list", "--json", TOOLKILN_API_KEY=ann))
        return [one for one in listed if one["call_id"] == call_id]

    waiting = until(asked)

    done = run("approvals", answer, waiting[0]["id"], TOOLKILN_API_KEY=ann)

    assert done.exit_code == 0, done.stderr
    shown = loaded(run("approvals", "show", waiting[0]["id"], "--json", TOOLKILN_API_KEY=bob))
    assert (shown["user"], shown["decided_by"]) == ("bob", "ann")
    (record,) = loaded(run("audit", "list", f"--act={answer}", "--outcome=ok", "--json"))
    assert (record["user"], record["call_id"]) == ("ann", call_id)
    run("task", "await", call_id, TOOLKILN_API_KEY=bob)
