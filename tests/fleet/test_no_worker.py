"""A fleet that never had a worker: every way in answers `no_worker`."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import pytest
from mcp import Client
from typer.testing import CliRunner

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import BackendError
from toolkiln.model.call import Status
from toolkiln.surfaces.cli.app import app

from .servers import Server
from .workers import BOUND, code_of, tools_folder, worker

MESSAGE = "no worker has joined the fleet at "
HINT = "start one on a machine with the tools: `toolkiln worker --redis URL`"
ADD = '''
def add(left: int, right: int = 2) -> int:
    """Add two whole numbers, and return their sum."""
    return left + right
'''


def own_function(number: int) -> int:
    """Add one to a number, and return the sum."""
    return number + 1


async def test_without_a_worker_only_functions_and_built_in_tools_run_until_one_joins(
    server: Server, tmp_path: Path
) -> None:
    url, settings = server.url, Settings(state=tmp_path / "state")
    stranger = Settings(state=tmp_path / "stranger", fleet_key="another")

    async with Kiln.connect(url, functions=[own_function], settings=settings) as kiln:
        before = await kiln.call("add", {"left": 1})
        with pytest.raises(BackendError) as raised:
            kiln.tool("add")
        own = await kiln.call("own_function", {"number": 1})
        found = await kiln.call("search_tools", {"query": "anything"})
        with worker(url, tools_folder(tmp_path, add=ADD)):
            async for change in kiln.services.watch():
                if "add" in change.added:
                    break
            after = await kiln.call("add", {"left": 1})
            unknown = await kiln.call("subtract", {"left": 1})
            async with Kiln.connect(url, settings=stranger) as other:
                unseen = await other.call("add", {"left": 1})

    assert before.status is Status.UNAVAILABLE
    assert before.error is not None
    assert (before.error.code, before.error.hint) == ("no_worker", HINT)
    assert before.error.message.startswith(MESSAGE)
    assert before.error.retryable
    assert raised.value.code == "no_worker"
    assert (own.value, found.status) == (2, Status.OK)
    assert (after.status, after.value) == (Status.OK, 3)
    # Neither a missing tool nor another fleet key is taken for a missing worker.
    assert code_of(unknown) == code_of(unseen) == "unknown_tool"


def test_commands_say_that_no_worker_has_joined(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKILN_STATE", str(tmp_path / "state"))
    called, shown, listed, found = (
        CliRunner().invoke(app, [*command.split(), "--redis", server.url])
        for command in ("call --json add left=1", "show add", "list --json", "search sum")
    )

    assert (called.exit_code, shown.exit_code) == (3, 3)
    assert json.loads(called.stdout)["error"]["code"] == "no_worker"
    assert MESSAGE in shown.stderr
    assert f"hint: {HINT}" in shown.stderr
    assert (listed.exit_code, json.loads(listed.stdout)) == (0, [])
    for done in (listed, found):
        assert f"note: {MESSAGE}" in done.stderr
        assert f"note: {HINT}" in done.stderr


async def test_a_server_answers_no_worker_over_http_and_mcp(server: Server, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "toolkiln", "serve", "--redis", server.url, "--port", "0"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TOOLKILN_STATE": str(tmp_path / "state")},
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            said = ""
            while not (front := re.search(r"^HTTP (\S+)/v1", said, re.M)):
                line = process.stderr.readline()
                assert line, said
                said += line
            with closing(httpx.Client(base_url=front[1], timeout=BOUND, trust_env=False)) as client:
                listed = client.get("/v1/tools")
                refused = [client.get(f"/v1/tools/add{part}") for part in ("", "/versions")]
                called = client.post("/v1/tools/add/call", json={"arguments": {"left": 1}})
            async with Client(f"{front[1]}/mcp") as mcp:
                result = await mcp.call_tool("add", {"left": 1})
        finally:
            process.kill()

    assert f"note: {MESSAGE}" in said
    assert (listed.status_code, listed.json()["items"]) == (200, [])
    for response in refused:
        assert (response.status_code, response.json()["code"]) == (503, "no_worker")
    assert called.json()["status"] == "unavailable"
    assert called.json()["error"]["code"] == "no_worker"
    assert result.is_error
    assert MESSAGE in str(result.content)
