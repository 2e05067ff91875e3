"""The Inspector's command line: stdio and HTTP, both protocol eras, and its lint of schemas."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import COMMAND, Programs

pytestmark = pytest.mark.conformance


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, project: Path) -> list[str]:
    """How the Inspector reaches the tools."""
    if request.param == "stdio":
        return [str(COMMAND), "-C", str(project), "mcp"]
    return [request.getfixturevalue("url")]


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    """Which protocol it speaks."""
    return str(request.param)


def ask(
    programs: Programs, home: Path, server: list[str], era: str, *arguments: str, code: int = 0
) -> Any:
    split = ["--"] if len(server) > 1 else []
    done = programs.run(
        home, "mcp-inspector", "--cli", "--protocol-era", era, *arguments, *split, *server
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_tools_are_listed_and_their_schemas_are_portable(
    programs: Programs, server: list[str], era: str, tmp_path: Path
) -> None:
    found = ask(programs, tmp_path, server, era, "--method", "tools/list", "--strict")

    names = {tool["name"] for tool in found["tools"]}
    assert {"test_simple_text", "test_tool_with_progress"} <= names


def test_a_call_gives_its_result(
    programs: Programs, server: list[str], era: str, tmp_path: Path
) -> None:
    found = ask(
        programs,
        tmp_path,
        server,
        era,
        *("--method", "tools/call", "--tool-name", "test_simple_text"),
    )

    sentence = "This is a simple text response for testing."
    assert found["structuredContent"] == {"result": sentence}
    assert found["content"][0]["text"] == sentence


def test_pages_about_tools_are_resources(
    programs: Programs, server: list[str], era: str, tmp_path: Path
) -> None:
    found = ask(programs, tmp_path, server, era, "--method", "resources/list")
    uri = next(one["uri"] for one in found["resources"] if "test_simple_text" in one["uri"])

    page = ask(programs, tmp_path, server, era, "--method", "resources/read", "--uri", uri)

    assert "Give a sentence" in page["contents"][0]["text"]
