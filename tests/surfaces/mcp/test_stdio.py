"""`toolkiln mcp` as clients start it: a real process, with tools in the sandbox."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ..conftest import BOUND, COMMAND, GREET

LOUD = GREET.replace('    return f"Hello', '    print("x" * 100_000)\n    return f"Hello')
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("mcp")
    (place / "tools").mkdir()
    (place / "tools" / "greet.py").write_text(LOUD)
    return place


def environ(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TOOLKILN_STATE": str(place / "state"), **more}


@pytest.fixture
def spoken(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [COMMAND, "mcp", "--dev"],
        cwd=place, env=environ(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def say(process: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def request(number: int, method: str, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": META, **params}}
    return json.dumps(body).encode()


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_lists_and_calls_what_the_process_serves(place: Path, era: str) -> None:
    parameters = StdioServerParameters(
        command=str(COMMAND), args=["mcp", "--dev"], cwd=place, env=environ(place)
    )

    async with Client(stdio_client(parameters), mode=era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        given = await client.call_tool("greet", {"name": "Ada"})

    assert "greet" in names
    assert given.structured_content == {"result": "Hello Ada"}


def test_nonsense_gets_errors_and_ends_nothing(spoken: subprocess.Popen[bytes]) -> None:
    assert spoken.stdin is not None
    answers = [
        say(spoken, request(1, "tools/list")),
        say(spoken, request(2, "nothing/known")),
        say(spoken, request(3, "initialize", protocolVersion="2025-11-25")),
        say(spoken, b'{"jsonrpc":"2.0","id":4,"method":"tools/list"}'),
    ]
    spoken.stdin.write(b"{\n[]\n\n\xff\xfe\n")
    after = say(spoken, request(5, "tools/list"))
    while after.get("id") != 5:
        assert spoken.stdout is not None
        after = json.loads(spoken.stdout.readline())
    spoken.stdin.close()

    assert "result" in answers[0]
    assert answers[1]["error"]["code"] == -32601
    assert answers[2]["error"]["code"] == -32022
    assert answers[3]["error"]["code"] == -32602
    assert "result" in after
    assert spoken.wait(BOUND) == 0


def test_a_wrong_key_is_told_before_anything_is_served(place: Path) -> None:
    done = subprocess.run(
        [COMMAND, "mcp", "--dev"],
        cwd=place, env=environ(place, TOOLKILN_API_KEY="tk_wrong"), input=b"",
        capture_output=True, timeout=BOUND, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stdout == b""
    assert b"error:" in done.stderr
