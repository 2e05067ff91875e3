"""Real agents on a scripted model: they call a tool that `toolkiln install` gave them.

Nothing leaves the machine. The model asks for a tool that only Toolkiln has, and the result
that the agent brings back to it is compared with what the tool gives.
"""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import COMMAND, Programs
from .model_server import Model, Step, Turn, serving

pytestmark = pytest.mark.conformance

PROMPT = "What does each of three pay for a meal of 100 with a tip of 10 percent?"
SHARE = '''from toolkiln import tool


@tool(read_only=True, open_world=False)
def split_bill(total: float, people: int, tip: float = 10) -> float:
    """Work out what each person pays for a meal.

    Args:
        total: The sum on the bill.
        people: How many share it.
        tip: Percent on top.
    """
    return round(total * (100 + tip) / 100 / people, 2)
'''


@dataclass(frozen=True)
class Agent:
    """One agent: how it finds the model, and how it gets its prompt."""

    program: str
    """Its name, or where its binary lies: without npm's scripts some names lead nowhere."""
    arguments: Callable[[str], list[str]]
    """From the model's address."""
    variables: Callable[[str], Mapping[str, str]] = lambda _: {}
    settings: Callable[[str], Mapping[str, object]] = lambda _: {}
    """What its file holds before Toolkiln is entered into it."""
    file: str = ""


def _codex(url: str) -> list[str]:
    provider = f'{{name="s",base_url="{url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
    chosen = ["-c", 'model_provider="s"', "-c", f"model_providers.s={provider}", "-m", "scripted"]
    # As with Claude Code: it is to wait for the server.
    waiting = ["-c", "mcp_servers.toolkiln.required=true"]
    return ["exec", "--skip-git-repo-check", *chosen, *waiting, PROMPT]


AGENTS = {
    "claude-code": Agent(
        program="@anthropic-ai/claude-code-*/claude",
        arguments=lambda _: ["-p", PROMPT, "--allowedTools", "mcp__toolkiln"],
        variables=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Otherwise it asks the model before the server has started, on a busy machine.
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_CONNECT_TIMEOUT_MS": "60000",
        },
    ),
    "codex": Agent(
        program="codex", arguments=_codex, variables=lambda _: {"OPENAI_API_KEY": "none"}
    ),
    "gemini": Agent(
        program="gemini",
        arguments=lambda _: ["-p", PROMPT, "--approval-mode", "yolo", "-m", "gemini-2.5-flash"],
        variables=lambda url: {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        settings=lambda _: {
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        },
        file=".gemini/settings.json",
    ),
    "opencode": Agent(
        program="opencode-*/bin/opencode",
        arguments=lambda _: ["run", "-m", "scripted/scripted", PROMPT],
        variables=lambda _: {
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        settings=lambda url: {
            "provider": {
                "scripted": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
                    "models": {"scripted": {"tool_call": True}},
                }
            }
        },
        file=".config/opencode/opencode.json",
    ),
}


def calling(tool: str, **arguments: object) -> Callable[[Turn], Step]:
    """Call the tool, then say its result."""

    def play(turn: Turn) -> Step:
        if turn.results:
            return Step(text=f"The result: {turn.results[-1]}")
        name = turn.named(tool)
        return Step(tool=name, arguments=arguments) if name else Step(text="No tool.")

    return play


def converse(
    name: str, programs: Programs, home: Path, project: Path, model: Model, *options: str
) -> "subprocess.CompletedProcess[str]":
    """Enter the project's tools into an agent's settings, and have it talk to the model."""
    agent = AGENTS[name]
    home.mkdir()
    if agent.file:
        (home / agent.file).parent.mkdir(parents=True)
        (home / agent.file).write_text(json.dumps(agent.settings(model.url)))
    entering = [str(COMMAND), "install", name, *options]
    subprocess.run(entering, cwd=project, env=programs.environ(home), check=True)
    return programs.run(
        home, agent.program, *agent.arguments(model.url), variables=agent.variables(model.url)
    )


def results(model: Model, done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What the agent brought back to the model."""
    found = [turn.results[-1] for turn in model.turns if turn.results]
    assert found, f"{done.stdout}\n{done.stderr}\n{model.turns}\n{model.unknown}"
    return found


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_calls_a_tool_and_passes_its_result_to_the_model(
    name: str, programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "split_bill.py").write_text(SHARE)
    (tmp_path / "toolkiln.toml").write_text('state = "state"\ndev = true\n')
    with serving(calling("split_bill", total=100, people=3)) as model:
        done = converse(name, programs, tmp_path / "home", tmp_path, model)

    assert "36.67" in results(model, done)[0]
    assert "The result" in done.stdout
    assert "36.67" in done.stdout


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_an_agent_waits_for_a_call_of_45_seconds(
    transport: str, programs: Programs, project: Path, url: str, tmp_path: Path
) -> None:
    options = ["--url", url] if transport == "http" else []

    with serving(calling("test_slow_tool", seconds=45)) as model:
        done = converse("claude-code", programs, tmp_path / "home", project, model, *options)

    assert "waited for 45 s" in results(model, done)[0]
    assert "waited for 45 s" in done.stdout
