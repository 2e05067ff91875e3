"""The suite of the protocol's authors, at both revisions, check by check.

Its list of what a revision requires is that of a server with everything. `ABSENT` names
what Toolkiln does not have; every other check has to pass, and what is listed must fail, so
that the list cannot outlive its reasons.
"""

import json
from pathlib import Path

import pytest

from .conftest import Programs

pytestmark = pytest.mark.conformance

NEEDED = {
    "test_audio_content",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_embedded_resource",
    "test_error_handling",
    "test_image_content",
    "test_input_required_result_capabilities",
    "test_input_required_result_elicitation",
    "test_input_required_result_list_roots",
    "test_input_required_result_multi_round",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_sampling",
    "test_logging_tool",
    "test_missing_capability",
    "test_multiple_content_types",
    "test_sampling",
    "test_simple_text",
    "test_streaming_elicitation",
    "test_tool_with_logging",
    "test_tool_with_progress",
}
"""Tools without which some checks would pass without having checked anything."""

_PROMPTS = (
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
)
_RESOURCES = ("resources-read-text", "resources-read-binary", "resources-templates-read")
ABSENT = {
    "2025-11-25": {
        # There are no prompts, and no completion of their arguments.
        *_PROMPTS,
        "completion-complete",
        # Resources are the pages about tools, not what the scenarios ask for by name.
        *_RESOURCES,
        "resources-subscribe",
        "resources-unsubscribe",
    },
    "2026-07-28": {
        *_PROMPTS,
        "completion-complete",
        "sep-2549-prompts-list-caching-hints",
        "sep-2322-non-tool-incomplete",
        *_RESOURCES,
    },
}

ALSO = {"2025-11-25": ["server-session-lifecycle"], "2026-07-28": ["http-header-validation"]}
"""Scenarios that the suite runs as well, without requiring them yet."""


@pytest.fixture(scope="module")
def listed(programs: Programs, url: str, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The tools, as another client lists them, by the names that their files give them."""
    home = tmp_path_factory.mktemp("lister")
    done = programs.run(
        home, "mcp-inspector", "--cli", url, "--transport", "http", "--method", "tools/list"
    )
    tools = json.loads(done.stdout)["tools"]
    return {tool.get("_meta", {}).get("toolkiln/name", tool["name"]) for tool in tools}


@pytest.mark.parametrize("revision", ABSENT)
def test_every_required_check_passes_but_those_of_what_is_absent(
    revision: str, programs: Programs, url: str, listed: set[str], tmp_path: Path
) -> None:
    assert listed >= NEEDED

    programs.run(
        tmp_path, "conformance", "server", "--url", url, "--requirements", revision, "-o", "out"
    )

    required = scenarios(programs, revision, tmp_path) + ALSO[revision]
    ran = {file.parent.name: json.loads(file.read_text()) for file in checks(tmp_path / "out")}
    ours = {
        name: found
        for name, found in ran.items()
        if any(name.startswith(f"server-{scenario}-2") for scenario in required)
    }
    assert len(ours) == len(required) > 25
    failed = {
        check["id"]: check.get("errorMessage")
        for found in ours.values()
        for check in found
        if check["status"] == "FAILURE"
    }
    assert {key: failed.get(key) for key in failed.keys() ^ ABSENT[revision]} == {}
    passed = sum(check["status"] == "SUCCESS" for found in ours.values() for check in found)
    assert passed > 40


def checks(folder: Path) -> list[Path]:
    return list(folder.rglob("checks.json"))


def scenarios(programs: Programs, revision: str, home: Path) -> list[str]:
    """The names of what a revision requires of servers."""
    done = programs.run(home, "conformance", "list", "--server", "--requirements", revision)
    block = done.stdout.split("Server scenarios")[1].split("\n\n")[0]
    return [line.strip("- ") for line in block.splitlines()[1:]]
