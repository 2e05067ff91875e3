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


def ask(programs: Programs, home: Path, server: list[str], era: str, *arguments: str) -> Any:
    split = ["--"] if len(server) > 1 else []
    done = programs.run(
        home, "mcp-inspector", "--cli", "--protocol-era", era, *arguments, *split, *server
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_tools_are_listed_and_called_and_their_pages_read(
    programs: Programs, server: list[str], era: str, tmp_path: Path
) -> None:
    def asked(*arguments: str) -> Any:
        return ask(programs, tmp_path, server, era, "--method", *arguments)

    listed = asked("tools/list", "--strict")  # which fails if a schema is not portable
    called = asked("tools/call", "--tool-name", "test_simple_text")
    resources = asked("resources/list")["resources"]
    uri = next(one["uri"] for one in resources if "test_simple_text" in one["uri"])
    page = asked("resources/read", "--uri", uri)

    sentence = "This is a simple text response for testing."
    names = {tool["name"] for tool in listed["tools"]}
    assert {"test_simple_text", "test_tool_with_progress"} <= names
    assert called["structuredContent"] == {"result": sentence}
    assert called["content"][0]["text"] == sentence
    assert "Give a sentence" in page["contents"][0]["text"]
