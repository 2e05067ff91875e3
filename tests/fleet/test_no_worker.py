"""A fleet that never had a worker: every way in answers `no_worker`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import pytest
from mcp import Client
from typer.testing import CliRunner, Result

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import BackendError
from toolkiln.model.call import Status
from toolkiln.surfaces.cli.app import app

from .servers import Server
from .workers import BOUND, worker

MESSAGE = "no worker has joined the fleet at "
HINT = "start one on a machine with the tools: `toolkiln worker --redis URL`"
SOURCE = '''
def add(left: int, right: int = 2) -> int:
    """Add two whole numbers, and return their sum.

    Args:
        left: The first.
        right: The second.
    """
    return left + right
'''


@pytest.fixture
def kiln(server: Server, tmp_path: Path) -> Kiln:
    return Kiln.connect(server.url, settings=Settings(state=tmp_path / "state"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


async def test_call_in_python_ends_as_no_worker(kiln: Kiln) -> None:
    async with kiln:
        result = await kiln.call("add", {"left": 1})

    assert result.status is Status.UNAVAILABLE
    assert result.error is not None
    assert (result.error.code, result.error.hint) == ("no_worker", HINT)
    assert result.error.message.startswith(MESSAGE)
    assert result.error.retryable


async def test_looking_a_tool_up_raises_no_worker(kiln: Kiln) -> None:
    async with kiln:
        with pytest.raises(BackendError) as raised:
            kiln.tool("add")

        assert raised.value.code == "no_worker"
        assert kiln.tools("openai") == []


async def test_functions_and_built_in_tools_do_not_need_a_worker(
    server: Server, tmp_path: Path
) -> None:
    settings = Settings(state=tmp_path / "state")
    async with Kiln.connect(server.url, functions=[own_function], settings=settings) as kiln:
        own = await kiln.call("own_function", {"number": 1})
        found = await kiln.call("search_tools", {"query": "anything"})

    assert (own.status, own.value) == (Status.OK, 2)
    assert found.status is Status.OK


def own_function(number: int) -> int:
    """Add one to a number, and return the sum.

    Args:
        number: Which one.
    """
    return number + 1


async def test_tools_appear_in_a_waiting_front_once_a_worker_joins(
    kiln: Kiln, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "add.py").write_text(SOURCE, "utf-8")
    async with kiln:
        before = await kiln.call("add", {"left": 1})
        with worker(server.url, tmp_path / "tools"):
            async for change in kiln.services.watch():
                if "add" in change.added:
                    break
            after = await kiln.call("add", {"left": 1})
            unknown = await kiln.call("subtract", {"left": 1})

    assert before.error is not None
    assert before.error.code == "no_worker"
    assert (after.status, after.value) == (Status.OK, 3)
    assert unknown.error is not None
    assert unknown.error.code == "unknown_tool"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKILN_STATE", str(tmp_path / "state"))


@pytest.mark.usefixtures("here")
def test_commands_say_that_no_worker_has_joined(server: Server) -> None:
    called = run("call", "add", "left=1", "--redis", server.url)
    as_json = run("call", "--json", "add", "left=1", "--redis", server.url)
    shown = run("show", "add", "--redis", server.url)

    for done in (called, shown):
        assert done.exit_code == 3
        assert MESSAGE in done.stderr
        assert f"hint: {HINT}" in done.stderr
    assert as_json.exit_code == 3
    assert json.loads(as_json.stdout)["error"]["code"] == "no_worker"


@pytest.mark.usefixtures("here")
def test_lists_are_empty_with_a_note(server: Server) -> None:
    listed = run("list", "--json", "--redis", server.url)
    found = run("search", "sum", "--redis", server.url)

    assert (listed.exit_code, json.loads(listed.stdout)) == (0, [])
    for done in (listed, found):
        assert f"note: {MESSAGE}" in done.stderr
        assert f"note: {HINT}" in done.stderr


@pytest.fixture
def front(server: Server, tmp_path: Path) -> Iterator[str]:
    """The URL of `toolkiln serve` in front of the fleet."""
    with subprocess.Popen(
        [sys.executable, "-m", "toolkiln", "serve", "--redis", server.url, "--port", "0"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TOOLKILN_STATE": str(tmp_path / "state")},
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            said = ""
            while not (found := re.search(r"^HTTP (\S+)/v1", said, re.M)):
                line = process.stderr.readline()
                assert line, said
                said += line
            assert f"note: {MESSAGE}" in said
            yield found[1]
        finally:
            process.kill()


def test_http_answers_no_worker_at_once(front: str) -> None:
    with closing(httpx.Client(base_url=front, timeout=BOUND, trust_env=False)) as client:
        listed = client.get("/v1/tools")
        shown = client.get("/v1/tools/add")
        called = client.post("/v1/tools/add/call", json={"arguments": {"left": 1}})

        history = client.get("/v1/tools/add/versions")

    assert (listed.status_code, listed.json()["items"]) == (200, [])
    for response in (shown, history):
        assert (response.status_code, response.json()["code"]) == (503, "no_worker")
    assert called.json()["status"] == "unavailable"
    assert called.json()["error"]["code"] == "no_worker"


async def test_mcp_call_ends_as_no_worker(front: str) -> None:
    async with Client(f"{front}/mcp") as client:
        result = await client.call_tool("add", {"left": 1})

    assert result.is_error
    assert MESSAGE in str(result.content)


async def test_another_fleet_key_is_not_taken_for_a_missing_worker(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "add.py").write_text(SOURCE, "utf-8")
    settings = Settings(state=tmp_path / "state", fleet_key="another")
    with worker(server.url, tmp_path / "tools"):
        async with Kiln.connect(server.url, settings=settings) as kiln:
            result = await kiln.call("add", {"left": 1})

    assert result.error is not None
    assert result.error.code == "unknown_tool"
