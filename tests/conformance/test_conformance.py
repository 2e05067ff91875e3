"""The suite of the protocol's authors, at both revisions: its exit code is the verdict."""

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


@pytest.mark.parametrize("revision", ALSO)
def test_every_required_scenario_passes(
    revision: str, programs: Programs, url: str, listed: set[str], tmp_path: Path
) -> None:
    assert listed >= NEEDED

    done = programs.run(
        tmp_path, "conformance", "server", "--url", url, "--requirements", revision, "-o", "out"
    )

    assert done.returncode == 0, done.stdout[-5_000:]
    for scenario in ALSO[revision]:
        (file,) = (tmp_path / "out").glob(f"server-{scenario}-2*/checks.json")
        found = json.loads(file.read_text())
        assert {"SUCCESS"} == {check["status"] for check in found if check["status"] != "INFO"}
